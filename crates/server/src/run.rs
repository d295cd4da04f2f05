//! Running what somebody has written, and answering with what comes of it.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use super::call::{self, BoxedCall, Outcome, Resumption, Step, Terms};
use super::reply::Reply;
use super::stream::CallStream;
use super::streams::Streams;
use super::{Caller, Handled, Server};
use crate::catalog::CallContext;

impl Server {
    /// After how long an answer becomes a stream.
    pub(super) fn stream_after(&self) -> Duration {
        Duration::from_secs(self.config.stream_after_seconds)
    }

    /// How a call of the caller's is to be run; `timeout` is what was asked for.
    #[inline]
    pub(super) fn terms(&self, caller: Caller<'_>, timeout: Option<Duration>) -> Terms {
        Terms {
            timeout: timeout.unwrap_or(Duration::from_secs(self.config.call_timeout_seconds)),
            on_disconnect: caller.on_disconnect,
            stream_after: caller.stream_after,
            resumption: caller.resumption,
        }
    }

    /// What it takes to take a stream up again, for callers who can.
    #[inline]
    pub(super) fn resumption_of(&self, terms: Terms) -> Option<Arc<Streams>> {
        (terms.resumption != Resumption::No).then(|| Arc::clone(&self.streams))
    }

    /// Runs what somebody has written for this server, and answers with what comes of it.
    pub(super) fn run<T: Send + 'static>(
        &self,
        cx: &mut Context<'_>,
        id: &str,
        start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
        context: Arc<CallContext>,
        terms: Terms,
        conclude: impl FnOnce(Outcome<T>) -> Handled + Send + 'static,
    ) -> Handled {
        let has_room = self
            .limits
            .has_room(&context.principal, context.address, None);
        let begun = if has_room {
            call::begin(cx, start, &context, terms)
        } else {
            call::prepared(start, &context)
        };
        let begun = match begun {
            Ok(Step::Done(outcome)) => return conclude(outcome),
            begun => begun,
        };
        let inflight = Arc::clone(&self.inflight);
        let turn = self.limits.turn(&context.principal, context.address, None);
        let id = id.to_owned();
        let streams = self.resumption_of(terms);
        Handled::Later(Box::pin(async move {
            let step = match begun {
                Ok(step) => step,
                Err(call) => {
                    let held = if has_room {
                        Ok(turn.take())
                    } else {
                        turn.wait().await
                    };
                    match held {
                        Ok(held) => call::wait(call, &context, terms, &inflight, held).await,
                        Err(refused) => return Reply::limited(Some(&id), refused),
                    }
                }
            };
            match step {
                Step::Done(outcome) => conclude(outcome).reply().await,
                Step::Streams(running) => {
                    let hold = inflight.stream();
                    let stream = CallStream::new(running, context, conclude, hold);
                    in_parts(stream, streams, terms)
                }
            }
        }))
    }
}

/// An answer that has something to say before its end.
pub(super) fn in_parts(stream: CallStream, streams: Option<Arc<Streams>>, terms: Terms) -> Reply {
    Reply::Stream(match streams {
        Some(streams) => streams.resumable(stream, terms),
        None => Box::new(stream),
    })
}
