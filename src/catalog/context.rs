//! What a tool may ask about the call that it serves, and say while it runs.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use serde::Serialize;

use super::outlet::Outlet;
use crate::auth::Principal;

/// One call, as its tool sees it: who asks, and under which ids.
///
/// It looks the same whatever revision of the protocol the caller speaks.
pub struct CallContext {
    pub(crate) principal: Arc<Principal>,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) request_id: RequestId,
    pub(crate) headers: Option<HeaderMap>,
    pub(crate) outlet: Outlet,
}

impl CallContext {
    /// A call that nobody made, for unit tests of a tool: an anonymous caller, no session, no headers.
    ///
    /// ```
    /// use longshore::CallContext;
    ///
    /// assert_eq!(CallContext::for_test().principal().name(), "anonymous");
    /// ```
    pub fn for_test() -> Self {
        Self {
            principal: Arc::new(Principal::anonymous()),
            session: None,
            request_id: RequestId::from_json("1"),
            headers: None,
            outlet: Outlet::default(),
        }
    }

    /// Who is calling.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// A name for the caller's session that is safe to log. `None` where there are no sessions: in the
    /// stateless era, where nothing ties one request to the next.
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The JSON-RPC id of the request.
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Headers of the HTTP request. `None` over standard input and output.
    ///
    /// They hold the caller's credentials: do not log them, and do not pass them on.
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_ref()
    }

    /// Tells the caller how far the call has come: `progress` of `total`, and what is being done.
    ///
    /// Does nothing if the caller did not ask to be told.
    /// Reports have to grow: one that is not more than the last is left out, and so are those that come within 20 ms
    /// of one another, save the one that reaches `total`.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        if self.outlet.progress(progress, total, message) {
            // Lets it be sent before the tool goes on.
            tokio::task::yield_now().await;
        }
    }

    /// Sends a log message to the caller, if it asked for messages of this level.
    ///
    /// At most 200 a second are sent. They must not hold credentials or personal data.
    pub async fn log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        if self.outlet.log(level, data) {
            tokio::task::yield_now().await;
        }
    }

    /// From which level on the caller wants log messages; `None` if it wants none. For tools whose messages are costly
    /// to make.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.outlet.log_level()
    }

    /// Whether the call has been cancelled or has run out of time. The tool's future is dropped at its next `await`
    /// anyway; this is for tools that block, or compute for long without one.
    pub fn is_cancelled(&self) -> bool {
        self.outlet.is_cancelled()
    }
}

impl fmt::Debug for CallContext {
    /// Leaves the headers out: they hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("principal", &self.principal)
            .field("session", &self.session)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// The id of a JSON-RPC request, as the JSON text that it came in: `7`, or `"a-7"` with its quotes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    pub(crate) fn from_json(text: &str) -> Self {
        Self(text.into())
    }

    /// The id as JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How much a log message matters, by RFC 5424, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LogLevel {
    /// Detail for whoever hunts a fault.
    Debug,
    /// An ordinary event.
    Info,
    /// An ordinary event worth noticing.
    Notice,
    /// Something that may become an error.
    Warning,
    /// Something failed.
    Error,
    /// A component failed.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Reads the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}
