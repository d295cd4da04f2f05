//! A socket to which bytes are written, and from which answers are read.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::Conversation;

/// Timeout of expected data, or of an expected close.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    /// Requests, for checking the responses.
    conversation: Conversation,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) event: Option<String>,
    /// The data field, which may be empty.
    pub(crate) data: Option<String>,
    /// The data as JSON, if there are any.
    pub(crate) message: Option<Value>,
}

impl Event {
    fn read(text: &str) -> Self {
        let mut event = Self::default();
        for line in text.trim_end_matches('\n').split('\n') {
            let (name, value) = line.split_once(": ").expect("a field");
            let value = value.to_owned();
            let twice = match name {
                "id" => event.id.replace(value).is_some(),
                "event" => event.event.replace(value).is_some(),
                "retry" => {
                    let retry = value.parse().expect("milliseconds");
                    event.retry.replace(retry).is_some()
                }
                "data" => event.data.replace(value).is_some(),
                _ => panic!("what is {line:?}?"),
            };
            assert!(!twice, "{text:?}");
        }
        let data = event.data.as_ref().filter(|data| !data.is_empty());
        event.message = data.and_then(|data| serde_json::from_str(data).ok());
        event
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream: BufReader::new(stream),
            conversation: Conversation::default(),
        }
    }

    /// Writes bytes, to the letter.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).expect("the server reads");
        self
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.conversation.sent_bytes(bytes.as_ref());
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Writes a POST to the endpoint, and reads its answer.
    pub(crate) fn post(&mut self, headers: &[(&str, &str)], body: &str) -> Response {
        self.send(post(headers, body)).receive()
    }

    /// Asks for a page, and reads it.
    #[track_caller]
    pub(crate) fn page(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
            .receive()
    }

    /// Reads the head of an answer that has no body.
    pub(crate) fn receive_head(&mut self) -> Response {
        let status_line = self.line();
        let status: u16 = status_line
            .strip_prefix("HTTP/1.1 ")
            .or_else(|| status_line.strip_prefix("HTTP/1.0 "))
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .unwrap_or_else(|| panic!("not a status line: {status_line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Response {
            status,
            headers,
            body: String::new(),
        }
    }

    /// Reads one answer.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Response {
        let mut response = self.receive_head();
        let length = response
            .header("content-length")
            .map(|l| l.parse().expect("a length"));
        let mut body = vec![0; length.unwrap_or(0)];
        if response.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else {
            self.stream.read_exact(&mut body).expect("a body");
        }
        response.body = String::from_utf8(body).expect("UTF-8");
        self.check(&response);
        response
    }

    /// Reads a body of this length.
    pub(crate) fn body(&mut self, length: usize) -> String {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        String::from_utf8(body).expect("UTF-8")
    }

    /// Checks the messages of an answer.
    #[track_caller]
    fn check(&mut self, response: &Response) {
        let session = response.header("mcp-session-id");
        let messages: Vec<Value> = match response.header("content-type") {
            Some("application/json") => serde_json::from_str(&response.body).into_iter().collect(),
            Some("text/event-stream") => {
                let data = response
                    .body
                    .lines()
                    .filter_map(|l| l.strip_prefix("data: "));
                data.filter_map(|data| serde_json::from_str(data).ok())
                    .collect()
            }
            _ => return,
        };
        for message in messages {
            // Other paths have JSON of their own.
            if message.is_array() || message.get("jsonrpc").is_some() {
                self.conversation.received(&message, session);
            }
        }
    }

    /// Reads a chunk of a body; `None` after the last.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("the size of a chunk");
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk).expect("a chunk");
        assert_eq!(self.line(), "");
        (size > 0).then_some(chunk)
    }

    /// Reads the next message of a stream whose head was read. `None` at the end.
    pub(crate) fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.any_event()?.message {
                return Some(message);
            }
        }
    }

    /// Reads the next event of a stream whose head was read, whether or not it is a message. `None` at the end.
    pub(crate) fn any_event(&mut self) -> Option<Event> {
        let mut event = String::new();
        while !event.ends_with("\n\n") {
            event += std::str::from_utf8(&self.chunk()?).expect("UTF-8 to the chunk");
            // Comments are signs of life.
            if event.starts_with(':') && event.ends_with('\n') {
                event.clear();
            }
        }
        let event = Event::read(&event);
        if let Some(message) = &event.message {
            self.conversation.received(message, None);
        }
        Some(event)
    }

    /// Opens a stream of a session by GET, and reads the head of the answer.
    pub(crate) fn get(&mut self, headers: &[(&str, &str)]) -> Response {
        let mut text = "GET /mcp HTTP/1.1\r\nhost: localhost\r\n".to_owned();
        if !headers.iter().any(|(name, _)| *name == "accept") {
            text += "accept: text/event-stream\r\n";
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        self.send(text + "\r\n").receive_head()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("a line of an answer");
        assert!(
            line.ends_with("\r\n"),
            "the connection ended after {line:?}"
        );
        line.truncate(line.len() - 2);
        line
    }

    /// Waits until the server closes the connection, and asserts that it says nothing more before that.
    pub(crate) fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest.escape_ascii().to_string(), ""),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "not closed in time"),
        }
    }

    /// Waits until the server closes the connection. Returns how many bytes arrive before that.
    pub(crate) fn assert_ends(&mut self) -> usize {
        let mut rest = Vec::new();
        if let Err(e) = self.stream.read_to_end(&mut rest) {
            assert_eq!(e.kind(), ErrorKind::ConnectionReset, "not closed in time");
        }
        rest.len()
    }

    /// Closes our half: the server reads an end, and may still answer.
    pub(crate) fn finish(&mut self) -> &mut Self {
        self.stream
            .get_ref()
            .shutdown(Shutdown::Write)
            .expect("a socket");
        self
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// Builds a POST to the endpoint. The given headers replace the usual ones.
pub(crate) fn post(headers: &[(&str, &str)], body: &str) -> String {
    const ALWAYS: [(&str, &str); 3] = [
        ("host", "localhost"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let mut text = "POST /mcp HTTP/1.1\r\n".to_owned();
    let ours = ALWAYS
        .iter()
        .filter(|(name, _)| !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)));
    for (name, value) in ours.chain(headers) {
        text += &format!("{name}: {value}\r\n");
    }
    text + &format!("content-length: {}\r\n\r\n{body}", body.len())
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert_eq!(values.next(), None, "{name} appears twice");
        value
    }

    /// The body as JSON; it has to be declared as that.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(
            self.header("content-type"),
            Some("application/json"),
            "{self:?}"
        );
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Returns the value of a metric on this page.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        let found = self.body.lines().find_map(value);
        found.unwrap_or_else(|| panic!("no {name} in {}", self.body))
    }

    /// Returns how often a limit was hit, by the metric on this page.
    #[track_caller]
    pub(crate) fn limit_hits(&self, limit: &str) -> u64 {
        self.metric(&format!("longshore_limit_hits_total{{limit=\"{limit}\"}}")) as u64
    }

    /// Asserts an answer with a result, and returns that.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        let mut json = self.json();
        assert!(json.get("error").is_none(), "{self:?}");
        assert_eq!(json["jsonrpc"], "2.0");
        json["result"].take()
    }

    /// Asserts an error, and returns its message. `id` is JSON text; an empty one stands for null.
    #[track_caller]
    pub(crate) fn error(&self, status: u16, code: i64, id: &str) -> String {
        let json = self.json();
        let found = (self.status, json["error"]["code"].as_i64());
        assert_eq!(found, (status, Some(code)), "{self:?}");
        assert_eq!(json["jsonrpc"], "2.0");
        assert!(json.get("result").is_none(), "{self:?}");
        match id {
            "" => assert!(json.get("id").is_none(), "{self:?}"),
            id => assert!(self.body.contains(&format!(r#""id":{id},"#)), "{self:?}"),
        }
        json["error"]["message"]
            .as_str()
            .expect("a message")
            .to_owned()
    }

    /// Asserts 202 without a body.
    #[track_caller]
    pub(crate) fn accepted(&self) {
        assert_eq!((self.status, self.body.as_str()), (202, ""), "{self:?}");
    }
}
