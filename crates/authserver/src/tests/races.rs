//! Requests that meet: the same code, refresh token, form or callback at several replicas at once.
//!
//! The store gives way before and after each operation, so requests interleave between all of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;
use tokio::task::yield_now;

use super::flow::{self, CLIENT_REDIRECT, Flow, VERIFIER, form};
use crate::state::{Claim, LogPage, Memory, Retention, State, StateFuture, Subscription};

/// Requests at once. More than the attempts to change a record that others change as well.
const AT_ONCE: usize = 24;

/// A store that lets other requests run around each operation on a value.
#[derive(Debug)]
pub(super) struct Interleaved(Arc<dyn State>);

impl Interleaved {
    pub(super) fn store() -> Arc<dyn State> {
        Arc::new(Self(Arc::new(Memory::new(1024 * 1024))))
    }

    fn around<'a, T: Send + 'a>(&self, operation: StateFuture<'a, T>) -> StateFuture<'a, T> {
        Box::pin(async move {
            yield_now().await;
            let result = operation.await;
            yield_now().await;
            result
        })
    }
}

impl State for Interleaved {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        self.around(self.0.get(key))
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        self.around(self.0.put(key, value, life))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.around(self.0.put_if_absent(key, value, life))
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.around(self.0.compare_and_swap(key, expected, value, life))
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        self.around(self.0.remove(key))
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        self.around(self.0.count(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Retention) -> StateFuture<'a, u64> {
        self.0.append(log, entry, keep)
    }

    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        self.0.read_after(log, after, max)
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        self.0.trim(log, through)
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        self.0.publish(channel, message)
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        self.0.subscribe(channel)
    }

    fn claimed(&self, claim: Claim<'_>) -> Option<Arc<dyn State>> {
        let inner = self.0.claimed(claim)?;
        Some(Arc::new(Self(inner)))
    }
}

/// Replicas with one store, by turns.
fn replicas(flow: &Flow) -> impl Iterator<Item = Flow> {
    (0..AT_ONCE).map(|_| flow.replica())
}

fn parted(results: Vec<Result<Value, Value>>) -> (Vec<Value>, Vec<Value>) {
    let (granted, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let granted = granted.into_iter().filter_map(Result::ok).collect();
    (
        granted,
        refused.into_iter().filter_map(Result::err).collect(),
    )
}

#[tokio::test]
async fn a_code_that_replicas_redeem_at_once_counts_once_and_its_login_ends() {
    let flow = Flow::on(Interleaved::store()).await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let servers: Vec<_> = replicas(&flow).collect();
    let redeemed = join_all(servers.iter().map(|s| s.redeem(&client, &code, VERIFIER))).await;
    let (granted, refused) = parted(redeemed);
    assert_eq!((granted.len(), refused.len()), (1, AT_ONCE - 1));
    assert!(refused.iter().all(|e| e["error"] == "invalid_grant"));
    let refreshed = flow.refresh(&client, &granted[0]["refresh_token"]).await;
    assert_eq!(refreshed.expect_err("ended")["error"], "invalid_grant");
}

#[tokio::test]
async fn a_refresh_token_that_replicas_use_at_once_is_replaced_by_one() {
    let flow = Flow::on(Interleaved::store()).await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let mut tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    // The first use makes the record, later ones change it.
    for _ in 0..3 {
        let token = tokens["refresh_token"].clone();
        let servers: Vec<_> = replicas(&flow).collect();
        let refreshed = join_all(servers.iter().map(|s| s.refresh(&client, &token))).await;
        let (mut granted, refused) = parted(refreshed);
        assert_eq!(refused, Vec::<Value>::new(), "processes of one client");
        tokens = granted.pop().expect("tokens");
        // Those that the others got have the same number, so none of them ends the login.
        let other = granted.pop().expect("tokens");
        let next = flow.refresh(&client, &other["refresh_token"]).await;
        tokens = next.unwrap_or(tokens);
    }
    assert!(flow.principal_of(&tokens["access_token"]).await.is_some());
}

#[tokio::test]
async fn an_end_of_a_login_that_meets_its_refresh_is_final() {
    let flow = Flow::on(Interleaved::store()).await;
    let (client, tokens) = flow.log_in_and_redeem().await;
    let token = tokens["refresh_token"].as_str().expect("a token");
    let fields = [("token", token), ("client_id", client.as_str())];
    let other = flow.replica();
    let ((status, _), refreshed) = tokio::join!(
        flow.post("/revoke", &fields),
        other.refresh(&client, &tokens["refresh_token"]),
    );
    assert_eq!(status, StatusCode::OK);
    let latest = refreshed.unwrap_or(tokens);
    let again = flow.refresh(&client, &latest["refresh_token"]).await;
    assert_eq!(again.expect_err("ended")["error"], "invalid_grant");
}

#[tokio::test]
async fn decisions_that_meet_stand_each_for_itself() {
    let flow = Flow::on(Interleaved::store()).await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let servers: Vec<_> = replicas(&flow).collect();
    let decided = servers.iter().enumerate().map(|(i, server)| {
        let decision = if i % 2 == 0 { "allow" } else { "deny" };
        server.decide(&page, decision)
    });
    let mut states = Vec::new();
    for (i, place) in join_all(decided).await.into_iter().enumerate() {
        if i % 2 == 0 {
            assert!(place.as_str().starts_with(&flow.provider.issuer), "{place}");
            states.push(flow::query(&place, "state").expect("a state"));
        } else {
            assert!(place.as_str().starts_with(CLIENT_REDIRECT), "{place}");
            assert_eq!(
                flow::query(&place, "error").as_deref(),
                Some("access_denied")
            );
            assert_eq!(flow::query(&place, "code"), None);
        }
    }
    states.sort_unstable();
    states.dedup();
    assert_eq!(states.len(), AT_ONCE / 2, "each login has its own state");
}

#[tokio::test]
async fn a_form_that_another_browser_posts_at_the_same_time_is_rejected() {
    let flow = Flow::on(Interleaved::store()).await;
    let client = flow.register().await;
    let (mine, other) = tokio::join!(flow.authorize(&client, &[]), flow.authorize(&client, &[]));
    let fields = [("form", mine.form()), ("decision", "allow")];
    let servers: Vec<_> = replicas(&flow).collect();
    let posted = servers.iter().enumerate().map(|(i, server)| {
        let cookie = if i % 2 == 0 {
            &mine.cookie
        } else {
            &other.cookie
        };
        server.send(form("/oauth/consent", &fields, Some(cookie)))
    });
    for (i, (status, ..)) in join_all(posted).await.into_iter().enumerate() {
        let expected = match i % 2 {
            0 => StatusCode::SEE_OTHER,
            _ => StatusCode::BAD_REQUEST,
        };
        assert_eq!(status, expected, "{i}");
    }
}

#[tokio::test]
async fn a_callback_that_comes_twice_at_once_gives_one_code() {
    let flow = Flow::on(Interleaved::store()).await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let provider = flow.decide(&page, "allow").await;
    let other = flow.replica();
    let once = [("code", "provider-code-once")];
    let (first, second) = tokio::join!(
        flow.come_back(&page, &provider, &once),
        other.come_back(&page, &provider, &once),
    );
    let codes: Vec<_> = [&first, &second]
        .into_iter()
        .filter_map(|place| flow::query(place, "code"))
        .collect();
    assert_eq!(codes.len(), 1, "{first} {second}");
    let tokens = flow.redeem(&client, &codes[0], VERIFIER).await;
    assert!(tokens.is_ok(), "{tokens:?}");
}
