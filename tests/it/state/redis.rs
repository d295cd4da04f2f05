//! The state on a Redis server that these tests start themselves, and what becomes of it when the server misbehaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore::App;
use longshore::state::{Redis, Retention, State, StateConfig, StateError, SubscriptionEvent};
use serde_json::json;

use super::contract;
use crate::lasting::{announcing, begin_call, changed, id_of, open, resume};
use crate::support::{RedisServer, Serve, Session, becomes, becomes_so};

const MINUTE: Duration = Duration::from_secs(60);
const KEEP: Retention = Retention {
    entries: 10,
    bytes: 1000,
    life: MINUTE,
    may_go: false,
};

fn config(server: &RedisServer, prefix: &str) -> StateConfig {
    StateConfig {
        url: Some(server.url().into()),
        prefix: prefix.to_owned(),
        // Longer than the default, because test machines may be busy.
        timeout_ms: 2000,
        ..StateConfig::default()
    }
}

/// A state with nothing in it.
fn fresh(server: &RedisServer) -> Arc<Redis> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let prefix = format!("test-{}:", NEXT.fetch_add(1, Ordering::Relaxed));
    Arc::new(Redis::new(&config(server, &prefix)).expect("an address"))
}

async fn works(state: &Redis) -> bool {
    state
        .put("k", Bytes::from_static(b"v"), MINUTE)
        .await
        .is_ok()
}

#[tokio::test]
async fn redis_is_a_state() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    contract::holds(|| fresh(&server) as Arc<dyn State>).await;
}

#[tokio::test]
async fn every_key_has_an_end_and_the_prefix() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let state = fresh(&server);
    let value = Bytes::from_static(b"v");
    state.put("a", value.clone(), MINUTE).await.expect("redis");
    state
        .put_if_absent("b", value.clone(), MINUTE)
        .await
        .expect("redis");
    state.count("c", 1, MINUTE).await.expect("redis");
    state.append("d", value.clone(), KEEP).await.expect("redis");
    state
        .compare_and_swap("a", value.clone(), value, MINUTE)
        .await
        .expect("redis");
    let keys = server.say(&["KEYS", "*"]);
    assert_eq!(keys.len(), 4, "{keys:?}");
    for key in keys {
        assert!(key.starts_with("test-"), "{key}");
        let life: i64 = server.say(&["PTTL", &key])[0].parse().expect("a number");
        assert!((1..=60_000).contains(&life), "{key}: {life}");
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_said_so_in_time_and_found_again() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let state = fresh(&server);
    let mut listener = state.subscribe("c").await.expect("redis");
    assert!(works(&state).await);
    server.stop();
    for _ in 0..20 {
        let begun = Instant::now();
        let refused = state.get("k").await;
        assert!(
            matches!(refused, Err(StateError::Unreachable { .. })),
            "{refused:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            !format!("{refused:?}").contains("127.0.0.1"),
            "no addresses"
        );
    }
    server.start_again();
    becomes_so(|| works(&state)).await;
    assert_eq!(listener.next().await, SubscriptionEvent::Missed);
    state
        .publish("c", Bytes::from_static(b"back"))
        .await
        .expect("redis");
    assert_eq!(
        listener.next().await,
        SubscriptionEvent::Message(Bytes::from_static(b"back"))
    );
}

#[tokio::test]
async fn a_server_that_is_read_only_is_told_from_one_that_is_gone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let state = fresh(&server);
    server.say(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = state.put("k", Bytes::new(), MINUTE).await;
    assert!(
        matches!(&refused, Err(StateError::Unreachable { reason }) if reason.contains("read-only")),
        "{refused:?}"
    );
    let script = state.append("l", Bytes::new(), KEEP).await;
    assert!(
        matches!(script, Err(StateError::Unreachable { .. })),
        "{script:?}"
    );
    server.say(&["REPLICAOF", "NO", "ONE"]);
    becomes_so(|| works(&state)).await;
    state.append("l", Bytes::new(), KEEP).await.expect("redis");
}

#[tokio::test]
async fn a_server_without_room_is_told_from_one_that_is_gone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let state = fresh(&server);
    server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = state.put("k", Bytes::new(), MINUTE).await;
    assert!(
        matches!(&refused, Err(StateError::Unreachable { reason }) if reason.contains("maxmemory")),
        "{refused:?}"
    );
    server.say(&["CONFIG", "SET", "maxmemory", "0"]);
    server.say(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = state.put("k", Bytes::new(), MINUTE).await;
    assert!(
        matches!(&refused, Err(StateError::Unreachable { reason }) if reason.contains("NOREPLICAS")),
        "{refused:?}"
    );
    server.say(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert!(works(&state).await);
}

#[test]
fn an_address_that_is_none_is_refused_and_not_repeated() {
    for url in ["", "http://x", "redis//x", "redis://:swordfish@host:port"] {
        let config = StateConfig {
            url: Some(url.to_owned().into()),
            ..StateConfig::default()
        };
        let error = Redis::new(&config).expect_err("no address").to_string();
        assert!(
            error.contains("state.url") && !error.contains("swordfish"),
            "{error}"
        );
    }
    let config = StateConfig {
        url: Some("redis://:swordfish@localhost".to_owned().into()),
        ..StateConfig::default()
    };
    let redis = Redis::new(&config).expect("an address");
    assert!(!format!("{redis:?} {config:?}").contains("swordfish"));
}

/// Two servers that share the state on Redis.
fn pair(redis: &RedisServer) -> [crate::lasting::Announcing; 2] {
    let replica = || {
        let state = config(redis, "pair:");
        announcing(|serve| serve.shared_key().configured(|c| c.state = state))
    };
    [replica(), replica()]
}

#[test]
fn replicas_hear_of_one_another_through_redis() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let [one, other] = pair(&redis);
    let session = one.server.session("2025-11-25");
    let there = session.at(&other.server);
    let mut standing = open(&other.server, &there);
    standing.any_event().expect("its beginning");
    // Messages can be lost until both have subscribed.
    let heard = std::thread::spawn(move || (standing.event(), standing));
    becomes(|| {
        one.announcer.tools_changed();
        heard.is_finished()
    });
    let (event, mut standing) = heard.join().expect("no panic");
    assert_eq!(event, Some(changed("tools")));

    // A call that runs at one is followed at the other.
    let mut connection = begin_call(&one.server, &session);
    let first = connection.any_event().expect("an event");
    connection.any_event().expect("progress");
    let mut back = resume(&other.server, &there, id_of(&first));
    assert_eq!(
        back.event().expect("progress")["method"],
        "notifications/progress"
    );
    one.gate.open();
    assert_eq!(back.event().expect("an answer")["result"]["isError"], false);

    // Flushed data is lost, and reported as lost.
    redis.say(&["FLUSHALL"]);
    let [header] = there.headers();
    let head = other
        .server
        .connect()
        .get(&[header, ("last-event-id", id_of(&first))]);
    assert_eq!(head.status, 400);
    let heard = std::thread::spawn(move || while standing.event() != Some(changed("prompts")) {});
    becomes(|| {
        one.announcer.prompts_changed();
        heard.is_finished()
    });
    heard.join().expect("no panic");

    // The session itself ends everywhere.
    session.end();
    becomes(|| there.request("ping", &json!({})).status == 404);
}

#[test]
fn a_session_that_ends_while_redis_is_gone_ends_everywhere_once_it_is_back() {
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let [one, other] = pair(&redis);
    let ended = [
        one.server.session("2025-11-25"),
        one.server.session("2025-06-18"),
    ];
    let there = ended.each_ref().map(|session| session.at(&other.server));
    for session in &there {
        session.request("ping", &json!({})).result();
    }
    redis.stop();
    for session in &ended {
        session.end();
        assert_eq!(session.request("ping", &json!({})).status, 404);
    }
    redis.start_again();
    for session in &there {
        becomes(|| session.request("ping", &json!({})).status == 404);
    }
}

#[test]
fn what_is_said_after_redis_was_set_back_is_heard_everywhere() {
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let [one, other] = pair(&redis);
    let end = |n: usize| {
        let sessions: Vec<_> = (0..n).map(|_| one.server.session("2025-11-25")).collect();
        for session in &sessions {
            let there = session.at(&other.server);
            there.request("ping", &json!({})).result();
            session.end();
            becomes(|| there.request("ping", &json!({})).status == 404);
        }
    };
    let session = one.server.session("2025-11-25");
    let mut standing = open(&other.server, &session.at(&other.server));
    standing.any_event().expect("its beginning");
    end(1);
    redis.say(&["SAVE"]);
    // Later writes are lost in the crash.
    end(5);
    for _ in 0..5 {
        one.announcer.tools_changed();
        assert_eq!(standing.event(), Some(changed("tools")));
    }
    redis.stop();
    redis.start_again();
    end(1);
    one.announcer.prompts_changed();
    assert_eq!(standing.event(), Some(changed("prompts")));
    // Its own streams hear it as well.
    let mut own = open(&one.server, &session);
    own.any_event().expect("its beginning");
    one.announcer.tools_changed();
    assert_eq!(own.event(), Some(changed("tools")));
}

#[test]
fn calls_do_not_depend_on_redis() {
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let state = StateConfig {
        timeout_ms: 200,
        ..config(&redis, "calls:")
    };
    let it = announcing(|serve| serve.configured(|c| c.state = state));
    let session = it.server.session("2025-11-25");
    let mut standing = open(&it.server, &session);
    standing.any_event().expect("its beginning");
    it.gate.open();
    // First it does not answer, then it is gone.
    for dead in [false, true] {
        if dead {
            redis.resume();
            redis.stop();
        } else {
            redis.pause();
        }
        let begun = Instant::now();
        for _ in 0..20 {
            session.request("ping", &json!({})).result();
            session.request("tools/list", &json!({})).result();
        }
        let other = it.server.session("2025-06-18");
        other.request("ping", &json!({})).result();
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        // A stream still receives local events and responses; only streams of calls cannot be resumed.
        it.announcer.tools_changed();
        assert_eq!(standing.event(), Some(changed("tools")));
        it.gate.open();
        let mut call = begin_call(&it.server, &session);
        let answer = std::iter::from_fn(|| call.event())
            .last()
            .expect("an answer");
        assert_eq!(answer["result"]["isError"], false);
        let [header] = session.headers();
        let call = ("last-event-id", "0000000000000001-1");
        let head = it.server.connect().get(&[header, call]);
        assert_eq!((head.status, head.header("retry-after")), (503, Some("2")));
        let mut resumed = resume(&it.server, &other, "s-1");
        let lists = [(); 3].map(|()| resumed.event().expect("a notification"));
        for list in ["tools", "prompts", "resources"] {
            assert!(lists.contains(&changed(list)), "{lists:?}");
        }
    }
    redis.start_again();
    // And it is found again.
    becomes(|| {
        let subscribed = session.request("resources/subscribe", &json!({"uri": "test://watched"}));
        subscribed.json().get("result").is_some()
    });
}

#[test]
fn keys_that_somebody_else_has_written_break_nothing() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    for key in ["notices", "facts"] {
        redis.say(&["SET", &format!("wrong:1/mcp/{key}"), "something else"]);
    }
    let state = config(&redis, "wrong:");
    let it = announcing(|serve| serve.configured(|c| c.state = state));
    let session = it.server.session("2025-11-25");
    let mut standing = open(&it.server, &session);
    it.announcer.tools_changed();
    assert_eq!(standing.event(), Some(changed("tools")));
    session.end();
    session.request("ping", &json!({})).error(404, 404, "");
}

#[test]
fn a_server_starts_without_redis_and_says_what_is_wrong_with_its_address() {
    // No server listens on that port.
    let server = Serve::demo_with(|c| {
        c.state.url = Some("redis://127.0.0.1:1".to_owned().into());
    });
    server
        .session("2025-11-25")
        .request("ping", &json!({}))
        .result();
    let mut config = longshore::Config::default();
    config.state.url = Some("postgres://x".to_owned().into());
    let error = App::new().config(config).harness().expect_err("no address");
    assert!(error.to_string().contains("redis://"), "{error}");
}

#[test]
fn rates_hold_for_replicas_together_if_they_are_told_to() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let replica = || {
        let state = config(&redis, "rates:");
        announcing(|serve| {
            serve.shared_key().configured(|c| {
                c.state = state;
                c.limits.shared = true;
                c.limits.server.per_second = 0.01;
                c.limits.server.burst = 3000;
            })
        })
    };
    let [one, other] = [replica(), replica()];
    let session = one.server.session("2025-11-25");
    let there = session.at(&other.server);
    // Messages can be lost until both have subscribed, so the rate must be exceeded clearly.
    let limited = |session: &Session<'_>| session.request("ping", &json!({})).status == 429;
    for _ in 0..2000 {
        assert!(!limited(&session), "there are enough for one of them");
    }
    for _ in 0..2000 {
        if limited(&there) {
            return;
        }
    }
    panic!("both together let through more than there were");
}
