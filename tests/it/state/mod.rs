//! The contract of every shared store.

mod contract;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_connections;
#[cfg(feature = "redis")]
mod redis_several;
#[cfg(feature = "redis")]
mod redis_tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{Claim, Memory, Retention, State, StateError, SubscriptionEvent};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn memory_is_a_state() {
    contract::holds(|| Arc::new(Memory::default())).await;
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_makes_room_and_no_value_is_thrown_away_before() {
    let state = Memory::new(10_000);
    let value = Bytes::from(vec![b'x'; 3_000]);
    for key in ["a", "b", "c"] {
        state.put(key, value.clone(), MINUTE).await.expect("room");
    }
    let full = state.put("d", value.clone(), MINUTE).await;
    assert!(matches!(full, Err(StateError::Full)), "{full:?}");
    assert_eq!(state.get("a").await.expect("memory"), Some(value.clone()));
    assert!(matches!(
        state.count("n", 1, MINUTE).await,
        Ok(1) | Err(StateError::Full)
    ));
    tokio::time::advance(MINUTE).await;
    for key in ["d", "e", "f"] {
        let again = state.put(key, value.clone(), MINUTE).await;
        again.expect("room for as much as before");
    }
    assert_eq!(state.get("a").await.expect("memory"), None);
}

#[tokio::test(start_paused = true)]
async fn logs_that_end_soonest_make_room_before_anything_is_refused() {
    let state = Memory::new(1 << 20);
    let life = |minutes| Retention {
        entries: 10,
        bytes: 1 << 20,
        life: minutes * MINUTE,
        may_go: true,
    };
    let entry = Bytes::from(vec![b'x'; 10_000]);
    let is_there = async |log: &str| {
        let page = state.read_after(log, 0, 10).await;
        page.expect("memory").is_some()
    };
    state
        .put("value", entry.clone(), MINUTE)
        .await
        .expect("room");
    let stays = Retention {
        may_go: false,
        ..life(1)
    };
    let kept = state.append("kept", entry.clone(), stays);
    kept.await.expect("room");
    state
        .append("lasting", entry.clone(), life(60))
        .await
        .expect("room");
    state
        .append("short", entry.clone(), life(1))
        .await
        .expect("room");
    // A value of the same length continues to work.
    state
        .append("prolonged", entry.clone(), life(1))
        .await
        .expect("room");
    state
        .append("prolonged", entry.clone(), life(60))
        .await
        .expect("room");
    for n in 0..200 {
        let log = n.to_string();
        state
            .append(&log, entry.clone(), life(30))
            .await
            .expect("room");
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert!(state.bytes() <= 1 << 20);
    assert!(!is_there("short").await && is_there("kept").await);
    assert!(is_there("lasting").await && is_there("prolonged").await && is_there("199").await);
    assert_eq!(state.get("value").await.expect("memory"), Some(entry));
}

#[tokio::test]
async fn what_is_removed_costs_nothing() {
    let state = Memory::default();
    let keep = Retention {
        entries: 3,
        bytes: 100,
        life: MINUTE,
        may_go: false,
    };
    for n in 0..100_u8 {
        let value = Bytes::from(vec![n; 40]);
        state
            .append("log", value.clone(), keep)
            .await
            .expect("room");
        state.put("value", value, MINUTE).await.expect("room");
        state.count("count", 1, MINUTE).await.expect("room");
    }
    state.trim("log", u64::MAX).await.expect("a log");
    for key in ["log", "value", "count"] {
        assert!(state.remove(key).await.expect("memory"));
    }
    assert_eq!(state.bytes(), 0);
}

#[tokio::test]
async fn whoever_listens_and_is_slow_is_told_that_something_was_missed() {
    let state = Memory::default();
    let mut slow = state.subscribe("c").await.expect("memory");
    for n in 0..5_000_u32 {
        let message = Bytes::from(n.to_string());
        state.publish("c", message).await.expect("memory");
    }
    assert_eq!(slow.next().await, SubscriptionEvent::Missed);
    assert!(matches!(slow.next().await, SubscriptionEvent::Message(_)));
}

#[tokio::test]
async fn a_channel_costs_little_and_goes_with_its_last_subscriber() {
    let state = Memory::default();
    let mut listeners = Vec::new();
    for n in 0..3_000 {
        let channel = format!("task-in/mcp/{n:032x}");
        listeners.push(state.subscribe(&channel).await.expect("room"));
    }
    let each = state.bytes() / listeners.len();
    assert!(each < 512, "{each} bytes for a channel");
    let message = Bytes::from(vec![b'x'; 1_000]);
    let (first, before) = (format!("task-in/mcp/{:032x}", 0), state.bytes());
    let mut other = state.subscribe(&first).await.expect("room");
    for _ in 0..100 {
        let said = state.publish(&first, message.clone()).await;
        said.expect("memory");
    }
    assert!(before + 200_000 <= state.bytes(), "both have them waiting");
    assert_eq!(other.next().await, SubscriptionEvent::Message(message));
    drop(other);
    drop(listeners);
    assert_eq!(state.bytes(), 0);
}

#[tokio::test]
async fn messages_that_nobody_reads_are_bounded_by_their_bytes() {
    let state = Memory::default();
    let mut slow = state.subscribe("c").await.expect("room");
    for n in 0..1_000_u32 {
        let mut message = vec![b'x'; 60_000];
        message.extend_from_slice(n.to_string().as_bytes());
        state.publish("c", message.into()).await.expect("memory");
    }
    assert!(state.bytes() < 1 << 21, "{}", state.bytes());
    assert_eq!(slow.next().await, SubscriptionEvent::Missed);
    let mut last = None;
    while let Ok(SubscriptionEvent::Message(message)) =
        tokio::time::timeout(Duration::from_millis(10), slow.next()).await
    {
        last = Some(message);
    }
    assert!(last.is_some_and(|message| message.ends_with(b"999")));
}

fn claim(owner: &str, may_go: bool) -> Claim<'_> {
    Claim {
        owner: Some(owner),
        kind: "test",
        may_go,
    }
}

#[tokio::test]
async fn what_may_not_go_takes_no_more_than_the_share_of_its_owner() {
    let state = Memory::with_share(100_000, 25);
    let of = |owner| state.claimed(claim(owner, false)).expect("shares");
    let (ada, bob) = (of("ada"), of("bob"));
    let value = Bytes::from(vec![b'x'; 1_000]);
    let mut refused = None;
    let mut kept = 0;
    for n in 0..100 {
        match ada.put(&format!("ada{n}"), value.clone(), MINUTE).await {
            Ok(()) => kept += 1,
            Err(error) => refused = Some(error),
        }
    }
    assert!((20..=25).contains(&kept), "{kept}");
    let refused = refused.expect("there was not room for all");
    assert!(matches!(refused, StateError::Share), "{refused}");
    assert!(refused.to_string().contains("state.share_percent"));
    for n in 0..20 {
        let key = format!("bob{n}");
        let put = bob.put(&key, value.clone(), MINUTE);
        put.await.expect("a share of its own");
    }
    // An existing value can be replaced, also by a larger one.
    let longer = Bytes::from(vec![b'y'; 1_500]);
    let swap = ada.compare_and_swap("ada1", value.clone(), longer, MINUTE);
    assert!(swap.await.expect("room"));
    for key in ["ada0", "ada1"] {
        assert!(ada.remove(key).await.expect("memory"));
    }
    ada.put("again", value, MINUTE).await.expect("room");
}

#[tokio::test(start_paused = true)]
async fn room_is_made_by_the_owner_that_takes_most_and_by_no_other() {
    let state = Memory::with_share(100_000, 25);
    let of = |owner| state.claimed(claim(owner, true)).expect("shares");
    let (ada, bob) = (of("ada"), of("bob"));
    let value = Bytes::from(vec![b'x'; 1_000]);
    for n in 0..10 {
        let key = format!("bob{n}");
        let put = bob.put(&key, value.clone(), MINUTE);
        put.await.expect("room");
    }
    // The store uses free memory first, and then evicts its own entries.
    for n in 0..500 {
        tokio::time::advance(Duration::from_millis(1)).await;
        let key = format!("ada{n}");
        let put = ada.put(&key, value.clone(), MINUTE);
        put.await.expect("room");
    }
    for n in 10..20 {
        let key = format!("bob{n}");
        let put = bob.put(&key, value.clone(), MINUTE);
        put.await.expect("room");
    }
    assert!(state.bytes() <= 100_000);
    for n in 0..20 {
        let kept = state.get(&format!("bob{n}")).await.expect("memory");
        assert!(kept.is_some(), "bob{n} made room for somebody else");
    }
    assert_eq!(state.get("ada0").await.expect("memory"), None);
    let newest = state.get("ada499").await.expect("memory");
    assert!(newest.is_some(), "the oldest go first");
}

#[tokio::test]
async fn everything_under_a_prefix_goes_at_once() {
    let state = Memory::default();
    for key in ["a/1", "a/2", "a0", "b/1"] {
        state.put(key, Bytes::new(), MINUTE).await.expect("room");
    }
    state.remove_all("a/").await.expect("memory");
    for (key, stays) in [("a/1", false), ("a/2", false), ("a0", true), ("b/1", true)] {
        let found = state.get(key).await.expect("memory");
        assert_eq!(found.is_some(), stays, "{key}");
    }
}

#[tokio::test]
async fn what_is_kept_is_shown_by_kind() {
    let state = Memory::default();
    let kept = Claim {
        owner: None,
        kind: "stream",
        may_go: false,
    };
    let view = state.claimed(kept).expect("kinds");
    let keep = Retention {
        entries: 10,
        bytes: 10_000,
        life: MINUTE,
        may_go: true,
    };
    for _ in 0..4 {
        let entry = Bytes::from(vec![b'x'; 500]);
        view.append("log", entry, keep).await.expect("room");
    }
    let of = |kind| {
        let usage = state.usage();
        let found = usage.into_iter().find(|usage| usage.kind == kind);
        found.map_or((0, 0), |usage| (usage.entries, usage.bytes))
    };
    let (entries, bytes) = of("stream");
    assert!(entries == 1 && (2_000..2_500).contains(&bytes), "{bytes}");
    assert!(state.remove("log").await.expect("memory"));
    assert_eq!(of("stream"), (0, 0));
    let sum: usize = state.usage().iter().map(|usage| usage.bytes).sum();
    assert_eq!(sum, state.bytes());
}
