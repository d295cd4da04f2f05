//! Runs tools, resources, prompts, completions and custom methods.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use super::call_stream::CallStream;
use super::inflight::{self, BoxedCall, CallOptions, CallOutcome, CallProgress, Resumption};
use super::reply::Reply;
use super::streams::Streams;
use super::{Caller, MaybeReady, Server};
use crate::catalog::CallContext;

impl Server {
    /// Delay after which a response becomes a stream.
    pub(super) fn stream_after(&self) -> Duration {
        Duration::from_secs(self.config.stream_after_seconds)
    }

    /// Options of a call. `timeout` overrides the configured one.
    #[inline]
    pub(super) fn options(&self, caller: Caller<'_>, timeout: Option<Duration>) -> CallOptions {
        CallOptions {
            timeout: timeout.unwrap_or(Duration::from_secs(self.config.call_timeout_seconds)),
            on_disconnect: caller.on_disconnect,
            stream_after: caller.stream_after,
            resumption: caller.resumption,
        }
    }

    /// Returns the stream store if the caller can resume streams.
    #[inline]
    pub(super) fn resumable_streams(&self, options: CallOptions) -> Option<Arc<Streams>> {
        (options.resumption != Resumption::No).then(|| Arc::clone(&self.streams))
    }

    /// Runs a call and returns its response.
    pub(super) fn execute<T: Send + 'static>(
        &self,
        cx: &mut Context<'_>,
        id: &str,
        start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
        context: Arc<CallContext>,
        options: CallOptions,
        conclude: impl FnOnce(CallOutcome<T>) -> MaybeReady + Send + 'static,
    ) -> MaybeReady {
        let has_room = self
            .limits
            .has_room(&context.principal, context.address, None);
        let begun = if has_room {
            inflight::start(cx, start, &context, options)
        } else {
            inflight::start_unpolled(start, &context)
        };
        let begun = match begun {
            Ok(CallProgress::Done(outcome)) => return conclude(outcome),
            begun => begun,
        };
        let inflight = Arc::clone(&self.inflight);
        let turn = self.limits.turn(&context.principal, context.address, None);
        let id = id.to_owned();
        let streams = self.resumable_streams(options);
        MaybeReady::Pending(Box::pin(async move {
            let step = match begun {
                Ok(step) => step,
                Err(call) => {
                    let held = if has_room {
                        Ok(turn.take())
                    } else {
                        turn.wait().await
                    };
                    match held {
                        Ok(held) => inflight::drive(call, &context, options, &inflight, held).await,
                        Err(refused) => return Reply::limited(Some(&id), refused),
                    }
                }
            };
            match step {
                CallProgress::Done(outcome) => conclude(outcome).reply().await,
                CallProgress::Streams(running) => {
                    let hold = inflight.stream();
                    let stream = CallStream::new(running, context, conclude, hold);
                    into_stream(stream, streams, options)
                }
            }
        }))
    }
}

/// Response that streams the messages of a call before its result.
pub(super) fn into_stream(
    stream: CallStream,
    streams: Option<Arc<Streams>>,
    options: CallOptions,
) -> Reply {
    Reply::Stream(match streams {
        Some(streams) => streams.resumable(stream, options),
        None => Box::new(stream),
    })
}
