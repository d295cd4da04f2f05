//! Requests that no good client sends: tables of them, and what each gets. Every case is one exchange over a socket: a
//! status, a code, the id that is echoed, and whether the connection may go on, which the next request on it shows.
//!
//! A case is named by what it is; both lifecycles are asked wherever both have an opinion.

mod arrays;
mod bounds;
mod documents;
mod envelopes;
mod forged;
mod framing;
mod headers;
mod http2;
mod messages;
mod params;
mod repeated;
mod sessions;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use longshore::tool;
use serde_json::{Value, json};

use crate::support::{Running, Serve, Stateless, post, request};

/// Timeout of an expected response.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the message it was given.
#[tool]
async fn say(message: String) -> String {
    message
}

/// Takes anything.
#[tool]
async fn anything(v: Value) -> String {
    v.to_string().chars().take(40).collect()
}

/// Takes numbers of a few kinds.
#[tool]
async fn numbers(small: u8, wide: Option<i64>, real: Option<f64>) -> String {
    format!("{small} {wide:?} {real:?}")
}

/// The JSON-RPC code of an invalid request.
const INVALID: i64 = -32600;

fn server() -> Running {
    serve().start()
}

fn serve() -> Serve {
    Serve::new()
        .tool(say)
        .tool(anything)
        .tool(numbers)
        .toolset("demo")
}

/// A request and its expected response.
struct Case {
    name: String,
    bytes: Vec<u8>,
    statuses: Vec<u16>,
    /// The code of the error; `None` for a result, or for no body.
    code: Option<i64>,
    /// JSON text of the id; empty for none.
    id: String,
    /// True if the response is a JSON-RPC document.
    speaks_rpc: bool,
    closes: bool,
    /// True if the client closes its half of the connection after the request.
    finished: bool,
    /// The state of the connection is not checked.
    abandoned: bool,
}

impl Case {
    fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
            statuses: vec![200],
            code: None,
            id: "1".to_owned(),
            speaks_rpc: true,
            closes: false,
            finished: false,
            abandoned: false,
        }
    }

    /// An error, and the id of the request that it answers.
    fn error(mut self, status: u16, code: i64, id: &str) -> Self {
        self.statuses = vec![status];
        self.code = Some(code);
        id.clone_into(&mut self.id);
        self
    }

    /// A result for the request of an id.
    fn result(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// Sets the allowed status codes.
    fn status(mut self, statuses: &[u16]) -> Self {
        self.statuses = statuses.to_vec();
        self.speaks_rpc = false;
        self
    }

    /// The connection ends with the answer.
    fn closes(mut self) -> Self {
        self.closes = true;
        self
    }

    /// The connection may go on or end.
    fn abandoned(mut self) -> Self {
        self.abandoned = true;
        self
    }

    /// No bytes follow.
    fn finished(mut self) -> Self {
        self.finished = true;
        self
    }

    /// Checks a response.
    fn judge(&self, answer: &Answer) -> Result<(), String> {
        if !self.statuses.contains(&answer.status) {
            return Err(format!("status {}, not {:?}", answer.status, self.statuses));
        }
        if !self.speaks_rpc {
            return Ok(());
        }
        let body: Value =
            serde_json::from_slice(&answer.body).map_err(|e| format!("no JSON: {e}"))?;
        let code = body["error"]["code"].as_i64();
        if code != self.code {
            return Err(format!("code {code:?}, not {:?}", self.code));
        }
        if body["jsonrpc"] != "2.0" || body.get("error").is_some() == body.get("result").is_some() {
            return Err("no response of JSON-RPC".to_owned());
        }
        if self.code.is_some() && !body["error"]["message"].is_string() {
            return Err("an error without a message".to_owned());
        }
        let text = String::from_utf8_lossy(&answer.body);
        let echoed = match &*self.id {
            "" => body.get("id").is_none(),
            id => text.contains(&format!(r#""id":{id},"#)),
        };
        if !echoed {
            return Err(format!("the id is not {:?}", self.id));
        }
        Ok(())
    }
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

/// A connection, read without trust.
struct Wire(TcpStream, Vec<u8>);

impl Wire {
    fn open(server: &Running) -> Self {
        let stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self(stream, Vec::new())
    }

    fn exchange(&mut self, case: &Case) -> Result<Answer, String> {
        // The server may have answered and closed before it was all sent.
        let _ = self.0.write_all(&case.bytes);
        if case.finished {
            let _ = self.0.shutdown(Shutdown::Write);
        }
        loop {
            let answer = self.answer()?;
            if answer.status != 100 {
                return Ok(answer);
            }
        }
    }

    fn answer(&mut self) -> Result<Answer, String> {
        let head = loop {
            match self.1.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(end) => break self.1.drain(..end + 4).collect::<Vec<_>>(),
                None => self.more()?,
            }
        };
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head
            .get(9..12)
            .and_then(|s| s.parse().ok())
            .ok_or_else(|| format!("no status: {head:?}"))?;
        let field = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(": ")
                    .map(str::to_owned)
            })
        };
        let length: usize = match field("content-length") {
            Some(length) => length.parse().map_err(|_| "no length".to_owned())?,
            None if field("transfer-encoding").is_some() => {
                while !self.1.ends_with(b"0\r\n\r\n") {
                    self.more()?;
                }
                self.1.len()
            }
            None => 0,
        };
        while self.1.len() < length {
            self.more()?;
        }
        let body = self.1.drain(..length).collect();
        Ok(Answer { status, body })
    }

    fn more(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16 * 1024];
        match self.0.read(&mut buffer) {
            Ok(0) => Err("closed without an answer".to_owned()),
            Ok(n) => {
                self.1.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(e) => Err(format!("no answer: {e}")),
        }
    }

    /// Checks that the server closes the connection without further data.
    fn ends(&mut self) -> Result<(), String> {
        match self.more() {
            Err(reason) if reason.starts_with("closed") || reason.contains("reset") => Ok(()),
            Err(_) => Err("not closed".to_owned()),
            Ok(()) => Err(format!("goes on: {}", self.1.escape_ascii())),
        }
    }
}

/// Runs all cases, and reports all that went wrong at once. Returns how many there were.
fn run(cases: impl IntoIterator<Item = Case>) -> usize {
    run_on(&server(), cases)
}

fn run_on(server: &Running, cases: impl IntoIterator<Item = Case>) -> usize {
    let good = Case::new(
        "good",
        Lifecycle::Stateless.call("say", r#"{"message":"still here"}"#),
    );
    let mut kept: Option<Wire> = None;
    let (mut failures, mut failed, mut all) = (String::new(), 0, 0);
    for case in cases {
        all += 1;
        let mut wire = kept.take().unwrap_or_else(|| Wire::open(server));
        let judged = wire.exchange(&case).and_then(|answer| {
            case.judge(&answer).map_err(|reason| {
                let body = String::from_utf8_lossy(&answer.body);
                let body: String = body.chars().take(300).collect();
                format!("{reason}; {} {body}", answer.status)
            })?;
            if case.abandoned {
                return Ok(());
            }
            if case.closes || case.finished {
                return if case.closes { wire.ends() } else { Ok(()) };
            }
            let next = wire
                .exchange(&good)
                .map_err(|reason| format!("the connection does not go on: {reason}"))?;
            good.judge(&next)
                .map_err(|reason| format!("the next request: {reason}"))?;
            kept = Some(wire);
            Ok(())
        });
        if let Err(reason) = judged {
            failed += 1;
            let _ = writeln!(failures, "- {}: {reason}", case.name);
            kept = None;
        }
    }
    assert!(failed == 0, "{failed} of {all} cases failed\n{failures}");
    all
}

/// The two ways to say who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    /// A session of this revision; see [`Sessions`].
    Handshake(&'static str),
    Stateless,
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

impl Lifecycle {
    /// A call of the stateless lifecycle, with arguments as JSON text.
    fn call(self, tool: &str, arguments: &str) -> Vec<u8> {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments},{META}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        stateless("tools/call", Some(tool), body)
    }
}

/// A body whose members are given, with `params` as the lifecycle needs them unless they are among those.
fn body(lifecycle: Lifecycle, members: &str) -> String {
    if members.contains("\"params\"") {
        format!("{{{members}}}")
    } else if lifecycle.is_stateless() {
        format!("{{{members},\"params\":{{{META}}}}}")
    } else {
        format!("{{{members}}}")
    }
}

/// A POST of the stateless lifecycle with any body.
fn stateless(method: &str, name: Option<&str>, body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    headers.extend(name.map(|name| ("mcp-name", name)));
    bytes(&headers, body)
}

/// A POST with any body.
fn bytes(headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = post(headers, "");
    let head = head
        .strip_suffix("content-length: 0\r\n\r\n")
        .expect("ends in its length");
    let mut bytes = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// One session of each protocol version that has them.
struct Sessions(Vec<(&'static str, String)>);

impl Sessions {
    fn of(server: &Running) -> Self {
        let revisions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
        let begin = |revision| (revision, server.session(revision).id.clone());
        Self(revisions.map(begin).into())
    }

    /// A POST in a lifecycle. The stateless one mirrors what the body says.
    fn post(
        &self,
        lifecycle: Lifecycle,
        method: &str,
        name: Option<&str>,
        body: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        match lifecycle {
            Lifecycle::Stateless => stateless(method, name, body),
            Lifecycle::Handshake(revision) => {
                let (_, id) = self
                    .0
                    .iter()
                    .find(|(r, _)| *r == revision)
                    .expect("a revision with sessions");
                bytes(&[("mcp-session-id", id)], body)
            }
        }
    }
}

/// The newest of each kind, for what does not differ within a lifecycle.
const ERAS: [Lifecycle; 2] = [Lifecycle::Handshake("2025-11-25"), Lifecycle::Stateless];

impl Lifecycle {
    fn is_stateless(self) -> bool {
        self == Self::Stateless
    }

    /// `_meta` as a member with a comma in front, where the lifecycle needs it.
    fn meta(self) -> String {
        match self {
            Self::Stateless => format!(",{META}"),
            Self::Handshake(_) => String::new(),
        }
    }
}

#[test]
fn a_good_call_passes_and_a_bad_verdict_is_noticed() {
    let case = || {
        Case::new(
            "good",
            Lifecycle::Stateless.call("say", r#"{"message":"hi"}"#),
        )
    };
    assert_eq!(run([case(), case().result("1")]), 2);
    let server = server();
    for wrong in [
        case().error(400, -32600, "1"),
        case().result("2"),
        case().closes(),
        case().status(&[404]),
    ] {
        let mut wire = Wire::open(&server);
        wire.0
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a socket");
        let answer = wire.exchange(&wrong).expect("an answer");
        assert!(wrong.judge(&answer).is_err() || wrong.closes && wire.ends().is_err());
    }
    // The helpers send the same messages as the other tests.
    let call = Stateless::call("say", json!({"message": "hi"}));
    assert_eq!(call.send(&server).status, 200);
    assert!(request("ping", &json!({})).contains("ping"));
}
