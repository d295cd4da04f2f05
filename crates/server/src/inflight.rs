//! Calls in progress: panic isolation, timeouts, cancellation, and what happens on a disconnect.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle as TaskHandle;
use tokio::time::{Instant, Sleep};

use super::Reply;
use super::client_requests::{ClientRequestConfig, ClientRequests, PendingSends};
use crate::catalog::{CallContext, Dropped, Interruption, RequestId};
use crate::limit::{Held, Hits, Limit};
use crate::net::{ShareKey, enter_share};
use crate::protocol::Revision;
use crate::telemetry::{Gauge, Hold, TraceContext, enter_trace};

/// Future of one call of a tool, resource, prompt or method.
pub(crate) type BoxedCall<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum CallOutcome<T> {
    Done(T),
    /// The timeout expired.
    TimedOut(Duration),
    /// The call panicked. The panic hook logged the message.
    Panicked,
    /// The caller cancelled the request.
    Cancelled,
    /// The server stops and could not wait any longer.
    Stopped,
    /// The call needs input from its client, or its replay failed.
    Suspended(Box<SuspendedCall>),
}

/// A call that ended before its result.
#[derive(Debug)]
pub(crate) struct SuspendedCall {
    pub(crate) interruption: Interruption,
    pub(crate) context: Arc<CallContext>,
}

/// Effect of a disconnect on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// The call is dropped (stateless era, MH-16).
    Cancel,
    /// The call runs until it completes or is cancelled by its id (handshake era, LH-02).
    RunOn,
}

/// Resumption of an interrupted response stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// The stream cannot be resumed.
    No,
    /// By event id.
    Ids,
    /// By event id; the stream starts with an empty event that has one.
    Primed,
}

impl Resumption {
    /// Returns the form of resumption that a revision has over HTTP.
    pub fn of(revision: Revision) -> Self {
        if revision.has_priming_events() {
            Self::Primed
        } else if revision.can_resume_streams() {
            Self::Ids
        } else {
            Self::No
        }
    }
}

/// Options of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    /// Maximum duration of the call.
    pub timeout: Duration,
    pub(crate) on_disconnect: OnDisconnect,
    /// Delay after which the response becomes a stream, so that proxies see traffic. `None` if the caller accepts no
    /// stream.
    pub(crate) stream_after: Option<Duration>,
    pub resumption: Resumption,
}

/// Progress of a call after it was polled.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each call that waits"
)]
pub(crate) enum CallProgress<T> {
    Done(CallOutcome<T>),
    /// The call has sent a message before its result, or takes long.
    Streams(RunningCall<T>),
}

/// Starts a call and polls it once. Most calls complete here, without a timer or a task.
///
/// # Errors
///
/// The pending call, if it has to wait.
#[inline]
pub fn start<T: 'static>(
    cx: &mut Context<'_>,
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
    options: CallOptions,
) -> Result<CallProgress<T>, CatchUnwind<T>> {
    let Some(mut call) = prepare(start, context) else {
        return Ok(CallProgress::Done(CallOutcome::Panicked));
    };
    let outcome = match Pin::new(&mut call).poll(cx) {
        Poll::Ready(outcome) => finish_replay(outcome, context),
        Poll::Pending => match context.asking.interruption() {
            Some(interruption) => suspended(interruption, context),
            None => return Err(call),
        },
    };
    Ok(
        if context.outlet.is_silent() || options.stream_after.is_none() {
            CallProgress::Done(outcome)
        } else {
            CallProgress::Streams(RunningCall::Done(Some(outcome)))
        },
    )
}

/// Creates the future of a call without polling it. Returns `None` if that panicked.
#[inline]
pub(super) fn prepare<T: 'static>(
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
) -> Option<CatchUnwind<T>> {
    let call = {
        let _share = enter_share(context.share);
        catch_unwind(AssertUnwindSafe(|| start(Arc::clone(context))))
    };
    call.ok().map(|call| CatchUnwind {
        call: match context.asking.is_kept_elsewhere() {
            true => with_journal(call, context),
            false => call,
        },
        trace: context.onward.place,
        share: context.share,
    })
}

/// Fetches the journal of a replayed call before it runs.
#[cold]
fn with_journal<T: 'static>(call: BoxedCall<T>, context: &Arc<CallContext>) -> BoxedCall<T> {
    let context = Arc::clone(context);
    Box::pin(async move {
        context.asking.fetch_journal().await;
        call.await
    })
}

/// Creates the future of a call that has to wait for a concurrency permit.
///
/// # Errors
///
/// The pending call, unless creating it panicked.
pub(crate) fn start_unpolled<T: 'static>(
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
) -> Result<CallProgress<T>, CatchUnwind<T>> {
    match prepare(start, context) {
        Some(call) => Err(call),
        None => Ok(CallProgress::Done(CallOutcome::Panicked)),
    }
}

/// Replaces the outcome with the recorded replay error, if any, and closes pending client requests.
#[inline]
pub(super) fn finish_replay<T>(
    outcome: CallOutcome<T>,
    context: &Arc<CallContext>,
) -> CallOutcome<T> {
    let Some(desk) = context.asking.desk() else {
        return outcome;
    };
    desk.close();
    match desk.fault() {
        None => outcome,
        Some(fault) => suspended(Interruption::Fault(fault), context),
    }
}

#[cold]
pub(super) fn suspended<T>(
    interruption: Interruption,
    context: &Arc<CallContext>,
) -> CallOutcome<T> {
    if let Some(desk) = context.asking.desk() {
        desk.close();
    }
    CallOutcome::Suspended(Box::new(SuspendedCall {
        interruption,
        context: Arc::clone(context),
    }))
}

/// Polls a call until it completes or its response becomes a stream.
pub async fn drive<T: Send + 'static>(
    call: CatchUnwind<T>,
    context: &Arc<CallContext>,
    options: CallOptions,
    inflight: &Arc<Inflight>,
    held: Held,
) -> CallProgress<T> {
    let mut running = RunningCall::new(call, context, options, inflight, held);
    let Some(stream_after) = options.stream_after else {
        return CallProgress::Done(running.await);
    };
    let until_stream = tokio::time::sleep(stream_after);
    tokio::pin!(until_stream);
    let outcome = poll_fn(|cx| {
        let done = Pin::new(&mut running).poll(cx).map(Some);
        if !context.outlet.is_silent() || done.is_pending() && context.outlet.has_messages(cx) {
            return match done {
                Poll::Ready(outcome) => {
                    running = RunningCall::Done(outcome);
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Ready(None),
            };
        }
        match done {
            Poll::Pending => until_stream.as_mut().poll(cx).map(|()| None),
            ready => ready,
        }
    })
    .await;
    match outcome {
        Some(outcome) => CallProgress::Done(outcome),
        None => CallProgress::Streams(running),
    }
}

/// A pending call.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each call that waits"
)]
pub(crate) enum RunningCall<T> {
    Done(Option<CallOutcome<T>>),
    /// Owned by the response. Dropping it cancels the call.
    Own {
        call: Abortable<CatchUnwind<T>>,
        deadline: Pin<Box<Sleep>>,
        timeout: Duration,
        context: Arc<CallContext>,
        /// Requests that the call has sent to its client.
        asked: Option<Box<PendingSends>>,
        place: InflightEntry,
        _held: Held,
    },
    /// Owned by a task that outlives the response.
    Task(oneshot::Receiver<CallOutcome<T>>),
}

impl<T: Send + 'static> RunningCall<T> {
    fn new(
        call: CatchUnwind<T>,
        context: &Arc<CallContext>,
        options: CallOptions,
        inflight: &Arc<Inflight>,
        held: Held,
    ) -> Self {
        let timeout = options.timeout;
        let (stop, stopped) = AbortHandle::new_pair();
        let call = Abortable::new(call, stopped);
        let place = inflight.register(context, stop);
        let number = place.number;
        let call = Self::Own {
            call,
            deadline: Box::pin(tokio::time::sleep(timeout)),
            timeout,
            context: Arc::clone(context),
            asked: None,
            place,
            _held: held,
        };
        if options.on_disconnect == OnDisconnect::Cancel {
            return call;
        }
        let (sender, receiver) = oneshot::channel();
        // `inflight` keeps the abort handle: the task can be cancelled by request id and is awaited at shutdown.
        let task = tokio::spawn(async move {
            let _ = sender.send(call.await);
        });
        inflight.make_cancellable(number, context, task.abort_handle());
        Self::Task(receiver)
    }
}

// No field is pinned: the future of the call is boxed.
impl<T> Unpin for RunningCall<T> {}

impl<T> Future for RunningCall<T> {
    type Output = CallOutcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallOutcome<T>> {
        match &mut *self {
            Self::Done(outcome) => Poll::Ready(outcome.take().unwrap_or(CallOutcome::Cancelled)),
            Self::Own {
                call,
                deadline,
                timeout,
                context,
                asked,
                place,
                ..
            } => {
                if let Poll::Ready(outcome) = Pin::new(call).poll(cx) {
                    if let Some(asked) = asked {
                        asked.withdraw_closed(context, &place.inflight.client_requests);
                    }
                    return Poll::Ready(match outcome {
                        Ok(outcome) => finish_replay(outcome, context),
                        Err(Aborted) => {
                            context.outlet.cancel();
                            CallOutcome::Stopped
                        }
                    });
                }
                // Registered before the journal is read, so that no request goes unnoticed.
                context.asking.driven_by(cx.waker());
                if let Some(desk) = context.asking.desk() {
                    if let Some(interruption) = context.asking.interruption() {
                        return Poll::Ready(suspended(interruption, context));
                    }
                    if context.asking.patience().is_some() {
                        let asked = asked.get_or_insert_default();
                        asked.sync(context, desk, &place.inflight.client_requests);
                        match asked.waited(desk.is_waiting()) {
                            None => return Poll::Pending,
                            Some(Duration::ZERO) => {}
                            Some(waited) => {
                                let later = deadline.deadline() + waited;
                                deadline.as_mut().reset(later);
                            }
                        }
                    }
                }
                deadline.as_mut().poll(cx).map(|()| {
                    context.outlet.cancel();
                    CallOutcome::TimedOut(*timeout)
                })
            }
            Self::Task(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|outcome| outcome.unwrap_or(CallOutcome::Cancelled)),
        }
    }
}

impl<T> Drop for RunningCall<T> {
    fn drop(&mut self) {
        // A blocking tool cannot be dropped. It checks this flag.
        if let Self::Own {
            context,
            asked,
            place,
            ..
        } = self
        {
            context.outlet.cancel();
            if let Some(desk) = context.asking.desk() {
                desk.close();
            }
            if let Some(asked) = asked {
                asked.withdraw_all(&place.inflight.client_requests);
            }
        }
    }
}

impl<T> fmt::Debug for RunningCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningCall")
    }
}

/// A call whose panics are caught.
pub(crate) struct CatchUnwind<T> {
    call: BoxedCall<T>,
    /// Trace context of the log lines that the call writes.
    trace: Option<TraceContext>,
    /// Share that the call's resource use is charged to.
    share: ShareKey,
}

impl<T> Future for CatchUnwind<T> {
    type Output = CallOutcome<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallOutcome<T>> {
        // The future is never polled after a panic, so its broken state is not observed.
        let _entered = self.trace.map(enter_trace);
        let _share = enter_share(self.share);
        match catch_unwind(AssertUnwindSafe(|| self.call.as_mut().poll(cx))) {
            Ok(poll) => poll.map(CallOutcome::Done),
            Err(_) => Poll::Ready(CallOutcome::Panicked),
        }
    }
}

/// Registry of calls that did not complete at once. Counts them, cancels them by request id, and lets shutdown wait
/// for them.
#[derive(Debug)]
pub(crate) struct Inflight {
    calls: Mutex<Calls>,
    changed: Notify,
    pub(super) client_requests: ClientRequests,
    /// Number of open event streams.
    streams: Gauge,
    hits: Arc<Hits>,
}

/// Counts an open stream while it exists, and the messages that its queue drops.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    _open: Hold,
    hits: Arc<Hits>,
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
    /// Calls that outlive their request, by session and request id.
    by_id: HashMap<(Arc<str>, RequestId), Cancellable>,
}

/// A call that can be cancelled by its request id.
#[derive(Debug)]
struct Cancellable {
    number: u64,
    context: Arc<CallContext>,
    task: TaskHandle,
}

/// Registration of one call; removed on drop.
pub(crate) struct InflightEntry {
    inflight: Arc<Inflight>,
    number: u64,
    key: (Arc<str>, RequestId),
}

/// Session key of requests over stdio that have no session.
pub(crate) const STDIO: &str = "stdio";

impl Inflight {
    pub fn new(
        client_requests: ClientRequestConfig,
        replica: u64,
        streams: Gauge,
        hits: Arc<Hits>,
    ) -> Self {
        Self {
            calls: Mutex::default(),
            changed: Notify::new(),
            client_requests: ClientRequests::new(client_requests, replica),
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
        let mut calls = self.calls();
        calls.begun += 1;
        let number = calls.begun;
        calls.running += 1;
        calls.stoppable.insert(number, stop);
        InflightEntry {
            inflight: Arc::clone(self),
            number,
            key: key(context),
        }
    }

    /// Makes a call cancellable by its id, unless it has completed on another thread already.
    fn make_cancellable(&self, number: u64, context: &Arc<CallContext>, task: TaskHandle) {
        let mut calls = self.calls();
        if calls.stoppable.contains_key(&number) {
            let call = Cancellable {
                number,
                context: Arc::clone(context),
                task,
            };
            calls.by_id.insert(key(context), call);
        }
    }

    /// Runs `answer` in a task that can be cancelled by request id (CAN-01).
    pub(super) fn cancellable(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        answer: BoxedCall<Reply>,
    ) -> BoxedCall<Reply> {
        let (stop, stopped) = AbortHandle::new_pair();
        let place = self.register(context, stop);
        let number = place.number;
        let task = tokio::spawn(async move {
            let answer = Abortable::new(answer, stopped).await;
            drop(place);
            answer
        });
        self.make_cancellable(number, context, task.abort_handle());
        let id = context.request_id.clone();
        Box::pin(async move {
            match task.await {
                Ok(Ok(reply)) => reply,
                Ok(Err(Aborted)) => super::tools::stopped(id.as_json()),
                Err(_) => Reply::Cancelled,
            }
        })
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
            answer.unwrap_or_else(|Aborted| super::tools::stopped(id.as_json()))
        })
    }

    /// Makes shutdown wait until the guard is dropped.
    pub(crate) fn delay_shutdown(self: &Arc<Self>) -> InflightGuard {
        self.calls().running += 1;
        InflightGuard(Arc::clone(self))
    }

    /// Cancels all calls of a session.
    pub(crate) fn cancel_all(&self, session: &str) {
        let mut found = Vec::new();
        self.calls().by_id.retain(|(of, _), call| {
            let stays = **of != *session;
            if !stays {
                found.push((Arc::clone(&call.context), call.task.clone()));
            }
            stays
        });
        for (context, task) in found {
            context.outlet.cancel();
            task.abort();
        }
    }

    /// Cancels a call (CAN-01). Returns false if it is unknown or has completed.
    pub fn cancel(&self, session: &str, id: &str) -> bool {
        let key = (Arc::from(session), RequestId::from_json(id));
        let found = self.calls().by_id.remove(&key);
        if let Some(Cancellable { context, task, .. }) = &found {
            context.outlet.cancel();
            task.abort();
        }
        found.is_some()
    }

    fn leave(&self) {
        let mut calls = self.calls();
        calls.running -= 1;
        let idle = calls.running == 0;
        drop(calls);
        if idle {
            self.changed.notify_waiters();
        }
    }

    /// Aborts all calls. Their callers get an error that says that the server stops.
    pub fn stop(&self) {
        let running: Vec<_> = self.calls().stoppable.values().cloned().collect();
        for call in running {
            call.abort();
        }
    }

    /// Waits until no call is left.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.calls().running == 0 {
                return;
            }
            changed.await;
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(context: &CallContext) -> (Arc<str>, RequestId) {
    let session = context.session.clone().unwrap_or_else(|| Arc::from(STDIO));
    (session, context.request_id.clone())
}

impl Drop for InflightEntry {
    fn drop(&mut self) {
        let mut calls = self.inflight.calls();
        // A later request may have reused the id.
        let known = calls.by_id.get(&self.key);
        if known.is_some_and(|call| call.number == self.number) {
            calls.by_id.remove(&self.key);
        }
        calls.stoppable.remove(&self.number);
        drop(calls);
        self.inflight.leave();
    }
}

/// Makes shutdown wait until it is dropped.
#[derive(Debug)]
pub(crate) struct InflightGuard(Arc<Inflight>);

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

    #[tokio::test]
    async fn a_call_that_has_left_is_not_remembered() {
        let hits = Arc::new(Hits::new(&Metrics::default()));
        let config = ClientRequestConfig::default();
        let inflight = Arc::new(Inflight::new(config, 1, Gauge::default(), hits));
        let context = Arc::new(CallContext::for_test());
        let enter = || inflight.register(&context, AbortHandle::new_pair().0);
        // Its task is about to end on another thread.
        let task = tokio::spawn(std::future::pending::<()>());
        let place = enter();
        let number = place.number;
        drop(place);
        inflight.make_cancellable(number, &context, task.abort_handle());
        assert!(inflight.calls().by_id.is_empty());
        // One that has used its id again stays.
        let (first, second) = (enter(), enter());
        for place in [&first, &second] {
            inflight.make_cancellable(place.number, &context, task.abort_handle());
        }
        drop(first);
        assert_eq!(inflight.calls().by_id.len(), 1);
        drop(second);
        assert!(inflight.calls().by_id.is_empty());
    }
}
