//! The messages of each workload.

use std::sync::LazyLock;

use super::Workload;
use crate::target::Target;
use crate::wire::Post;

/// The message that `call` sends.
pub(crate) const ECHO: &str = "hello";

/// The message that `echo-64k` sends: words without anything that JSON escapes.
pub(crate) static ECHO_64K: LazyLock<String> = LazyLock::new(|| {
    let mut message =
        "the quick brown fox jumps over the lazy dog and comes back again; ".repeat(1000);
    message.truncate(64 << 10);
    message
});

/// Headers that put a request into a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Session ID from the response to `initialize` (`Mcp-Session-Id`); `None` if the server has no sessions.
    pub(crate) id: Option<String>,
    /// The protocol version that the server has chosen, if that is another than the requested one.
    pub(crate) version: Option<String>,
}

/// The request that `workload` sends all the time.
pub(crate) fn post(
    workload: Workload,
    target: &Target,
    id: u32,
    session: Option<&Session>,
) -> Post {
    let (method, name, params) = match workload {
        Workload::Call => ("tools/call", None, echo(ECHO, "")),
        Workload::Echo64k => ("tools/call", None, echo(&ECHO_64K, "")),
        Workload::CallStateless => ("tools/call", Some("echo"), echo(ECHO, &format!(",{META}"))),
        Workload::List50 | Workload::List500 | Workload::ListRole => {
            ("tools/list", None, "{}".to_owned())
        }
        Workload::Ping => {
            return in_session(
                target,
                session,
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#),
            );
        }
        Workload::Discover => ("server/discover", None, format!("{{{META}}}")),
        Workload::Initialize => return initialize(target, id),
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    if workload.has_session() {
        return in_session(target, session, body);
    }
    let mut headers = vec![
        ("mcp-protocol-version", STATELESS.to_owned()),
        ("mcp-method", method.to_owned()),
    ];
    headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
    plain(target, headers, body)
}

/// Opens a session.
pub(crate) fn initialize(target: &Target, id: u32) -> Post {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{HANDSHAKE}","capabilities":{{}},"clientInfo":{CLIENT}}}}}"#
    );
    plain(target, Vec::new(), body)
}

/// Tells the server that the session is open.
pub(crate) fn initialized(target: &Target, session: &Session) -> Post {
    in_session(
        target,
        Some(session),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
    )
}

/// The revision that sessions speak.
pub(crate) const HANDSHAKE: &str = "2025-06-18";

const STATELESS: &str = "2026-07-28";

const CLIENT: &str = r#"{"name":"longshore-loadtest","version":"0.1.0"}"#;

const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"longshore-loadtest","version":"0.1.0"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#
);

fn echo(message: &str, more: &str) -> String {
    format!(r#"{{"name":"echo","arguments":{{"message":"{message}"}}{more}}}"#)
}

fn in_session(target: &Target, session: Option<&Session>, body: String) -> Post {
    let version = session.and_then(|session| session.version.clone());
    let version = version.unwrap_or_else(|| HANDSHAKE.to_owned());
    let mut headers = vec![("mcp-protocol-version", version)];
    headers.extend(
        session
            .and_then(|session| session.id.clone())
            .map(|id| ("mcp-session-id", id)),
    );
    plain(target, headers, body)
}

fn plain(target: &Target, headers: Vec<(&'static str, String)>, body: String) -> Post {
    Post {
        address: target.address,
        path: target.path.clone(),
        headers,
        body,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use serde_json::Value;

    use super::*;

    fn target() -> Target {
        "http://127.0.0.1:3000/mcp".parse().expect("a loopback URL")
    }

    #[test]
    fn every_body_is_json_with_the_id_and_its_headers_mirror_it() {
        for &workload in Workload::value_variants() {
            let session = workload.has_session().then(|| Session {
                id: Some("sealed".to_owned()),
                ..Session::default()
            });
            let post = post(workload, &target(), 1001, session.as_ref());
            let body: Value = serde_json::from_str(&post.body).expect("JSON");
            let header = |name| {
                post.headers
                    .iter()
                    .find(|(found, _)| *found == name)
                    .map(|(_, value)| value.as_str())
            };

            assert_eq!(body["id"], 1001, "{workload:?}");
            assert_eq!(
                header("mcp-session-id"),
                workload.has_session().then_some("sealed"),
                "{workload:?}"
            );
            if let Some(method) = header("mcp-method") {
                assert_eq!(body["method"], method);
                assert_eq!(
                    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
                    header("mcp-protocol-version").unwrap_or("")
                );
                assert_eq!(
                    body["params"]["name"].as_str(),
                    header("mcp-name"),
                    "{workload:?}"
                );
            }
        }
    }

    #[test]
    fn the_long_message_is_64_kib_without_escapes() {
        assert_eq!(ECHO_64K.len(), 65_536);
        assert!(
            ECHO_64K
                .bytes()
                .all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\')
        );
    }

    #[test]
    fn a_call_is_written_as_http_1() {
        let session = Session {
            id: Some("s".to_owned()),
            ..Session::default()
        };
        let bytes = post(Workload::Call, &target(), 7, Some(&session)).to_http1();
        let expected = concat!(
            "POST /mcp HTTP/1.1\r\n",
            "host: 127.0.0.1:3000\r\n",
            "content-type: application/json\r\n",
            "accept: application/json, text/event-stream\r\n",
            "mcp-protocol-version: 2025-06-18\r\n",
            "mcp-session-id: s\r\n",
            "content-length: 103\r\n",
            "\r\n",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#,
        );
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }
}
