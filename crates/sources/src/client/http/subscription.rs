//! The stream of a subscription, and how it is resumed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderValue, Method, StatusCode};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::event_stream::is_event_stream;
use super::super::lifecycle::{self, DiscoveryOutcome};
use super::super::shared::{Answered, Expected, Shared};
use super::super::wire;
use super::super::{ClientError, DISCOVER, LISTEN, METHOD_NOT_FOUND, Params, ServerInfo};
use super::{HeaderInfo, LAST_EVENT, Link, RETRY, RETRY_MAX, refused_by_era};
use crate::net::EventDecoder;

/// A `subscriptions/listen` request, sent again whenever its stream ends.
pub(in super::super) struct Subscription {
    /// Parameters of `subscriptions/listen`.
    pub(in super::super) listen: Params,
    /// Parameters of the `server/discover` request before each repetition.
    pub(in super::super) discover: Params,
    /// Server info, updated by each `server/discover`.
    pub(in super::super) server: Arc<ArcSwap<ServerInfo>>,
    /// Timeout of `server/discover`.
    pub(in super::super) patience: Duration,
    /// Lists and resources of the subscription. A broken stream may have lost notifications of their changes, so they are
    /// reported as changed on reconnection.
    pub(in super::super) lists: Vec<&'static str>,
    pub(in super::super) resources: BTreeSet<Arc<str>>,
}

const FORGOTTEN: &str = "it does not know the session any more";
/// Timeout of the `ping` that shows whether a session still exists.
const PINGS: Duration = Duration::from_secs(10);
/// Maximum pause before the `GET` stream is opened again after its request was rejected.
const REJECTED_MAX: Duration = Duration::from_secs(300);

/// Counts a stream that ended soon after its beginning as a further failure, since lists are requested again after each.
fn failures_after(failures: u32, began: Instant) -> u32 {
    match began.elapsed() < RETRY_MAX {
        true => failures + 1,
        false => 0,
    }
}

impl Link {
    /// Receives messages outside of requests, for as long as the connection exists. `opened` is notified when the
    /// server has first responded.
    pub(in super::super) async fn listen(
        self: Arc<Self>,
        shared: Arc<Shared>,
        opened: Arc<Notify>,
    ) {
        let mut decoder = EventDecoder::new(self.message_bytes);
        let mut retry = RETRY;
        let mut failures = 0_u32;
        let mut was_open = false;
        let mut is_first = true;
        if !self.has_session() {
            // Nothing distinguishes this stream from those of earlier connections.
            shared.unbind();
        }
        while !shared.is_closed() {
            let mut outgoing = self.outgoing(Method::GET, "text/event-stream");
            let last = decoder.last_id();
            let last = last.and_then(|id| HeaderValue::from_str(id).ok());
            // A server with event IDs sends what was missed again.
            let may_miss = !std::mem::take(&mut is_first) && last.is_none();
            if let Some(last) = last {
                outgoing.headers.insert(LAST_EVENT, last);
            }
            let mut is_rejected = false;
            let answer = self.client.open(outgoing).await;
            opened.notify_one();
            let is_bad = answer
                .as_ref()
                .is_ok_and(|answer| answer.status == StatusCode::BAD_REQUEST);
            if is_bad && was_open && self.has_lost_session(&shared).await {
                return self.is_forgotten(&shared);
            }
            match answer {
                Ok(answer) if is_event_stream(&answer) => {
                    was_open = true;
                    if may_miss {
                        shared.has_missed_messages();
                    }
                    let mut answer = answer.max_body(usize::MAX);
                    decoder.restart();
                    let began = Instant::now();
                    // The stream is opened again, however it ended.
                    let _ = self
                        .read_stream(&mut answer, &mut decoder, &mut retry, None, &shared)
                        .await;
                    failures = match decoder.last_id() {
                        // The server may end each stream and set the time of the next one.
                        Some(_) => 0,
                        None => failures_after(failures, began),
                    };
                }
                // The server was restarted and has lost the session. Servers without such a stream respond alike, so
                // this counts only after it was open.
                Ok(answer) if answer.status == StatusCode::NOT_FOUND && was_open => {
                    return self.is_forgotten(&shared);
                }
                // The server does not support the stream. Some respond with a page. Other errors may be temporary, such as 401 and 429.
                Ok(answer)
                    if answer.status.is_success()
                        || matches!(answer.status.as_u16(), 404 | 405 | 501) =>
                {
                    return;
                }
                answer => {
                    failures += 1;
                    is_rejected = answer.is_ok_and(|answer| answer.status.is_client_error());
                }
            }
            let pause =
                retry.max(Duration::from_millis(100)) * 2_u32.saturating_pow(failures.min(12));
            let pause_max = match is_rejected {
                true => REJECTED_MAX,
                false => RETRY_MAX,
            };
            tokio::time::sleep(pause.min(pause_max)).await;
        }
    }

    /// Closes the connection, because the server has lost the session. Requests in progress may have been executed.
    fn is_forgotten(&self, shared: &Shared) {
        self.has_ended.store(true, Ordering::Relaxed);
        shared.close(&ClientError::Gone(FORGOTTEN.to_owned()));
    }

    /// Returns true if the server has lost the session, and reports that by status 400. The specification demands 404,
    /// but many servers copy an example that has 400. A `ping` is then rejected too.
    pub(in super::super) async fn has_lost_session(self: &Arc<Self>, shared: &Arc<Shared>) -> bool {
        if !self.has_session() {
            return false;
        }
        match self.ask("ping", &Params::new(), PINGS, shared).await {
            Some(Err(ClientError::SessionEnded)) => true,
            // It has read the request, so the session exists.
            Some(Err(ClientError::Rpc(error))) if error.code == METHOD_NOT_FOUND => false,
            Some(Err(error)) => error.status() == Some(400),
            Some(Ok(_)) | None => false,
        }
    }

    /// Makes a request that no caller waits for. Returns `None` without a connection, or if the time is up.
    async fn ask(
        self: &Arc<Self>,
        method: &'static str,
        params: &Params,
        limit: Duration,
        shared: &Arc<Shared>,
    ) -> Option<Answered> {
        let mut expected = shared.expect(None).ok()?;
        let message = wire::request(expected.id, method, params).into();
        let about = HeaderInfo {
            method,
            ..HeaderInfo::default()
        };
        let asked = async {
            self.exchange(message, Some(expected.id), about, shared)
                .await?;
            expected.response().await
        };
        tokio::time::timeout(limit, Box::pin(asked)).await.ok()
    }

    /// Receives the notifications of a `subscriptions/listen` request, for servers without sessions. `first` is its
    /// response; the request is made anew after each break.
    pub(in super::super) async fn subscribe(
        self: Arc<Self>,
        subscription: Subscription,
        first: Expected,
        shared: Arc<Shared>,
    ) {
        let mut failures = 0_u32;
        let mut first = Some(first);
        loop {
            let first = first.take();
            let is_first = first.is_some();
            if !is_first {
                self.discover_again(&subscription, &shared).await;
            }
            // Without a connection, no response is expected.
            let Ok(mut expected) = first.map_or_else(|| shared.expect(None), Ok) else {
                return;
            };
            let message = wire::request(expected.id, LISTEN, &subscription.listen).into();
            let about = HeaderInfo {
                method: LISTEN,
                ..HeaderInfo::default()
            };
            let began = Instant::now();
            let listens = self.exchange(message, Some(expected.id), about, &shared);
            let catches_up = async {
                if !is_first {
                    let accepted = shared.acknowledgements().of(expected.id).await;
                    let is_accepted = |uri: &&Arc<str>| {
                        accepted
                            .as_ref()
                            .is_none_or(|accepted| accepted.contains(*uri))
                    };
                    let resources = subscription.resources.iter().filter(is_accepted);
                    shared.has_missed_changes(&subscription.lists, resources);
                }
                std::future::pending::<()>().await;
            };
            let ended = Box::pin(async {
                tokio::select! {
                    biased;
                    () = catches_up => Ok(()),
                    ended = listens => ended,
                }
            })
            .await;
            if ended.is_ok()
                && let Err(ClientError::Rpc(error)) = expected.response().await
                && !lifecycle::is_temporary(&error)
            {
                shared.has_rejected(expected.id);
                return;
            }
            failures = failures_after(failures, began);
            let pause = RETRY * 2_u32.saturating_pow(failures.min(5));
            tokio::time::sleep(pause.min(RETRY_MAX)).await;
        }
    }

    /// Updates the server info after a break, since the server may have been restarted. Closes the connection if the
    /// server is now a legacy one.
    async fn discover_again(self: &Arc<Self>, subscription: &Subscription, shared: &Arc<Shared>) {
        let (params, limit) = (&subscription.discover, subscription.patience);
        let Some(outcome) = self.ask(DISCOVER, params, limit, shared).await else {
            return;
        };
        match lifecycle::judge(outcome) {
            DiscoveryOutcome::Modern(discovered) => {
                let info = discovered.into_info();
                if **subscription.server.load() != info {
                    subscription.server.store(Arc::new(info));
                }
            }
            DiscoveryOutcome::Legacy {
                is_certain: true, ..
            } => {
                let why =
                    "the response to server/discover is that of a server of an earlier version"
                        .to_owned();
                shared.close(&refused_by_era(ClientError::Protocol(why)));
            }
            _ => {}
        }
    }
}
