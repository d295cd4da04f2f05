//! Tests of builds without default features: `cargo test --no-default-features --test lean`.
//!
//! An application serves its tools over HTTP, with API keys and sessions. A setting that requires a feature which is off is an
//! error at start that names the feature.

#![expect(
    clippy::disallowed_methods,
    reason = "the test trusts the server that it talks to"
)]

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use longshore::{App, CallContext, Config, Elicited, ToolError, tool};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Greets a person by name.
#[tool(read_only)]
async fn hello(
    /// Name of the person.
    name: String,
    /// With which word.
    #[arg(default = "Hello")]
    greeting: String,
) -> String {
    format!("{greeting}, {name}!")
}

/// What a shop has of a thing.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Stock {
    id: u64,
    count: usize,
    small: Option<u8>,
    change: i32,
}

/// Has arguments and results of all kinds of integers.
#[tool]
async fn restock(stock: Stock, more: u32, times: Option<u16>) -> Vec<Stock> {
    let count = stock.count + more as usize * usize::from(times.unwrap_or(1));
    vec![Stock { count, ..stock }]
}

/// What a person says of a delivery.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Delivery {
    street: String,
    floor: Option<u8>,
    way: Way,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
enum Way {
    Bike,
    Van,
}

/// Asks where to deliver.
#[tool]
async fn deliver(context: &CallContext) -> Result<String, ToolError> {
    match context.elicit::<Delivery>("Where to?").await? {
        Elicited::Accepted(to) => Ok(format!("{} {:?} {:?}", to.street, to.floor, to.way)),
        _ => Ok("nowhere".to_owned()),
    }
}

fn config(settings: Value) -> Config {
    serde_json::from_value(settings).expect("settings")
}

#[tokio::test]
async fn a_tool_is_called_without_a_socket() {
    let server = App::new().tool(hello).harness().expect("a server");
    let result = server.call("hello", json!({"name": "Ada"})).await;
    assert_eq!(
        result.expect("a result")["content"][0]["text"],
        "Hello, Ada!"
    );
}

#[tokio::test]
async fn types_of_integers_need_no_validator() {
    let server = App::new().tool(restock).harness().expect("a server");
    let stock = json!({"id": 7, "count": 1, "small": null, "change": -1});
    let arguments = json!({"stock": stock, "more": 2, "times": 3});
    let result = server.call("restock", arguments).await.expect("a result");
    assert_eq!(
        result.structured::<Vec<Stock>>().expect("stocks")[0].count,
        7
    );
    let negative = json!({"stock": stock, "more": -2});
    let result = server.call("restock", negative).await.expect("a result");
    assert!(result.is_error(), "{result}");
}

#[tokio::test]
async fn forms_of_plain_types_need_no_validator() {
    for (content, expected) in [
        (
            json!({"street": "Mole", "floor": 3, "way": "Van"}),
            "Mole Some(3) Van",
        ),
        (json!({"street": "Mole", "way": "Bike"}), "Mole None Bike"),
    ] {
        let server = App::new().tool(deliver).harness().expect("a server");
        let server = server.on_client_request(move |_, request| {
            assert_eq!(
                request["requestedSchema"]["required"],
                json!(["street", "way"])
            );
            json!({"action": "accept", "content": content})
        });
        let result = server.call("deliver", json!({})).await.expect("a result");
        assert_eq!(result.text(), expected);
    }
    for content in [
        json!({"way": "Van"}),
        json!({"street": "Mole", "way": "Boat"}),
    ] {
        let server = App::new().tool(deliver).harness().expect("a server");
        let server =
            server.on_client_request(move |_, _| json!({"action": "accept", "content": content}));
        let result = server.call("deliver", json!({})).await;
        assert!(result.is_err() || result.is_ok_and(|result| result.is_error()));
    }
}

/// Posts a message to the MCP endpoint.
async fn post(
    address: std::net::SocketAddr,
    key: Option<&str>,
    session: Option<&str>,
    message: Value,
) -> Response<Bytes> {
    let stream = TcpStream::connect(address).await.expect("connected");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("a connection");
    let driver = tokio::spawn(connection);
    let mut request = Request::post("/mcp")
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let request = request
        .body(Full::<Bytes>::from(message.to_string()))
        .expect("a request");
    let response = sender.send_request(request).await.expect("a response");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    driver.abort();
    Response::from_parts(head, body)
}

#[tokio::test]
async fn tools_are_served_over_http_with_keys_and_sessions() {
    let config = config(json!({
        "http": {"port": 0},
        "auth": {"api_keys": [{"name": "ci", "keys": ["a-key-of-tests-and-nothing-else"]}]},
    }));
    let bound = App::new().tool(hello).config(config).bind().await;
    let bound = bound.expect("an address");
    let address = bound.address().expect("a port");
    let (stop, stopped) = oneshot::channel::<()>();
    let client = async {
        let initialize = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        });
        let refused = post(address, None, None, initialize.clone()).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        let key = Some("a-key-of-tests-and-nothing-else");
        let opened = post(address, key, None, initialize).await;
        assert_eq!(opened.status(), StatusCode::OK, "{:?}", opened.body());
        let session = opened.headers()["mcp-session-id"]
            .to_str()
            .expect("a session");
        let call = json!({
            "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "hello", "arguments": {"name": "Ada", "greeting": "Ahoy"}},
        });
        let called = post(address, key, Some(session), call).await;
        assert_eq!(called.status(), StatusCode::OK);
        let text = String::from_utf8_lossy(called.body()).into_owned();
        assert!(text.contains("Ahoy, Ada!"), "{text}");
        stop.send(()).expect("it serves");
    };
    let serving = bound.serve_until(async {
        let _ = stopped.await;
    });
    let (served, ()) = tokio::join!(serving, client);
    served.expect("served");
}

#[cfg(not(all(
    feature = "config-files",
    feature = "oauth",
    feature = "sources",
    feature = "tls",
    feature = "validation"
)))]
mod without {
    use super::*;

    /// The error at start.
    fn problem(app: App) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        match runtime.block_on(app.bind()) {
            Ok(_) => "it starts".to_owned(),
            Err(error) => longshore::app::MainError::from(error).to_string(),
        }
    }

    fn refused(settings: Value) -> String {
        problem(App::new().tool(hello).config(config(settings)))
    }

    #[cfg(not(feature = "sources"))]
    #[test]
    fn settings_of_sources_name_the_missing_feature() {
        for (setting, settings) in [
            ("toolsets", json!({"toolsets": ["time"]})),
            ("builtin", json!({"builtin": {"fetch": {}}})),
            (
                "upstreams",
                json!({"upstreams": {"a": {"url": "https://a.example/mcp"}}}),
            ),
            (
                "sources",
                json!({"sources": [{"name": "a", "http": {"tools": []}}]}),
            ),
            ("tokens", json!({"tokens": {"store": "memory"}})),
            ("artifacts", json!({"artifacts": {"above_bytes": 1}})),
        ] {
            let problem = refused(settings);
            let expected = format!(
                "{setting} requires the feature `sources`, which this build does not have; "
            );
            assert!(problem.starts_with(&expected), "{setting}: {problem}");
        }
    }

    #[cfg(not(feature = "oauth"))]
    #[test]
    fn settings_of_issuers_name_the_missing_feature() {
        let oauth = json!({"issuer": "https://id.example.com", "audience": "a"});
        let problem = refused(json!({"auth": {"oauth": oauth}}));
        assert!(
            problem.starts_with(
                "auth.oauth requires the feature `oauth`, which this build does not have; "
            ),
            "{problem}"
        );
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn settings_of_tls_name_the_missing_feature() {
        let tls = json!({"certificate": "/a.crt", "key": "/a.key"});
        let problem = refused(json!({"http": {"tls": tls, "port": 0}}));
        assert!(
            problem.starts_with(
                "http.tls requires the feature `tls`, which this build does not have; "
            ),
            "{problem}"
        );
    }

    #[cfg(not(feature = "config-files"))]
    #[test]
    fn files_name_the_missing_feature() {
        let mut flags = longshore::config::Flags::default();
        flags.config = Some("longshore.yaml".into());
        let probe = longshore::environment::Probe::of([("A", "b")]);
        let problem = Config::load(&flags, &probe)
            .expect_err("refused")
            .to_string();
        assert!(
            problem.contains("requires the feature `config-files`"),
            "{problem}"
        );
        let skill = longshore::Skill::new("---\nname: a\ndescription: b\n---\n");
        let problem = skill.expect_err("refused").to_string();
        assert!(
            problem.contains("requires the feature `config-files`"),
            "{problem}"
        );
    }

    #[cfg(not(feature = "validation"))]
    #[test]
    fn schemas_name_the_missing_feature() {
        /// Waits.
        #[tool]
        async fn wait(#[schemars(range(max = 60))] seconds: u32) -> u32 {
            seconds
        }
        let problem = problem(App::new().tool(wait).config(Config::default()));
        assert!(
            problem.contains("wait") && problem.contains("requires the feature `validation`"),
            "{problem}"
        );
        let form = longshore::Form::from_schema(json!({"type": "object", "properties": {}}));
        let problem = form.expect_err("refused").to_string();
        assert!(
            problem.contains("requires the feature `validation`"),
            "{problem}"
        );
    }
}
