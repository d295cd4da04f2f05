//! Bytes to JSON-RPC messages, parameters left as text.
//!
//! [`Payload::read`] looks at a body once, from left to right. What it returns borrows from the body: ids,
//! names and arguments are slices of it.

use std::borrow::Cow;

use serde::Deserialize;

pub use super::scan::Excess;
use super::scan::{
    Bounds, DEPTH_MAX, JsonString, MEMBERS_MAX, ScanError, Scanner, repeated_member,
};
pub use ends::{Ends, is_closed};
use envelope::Envelope;

/// Ids longer than this are refused: they would be echoed in every answer.
pub const ID_MAX_BYTES: usize = 1024;

/// JSON text of the version that a message says it speaks.
const VERSION: &str = r#""2.0""#;

/// Bounds of one message. No number may exceed its default. Values have no default bound, so code that reads a part
/// again need not count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageBounds {
    scan: Bounds,
    id_bytes: usize,
}

impl MessageBounds {
    /// Creates bounds on depth, members of an object, values, and bytes of a string id.
    pub fn new(depth: u32, members: u16, values: u32, id_bytes: usize) -> Self {
        Self {
            scan: Bounds::new(depth, members, values),
            id_bytes: id_bytes.min(ID_MAX_BYTES),
        }
    }

    /// Returns the bounds for a document that is not a message.
    pub fn of_documents(self) -> Bounds {
        self.scan
    }
}

impl Default for MessageBounds {
    fn default() -> Self {
        Self::new(DEPTH_MAX, MEMBERS_MAX, u32::MAX, ID_MAX_BYTES)
    }
}

/// Content of one body.
#[derive(Debug)]
pub enum Payload<'a> {
    Single(Message<'a>),
    /// The texts of an array's elements, in order.
    Batch(Vec<&'a str>),
}

/// A JSON-RPC message.
#[derive(Debug)]
pub enum Message<'a> {
    Request(Request<'a>),
    Notification(Notification<'a>),
    Response(Response<'a>),
}

/// A message that wants an answer.
#[derive(Debug)]
pub struct Request<'a> {
    /// JSON text of the id: a string with its quotes, or an integer, as the client has written it.
    pub id: &'a str,
    pub method: Cow<'a, str>,
    pub params: Params<'a>,
}

/// A message that wants none.
#[derive(Debug)]
pub struct Notification<'a> {
    pub method: Cow<'a, str>,
    pub params: Params<'a>,
}

/// An answer to a request that the server made.
#[derive(Debug)]
pub struct Response<'a> {
    /// JSON text of the id, if it can be one.
    pub id: Option<&'a str>,
    /// JSON text of the result, or of the error.
    pub outcome: Result<&'a str, &'a str>,
}

/// Parameters: JSON texts of the members that are needed before the method's own types read them.
#[derive(Debug, Default)]
pub struct Params<'a> {
    /// The whole object; `None` if the message has none.
    pub object: Option<&'a str>,
    pub name: Option<&'a str>,
    pub uri: Option<&'a str>,
    pub arguments: Option<&'a str>,
    /// Two members of one object in `arguments` may have the same name; see [`Params::repeated_argument`].
    pub arguments_repeat: bool,
    /// Rare parameters; `None` in the usual case, which keeps requests small to move.
    pub rare: Option<Box<RareParams<'a>>>,
    pub meta: Meta<'a>,
}

/// Members that few requests have.
#[derive(Clone, Copy, Debug, Default)]
pub struct RareParams<'a> {
    pub input_responses: Option<&'a str>,
    pub request_state: Option<&'a str>,
    pub task: Option<&'a str>,
    pub task_id: Option<&'a str>,
    /// `_meta` as a whole, if it has members that the protocol gives no meaning to.
    pub own_meta: Option<&'a str>,
}

impl<'a> Params<'a> {
    /// The path of a member of these arguments that appears twice in its object, at any depth. The arguments are those of
    /// this request, or a part of them.
    ///
    /// Which of the two counts is decided differently by different readers (RFC 8259 section 4).
    #[inline]
    pub fn repeated_argument(&self, arguments: Option<&str>) -> Option<String> {
        match self.arguments_repeat {
            false => None,
            true => repeated_member(arguments?),
        }
    }

    /// Members that few requests have.
    pub fn rare(&self) -> RareParams<'a> {
        self.rare.as_deref().copied().unwrap_or_default()
    }
}

/// `params._meta`, likewise.
#[derive(Clone, Debug, Default)]
pub struct Meta<'a> {
    pub protocol_version: Option<&'a str>,
    pub client_capabilities: Option<&'a str>,
    pub log_level: Option<&'a str>,
    pub progress_token: Option<&'a str>,
    /// Position of the request in a trace.
    pub traceparent: Option<&'a str>,
}

/// A body that is no message.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed<'a> {
    pub kind: MalformedKind,
    pub reason: Cow<'static, str>,
    /// The id, where it could be read.
    pub id: Option<&'a str>,
    /// True if the message is a response, whose sender expects none.
    pub is_response: bool,
    /// The exceeded bound, if the message is otherwise valid.
    pub excess: Option<Excess>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedKind {
    /// Not JSON in UTF-8.
    Parse,
    /// JSON, but no JSON-RPC message.
    Invalid,
}

impl<'a> Payload<'a> {
    /// Reads a body that holds no more than any may.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed<'a>> {
        Self::within(body, MessageBounds::default())
    }

    /// Reads a body within bounds.
    #[inline]
    pub fn within(body: &'a [u8], bounds: MessageBounds) -> Result<Self, Malformed<'a>> {
        Self::of_text(text(body)?, bounds)
    }

    /// Reads a body that is known to be UTF-8, within bounds.
    #[inline]
    pub fn of_text(text: &'a str, bounds: MessageBounds) -> Result<Self, Malformed<'a>> {
        let mut scanner = Scanner::within(text, bounds.scan);
        if scanner.peek() == Some(b'[') {
            let elements = elements(&mut scanner);
            return match elements {
                Ok(elements) => Ok(Self::Batch(elements)),
                Err(error) => Err(Malformed::scanned(error, &scanner)),
            };
        }
        Message::scan(&mut scanner, bounds).map(Self::Single)
    }
}

/// The text of a body.
///
/// # Errors
///
/// The body is not UTF-8.
#[inline]
pub fn text(body: &[u8]) -> Result<&str, Malformed<'_>> {
    simdutf8::compat::from_utf8(body).map_err(|error| Malformed::not_utf8(error.valid_up_to()))
}

/// The texts of an array's elements.
fn elements<'a>(scanner: &mut Scanner<'a>) -> Result<Vec<&'a str>, ScanError> {
    let mut elements = Vec::new();
    scanner.array(|scanner| {
        elements.push(scanner.value()?);
        Ok(())
    })?;
    scanner.end()?;
    Ok(elements)
}

impl<'a> Message<'a> {
    /// Reads one message within bounds.
    pub fn within(text: &'a str, bounds: MessageBounds) -> Result<Self, Malformed<'a>> {
        Self::scan(&mut Scanner::within(text, bounds.scan), bounds)
    }

    fn scan(scanner: &mut Scanner<'a>, bounds: MessageBounds) -> Result<Self, Malformed<'a>> {
        let mut envelope = Envelope::default();
        match envelope.read(scanner) {
            Ok(true) => envelope.into_message(bounds.id_bytes),
            Ok(false) => Err(Malformed::invalid("a message is an object", None)),
            Err(error) => Err(Malformed::scanned(error, scanner)),
        }
    }
}

/// Reads a value's text as a string. `None` if it is something else.
#[inline]
pub fn string(value: &str) -> Option<Cow<'_, str>> {
    JsonString::of_value(value).map(JsonString::unescape)
}

/// Returns true if a value's text is that of an object.
#[inline]
pub fn is_object(value: &str) -> bool {
    value.starts_with('{')
}

/// Returns true if a value stands for an absent object: Go writes null for a map that is nil, PHP an empty list for an
/// empty map.
pub(crate) fn is_absent(value: &str) -> bool {
    matches!(value, "null" | "[]")
}

/// Returns true if a value's text is that of a response's error.
fn is_error(value: &str) -> bool {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "it is read for its form")]
    struct Error<'a> {
        code: i64,
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    is_object(value) && serde_json::from_str::<Error<'_>>(value).is_ok()
}

/// Returns true if a value's text is valid as a request id or progress token.
pub fn is_id(value: &str) -> bool {
    match value.as_bytes().first() {
        Some(b'"') => value.len() <= ID_MAX_BYTES + 2,
        Some(b'-') => value.parse::<i64>().is_ok() || is_whole(value),
        Some(b'0'..=b'9') => value.parse::<u64>().is_ok() || is_whole(value),
        _ => false,
    }
}

/// Returns true if a number's text is that of an integer with a fraction or an exponent, such as `1.0`. To JSON Schema, which
/// the specification is written in, that is an integer too, and clients without integers write it.
#[cold]
fn is_whole(value: &str) -> bool {
    // Beyond that a float does not say which integer is meant.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_float = value.len() <= ID_MAX_BYTES && value.contains(['.', 'e', 'E']);
    let number = value.parse::<f64>().ok().filter(|_| is_float);
    number.is_some_and(|number| number.fract() == 0.0 && number.abs() < EXACT)
}

impl<'a> Malformed<'a> {
    /// Returns true if reading ended before the end of the message, so that its id may be unknown although it has one.
    pub fn is_unread(&self) -> bool {
        self.kind == MalformedKind::Parse || self.excess.is_some_and(|excess| excess != Excess::Id)
    }

    /// A body with a byte at this position that is not UTF-8.
    #[cold]
    pub fn not_utf8(at: usize) -> Self {
        Self::new(
            MalformedKind::Parse,
            format!("not UTF-8 at byte {at}"),
            None,
        )
    }

    /// A document that was given up.
    #[cold]
    pub fn scanned(error: ScanError, scanner: &Scanner<'_>) -> Self {
        let excess = scanner.exceeded();
        let kind = match excess {
            // The text may still be valid JSON.
            Some(Excess::Members | Excess::Values) => MalformedKind::Invalid,
            Some(Excess::Depth | Excess::Id) | None => MalformedKind::Parse,
        };
        let reason = format!("{} at byte {}", error.reason, error.at);
        Self {
            excess,
            ..Self::new(kind, reason, None)
        }
    }

    /// Describes the value in place of an id.
    #[cold]
    fn no_id(text: &str, id_bytes: usize) -> Self {
        let reason = format!("id is an integer, or a string of at most {id_bytes} bytes");
        Self {
            excess: text.starts_with('"').then_some(Excess::Id),
            ..Self::new(MalformedKind::Invalid, reason, None)
        }
    }

    fn invalid(reason: &'static str, id: Option<&'a str>) -> Self {
        Self::new(MalformedKind::Invalid, reason, id)
    }

    fn new(kind: MalformedKind, reason: impl Into<Cow<'static, str>>, id: Option<&'a str>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            id,
            is_response: false,
            excess: None,
        }
    }
}

mod ends;
mod envelope;
#[cfg(test)]
mod tests;
