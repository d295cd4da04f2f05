//! What comes back for a message.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::generation::Generation;
use super::streams::Parts;
use crate::limit::{LARGE_BYTES, Limits, Refused, Reservation};
use crate::net::{Common, ShareKey};
use crate::protocol::{ErrorCode, ErrorObject, Revision};
use crate::telemetry::{Reason, Verdict};

/// What a message gets.
pub(crate) enum Reply {
    /// It was heard, and there is nothing to say.
    Accepted,
    Answer(Answer),
    /// Notifications, then an answer.
    Stream(Box<dyn Parts>),
    /// The caller has said that it wants no answer.
    Cancelled,
}

/// One JSON document: what is particular to the request, and what is not.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Bytes,
    /// Empty if the head is everything.
    pub(crate) rest: Common,
    /// Why nothing was done, where a transport has a status for that.
    pub(crate) refusal: Option<Refusal>,
    /// The id of the session that the answer opens.
    pub(crate) session: Option<String>,
    /// What those who watch are told.
    pub(crate) verdict: Verdict,
}

/// Why a message was refused, as far as HTTP has something to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not JSON, or no JSON-RPC message, or one that may not come from a client.
    Malformed,
    /// The stateless era's required `_meta` is missing or of the wrong shape.
    Meta,
    /// A header is missing or contradicts the body (stateless era).
    Header,
    /// A version that is not served.
    Version,
    /// A method that does not exist (stateless era; before it, that is an ordinary answer).
    Method,
    /// The client has not declared what the request needs (stateless era).
    Capability,
    /// An answer to a question that another process has asked.
    AskedElsewhere,
    /// A session is needed.
    SessionMissing,
    /// The session has ended or never was.
    SessionUnknown,
    /// Somebody asked too often, or too much is going on.
    Limited(Refused),
    /// The caller lacks one of these scopes.
    Scope(Arc<[String]>),
    /// There is no such tool. To a message that is an ordinary answer.
    Tool,
    /// Arguments that the tool does not take; likewise.
    Arguments,
    /// The call ran out of time; likewise.
    TimedOut,
    /// The answer would be an event stream, which the client does not take.
    NotAcceptable,
    /// More streams than one caller may have.
    TooManyStreams,
    /// An event after which nothing can be replayed.
    EventUnknown,
    /// What replicas share cannot be reached.
    StateUnavailable,
    /// What happens has to be recorded, and cannot be.
    Unrecorded,
}

impl Refusal {
    /// What it is counted and recorded as.
    pub(crate) fn reason(&self) -> Reason {
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
            Self::EventUnknown => Reason::EventUnknown,
            Self::StateUnavailable => Reason::State,
            Self::Unrecorded => Reason::Audit,
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted => f.write_str("Accepted"),
            Self::Answer(answer) => f.debug_tuple("Answer").field(answer).finish(),
            Self::Stream(_) => f.write_str("Stream"),
            Self::Cancelled => f.write_str("Cancelled"),
        }
    }
}

impl Answer {
    /// One that is whole and ordinary.
    pub(crate) fn of(document: Bytes) -> Self {
        Self {
            head: document,
            rest: Common::default(),
            refusal: None,
            session: None,
            verdict: Verdict::Done,
        }
    }

    /// The document, one piece after the other.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.head).chain(self.rest.pieces())
    }

    /// The document, copied together if it is in pieces.
    pub(crate) fn whole(&self) -> Bytes {
        if self.rest.len() == 0 {
            return self.head.clone();
        }
        let pieces: Vec<&[u8]> = self.pieces().map(|piece| &**piece).collect();
        pieces.concat().into()
    }
}

impl Reply {
    /// The document, if it is one.
    pub(crate) fn into_answer(self) -> Option<Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Accepted | Self::Stream(_) | Self::Cancelled => None,
        }
    }

    /// Says why the answer is what it is, for transports that have a status for that.
    pub(crate) fn because(mut self, refusal: Refusal) -> Self {
        if let Self::Answer(answer) = &mut self {
            answer.refusal = Some(refusal);
        }
        self
    }

    /// A whole document.
    pub(crate) fn document(body: Vec<u8>) -> Self {
        Self::pieces(body.into(), Bytes::new())
    }

    /// A document that begins in its own way, and goes on as others do.
    #[inline]
    pub(crate) fn pieces(head: Bytes, rest: impl Into<Common>) -> Self {
        Self::Answer(Answer {
            head,
            rest: rest.into(),
            refusal: None,
            session: None,
            verdict: Verdict::Done,
        })
    }

    /// Has a large document count as unread until it is sent.
    pub(crate) fn holding(mut self, reservation: Option<Reservation>) -> Self {
        if let (Self::Answer(answer), Some(reservation)) = (&mut self, reservation) {
            answer.head = reservation.hold(std::mem::take(&mut answer.head));
        }
        self
    }

    /// Counts a large document as unread until it is sent, or refuses it if too many wait to be read.
    #[inline]
    pub(crate) fn counted(self, limits: &Limits, share: ShareKey, id: &str) -> Self {
        match &self {
            Self::Answer(answer) if LARGE_BYTES <= answer.head.len() => {
                let bytes = answer.head.len();
                self.counted_large(limits, share, (id, bytes))
            }
            _ => self,
        }
    }

    #[cold]
    fn counted_large(self, limits: &Limits, share: ShareKey, (id, bytes): (&str, usize)) -> Self {
        match limits.reserve_response(share, bytes) {
            Ok(reservation) => self.holding(reservation),
            Err(refused) => Self::limited(Some(id), refused),
        }
    }

    /// Returns true if it says that there is no such tool.
    pub(super) fn is_unknown_tool(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.refusal == Some(Refusal::Tool))
    }

    /// Says how it ended to those who watch.
    pub(crate) fn with_verdict(mut self, verdict: Verdict) -> Self {
        if let Self::Answer(answer) = &mut self {
            answer.verdict = verdict;
        }
        self
    }

    /// How it ended, if it has.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Answer(answer) => answer.verdict,
            Self::Accepted | Self::Stream(_) => Verdict::Done,
            Self::Cancelled => Verdict::Cancelled,
        }
    }

    /// Why it was refused, if it was.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Answer(answer) => answer.refusal.as_ref().map(Refusal::reason),
            Self::Accepted | Self::Stream(_) | Self::Cancelled => None,
        }
    }

    /// A result that is the same for everybody, and small: copied behind the id, which costs less than a second piece.
    pub(crate) fn fixed(id: &str, rest: &[u8]) -> Self {
        let mut body = begin(id, rest.len());
        body.extend_from_slice(rest);
        Self::document(body)
    }

    /// An error that answers a request: the request was understood.
    pub(crate) fn error(id: &str, error: &ErrorObject) -> Self {
        let mut body = Vec::new();
        error.write(&mut body, Some(id));
        Self::document(body).with_verdict(Verdict::Error(error.code.number()))
    }

    /// An error because of which nothing was done.
    pub(crate) fn refused(refusal: Refusal, id: Option<&str>, error: &ErrorObject) -> Self {
        let mut body = Vec::new();
        error.write(&mut body, id);
        Self::Answer(Answer {
            head: body.into(),
            rest: Common::default(),
            refusal: Some(refusal),
            session: None,
            verdict: Verdict::Error(error.code.number()),
        })
    }

    /// Says when it is worth asking again, and which setting is behind it.
    #[cold]
    pub(crate) fn limited(id: Option<&str>, refused: Refused) -> Self {
        Self::refused(Refusal::Limited(refused), id, &limited(refused))
    }

    /// [`refused`](Self::refused) in short.
    pub(crate) fn refuse(
        refusal: Refusal,
        id: Option<&str>,
        code: ErrorCode,
        message: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Self {
        Self::refused(refusal, id, &ErrorObject::new(code, message))
    }
}

/// Why nothing was done for somebody who has to wait, for programs and for models.
pub(crate) fn limited(refused: Refused) -> ErrorObject {
    let status = if refused.limit.is_a_rate() { 429 } else { 503 };
    let data = json!({
        "retryAfterMs": refused.retry_after_ms(),
        "setting": refused.limit.setting(),
    });
    ErrorObject::new(ErrorCode::Http(status), refused.message()).with_data(data)
}

/// The beginning of an answer to a request: everything up to what its result is.
#[inline]
pub(crate) fn begin(id: &str, capacity: usize) -> Vec<u8> {
    const HEAD: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    let mut body = Vec::with_capacity(HEAD.len() + id.len() + capacity);
    body.extend_from_slice(HEAD);
    body.extend_from_slice(id.as_bytes());
    body
}

const END: &[u8] = b"}}";

/// How long [`finish`] makes an answer, where its result has no `_meta` of its own.
#[inline]
pub(crate) fn end_len(
    generation: &Generation,
    revision: Revision,
    meta: Option<&Map<String, Value>>,
) -> usize {
    match (meta, revision.has_result_type()) {
        (None, true) => generation.result_tail.len() + END.len(),
        (None, false) => END.len(),
        (Some(_), _) => 256,
    }
}

/// The end of an answer to a request, behind the last member of its result: what every result of the revision says, and
/// the result's own `_meta`.
#[inline]
pub(crate) fn finish(
    mut out: Vec<u8>,
    generation: &Generation,
    revision: Revision,
    meta: Option<&Map<String, Value>>,
) -> Reply {
    match (meta, revision.has_result_type()) {
        (None, true) => out.extend_from_slice(generation.result_tail.as_bytes()),
        (None, false) => {}
        (Some(meta), with_server_info) => {
            let mut meta = meta.clone();
            if with_server_info {
                out.extend_from_slice(br#","resultType":"complete""#);
                meta.entry(super::generation::SERVER_INFO)
                    .or_insert_with(|| generation.server_info.clone());
            }
            out.extend_from_slice(br#","_meta":"#);
            out.extend_from_slice(Value::Object(meta).to_string().as_bytes());
        }
    }
    out.extend_from_slice(END);
    Reply::document(out)
}
