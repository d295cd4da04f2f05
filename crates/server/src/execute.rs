//! Executor: runs tools, resources, prompts, completions and custom methods.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call_stream::CallStream;
use super::inflight::{BoxedCall, Inflight};
use super::reply::{MaybeReady, Reply};
use super::request_context::Caller;
use super::running_call;
use super::running_call::{
    CallFailure, CallOptions, CallOutcome, CatchUnwind, OnDisconnect, Resumption, RunningCall,
};
use super::streams::Streams;
use crate::catalog::CallContext;
use crate::limit::{Limits, PermitRequest, ToolLimits};

/// A call that is ready to run.
pub(super) struct Call<'a, S> {
    pub(super) context: &'a Arc<CallContext>,
    pub(super) options: CallOptions,
    pub(super) permits: PermitsNeeded<'a>,
    /// Creates the future of the call.
    pub(super) start: S,
}

/// Concurrency permits that a call needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum PermitsNeeded<'a> {
    /// Those of all calls and of its caller.
    Common,
    /// Also those of its tool.
    OfTool(&'a ToolLimits),
    /// None: it only waits for another call. Its handler limits how many there are.
    None,
}

/// Writer of the response to a call. Implemented by functions from an outcome to a response.
pub(super) trait Respond<T>: Sized {
    /// The writer with owned data, for responses that are written after the request is gone.
    type Owned: Respond<T> + Send + 'static;

    fn respond(self, outcome: CallOutcome<T>) -> MaybeReady;

    fn into_owned(self) -> Self::Owned;
}

impl<T, F> Respond<T> for F
where
    F: FnOnce(CallOutcome<T>) -> MaybeReady + Send + 'static,
{
    type Owned = Self;

    #[inline]
    fn respond(self, outcome: CallOutcome<T>) -> MaybeReady {
        self(outcome)
    }

    #[inline]
    fn into_owned(self) -> Self {
        self
    }
}

/// The calls of a server: limits, execution and cancellation.
pub(super) struct Calls {
    /// Timeout of calls that set none.
    pub(super) timeout: Duration,
    /// Maximum time that a client with a session has to answer a client request.
    pub(super) client_request_timeout: Duration,
    pub(super) limits: Arc<Limits>,
    pub(super) inflight: Arc<Inflight>,
    pub(super) streams: Arc<Streams>,
}

impl Calls {
    /// Options of a call. `timeout` overrides the configured one.
    #[inline]
    pub(super) fn options(&self, caller: Caller<'_>, timeout: Option<Duration>) -> CallOptions {
        CallOptions {
            timeout: timeout.unwrap_or(self.timeout),
            on_disconnect: caller.on_disconnect,
            stream_after: caller.stream_after,
            resumption: caller.resumption,
        }
    }

    /// Runs a call and responds with its outcome.
    ///
    /// The call is polled once if the concurrency limits have room. Most calls complete then, and nothing is allocated
    /// for waiting.
    #[inline]
    pub(super) fn execute<T, S, R>(
        &self,
        cx: &mut Context<'_>,
        call: Call<'_, S>,
        responder: R,
    ) -> MaybeReady
    where
        T: Send + 'static,
        S: FnOnce(Arc<CallContext>) -> BoxedCall<T>,
        R: Respond<T>,
    {
        let Call {
            context,
            options,
            permits,
            start,
        } = call;
        let (principal, address) = (&context.principal, context.address);
        let (needs_permits, limits) = match permits {
            PermitsNeeded::Common => (true, None),
            PermitsNeeded::OfTool(limits) => (true, Some(limits)),
            PermitsNeeded::None => (false, None),
        };
        let has_room = !needs_permits || self.limits.has_room(principal, address, limits);
        let Some(mut call) = running_call::prepare(start, context) else {
            return responder.respond(Err(CallFailure::Panicked));
        };
        let polled = match has_room {
            true => call.poll_first(cx, context),
            // It is polled once it has its permits.
            false => None,
        };
        let running = match polled {
            None => Err(call),
            Some(outcome) if context.outlet.is_silent() || options.stream_after.is_none() => {
                return responder.respond(outcome);
            }
            Some(outcome) => Ok(RunningCall::Done(Some(outcome))),
        };
        let pending = PendingCall {
            running,
            has_room,
            turn: match needs_permits {
                true => self.limits.turn(principal, address, limits),
                false => self.limits.no_turn(),
            },
            context: Arc::clone(context),
            options,
            inflight: Arc::clone(&self.inflight),
            streams: (options.resumption != Resumption::No).then(|| Arc::clone(&self.streams)),
        };
        let mut answer: BoxedCall<Reply> = Box::pin(pending.finish(responder.into_owned()));
        if has_room || options.on_disconnect == OnDisconnect::Cancel {
            return MaybeReady::Pending(answer);
        }
        // CAN-01: a call in the queue can be cancelled by its id. A rejected one needs no task.
        match answer.as_mut().poll(cx) {
            Poll::Ready(reply) => MaybeReady::Ready(reply),
            Poll::Pending => MaybeReady::Pending(self.inflight.cancellable(context, answer)),
        }
    }
}

/// A call that did not complete at once.
struct PendingCall<T> {
    /// The call, or what it is before it has its permits.
    running: Result<RunningCall<T>, CatchUnwind<T>>,
    /// True if permits are available without waiting.
    has_room: bool,
    turn: PermitRequest,
    context: Arc<CallContext>,
    options: CallOptions,
    inflight: Arc<Inflight>,
    /// `None` if the caller cannot resume streams.
    streams: Option<Arc<Streams>>,
}

impl<T: Send + 'static> PendingCall<T> {
    /// Acquires the permits, then drives the call until it completes or its response becomes a stream.
    async fn finish(self, responder: impl Respond<T> + Send + 'static) -> Reply {
        let Self {
            running,
            has_room,
            turn,
            context,
            options,
            inflight,
            streams,
        } = self;
        let running = match running {
            Ok(running) => running,
            Err(call) => {
                let permits = match has_room {
                    true => turn.take(),
                    false => match turn.wait().await {
                        Ok(permits) => permits,
                        Err(refused) => {
                            return Reply::limited(Some(context.request_id.as_json()), refused);
                        }
                    },
                };
                let mut running = RunningCall::new(call, &context, options, &inflight, permits);
                match running.until_stream(&context, options).await {
                    Some(outcome) => return responder.respond(outcome).reply().await,
                    None => running,
                }
            }
        };
        let guard = inflight.stream();
        let respond = move |outcome| responder.respond(outcome);
        let stream = CallStream::new(running, context, respond, guard);
        Reply::Stream(match streams {
            Some(streams) => streams.resumable(stream, options),
            None => Box::new(stream),
        })
    }
}
