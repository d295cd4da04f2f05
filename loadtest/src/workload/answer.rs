//! Validation of responses.
//!
//! A response is parsed as JSON once; identical bytes are then only compared. Every response is thus checked at
//! almost no cost.

use serde_json::Value;

use super::Workload;
use super::request::{ECHO, ECHO_64K, HANDSHAKE};
use crate::wire::Answer;

/// Reason why a response is not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongAnswer {
    #[error("status {status}, with the body {body:?}")]
    Status { status: u16, body: String },
    #[error("the body is not JSON: {body:?}")]
    NotJson { body: String },
    #[error("{what}: {body:?}")]
    Content { what: &'static str, body: String },
    #[error("{found} bytes instead of {expected}")]
    Length { expected: usize, found: usize },
}

/// Checks the answers to one request.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    rule: Rule,
    right: Vec<u8>,
    skipped: u32,
}

#[derive(Clone, Debug)]
enum Rule {
    /// A JSON-RPC answer to `workload` with this id.
    Message { workload: Workload, id: u32 },
    /// Any body of this length, as a baseline returns it.
    Length(usize),
}

impl Check {
    /// Expects a JSON-RPC result of `workload`, and the same `id` back.
    pub(crate) fn message(workload: Workload, id: u32) -> Self {
        Self {
            rule: Rule::Message { workload, id },
            right: Vec::new(),
            skipped: 0,
        }
    }

    /// Expects a body of `length` bytes.
    pub(crate) fn length(length: usize) -> Self {
        Self {
            rule: Rule::Length(length),
            right: Vec::new(),
            skipped: 0,
        }
    }

    /// Returns `Ok` if the response is valid.
    pub(crate) fn check(&mut self, answer: &Answer<'_>) -> Result<(), WrongAnswer> {
        if answer.status != 200 {
            return Err(WrongAnswer::Status {
                status: answer.status,
                body: shown(answer.body),
            });
        }
        match self.rule {
            Rule::Length(expected) if answer.body.len() == expected => Ok(()),
            Rule::Length(expected) => Err(WrongAnswer::Length {
                expected,
                found: answer.body.len(),
            }),
            Rule::Message { workload, id } => {
                if self.is_known(answer.body) {
                    return Ok(());
                }
                read(workload, id, answer.body)?;
                self.right.clear();
                self.right.extend_from_slice(answer.body);
                Ok(())
            }
        }
    }

    /// Returns true if the body equals the one that was parsed before. Of long ones, the ends are compared, and every
    /// [`FULL_EVERY`]th time all of it.
    fn is_known(&mut self, body: &[u8]) -> bool {
        if body.len() != self.right.len() {
            return false;
        }
        if body.len() <= LONG || self.skipped == FULL_EVERY {
            self.skipped = 0;
            return body == self.right;
        }
        self.skipped += 1;
        let tail = body.len() - LONG / 2;
        body[..LONG / 2] == self.right[..LONG / 2] && body[tail..] == self.right[tail..]
    }
}

const LONG: usize = 4096;
const FULL_EVERY: u32 = 16;

fn read(workload: Workload, id: u32, body: &[u8]) -> Result<(), WrongAnswer> {
    let wrong = |what| {
        Err(WrongAnswer::Content {
            what,
            body: shown(body),
        })
    };
    let Ok(message) = serde_json::from_slice::<Value>(data_of(body)) else {
        return Err(WrongAnswer::NotJson { body: shown(body) });
    };
    if message["jsonrpc"] != "2.0" {
        return wrong("not a JSON-RPC message");
    }
    if message["id"] != id {
        return wrong("the id is not the one of the request");
    }
    let Some(result) = message["result"].as_object() else {
        return wrong("no result");
    };
    let text = || message["result"]["content"][0]["text"].as_str();
    match workload {
        Workload::Call | Workload::CallStateless | Workload::Echo64k
            if result.get("isError") == Some(&Value::Bool(true)) =>
        {
            wrong("the tool failed")
        }
        Workload::Call | Workload::CallStateless if text() != Some(ECHO) => {
            wrong("not the text that was sent")
        }
        Workload::Echo64k if text() != Some(&ECHO_64K) => wrong("not the text that was sent"),
        Workload::List50 | Workload::List500 | Workload::ListRole
            if message["result"]["tools"].as_array().map(Vec::len) != workload.tools() =>
        {
            wrong("not as many tools as asked for, or only a page of them")
        }
        Workload::Discover if !message["result"]["supportedVersions"].is_array() => {
            wrong("no supported versions")
        }
        Workload::Initialize if message["result"]["protocolVersion"] != HANDSHAKE => {
            wrong("another protocol version")
        }
        _ => Ok(()),
    }
}

/// The protocol version that a server has chosen in response to `initialize`, if that is another than the requested one.
pub(crate) fn other_version(body: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(data_of(body)).ok()?;
    let version = message["result"]["protocolVersion"].as_str()?;
    (version != HANDSHAKE).then(|| version.to_owned())
}

/// The last message of an event stream; of JSON, all of it. Other servers respond to calls with either.
fn data_of(body: &[u8]) -> &[u8] {
    let is_stream = [&b"event:"[..], b"data:", b"id:", b"retry:", b":"];
    if !is_stream.iter().any(|begin| body.starts_with(begin)) {
        return body;
    }
    let lines = body.rsplit(|byte| *byte == b'\n');
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let data = data.find(|data| !data.trim_ascii().is_empty());
    data.unwrap_or_default().trim_ascii()
}

/// The beginning of a body, for people.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(300)]);
    if body.len() > 300 {
        format!("{text}…")
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(workload: Workload, status: u16, body: &str) -> Result<(), WrongAnswer> {
        Check::message(workload, 7).check(&Answer {
            status,
            session: None,
            body: body.as_bytes(),
        })
    }

    #[test]
    fn right_answers_pass() {
        let cases = [
            (
                Workload::Call,
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hello"}],"isError":false}}"#,
            ),
            (
                Workload::CallStateless,
                r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[{"type":"text","text":"hello"}]}}"#,
            ),
            (Workload::Ping, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
            (
                Workload::Ping,
                "id: 1\nretry: 3000\ndata:\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n",
            ),
            (
                Workload::Discover,
                r#"{"jsonrpc":"2.0","id":7,"result":{"supportedVersions":["2026-07-28"]}}"#,
            ),
            (
                Workload::Initialize,
                r#"{"jsonrpc":"2.0","id":7,"result":{"protocolVersion":"2025-06-18"}}"#,
            ),
        ];
        for (workload, body) in cases {
            assert_eq!(verdict(workload, 200, body), Ok(()), "{body}");
        }
    }

    #[test]
    fn wrong_answers_never_pass() {
        let cases = [
            (
                Workload::Ping,
                500,
                r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
                "status 500",
            ),
            (Workload::Ping, 200, "data: {", "the body is not JSON"),
            (
                Workload::Ping,
                200,
                r#"{"id":7,"result":{}}"#,
                "not a JSON-RPC message",
            ),
            (
                Workload::Ping,
                200,
                r#"{"jsonrpc":"2.0","id":"7","result":{}}"#,
                "the id is not",
            ),
            (
                Workload::Ping,
                200,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601}}"#,
                "no result",
            ),
            (
                Workload::Call,
                200,
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"hello"}],"isError":true}}"#,
                "the tool failed",
            ),
            (
                Workload::Call,
                200,
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"hell"}]}}"#,
                "not the text",
            ),
            (
                Workload::List50,
                200,
                r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{}]}}"#,
                "not as many tools",
            ),
            (
                Workload::Initialize,
                200,
                r#"{"jsonrpc":"2.0","id":7,"result":{"protocolVersion":"2024-11-05"}}"#,
                "another protocol version",
            ),
        ];
        for (workload, status, body, reason) in cases {
            let error = verdict(workload, status, body).expect_err(body);
            assert!(error.to_string().starts_with(reason), "{body}: {error}");
        }
    }

    #[test]
    fn an_answer_that_changes_is_read_again() {
        let mut check = Check::message(Workload::Ping, 7);
        let mut verdict = |body: &str| {
            check
                .check(&Answer {
                    status: 200,
                    session: None,
                    body: body.as_bytes(),
                })
                .is_ok()
        };
        assert!(verdict(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
        assert!(verdict(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
        assert!(!verdict(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#));
        assert!(verdict(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#));
    }

    #[test]
    fn a_change_within_a_long_answer_is_seen_within_some_requests() {
        let long = |middle: &str| {
            let filler = "x".repeat(5000);
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{filler}"{middle}"b":"{filler}"}}}}"#
            )
        };
        let mut check = Check::message(Workload::Ping, 7);
        let mut verdict = |body: &str| {
            check
                .check(&Answer {
                    status: 200,
                    session: None,
                    body: body.as_bytes(),
                })
                .is_ok()
        };
        assert!(verdict(&long(",")));
        assert!((0..100).all(|_| verdict(&long(","))));
        assert!((0..=FULL_EVERY).any(|_| !verdict(&long(";"))));
    }

    #[test]
    fn a_baseline_is_checked_by_length() {
        let mut check = Check::length(3);
        assert_eq!(
            check.check(&Answer {
                status: 200,
                session: None,
                body: b"xxx"
            }),
            Ok(())
        );
        assert_eq!(
            check.check(&Answer {
                status: 200,
                session: None,
                body: b"xx"
            }),
            Err(WrongAnswer::Length {
                expected: 3,
                found: 2
            })
        );
    }
}
