//! Running one call: guarded against panics, bounded in time, and owned by whom it should be.

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
use super::questions::{Asked, ClientRequestConfig, Questions};
use crate::catalog::{CallContext, Dropped, Interruption, RequestId};
use crate::limit::{Held, Hits, Limit};
use crate::net::{ShareKey, enter_share};
use crate::protocol::Revision;
use crate::telemetry::{Gauge, Hold, TraceContext, enter_trace};

/// The future of one call of a tool, or of whatever else somebody has written for this server.
pub(crate) type BoxedCall<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Done(T),
    /// It took longer than it may.
    TimedOut(Duration),
    /// It panicked; the log has its words.
    Panicked,
    /// The caller wants no answer any more.
    Cancelled,
    /// The server stops, and cannot wait for it.
    Stopped,
    /// It needs its client's input, or must not go on.
    Interrupted(Box<Interrupted>),
}

/// A call that did not come to its end.
#[derive(Debug)]
pub(crate) struct Interrupted {
    pub(crate) interruption: Interruption,
    pub(crate) context: Arc<CallContext>,
}

/// Who loses interest when the client closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// The call is dropped (stateless era, MH-16).
    Cancel,
    /// The call runs on until it is done or cancelled by its id (handshake era, LH-02).
    RunOn,
}

/// Whether the stream of an answer can be taken up again after it broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// It cannot: nobody comes back.
    No,
    /// By the id of an event.
    Ids,
    /// By the id of an event, of which the first says nothing else.
    Primed,
}

impl Resumption {
    /// For clients of a revision, over HTTP.
    pub(crate) fn of(revision: Revision) -> Self {
        if revision.has_priming_events() {
            Self::Primed
        } else if revision.can_resume_streams() {
            Self::Ids
        } else {
            Self::No
        }
    }
}

/// How a call is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How long it may take.
    pub(crate) timeout: Duration,
    pub(crate) on_disconnect: OnDisconnect,
    /// After which time without an answer a stream is begun, so that whoever stands in between sees signs of life.
    /// `None` if the caller takes no streams.
    pub(crate) stream_after: Option<Duration>,
    pub(crate) resumption: Resumption,
}

/// How far a call has come.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each call that waits"
)]
pub(crate) enum Step<T> {
    Done(Outcome<T>),
    /// It has something to say before its answer, or takes long.
    Streams(Running<T>),
}

/// Begins a call and polls it once, where it stands: most are done then, and no timer was armed and no task made.
///
/// # Errors
///
/// The call, where it has to wait.
#[inline]
pub(crate) fn begin<T: 'static>(
    cx: &mut Context<'_>,
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
    terms: Terms,
) -> Result<Step<T>, Guarded<T>> {
    let Some(mut call) = prepare(start, context) else {
        return Ok(Step::Done(Outcome::Panicked));
    };
    let outcome = match Pin::new(&mut call).poll(cx) {
        Poll::Ready(outcome) => settled(outcome, context),
        Poll::Pending => match context.asking.interruption() {
            Some(interruption) => interrupted(interruption, context),
            None => return Err(call),
        },
    };
    Ok(
        if context.outlet.is_silent() || terms.stream_after.is_none() {
            Step::Done(outcome)
        } else {
            Step::Streams(Running::Done(Some(outcome)))
        },
    )
}

/// Makes a call that nobody has polled yet. `None` if that panicked.
#[inline]
fn prepare<T: 'static>(
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
) -> Option<Guarded<T>> {
    let call = {
        let _share = enter_share(context.share);
        catch_unwind(AssertUnwindSafe(|| start(Arc::clone(context))))
    };
    call.ok().map(|call| Guarded {
        call: match context.asking.is_kept_elsewhere() {
            true => after_journal(call, context),
            false => call,
        },
        trace: context.onward.place,
        share: context.share,
    })
}

/// A call that begins once what it has learnt before is there.
#[cold]
fn after_journal<T: 'static>(call: BoxedCall<T>, context: &Arc<CallContext>) -> BoxedCall<T> {
    let context = Arc::clone(context);
    Box::pin(async move {
        context.asking.fetch_journal().await;
        call.await
    })
}

/// Makes a call that has to wait for its turn.
///
/// # Errors
///
/// The call, unless that panicked.
pub(crate) fn prepared<T: 'static>(
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
) -> Result<Step<T>, Guarded<T>> {
    match prepare(start, context) {
        Some(call) => Err(call),
        None => Ok(Step::Done(Outcome::Panicked)),
    }
}

/// How a call ended, unless it must not have.
#[inline]
pub(super) fn settled<T>(outcome: Outcome<T>, context: &Arc<CallContext>) -> Outcome<T> {
    let Some(desk) = context.asking.desk() else {
        return outcome;
    };
    desk.close();
    match desk.fault() {
        None => outcome,
        Some(fault) => interrupted(Interruption::Fault(fault), context),
    }
}

#[cold]
pub(super) fn interrupted<T>(interruption: Interruption, context: &Arc<CallContext>) -> Outcome<T> {
    if let Some(desk) = context.asking.desk() {
        desk.close();
    }
    Outcome::Interrupted(Box::new(Interrupted {
        interruption,
        context: Arc::clone(context),
    }))
}

/// Goes on with a call to its end, or to where its answer has to become a stream.
pub(crate) async fn wait<T: Send + 'static>(
    call: Guarded<T>,
    context: &Arc<CallContext>,
    terms: Terms,
    inflight: &Arc<Inflight>,
    held: Held,
) -> Step<T> {
    let mut running = Running::new(call, context, terms, inflight, held);
    let Some(stream_after) = terms.stream_after else {
        return Step::Done(running.await);
    };
    let until_stream = tokio::time::sleep(stream_after);
    tokio::pin!(until_stream);
    let outcome = poll_fn(|cx| {
        let done = Pin::new(&mut running).poll(cx).map(Some);
        if !context.outlet.is_silent() || done.is_pending() && context.outlet.has_messages(cx) {
            return match done {
                Poll::Ready(outcome) => {
                    running = Running::Done(outcome);
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
        Some(outcome) => Step::Done(outcome),
        None => Step::Streams(running),
    }
}

/// A call that has begun and takes its time.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each call that waits"
)]
pub(crate) enum Running<T> {
    Done(Option<Outcome<T>>),
    /// Dropping it cancels it.
    Own {
        call: Abortable<Guarded<T>>,
        deadline: Pin<Box<Sleep>>,
        timeout: Duration,
        context: Arc<CallContext>,
        /// What it has asked its client.
        asked: Option<Box<Asked>>,
        place: Place,
        _held: Held,
    },
    /// It runs on without whoever waits here.
    Task(oneshot::Receiver<Outcome<T>>),
}

impl<T: Send + 'static> Running<T> {
    fn new(
        call: Guarded<T>,
        context: &Arc<CallContext>,
        terms: Terms,
        inflight: &Arc<Inflight>,
        held: Held,
    ) -> Self {
        let timeout = terms.timeout;
        let (stop, stopped) = AbortHandle::new_pair();
        let call = Abortable::new(call, stopped);
        let place = inflight.enter(context, stop);
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
        if terms.on_disconnect == OnDisconnect::Cancel {
            return call;
        }
        let (sender, receiver) = oneshot::channel();
        // Owned by `inflight`, which can cancel it by its id, and which a server that stops waits for.
        let task = tokio::spawn(async move {
            let _ = sender.send(call.await);
        });
        inflight.remember(number, context, task.abort_handle());
        Self::Task(receiver)
    }
}

// Nothing in it is pinned in place: the call has a box of its own.
impl<T> Unpin for Running<T> {}

impl<T> Future for Running<T> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        match &mut *self {
            Self::Done(outcome) => Poll::Ready(outcome.take().unwrap_or(Outcome::Cancelled)),
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
                        asked.take_back(context, &place.inflight.questions);
                    }
                    return Poll::Ready(match outcome {
                        Ok(outcome) => settled(outcome, context),
                        Err(Aborted) => {
                            context.outlet.cancel();
                            Outcome::Stopped
                        }
                    });
                }
                // Before the desk is looked at, so that nothing is put there unseen.
                context.asking.driven_by(cx.waker());
                if let Some(desk) = context.asking.desk() {
                    if let Some(interruption) = context.asking.interruption() {
                        return Poll::Ready(interrupted(interruption, context));
                    }
                    if context.asking.patience().is_some() {
                        let asked = asked.get_or_insert_default();
                        asked.look(context, desk, &place.inflight.questions);
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
                    Outcome::TimedOut(*timeout)
                })
            }
            Self::Task(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|outcome| outcome.unwrap_or(Outcome::Cancelled)),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        // A tool that blocks cannot be dropped; it can look.
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
                asked.end(&place.inflight.questions);
            }
        }
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// Begins a call without polling it. `None` if it panicked.
pub(super) fn guard<T: 'static>(
    start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
    context: &Arc<CallContext>,
) -> Option<Guarded<T>> {
    prepare(start, context)
}

/// A call whose panics end here.
pub(crate) struct Guarded<T> {
    call: BoxedCall<T>,
    /// What the log says that is written meanwhile.
    trace: Option<TraceContext>,
    /// Whose share is used of what callers use together.
    share: ShareKey,
}

impl<T> Future for Guarded<T> {
    type Output = Outcome<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        // A future that panicked is never polled again, so nobody sees what it left half done.
        let _entered = self.trace.map(enter_trace);
        let _share = enter_share(self.share);
        match catch_unwind(AssertUnwindSafe(|| self.call.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Outcome::Done),
            Err(_) => Poll::Ready(Outcome::Panicked),
        }
    }
}

/// Calls that were not done at once: counted, cancelled by their id, and waited for when the server stops.
#[derive(Debug)]
pub(crate) struct Inflight {
    calls: Mutex<Calls>,
    changed: Notify,
    pub(super) questions: Questions,
    /// Event streams that are open.
    streams: Gauge,
    hits: Arc<Hits>,
}

/// One open stream: counts it, and what it has to leave out.
#[derive(Debug)]
pub(crate) struct StreamHold {
    _open: Hold,
    hits: Arc<Hits>,
}

impl StreamHold {
    /// Counts messages that found no place.
    pub(crate) fn count(&self, dropped: Dropped) {
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
    /// The means to end each of them with an answer.
    stoppable: HashMap<u64, AbortHandle>,
    begun: u64,
    /// Those that outlive their request, by session and id.
    by_id: HashMap<(Arc<str>, RequestId), Cancellable>,
}

/// A call that is cancelled by its id.
#[derive(Debug)]
struct Cancellable {
    number: u64,
    context: Arc<CallContext>,
    task: TaskHandle,
}

/// One call's entry among those that run.
pub(crate) struct Place {
    inflight: Arc<Inflight>,
    number: u64,
    key: (Arc<str>, RequestId),
}

/// Stands for the session of requests without one that outlive nothing but their own answer: over standard input
/// and output.
pub(crate) const STDIO: &str = "stdio";

impl Inflight {
    pub(crate) fn new(
        questions: ClientRequestConfig,
        replica: u64,
        streams: Gauge,
        hits: Arc<Hits>,
    ) -> Self {
        Self {
            calls: Mutex::default(),
            changed: Notify::new(),
            questions: Questions::new(questions, replica),
            streams,
            hits,
        }
    }

    /// Counts one more stream, for as long as what is returned lives.
    pub(crate) fn stream(&self) -> StreamHold {
        StreamHold {
            _open: self.streams.hold(),
            hits: Arc::clone(&self.hits),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, context: &CallContext, stop: AbortHandle) -> Place {
        let mut calls = self.calls();
        calls.begun += 1;
        let number = calls.begun;
        calls.running += 1;
        calls.stoppable.insert(number, stop);
        Place {
            inflight: Arc::clone(self),
            number,
            key: key(context),
        }
    }

    /// Has a call be cancelled by its id, unless it has left already: it may have ended on another thread.
    fn remember(&self, number: u64, context: &Arc<CallContext>, task: TaskHandle) {
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

    /// The answer to a call that somebody else drives, and that is cancelled by its id (CAN-01).
    pub(super) fn cancellable(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        answer: BoxedCall<Reply>,
    ) -> BoxedCall<Reply> {
        let (stop, stopped) = AbortHandle::new_pair();
        let place = self.enter(context, stop);
        let number = place.number;
        let task = tokio::spawn(async move {
            let answer = Abortable::new(answer, stopped).await;
            drop(place);
            answer
        });
        self.remember(number, context, task.abort_handle());
        let id = context.request_id.clone();
        Box::pin(async move {
            match task.await {
                Ok(Ok(reply)) => reply,
                Ok(Err(Aborted)) => super::tools::stopped(id.as_json()),
                Err(_) => Reply::Cancelled,
            }
        })
    }

    /// The answer to a call that somebody else drives, and that ends with its request or with the server.
    pub(super) fn stoppable(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
        answer: BoxedCall<Reply>,
    ) -> BoxedCall<Reply> {
        let (stop, stopped) = AbortHandle::new_pair();
        let place = self.enter(context, stop);
        let id = context.request_id.clone();
        Box::pin(async move {
            let answer = Abortable::new(answer, stopped).await;
            drop(place);
            answer.unwrap_or_else(|Aborted| super::tools::stopped(id.as_json()))
        })
    }

    /// Counts something among the calls that a server which stops waits for.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.calls().running += 1;
        Busy(Arc::clone(self))
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

    /// Cancels a call (CAN-01), and says whether there was one. What has ended, or never was, is nobody's loss.
    pub(crate) fn cancel(&self, session: &str, id: &str) -> bool {
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

    /// Ends all calls; their callers are told that the server stops.
    pub(crate) fn stop(&self) {
        let running: Vec<_> = self.calls().stoppable.values().cloned().collect();
        for call in running {
            call.abort();
        }
    }

    /// Waits until no call is left.
    pub(crate) async fn idle(&self) {
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

impl Drop for Place {
    fn drop(&mut self) {
        let mut calls = self.inflight.calls();
        // The id may have been used again since.
        let known = calls.by_id.get(&self.key);
        if known.is_some_and(|call| call.number == self.number) {
            calls.by_id.remove(&self.key);
        }
        calls.stoppable.remove(&self.number);
        drop(calls);
        self.inflight.leave();
    }
}

/// Something that a server which stops waits for.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Inflight>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// When a stream shows that it is alive: every 15 to 25 seconds, not all at once.
pub(crate) fn next_heartbeat() -> Instant {
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
        let enter = || inflight.enter(&context, AbortHandle::new_pair().0);
        // Its task is about to end on another thread.
        let task = tokio::spawn(std::future::pending::<()>());
        let place = enter();
        let number = place.number;
        drop(place);
        inflight.remember(number, &context, task.abort_handle());
        assert!(inflight.calls().by_id.is_empty());
        // One that has used its id again stays.
        let (first, second) = (enter(), enter());
        for place in [&first, &second] {
            inflight.remember(place.number, &context, task.abort_handle());
        }
        drop(first);
        assert_eq!(inflight.calls().by_id.len(), 1);
        drop(second);
        assert!(inflight.calls().by_id.is_empty());
    }
}
