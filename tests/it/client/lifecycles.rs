//! Detection of a server's protocol lifecycle, and the cache of the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore::client::{Events, LifecycleCache};
use serde_json::Value;

use super::*;
use crate::support::{Asked, Site, Told, becomes_so};

fn to(url: &str) -> Target {
    let deadlines = Deadlines {
        total: None,
        ..Deadlines::default()
    };
    Target::Url {
        url: url.parse().expect("a URL"),
        headers: http::HeaderMap::new(),
        client: HttpClient::builder(Guard::public().allow_loopback())
            .deadlines(deadlines)
            .build()
            .expect("a client"),
    }
}

fn message(asked: &Asked) -> Value {
    serde_json::from_str(&asked.body).unwrap_or_default()
}

fn method(asked: &Asked) -> String {
    message(asked)["method"].as_str().unwrap_or("-").to_owned()
}

fn error(asked: &Asked, status: u16, code: i64) -> Told {
    let id = message(asked)["id"].clone();
    Told::json(
        status,
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}),
    )
}

fn result(asked: &Asked, result: Value) -> Told {
    let id = message(asked)["id"].clone();
    Told::json(200, json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// A legacy server, but for `server/discover`.
fn legacy(asked: &Asked, revision: &str) -> Told {
    match method(asked).as_str() {
        "initialize" => {
            assert_eq!(asked.headers.get("mcp-protocol-version"), None);
            assert_eq!(asked.headers.get("mcp-method"), None);
            assert_eq!(message(asked)["params"].get("_meta"), None);
            assert_eq!(message(asked)["params"]["protocolVersion"], revision);
            result(
                asked,
                json!({"protocolVersion": revision, "capabilities": {}, "serverInfo": {"name": "x", "version": "0"}}),
            )
        }
        "ping" => result(asked, json!({})),
        "-" => Told::json(405, json!({})),
        _ => Told::json(202, json!({})),
    }
}

/// A modern server.
fn modern(asked: &Asked) -> Told {
    let known = asked
        .headers
        .get("mcp-protocol-version")
        .map(String::as_str);
    if known != Some("2026-07-28") {
        return error(asked, 400, -32020);
    }
    assert_eq!(asked.headers.get("mcp-method"), Some(&method(asked)));
    let meta = &message(asked)["params"]["_meta"];
    for (member, value) in [
        ("protocolVersion", json!("2026-07-28")),
        ("clientCapabilities", json!({})),
    ] {
        assert_eq!(meta[format!("io.modelcontextprotocol/{member}")], value);
    }
    assert_eq!(
        meta["io.modelcontextprotocol/clientInfo"]["name"],
        "longshore"
    );
    match method(asked).as_str() {
        "server/discover" => result(
            asked,
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"prompts": {}}, "ttlMs": 0, "cacheScope": "public"}),
        ),
        "prompts/list" => result(asked, json!({"resultType": "complete", "prompts": []})),
        _ => error(asked, 404, -32601),
    }
}

fn methods(site: &Site) -> Vec<String> {
    let asked = site.asked("/mcp");
    let posted = asked.iter().filter(|asked| asked.method == "POST");
    posted.map(method).collect()
}

/// The revision that is spoken with a server that answers so.
async fn spoken(
    answer: impl Fn(&Asked) -> Told + Send + Sync + 'static,
) -> Result<Revision, ClientError> {
    let site = Site::start(move |_, asked| answer(asked));
    let connected = Client::connect(to(&format!("{}/mcp", site.url)), quick()).await;
    connected.map(|client| client.revision())
}

#[tokio::test]
async fn old_servers_are_spoken_to_however_they_refuse_the_probe() {
    let plain = |status| move |_: &Asked| Told::json(status, json!({"detail": "?"}));
    let coded = |status, code| move |asked: &Asked| error(asked, status, code);
    let without_id = |_: &Asked| {
        let error = json!({"code": -32000, "message": "Bad Request: Server not initialized"});
        Told::json(400, json!({"jsonrpc": "2.0", "error": error, "id": null}))
    };
    let refusals: Vec<Box<dyn Fn(&Asked) -> Told + Send + Sync>> = vec![
        Box::new(plain(400)),
        Box::new(plain(404)),
        Box::new(plain(405)),
        Box::new(plain(403)),
        Box::new(plain(500)),
        Box::new(plain(202)),
        Box::new(plain(200)),
        Box::new(coded(200, -32601)),
        Box::new(coded(200, -32602)),
        Box::new(coded(200, -32002)),
        Box::new(coded(400, -32600)),
        Box::new(coded(400, -32000)),
        Box::new(coded(404, -32601)),
        Box::new(coded(405, -32600)),
        Box::new(without_id),
        Box::new(|asked: &Asked| result(asked, json!({}))),
    ];
    for refusal in refusals {
        let revision = spoken(move |asked| match method(asked).as_str() {
            "server/discover" => refusal(asked),
            _ => legacy(asked, "2025-11-25"),
        });
        assert_eq!(revision.await.expect("spoken"), Revision::V2025_11_25);
    }
}

#[tokio::test]
async fn a_modern_refusal_leads_to_a_version_of_both() {
    let unsupported = |asked: &Asked, supported: Value| {
        let id = message(asked)["id"].clone();
        let error = json!({"code": -32022, "message": "no", "data": {"supported": supported}});
        Told::json(400, json!({"jsonrpc": "2.0", "id": id, "error": error}))
    };
    let first = AtomicBool::new(true);
    let revision = spoken(move |asked| match first.swap(false, Ordering::SeqCst) {
        true => unsupported(asked, json!(["2026-07-28"])),
        false => modern(asked),
    });
    assert_eq!(revision.await.expect("spoken"), Revision::V2026_07_28);

    let revision = spoken(move |asked| match method(asked).as_str() {
        "server/discover" => unsupported(asked, json!(["2030-01-01", "2025-06-18"])),
        _ => legacy(asked, "2025-06-18"),
    });
    assert_eq!(revision.await.expect("spoken"), Revision::V2025_06_18);

    let refused = spoken(move |asked| {
        assert_ne!(method(asked), "initialize");
        unsupported(asked, json!(["2030-01-01"]))
    });
    assert_eq!(
        refused.await.expect_err("refused").to_string(),
        "it does not speak MCP: it speaks only revisions [\"2030-01-01\"]"
    );
    let refused = spoken(move |asked| {
        assert_ne!(method(asked), "initialize");
        error(asked, 400, -32021)
    });
    assert!(matches!(refused.await, Err(ClientError::Rpc(error)) if error.code == -32021));
}

#[tokio::test]
async fn a_modern_server_need_not_refuse_initialize_well() {
    let revision = spoken(|asked| match method(asked).as_str() {
        "initialize" => error(asked, 400, -32000),
        _ => modern(asked),
    });
    assert_eq!(revision.await.expect("spoken"), Revision::V2026_07_28);
}

#[tokio::test]
async fn who_has_to_log_in_is_told_so_and_not_probed_further() {
    let site = Site::start(|_, _| {
        Told::json(401, json!({})).header("www-authenticate", "Bearer scope=\"a\"")
    });
    let refused = Client::connect(to(&format!("{}/mcp", site.url)), quick()).await;
    assert!(matches!(refused, Err(ClientError::Unauthorized { .. })));
    assert_eq!(methods(&site), ["server/discover"]);
}

#[tokio::test]
async fn who_has_to_log_in_to_a_stream_of_http_sse_is_told_so() {
    let site = Site::start(|_, asked| match &*asked.method {
        "GET" => Told::json(401, json!({})).header("www-authenticate", "Bearer realm=\"a\""),
        _ => Told::json(405, json!({})),
    });
    let refused = Client::connect(to(&format!("{}/sse", site.url)), quick()).await;
    assert!(
        matches!(&refused, Err(ClientError::Unauthorized { challenge }) if challenge == "Bearer realm=\"a\""),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_error_in_json_of_a_server_without_mcp_is_reported_with_its_status() {
    for (status, reported) in [
        (
            404,
            "HTTP 404: Not Found; the server may not speak MCP at this URL: check the URL, whose path is often /mcp (-32603)",
        ),
        (503, "HTTP 503: Not Found (-32603)"),
    ] {
        let site = Site::start(move |_, _| Told::json(status, json!({"error": "Not Found"})));
        let refused = Client::connect(to(&format!("{}/mcp", site.url)), quick()).await;
        let refused = refused.expect_err("no MCP");
        assert!(matches!(refused, ClientError::Rpc(_)), "{refused:?}");
        assert_eq!(refused.to_string(), reported);
    }
}

#[tokio::test]
async fn what_is_remembered_of_a_server_is_not_asked_again_until_it_fails() {
    let is_modern = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&is_modern);
    let site = Site::start(
        move |_, asked| match (now.load(Ordering::SeqCst), &*method(asked)) {
            (true, _) => modern(asked),
            (false, "server/discover" | "prompts/list") => error(asked, 400, -32600),
            (false, _) => legacy(asked, "2025-11-25"),
        },
    );
    let options = Options {
        lifecycle_cache: LifecycleCache::default(),
        ..quick()
    };
    let connect = async || {
        let target = to(&format!("{}/mcp", site.url));
        let before = methods(&site).len();
        let client = Client::connect(target, options.clone()).await;
        (
            client.expect("a connection"),
            methods(&site).split_off(before),
        )
    };
    let (_, asked) = connect().await;
    let handshake = ["initialize", "notifications/initialized"];
    assert_eq!(asked, [&["server/discover"], &handshake[..]].concat());
    let (_, asked) = connect().await;
    assert_eq!(asked, handshake);
    is_modern.store(true, Ordering::SeqCst);
    let (_, asked) = connect().await;
    assert_eq!(asked, ["initialize", "server/discover"]);
    let (client, asked) = connect().await;
    assert_eq!(asked, ["server/discover"]);
    client
        .list("prompts/list", "prompts")
        .await
        .expect("a list");
    // An older version of the server is put in its place.
    is_modern.store(false, Ordering::SeqCst);
    let refused = client.list("prompts/list", "prompts").await;
    // The server still responds to the request, so this is a response error.
    assert!(matches!(refused, Err(ClientError::Rpc(_))), "{refused:?}");
}

#[tokio::test]
async fn a_server_that_leaves_its_era_ends_the_connection_and_not_one_that_refuses_a_request() {
    let state = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&state);
    let site = Site::start(move |_, asked| {
        let nobody = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Missing session ID"}});
        match (now.load(Ordering::SeqCst), &*method(asked)) {
            (0, _) | (1, "server/discover") => modern(asked),
            (1, _) => Told::json(400, nobody),
            (_, "initialize" | "notifications/initialized" | "-") => legacy(asked, "2025-11-25"),
            _ => Told::json(400, nobody),
        }
    });
    let options = quick();
    let url = format!("{}/mcp", site.url);
    let client = Client::connect(to(&url), options.clone())
        .await
        .expect("a connection");
    state.store(1, Ordering::SeqCst);
    let refused = client.list("prompts/list", "prompts").await;
    assert!(
        matches!(&refused, Err(ClientError::Rpc(error)) if error.code == -32600),
        "{refused:?}"
    );
    state.store(2, Ordering::SeqCst);
    let refused = client.list("prompts/list", "prompts").await;
    let refused = refused.expect_err("refused");
    assert!(
        matches!(refused, ClientError::RevisionRefused { .. }),
        "{refused}"
    );
    assert!(refused.ends_connection() && !refused.may_have_happened());
    let client = Client::connect(to(&url), options).await;
    assert_eq!(
        client.expect("a connection").revision(),
        Revision::V2025_11_25
    );
}

#[tokio::test]
async fn the_era_may_be_said_where_a_server_cannot_bear_the_probe() {
    let site = Site::start(|_, asked| {
        assert_ne!(method(asked), "server/discover");
        legacy(asked, "2025-11-25")
    });
    let options = |lifecycle| Options {
        lifecycle,
        ..quick()
    };
    let url = format!("{}/mcp", site.url);
    let client = Client::connect(to(&url), options(Lifecycle::Legacy)).await;
    assert_eq!(
        client.expect("a connection").revision(),
        Revision::V2025_11_25
    );
    let site = Site::start(|_, asked| match &*method(asked) {
        "server/discover" => error(asked, 200, -32601),
        _ => unreachable!("only 2026-07-28 is allowed"),
    });
    let url = format!("{}/mcp", site.url);
    let refused = Client::connect(to(&url), options(Lifecycle::Modern)).await;
    let refused = refused.expect_err("refused").to_string();
    assert!(refused.contains("protocol is modern"), "{refused}");
}

#[tokio::test]
async fn its_own_http_sse_can_be_used_though_it_refuses_in_json_rpc() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            c.http.legacy_sse = true;
        })
        .start();
    let options = quick();
    for _ in 0..2 {
        let url = format!("http://{}/sse", server.address());
        let client = Client::connect(to(&url), options.clone())
            .await
            .expect("a connection");
        assert!(client.revision().has_sessions());
        uses_the_demo(&client).await;
    }
}

/// A legacy program that puts down what it is asked. `unknown` is what it does with anything else than it knows.
fn program(folder: &std::path::Path, unknown: &str) -> Target {
    sh(&format!(
        r#"echo started >> {folder}/seen
        while read -r line; do
            echo "$line" | sed 's/.*"method":"\([a-z/]*\)".*/\1/' >> {folder}/seen
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            case "$line" in
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2025-06-18","capabilities":{{}},"serverInfo":{{"name":"x","version":"0"}}}}}}' ;;
            *'"ping"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{}}}}' ;;
            *notifications/*) : ;;
            *) {unknown} ;;
            esac
        done"#,
        folder = folder.display()
    ))
}

/// Returns the lines that a program has recorded after a ping, which follows all earlier messages.
async fn seen(folder: &std::path::Path, client: &Client) -> Vec<String> {
    let ping = client.request("ping", Params::new(), None, None).await;
    ping.expect("an answer");
    let text = std::fs::read_to_string(folder.join("seen")).expect("it wrote");
    std::fs::remove_file(folder.join("seen")).expect("removed");
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_program_that_ends_at_the_probe_is_started_once_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = quick();
    let connect = async || {
        let target = program(folder.path(), "exit 1");
        let client = Client::connect(target, options.clone())
            .await
            .expect("a connection");
        assert_eq!(client.revision(), Revision::V2025_06_18);
        seen(folder.path(), &client).await
    };
    let handshake = ["started", "initialize", "notifications/initialized", "ping"];
    assert_eq!(
        connect().await,
        [&["started", "server/discover"], &handshake[..]].concat()
    );
    assert_eq!(connect().await, handshake, "it is remembered");
}

#[tokio::test]
async fn a_program_that_never_answers_the_probe_is_waited_for_only_so_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        connect_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    let connect = async || {
        let client = Client::connect(program(folder.path(), ":"), options.clone())
            .await
            .expect("a connection");
        assert_eq!(client.revision(), Revision::V2025_06_18);
        seen(folder.path(), &client).await
    };
    let rest = ["initialize", "notifications/initialized", "ping"];
    assert_eq!(
        connect().await,
        [&["started", "server/discover"], &rest[..]].concat()
    );
    assert_eq!(connect().await, [&["started"], &rest[..]].concat());
}

struct WantsChanges;

impl Events for WantsChanges {}

/// mcp-go reads nothing more from standard input until the subscription ends.
#[tokio::test]
async fn a_program_that_does_not_respond_while_it_has_a_subscription_is_started_again_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let discovered = json!({"resultType": "complete", "supportedVersions": ["2026-07-28", "2025-06-18"],
        "capabilities": {"tools": {"listChanged": true}}});
    let unknown = format!(
        r#"case "$line" in
            *server/discover*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{discovered}}}' ;;
            *) exec sleep 60 ;;
            esac"#
    );
    let options = |lifecycle| Options {
        connect_timeout: Duration::from_secs(5),
        events: Some(Arc::new(WantsChanges)),
        lifecycle,
        ..Options::default()
    };
    let auto = options(Lifecycle::Auto);
    let connect = async || {
        let client = Client::connect(program(folder.path(), &unknown), auto.clone())
            .await
            .expect("a connection");
        assert_eq!(client.revision(), Revision::V2025_06_18);
        seen(folder.path(), &client).await
    };
    let handshake = ["started", "initialize", "notifications/initialized", "ping"];
    assert_eq!(
        connect().await,
        [
            &["started", "server/discover", "subscriptions/listen"],
            &handshake[..]
        ]
        .concat()
    );
    assert_eq!(connect().await, handshake, "it is remembered");
    let modern = options(Lifecycle::Modern);
    let refused = Client::connect(program(folder.path(), &unknown), modern).await;
    let refused = refused.expect_err("refused").to_string();
    assert!(refused.contains("protocol is modern"), "{refused}");
    let only_modern = unknown.replace("2025-06-18", "2026-07-28");
    let refused = Client::connect(
        program(folder.path(), &only_modern),
        options(Lifecycle::Auto),
    )
    .await;
    let refused = refused.expect_err("refused").to_string();
    assert!(refused.contains("no revision without that"), "{refused}");
    let of_resources = unknown.replace(
        r#"{"tools":{"listChanged":true}}"#,
        r#"{"resources":{"subscribe":true}}"#,
    );
    assert_ne!(of_resources, unknown);
    let target = program(folder.path(), &of_resources);
    let client = Client::connect(target, options(Lifecycle::Auto)).await;
    let client = client.expect("a connection");
    assert_eq!(client.revision(), Revision::V2025_06_18);
}

#[tokio::test]
async fn redirects_within_an_origin_are_followed() {
    let site = Site::start(|_, asked| {
        let location = match &*asked.target {
            "/mcp" => "/mcp/",
            "/away" => "http://127.0.0.9:9/mcp?secret=1",
            "/loop" => "/loop",
            _ => return legacy(asked, "2025-11-25"),
        };
        Told::json(307, Value::Null).header("location", location)
    });
    let connect = async |path: &str| {
        let target = to(&format!("{}{path}", site.url));
        Client::connect(target, Options::default()).await
    };
    assert!(connect("/mcp").await.is_ok());
    let away = connect("/away").await.expect_err("another origin");
    assert_eq!(
        away.to_string(),
        "it redirects to http://127.0.0.9:9/mcp; if that is the server, use that URL"
    );
    let endless = connect("/loop").await.expect_err("endless");
    assert!(endless.to_string().contains("/loop"), "{endless}");
}

/// A server with a session, which it does not know any more at a `ping`.
fn with_session() -> Site {
    Site::start(|_, asked| match method(asked).as_str() {
        "ping" => error(asked, 404, -32001),
        _ => legacy(asked, "2025-11-25").header("mcp-session-id", "s1"),
    })
}

fn ended(site: &Site) -> usize {
    let asked = site.asked("/mcp").into_iter();
    let deleted = asked.filter(|asked| asked.method == "DELETE");
    deleted
        .inspect(|asked| assert_eq!(asked.headers["mcp-session-id"], "s1"))
        .count()
}

#[tokio::test]
async fn lh_09_a_session_is_ended_once_however_its_connection_ends() {
    let options = || Options {
        lifecycle: Lifecycle::Legacy,
        ..quick()
    };
    let (closed, dropped, lost) = (with_session(), with_session(), with_session());
    let connect = |site: &Site| Client::connect(to(&format!("{}/mcp", site.url)), options());
    let client = connect(&closed).await.expect("a connection");
    client.close(Duration::from_secs(20)).await;
    assert_eq!(ended(&closed), 1);
    let client = connect(&lost).await.expect("a connection");
    let gone = client.request("ping", Params::new(), None, None).await;
    assert!(matches!(gone, Err(ClientError::SessionEnded)), "{gone:?}");
    drop(client);
    drop(connect(&dropped).await.expect("a connection"));
    becomes_so(|| async { ended(&dropped) == 1 }).await;
    assert_eq!((ended(&closed), ended(&lost)), (1, 0));
}

#[tokio::test]
async fn a_redirect_of_the_stream_alone_is_followed() {
    struct Changes(AtomicBool);

    impl Events for Changes {
        fn list_changed(&self, list: &str) {
            assert_eq!(list, "tools");
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let site = Site::start(|url, asked| match (&*asked.method, &*asked.target) {
        ("GET", "/mcp") => {
            Told::json(307, json!({})).header("location", &format!("{url}/mcp/stream"))
        }
        ("GET", "/mcp/stream") => Told::events(
            &[json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})],
            Some("retry: 600000"),
        ),
        _ => legacy(asked, "2025-11-25"),
    });
    let changes = Arc::new(Changes(AtomicBool::new(false)));
    let options = Options {
        lifecycle: Lifecycle::Legacy,
        events: Some(Arc::clone(&changes) as _),
        ..quick()
    };
    let client = Client::connect(to(&format!("{}/mcp", site.url)), options).await;
    let _client = client.expect("a connection");
    becomes_so(|| async { changes.0.load(Ordering::Relaxed) }).await;
}
