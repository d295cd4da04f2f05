//! The state on several Redis servers: a master that sentinels watch, and a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore::state::{Redis, Retention, State, StateConfig, SubscriptionEvent};

use super::contract;
use crate::support::{RedisServer, becomes, becomes_so, free_port};

const MINUTE: Duration = Duration::from_secs(60);
const KEEP: Retention = Retention {
    entries: 10,
    bytes: 1000,
    life: MINUTE,
    may_go: false,
};

/// A state with nothing in it.
fn fresh(url: &str) -> Arc<Redis> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let config = StateConfig {
        url: Some(url.to_owned().into()),
        prefix: format!("several-{}:", NEXT.fetch_add(1, Ordering::Relaxed)),
        timeout_ms: 2000,
        ..StateConfig::default()
    };
    Arc::new(Redis::new(&config).expect("an address"))
}

/// Waits until calls succeed.
async fn comes_back(state: &Redis) {
    let alive = Bytes::from_static(b"yes");
    becomes_so(|| async { state.put("alive", alive.clone(), MINUTE).await.is_ok() }).await;
}

/// A master, its copy, and a sentinel that knows both.
fn watched() -> Option<(RedisServer, RedisServer, RedisServer)> {
    let master = RedisServer::start()?;
    let port = master.port().to_string();
    let copy = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port])?;
    let sentinel = RedisServer::start_sentinel("the-master", &master)?;
    becomes(|| {
        copy.say(&["INFO", "replication"])
            .iter()
            .chain(&copy.say(&["ROLE"]))
            .any(|line| line == "connected" || line == "slave")
    });
    becomes(|| {
        let said = sentinel.say(&["SENTINEL", "CKQUORUM", "the-master"]);
        let known = sentinel.say(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "the-master"]);
        said.iter().any(|line| line.starts_with("OK")) && known.contains(&port) && {
            let copies = sentinel.count_of(&["SENTINEL", "REPLICAS", "the-master"]);
            copies == Some(1)
        }
    });
    Some((master, copy, sentinel))
}

#[tokio::test]
async fn a_master_that_sentinels_name_is_a_state_and_so_is_the_one_after_it() {
    let Some((mut master, copy, sentinel)) = watched() else {
        return;
    };
    let url = format!("redis+sentinel://127.0.0.1:{}/the-master", sentinel.port());
    contract::holds(|| fresh(&url) as Arc<dyn State>).await;
    let state = fresh(&url);
    let value = Bytes::from_static(b"before");
    state
        .put("kept", value.clone(), MINUTE)
        .await
        .expect("redis");
    state
        .append("log", value.clone(), KEEP)
        .await
        .expect("redis");
    let mut listener = state.subscribe("c").await.expect("redis");
    // Copies lag behind; what they have not is lost with the master.
    becomes(|| master.say(&["WAIT", "1", "1000"]) == ["1"]);
    master.stop();
    comes_back(&state).await;
    becomes(|| {
        let named = sentinel.say(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "the-master"]);
        named.contains(&copy.port().to_string())
    });
    assert_eq!(state.get("kept").await.expect("redis"), Some(value.clone()));
    let page = state.read_after("log", 0, 10).await.expect("redis");
    assert_eq!(page.expect("a log").entries.len(), 1);
    // A subscriber is told of possible loss, and receives new messages.
    let heard = tokio::time::timeout(Duration::from_secs(40), listener.next()).await;
    assert_eq!(heard.expect("in time"), SubscriptionEvent::Missed);
    state.publish("c", value.clone()).await.expect("redis");
    let heard = tokio::time::timeout(Duration::from_secs(10), listener.next()).await;
    assert_eq!(heard.expect("in time"), SubscriptionEvent::Message(value));
}

#[tokio::test]
async fn subscriptions_leave_a_master_that_hangs_when_calls_do() {
    let Some((master, _copy, sentinel)) = watched() else {
        return;
    };
    let url = format!("redis+sentinel://127.0.0.1:{}/the-master", sentinel.port());
    let state = fresh(&url);
    let value = Bytes::from_static(b"after");
    let mut listener = state.subscribe("c").await.expect("redis");
    comes_back(&state).await;
    // It keeps its connections, and says nothing.
    master.pause();
    comes_back(&state).await;
    let heard = tokio::time::timeout(Duration::from_secs(10), listener.next()).await;
    assert_eq!(heard.expect("in time"), SubscriptionEvent::Missed);
    state.publish("c", value.clone()).await.expect("redis");
    let heard = tokio::time::timeout(Duration::from_secs(10), listener.next()).await;
    assert_eq!(heard.expect("in time"), SubscriptionEvent::Message(value));
    master.resume();
}

/// Three nodes that have a third of the slots each.
fn cluster() -> Option<Vec<RedisServer>> {
    let mut nodes = Vec::new();
    for slots in [["0", "5460"], ["5461", "10922"], ["10923", "16383"]] {
        let bus = free_port().to_string();
        let node = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus])?;
        assert_eq!(
            node.say(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]),
            ["OK"]
        );
        if let Some((first, first_bus)) = nodes
            .first()
            .map(|(node, bus): &(RedisServer, String)| (node.port().to_string(), bus.clone()))
        {
            node.say(&["CLUSTER", "MEET", "127.0.0.1", &first, &first_bus]);
        }
        nodes.push((node, bus));
    }
    let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
    for node in &nodes {
        becomes(|| {
            let state = node.say(&["CLUSTER", "INFO"]);
            state.iter().any(|line| line.contains("cluster_state:ok"))
        });
    }
    Some(nodes)
}

#[tokio::test]
async fn a_cluster_is_a_state() {
    let Some(nodes) = cluster() else {
        return;
    };
    // A node knows the other nodes.
    let url = format!("redis+cluster://127.0.0.1:{}", nodes[1].port());
    contract::holds(|| fresh(&url) as Arc<dyn State>).await;
    let state = fresh(&url);
    for number in 0..50 {
        let key = format!("key-{number}");
        let value = Bytes::from(key.clone());
        state.put(&key, value, MINUTE).await.expect("redis");
    }
    for (number, node) in nodes.iter().enumerate() {
        let [keys] = &node.say(&["DBSIZE"])[..] else {
            panic!("a number");
        };
        assert!(
            keys.parse::<u32>().expect("a number") > 0,
            "node {number} has none"
        );
    }
    assert_eq!(
        state.get("key-7").await.expect("redis"),
        Some(Bytes::from_static(b"key-7"))
    );
}

#[tokio::test]
async fn calls_leave_a_node_that_hangs_when_another_has_its_slots() {
    let Some(nodes) = cluster() else {
        return;
    };
    let bus = free_port().to_string();
    let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let copy = RedisServer::start_with(&options).expect("it was there before");
    let first = nodes[0].say(&["CLUSTER", "MYID"]);
    let bus_of = |node: &RedisServer| node.say(&["CONFIG", "GET", "cluster-port"])[1].clone();
    let port = nodes[0].port().to_string();
    copy.say(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_of(&nodes[0])]);
    becomes(|| copy.say(&["CLUSTER", "REPLICATE", &first[0]]) == ["OK"]);
    becomes(|| nodes[0].say(&["WAIT", "1", "1000"]) == ["1"]);
    becomes(|| {
        let copies = ["CLUSTER", "REPLICAS", &first[0]];
        copy.count_of(&["CLUSTER", "SLOTS"]) == Some(3)
            && nodes.iter().all(|node| node.count_of(&copies) == Some(1))
    });
    let url = format!("redis+cluster://127.0.0.1:{}", nodes[1].port());
    let state = fresh(&url);
    let works = |number: usize| {
        let (state, key) = (Arc::clone(&state), format!("key-{number}"));
        async move {
            let put = state.put(&key, Bytes::new(), MINUTE);
            // Less than the timeout of a call that waits for the node.
            let within = Duration::from_secs(1);
            matches!(tokio::time::timeout(within, put).await, Ok(Ok(())))
        }
    };
    comes_back(&state).await;
    // It keeps its connections, and says nothing.
    nodes[0].pause();
    assert_eq!(copy.say(&["CLUSTER", "FAILOVER", "TAKEOVER"]), ["OK"]);
    let begun = Instant::now();
    let mut in_a_row = 0;
    while in_a_row < 50 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never works");
        in_a_row = match works(in_a_row).await {
            true => in_a_row + 1,
            false => 0,
        };
    }
    nodes[0].resume();
}

#[tokio::test]
async fn sentinels_that_nobody_reaches_are_told_at_once_and_forgotten_when_they_are_back() {
    let port = free_port();
    let state = fresh(&format!("redis+sentinel://127.0.0.1:{port}/the-master"));
    let begun = Instant::now();
    for _ in 0..10 {
        let refused = state.get("k").await;
        assert!(refused.is_err(), "{refused:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "calls wait");
}
