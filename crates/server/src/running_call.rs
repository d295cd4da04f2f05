//! Execution of one call: panic isolation, timeout, client requests, and the effect of a disconnect.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::client_requests::PendingSends;
use super::held_permits::HeldPermits;
use super::inflight::{BoxedCall, Inflight, InflightEntry};
use crate::catalog::{CallContext, Suspension};
use crate::limit::CallPermits;
use crate::net::{ShareKey, enter_share};
use crate::protocol::Revision;
use crate::telemetry::{TraceContext, enter_trace};

/// Outcome of a call.
pub(crate) type CallOutcome<T> = Result<T, CallFailure>;

/// Reason for a call that returned nothing.
#[derive(Debug)]
pub(crate) enum CallFailure {
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
    pub(crate) suspension: Suspension,
    pub(crate) context: Arc<CallContext>,
}

/// Effect of a disconnect on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// The call is dropped (stateless lifecycle, MH-16).
    Cancel,
    /// The call runs until it completes or is cancelled by its id (stateful lifecycle, LH-02).
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

/// Options of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    /// Maximum duration of the call.
    pub(crate) timeout: Duration,
    pub(crate) on_disconnect: OnDisconnect,
    /// Delay after which the response becomes a stream, so that proxies see traffic. `None` if the caller accepts no
    /// stream.
    pub(crate) stream_after: Option<Duration>,
    pub(crate) resumption: Resumption,
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
        call: match context.replay.is_fetching() {
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
        context.replay.fetch_journal().await;
        call.await
    })
}

/// Replaces the outcome with the recorded replay error, if any, and closes pending client requests.
#[inline]
pub(super) fn finish_replay<T>(
    outcome: CallOutcome<T>,
    context: &Arc<CallContext>,
) -> CallOutcome<T> {
    match context.replay.close() {
        None => outcome,
        Some(error) => suspended(Suspension::Failed(error), context),
    }
}

#[cold]
pub(super) fn suspended<T>(suspension: Suspension, context: &Arc<CallContext>) -> CallOutcome<T> {
    context.replay.close();
    Err(CallFailure::Suspended(Box::new(SuspendedCall {
        suspension,
        context: Arc::clone(context),
    })))
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
        held: HeldPermits,
    },
    /// Owned by a task that outlives the response.
    Task(oneshot::Receiver<CallOutcome<T>>),
}

impl<T: Send + 'static> RunningCall<T> {
    pub(super) fn new(
        call: CatchUnwind<T>,
        context: &Arc<CallContext>,
        options: CallOptions,
        inflight: &Arc<Inflight>,
        held: CallPermits,
    ) -> Self {
        let timeout = options.timeout;
        let (stop, stopped) = AbortHandle::new_pair();
        let call = Abortable::new(call, stopped);
        let place = inflight.register(context, stop);
        let key = place.key.clone();
        let deadline = Box::pin(tokio::time::sleep(timeout));
        let _ = context.deadline.set(deadline.deadline());
        let call = Self::Own {
            call,
            deadline,
            timeout,
            context: Arc::clone(context),
            asked: None,
            place,
            held: HeldPermits::Held(held),
        };
        if options.on_disconnect == OnDisconnect::Cancel {
            return call;
        }
        let (sender, receiver) = oneshot::channel();
        // `inflight` keeps the abort handle: the task can be cancelled by request id and is awaited at shutdown.
        let task = tokio::spawn(async move {
            // The call is dropped first: it may send messages that precede its outcome.
            let outcome = call.await;
            let _ = sender.send(outcome);
        });
        inflight.make_cancellable(key, context, task.abort_handle());
        Self::Task(receiver)
    }

    /// Polls the call until it completes, or until it has sent a message or takes long, so that its response becomes a stream.
    /// Returns the outcome unless it is for a stream.
    pub(super) async fn until_stream(
        &mut self,
        context: &CallContext,
        options: CallOptions,
    ) -> Option<CallOutcome<T>> {
        let Some(stream_after) = options.stream_after else {
            return Some(self.await);
        };
        let until_stream = tokio::time::sleep(stream_after);
        tokio::pin!(until_stream);
        poll_fn(|cx| {
            let done = Pin::new(&mut *self).poll(cx).map(Some);
            if !context.outlet.is_silent() || done.is_pending() && context.outlet.has_messages(cx) {
                if let Poll::Ready(outcome) = done {
                    *self = Self::Done(outcome);
                }
                return Poll::Ready(None);
            }
            match done {
                Poll::Pending => until_stream.as_mut().poll(cx).map(|()| None),
                ready => ready,
            }
        })
        .await
    }
}

// No field is pinned: the future of the call is boxed.
impl<T> Unpin for RunningCall<T> {}

impl<T> Future for RunningCall<T> {
    type Output = CallOutcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallOutcome<T>> {
        match &mut *self {
            Self::Done(outcome) => {
                Poll::Ready(outcome.take().unwrap_or(Err(CallFailure::Cancelled)))
            }
            Self::Own {
                call,
                deadline,
                timeout,
                context,
                asked,
                place,
                held,
            } => {
                let admitted = held.poll_admitted(cx);
                // A call that is stopped is polled to its end.
                let is_polled = admitted.is_ready() || call.is_aborted();
                if is_polled && let Poll::Ready(outcome) = Pin::new(call).poll(cx) {
                    if let Some(asked) = asked {
                        asked.withdraw_closed(context, &place.inflight.client_requests);
                    }
                    return Poll::Ready(match outcome {
                        Ok(outcome) => finish_replay(outcome, context),
                        Err(Aborted) => {
                            context.outlet.cancel();
                            Err(CallFailure::Stopped)
                        }
                    });
                }
                // Registered before the journal is read, so that no request goes unnoticed.
                let replay = &context.replay;
                replay.set_driver(cx.waker());
                if replay.is_used() {
                    if let Some(suspension) = replay.suspension() {
                        return Poll::Ready(suspended(suspension, context));
                    }
                    if replay.response_timeout().is_some() {
                        let asked = asked.get_or_insert_default();
                        asked.sync(context, &place.inflight.client_requests);
                        match asked.waited(replay.is_waiting()) {
                            None => {
                                held.release();
                                return Poll::Pending;
                            }
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
                    Err(CallFailure::TimedOut(*timeout))
                })
            }
            Self::Task(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|outcome| outcome.unwrap_or(Err(CallFailure::Cancelled))),
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
            context.replay.close();
            if let Some(asked) = asked {
                asked.withdraw_all(context, &place.inflight.client_requests);
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

impl<T> CatchUnwind<T> {
    /// Polls the call for the first time. Most calls complete here, without a timer or a task. Returns `None` if it has to wait.
    #[inline]
    pub(super) fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        context: &Arc<CallContext>,
    ) -> Option<CallOutcome<T>> {
        match Pin::new(self).poll(cx) {
            Poll::Ready(outcome) => Some(finish_replay(outcome, context)),
            Poll::Pending => {
                let suspension = context.replay.suspension()?;
                Some(suspended(suspension, context))
            }
        }
    }
}

impl<T> Future for CatchUnwind<T> {
    type Output = CallOutcome<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallOutcome<T>> {
        // The future is never polled after a panic, so its broken state is not observed.
        let _entered = self.trace.map(enter_trace);
        let _share = enter_share(self.share);
        match catch_unwind(AssertUnwindSafe(|| self.call.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(CallFailure::Panicked)),
        }
    }
}
