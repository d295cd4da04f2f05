//! The official reference servers, if variables say how to start them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::KillOnDrop;

/// A server that runs until it is dropped.
pub(crate) struct Reference {
    _child: KillOnDrop,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Reference {
    /// Starts a command over stdio.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the reference server starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut reference = Self {
            _child: KillOnDrop(child),
            input,
            output,
            next: 0,
        };
        reference.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        reference.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        reference
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("it reads");
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).expect("it answers");
            let mut message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == self.next {
                return message["result"].take();
            }
        }
    }

    /// The result of a call.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }
}
