//! Encoding and decoding of messages.

use std::io::Write as _;
use std::sync::Arc;

use http::HeaderName;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::error::beginning;
use crate::catalog::HeaderParameter;
use crate::protocol::scan::paired;
use crate::protocol::whole;

/// Parameters of a request: members in insertion order, and `_meta`.
///
/// ```
/// use longshore::client::Params;
///
/// let params = Params::new().with("name", "echo").with("arguments", serde_json::json!({"message": "hi"}));
/// # let _ = params;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Params {
    members: Vec<(&'static str, Text)>,
    pub(super) meta: Map<String, Value>,
    pub(super) headers: Vec<(HeaderName, String)>,
}

/// JSON text.
#[derive(Clone, Debug)]
enum Text {
    Own(Box<RawValue>),
    /// Shared by many requests.
    Shared(Arc<str>),
    Checked(String),
}

impl Text {
    fn get(&self) -> &str {
        match self {
            Self::Own(value) => value.get(),
            Self::Shared(text) => text,
            Self::Checked(text) => text,
        }
    }
}

/// Members that a connection adds to the `_meta` of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestMeta<'a> {
    /// True to request progress notifications, with the request's ID as the token.
    pub(super) progress: bool,
    /// Minimum level of log messages, in versions where the request has to state it.
    pub(super) log_level: Option<&'static str>,
    /// JSON object members that describe the client, or an empty string.
    pub(super) introduction: &'a str,
}

impl Params {
    /// Creates empty parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member.
    #[must_use]
    pub fn with(self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = to_raw_value(&value.into()).unwrap_or_else(|_| RawValue::NULL.to_owned());
        self.raw(name, value)
    }

    /// Adds a member from raw JSON text.
    #[must_use]
    pub fn raw(mut self, name: &'static str, value: Box<RawValue>) -> Self {
        self.members.push((name, Text::Own(value)));
        self
    }

    /// Adds a member whose JSON text many requests share.
    #[must_use]
    pub fn shared(mut self, name: &'static str, value: Arc<str>) -> Self {
        self.members.push((name, Text::Shared(value)));
        self
    }

    /// Adds a member from a string that is known to be valid JSON.
    #[must_use]
    pub fn checked(mut self, name: &'static str, value: String) -> Self {
        self.members.push((name, Text::Checked(value)));
        self
    }

    /// Adds a member to `_meta`. Over Streamable HTTP, headers mirror `traceparent` and `tracestate`.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Mirrors an argument in a header, for intermediaries: `Mcp-Param-...`, where the tool's schema requests it with
    /// `x-mcp-header`. The header is sent only over HTTP in 2026-07-28 (MH-10).
    #[must_use]
    pub fn mirror(mut self, header: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    /// Mirrors the arguments of a tool in headers as its schema requests. Missing arguments are not mirrored (MH-11).
    #[must_use]
    pub fn mirror_all(mut self, parameters: &[HeaderParameter], arguments: &Value) -> Self {
        for parameter in parameters {
            let mut found = Some(arguments);
            for step in &parameter.path {
                found = found.and_then(|found| found.get(step));
            }
            let text = match found {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                _ => continue,
            };
            self = self.mirror(parameter.header.clone(), text);
        }
        self
    }

    /// Returns the value of a string member, for the header that mirrors it.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let (_, value) = self.members.iter().find(|(key, _)| *key == name)?;
        serde_json::from_str(value.get()).ok()
    }

    fn write(&self, id: u64, extra: &RequestMeta<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        let mut member = |out: &mut Vec<u8>, name: &str, text: &str| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(text.as_bytes());
        };
        for (name, value) in &self.members {
            member(out, name, value.get());
        }
        let has_extra =
            extra.progress || extra.log_level.is_some() || !extra.introduction.is_empty();
        if self.meta.is_empty() && !has_extra {
            out.push(b'}');
            return;
        }
        member(out, "_meta", "{");
        let mut first = true;
        let mut comma = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
        };
        if !self.meta.is_empty()
            && let Ok(meta) = serde_json::to_string(&self.meta)
        {
            comma(out);
            out.extend_from_slice(&meta.as_bytes()[1..meta.len() - 1]);
        }
        if extra.progress {
            comma(out);
            out.extend_from_slice(b"\"progressToken\":");
            number(id, out);
        }
        if let Some(level) = extra.log_level {
            comma(out);
            out.extend_from_slice(b"\"io.modelcontextprotocol/logLevel\":\"");
            out.extend_from_slice(level.as_bytes());
            out.push(b'"');
        }
        if !extra.introduction.is_empty() {
            comma(out);
            out.extend_from_slice(extra.introduction.as_bytes());
        }
        out.extend_from_slice(b"}}");
    }

    /// Estimates the encoded length in bytes.
    fn length(&self, extra: &RequestMeta<'_>) -> usize {
        let members = self.members.iter();
        let members: usize = members
            .map(|(key, text)| key.len() + text.get().len())
            .sum();
        members + extra.introduction.len() + 256
    }
}

/// Error codes of JSON-RPC.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// Error codes that only servers of 2026-07-28 send.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// JSON-RPC error of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// Error code of JSON-RPC, of the protocol, or of the server.
    pub code: i64,
    /// Error message.
    #[serde(default)]
    pub message: String,
    /// Additional data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// HTTP status of the response that carried the error, if not a success.
    #[serde(skip)]
    pub(crate) status: Option<u16>,
}

impl RpcError {
    /// Creates an error.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            status: None,
        }
    }
}

/// A message from a server.
#[derive(Debug)]
pub(super) enum Incoming {
    Answer {
        /// `None` if the server could not determine the request's ID.
        id: Option<u64>,
        /// False without the member `jsonrpc`, which some servers leave out.
        is_json_rpc: bool,
        outcome: Result<Box<RawValue>, RpcError>,
    },
    Question {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notice {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

/// Maximum number of messages in a batch.
const BATCH_MAX: usize = 1000;

/// Reads a message or a batch. Invalid UTF-8 and unpaired surrogates become U+FFFD.
pub(super) fn read(text: &[u8]) -> Result<Vec<Incoming>, serde_json::Error> {
    let text = String::from_utf8_lossy(text);
    let text = &*paired(text.as_bytes());
    if text.trim_ascii_start().first() == Some(&b'[') {
        let envelopes: Vec<Envelope<'_>> = serde_json::from_slice(text)?;
        if BATCH_MAX < envelopes.len() {
            return Err(serde_json::Error::custom("too many messages in one batch"));
        }
        return envelopes.into_iter().map(Envelope::sort).collect();
    }
    let envelope: Envelope<'_> = serde_json::from_slice(text)?;
    Ok(vec![envelope.sort()?])
}

impl Envelope<'_> {
    fn sort(self) -> Result<Incoming, serde_json::Error> {
        let id = self.id.filter(|id| id.get() != "null");
        let is_json_rpc = self.jsonrpc.is_some();
        match (self.method, self.result, self.error, id) {
            (Some(method), None, None, Some(id)) => Ok(Incoming::Question {
                id: id.to_owned(),
                method,
                params: self.params,
            }),
            (Some(method), None, None, None) => Ok(Incoming::Notice {
                method,
                params: self.params,
            }),
            (None, Some(result), None, Some(id)) => Ok(Incoming::Answer {
                id: own_id(id),
                is_json_rpc,
                outcome: Ok(result),
            }),
            (None, None, Some(error), id) => Ok(Incoming::Answer {
                id: id.and_then(own_id),
                is_json_rpc,
                outcome: Err(rpc_error(error)),
            }),
            // A request with this ID is waiting, and there will be no other response.
            (None, result, _, Some(id)) if is_json_rpc && own_id(id).is_some() => {
                let problem = match result {
                    Some(_) => "its response has a result and an error",
                    None => "its response has neither a result nor an error",
                };
                Ok(Incoming::Answer {
                    id: own_id(id),
                    is_json_rpc,
                    outcome: Err(RpcError::new(INTERNAL_ERROR, problem)),
                })
            }
            _ => Err(serde_json::Error::custom("no JSON-RPC message")),
        }
    }
}

/// Parses an error, even if it is malformed.
fn rpc_error(error: &RawValue) -> RpcError {
    serde_json::from_str(error.get()).unwrap_or_else(|_| {
        let said = beginning(error.get().trim_matches('"').as_bytes());
        RpcError::new(INTERNAL_ERROR, said)
    })
}

/// Parses an ID of this client. IDs are numbers, but some servers return them as strings, or with a fraction.
fn own_id(id: &RawValue) -> Option<u64> {
    whole(id.get().trim_matches('"'))
}

pub(super) fn request(id: u64, method: &str, params: &Params) -> Vec<u8> {
    request_with(id, method, params, &RequestMeta::default())
}

pub(super) fn request_with(
    id: u64,
    method: &str,
    params: &Params,
    extra: &RequestMeta<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.length(extra));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    number(id, &mut out);
    out.extend_from_slice(br#","method":""#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    params.write(id, extra, &mut out);
    out.push(b'}');
    out
}

fn number(number: u64, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{number}");
}

pub(super) fn notification(method: &str, params: &Params) -> Vec<u8> {
    let mut out = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":"#).into_bytes();
    params.write(0, &RequestMeta::default(), &mut out);
    out.push(b'}');
    out
}

/// Encodes the response to a client request.
pub(super) fn response(id: &RawValue, outcome: &Result<Value, RpcError>) -> Vec<u8> {
    let (key, value) = match outcome {
        Ok(value) => ("result", serde_json::to_string(value)),
        Err(error) => ("error", serde_json::to_string(error)),
    };
    let value = value.unwrap_or_else(|_| "null".to_owned());
    format!(r#"{{"jsonrpc":"2.0","id":{},"{key}":{value}}}"#, id.get()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    #[test]
    fn requests_keep_the_text_of_their_arguments() {
        let arguments =
            RawValue::from_string(r#"{"big": 123456789012345678901234567890}"#.into()).unwrap();
        let params = Params::new()
            .with("name", "a\"b")
            .raw("arguments", arguments)
            .meta("progressToken", 7);
        assert_eq!(
            text(request(7, "tools/call", &params)),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a\"b","arguments":{"big": 123456789012345678901234567890},"_meta":{"progressToken":7}}}"#
        );
        assert_eq!(
            text(notification("notifications/initialized", &Params::new())),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#
        );
        assert_eq!(params.text("name").as_deref(), Some("a\"b"));
    }

    #[test]
    fn what_a_connection_adds_stands_beside_what_a_request_says() {
        let said = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let extra = RequestMeta {
            progress: true,
            log_level: Some("warning"),
            introduction: said,
        };
        let params = Params::new().shared("name", "\"a\"".into()).meta("x", 1);
        let params = params.checked("arguments", "{}".to_owned());
        assert_eq!(
            text(request_with(7, "tools/call", &params, &extra)),
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a","arguments":{{}},"_meta":{{"x":1,"progressToken":7,"io.modelcontextprotocol/logLevel":"warning",{said}}}}}}}"#
            )
        );
        let extra = RequestMeta {
            introduction: said,
            ..RequestMeta::default()
        };
        assert_eq!(
            text(request_with(1, "x", &Params::new(), &extra)),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{{said}}}}}}}"#)
        );
    }

    #[test]
    fn messages_are_told_apart() {
        let read = |value: Value| read(value.to_string().as_bytes()).map(|mut all| all.remove(0));
        assert!(matches!(
            read(json!({"jsonrpc": "2.0", "id": 3, "result": {}})),
            Ok(Incoming::Answer {
                id: Some(3),
                is_json_rpc: true,
                outcome: Ok(_)
            })
        ));
        assert!(matches!(
            read(json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "no"}})),
            Ok(Incoming::Answer {
                id: None,
                is_json_rpc: true,
                outcome: Err(RpcError { code: -32700, .. })
            })
        ));
        assert!(matches!(
            read(json!({"error": "Not Found"})),
            Ok(Incoming::Answer {
                id: None,
                is_json_rpc: false,
                outcome: Err(RpcError {
                    code: INTERNAL_ERROR,
                    ..
                })
            })
        ));
        assert!(matches!(
            read(json!({"jsonrpc": "2.0", "id": "x", "method": "ping"})),
            Ok(Incoming::Question { .. })
        ));
        assert!(matches!(
            read(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})),
            Ok(Incoming::Notice { .. })
        ));
        for (wrong, problem) in [
            (json!({"jsonrpc": "2.0", "id": 1}), "neither"),
            (
                json!({"jsonrpc": "2.0", "id": 1, "result": 1, "error": {"code": 1}}),
                "and an error",
            ),
            (
                json!({"jsonrpc": "2.0", "id": 1, "error": "it is late"}),
                "it is late",
            ),
        ] {
            let Ok(Incoming::Answer {
                id: Some(1),
                outcome: Err(error),
                ..
            }) = read(wrong.clone())
            else {
                panic!("{wrong}");
            };
            assert!(error.message.contains(problem), "{wrong}: {error}");
        }
        for written in ["3", "3.0", "\"3\""] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{written},"result":{{}}}}"#);
            let answer = super::read(text.as_bytes()).map(|mut all| all.remove(0));
            assert!(
                matches!(answer, Ok(Incoming::Answer { id: Some(3), .. })),
                "{written}"
            );
        }
        let cut = br#"{"jsonrpc":"2.0","id":1,"result":{"text":"a\ud83d"}}"#;
        let answer = super::read(cut).map(|mut all| all.remove(0));
        let Ok(Incoming::Answer {
            outcome: Ok(result),
            ..
        }) = answer
        else {
            panic!("a result");
        };
        assert_eq!(result.get(), r#"{"text":"a\ufffd"}"#);
        let latin = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xe9\"}";
        assert!(super::read(latin).is_ok());
        for none in [
            json!({}),
            json!({"id": 1}),
            json!({"id": 1, "result": 1, "error": {"code": 1}}),
            json!(5),
        ] {
            assert!(read(none.clone()).is_err(), "{none}");
        }
        assert!(
            super::read(b"[{\"method\":\"a\"},{\"method\":\"b\"}]").is_ok_and(|all| all.len() == 2)
        );
    }

    #[test]
    fn answers_carry_the_servers_own_id() {
        let id = RawValue::from_string("\"q-1\"".into()).unwrap();
        assert_eq!(
            text(response(&id, &Ok(json!({})))),
            r#"{"jsonrpc":"2.0","id":"q-1","result":{}}"#
        );
        assert_eq!(
            text(response(&id, &Err(RpcError::new(-32601, "no")))),
            r#"{"jsonrpc":"2.0","id":"q-1","error":{"code":-32601,"message":"no"}}"#
        );
    }
}
