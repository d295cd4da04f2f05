//! The requests that benchmarks and counts send through the server, without a socket.

mod guarded;
mod settings;

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
pub use guarded::{buckets, exchanged, filtered, guarded, roles};
use http::Request;
use longshore::bench::{Answered, Buckets, CachedExchange, HandedOver, Pipeline, Unread};
use longshore::catalog::CallFuture;
use longshore::extract::Caller;
use longshore::server::MethodFuture;
use longshore::{App, Arguments, CallContext, Config, Definition, Output, Tool, tool, tools};
use serde_json::{Value, json};

/// A request that is sent repeatedly to one server.
#[derive(Debug)]
pub struct Scenario {
    /// Name in reports.
    pub name: String,
    /// Number of requests before counting starts.
    pub warm_up: usize,
    work: Work,
    next: AtomicUsize,
}

#[derive(Debug)]
enum Work {
    /// A server, and what it is sent, one after the other and then from the first again.
    Requests(Rc<Pipeline>, Vec<Request<Bytes>>),
    /// Rate limit buckets for a number of addresses.
    Buckets(Buckets, usize),
    /// An exchange of a caller's token that is cached.
    Exchange(Box<CachedExchange>),
}

/// A single operation.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and a box would be counted"
)]
pub enum Asked {
    /// A request.
    Request(HandedOver),
    /// Rate limit check of an address.
    Address(u32),
    /// The credential of a caller for another server.
    Credential,
}

impl Scenario {
    fn new(name: impl Into<String>, work: Work) -> Self {
        Self {
            name: name.into(),
            warm_up: 200,
            work,
            next: AtomicUsize::new(0),
        }
    }

    /// The next request.
    pub fn request(&self) -> Asked {
        let next = self.next.fetch_add(1, Relaxed);
        match &self.work {
            Work::Requests(_, requests) => {
                Asked::Request(requests[next % requests.len()].clone().into())
            }
            // Not one after the other, as they were put there.
            Work::Buckets(_, addresses) => {
                Asked::Address((next.wrapping_mul(7_919) % addresses) as u32)
            }
            Work::Exchange(_) => Asked::Credential,
        }
    }

    /// Answers one request, and returns the response, if it is one. All that is sent here can be answered without waiting for
    /// anything.
    #[inline]
    pub fn respond(&self, asked: Asked) -> Option<Unread> {
        let (pipeline, request) = match (&self.work, asked) {
            (Work::Requests(pipeline, _), Asked::Request(request)) => (pipeline, request),
            (Work::Buckets(buckets, _), Asked::Address(address)) => {
                assert!(buckets.take(address), "none of them is ever empty");
                return None;
            }
            (Work::Exchange(exchange), Asked::Credential) => {
                std::hint::black_box(exchange.header());
                return None;
            }
            (work, asked) => unreachable!("{asked:?} is nothing for {work:?}"),
        };
        Some(ready(pipeline.respond(request)))
    }

    /// Answers one request, and reads the response.
    fn answer(&self, asked: Asked) -> Answered {
        let response = self.respond(asked);
        response.map_or_else(Answered::default, |response| ready(response.read()))
    }

    /// Panics unless the server answers with a result.
    fn checked(self) -> Self {
        let answered = self.answer(self.request());
        let more = answered.more.concat();
        let whole = [&answered.head[..], &answered.rest[..], &more[..]].concat();
        let answer: Value = serde_json::from_slice(&whole).unwrap_or_default();
        let result = &answer["result"];
        assert!(
            result.is_object() && result["isError"] != true,
            "{}: {answer}",
            self.name
        );
        self
    }
}

/// Result of a future that has nothing to wait for.
#[inline]
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("no tool here waits for anything"),
    }
}

/// Returns frequent client requests to the demo toolset.
pub fn demo() -> Vec<Scenario> {
    let mut config = Config::default();
    config.toolsets.push("demo".to_owned());
    let server = Server::new(App::new().config(config));
    let echo = |message: &str| json!({"name": "echo", "arguments": {"message": message}});
    vec![
        server.in_session("call", "tools/call", Some(echo("hello"))),
        server.stateless("call-stateless", "tools/call", echo("hello")),
        server.in_session("ping", "ping", None),
        server.stateless("discover", "server/discover", json!({})),
        server.initialize("initialize"),
        server.in_session("echo-64k", "tools/call", Some(echo(&words(64 << 10)))),
        server.in_session("echo-code", "tools/call", Some(echo(&code()))),
    ]
}

/// The first and the last tool of a catalog of `count`, and its listing (the first page of it).
pub fn catalog(count: usize) -> Vec<Scenario> {
    let tools = (1..=count).map(|number| Arc::new(Lookup(definition(number))) as Arc<dyn Tool>);
    let server = Server::new(App::new().config(Config::default()).tools(tools));
    let lookup = |number| {
        let name = definition(number).name().to_owned();
        Some(json!({"name": name, "arguments": {"key": "k", "limit": 10}}))
    };
    vec![
        server.in_session(&format!("first-of-{count}"), "tools/call", lookup(1)),
        server.in_session(&format!("last-of-{count}"), "tools/call", lookup(count)),
        server.in_session(&format!("list-{count}"), "tools/list", Some(json!({}))),
    ]
}

/// Repeats a message.
#[tool]
async fn repeat(message: String) -> String {
    message
}

/// A value that calls share.
struct Mark(&'static str);

/// Repeats a message, with state.
#[tool]
async fn repeat_with_state(#[state] mark: &Mark, message: String) -> String {
    std::hint::black_box(mark.0);
    message
}

/// Repeats a message, with the caller taken from the call.
#[tool]
async fn repeat_with_extractor(#[call] caller: Caller, message: String) -> String {
    std::hint::black_box(&caller);
    message
}

/// An object that calls share.
struct Repeater(Mark);

#[tools]
impl Repeater {
    /// Repeats a message, by a method.
    #[tool]
    async fn repeat_by_method(&self, message: String) -> String {
        std::hint::black_box(self.0.0);
        message
    }
}

/// Returns calls of one tool without state, with state, with an extractor, and as a method.
pub fn with_state() -> Vec<Scenario> {
    let app = App::new()
        .config(Config::default())
        .provide(Mark("m"))
        .tool(repeat)
        .tool(repeat_with_state)
        .tool(repeat_with_extractor)
        .toolset(Repeater(Mark("m")));
    let server = Server::new(app);
    let tools = [
        ("call-fn", "repeat"),
        ("call-fn-with-state", "repeat_with_state"),
        ("call-fn-with-extractor", "repeat_with_extractor"),
        ("call-method", "repeat_by_method"),
    ];
    let call = |(scenario, tool)| {
        let params = json!({"name": tool, "arguments": {"message": "hello"}});
        server.in_session(scenario, "tools/call", Some(params))
    };
    tools.map(call).into()
}

/// The first and the last of `count` methods of an application's own.
pub fn methods(count: usize) -> Vec<Scenario> {
    let name = |number| format!("archive/method_{number:05}");
    let app = (1..=count).fold(App::new().config(Config::default()), |app, number| {
        app.method(name(number), answer_nothing)
    });
    let server = Server::new(app);
    vec![
        server.in_session(&format!("first-method-of-{count}"), &name(1), None),
        server.in_session(&format!("last-method-of-{count}"), &name(count), None),
    ]
}

/// Returns a text of `length` bytes without characters that JSON escapes.
pub fn words(length: usize) -> String {
    let words = "the quick brown fox jumps over the lazy dog and comes back again; ";
    words.chars().cycle().take(length).collect()
}

/// Returns a text of 15 KB of which one character in nine is escaped in JSON, as in code.
pub fn code() -> String {
    let line =
        "    let value = map.get(\"key\").unwrap_or(&\"none\\n\");\n    println!(\"{value}\");\n";
    line.repeat(190)
}

struct Server {
    pipeline: Rc<Pipeline>,
    session: Option<String>,
    /// Credential that is sent with each request.
    credential: Option<String>,
}

impl Server {
    fn new(app: App) -> Self {
        Self::shown(app, None, None)
    }

    /// Creates a server that accepts tokens signed with these keys, and requests with a credential.
    fn shown(app: App, keys: Option<&str>, credential: Option<&str>) -> Self {
        let pipeline = Pipeline::with_keys(app, keys).unwrap_or_else(|error| panic!("{error}"));
        let mut server = Self {
            pipeline: Rc::new(pipeline),
            session: None,
            credential: credential.map(str::to_owned),
        };
        let initialize = server.initialize("initialize");
        let session = initialize.answer(initialize.request()).session;
        server.session = session.and_then(|id| id.to_str().map(str::to_owned).ok());
        server
    }

    fn initialize(&self, name: &str) -> Scenario {
        let client = json!({"name": "longshore-loadtest", "version": "0.1.0"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        self.scenario(name, &[], "initialize", Some(params))
    }

    fn in_session(&self, name: &str, method: &str, params: Option<Value>) -> Scenario {
        let session = self.session.as_deref().unwrap_or_default();
        let headers = [
            ("mcp-protocol-version", "2025-06-18"),
            ("mcp-session-id", session),
        ];
        self.scenario(name, &headers, method, params)
    }

    /// Returns `count` stateless requests, each completed by `change`.
    fn stateless_requests(
        &self,
        method: &str,
        params: Value,
        count: usize,
        change: impl Fn(&mut Request<Bytes>, usize),
    ) -> Vec<Request<Bytes>> {
        let request = self.stateless_request(method, params);
        let changed = |number| {
            let mut request = request.clone();
            change(&mut request, number);
            request
        };
        (0..count).map(changed).collect()
    }

    fn stateless(&self, name: &str, method: &str, params: Value) -> Scenario {
        self.sends(name, self.stateless_request(method, params))
    }

    fn stateless_request(&self, method: &str, mut params: Value) -> Request<Bytes> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "longshore-loadtest", "version": "0.1.0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let mut headers = vec![
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        let tool = params["name"].as_str().map(str::to_owned);
        headers.extend(tool.as_deref().map(|tool| ("mcp-name", tool)));
        self.request(&headers, method, Some(params))
    }

    fn scenario(
        &self,
        name: &str,
        more: &[(&'static str, &str)],
        method: &str,
        params: Option<Value>,
    ) -> Scenario {
        self.sends(name, self.request(more, method, params))
    }

    fn sends(&self, name: &str, request: Request<Bytes>) -> Scenario {
        let pipeline = Rc::clone(&self.pipeline);
        Scenario::new(name, Work::Requests(pipeline, vec![request])).checked()
    }

    fn request(
        &self,
        more: &[(&'static str, &str)],
        method: &str,
        params: Option<Value>,
    ) -> Request<Bytes> {
        let mut request = Request::post("/mcp");
        for (name, value) in [
            ("host", "127.0.0.1:3000"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]
        .iter()
        .chain(more)
        {
            request = request.header(*name, *value);
        }
        if let Some(credential) = &self.credential {
            request = request.header("authorization", format!("Bearer {credential}"));
        }
        let mut message = json!({"jsonrpc": "2.0", "id": 1001, "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        let request = request.body(Bytes::from(message.to_string()));
        request.unwrap_or_else(|error| panic!("{error}"))
    }
}

struct Lookup(Definition);

impl Tool for Lookup {
    fn definition(&self) -> &Definition {
        &self.0
    }

    fn call(&self, _: Arc<CallContext>, _: Arguments) -> CallFuture {
        Box::pin(async { Ok(Output::text("done")) })
    }
}

fn definition(number: usize) -> Definition {
    Definition::new(format!("lookup_record_{number:05}"))
        .description("Looks up one record in the archive by its key.")
        .input_schema(json!({
            "type": "object",
            "properties": {
                "key": {"type": "string", "description": "The key of the record."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100}
            },
            "required": ["key"],
            "additionalProperties": false
        }))
}

fn answer_nothing(_: Arc<CallContext>, _: Value) -> MethodFuture {
    Box::pin(async { Ok(json!({})) })
}
