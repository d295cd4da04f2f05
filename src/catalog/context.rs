//! What a tool may ask about the call that it serves, and say while it runs.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use serde::Serialize;

use crate::auth::Principal;

/// One call, as its tool sees it: who asks, and under which ids.
///
/// It looks the same whatever revision of the protocol the caller speaks.
pub struct CallContext {
    pub(crate) principal: Arc<Principal>,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) request_id: RequestId,
    pub(crate) headers: Option<HeaderMap>,
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
    #[expect(
        clippy::unused_async,
        reason = "it will wait where the caller is slow to listen"
    )]
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        let _ = (progress, total, message);
    }

    /// Sends a log message to the caller, if it asked for messages of this level.
    #[expect(
        clippy::unused_async,
        reason = "it will wait where the caller is slow to listen"
    )]
    pub async fn log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        let _ = (level, data);
    }

    /// Whether the caller has cancelled the call. The tool's future is dropped at its next `await` anyway;
    /// this is for long stretches without one.
    pub fn is_cancelled(&self) -> bool {
        false
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
