//! Redis over TLS: trusted certificates and client certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{Redis, State, StateConfig, StateError, StateTlsConfig};

use super::contract;
use crate::support::{RedisServer, assert_contains, free_port, tls_file};

const MINUTE: Duration = Duration::from_secs(60);

fn path(name: &str) -> String {
    tls_file(name).to_str().expect("UTF-8").to_owned()
}

/// A server with a port for TLS, and that port. Clients have to show a certificate if they are asked to.
fn secure(asks_clients: bool, more: &[&str]) -> Option<(RedisServer, u16)> {
    let port = free_port();
    let (number, certificate, key, ca) = (
        port.to_string(),
        path("server.crt"),
        path("server.key"),
        path("ca.crt"),
    );
    let mut options = vec![
        "--tls-port",
        &number,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        if asks_clients { "yes" } else { "no" },
    ];
    options.extend(more);
    Some((RedisServer::start_with(&options)?, port))
}

fn trusting() -> StateTlsConfig {
    StateTlsConfig {
        ca: Some(tls_file("ca.crt")),
        ..StateTlsConfig::default()
    }
}

/// A state with nothing in it.
fn fresh(url: &str, tls: StateTlsConfig) -> Arc<Redis> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let config = StateConfig {
        url: Some(url.to_owned().into()),
        prefix: format!("tls-{}:", NEXT.fetch_add(1, Ordering::Relaxed)),
        timeout_ms: 2000,
        tls,
        ..StateConfig::default()
    };
    Arc::new(Redis::new(&config).expect("an address"))
}

/// Returns the error of an unusable state.
async fn refused(url: &str, tls: StateTlsConfig) -> String {
    let state = fresh(url, tls);
    match state.put("k", Bytes::new(), MINUTE).await {
        Err(StateError::Unreachable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn redis_over_tls_is_a_state() {
    let Some((_server, port)) = secure(false, &[]) else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{port}");
    contract::holds(|| fresh(&url, trusting()) as Arc<dyn State>).await;
}

#[tokio::test]
async fn a_cluster_over_tls_is_a_state() {
    let bus = free_port().to_string();
    let cluster = [
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--tls-cluster",
        "yes",
    ];
    let Some((server, port)) = secure(false, &cluster) else {
        return;
    };
    assert_eq!(
        server.say(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]),
        ["OK"]
    );
    let url = format!("rediss+cluster://127.0.0.1:{port}");
    let state = fresh(&url, trusting());
    // The cluster takes a moment to become complete.
    for _ in 0..200 {
        if state.put("k", Bytes::new(), MINUTE).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    contract::holds(|| fresh(&url, trusting()) as Arc<dyn State>).await;
}

#[tokio::test]
async fn a_master_that_sentinels_name_over_tls_is_a_state() {
    let Some((_server, port)) = secure(false, &[]) else {
        return;
    };
    let own = free_port();
    let lines = format!(
        "tls-port {own}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
         tls-auth-clients no\ntls-replication yes",
        path("server.crt"),
        path("server.key"),
        path("ca.crt"),
    );
    let Some(_sentinel) = RedisServer::start_sentinel_with("the-master", port, &lines) else {
        return;
    };
    let url = format!("rediss+sentinel://127.0.0.1:{own}/the-master");
    contract::holds(|| fresh(&url, trusting()) as Arc<dyn State>).await;
}

#[tokio::test]
async fn a_store_that_wants_a_certificate_is_shown_one() {
    let Some((_server, port)) = secure(true, &[]) else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{port}");
    let reason = refused(&url, trusting()).await;
    assert!(reason.contains("state.tls.certificate"), "{reason}");
    let shown = StateTlsConfig {
        certificate: Some(tls_file("client.crt")),
        key: Some(tls_file("client.key")),
        ..trusting()
    };
    let state = fresh(&url, shown);
    state.put("k", Bytes::new(), MINUTE).await.expect("redis");
    state.subscribe("c").await.expect("redis");
}

#[tokio::test]
async fn a_store_that_nobody_vouches_for_is_not_believed() {
    let Some((server, port)) = secure(false, &[]) else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{port}");
    let reason = refused(&url, StateTlsConfig::default()).await;
    assert!(reason.contains("state.tls.ca"), "{reason}");
    // Nothing is sent in plain text to a server without TLS.
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let reason = refused(&url, trusting()).await;
    assert!(!reason.contains("127.0.0.1"), "{reason}");
}

#[test]
fn certificates_without_tls_are_a_mistake() {
    let config = StateConfig {
        url: Some("redis://127.0.0.1:6379".to_owned().into()),
        tls: trusting(),
        ..StateConfig::default()
    };
    let said = Redis::new(&config).expect_err("no TLS").to_string();
    assert_contains(&said, &["state.tls", "rediss://"]);
}
