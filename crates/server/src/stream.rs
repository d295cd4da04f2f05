//! An answer that comes in parts: what a call says while it runs, then how it ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use std::future::poll_fn;
use std::time::Duration;

use super::Handled;
use super::call::{Inflight, Outcome, Running, StreamHold};
use super::reply::{Answer, Refusal, Reply};
use super::share;
use super::streams::{Part, Parts};
use crate::catalog::CallContext;
use crate::telemetry::WatchedLater;

/// One call's messages, the last of which is its answer.
///
/// In the stateless era dropping it cancels the call (MH-16).
pub(crate) struct CallStream {
    /// `None` once it is done.
    running: Option<Pin<Box<dyn Future<Output = Option<Answer>> + Send>>>,
    context: Arc<CallContext>,
    answer: Option<Answer>,
    watch: Option<WatchedLater>,
    hold: StreamHold,
}

impl CallStream {
    pub(crate) fn new<T: Send + 'static>(
        running: Running<T>,
        context: Arc<CallContext>,
        conclude: impl FnOnce(Outcome<T>) -> Handled + Send + 'static,
        hold: StreamHold,
    ) -> Self {
        Self {
            running: Some(Box::pin(async move {
                conclude(running.await).reply().await.into_answer()
            })),
            context,
            answer: None,
            watch: None,
            hold,
        }
    }

    /// Messages of a call that somebody else drives, before the answer that comes of it.
    fn driven(
        answer: impl Future<Output = Option<Answer>> + Send + 'static,
        context: Arc<CallContext>,
        hold: StreamHold,
    ) -> Self {
        Self {
            running: Some(Box::pin(answer)),
            context,
            answer: None,
            watch: None,
            hold,
        }
    }

    /// The session that the call belongs to.
    pub(super) fn session(&self) -> Option<&Arc<str>> {
        self.context.session.as_ref()
    }

    /// Whose share of the state it takes.
    pub(super) fn owner(&self) -> Option<String> {
        share::owner_of(&self.context.principal, self.context.address)
    }

    /// The id of its request as JSON.
    pub(super) fn request_id(&self) -> &str {
        self.context.request_id.as_json()
    }

    /// Whether its tool has said that its reader may come back later.
    pub(super) fn is_let_go(&self) -> bool {
        self.context.outlet.is_let_go()
    }
}

/// An answer, or what a call says before it and then the answer: as soon as the call says something, or takes longer
/// than `stream_after`. `None` for callers who take no streams.
pub(super) async fn or_streams(
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
        Some(reply) => CallStream::driven(async { reply.into_answer() }, context, hold),
        None => {
            let answer = async move { answer.await.into_answer() };
            CallStream::driven(answer, context, hold)
        }
    };
    Reply::Stream(Box::new(stream))
}

impl Parts for CallStream {
    fn watch(&mut self, watch: WatchedLater) {
        self.watch = Some(watch);
    }

    /// The next part; `None` at the end, and at once after a call that was cancelled.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        loop {
            if self.running.is_none() && self.answer.is_none() {
                return Poll::Ready(None);
            }
            if let Some(message) = self.context.outlet.next(cx) {
                return Poll::Ready(Some(Part::message(message)));
            }
            let Some(running) = &mut self.running else {
                return Poll::Ready(self.answer.take().map(Part::answer));
            };
            match running.as_mut().poll(cx) {
                // What it said last comes before its answer.
                Poll::Ready(answer) => {
                    self.running = None;
                    if let Some((watch, answer)) = self.watch.take().zip(answer.as_ref()) {
                        let reason = answer.refusal.as_ref().map(Refusal::reason);
                        watch.end(answer.verdict, reason, || Some(answer.whole()));
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
