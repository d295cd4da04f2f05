//! The client, against this server and against programs that misbehave.

#[cfg(feature = "cli")]
mod commands;
mod lifecycles;
mod lists;
mod quiet;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::client::{Client, ClientError, Lifecycle, Listener, Options, Params, Target};
use longshore::net::{Client as HttpClient, Deadlines, Guard, Program};
use longshore::protocol::Revision;
use serde_json::{Value, json};

use crate::support::{RoundRobin, Running, Serve};

fn over_http(server: &Running) -> Target {
    let deadlines = Deadlines {
        total: None,
        ..Deadlines::default()
    };
    Target::Url {
        url: format!("http://{}/mcp", server.address())
            .parse()
            .expect("a URL"),
        headers: http::HeaderMap::new(),
        client: HttpClient::builder(Guard::public().allow_loopback())
            .deadlines(deadlines)
            .build()
            .expect("a client"),
    }
}

fn sh(script: &str) -> Target {
    Target::Program(Program::new("sh").argument("-c").argument(script))
}

fn quick() -> Options {
    Options {
        connect_timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

#[derive(Default)]
struct SubscriptionEvent(Mutex<Vec<String>>);

impl Listener for SubscriptionEvent {
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let said = format!("{progress} of {total:?}: {}", message.unwrap_or_default());
        self.0.lock().expect("not poisoned").push(said);
    }

    fn log(&self, level: &str, _: Option<&str>, data: &Value) {
        self.0
            .lock()
            .expect("not poisoned")
            .push(format!("{level}: {data}"));
    }
}

async fn uses_the_demo(client: &Client) {
    let tools = client.list("tools/list", "tools").await.expect("a list");
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(names.contains(&"echo"), "{names:?}");
    let calls = (0..20).map(|n| {
        let params = Params::new()
            .with("name", "echo")
            .with("arguments", json!({"message": format!("m{n}")}));
        client.request("tools/call", params, None, None)
    });
    for (n, result) in futures_util::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        let result: Value = serde_json::from_str(result.expect("a result").get()).expect("JSON");
        assert!(
            result["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains(&format!("m{n}"))),
            "{result}"
        );
    }
    let unknown = client
        .request("tools/call", Params::new().with("name", "nope"), None, None)
        .await;
    assert!(matches!(unknown, Err(ClientError::Rpc(error)) if error.code == -32602));
}

#[tokio::test]
async fn it_lists_and_calls_over_http_in_each_era() {
    let server = Serve::demo();
    for (lifecycle, revision) in [
        (Lifecycle::Auto, Revision::V2026_07_28),
        (Lifecycle::Modern, Revision::V2026_07_28),
        (Lifecycle::Legacy, Revision::V2025_11_25),
    ] {
        let options = Options {
            lifecycle,
            ..quick()
        };
        let client = Client::connect(over_http(&server), options)
            .await
            .expect("a connection");
        assert_eq!(client.revision(), revision);
        assert_eq!(client.server().revision, revision);
        assert_eq!(client.server().implementation.name, "test");
        uses_the_demo(&client).await;
        client.close(Duration::from_secs(1)).await;
    }
}

#[cfg(feature = "cli")]
#[tokio::test]
async fn it_lists_and_calls_a_program() {
    let program = Program::new(env!("CARGO_BIN_EXE_longshore"))
        .argument("run")
        .argument("--transport")
        .argument("stdio")
        .argument("--toolset")
        .argument("demo");
    let client = Client::connect(Target::Program(program), quick())
        .await
        .expect("a connection");
    assert_eq!(client.revision(), Revision::V2026_07_28);
    uses_the_demo(&client).await;
    client.close(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let server = Serve::new().toolset("everything").page_size(3).start();
    let client = Client::connect(over_http(&server), quick())
        .await
        .expect("a connection");
    let tools = client.list("tools/list", "tools").await.expect("a list");
    assert!(tools.len() > 3);
    let names: BTreeMap<&str, ()> = tools
        .iter()
        .filter_map(|tool| Some((tool["name"].as_str()?, ())))
        .collect();
    assert_eq!(names.len(), tools.len(), "each once");
}

/// Reports progress.
#[longshore::tool]
async fn steps(context: &longshore::CallContext) -> &'static str {
    context.progress(1.0, Some(2.0), "half").await;
    context.log(longshore::LogLevel::Error, "careful").await;
    "done"
}

#[tokio::test]
async fn what_is_said_about_a_call_is_heard_by_who_called() {
    let server = Serve::new().tool(steps).start();
    let client = Client::connect(over_http(&server), quick())
        .await
        .expect("a connection");
    let heard = Arc::new(SubscriptionEvent::default());
    let params = Params::new()
        .with("name", "steps")
        .with("arguments", json!({}));
    let result = client
        .request(
            "tools/call",
            params,
            Some(Arc::clone(&heard) as Arc<dyn Listener>),
            None,
        )
        .await
        .expect("a result");
    assert!(result.get().contains("done"), "{result}");
    let heard = heard.0.lock().expect("not poisoned").clone();
    assert_eq!(heard, ["1 of Some(2.0): half", "error: \"careful\""]);
}

#[tokio::test]
async fn a_session_that_ended_is_told_apart() {
    // The keys of the second server are others, so sessions of the first one mean nothing to it.
    let (first, second) = (Serve::demo(), Serve::demo());
    let balancer = RoundRobin::before(&[first.address()]);
    let options = Options {
        lifecycle: Lifecycle::Legacy,
        ..quick()
    };
    let client = Client::connect(over_http(balancer.front()), options).await;
    let client = client.expect("a connection");
    uses_the_demo(&client).await;
    balancer.replace(first.address(), second.address());
    let ended = client.list("tools/list", "tools").await;
    assert!(matches!(ended, Err(ClientError::SessionEnded)), "{ended:?}");
}

#[tokio::test]
async fn a_server_without_a_handshake_is_discovered() {
    let answers = r#"while read -r line; do
        case "$line" in
        *server/discover*) echo '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}' ;;
        *inputResponses*) echo '{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[]}}' ;;
        *protocolVersion*2026-07-28*) echo '{"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}}' ;;
        esac
    done"#;
    struct Asked;
    impl Listener for Asked {
        fn question(
            &self,
            method: String,
            _: Option<Box<serde_json::value::RawValue>>,
        ) -> futures_util::future::BoxFuture<'static, Result<Value, longshore::client::RpcError>>
        {
            assert_eq!(method, "roots/list");
            Box::pin(async { Ok(json!({"roots": []})) })
        }
    }
    let client = Client::connect(sh(answers), quick())
        .await
        .expect("a connection");
    assert_eq!(client.server().revision, Revision::V2026_07_28);
    let params = Params::new().with("name", "x");
    let result = client
        .request("tools/call", params, Some(Arc::new(Asked)), None)
        .await
        .expect("a result");
    assert!(result.get().contains("complete"), "{result}");
}

#[tokio::test]
async fn programs_that_misbehave_are_errors_that_say_what_they_did() {
    let refused = |target: Target| async move {
        let options = Options {
            message_bytes: 10_000,
            ..quick()
        };
        match Client::connect(target, options).await {
            Ok(_) => "connected".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    let missing = Target::Program(Program::new("no-such-mcp-server"));
    assert_eq!(
        refused(missing).await,
        "cannot start `no-such-mcp-server`: the program was not found; install it, or check PATH"
    );
    let line = Target::Program(Program::new("no-such-mcp-server --stdio"));
    assert_eq!(
        refused(line).await,
        "cannot start `no-such-mcp-server --stdio`: the program was not found; command is the program alone: write its arguments into args, one in each item"
    );
    assert_eq!(refused(sh("exit 1")).await, "it has ended (exit status: 1)");
    assert_eq!(
        refused(sh("kill -9 $$")).await,
        "it has ended (signal: 9 (SIGKILL))"
    );
    assert_eq!(
        refused(sh("cat /dev/zero")).await,
        "it does not speak MCP: a line of more than 10000 bytes"
    );
    assert_eq!(
        refused(sh(r#"read -r line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}'
            read -r line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"1999-01-01"}}'; cat"#)).await,
        "it does not speak MCP: it speaks revision \"1999-01-01\""
    );
}

#[tokio::test]
async fn a_greeting_before_the_first_message_is_ignored() {
    let client = Client::connect(
        sh(r#"echo Welcome; read -r line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32602}}'
            read -r line; echo '{"jsonrpc":"2.0","id":"2","result":{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"x","version":"0"}}}'; cat > /dev/null"#),
        quick(),
    )
    .await
    .expect("a connection");
    assert_eq!(client.server().revision, Revision::V2024_11_05);
    assert_eq!(client.garbage(), 1);
}

#[tokio::test]
async fn a_request_that_is_given_up_is_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = folder.path().join("seen");
    let script = format!(
        r#"read -r line; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-06-18","capabilities":{{}},"serverInfo":{{"name":"x","version":"0"}}}}}}'
        while read -r line; do echo "$line" >> {seen}; case "$line" in *last*) echo '{{"jsonrpc":"2.0","id":3,"result":{{}}}}' ;; esac; done"#,
        seen = seen.display()
    );
    let options = Options {
        lifecycle: Lifecycle::Legacy,
        ..quick()
    };
    let client = Client::connect(sh(&script), options)
        .await
        .expect("a connection");
    let limit = Some(Duration::from_millis(1));
    let given_up = client
        .request(
            "tools/call",
            Params::new().with("name", "slow"),
            None,
            limit,
        )
        .await;
    assert!(
        matches!(given_up, Err(ClientError::Timeout(_))),
        "{given_up:?}"
    );
    client
        .request("ping", Params::new().with("x", "last"), None, None)
        .await
        .expect("an answer");
    let seen = std::fs::read_to_string(seen).expect("it wrote");
    assert!(
        seen.contains(r#""method":"notifications/cancelled","params":{"requestId":2}"#),
        "{seen}"
    );
}
