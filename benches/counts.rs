//! Counts instructions and allocations of one request within the server, from the head and the body that hyper hands over to
//! the response that it is given, and compares them with `baseline.json`.
//!
//! Both are nearly the same on every machine and at any load, so that a change that costs something shows immediately.
//! Instructions are counted by `valgrind --tool=callgrind`, which runs this program again; they depend on the compiler and
//! its profile, so the baseline is made anew when the compiler changes, and an unoptimized build has a baseline of its own.
//! Such a build also counts fewer scenarios, since its code is slow: the most frequent ones, in about a minute.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program: its report is its output"
)]

use std::alloc::System;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use longshore::bench::Unread;
use longshore_benches::{
    Asked, Scenario, buckets, catalog, demo, exchanged, filtered, guarded, methods, roles,
    with_state,
};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Maximum growth of a count before `check` fails.
const GROWTH: f64 = 1.05;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => count().map(|counts| print(&counts)),
        ["check"] => count().and_then(|counts| check(&counts)),
        ["update"] => count().and_then(|counts| update(&counts)),
        [MEASURE, group, name] => measure(group, name),
        _ => Err("usage: longshore-counts [check | update]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Instructions of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    instructions: f64,
    allocations: f64,
}

type Counts = BTreeMap<String, Count>;

/// True in a build that is not optimized.
const UNOPTIMIZED: bool = cfg!(debug_assertions);

/// Scenarios that share a server.
const GROUPS: [fn() -> Vec<Scenario>; 12] = [
    demo,
    with_state,
    || catalog(10),
    guarded,
    || catalog(1_000),
    || catalog(10_000),
    || methods(1_000),
    exchanged,
    filtered,
    || buckets(1),
    || buckets(1_000_000),
    roles,
];

/// Number of groups that an unoptimized build counts.
const QUICK_GROUPS: usize = 4;

/// Counts each scenario in its own process, as many concurrently as there are processors; the counts do not depend on
/// the time. The slowest ones are last in [`GROUPS`] and start first.
fn count() -> Result<Counts, Box<dyn Error>> {
    let groups = GROUPS.iter().enumerate();
    let groups = groups.take(if UNOPTIMIZED {
        QUICK_GROUPS
    } else {
        GROUPS.len()
    });
    let names = groups.flat_map(|(group, scenarios)| {
        let names = scenarios().into_iter().map(|scenario| scenario.name);
        names.map(move |name| (group, name))
    });
    let waiting: Mutex<Vec<_>> = Mutex::new(names.collect());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let counts = Mutex::new(Counts::new());
    let work = || {
        while let Some((group, name)) = next() {
            // The error type is not `Send`, but its message is.
            let count = count_one(group, &name).map_err(|error| error.to_string())?;
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.insert(name, count);
        }
        Ok::<_, String>(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs this program under callgrind, and reads what both have written.
fn count_one(group: usize, name: &str) -> Result<Count, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind.out");
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg("--toggle-collect=*measured*")
        .arg(std::env::current_exe()?)
        .args([MEASURE, &group.to_string(), name])
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("`valgrind` is needed to count instructions: {error}"))?;
    if !run.status.success() {
        return Err(format!("{name}: valgrind ended with {}", run.status).into());
    }
    let report = fs::read_to_string(file)?;
    let total = report
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = total.ok_or("callgrind counted nothing")?.parse()?;
    let allocations: f64 = String::from_utf8(run.stdout)?.trim().parse()?;
    let requests = requests(name) as f64;
    Ok(Count {
        instructions: (total / requests).round(),
        allocations: allocations / requests,
    })
}

/// Returns the number of requests for a scenario.
fn requests(name: &str) -> usize {
    match name {
        "echo-64k" | "echo-code" if UNOPTIMIZED => 2,
        _ if UNOPTIMIZED => 20,
        "echo-64k" | "echo-code" => 20,
        // Each of them once.
        "list-of-one-role" | "list-of-1000-roles" => 1000,
        _ => 200,
    }
}

/// The first argument of the program when it runs under callgrind; then follow the group and the scenario.
const MEASURE: &str = "measure";

/// Sends a scenario's requests, and prints how often memory was allocated.
fn measure(group: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let group = GROUPS.get(group.parse::<usize>()?).ok_or("no such group")?;
    let scenarios = group();
    let scenario = scenarios.iter().find(|scenario| scenario.name == name);
    let scenario = scenario.ok_or("no such scenario")?;
    let ready = |number| (0..number).map(|_| scenario.request()).collect();
    let warm_up = if UNOPTIMIZED {
        requests(name)
    } else {
        scenario.warm_up
    };
    let mut responses = Vec::new();
    send(scenario, ready(warm_up), &mut responses);
    responses.clear();
    let requests = ready(requests(name));
    responses.reserve(requests.len());
    let before = ALLOCATOR.stats();
    measured(scenario, requests, &mut responses);
    let spent = ALLOCATOR.stats() - before;
    println!("{}", spent.allocations + spent.reallocations);
    Ok(())
}

/// Function whose instructions callgrind counts. Responses are kept: reading and dropping them is hyper's.
#[inline(never)]
fn measured(scenario: &Scenario, requests: Vec<Asked>, responses: &mut Vec<Option<Unread>>) {
    send(scenario, requests, responses);
}

#[inline(always)]
fn send(scenario: &Scenario, requests: Vec<Asked>, responses: &mut Vec<Option<Unread>>) {
    for request in requests {
        responses.push(scenario.respond(request));
    }
}

fn print(counts: &Counts) {
    println!(
        "{:<24} {:>12} {:>12}",
        "one request", "instructions", "allocations"
    );
    for (name, count) in counts {
        println!(
            "{name:<24} {:>12} {:>12}",
            count.instructions, count.allocations
        );
    }
}

fn update(counts: &Counts) -> Result<(), Box<dyn Error>> {
    print(counts);
    let counts: BTreeMap<_, _> = counts
        .iter()
        .map(|(name, count)| {
            let instructions = count.instructions as u64;
            (
                name,
                json!({"instructions": instructions, "allocations": count.allocations}),
            )
        })
        .collect();
    fs::write(baseline(), serde_json::to_string_pretty(&counts)? + "\n")?;
    Ok(())
}

/// Fails when something has grown, or depends on how many tools or methods there are.
fn check(counts: &Counts) -> Result<(), Box<dyn Error>> {
    let baseline: BTreeMap<String, Value> = serde_json::from_str(&fs::read_to_string(baseline())?)?;
    let mut problems = dependent_on_size(counts);
    problems.extend(beyond_bounds(counts));
    println!(
        "{:<24} {:>12} {:>8} {:>12} {:>8}",
        "one request", "instructions", "", "allocations", ""
    );
    for (name, count) in counts {
        let Some(was) = baseline.get(name) else {
            problems.push(format!("{name} is not in the baseline"));
            continue;
        };
        let mut change = |what: &str, is: f64| {
            let was = was[what].as_f64().unwrap_or(f64::NAN);
            // Some scenarios allocate nothing.
            let ratio = if is == was { 1.0 } else { is / was };
            if ratio > GROWTH || ratio.is_nan() {
                problems.push(format!("{name}: {what} are {ratio:.3} of the baseline's"));
            }
            ratio
        };
        println!(
            "{name:<24} {:>12} {:>+7.1}% {:>12} {:>+7.1}%",
            count.instructions,
            100.0 * (change("instructions", count.instructions) - 1.0),
            count.allocations,
            100.0 * (change("allocations", count.allocations) - 1.0),
        );
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(problems.join("\n       ").into())
}

/// Pairs of scenarios with equal cost, and the maximum relative difference. A listing takes so few instructions that
/// the allocator's behavior with a larger heap is visible.
const EQUAL: [(&str, f64); 3] = [
    (
        "first-of-10 last-of-10 first-of-1000 last-of-1000 first-of-10000 last-of-10000",
        1.01,
    ),
    ("list-10 list-1000 list-10000", 1.02),
    ("first-method-of-1000 last-method-of-1000", 1.01),
];

fn dependent_on_size(counts: &Counts) -> Vec<String> {
    let mut problems = Vec::new();
    for (names, apart) in EQUAL {
        let found = || names.split(' ').filter_map(|name| counts.get(name));
        let (least, most) = ends(found().map(|count| count.instructions));
        if least * apart < most {
            problems.push(format!(
                "instructions of {names} are from {least} to {most}"
            ));
        }
        let (least, most) = ends(found().map(|count| count.allocations));
        if least < most {
            problems.push(format!("allocations of {names} are from {least} to {most}"));
        }
    }
    problems
}

/// Maximum cost of one scenario relative to another. The cost of authentication has no bound here: without sockets it
/// is a larger part of a request than in practice (`longshore-loadtest cost`).
const BOUNDS: [(&str, &str, f64); 1] = [("list-of-1000-roles", "list-of-one-role", 1.6)];
/// Maximum cost of one bucket lookup, regardless of the number of buckets.
const BUCKET_MAX: f64 = 1500.0;

fn beyond_bounds(counts: &Counts) -> Vec<String> {
    let of = |name: &str| counts.get(name).map(|count| count.instructions);
    let pairs = BOUNDS.iter().filter_map(|(name, other, bound)| {
        let (count, other_count) = (of(name)?, of(other)?);
        let beyond = bound * other_count < count;
        beyond.then(|| format!("{name} takes {count} instructions, {other} {other_count}"))
    });
    let looks = counts
        .iter()
        .filter(|(name, _)| name.starts_with("bucket-"));
    let looks = looks.filter(|(_, count)| BUCKET_MAX < count.instructions);
    let looks =
        looks.map(|(name, count)| format!("{name} takes {} instructions", count.instructions));
    pairs.chain(looks).collect()
}

fn ends(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::INFINITY, 0.0), |(least, most), number| {
        (least.min(number), f64::max(most, number))
    })
}

fn baseline() -> std::path::PathBuf {
    let file = if UNOPTIMIZED {
        "baseline-unoptimized.json"
    } else {
        "baseline.json"
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}
