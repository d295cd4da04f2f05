//! Response stream of a call: its messages, then its result.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use super::inflight::{Inflight, StreamGuard};
use super::reply::{JsonResponse, MaybeReady, RejectReason, Reply};
use super::running_call::{CallOutcome, RunningCall};
use super::share;
use super::streams::{EventSource, StreamEvent};
use crate::catalog::CallContext;
use crate::telemetry::DeferredScope;

/// Messages of a call, then its response.
///
/// In the stateless lifecycle, dropping it cancels the call (MH-16).
pub(crate) struct CallStream {
    /// `None` after the call has completed.
    running: Option<Pin<Box<dyn Future<Output = Option<JsonResponse>> + Send>>>,
    context: Arc<CallContext>,
    answer: Option<JsonResponse>,
    /// Sent before the response.
    last_progress: Option<Bytes>,
    /// True after the response, or after the last message of a call without one.
    is_over: bool,
    watch: Option<DeferredScope>,
    hold: StreamGuard,
}

impl CallStream {
    pub fn new<T: Send + 'static>(
        running: RunningCall<T>,
        context: Arc<CallContext>,
        conclude: impl FnOnce(CallOutcome<T>) -> MaybeReady + Send + 'static,
        hold: StreamGuard,
    ) -> Self {
        let answer = async move { conclude(running.await).reply().await.into_response() };
        Self::driven(answer, context, hold)
    }

    /// Creates the stream of a call from the future of its response.
    fn driven(
        answer: impl Future<Output = Option<JsonResponse>> + Send + 'static,
        context: Arc<CallContext>,
        hold: StreamGuard,
    ) -> Self {
        Self {
            running: Some(Box::pin(answer)),
            context,
            answer: None,
            last_progress: None,
            is_over: false,
            watch: None,
            hold,
        }
    }

    /// Session of the call.
    pub(super) fn session(&self) -> Option<&Arc<str>> {
        self.context.session.as_ref()
    }

    /// Owner that the stream's log is charged to.
    pub(super) fn owner(&self) -> Option<String> {
        share::owner_of(&self.context.principal, self.context.address)
    }

    /// JSON-RPC id of the request.
    pub(super) fn request_id(&self) -> &str {
        self.context.request_id.as_json()
    }

    /// Returns true if the tool has released the connection, so that its reader may come back later.
    pub(super) fn is_let_go(&self) -> bool {
        self.context.outlet.is_let_go()
    }
}

/// Waits for a response. Switches to a stream when the call sends a message or takes longer than `stream_after`.
///
/// `stream_after` is `None` for callers who accept no stream.
pub(super) async fn stream_if_slow(
    mut answer: Pin<Box<dyn Future<Output = Reply> + Send>>,
    context: Arc<CallContext>,
    stream_after: Option<Duration>,
    inflight: Arc<Inflight>,
) -> Reply {
    let Some(stream_after) = stream_after else {
        return answer.await;
    };
    let mut until_stream = std::pin::pin!(tokio::time::sleep(stream_after));
    let early = poll_fn(|cx| {
        if let Poll::Ready(reply) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(reply));
        }
        if context.outlet.has_messages(cx) {
            return Poll::Ready(None);
        }
        until_stream.as_mut().poll(cx).map(|()| None)
    });
    let early = early.await;
    if context.outlet.is_silent()
        && let Some(reply) = early
    {
        return reply;
    }
    let hold = inflight.stream();
    let stream = match early {
        Some(reply) => CallStream::driven(async { reply.into_response() }, context, hold),
        None => {
            let answer = async move { answer.await.into_response() };
            CallStream::driven(answer, context, hold)
        }
    };
    Reply::Stream(Box::new(stream))
}

impl EventSource for CallStream {
    fn watch(&mut self, watch: DeferredScope) {
        self.watch = Some(watch);
    }

    /// Returns the next event, or `None` at the end and after a cancelled call.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        loop {
            if let Some(message) = self.context.outlet.next(cx) {
                return Poll::Ready(Some(StreamEvent::message(message)));
            }
            let Some(running) = &mut self.running else {
                if let Some(message) = self.last_progress.take() {
                    return Poll::Ready(Some(StreamEvent::message(message)));
                }
                self.is_over = true;
                return Poll::Ready(self.answer.take().map(StreamEvent::response));
            };
            match running.as_mut().poll(cx) {
                // Messages sent before completion precede the response. A cancelled call has only messages.
                Poll::Ready(answer) => {
                    self.running = None;
                    self.last_progress = self.context.outlet.close();
                    if let Some((watch, answer)) = self.watch.take().zip(answer.as_ref()) {
                        let reason = answer.refusal.as_ref().map(RejectReason::reason);
                        watch.end(answer.verdict, reason, || Some(answer.to_bytes()));
                    }
                    self.answer = answer;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for CallStream {
    fn drop(&mut self) {
        self.hold.count(self.context.outlet.take_dropped());
    }
}

impl fmt::Debug for CallStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallStream")
    }
}
