//! An answer that comes in parts: what a call says while it runs, then how it ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::call::{Outcome, Running};
use super::reply::Answer;
use crate::catalog::CallContext;

/// One call's messages, the last of which is its answer.
///
/// In the stateless era dropping it cancels the call (MH-16).
pub(crate) struct CallStream {
    running: Running,
    context: Arc<CallContext>,
    outcome: Option<Outcome>,
    conclude: Option<Box<dyn FnOnce(Outcome) -> Option<Answer> + Send>>,
}

/// One part of a stream.
#[derive(Debug)]
pub(crate) enum Part {
    /// A notification.
    Message(Bytes),
    /// The answer, after which nothing comes.
    Answer(Answer),
}

impl CallStream {
    pub(crate) fn new(
        running: Running,
        context: Arc<CallContext>,
        conclude: impl FnOnce(Outcome) -> Option<Answer> + Send + 'static,
    ) -> Self {
        Self {
            running,
            context,
            outcome: None,
            conclude: Some(Box::new(conclude)),
        }
    }

    /// The next part; `None` at the end, and at once after a call that was cancelled.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        loop {
            if self.conclude.is_none() {
                return Poll::Ready(None);
            }
            if let Some(message) = self.context.outlet.next(cx) {
                return Poll::Ready(Some(Part::Message(message)));
            }
            if let Some(outcome) = self.outcome.take() {
                let answer = self.conclude.take().and_then(|conclude| conclude(outcome));
                return Poll::Ready(answer.map(Part::Answer));
            }
            match Pin::new(&mut self.running).poll(cx) {
                // What it said last comes before its answer.
                Poll::Ready(outcome) => self.outcome = Some(outcome),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl fmt::Debug for CallStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallStream")
    }
}
