//! Compares the memory that the in-memory state accounts for with the memory allocated for it.

#![expect(
    clippy::print_stderr,
    reason = "the sizes are shown when the test fails"
)]

use std::alloc::System;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{Claim, Memory, Retention, State, Subscription};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HOUR: Duration = Duration::from_secs(3600);
/// Maximum relative difference of the two.
const APART: f64 = 0.1;

/// Runs a future of the in-memory state, which completes immediately.
fn done<T>(future: impl Future<Output = T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits for something"),
    }
}

fn allocated() -> isize {
    let stats = ALLOCATOR.stats();
    let now = stats.bytes_allocated as isize - stats.bytes_deallocated as isize;
    now + stats.bytes_reallocated
}

/// Keys look as random as they are.
fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ n
}

fn log(may_go: bool) -> Retention {
    Retention {
        entries: 100,
        bytes: 256 * 1024,
        life: HOUR,
        may_go,
    }
}

/// Adds one more entry of a kind; returns the subscription to hold, if any.
type Fill = fn(&dyn State, u64) -> Option<Box<dyn Subscription>>;

fn value(state: &dyn State, n: u64, bytes: usize) {
    let key = format!("1/mcp/subscriptions/{:032x}", mixed(n));
    // With room to spare, as what serialisers make has.
    let mut value = Vec::with_capacity(bytes * 2);
    value.resize(bytes, b'x');
    done(state.put(&key, value.into(), HOUR)).expect("room");
}

const KINDS: [(&str, u64, Fill); 8] = [
    ("counters", 20_000, |state, n| {
        let key = format!("counter/{:016x}", mixed(n));
        done(state.count(&key, 1, HOUR)).expect("room");
        None
    }),
    ("small values", 20_000, |state, n| {
        value(state, n, 60);
        None
    }),
    ("values", 5_000, |state, n| {
        value(state, n, 1_500);
        None
    }),
    ("large values", 200, |state, n| {
        value(state, n, 60_000);
        None
    }),
    ("streams", 8_000, |state, n| {
        let key = format!("1/mcp/events/{:016x}/{n:016x}", mixed(n));
        for size in [1, 160, 160, 160, 240] {
            let entry = Bytes::from(vec![b'x'; size]);
            done(state.append(&key, entry, log(true))).expect("room");
        }
        None
    }),
    ("outcomes", 1_000, |state, n| {
        let key = format!("task-end/mcp/{:032x}", mixed(n));
        let entry = Bytes::from(vec![b'x'; 12_000]);
        done(state.append(&key, entry, log(true))).expect("room");
        None
    }),
    ("streams that go on", 200, |state, n| {
        let key = format!("1/mcp/events/{:016x}/{n:016x}", mixed(n));
        for at in 0..300 {
            let entry = Bytes::from(vec![b'x'; 100 + at]);
            done(state.append(&key, entry, log(true))).expect("room");
        }
        None
    }),
    ("channels", 10_000, |state, n| {
        let channel = format!("task-in/mcp/{:032x}", mixed(n));
        let listener = done(state.subscribe(&channel)).expect("room");
        for _ in 0..n % 3 {
            done(state.publish(&channel, Bytes::from(vec![b'x'; 50]))).expect("room");
        }
        Some(listener)
    }),
];

#[test]
fn what_is_counted_is_what_is_allocated() {
    let mut wrong = Vec::new();
    for (kind, times, fill) in KINDS {
        let memory = Memory::new(1 << 30);
        let claim = Claim {
            owner: Some("ada"),
            kind: "test",
            may_go: true,
        };
        let state = memory.claimed(claim).expect("a view");
        let mut held = Vec::with_capacity(times as usize);
        let before = allocated();
        for n in 0..times {
            held.extend(fill(&*state, n));
        }
        // The handles belong to the subscribers.
        let handles = held.len() * (48 + 48);
        let real = (allocated() - before) as f64 - handles as f64;
        let counted = memory.bytes() as f64;
        let apart = counted / real - 1.0;
        let line = format!(
            "{kind}: {counted} counted, {real} allocated, {:+.1} %",
            100.0 * apart
        );
        if APART < apart.abs() {
            wrong.push(line.clone());
        }
        eprintln!("{line}");
        // All of it is given back.
        drop(held);
        let mut left = memory.usage();
        left.retain(|usage| usage.kind == "channel");
        assert_eq!(left.iter().map(|usage| usage.bytes).sum::<usize>(), 0);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
