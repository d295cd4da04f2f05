//! Bytes to JSON-RPC messages, parameters left as text.
//!
//! [`Payload::read`] looks at a body once, from left to right. What it returns borrows from the body: ids,
//! names and arguments are slices of it.

use std::borrow::Cow;

use serde::Deserialize;

use super::scan::{
    Bound, Bounds, DEPTH_MAX, JsonString, Key, MEMBERS_MAX, ScanError, Scanner, repeated_member,
};

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

/// Kinds of exceeded bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Depth,
    Members,
    Values,
    Id,
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
    /// JSON text of the id: a string with its quotes, or an integer.
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
        let text = simdutf8::compat::from_utf8(body)
            .map_err(|e| Malformed::parse(format!("not UTF-8 at byte {}", e.valid_up_to())))?;
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

/// The members of a message while they are collected. The first thing wrong with them is kept, so that the
/// scan can go on to find the id.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Params<'a>,
    has_meta: bool,
    has_own_meta: bool,
    result: Option<&'a str>,
    error: Option<&'a str>,
    problem: Option<&'static str>,
}

/// Members of a message.
#[derive(Clone, Copy)]
enum Member {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Other,
}

impl Key for Member {
    #[inline(always)]
    fn likely(scanner: &mut Scanner<'_>, first: u8) -> Option<Self> {
        Some(match first {
            b'j' if scanner.reads(br#""jsonrpc":"#) => Self::Jsonrpc,
            b'i' if scanner.reads(br#""id":"#) => Self::Id,
            b'm' if scanner.reads(br#""method":"#) => Self::Method,
            b'p' if scanner.reads(br#""params":"#) => Self::Params,
            _ => return None,
        })
    }

    fn of(text: &str) -> Self {
        match text {
            "jsonrpc" => Self::Jsonrpc,
            "id" => Self::Id,
            "method" => Self::Method,
            "params" => Self::Params,
            "result" => Self::Result,
            "error" => Self::Error,
            _ => Self::Other,
        }
    }
}

/// Members of its parameters.
#[derive(Clone, Copy)]
enum Param {
    Name,
    Uri,
    Arguments,
    InputResponses,
    Task,
    TaskId,
    RequestState,
    Meta,
    Other,
}

impl Key for Param {
    #[inline(always)]
    fn likely(scanner: &mut Scanner<'_>, first: u8) -> Option<Self> {
        Some(match first {
            b'n' if scanner.reads(br#""name":"#) => Self::Name,
            b'a' if scanner.reads(br#""arguments":"#) => Self::Arguments,
            b'_' if scanner.reads(br#""_meta":"#) => Self::Meta,
            _ => return None,
        })
    }

    fn of(text: &str) -> Self {
        match text {
            "name" => Self::Name,
            "uri" => Self::Uri,
            "arguments" => Self::Arguments,
            "inputResponses" => Self::InputResponses,
            "task" => Self::Task,
            "taskId" => Self::TaskId,
            "requestState" => Self::RequestState,
            "_meta" => Self::Meta,
            _ => Self::Other,
        }
    }
}

/// Members of their `_meta`.
#[derive(Clone, Copy)]
enum MetaMember {
    ProtocolVersion,
    ClientCapabilities,
    LogLevel,
    ProgressToken,
    Traceparent,
    /// The protocol's, and not needed here.
    Other,
    /// Generated by this server, with a known form.
    Own,
}

impl Key for MetaMember {
    #[inline(always)]
    fn likely(scanner: &mut Scanner<'_>, first: u8) -> Option<Self> {
        if first != b'i' {
            return None;
        }
        Some(
            if scanner.reads(br#""io.modelcontextprotocol/protocolVersion":"#) {
                Self::ProtocolVersion
            } else if scanner.reads(br#""io.modelcontextprotocol/clientInfo":"#) {
                Self::Other
            } else if scanner.reads(br#""io.modelcontextprotocol/clientCapabilities":"#) {
                Self::ClientCapabilities
            } else {
                return None;
            },
        )
    }

    fn of(text: &str) -> Self {
        match text {
            "io.modelcontextprotocol/protocolVersion" => Self::ProtocolVersion,
            "io.modelcontextprotocol/clientCapabilities" => Self::ClientCapabilities,
            "io.modelcontextprotocol/logLevel" => Self::LogLevel,
            "progressToken" => Self::ProgressToken,
            "traceparent" => Self::Traceparent,
            "io.modelcontextprotocol/clientInfo" | "tracestate" | "baggage" => Self::Other,
            _ => Self::Own,
        }
    }
}

impl<'a> Envelope<'a> {
    /// Reads a whole document. Says whether it is an object.
    #[inline(always)]
    fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<bool, ScanError> {
        let is_object = scanner.peek() == Some(b'{');
        if is_object {
            scanner.object(|scanner, key| self.member(scanner, key))?;
        } else {
            scanner.value()?;
        }
        scanner.end()?;
        Ok(is_object)
    }

    #[inline]
    fn member(&mut self, scanner: &mut Scanner<'a>, key: Member) -> Result<(), ScanError> {
        match key {
            Member::Jsonrpc => {
                let value = match scanner.reads(br#""2.0""#) {
                    true => VERSION,
                    false => scanner.value()?,
                };
                self.once(|e| &mut e.jsonrpc, value);
            }
            Member::Id => {
                let value = scanner.value()?;
                match self.id {
                    None => self.id = Some(value),
                    Some(first) => self.second_id(first, value),
                }
            }
            Member::Method => {
                let value = scanner.value()?;
                self.once(|e| &mut e.method, value);
            }
            Member::Params if scanner.peek() == Some(b'{') => {
                if self.params.object.is_some() {
                    self.problem("a member appears twice");
                }
                let start = scanner.at();
                scanner.object(|scanner, key| self.param(scanner, key))?;
                self.params.object = Some(scanner.since(start));
            }
            Member::Params => {
                scanner.value()?;
                self.problem("params is an object");
            }
            Member::Result => {
                let value = scanner.value()?;
                self.once(|e| &mut e.result, value);
            }
            Member::Error => {
                let value = scanner.value()?;
                self.once(|e| &mut e.error, value);
            }
            Member::Other => {
                scanner.value()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn param(&mut self, scanner: &mut Scanner<'a>, key: Param) -> Result<(), ScanError> {
        if let Param::Meta = key {
            return self.read_meta(scanner);
        }
        if let Param::Arguments = key {
            let (value, repeats) = scanner.value_with_names()?;
            self.params.arguments_repeat = repeats;
            self.once(|e| &mut e.params.arguments, value);
            return Ok(());
        }
        let value = scanner.value()?;
        match key {
            Param::Name => self.once(|e| &mut e.params.name, value),
            Param::Uri => self.once(|e| &mut e.params.uri, value),
            Param::InputResponses => self.once(|e| &mut e.rare().input_responses, value),
            Param::Task => self.once(|e| &mut e.rare().task, value),
            Param::TaskId => self.once(|e| &mut e.rare().task_id, value),
            Param::RequestState => self.once(|e| &mut e.rare().request_state, value),
            Param::Arguments | Param::Meta | Param::Other => {}
        }
        Ok(())
    }

    fn rare(&mut self) -> &mut RareParams<'a> {
        self.params.rare.get_or_insert_default()
    }

    fn read_meta(&mut self, scanner: &mut Scanner<'a>) -> Result<(), ScanError> {
        if std::mem::replace(&mut self.has_meta, true) {
            self.problem("a member appears twice");
        }
        if scanner.peek() == Some(b'{') {
            let start = scanner.at();
            scanner.object(|scanner, key| self.meta(scanner, key))?;
            if self.has_own_meta {
                self.rare().own_meta = Some(scanner.since(start));
            }
            Ok(())
        } else {
            scanner.value().map(drop)
        }
    }

    #[inline]
    fn meta(&mut self, scanner: &mut Scanner<'a>, key: MetaMember) -> Result<(), ScanError> {
        let value = scanner.value()?;
        match key {
            MetaMember::ProtocolVersion => {
                self.once(|e| &mut e.params.meta.protocol_version, value);
            }
            MetaMember::ClientCapabilities => {
                self.once(|e| &mut e.params.meta.client_capabilities, value);
            }
            MetaMember::LogLevel => self.once(|e| &mut e.params.meta.log_level, value),
            MetaMember::ProgressToken => self.once(|e| &mut e.params.meta.progress_token, value),
            MetaMember::Traceparent => self.once(|e| &mut e.params.meta.traceparent, value),
            MetaMember::Other => {}
            MetaMember::Own => self.has_own_meta = true,
        }
        Ok(())
    }

    /// Stores a member's value. A repeated name is rejected, because a proxy in front of this server could read the
    /// other value.
    #[inline]
    fn once(&mut self, slot: impl FnOnce(&mut Self) -> &mut Option<&'a str>, value: &'a str) {
        if slot(self).replace(value).is_some() {
            self.problem("a member appears twice");
        }
    }

    /// With two ids the right one is unknown, so the response has none.
    #[cold]
    fn second_id(&mut self, first: &str, second: &str) {
        if first != second {
            self.id = Some("null");
        }
        self.problem("a member appears twice");
    }

    #[cold]
    fn problem(&mut self, problem: &'static str) {
        self.problem.get_or_insert(problem);
    }

    fn into_message(self, id_bytes: usize) -> Result<Message<'a>, Malformed<'a>> {
        let id = self.id.filter(|id| is_id(id) && id.len() <= id_bytes + 2);
        let invalid = |reason| Err(Malformed::invalid(reason, id));
        if let Some(problem) = self.problem {
            return invalid(problem);
        }
        if self.jsonrpc != Some(VERSION) && self.jsonrpc.and_then(string).as_deref() != Some("2.0")
        {
            return invalid("jsonrpc is \"2.0\"");
        }
        if let (Some(text), None) = (self.id, id) {
            return Err(Malformed::no_id(text, id_bytes));
        }
        let Some(method) = self.method else {
            let outcome = match (self.result, self.error) {
                (Some(_), Some(_)) => {
                    return invalid("a response has a result or an error, not both");
                }
                (None, None) => return invalid("a message has a method, a result or an error"),
                (Some(_), None) if id.is_none() => return invalid("a result has an id"),
                (Some(result), None) => Ok(result),
                (None, Some(error)) if !is_error(error) => {
                    return invalid("an error is an object with an integer code and a message");
                }
                (None, Some(error)) => Err(error),
            };
            return Ok(Message::Response(Response { id, outcome }));
        };
        if self.result.is_some() || self.error.is_some() {
            return invalid("a request has neither result nor error");
        }
        let Some(method) = string(method) else {
            return invalid("method is a string");
        };
        Ok(match id {
            Some(id) => Message::Request(Request {
                id,
                method,
                params: self.params,
            }),
            None => Message::Notification(Notification {
                method,
                params: self.params,
            }),
        })
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
        Some(b'-') => value.parse::<i64>().is_ok(),
        Some(b'0'..=b'9') => value.parse::<u64>().is_ok(),
        _ => false,
    }
}

impl Malformed<'_> {
    fn parse(reason: String) -> Self {
        Self {
            kind: MalformedKind::Parse,
            reason: Cow::Owned(reason),
            id: None,
            excess: None,
        }
    }

    /// A document that was given up.
    #[cold]
    fn scanned(error: ScanError, scanner: &Scanner<'_>) -> Self {
        let parse = Self::parse(format!("{} at byte {}", error.reason, error.at));
        match scanner.exceeded() {
            None => parse,
            Some(Bound::Depth) => Self {
                excess: Some(Excess::Depth),
                ..parse
            },
            // The text may still be valid JSON.
            Some(Bound::Members) => Self {
                kind: MalformedKind::Invalid,
                excess: Some(Excess::Members),
                ..parse
            },
            Some(Bound::Values) => Self {
                kind: MalformedKind::Invalid,
                excess: Some(Excess::Values),
                ..parse
            },
        }
    }

    /// Describes the value in place of an id.
    #[cold]
    fn no_id(text: &str, id_bytes: usize) -> Self {
        let is_string = text.starts_with('"');
        Self {
            kind: MalformedKind::Invalid,
            reason: Cow::Owned(format!(
                "id is an integer, or a string of at most {id_bytes} bytes"
            )),
            id: None,
            excess: is_string.then_some(Excess::Id),
        }
    }
}

impl<'a> Malformed<'a> {
    fn invalid(reason: &'static str, id: Option<&'a str>) -> Self {
        Self {
            kind: MalformedKind::Invalid,
            reason: Cow::Borrowed(reason),
            id,
            excess: None,
        }
    }
}

#[cfg(test)]
mod tests;
