//! Library features beyond `#[tool]`: layers, custom methods, the harness, and caller data in tools.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use longshore::net::Body;
use longshore::protocol::{ErrorCode, ErrorObject};
use longshore::transport::http::McpService;
use longshore::{App, CallContext, Config, tool};
use serde_json::{Value, json};
use tower::layer::layer_fn;
use tower::{Layer, Service};
use tower_http::set_header::{SetRequestHeaderLayer, SetResponseHeaderLayer};

use crate::support::Checked as _;
use crate::support::{Serve, Stateless, request};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Says who calls, and how.
#[tool]
async fn caller(context: &CallContext) -> Value {
    let header = |name| {
        let headers = context.headers()?;
        Some(
            headers
                .get(name)?
                .to_str()
                .unwrap_or("not ASCII")
                .to_owned(),
        )
    };
    json!({
        "principal": context.principal().name(),
        "session": context.session_id(),
        "request": context.request_id().as_json(),
        "agent": header("user-agent"),
        "http": context.headers().is_some(),
    })
}

/// Never ends.
#[tool(timeout = "50ms")]
async fn endless() -> String {
    std::future::pending().await
}

// === Layers ===

/// The service that a closure makes of each request.
#[derive(Clone)]
struct With<F>(F, McpService);

impl<F, R, B, E> Service<Request<Body>> for With<F>
where
    F: FnMut(Request<Body>, McpService) -> R,
    R: Future<Output = Result<Response<B>, E>> + Send + 'static,
{
    type Response = Response<B>;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin((self.0)(request, self.1.clone()))
    }
}

fn with<F: Clone>(answer: F) -> impl Layer<McpService, Service = With<F>> + Clone {
    layer_fn(move |inner| With(answer.clone(), inner))
}

fn header(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )
}

#[test]
fn a_layer_sees_every_request_and_every_answer() {
    let (name, value) = header("x-served-by", "a layer");
    let server = Serve::new()
        .tool(echo)
        .app(|app| app.layer(SetResponseHeaderLayer::overriding(name, value)))
        .start();
    let call = Stateless::call("echo", json!({"message": "hi"}));
    for response in [
        call.send(&server),
        server.post(&[], "not JSON"),
        server.page("/health"),
        server.page("/nothing"),
    ] {
        assert_eq!(response.header("x-served-by"), Some("a layer"));
    }
    // The check of the host comes first.
    let foreign = call.and("host", "evil.example.com").send(&server);
    assert_eq!((foreign.status, foreign.header("x-served-by")), (403, None));
}

#[test]
fn the_first_layer_is_outermost() {
    let (name, one) = header("x-order", "first");
    let two = HeaderValue::from_static("second");
    let server = Serve::new()
        .tool(caller)
        .app(|app| {
            app.layer(SetResponseHeaderLayer::appending(name.clone(), one))
                .layer(SetResponseHeaderLayer::appending(name, two))
                .layer(SetRequestHeaderLayer::overriding(
                    http::header::USER_AGENT,
                    HeaderValue::from_static("changed on the way"),
                ))
        })
        .start();
    let response = Stateless::call("caller", json!({}))
        .and("user-agent", "a client")
        .send(&server);
    let order: Vec<_> = response
        .headers
        .iter()
        .filter(|(name, _)| name == "x-order")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(
        order,
        ["second", "first"],
        "the inner one has its say before the outer one"
    );
    let called = response.result()["structuredContent"].clone();
    assert_eq!(called["agent"], "changed on the way");
}

#[test]
fn a_layer_may_answer_with_a_body_of_its_own_type() {
    let server = Serve::new()
        .tool(echo)
        .app(|app| {
            app.layer(with(|request: Request<Body>, _| async move {
                let text = format!("{} {}", request.method(), request.uri());
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
            }))
        })
        .start();
    let response = Stateless::call("echo", json!({"message": "hi"})).send(&server);
    assert_eq!((response.status, &*response.body), (200, "POST /mcp"));
}

#[test]
fn a_connection_goes_on_after_a_layer_that_responds_without_the_body() {
    let server = Serve::new()
        .app(|app| {
            app.layer(with(|_: Request<Body>, _| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("here"))))
            }))
        })
        .start();
    let text = Stateless::call("echo", json!({"message": "hi"})).text();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let length = format!("content-length: {}", body.len());
    let chunked = head.replace(&length, "transfer-encoding: chunked");
    let (one, two) = body.split_at(10);
    let chunks = format!("a\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", two.len());
    let mut connection = server.connect();
    for whole in [format!("{chunked}\r\n\r\n{chunks}"), text.clone()] {
        let response = connection.send(whole).receive();
        let found = (&*response.body, response.header("connection"));
        assert_eq!(found, ("here", None));
    }
    let response = connection.send(&text[..text.len() - 1]).receive();
    let found = (&*response.body, response.header("connection"));
    assert_eq!(found, ("here", Some("close")));
    connection.assert_closed();
}

#[test]
fn a_layer_that_fails_costs_its_request_and_no_other() {
    let server = Serve::new()
        .tool(echo)
        .app(|app| {
            app.layer(with(
                |request: Request<Body>, mut inner: McpService| async move {
                    if request.headers().contains_key("x-fail") {
                        return Err("the layer's secret");
                    }
                    match inner.call(request).await {
                        Ok(response) => Ok::<Response<Body>, &str>(response),
                        Err(never) => match never {},
                    }
                },
            ))
        })
        .start();
    let mut connection = server.connect();
    let call = Stateless::call("echo", json!({"message": "hi"}));
    let failed = call.clone().and("x-fail", "1").send_on(&mut connection);
    assert_eq!(failed.status, 500);
    assert!(
        failed.body.contains("Internal Server Error"),
        "{}",
        failed.body
    );
    assert!(!failed.body.contains("secret"), "{}", failed.body);
    assert_eq!(call.send_on(&mut connection).result()["isError"], false);
}

#[test]
fn bodies_have_their_limits_inside_of_layers_too() {
    let server = Serve::new()
        .tool(echo)
        .limits(|limits| {
            limits.body_bytes = 1000;
            limits.body_seconds = 1;
        })
        .app(|app| {
            let (name, value) = header("x-served-by", "a layer");
            app.layer(SetResponseHeaderLayer::overriding(name, value))
        })
        .start();
    let call = Stateless::call("echo", json!({"message": "x".repeat(1000)}));
    assert_eq!(call.send(&server).status, StatusCode::PAYLOAD_TOO_LARGE);
    let text = Stateless::call("echo", json!({"message": "hi"})).text();
    let mut slow = server.connect();
    slow.send(&text[..text.len() - 1]);
    assert_eq!(slow.receive().status, StatusCode::REQUEST_TIMEOUT);
    slow.assert_closed();
}

#[test]
fn bodies_that_can_be_framed_in_two_ways_are_refused_inside_of_layers_too() {
    let (name, value) = header("x-served-by", "a layer");
    let server = Serve::new()
        .tool(echo)
        .app(|app| app.layer(SetResponseHeaderLayer::overriding(name, value)))
        .start();
    let text = Stateless::call("echo", json!({"message": "hi"})).text();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let length = format!("content-length: {}", body.len());
    let chunked = head.replace(&length, "transfer-encoding: chunked");
    let post = |size: String| {
        let mut connection = server.connect();
        // The request begins before its body is seen.
        connection.send(format!("{chunked}\r\nexpect: 100-continue\r\n\r\n"));
        assert_eq!(connection.receive_head().status, StatusCode::CONTINUE);
        connection.send(format!("{size}\r\n{body}\r\n0\r\n\r\n"));
        (connection.receive(), connection)
    };
    let size = format!("{:x}", body.len());
    assert_eq!(post(size.clone()).0.status, StatusCode::OK);
    for extension in [";\0", ";x=\x07"] {
        let (response, mut connection) = post(format!("{size}{extension}"));
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{extension:?}");
        connection.assert_closed();
    }
}

// === Methods ===

fn with_methods(app: App) -> App {
    app.method(
        "com.example/echo",
        |context: Arc<CallContext>, params: Value| async move {
            Ok(json!({"params": params, "request": context.request_id().as_json()}))
        },
    )
    .method("com.example/fail", |_: Arc<CallContext>, _: Value| async {
        let error = ErrorObject::new(ErrorCode::Application(7), "no");
        Err(error.with_data(json!({"why": "because"})))
    })
    .method(
        "com.example/panic",
        |_: Arc<CallContext>, params: Value| async move {
            assert!(params["fine"] == true, "on purpose");
            Ok(json!({"fine": true}))
        },
    )
    .method(
        "com.example/number",
        |_: Arc<CallContext>, _: Value| async { Ok(json!(1)) },
    )
}

#[test]
fn a_method_of_the_applications_own_is_answered_in_every_revision() {
    let server = Serve::new().app(with_methods).start();
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = server.session(revision);
        let answer = session
            .request("com.example/echo", &json!({"a": [1]}))
            .result();
        assert_eq!(answer, json!({"params": {"a": [1]}, "request": "1"}));
        let none = session.post(r#"{"jsonrpc":"2.0","id":"x","method":"com.example/echo"}"#);
        assert_eq!(none.result(), json!({"params": {}, "request": "\"x\""}));
        let failed = session.request("com.example/fail", &json!({}));
        assert_eq!(failed.error(200, 7, "1"), "no");
        assert_eq!(failed.json()["error"]["data"], json!({"why": "because"}));
    }
    let answer = Stateless::new("com.example/echo", json!({"a": 1}))
        .send(&server)
        .result();
    assert_eq!(answer["params"]["a"], 1);
    assert_eq!(answer["resultType"], "complete");
    let server_info = &answer["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(server_info["name"], "test");
    Stateless::new("com.example/fail", json!({}))
        .send(&server)
        .error(200, 7, "1");
    // Its header must mirror the body like any other.
    let unmirrored = Stateless::new("com.example/echo", json!({})).without("mcp-method");
    unmirrored.send(&server).error(400, -32020, "1");
}

/// Returns the error of an application that cannot run.
fn why_not(app: App) -> String {
    let refused = app.config(Config::default()).harness();
    refused.expect_err("it cannot").to_string()
}

#[test]
fn methods_that_would_never_be_asked_are_refused_at_start() {
    let answer = |_: Arc<CallContext>, _: Value| async { Ok(json!({})) };
    for own in ["ping", "tools/list", "initialize", "server/discover"] {
        let why = why_not(App::new().method(own, answer));
        assert!(why.contains(own), "{why}");
        assert!(why.contains("the specification defines it, and the server handles it; use a name with your own prefix, such as \"com.example/load\""), "{why}");
    }
    let twice = App::new().method("com.example/a", answer);
    let why = why_not(twice.method("com.example/a", answer));
    assert!(why.contains("com.example/a"), "{why}");
    assert!(why.contains("added twice"), "{why}");
    let why = why_not(App::new().method("", answer));
    assert!(why.contains("a method has a name"), "{why}");
}

#[tokio::test]
async fn within_a_runtime_it_is_said_how_to_serve() {
    let refused = App::new().tool(echo).config(Config::default()).run();
    let why = format!("{:?}", refused.expect_err("there is a runtime"));
    assert!(why.contains("App::serve"), "{why}");
    assert!(why.contains("#[tokio::main]"), "{why}");
}

/// Answers in place of the server, with an empty body of the server's own type; so do those layers of `tower-http` that
/// give up.
#[derive(Clone, Copy, Debug)]
struct Instead<S>(S);

impl<S, Q, R> Service<Request<Q>> for Instead<S>
where
    S: Service<Request<Q>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = std::future::Ready<Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, _: Request<Q>) -> Self::Future {
        let mut answer = Response::new(R::default());
        *answer.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        std::future::ready(Ok(answer))
    }
}

#[test]
fn a_layer_may_answer_with_an_empty_body_of_the_servers_type() {
    let layer = layer_fn(Instead::<McpService>);
    let server = Serve::new().app(|app| app.layer(layer)).start();
    let answer = Stateless::new("ping", json!({})).send(&server);
    assert_eq!((answer.status, &*answer.body), (504, ""));
}

#[test]
fn a_method_that_panics_costs_its_request_and_no_other() {
    let server = Serve::new().app(with_methods).start();
    let mut connection = server.connect();
    let panic = Stateless::new("com.example/panic", json!({}));
    assert_eq!(
        panic.send_on(&mut connection).error(200, -32603, "1"),
        "Internal error"
    );
    let fine = panic.params(|params| params["fine"] = true.into());
    let result = fine.send_on(&mut connection).result();
    assert_eq!(result["fine"], true);
}

#[test]
fn rpc_04_a_method_whose_result_is_no_object_is_at_fault() {
    let server = Serve::new().app(with_methods).start();
    let number = Stateless::new("com.example/number", json!({})).send(&server);
    assert_eq!(number.error(200, -32603, "1"), "Internal error");
}

// === Tools and their callers ===

#[test]
fn a_tool_learns_who_calls_in_either_era() {
    let server = Serve::new().tool(caller).start();
    let mut stateless = Stateless::call("caller", json!({})).and("user-agent", "a client");
    stateless.id = json!("id \"7\"");
    assert_eq!(
        stateless.send(&server).result()["structuredContent"],
        json!({
            "principal": "anonymous", "session": null, "request": r#""id \"7\"""#,
            "agent": "a client", "http": true,
        })
    );
    let (one, other) = (server.session("2025-06-18"), server.session("2025-06-18"));
    let seen = [&one, &one, &other].map(|session| {
        let result = session.call("caller", &json!({})).result();
        result["structuredContent"]["session"]
            .as_str()
            .expect("a name")
            .to_owned()
    });
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
    assert!(
        !one.id.contains(&seen[0]),
        "a name for logs tells nothing of the id"
    );
}

#[tokio::test]
async fn over_the_harness_the_caller_is_the_local_one() {
    let server = App::new()
        .tool(caller)
        .config(Config::default())
        .checked_harness()
        .expect("valid");
    let result = server.call("caller", json!({})).await.expect("a result");
    let called = &result["structuredContent"];
    assert_eq!(called["http"], false);
    assert_eq!(called["principal"], "local");
    assert_eq!(called["session"], Value::Null);
}

#[tokio::test]
async fn the_harness_speaks_every_revision() {
    let config = Config {
        toolsets: vec!["demo".to_owned()],
        ..Config::default()
    };
    let server = App::new().config(config).checked_harness().expect("valid");
    assert_eq!(server.tools().await.expect("a list").len(), 7);
    let unknown = server
        .call("ecco", json!({}))
        .await
        .expect_err("is unknown");
    assert_eq!(unknown["message"], "Unknown tool: ecco; did you mean echo?");
    let initialize = request(
        "initialize",
        &json!({"protocolVersion": "2025-03-26", "capabilities": {}}),
    );
    let answer = server.send(&initialize).await.expect("an answer");
    assert_eq!(answer["result"]["protocolVersion"], "2025-03-26");
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#;
    let answer = server.send(batch).await.expect("an answer");
    assert_eq!(answer, json!([{"jsonrpc": "2.0", "id": 1, "result": {}}]));
    assert_eq!(server.send(r#"{"jsonrpc":"2.0","method":"x"}"#).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_is_told_to_the_model() {
    let server = App::new()
        .tool(endless)
        .config(Config::default())
        .checked_harness()
        .expect("valid");
    let result = server.call("endless", json!({})).await.expect("a result");
    assert_eq!(result["isError"], true);
    assert_eq!(
        result["content"][0]["text"],
        "the tool did not respond within 0.05 s"
    );
}

#[test]
fn calls_end_at_their_time_in_both_eras() {
    let server = Serve::new().tool(endless).start();
    let call = Stateless::call("endless", json!({}));
    assert_eq!(call.send(&server).result()["isError"], true);
    let session = server.session("2025-06-18");
    assert_eq!(
        session.call("endless", &json!({})).result()["isError"],
        true
    );
}

/// Says how far it is.
#[tool]
async fn copies(context: &CallContext) -> &'static str {
    context.progress(1.0, Some(2.0), "half").await;
    "done"
}

#[tokio::test]
async fn progress_of_a_call_is_witnessed_in_both_eras() {
    use longshore::harness::WireMessage;
    use longshore::protocol::Revision;
    for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let witness = Arc::clone(&seen);
        let server = App::new().tool(copies).harness().expect("a server");
        let server = server.with_version(revision).on_message(move |passed| {
            if let WireMessage::ToClient(message) = passed
                && message["method"] == "notifications/progress"
            {
                let mut seen = witness.lock().expect("not poisoned");
                seen.push(message["params"]["message"].clone());
            }
        });
        let result = server.call("copies", json!({})).await.expect("a result");
        assert_eq!(result["content"][0]["text"], "done");
        assert_eq!(
            *seen.lock().expect("not poisoned"),
            ["half"],
            "{revision:?}"
        );
    }
}

/// A report, with a note on the way.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema, Debug, PartialEq)]
struct Report {
    pages: u32,
}

#[tool]
async fn reports(context: &CallContext, pages: u32) -> Result<Report, String> {
    context.progress(1.0, None, "begun").await;
    context.progress(2.0, Some(2.0), "").await;
    match pages {
        0 => Err("there is nothing to report".to_owned()),
        pages => Ok(Report { pages }),
    }
}

#[tokio::test]
async fn the_result_of_a_call_is_read_as_types_in_both_eras() -> longshore::Result {
    use longshore::protocol::Revision;
    for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
        let server = App::new().tool(reports).harness()?.with_version(revision);
        let result = server.call("reports", json!({"pages": 3})).await?;
        assert!(!result.is_error());
        assert_eq!(result.structured::<Report>()?, Report { pages: 3 });
        assert_eq!(result.text(), r#"{"pages":3}"#);
        assert_eq!(result.content().len(), 1);
        let progress = result.progress();
        assert_eq!(progress.len(), 2, "{revision:?}: {result:?}");
        assert_eq!((progress[0].progress, progress[0].total), (1.0, None));
        assert_eq!(progress[0].message.as_deref(), Some("begun"));
        assert_eq!(progress[1].total, Some(2.0));
        assert_eq!(result.notifications().len(), 2);
        assert!(result.logs().is_empty());

        let failed = server.call("reports", json!({"pages": 0})).await?;
        assert!(failed.is_error());
        assert_eq!(failed.text(), "there is nothing to report");
        assert!(failed.structured::<Report>().is_err());

        let unknown = server.call("report", json!({})).await;
        let unknown = unknown.expect_err("there is no such tool");
        assert_eq!(unknown.code(), -32602);
        assert!(unknown.to_string().ends_with(" (-32602)"), "{unknown}");
        assert!(unknown.message().contains("reports"), "{unknown}");
    }
    Ok(())
}
