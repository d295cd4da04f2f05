//! Registry of calls in progress, for cancellation and shutdown.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::{AbortHandle as TaskHandle, JoinError, JoinHandle};
use tokio::time::Instant;

use super::client_requests::{ClientRequestConfig, ClientRequests};
use super::errors;
use super::reply::Reply;
use crate::catalog::{CallContext, Dropped, RequestId};
use crate::limit::{Limit, LimitCounters};
use crate::net::Mutex;
use crate::protocol::message;
use crate::telemetry::{Gauge, GaugeGuard};

/// Future of one call of a tool, resource, prompt or method.
pub type BoxedCall<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Registry of calls that did not complete at once. Counts them, cancels them by request id, and lets shutdown wait
/// for them.
#[derive(Debug)]
pub struct Inflight {
    calls: Mutex<Calls>,
    changed: Notify,
    pub(super) client_requests: Arc<ClientRequests>,
    /// Number of open event streams.
    streams: Gauge,
    hits: Arc<LimitCounters>,
}

/// Counts an open stream while it exists, and the messages that its queue drops.
#[derive(Debug)]
pub struct StreamGuard {
    _open: GaugeGuard,
    hits: Arc<LimitCounters>,
}

impl StreamGuard {
    /// Counts messages that were dropped because the queue was full.
    pub fn count(&self, dropped: Dropped) {
        for (limit, number) in [
            (Limit::QueueMessages, dropped.messages),
            (Limit::QueueBytes, dropped.bytes),
        ] {
            self.hits.count_many(limit, number);
        }
    }
}

#[derive(Debug, Default)]
struct Calls {
    running: usize,
    /// Abort handles, which end a call with a response.
    stoppable: HashMap<u64, AbortHandle>,
    begun: u64,
    /// Calls that outlive their request. Clients must not, but can, have several with one request id.
    by_id: BTreeMap<CallKey, Cancellable>,
}

/// Session and request id of a call, and its number.
pub(super) type CallKey = (Arc<str>, RequestId, u64);

/// A call that can be cancelled by its request id.
#[derive(Debug)]
struct Cancellable {
    context: Arc<CallContext>,
    task: TaskHandle,
}

impl Cancellable {
    fn cancel(&self) {
        self.context.outlet.cancel();
        self.task.abort();
    }
}

/// Registration of one call; removed on drop.
pub struct InflightEntry {
    pub(super) inflight: Arc<Inflight>,
    pub(super) key: CallKey,
}

/// Session key of requests over stdio that have no session.
pub const STDIO: &str = "stdio";

impl Inflight {
    pub fn new(
        client_requests: ClientRequestConfig,
        replica: u64,
        streams: Gauge,
        hits: Arc<LimitCounters>,
    ) -> Self {
        Self {
            calls: Mutex::default(),
            changed: Notify::new(),
            client_requests: Arc::new(ClientRequests::new(client_requests, replica)),
            streams,
            hits,
        }
    }

    /// Counts an open stream until the guard is dropped.
    pub fn stream(&self) -> StreamGuard {
        StreamGuard {
            _open: self.streams.hold(),
            hits: Arc::clone(&self.hits),
        }
    }

    pub(super) fn register(
        self: &Arc<Self>,
        context: &CallContext,
        stop: AbortHandle,
    ) -> InflightEntry {
        let mut calls = self.calls.lock();
        calls.begun += 1;
        let number = calls.begun;
        calls.running += 1;
        calls.stoppable.insert(number, stop);
        let session = context.session.clone().unwrap_or_else(|| Arc::from(STDIO));
        InflightEntry {
            inflight: Arc::clone(self),
            key: (session, canonical(context.request_id.clone()), number),
        }
    }

    /// Makes a call cancellable by its id, unless it has completed on another thread already.
    pub(super) fn make_cancellable(
        &self,
        key: CallKey,
        context: &Arc<CallContext>,
        task: TaskHandle,
    ) {
        let mut calls = self.calls.lock();
        if calls.stoppable.contains_key(&key.2) {
            let context = Arc::clone(context);
            calls.by_id.insert(key, Cancellable { context, task });
        }
    }

    /// Runs `answer` in a task that can be cancelled by request id (CAN-01).
    pub(super) fn cancellable(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        answer: BoxedCall<Reply>,
    ) -> BoxedCall<Reply> {
        let task = self.spawn(context, answer);
        let id = context.request_id.clone();
        Box::pin(async move { unless_stopped(task.await, &id).unwrap_or_else(|reply| reply) })
    }

    /// Waits for `turn`, in a task that can be cancelled by request id (CAN-01). It ends with its request.
    ///
    /// # Errors
    ///
    /// The reply to a request that was cancelled, or whose server stops.
    pub(super) async fn wait_in_queue<T: Send + 'static>(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        turn: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Reply> {
        let task = self.spawn(context, turn);
        let _waiting = AbortOnDrop(task.abort_handle());
        unless_stopped(task.await, &context.request_id)
    }

    /// Runs a part of a call in a task that can be cancelled by request id, and stopped.
    fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Result<T, Aborted>> {
        let (stop, stopped) = AbortHandle::new_pair();
        let place = self.register(context, stop);
        let key = place.key.clone();
        let task = tokio::spawn(async move {
            let done = Abortable::new(work, stopped).await;
            drop(place);
            done
        });
        self.make_cancellable(key, context, task.abort_handle());
        task
    }

    /// Runs `answer` until it completes, its request is dropped, or the server stops.
    pub(super) fn stoppable(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        answer: BoxedCall<Reply>,
    ) -> BoxedCall<Reply> {
        let (stop, stopped) = AbortHandle::new_pair();
        let place = self.register(context, stop);
        let id = context.request_id.clone();
        Box::pin(async move {
            let answer = Abortable::new(answer, stopped).await;
            drop(place);
            answer.unwrap_or_else(|Aborted| errors::stopped(id.as_json()))
        })
    }

    /// Makes shutdown wait until the guard is dropped.
    pub fn delay_shutdown(self: &Arc<Self>) -> InflightGuard {
        self.calls.lock().running += 1;
        InflightGuard(Arc::clone(self))
    }

    /// Cancels all calls of a session.
    pub fn cancel_all(&self, session: &str) {
        self.cancel_some(.., |(of, ..)| **of == *session);
    }

    /// Cancels all calls with a request id (CAN-01). Returns false if it is unknown or they have completed.
    pub fn cancel(&self, session: &str, id: &str) -> bool {
        let session: Arc<str> = session.into();
        let id = canonical(RequestId::from_json(id));
        let first = (Arc::clone(&session), id.clone(), 0);
        self.cancel_some(first..=(session, id, u64::MAX), |_| true)
    }

    fn cancel_some(
        &self,
        range: impl RangeBounds<CallKey>,
        is_meant: impl Fn(&CallKey) -> bool,
    ) -> bool {
        let mut calls = self.calls.lock();
        let keys = calls.by_id.range(range).map(|(key, _)| key);
        let keys: Vec<_> = keys.filter(|key| is_meant(key)).cloned().collect();
        let found = keys.iter().filter_map(|key| calls.by_id.remove(key));
        let found: Vec<_> = found.collect();
        drop(calls);
        found.iter().for_each(Cancellable::cancel);
        !found.is_empty()
    }

    fn leave(&self) {
        let mut calls = self.calls.lock();
        calls.running -= 1;
        let idle = calls.running == 0;
        drop(calls);
        if idle {
            self.changed.notify_waiters();
        }
    }

    /// Aborts all calls. Their callers get an error that says that the server stops.
    pub fn stop(&self) {
        let running: Vec<_> = self.calls.lock().stoppable.values().cloned().collect();
        for call in running {
            call.abort();
        }
    }

    /// Waits until no call is left.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.calls.lock().running == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// Returns what a task has returned, or the reply to a request that was cancelled, or whose server stops.
fn unless_stopped<T>(
    done: Result<Result<T, Aborted>, JoinError>,
    id: &RequestId,
) -> Result<T, Reply> {
    match done {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Aborted)) => Err(errors::stopped(id.as_json())),
        Err(_) => Err(Reply::Cancelled),
    }
}

/// The id in one form, since a string can be written with and without escapes.
pub(super) fn canonical(id: RequestId) -> RequestId {
    if !id.as_json().contains('\\') {
        return id;
    }
    match message::string(id.as_json()) {
        Some(text) => RequestId::from_json(&Value::from(text).to_string()),
        None => id,
    }
}

impl Drop for InflightEntry {
    fn drop(&mut self) {
        let mut calls = self.inflight.calls.lock();
        calls.by_id.remove(&self.key);
        calls.stoppable.remove(&self.key.2);
        drop(calls);
        self.inflight.leave();
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(TaskHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes shutdown wait until it is dropped.
#[derive(Debug)]
pub struct InflightGuard(Arc<Inflight>);

impl Drop for InflightGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Time of the next keep-alive message of a stream: in 15 to 25 seconds, with jitter.
pub fn next_heartbeat() -> Instant {
    let noise = u64::from(crate::seal::random_bytes::<1>()[0]);
    Instant::now() + Duration::from_millis(15_000 + noise * 10_000 / 255)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    fn inflight() -> Arc<Inflight> {
        let hits = Arc::new(LimitCounters::new(&Metrics::default()));
        let config = ClientRequestConfig::default();
        Arc::new(Inflight::new(config, 1, Gauge::default(), hits))
    }

    #[tokio::test]
    async fn can_01_a_request_in_the_queue_is_cancelled_by_its_id() {
        let (inflight, context) = (inflight(), Arc::new(CallContext::for_test()));
        let cancel = || inflight.cancel(STDIO, context.request_id.as_json());
        let turn = inflight.wait_in_queue(&context, std::future::pending::<()>());
        let (waited, cancelled) = tokio::join!(turn, async { cancel() });
        assert!(cancelled && matches!(waited, Err(Reply::Cancelled)));
        let turn = inflight.wait_in_queue(&context, std::future::pending::<()>());
        let (waited, ()) = tokio::join!(turn, async { inflight.stop() });
        assert!(matches!(waited, Err(Reply::Response(_))));
        let turn = inflight.wait_in_queue(&context, std::future::ready(7));
        assert!(matches!(turn.await, Ok(7)));
        assert!(!cancel(), "it has left the queue");
        inflight.idle().await;
    }

    #[tokio::test]
    async fn can_01_an_id_may_be_written_with_and_without_escapes() {
        let inflight = inflight();
        let mut context = CallContext::for_test();
        context.request_id = RequestId::from_json(r#""\u0061/""#);
        let context = Arc::new(context);
        let task = tokio::spawn(std::future::pending::<()>());
        for (id, is_same) in [
            (r#""\u0061/""#, true),
            (r#""a/""#, true),
            (r#""a\/""#, true),
            (r#""b/""#, false),
            (r#"{"\u0061/":1}"#, false),
        ] {
            let place = inflight.register(&context, AbortHandle::new_pair().0);
            inflight.make_cancellable(place.key.clone(), &context, task.abort_handle());
            assert_eq!(inflight.cancel(STDIO, id), is_same, "{id}");
        }
    }

    #[tokio::test]
    async fn can_01_all_calls_with_the_id_are_cancelled() {
        let inflight = inflight();
        let context = |session: &str, id: &str| {
            let mut context = CallContext::for_test();
            context.session = Some(session.into());
            context.request_id = RequestId::from_json(id);
            Arc::new(context)
        };
        let contexts = [("s", "1"), ("s", "1"), ("s", "2"), ("s", "1"), ("t", "1")];
        let contexts = contexts.map(|(session, id)| context(session, id));
        let calls = contexts
            .each_ref()
            .map(|context| Box::pin(inflight.wait_in_queue(context, std::future::pending::<()>())));
        let cancelled = || contexts.each_ref().map(|context| context.is_cancelled());
        let ends = async {
            assert!(inflight.cancel("s", "1"));
            assert_eq!(cancelled(), [true, true, false, true, false]);
            assert!(!inflight.cancel("s", "1"));
            // Also those with the id of another one end with their session.
            inflight.cancel_all("s");
            assert_eq!(cancelled(), [true, true, true, true, false]);
            assert!(inflight.cancel("t", "1"));
        };
        let (ended, ()) = tokio::join!(futures_util::future::join_all(calls), ends);
        assert!(ended.iter().all(|one| matches!(one, Err(Reply::Cancelled))));
        inflight.idle().await;
    }

    #[tokio::test]
    async fn a_call_that_has_left_is_not_remembered() {
        let inflight = inflight();
        let context = Arc::new(CallContext::for_test());
        let enter = || inflight.register(&context, AbortHandle::new_pair().0);
        // Its task is about to end on another thread.
        let task = tokio::spawn(std::future::pending::<()>());
        let place = enter();
        let key = place.key.clone();
        drop(place);
        inflight.make_cancellable(key, &context, task.abort_handle());
        assert!(inflight.calls.lock().by_id.is_empty());
        // One that has used its id again stays.
        let (first, second) = (enter(), enter());
        for place in [&first, &second] {
            inflight.make_cancellable(place.key.clone(), &context, task.abort_handle());
        }
        drop(first);
        assert_eq!(inflight.calls.lock().by_id.len(), 1);
        drop(second);
        assert!(inflight.calls.lock().by_id.is_empty());
    }
}
