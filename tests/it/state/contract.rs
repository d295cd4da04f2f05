//! The contract of the trait, for whichever store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{Retention, State, StateError, SubscriptionEvent};

use crate::support::becomes_so;

const MINUTE: Duration = Duration::from_secs(60);
/// Long enough not to end between two lines of a test, short enough to be waited for.
const SHORT: Duration = Duration::from_millis(300);

fn of(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Each part gets a store with nothing in it.
pub(super) async fn holds(fresh: impl Fn() -> Arc<dyn State>) {
    values(&*fresh()).await;
    values_end(&*fresh()).await;
    swaps(&*fresh()).await;
    counters(&*fresh()).await;
    logs(&*fresh()).await;
    logs_are_bounded(&*fresh()).await;
    logs_end(&*fresh()).await;
    kinds_are_told_apart(&*fresh()).await;
    channels(&*fresh()).await;
}

async fn values(state: &dyn State) {
    assert_eq!(state.get("k").await.expect("a store"), None);
    state.put("k", of("one"), MINUTE).await.expect("a store");
    state.put("k", of("two"), MINUTE).await.expect("a store");
    assert_eq!(state.get("k").await.expect("a store"), Some(of("two")));
    // Any bytes, none too.
    let bytes = Bytes::from((0..=255).collect::<Vec<u8>>());
    state
        .put("b", bytes.clone(), MINUTE)
        .await
        .expect("a store");
    assert_eq!(state.get("b").await.expect("a store"), Some(bytes));
    state.put("e", Bytes::new(), MINUTE).await.expect("a store");
    assert_eq!(state.get("e").await.expect("a store"), Some(Bytes::new()));
    assert!(state.remove("k").await.expect("a store"));
    assert!(!state.remove("k").await.expect("a store"));
    assert_eq!(state.get("k").await.expect("a store"), None);
}

async fn values_end(state: &dyn State) {
    state.put("k", of("v"), SHORT).await.expect("a store");
    state.put("long", of("v"), SHORT).await.expect("a store");
    // The last life counts.
    state.put("long", of("v"), MINUTE).await.expect("a store");
    becomes_so(|| async { state.get("k").await.expect("a store").is_none() }).await;
    assert_eq!(state.get("long").await.expect("a store"), Some(of("v")));
    assert!(
        state
            .put_if_absent("k", of("again"), MINUTE)
            .await
            .expect("a store")
    );
}

async fn swaps(state: &dyn State) {
    let absent = state.compare_and_swap("k", of("x"), of("y"), MINUTE);
    assert!(!absent.await.expect("a store"));
    assert_eq!(state.get("k").await.expect("a store"), None);
    for (value, written) in [("one", true), ("two", false)] {
        let put = state.put_if_absent("k", of(value), MINUTE).await;
        assert_eq!(put.expect("a store"), written);
    }
    assert_eq!(state.get("k").await.expect("a store"), Some(of("one")));
    for (expected, value, swapped) in [("two", "x", false), ("one", "three", true)] {
        let swap = state.compare_and_swap("k", of(expected), of(value), MINUTE);
        assert_eq!(swap.await.expect("a store"), swapped);
    }
    assert_eq!(state.get("k").await.expect("a store"), Some(of("three")));
}

async fn counters(state: &dyn State) {
    for (by, sum) in [(1, 1), (41, 42), (0, 42)] {
        assert_eq!(state.count("n", by, MINUTE).await.expect("a store"), sum);
    }
    assert_eq!(state.count("s", 5, SHORT).await.expect("a store"), 5);
    // Counting does not prolong its life.
    becomes_so(|| async { state.count("s", 0, SHORT).await.expect("a store") == 0 }).await;
}

fn keep(entries: usize, bytes: usize) -> Retention {
    Retention {
        entries,
        bytes,
        life: MINUTE,
        may_go: false,
    }
}

async fn logs(state: &dyn State) {
    assert_eq!(state.read_after("l", 0, 10).await.expect("a store"), None);
    let mut numbers = Vec::new();
    for entry in ["a", "b", "c"] {
        let number = state.append("l", of(entry), keep(10, 1000)).await;
        numbers.push(number.expect("a store"));
    }
    let [first, second, third] = numbers[..] else {
        panic!("{numbers:?}");
    };
    assert!(first < second && second < third, "{numbers:?}");
    let read = |after, max| async move {
        let page = state.read_after("l", after, max).await.expect("a store");
        let page = page.expect("a log");
        assert_eq!((page.first, page.last), (first, third));
        page.entries
    };
    let all = [(first, of("a")), (second, of("b")), (third, of("c"))];
    assert_eq!(read(0, 10).await, all);
    assert_eq!(read(0, 2).await, all[..2]);
    assert_eq!(read(first, 10).await, all[1..]);
    assert_eq!(read(third, 10).await, []);
    assert_eq!(read(third + 99, 10).await, []);
    let page = state.read_after("l", 0, 0).await.expect("a store");
    let page = page.expect("a log");
    assert!(page.continues(first - 1) && page.continues(third));
    assert!(!page.continues(first - 2) && !page.continues(third + 1));
}

async fn logs_are_bounded(state: &dyn State) {
    async fn kept(state: &dyn State, log: &str) -> (u64, Vec<Bytes>) {
        let page = state.read_after(log, 0, 100).await.expect("a store");
        let page = page.expect("a log");
        let numbers: Vec<_> = page.entries.iter().map(|(number, _)| *number).collect();
        assert!(page.first <= numbers[0], "{page:?}");
        assert_eq!(numbers.last(), Some(&page.last));
        let entries = page.entries.into_iter();
        (numbers[0], entries.map(|(_, entry)| entry).collect())
    }
    let mut numbers = Vec::new();
    for n in 0..10 {
        let number = state.append("n", of(&n.to_string()), keep(3, 1000)).await;
        numbers.push(number.expect("a store"));
    }
    assert_eq!(
        kept(state, "n").await,
        (numbers[7], vec![of("7"), of("8"), of("9")])
    );
    // A reader that is past all dropped entries has missed nothing.
    let page = state.read_after("n", 0, 100).await.expect("a store");
    let page = page.expect("a log");
    assert!(page.continues(numbers[6]) && page.continues(numbers[9]));
    assert!(!page.continues(numbers[5]) && !page.continues(numbers[9] + 1));
    for n in 0..10 {
        let entry = of(&n.to_string().repeat(10));
        state
            .append("b", entry, keep(100, 25))
            .await
            .expect("a store");
    }
    assert_eq!(
        kept(state, "b").await.1,
        [of(&"8".repeat(10)), of(&"9".repeat(10))]
    );
    // An entry above the limit is stored alone.
    state
        .append("b", of(&"x".repeat(50)), keep(100, 25))
        .await
        .expect("a store");
    assert_eq!(kept(state, "b").await.1, [of(&"x".repeat(50))]);
    state.trim("n", numbers[8]).await.expect("a store");
    assert_eq!(kept(state, "n").await, (numbers[9], vec![of("9")]));
    state.trim("n", u64::from(u32::MAX)).await.expect("a store");
    state.trim("none", 1).await.expect("a store");
}

async fn logs_end(state: &dyn State) {
    let short = Retention {
        life: SHORT,
        ..keep(10, 1000)
    };
    let last = state.append("l", of("a"), short).await.expect("a store");
    becomes_so(|| async {
        state
            .read_after("l", 0, 1)
            .await
            .expect("a store")
            .is_none()
    })
    .await;
    // A new log does not repeat the numbers of the old one.
    let long = keep(10, 1000);
    let next = state.append("l", of("b"), long).await.expect("a store");
    assert!(last + 1 < next, "{last} {next}");
    let page = state.read_after("l", last, 10).await.expect("a store");
    assert!(!page.expect("a log").continues(last));
    assert!(state.remove("l").await.expect("a store"));
    assert_eq!(state.read_after("l", 0, 1).await.expect("a store"), None);
    // Each entry prolongs the life of the whole.
    state.append("p", of("a"), short).await.expect("a store");
    state.append("p", of("b"), long).await.expect("a store");
    state.put("after", of("v"), SHORT).await.expect("a store");
    becomes_so(|| async { state.get("after").await.expect("a store").is_none() }).await;
    let page = state.read_after("p", 0, 10).await.expect("a store");
    assert_eq!(
        page.expect("a log").entries.last().map(|(_, entry)| entry),
        Some(&of("b"))
    );
}

async fn kinds_are_told_apart(state: &dyn State) {
    state.put("value", of("v"), MINUTE).await.expect("a store");
    state.count("count", 1, MINUTE).await.expect("a store");
    state
        .append("log", of("e"), keep(10, 1000))
        .await
        .expect("a store");
    for wrong in [
        state.get("log").await.map(drop),
        state.count("log", 1, MINUTE).await.map(drop),
        state
            .append("value", of("e"), keep(10, 1000))
            .await
            .map(drop),
        state
            .append("count", of("e"), keep(10, 1000))
            .await
            .map(drop),
        state.read_after("value", 0, 1).await.map(drop),
        state.trim("value", 1).await,
        state
            .compare_and_swap("log", of("e"), of("x"), MINUTE)
            .await
            .map(drop),
    ] {
        assert!(matches!(wrong, Err(StateError::WrongType)), "{wrong:?}");
    }
    assert_eq!(state.get("value").await.expect("a store"), Some(of("v")));
    assert_eq!(state.count("count", 0, MINUTE).await.expect("a store"), 1);
}

async fn channels(state: &dyn State) {
    state
        .publish("c", of("nobody listens"))
        .await
        .expect("a store");
    let mut one = state.subscribe("c").await.expect("a store");
    let mut two = state.subscribe("c").await.expect("a store");
    let mut other = state.subscribe("d").await.expect("a store");
    for message in ["first", "second"] {
        state.publish("c", of(message)).await.expect("a store");
    }
    state.publish("d", of("elsewhere")).await.expect("a store");
    for listener in [&mut one, &mut two] {
        assert_eq!(
            listener.next().await,
            SubscriptionEvent::Message(of("first"))
        );
        assert_eq!(
            listener.next().await,
            SubscriptionEvent::Message(of("second"))
        );
    }
    assert_eq!(
        other.next().await,
        SubscriptionEvent::Message(of("elsewhere"))
    );
}
