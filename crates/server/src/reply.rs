//! Replies to messages.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::snapshot::Snapshot;
use super::streams::EventSource;
use crate::limit::{LARGE_BYTES, LimitExceeded, Limits, Reservation};
use crate::net::{ShareKey, SharedBytes};
use crate::protocol::{ErrorCode, ErrorObject, Revision, push_json, push_string};
use crate::telemetry::{OperationOutcome, Reason};

/// Reply to one message.
pub enum Reply {
    /// The message was accepted and gets no response.
    Accepted,
    Response(JsonResponse),
    /// Notifications, then a response.
    Stream(Box<dyn EventSource>),
    /// The caller cancelled the request and gets no response.
    Cancelled,
}

/// A reply, or the future that produces it.
pub enum MaybeReady {
    /// The usual case: no stage had to wait.
    Ready(Reply),
    Pending(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

impl std::fmt::Debug for MaybeReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(reply) => f.debug_tuple("Ready").field(reply).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

impl MaybeReady {
    /// Waits for the reply.
    pub async fn reply(self) -> Reply {
        match self {
            Self::Ready(reply) => reply,
            Self::Pending(reply) => reply.await,
        }
    }
}

/// Result of the handler of a method.
pub(super) type HandlerResult = Result<MaybeReady, HandlerError>;

/// Error of the handler of a method.
pub(super) enum HandlerError {
    Rejected(Reply),
    /// The named item is not in the snapshot. A source that is still starting may provide it.
    UnknownItem(Reply, Arc<Snapshot>),
}

impl From<Reply> for HandlerError {
    fn from(reply: Reply) -> Self {
        Self::Rejected(reply)
    }
}

/// A JSON document in two parts: the part specific to the request, and a shared part.
#[derive(Debug)]
pub struct JsonResponse {
    pub head: Bytes,
    /// Shared part; empty if `head` is the whole document.
    pub rest: SharedBytes,
    /// Reason of a rejection, for transports that map it to a status.
    pub refusal: Option<RejectReason>,
    /// Id of the session that the response opens.
    pub session: Option<String>,
    /// Outcome for metrics, traces and audit.
    pub verdict: OperationOutcome,
}

/// Reason of a rejection, as far as HTTP distinguishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The message is not valid JSON or JSON-RPC, or may not be sent by a client.
    Malformed,
    /// Required `_meta` is missing or malformed (stateless lifecycle).
    Meta,
    /// A header is missing or contradicts the body (stateless lifecycle).
    Header,
    /// The protocol version is not served.
    Version,
    /// The method does not exist (stateless lifecycle only; before, the error is an ordinary response).
    Method,
    /// The client has not declared a required capability (stateless lifecycle).
    Capability,
    /// The response belongs to a client request of another process.
    AskedElsewhere,
    /// A session is required.
    SessionMissing,
    /// The session has ended or never existed.
    SessionUnknown,
    /// A limit was hit.
    Limited(LimitExceeded),
    /// The caller lacks one of these scopes.
    Scope(Arc<[String]>),
    /// The tool does not exist. An ordinary response for JSON-RPC clients.
    Tool,
    /// The arguments are invalid. An ordinary response for JSON-RPC clients.
    Arguments,
    /// The call timed out. An ordinary response for JSON-RPC clients.
    TimedOut,
    /// The response is an event stream, which the client does not accept.
    NotAcceptable,
    /// The caller has too many open streams.
    TooManyStreams,
    /// The stream cannot be resumed after this event.
    EventUnknown,
    /// The stream to resume has no further events.
    StreamComplete,
    /// The shared state cannot be reached.
    StateUnavailable,
    /// The audit log is required and cannot be written.
    Unrecorded,
}

impl RejectReason {
    /// Reason in metrics and audit records.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Malformed => Reason::Malformed,
            Self::Meta => Reason::Meta,
            Self::Header => Reason::Header,
            Self::Version => Reason::Version,
            Self::Method => Reason::Method,
            Self::Capability => Reason::Capability,
            Self::AskedElsewhere => Reason::AskedElsewhere,
            Self::SessionMissing => Reason::SessionMissing,
            Self::SessionUnknown => Reason::SessionUnknown,
            Self::Limited(refused) => Reason::Limit(refused.limit.setting()),
            Self::Scope(_) => Reason::Scope,
            Self::Tool => Reason::Tool,
            Self::Arguments => Reason::Arguments,
            Self::TimedOut => Reason::TimedOut,
            Self::NotAcceptable => Reason::NotAcceptable,
            Self::TooManyStreams => Reason::Streams,
            Self::EventUnknown | Self::StreamComplete => Reason::EventUnknown,
            Self::StateUnavailable => Reason::State,
            Self::Unrecorded => Reason::Audit,
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted => f.write_str("Accepted"),
            Self::Response(answer) => f.debug_tuple("Response").field(answer).finish(),
            Self::Stream(_) => f.write_str("Stream"),
            Self::Cancelled => f.write_str("Cancelled"),
        }
    }
}

impl JsonResponse {
    /// Creates a response from a complete document.
    pub fn new(document: Bytes) -> Self {
        Self {
            head: document,
            rest: SharedBytes::default(),
            refusal: None,
            session: None,
            verdict: OperationOutcome::Done,
        }
    }

    /// Iterates over the parts of the document.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.head).chain(self.rest.pieces())
    }

    /// Returns the document in one piece. Copies if there is a shared part.
    pub fn to_bytes(&self) -> Bytes {
        if self.rest.len() == 0 {
            return self.head.clone();
        }
        let pieces: Vec<&[u8]> = self.pieces().map(|piece| &**piece).collect();
        pieces.concat().into()
    }
}

impl Reply {
    /// Returns the response, if there is one.
    pub fn into_response(self) -> Option<JsonResponse> {
        match self {
            Self::Response(answer) => Some(answer),
            Self::Accepted | Self::Stream(_) | Self::Cancelled => None,
        }
    }

    /// Sets the reason of the rejection, for transports that map it to a status.
    pub fn with_reason(mut self, refusal: RejectReason) -> Self {
        if let Self::Response(answer) = &mut self {
            answer.refusal = Some(refusal);
        }
        self
    }

    /// Creates a reply from a complete document.
    pub fn document(body: Vec<u8>) -> Self {
        Self::pieces(body.into(), Bytes::new())
    }

    /// Creates a reply from a specific and a shared part.
    #[inline]
    pub fn pieces(head: Bytes, rest: impl Into<SharedBytes>) -> Self {
        Self::Response(JsonResponse {
            head,
            rest: rest.into(),
            refusal: None,
            session: None,
            verdict: OperationOutcome::Done,
        })
    }

    /// Keeps a reservation of response memory until the document is sent.
    pub fn with_reservation(mut self, reservation: Option<Reservation>) -> Self {
        if let (Self::Response(answer), Some(reservation)) = (&mut self, reservation) {
            answer.head = reservation.hold(std::mem::take(&mut answer.head));
        }
        self
    }

    /// Reserves response memory for a large document until it is sent. Rejects it if too many wait to be sent.
    #[inline]
    pub fn counted(self, limits: &Limits, share: ShareKey, id: &str) -> Self {
        match &self {
            Self::Response(answer) if LARGE_BYTES <= answer.head.len() => {
                let bytes = answer.head.len();
                self.counted_large(limits, share, (id, bytes))
            }
            _ => self,
        }
    }

    #[cold]
    fn counted_large(self, limits: &Limits, share: ShareKey, (id, bytes): (&str, usize)) -> Self {
        match limits.reserve_response(share, bytes) {
            Ok(reservation) => self.with_reservation(reservation),
            Err(refused) => Self::limited(Some(id), refused),
        }
    }

    /// Returns true if the reply is the error for an unknown method of the stateless lifecycle.
    pub(super) fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Response(answer) if answer.refusal == Some(RejectReason::Method))
    }

    /// Sets the outcome for metrics, traces and audit.
    pub fn with_verdict(mut self, verdict: OperationOutcome) -> Self {
        if let Self::Response(answer) = &mut self {
            answer.verdict = verdict;
        }
        self
    }

    /// Outcome of the reply.
    pub fn verdict(&self) -> OperationOutcome {
        match self {
            Self::Response(answer) => answer.verdict,
            Self::Accepted | Self::Stream(_) => OperationOutcome::Done,
            Self::Cancelled => OperationOutcome::Cancelled,
        }
    }

    /// Reason of the rejection, if the reply is one.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Response(answer) => answer.refusal.as_ref().map(RejectReason::reason),
            Self::Accepted | Self::Stream(_) | Self::Cancelled => None,
        }
    }

    /// Creates a small constant result. Copying it costs less than a second part.
    pub fn constant(id: &str, rest: &[u8]) -> Self {
        let mut body = begin(id, rest.len());
        body.extend_from_slice(rest);
        Self::document(body)
    }

    /// Creates a response whose result is a JSON object as text.
    pub fn result(id: &str, result: impl std::fmt::Display) -> Self {
        let mut body = begin(id, 512);
        body.extend_from_slice(format!(r#","result":{result}}}"#).as_bytes());
        Self::document(body)
    }

    /// Creates an error response to a valid request.
    pub fn error(id: &str, error: &ErrorObject) -> Self {
        let mut body = Vec::new();
        error.write(&mut body, Some(id));
        Self::document(body).with_verdict(OperationOutcome::Error(error.code.number()))
    }

    /// Creates an error response to a request that was rejected without being executed.
    pub fn refused(refusal: RejectReason, id: Option<&str>, error: &ErrorObject) -> Self {
        let mut body = Vec::new();
        error.write(&mut body, id);
        Self::Response(JsonResponse {
            head: body.into(),
            rest: SharedBytes::default(),
            refusal: Some(refusal),
            session: None,
            verdict: OperationOutcome::Error(error.code.number()),
        })
    }

    /// Creates the rejection for an exceeded limit, with the retry time and the name of the setting.
    #[cold]
    pub fn limited(id: Option<&str>, refused: LimitExceeded) -> Self {
        Self::refused(RejectReason::Limited(refused), id, &limited(refused))
    }

    /// Shorthand for [`error`](Self::error).
    pub fn fail(
        id: &str,
        code: ErrorCode,
        message: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Self {
        Self::error(id, &ErrorObject::new(code, message))
    }

    /// Shorthand for [`refused`](Self::refused).
    pub fn refuse(
        refusal: RejectReason,
        id: Option<&str>,
        code: ErrorCode,
        message: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Self {
        Self::refused(refusal, id, &ErrorObject::new(code, message))
    }
}

/// Error object for an exceeded limit, with the retry time and the name of the setting.
pub fn limited(refused: LimitExceeded) -> ErrorObject {
    let status = if refused.limit.is_a_rate() { 429 } else { 503 };
    let data = json!({
        "retryAfterMs": refused.retry_after_ms(),
        "setting": refused.limit.setting(),
    });
    ErrorObject::new(ErrorCode::Http(status), refused.message()).with_data(data)
}

/// Starts a response: everything before the result.
#[inline]
pub fn begin(id: &str, capacity: usize) -> Vec<u8> {
    const HEAD: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    let mut body = Vec::with_capacity(HEAD.len() + id.len() + capacity);
    body.extend_from_slice(HEAD);
    body.extend_from_slice(id.as_bytes());
    body
}

const END: &[u8] = b"}}";

/// Number of bytes that [`finish`] adds for a result without `_meta` of its own.
#[inline]
pub fn end_len(
    snapshot: &Snapshot,
    revision: Revision,
    meta: Option<&Map<String, Value>>,
) -> usize {
    match (meta, revision.has_result_type()) {
        (None, true) => snapshot.result_tail.len() + END.len(),
        (None, false) => END.len(),
        (Some(_), _) => 256,
    }
}

/// Ends a response: adds the members that every result of the revision has, and the `_meta` of this one.
#[inline]
pub fn finish(
    mut out: Vec<u8>,
    snapshot: &Snapshot,
    revision: Revision,
    meta: Option<&Map<String, Value>>,
) -> Reply {
    push_end(&mut out, snapshot, revision, meta);
    Reply::document(out)
}

/// Appends what [`finish`] adds, with the JSON text of a `_meta` object that is not empty.
#[cold]
pub fn push_end_with(out: &mut Vec<u8>, snapshot: &Snapshot, revision: Revision, meta: &str) {
    if revision.has_result_type() {
        out.extend_from_slice(br#","resultType":"complete""#);
    }
    out.extend_from_slice(br#","_meta":{"#);
    if revision.has_result_type() {
        push_string(out, super::snapshot::SERVER_INFO);
        out.push(b':');
        out.extend_from_slice(snapshot.server_info.to_string().as_bytes());
        out.push(b',');
    }
    push_json(out, meta.strip_prefix('{').unwrap_or(meta));
    out.extend_from_slice(END);
}

/// Appends what [`finish`] adds.
#[inline(always)]
pub fn push_end(
    out: &mut Vec<u8>,
    snapshot: &Snapshot,
    revision: Revision,
    meta: Option<&Map<String, Value>>,
) {
    match (meta, revision.has_result_type()) {
        (None, true) => out.extend_from_slice(snapshot.result_tail.as_bytes()),
        (None, false) => {}
        (Some(meta), with_server_info) => {
            let mut meta = meta.clone();
            if with_server_info {
                out.extend_from_slice(br#","resultType":"complete""#);
                meta.entry(super::snapshot::SERVER_INFO)
                    .or_insert_with(|| snapshot.server_info.clone());
            }
            out.extend_from_slice(br#","_meta":"#);
            out.extend_from_slice(Value::Object(meta).to_string().as_bytes());
        }
    }
    out.extend_from_slice(END);
}
