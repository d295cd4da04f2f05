//! What every store that replicas share has to hold.

mod contract;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_several;
#[cfg(feature = "redis")]
mod redis_tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{Heard, Keep, Memory, State, StateError};

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
    let life = |minutes| Keep {
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
    let stays = Keep {
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
    // One that was as short, and goes on.
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
    let keep = Keep {
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
    assert_eq!(slow.next().await, Heard::Missed);
    assert!(matches!(slow.next().await, Heard::Message(_)));
}
