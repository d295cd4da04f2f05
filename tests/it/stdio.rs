//! The program over standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

use crate::support::{Conversation, KillOnDrop, longshore, meta, request};
use crate::upstream::late;

/// The program, as a client starts it.
struct Program {
    child: KillOnDrop,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Requests, for checking the responses.
    conversation: Conversation,
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

impl Program {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = longshore(&["run", "--transport", "stdio"], environment)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("is piped"));
        Self {
            child: KillOnDrop(child),
            input,
            output,
            conversation: Conversation::default(),
        }
    }

    fn demo() -> Self {
        Self::start(&[], &[])
    }

    /// Writes bytes as they are.
    fn write(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let input = self.input.as_mut().expect("is open");
        input.write_all(bytes.as_ref()).expect("the program reads");
        self
    }

    /// Writes a line.
    fn send(&mut self, line: &str) -> &mut Self {
        if let Ok(message) = serde_json::from_str(line) {
            self.conversation.sent(&message, None);
        }
        self.write(format!("{line}\n"))
    }

    /// Reads a line, which is one message.
    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        assert!(line.ends_with('\n'), "the output ended after {line:?}");
        let message = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        self.conversation.received(&message, None);
        message
    }

    fn ask(&mut self, line: &str) -> Value {
        self.send(line).receive()
    }

    fn initialize(&mut self, revision: &str) -> Value {
        let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let answer = self.ask(&request("initialize", &params));
        self.send(INITIALIZED);
        answer["result"].clone()
    }

    /// Ends the input, and returns what else comes out before the program has ended.
    fn end(mut self) -> (ExitStatus, String) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("UTF-8");
        (self.child.wait().expect("it ends"), rest)
    }

    #[track_caller]
    fn assert_ends_well(self) {
        let (status, rest) = self.end();
        assert_eq!((status.code(), &*rest), (Some(0), ""));
    }
}

#[test]
fn a_request_that_cannot_be_read_gets_its_error_under_its_id() {
    let mut program = Program::demo();
    program.initialize("2025-11-25");
    for (message, code) in [
        (r#""cut in two: \ud83d""#.to_owned(), -32700),
        ("[".repeat(70) + &"]".repeat(70), -32700),
        (format!("[{}]", vec!["1"; 250_001].join(",")), -32600),
    ] {
        let params = format!(r#"{{"name":"echo","arguments":{{"message":{message}}}}}"#);
        for (before, behind) in [(r#""id":7,"#, ""), ("", r#","id":7"#)] {
            let line = format!(
                r#"{{"jsonrpc":"2.0",{before}"method":"tools/call","params":{params}{behind}}}"#
            );
            let error = program.write(line + "\n").receive();
            assert_eq!(
                (&error["id"], &error["error"]["code"]),
                (&json!(7), &json!(code))
            );
        }
    }
    program.assert_ends_well();
}

#[test]
fn std_07_a_client_over_standard_input_shows_no_credential() {
    let keys = "ci=a-key-that-is-long-enough-to-be-one";
    let mut program = Program::start(&[], &[("LONGSHORE_AUTH__API_KEYS", keys)]);
    program.initialize("2025-11-25");
    let call = json!({"name": "echo", "arguments": {"message": "hi"}});
    let answer = program.ask(&request("tools/call", &call));
    assert_eq!(answer["result"]["content"][0]["text"], "hi");
    program.assert_ends_well();
}

#[test]
fn a_malformed_response_fails_its_request_and_gets_no_reply() {
    let mut program = Program::start(&["--toolset", "everything"], &[]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}});
    program.ask(&request("initialize", &params));
    program.send(INITIALIZED);
    let call = json!({"name": "test_elicitation", "arguments": {"message": "?"}});
    let question = program.ask(&request("tools/call", &call));
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1}});
    let result = program.ask(&answer.to_string());
    assert_eq!(
        (&result["id"], &result["result"]["isError"]),
        (&json!(1), &json!(true))
    );
    program.send(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#);
    assert_eq!(program.ask(PING)["result"], json!({}));
    program.assert_ends_well();
}

#[test]
fn the_handshake_era_is_served() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut program = Program::demo();
        assert_eq!(
            program.ask(PING)["result"],
            json!({}),
            "before anything else"
        );
        let initialized = program.initialize(revision);
        assert_eq!(initialized["protocolVersion"], revision);
        let listed = program.ask(&request("tools/list", &json!({})));
        assert!(
            listed["result"]["tools"]
                .as_array()
                .is_some_and(|tools| tools.len() > 3)
        );
        let call = json!({"name": "echo", "arguments": {"message": "a\nb\u{e9}"}});
        let called = program.ask(&request("tools/call", &call));
        assert_eq!(called["result"]["content"][0]["text"], "a\nb\u{e9}");
        program.assert_ends_well();
    }
}

#[test]
fn the_stateless_era_is_served_without_a_handshake_and_beside_one() {
    let mut program = Program::demo();
    let discover = request("server/discover", &json!({"_meta": meta()}));
    assert_eq!(program.ask(&discover)["result"]["resultType"], "complete");
    program.initialize("2025-06-18");
    let call = json!({"name": "echo", "arguments": {"message": "hi"}, "_meta": meta()});
    let called = program.ask(&request("tools/call", &call));
    assert_eq!(called["result"]["resultType"], "complete");
    assert_eq!(program.ask(PING)["result"], json!({}));
    // META-01, VER-02, ERA-04: as over HTTP.
    for (method, key, value, code) in [
        ("tools/list", "protocolVersion", json!("1900-01-01"), -32022),
        ("tools/list", "clientCapabilities", Value::Null, -32602),
        ("ping", "clientInfo", json!({}), -32601),
    ] {
        let mut meta = meta();
        meta[format!("io.modelcontextprotocol/{key}")] = value;
        let refused = program.ask(&request(method, &json!({"_meta": meta})));
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    program.assert_ends_well();
}

#[test]
fn requests_before_the_handshake_are_refused_and_a_further_one_negotiates_again() {
    let mut program = Program::demo();
    let early = program.ask(&request("tools/list", &json!({})));
    assert_eq!(early["error"]["code"], -32600);
    program.initialize("2025-06-18");
    // A bridge passes on those of all its clients.
    let again = program.initialize("2024-11-05");
    assert_eq!(again["protocolVersion"], "2024-11-05");
    let listed = program.ask(&request("tools/list", &json!({})));
    assert!(listed["result"]["tools"][0].get("title").is_none());
    program.assert_ends_well();
}

#[test]
fn rpc_06_a_line_may_be_an_array_in_2025_03_26_alone() {
    let batch = format!("[{PING},{INITIALIZED},{PING}]");
    let mut program = Program::demo();
    assert_eq!(program.ask(&batch)["error"]["code"], -32600);
    program.initialize("2025-03-26");
    assert_eq!(program.ask(&batch).as_array().map(Vec::len), Some(2));
    program.assert_ends_well();
    let mut program = Program::demo();
    program.initialize("2025-06-18");
    assert_eq!(program.ask(&batch)["error"]["code"], -32600);
    program.assert_ends_well();
}

#[test]
fn std_01_02_one_line_for_each_message_and_nothing_else() {
    let mut program = Program::start(&[], &[("LONGSHORE_LOG", "trace")]);
    program.initialize("2025-06-18");
    // Carriage returns, blanks and empty lines are let pass.
    program.write(format!("\n \r\n  {PING} \r\n"));
    assert_eq!(program.receive()["result"], json!({}));
    let call = json!({"name": "fail", "arguments": {"reason": "line\nbreak"}});
    assert_eq!(
        program.ask(&request("tools/call", &call))["result"]["isError"],
        true
    );
    program.assert_ends_well();
}

#[test]
fn std_04_it_ends_with_its_input_and_answers_what_was_asked_before() {
    let (status, rest) = Program::demo().end();
    assert_eq!((status.code(), &*rest), (Some(0), ""));
    let mut program = Program::demo();
    program.initialize("2025-06-18");
    // Without a line end: the end of the input is one.
    let call = json!({"name": "wait", "arguments": {"seconds": 0.05}});
    program.write(request("tools/call", &call));
    let (status, rest) = program.end();
    assert_eq!(status.code(), Some(0));
    assert_eq!(rest.lines().count(), 1);
    assert!(rest.contains("waited for 0.05 s"), "{rest}");
}

#[test]
fn garbage_is_answered_and_the_next_line_read() {
    let mut program = Program::demo();
    program.initialize("2025-06-18");
    for (garbage, code) in [
        (&b"garbage"[..], -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"\0", -32700),
        (b"1", -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (&b"[".repeat(20_000), -32700),
    ] {
        program.write(garbage).write("\n");
        let answer = program.receive();
        assert_eq!(answer["error"]["code"], code, "{}", garbage.escape_ascii());
        assert!(answer.get("id").is_none());
    }
    assert_eq!(program.ask(PING)["result"], json!({}));
    program.assert_ends_well();
}

#[test]
fn a_line_that_is_too_long_is_answered_and_the_next_one_read() {
    let mut program = Program::start(&[], &[("LONGSHORE_STDIO__MESSAGE_BYTES", "1000")]);
    program.initialize("2025-06-18");
    program.write("x".repeat(100_000)).write("\n");
    let refused = program.receive();
    assert_eq!(refused["error"]["code"], -32600);
    let message = refused["error"]["message"].as_str().expect("a message");
    assert!(message.contains("stdio.message_bytes"), "{message}");
    assert_eq!(program.ask(PING)["result"], json!({}));
    program.assert_ends_well();
}

#[test]
fn a_slow_call_holds_up_no_other() {
    let mut program = Program::demo();
    program.initialize("2025-06-18");
    let slow = json!({"name": "wait", "arguments": {"seconds": 60}});
    program.send(&request("tools/call", &slow).replace("\"id\":1", "\"id\":\"slow\""));
    assert_eq!(program.ask(PING)["id"], 1);
    // The call is not awaited at the end of input.
    let (status, rest) = program.end();
    assert_eq!((status.code(), &*rest), (Some(0), ""));
}

#[test]
fn a_request_that_is_too_large_gets_its_error() {
    let mut program = Program::start(&[], &[("LONGSHORE_STDIO__MESSAGE_BYTES", "10000")]);
    program.initialize("2025-06-18");
    let text = "x".repeat(100_000);
    // The official clients write the id last.
    program.write(format!(
        "{{\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\"arguments\":{{\"message\":\"{text}\"}}}},\"jsonrpc\":\"2.0\",\"id\":7}}\n"
    ));
    let refused = program.receive();
    assert_eq!(refused["id"], 7, "{refused}");
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    program.assert_ends_well();
}

#[test]
fn calls_can_be_cancelled_while_as_many_run_as_may() {
    let mut program = Program::demo();
    program.initialize("2025-06-18");
    let slow = json!({"name": "wait", "arguments": {"seconds": 60}});
    let slow = request("tools/call", &slow);
    for id in 10..310 {
        program.write(slow.replace("\"id\":1", &format!("\"id\":{id}")) + "\n");
    }
    for id in 10..310 {
        program.write(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n"
        ));
    }
    assert_eq!(program.ask(PING)["id"], 1);
    program.assert_ends_well();
}

#[test]
fn a_program_whose_responses_reach_nobody_ends() {
    let mut program = Program::demo();
    program.initialize("2025-06-18");
    let gone = std::mem::replace(&mut program.output, BufReader::new(nothing()));
    drop(gone);
    program.send(PING);
    // Its input stays open.
    assert_eq!(program.child.exit_code(), Some(0));
}

/// An output that has ended.
fn nothing() -> ChildStdout {
    let ended = Command::new("true").stdout(Stdio::piped()).spawn();
    let mut ended = ended.expect("started");
    ended.wait().expect("it ends");
    ended.stdout.expect("is piped")
}

#[cfg(unix)]
#[test]
fn a_signal_to_stop_ends_a_program_whose_client_does_not_read() {
    // More than a pipe holds; the second number is more than may run at once.
    for requests in [100, 1000] {
        let mut program = Program::start(&[], &[("LONGSHORE_DRAIN__GRACE_SECONDS", "5")]);
        program.initialize("2025-06-18");
        let mut input = program.input.take().expect("is open");
        let list = request("tools/list", &json!({})) + "\n";
        let writer = std::thread::spawn(move || {
            // The last requests are not read.
            let _ = input.write_all(list.repeat(requests).as_bytes());
            input
        });
        let unread = || rustix::io::ioctl_fionread(program.output.get_ref());
        crate::support::becomes(|| unread().expect("a pipe") >= 32 * 1024);
        program.child.signal("TERM");
        assert_eq!(program.child.exit_code(), Some(0));
        drop(writer.join().expect("no panic"));
    }
}

// === Content-Length framing ===

fn framed(message: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{message}", message.len())
}

impl Program {
    /// Reads one message with its header.
    fn receive_framed(&mut self) -> Value {
        let mut header = String::new();
        self.output.read_line(&mut header).expect("UTF-8");
        let length = header
            .strip_prefix("Content-Length: ")
            .and_then(|h| h.strip_suffix("\r\n"));
        let length: usize = length.and_then(|l| l.parse().ok()).expect("a length");
        let mut message = vec![0; 2 + length];
        self.output.read_exact(&mut message).expect("a message");
        assert_eq!(message[..2], *b"\r\n");
        serde_json::from_slice(&message[2..]).expect("JSON")
    }
}

#[test]
fn messages_with_a_length_are_recognised_and_answered_alike() {
    let mut program = Program::demo();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    program.write(framed(&request("initialize", &params)));
    assert_eq!(
        program.receive_framed()["result"]["protocolVersion"],
        "2025-06-18"
    );
    program.write(framed(INITIALIZED) + &framed(PING) + &framed("garbage\n\n") + &framed(PING));
    assert_eq!(program.receive_framed()["result"], json!({}));
    assert_eq!(program.receive_framed()["error"]["code"], -32700);
    assert_eq!(program.receive_framed()["result"], json!({}));
    program.assert_ends_well();
}

#[test]
fn a_frame_that_is_none_is_answered_and_ends_the_program() {
    let mut program = Program::demo();
    program.write(framed(PING));
    program.receive_framed();
    program.write("Content-Length: many\r\n\r\n{}");
    assert_eq!(program.receive_framed()["error"]["code"], -32600);
    program.assert_ends_well();
}

fn listen(id: &str) -> String {
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta()});
    request("subscriptions/listen", &params).replace("\"id\":1", &format!("\"id\":\"{id}\""))
}

#[test]
fn std_06_sub_06_listening_is_acknowledged_and_its_end_is_told_twice() {
    let mut program = Program::demo();
    let acknowledged = program.ask(&listen("l"));
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let subscription = json!({"io.modelcontextprotocol/subscriptionId": "l"});
    assert_eq!(acknowledged["params"]["_meta"], subscription);
    // Other requests are answered meanwhile.
    let discover = request("server/discover", &json!({"_meta": meta()}));
    assert_eq!(program.ask(&discover)["id"], 1);
    let (status, rest) = program.end();
    let last: Vec<Value> = rest
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!((status.code(), last.len()), (Some(0), 2), "{rest}");
    assert_eq!(last[0]["method"], "notifications/cancelled");
    assert_eq!(last[0]["params"]["requestId"], "l");
    assert_eq!(last[0]["params"]["_meta"], subscription);
    assert_eq!(last[1]["id"], "l");
    assert_eq!(last[1]["result"]["resultType"], "complete");
}

#[test]
fn std_05_who_no_longer_listens_is_told_nothing_more() {
    let mut program = Program::demo();
    program.ask(&listen("l"));
    program
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}"#);
    let discover = request("server/discover", &json!({"_meta": meta()}));
    assert_eq!(program.ask(&discover)["id"], 1);
    program.assert_ends_well();
}

#[cfg(unix)]
#[test]
fn a_signal_to_stop_lets_calls_finish() {
    let mut program = Program::demo();
    program.initialize("2025-11-25");
    let call = json!({"name": "wait", "arguments": {"seconds": 2}, "_meta": {"progressToken": 1}});
    program.send(&request("tools/call", &call));
    // The first message shows that the call has begun.
    let progress = program.receive();
    assert_eq!(progress["method"], "notifications/progress", "{progress}");
    program.child.signal("TERM");
    let answer = loop {
        let message = program.receive();
        if message["id"] == 1 {
            break message;
        }
    };
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(program.child.exit_code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_signal_to_stop_ends_a_program_that_nobody_has_said_anything_to() {
    let mut program = Program::demo();
    program.ask(PING);
    program.child.signal("TERM");
    assert_eq!(program.child.exit_code(), Some(0));
}

/// Whole conversations as they went over the wire: `>` is what a client wrote, `<` what came back, byte for byte.
const TRANSCRIPTS: [(&str, &str); 3] = [
    ("2024-11-05", include_str!("transcripts/2024-11-05.txt")),
    ("2025-11-25", include_str!("transcripts/2025-11-25.txt")),
    ("2026-07-28", include_str!("transcripts/2026-07-28.txt")),
];

#[test]
fn whole_conversations_are_what_they_were_to_the_byte() {
    for (revision, transcript) in TRANSCRIPTS {
        let mut program = Program::demo();
        for line in transcript.lines() {
            match line.split_at(2) {
                ("> ", sent) => {
                    program.write(format!("{sent}\n"));
                }
                ("< ", expected) => {
                    let expected = expected.replace("{version}", env!("CARGO_PKG_VERSION"));
                    let mut line = String::new();
                    program.output.read_line(&mut line).expect("UTF-8");
                    assert_eq!(line, format!("{expected}\n"), "{revision}");
                }
                _ => panic!("neither direction: {line}"),
            }
        }
        program.assert_ends_well();
    }
}

#[test]
fn a_call_waits_for_an_upstream_that_is_starting_while_others_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("longshore.json");
    let script = late(folder.path());
    let upstream = json!({"command": "/bin/sh", "args": ["-c", script]});
    let settings = json!({"upstreams": {"up": upstream}, "upstreams_wait_seconds": 0});
    std::fs::write(&config, settings.to_string()).expect("written");
    let path = config.to_str().expect("UTF-8");
    let mut program = Program::start(&["--config", path], &[("PATH", "/usr/bin:/bin")]);
    program.initialize("2025-11-25");
    let call = request("tools/call", &json!({"name": "up__echo"}));
    program.send(&call.replace("\"id\":1", "\"id\":2"));
    // Messages are taken in their order: the call is waiting by now.
    assert_eq!(program.ask(PING)["id"], 1);
    std::fs::write(folder.path().join("go"), "").expect("written");
    let mut answer = program.receive();
    // The list change notification may come earlier.
    while answer.get("id").is_none() {
        answer = program.receive();
    }
    assert_eq!(answer["id"], 2);
    assert_eq!(answer["result"]["content"][0]["text"], "called", "{answer}");
}
