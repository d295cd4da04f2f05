//! Compares the allocations of one request with `baseline.json`, in any build profile.
//!
//! Instructions depend on the profile, and `check.sh` counts them. Allocations hardly do, so that this runs with the other
//! tests and finds what a change has added to each request.

#![expect(
    clippy::print_stderr,
    reason = "the counts are shown when the test fails"
)]

use std::alloc::System;
use std::collections::BTreeMap;

use longshore_benches::{
    Scenario, catalog, demo, exchanged, filtered, guarded, methods, with_state,
};
use serde_json::Value;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests that are counted.
const REQUESTS: usize = 20;
/// Maximum growth: a signature allocates now and then one more time.
const GROWTH: f64 = 1.02;
/// Allocations for each request that another thread of the server may make meanwhile.
const OTHERS: f64 = 0.25;

/// Allocations of one request of a scenario.
fn allocations(scenario: &Scenario) -> f64 {
    let send = |requests: usize| {
        let requests: Vec<_> = (0..requests).map(|_| scenario.request()).collect();
        let before = ALLOCATOR.stats();
        for request in requests {
            std::hint::black_box(scenario.respond(request));
        }
        let spent = ALLOCATOR.stats() - before;
        spent.allocations + spent.reallocations
    };
    send(scenario.warm_up);
    send(REQUESTS) as f64 / REQUESTS as f64
}

#[test]
fn requests_allocate_no_more_than_the_baseline_says() {
    let baseline = include_str!("baseline.json");
    let baseline: BTreeMap<String, Value> = serde_json::from_str(baseline).expect("JSON");
    let groups: [fn() -> Vec<Scenario>; 8] = [
        demo,
        || catalog(10),
        || catalog(1_000),
        || methods(1_000),
        with_state,
        guarded,
        exchanged,
        filtered,
    ];
    let mut grown = 0;
    for scenario in groups.iter().flat_map(|group| group()) {
        let name = &scenario.name;
        let counted = allocations(&scenario);
        let expected = baseline[name]["allocations"].as_f64().expect("a number");
        if counted > expected * GROWTH + OTHERS {
            eprintln!("{name}: {counted} allocations, and {expected} in the baseline");
            grown += 1;
        }
    }
    assert_eq!(
        grown, 0,
        "remove the allocations, or run benches/check.sh update"
    );
}
