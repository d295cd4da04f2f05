//! The context of a running call: its caller, its request, and messages to the client.

mod log_level;
mod client_requests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::notifier::Notifier;
use super::provided::Provided;
use super::replay::{ReplaySession, StepError, StepGuarantee, run_step};
use crate::auth::Principal;
use crate::net::ShareKey;
use crate::telemetry::{ClientSpan, SpanInfo, TraceContext, TraceLink};
pub use log_level::LogLevel;

/// The call that a tool, resource or prompt serves.
///
/// Identifies the caller and the request, and sends progress, log messages and requests to the client. It is the same
/// for all protocol versions.
pub struct CallContext {
    #[doc(hidden)]
    pub principal: Arc<Principal>,
    /// Key of the caller's share of resources that callers use together.
    #[doc(hidden)]
    pub share: ShareKey,
    /// Address of the client, over HTTP.
    #[doc(hidden)]
    pub address: Option<IpAddr>,
    #[doc(hidden)]
    pub session: Option<Arc<str>>,
    #[doc(hidden)]
    pub request_id: RequestId,
    /// `_meta` of the request, if it has members that the protocol does not define.
    #[doc(hidden)]
    pub meta: Option<Box<str>>,
    #[doc(hidden)]
    pub headers: Option<HeaderMap>,
    /// Values that layers of the application have put into the HTTP request.
    #[doc(hidden)]
    pub extensions: Option<Arc<Extensions>>,
    /// Values of the application that the extractors of this call have declared.
    #[doc(hidden)]
    pub state: OnceLock<Arc<Provided>>,
    /// Time limit of the call; `None` for no limit.
    #[doc(hidden)]
    pub timeout: Option<Duration>,
    /// End of that time, once the call has had to wait for something.
    #[doc(hidden)]
    pub deadline: OnceLock<Instant>,
    #[doc(hidden)]
    pub outlet: Notifier,
    #[doc(hidden)]
    pub replay: ReplaySession,
    /// `_meta` of the result of a read, which another server has set.
    #[doc(hidden)]
    pub read_meta: OnceLock<Box<Map<String, Value>>>,
    /// Trace context of the call, and the part of it that is propagated.
    #[doc(hidden)]
    pub onward: TraceLink,
}

impl CallContext {
    /// Creates a call for unit tests of a tool: an anonymous caller, no session, no headers.
    ///
    /// ```
    /// use longshore::CallContext;
    ///
    /// assert_eq!(CallContext::for_test().principal().name(), "anonymous");
    /// ```
    pub fn for_test() -> Self {
        Self {
            request_id: RequestId::from_json("1"),
            ..Self::vacant(Arc::new(Principal::anonymous()))
        }
    }

    /// Creates a context of a caller without a call.
    #[doc(hidden)]
    pub fn vacant(principal: Arc<Principal>) -> Self {
        Self {
            principal,
            share: ShareKey::NONE,
            address: None,
            session: None,
            request_id: RequestId::from_json(""),
            meta: None,
            headers: None,
            extensions: None,
            state: OnceLock::new(),
            timeout: None,
            deadline: OnceLock::new(),
            outlet: Notifier::default(),
            replay: ReplaySession::default(),
            read_meta: OnceLock::new(),
            onward: TraceLink::default(),
        }
    }

    /// Drops everything that belongs to the call, but not the caller.
    #[doc(hidden)]
    #[inline]
    pub fn vacate(&mut self) {
        let Self {
            principal: _,
            share: _,
            address: _,
            session,
            request_id,
            meta,
            headers,
            extensions,
            state,
            timeout: _,
            deadline,
            outlet,
            replay,
            read_meta,
            onward,
        } = self;
        *session = None;
        if let IdText::Long(_) = request_id.0 {
            *request_id = RequestId::from_json("");
        }
        *meta = None;
        *headers = None;
        *extensions = None;
        drop(state.take());
        deadline.take();
        outlet.vacate();
        replay.vacate();
        drop(read_meta.take());
        onward.carried = None;
        onward.tracer = None;
    }

    /// Sets the caller, for unit tests of a tool that reads it.
    ///
    /// ```
    /// use longshore::CallContext;
    /// use longshore::auth::Principal;
    ///
    /// let context = CallContext::for_test().with_principal(Principal::new("ada"));
    /// assert_eq!(context.principal().name(), "ada");
    /// ```
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = Arc::new(principal);
        self
    }

    /// Adds a header to the call, for unit tests of tools that read it.
    ///
    /// # Panics
    ///
    /// The name has letters in upper case, or is not a valid name.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: HeaderValue) -> Self {
        let headers = self.headers.get_or_insert_default();
        headers.insert(HeaderName::from_static(name), value);
        self
    }

    /// Adds a value that a layer would have set, for unit tests of tools with an
    /// [`Extension`](crate::extract::Extension).
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        let extensions = self.extensions.get_or_insert_default();
        Arc::make_mut(extensions).insert(value);
        self
    }

    /// Returns the caller.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns an identifier of the caller's session that is safe to log.
    ///
    /// `None` in protocol version 2026-07-28, which has no sessions.
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the JSON-RPC ID of the request.
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Returns a member of the request's `_meta` that the protocol does not define, such as `com.example/tenant`.
    ///
    /// `None` if it is missing, or not a `T`. The client sets it, so do not use it for authorization.
    ///
    /// ```
    /// # use longshore::CallContext;
    /// # let context = CallContext::for_test();
    /// let tenant: Option<String> = context.meta("com.example/tenant");
    /// ```
    pub fn meta<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        // Members of the protocol are only kept beside others, so returning them would depend on those.
        if key.starts_with("io.modelcontextprotocol/") || key == "progressToken" {
            return None;
        }
        let members: HashMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(self.meta.as_deref()?).ok()?;
        serde_json::from_str(members.get(key)?.get()).ok()
    }

    /// Returns the headers of the HTTP request. `None` over stdio.
    ///
    /// Headers with credentials are removed before the call. Others may be confidential, too: do not log them, and do not
    /// forward them.
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_ref()
    }

    /// A value that a layer of the application (`App::layer`) has put into the extensions of the
    /// HTTP request. `None` if none has, and over standard input and output.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.as_ref()?.get()
    }

    /// Reports progress to the caller: `progress` of `total`, and a message about the current step.
    ///
    /// Does nothing unless the client has requested progress. Progress must increase: other reports are dropped.
    /// Of reports within 20 ms of the last one, only the newest is sent: when that time is over, or before the response.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        if !self.replay.is_muted() && self.outlet.progress(progress, total, message) {
            // Sends the notification before the tool continues.
            tokio::task::yield_now().await;
        }
    }

    /// Returns true if the client has requested progress.
    pub fn wants_progress(&self) -> bool {
        self.outlet.wants_progress()
    }

    /// Sends a progress notification outside async code.
    pub fn report_progress(&self, progress: f64, total: Option<f64>, message: &str) {
        if !self.replay.is_muted() {
            self.outlet.progress(progress, total, message);
        }
    }

    /// Sends a log message outside async code.
    pub fn send_log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        if !self.replay.is_muted() {
            self.outlet.log(level, data);
        }
    }

    /// Forwards a log message of another server.
    #[doc(hidden)]
    pub fn forward_log<T: Serialize + ?Sized>(
        &self,
        logger: Option<&str>,
        level: LogLevel,
        data: &T,
    ) {
        if !self.replay.is_muted() {
            self.outlet.log_as(logger, level, data);
        }
    }

    /// Sends a log message to the client, if it has requested messages of this level.
    ///
    /// At most 200 messages per second are sent. They must not contain credentials or personal data.
    pub async fn log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        if !self.replay.is_muted() && self.outlet.log(level, data) {
            tokio::task::yield_now().await;
        }
    }

    /// Ends the event stream of the response while the call continues, so that a long call needs no open connection.
    ///
    /// The client reconnects and gets the rest. Works for clients of 2025-11-25 over HTTP, and does nothing for others.
    pub async fn release_connection(&self) {
        // Other clients cannot resume the stream.
        if self.replay.revision().can_resume_streams() {
            self.outlet.release_connection();
            tokio::task::yield_now().await;
        }
    }

    /// Runs an effect that must not run again when the tool is replayed: a durable step.
    ///
    /// ```
    /// use longshore::{CallContext, ToolError, tool};
    ///
    /// async fn reserve(room: &str) -> Result<u64, ToolError> {
    /// #   let _ = room;
    ///     Ok(17)
    /// }
    ///
    /// # #[derive(serde::Deserialize, longshore::JsonSchema)] struct Guest { name: String }
    /// /// Reserves a room, then asks for whom.
    /// #[tool]
    /// async fn book(context: &CallContext, room: String) -> Result<String, ToolError> {
    ///     let number = context.step("reserve", reserve(&room)).await?;
    ///     let guest = context.elicit::<Guest>("Who will stay?").await?.accepted();
    ///     let name = guest.map_or("nobody".to_owned(), |guest| guest.name);
    ///     Ok(format!("reservation {number} for {name}"))
    /// }
    /// ```
    ///
    /// The result is recorded with the responses, and returned immediately from then on. Steps with the same name are
    /// distinguished by their order. An error is not recorded and fails the call as usual; if the tool goes on instead, the
    /// next step of that name takes its place, and in later rounds it runs again. A running step delays the
    /// end of the call, so its result is never lost to a client request. Up to 2025-11-25 a tool is not replayed, and
    /// the effect just runs.
    ///
    /// If a tool asks its client after a failed step, the effect is attempted again before the tool reads the response.
    /// Where the response decides about that, record the failure as a value: let the effect return `Ok(Err(problem))`.
    ///
    /// An effect may have steps of its own. Their results count until the outer step has one. A request to the client
    /// within an effect fails if the tool is replayed, because the response would come after the end of the call.
    ///
    /// # Guarantee
    ///
    /// A step runs *at least once*, and once along one sequence of responses. It runs again in three cases:
    ///
    /// - The client repeats an old request state. The record is sealed and travels through the client, so later
    ///   entries are lost.
    /// - The client starts over with a new call.
    /// - The server stops after the step and before its response is sent.
    ///
    /// If that is not acceptable, make the effect idempotent, for example with a key that an earlier step has
    /// generated, or use [`step_once`](Self::step_once).
    ///
    /// Up to 64 KiB of results and responses travel through the client. Up to 1 MiB is stored in the shared state;
    /// replicas without access to it then reject the request.
    ///
    /// # Errors
    ///
    /// The error of the effect, or [`StepError`] if the result cannot be recorded.
    pub async fn step<T, E, F>(&self, name: &str, effect: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<StepError>,
        F: Future<Output = Result<T, E>>,
    {
        run_step(&self.replay, name, StepGuarantee::AtLeastOnce, effect).await
    }

    /// Runs a [`step`](Self::step) *at most once*, even if a client repeats an old request state.
    ///
    /// The step is claimed in the shared state before it runs. A second run from the same responses fails with
    /// [`StepError::AlreadyRun`], also if the effect failed the first time, was dropped, or the server stopped during it. A client that
    /// starts over makes a new call, to which this does not apply.
    ///
    /// With a [`State`](crate::state::State) in memory, the guarantee holds within one process and until it ends. If the
    /// shared state is unavailable, the step does not run.
    ///
    /// # Errors
    ///
    /// As for [`step`](Self::step), and if the step has run before or this is not known.
    pub async fn step_once<T, E, F>(&self, name: &str, effect: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<StepError>,
        F: Future<Output = Result<T, E>>,
    {
        run_step(&self.replay, name, StepGuarantee::AtMostOnce, effect).await
    }

    /// Returns the minimum level of log messages that the client has requested. `None` if it has requested none.
    ///
    /// For tools whose messages are expensive to build.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.outlet.log_level()
    }

    /// Returns the trace context of the call: its own span, or the caller's context if this server does not trace.
    ///
    /// See [`propagate`](Self::propagate).
    pub fn trace(&self) -> Option<TraceContext> {
        self.onward.place(self.headers.as_ref())
    }

    /// Adds the trace context of the call to the headers of an outgoing request.
    ///
    /// Adds `traceparent`, and the caller's `tracestate` and `baggage`. `OTEL_PROPAGATORS` selects the headers. Remove
    /// `baggage` from requests to servers that must not see it.
    pub fn propagate(&self, headers: &mut HeaderMap) {
        self.onward.add_to(self.headers.as_ref(), headers);
    }

    /// Returns `traceparent` and `tracestate` of the call, if there are any.
    pub fn traced(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.onward.here(self.headers.as_ref())
    }

    /// Starts the span of an outgoing request. `asked` describes it, and is called only if it is traced.
    pub fn hop(&self, asked: impl FnOnce() -> SpanInfo) -> ClientSpan {
        self.onward.hop(self.headers.as_ref(), asked)
    }

    /// Returns true if the call has been cancelled or has timed out.
    ///
    /// For tools that block or compute for a long time. A future is dropped at its next `await`.
    pub fn is_cancelled(&self) -> bool {
        self.outlet.is_cancelled()
    }
}

impl fmt::Debug for CallContext {
    /// Omits the headers, which may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("principal", &self.principal)
            .field("session", &self.session)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// ID of a JSON-RPC request, as JSON text: `7`, or `"a-7"` with its quotes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(IdText);

/// Text of an ID. Nearly all are short numbers, which need no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum IdText {
    /// A text of at most `SHORT_BYTES` bytes.
    Short {
        length: u8,
        bytes: [u8; SHORT_BYTES],
    },
    Long(Box<str>),
}

const SHORT_BYTES: usize = 22;

impl RequestId {
    #[inline]
    pub fn from_json(text: &str) -> Self {
        if SHORT_BYTES < text.len() {
            return Self(IdText::Long(text.into()));
        }
        let mut bytes = [0; SHORT_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self(IdText::Short {
            length: text.len() as u8,
            bytes,
        })
    }

    /// Returns the ID as JSON text.
    pub fn as_json(&self) -> &str {
        match &self.0 {
            IdText::Long(text) => text,
            IdText::Short { length, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default()
            }
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_length_are_told_as_they_came() {
        for length in 0..2 * SHORT_BYTES {
            let text = format!("\"{}\"", "\u{e9}".repeat(length));
            let id = RequestId::from_json(&text);
            assert_eq!(id.as_json(), text);
            assert_eq!(id, RequestId::from_json(&text));
            assert_ne!(id, RequestId::from_json(&format!("{text} ")));
        }
        assert_eq!(RequestId::from_json("7").to_string(), "7");
        assert!(
            size_of::<RequestId>() <= 24,
            "no larger than a pointer, a length and a little"
        );
    }
}
