//! Connections to Redis servers that do not respond any more, and the one that all subscriptions share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore::state::{Redis, State, StateConfig, SubscriptionEvent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::lasting::{announcing, open};
use crate::support::{RedisServer, becomes, becomes_so};

const MINUTE: Duration = Duration::from_secs(60);

fn state(url: &str, timeout_ms: u64) -> Redis {
    let config = StateConfig {
        url: Some(url.to_owned().into()),
        timeout_ms,
        ..StateConfig::default()
    };
    Redis::new(&config).expect("an address")
}

/// A port whose connections can go silent, as if the host behind them were gone.
struct Relay {
    port: u16,
    connected: Arc<AtomicUsize>,
    /// Connections with smaller numbers are silent.
    silent: Arc<AtomicUsize>,
}

impl Relay {
    async fn before(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (connected, silent) = (Arc::default(), Arc::default());
        let relay = Self {
            port: listener.local_addr().expect("an address").port(),
            connected: Arc::clone(&connected),
            silent: Arc::clone(&silent),
        };
        let behind = ("127.0.0.1", server.port());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(behind).await.expect("a server");
                let number = connected.fetch_add(1, Ordering::SeqCst);
                let (client_reads, client_writes) = client.into_split();
                let (server_reads, server_writes) = server.into_split();
                let forward =
                    |mut from: tokio::net::tcp::OwnedReadHalf,
                     mut to: tokio::net::tcp::OwnedWriteHalf| {
                        let silent = Arc::clone(&silent);
                        tokio::spawn(async move {
                            let mut bytes = vec![0; 4096];
                            while let Ok(read @ 1..) = from.read(&mut bytes).await {
                                let is_silent = number < silent.load(Ordering::SeqCst);
                                if !is_silent && to.write_all(&bytes[..read]).await.is_err() {
                                    return;
                                }
                            }
                        });
                    };
                forward(client_reads, server_writes);
                forward(server_reads, client_writes);
            }
        });
        relay
    }

    fn silence(&self) {
        let connected = self.connected.load(Ordering::SeqCst);
        self.silent.store(connected, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let relay = Relay::before(&server).await;
    let state = state(&format!("redis://127.0.0.1:{}", relay.port), 200);
    let works = || async { state.put("k", Bytes::new(), MINUTE).await.is_ok() };
    becomes_so(works).await;
    relay.silence();
    assert!(!works().await);
    becomes_so(works).await;
}

#[tokio::test]
async fn credentials_that_become_valid_are_tried_again() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let user = |rule: &str| server.say(&["ACL", "SETUSER", "it", "on", rule, "~*", "&*", "+@all"]);
    user(">another");
    let url = format!("redis://it:secret@127.0.0.1:{}", server.port());
    let state = state(&url, 2000);
    let works = || async { state.put("k", Bytes::new(), MINUTE).await.is_ok() };
    assert!(!works().await);
    user(">secret");
    becomes_so(works).await;
}

#[tokio::test]
async fn a_subscription_that_takes_long_to_connect_is_there_at_a_later_attempt() {
    let Some(master) = RedisServer::start() else {
        return;
    };
    let sentinel = RedisServer::start_sentinel("m", &master).expect("it was there before");
    // It accepts connections, and says nothing.
    let hangs = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let hangs_at = hangs.local_addr().expect("an address").port();
    let url = format!(
        "redis+sentinel://127.0.0.1:{hangs_at},127.0.0.1:{}/m",
        sentinel.port()
    );
    let state = state(&url, 100);
    let within = Duration::from_millis(100);
    let begun = Instant::now();
    let mut listener = loop {
        let subscribed = tokio::time::timeout(within, state.subscribe("c")).await;
        if let Ok(Ok(listener)) = subscribed {
            break listener;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it never is");
        tokio::time::sleep(within).await;
    };
    let said = Bytes::from_static(b"heard");
    becomes_so(|| async { state.publish("c", said.clone()).await.is_ok() }).await;
    assert_eq!(listener.next().await, SubscriptionEvent::Message(said));
}

#[tokio::test]
async fn subscriptions_share_a_connection_and_end_one_by_one() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let state = state(&server.url(), 2000);
    let mut listeners = Vec::new();
    for number in 0..20 {
        let channel = format!("c{}", number % 10);
        listeners.push(state.subscribe(&channel).await.expect("redis"));
    }
    let clients = server.say(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    let lines = clients.iter().filter(|line| line.contains("sub=10"));
    assert_eq!(lines.count(), 1, "{clients:?}");
    let mut rest = listeners.split_off(10);
    drop(listeners);
    let said = Bytes::from_static(b"still heard");
    state.publish("c3", said.clone()).await.expect("redis");
    let heard = SubscriptionEvent::Message(said.clone());
    assert_eq!(rest[3].next().await, heard);
    drop(rest.split_off(5));
    let channels = || server.count_of(&["PUBSUB", "CHANNELS"]);
    becomes_so(|| async { channels() == Some(5) }).await;
    // All are restored together.
    server.stop();
    server.start_again();
    for listener in &mut rest {
        assert_eq!(listener.next().await, SubscriptionEvent::Missed);
    }
    becomes_so(|| async { state.publish("c3", said.clone()).await.is_ok() }).await;
    assert_eq!(rest[3].next().await, heard);
}

#[test]
fn a_stream_that_opens_while_redis_does_not_respond_gets_its_subscriptions_later() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let it = announcing(|serve| {
        serve.configured(|c| {
            c.state.url = Some(redis.url().into());
        })
    });
    let session = it.server.session("2025-11-25");
    let watched = serde_json::json!({"uri": "test://watched"});
    becomes(|| {
        let subscribed = session.request("resources/subscribe", &watched);
        subscribed.json().get("result").is_some()
    });
    redis.pause();
    let mut standing = open(&it.server, &session);
    redis.resume();
    let heard = std::thread::spawn(move || {
        let updated =
            |event: &serde_json::Value| event["method"] == "notifications/resources/updated";
        std::iter::from_fn(|| standing.event()).any(|event| updated(&event))
    });
    becomes(|| {
        it.announcer.resource_changed("test://watched");
        heard.is_finished()
    });
    assert!(heard.join().expect("no panic"));
}
