//! Requests from the bytes of their bodies to those of their answers, without sockets and without hyper.

use divan::Bencher;
use longshore_benches::{Scenario, catalog, demo, guarded};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

fn run(bencher: Bencher<'_, '_>, scenarios: &[Scenario], name: &str) {
    let Some(scenario) = scenarios.iter().find(|scenario| scenario.name == name) else {
        panic!("there is no scenario {name}");
    };
    bencher
        .with_inputs(|| scenario.request())
        .bench_local_values(|request| scenario.respond(request));
}

#[divan::bench(args = ["call", "call-stateless", "ping", "discover", "initialize", "echo-64k", "echo-code"])]
fn demo_toolset(bencher: Bencher<'_, '_>, name: &str) {
    run(bencher, &demo(), name);
}

#[divan::bench(args = [10, 1_000, 10_000])]
fn last_tool_of(bencher: Bencher<'_, '_>, count: usize) {
    run(bencher, &catalog(count), &format!("last-of-{count}"));
}

#[divan::bench(args = [10, 1_000, 10_000])]
fn listing_of(bencher: Bencher<'_, '_>, count: usize) {
    run(bencher, &catalog(count), &format!("list-{count}"));
}

#[divan::bench(args = ["call-open", "call-key", "call-token", "call-buckets"])]
fn with_proofs(bencher: Bencher<'_, '_>, name: &str) {
    run(bencher, &guarded(), name);
}
