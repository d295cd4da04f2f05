//! Results that are too large to be sent.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use longshore::source::{Artifact, ArtifactFuture, ArtifactStore};
use longshore::{App, Config};
use serde_json::{Value, json};

use crate::support::{FakeS3, Running, Serve};

/// A server with a command whose result has 5000 bytes.
fn serve(folder: Option<&std::path::Path>) -> Serve {
    let source = json!({"name": "c", "command": {"tools": [
        {"name": "large", "description": "Says much.", "argv": ["sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x"]},
        {"name": "small", "description": "Says little.", "argv": ["echo", "hello"]},
    ]}});
    Serve::new().shared_key().configured(|c| {
        c.sources = vec![serde_json::from_value(source).expect("valid")];
        c.artifacts.above_bytes = Some(1000);
        c.artifacts.folder = folder.map(Into::into);
        crate::auth::with_keys(c);
    })
}

fn ask(server: &Running, key: &str, method: &str, params: Value) -> crate::support::Response {
    crate::support::Stateless::new(method, params)
        .and("authorization", &crate::auth::bearer(key))
        .send(server)
}

#[test]
fn a_large_result_is_a_link_for_its_caller_on_every_replica() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = [(); 2].map(|()| serve(Some(folder.path())).start());
    let call = |name: &str| {
        let params = json!({"name": name, "arguments": {}});
        ask(&servers[0], crate::auth::CI, "tools/call", params).result()
    };
    assert_eq!(call("small")["content"].as_array().map(Vec::len), Some(1));
    let result = call("large");
    let said = result["content"][0]["text"].as_str().expect("a text");
    assert!(said.starts_with("The result has 5000 bytes") && said.len() < 2000);
    let link = &result["content"][1];
    assert_eq!(link["type"], "resource_link");
    assert!(
        said.contains(link["uri"].as_str().expect("a URI")),
        "{said}"
    );
    let uri = json!({"uri": link["uri"]});
    for server in &servers {
        let read = ask(server, crate::auth::CI, "resources/read", uri.clone()).result();
        let text = read["contents"][0]["text"].as_str().expect("a text");
        assert_eq!(text.len(), 5000);
        let refused = ask(server, crate::auth::BOB, "resources/read", uri.clone());
        assert!(refused.json().get("error").is_some(), "it is not bob's");
    }
}

#[test]
fn a_link_is_read_where_the_tool_was_called() {
    let server = serve(None)
        .configured(|c| {
            for (name, selected) in [
                ("some", json!({"tools": ["large"]})),
                (
                    "named",
                    json!({"tools": ["large"], "resources": ["artifact://*"]}),
                ),
                ("none", json!({"prompts": ["*"]})),
            ] {
                let endpoint = serde_json::from_value(selected).expect("valid");
                c.endpoints.insert(name.to_owned(), endpoint);
            }
        })
        .start();
    let ask_at = |endpoint: &str, method: &str, params: Value| {
        let request = crate::support::Stateless::new(method, params)
            .and("authorization", &crate::auth::bearer(crate::auth::CI));
        let path = format!("POST /mcp/{endpoint} ");
        let text = request.text().replacen("POST /mcp ", &path, 1);
        server.connect().send(text).receive()
    };
    for name in ["some", "named"] {
        let params = json!({"name": "large", "arguments": {}});
        let result = ask_at(name, "tools/call", params).result();
        let uri = json!({"uri": result["content"][1]["uri"]});
        let read = ask_at(name, "resources/read", uri).result();
        let text = read["contents"][0]["text"].as_str().expect("a text");
        assert_eq!(text.len(), 5000, "{name}");
        let listed = ask_at(name, "resources/templates/list", json!({})).result();
        let templates = listed["resourceTemplates"].as_array();
        assert_eq!(templates.map(Vec::len), Some(1), "{name}");
    }
    let listed = ask_at("none", "resources/templates/list", json!({}));
    assert_eq!(listed.json()["error"]["code"], -32601);
}

#[test]
fn without_a_setting_nothing_is_kept() {
    let server = serve(None)
        .configured(|c| c.artifacts.above_bytes = None)
        .start();
    let params = json!({"name": "large", "arguments": {}});
    let result = ask(&server, crate::auth::CI, "tools/call", params).result();
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert_eq!(text.len(), 5000);
}

/// Two servers that keep large results in the same bucket.
fn serve_s3(store: &FakeS3) -> [Running; 2] {
    let s3 = json!({
        "bucket": "results", "endpoint": store.endpoint(), "region": "eu-central-1", "prefix": "of/longshore/",
        "access_key_id": "AKIATEST", "secret_access_key": "s3cr3t+of/the=store", "timeout_seconds": 2, "retries": 0,
        "bulkhead": {"breaker_failures": 3, "breaker_pause_ms": 60000},
    });
    [(); 2].map(|()| {
        let s3 = serde_json::from_value(s3.clone()).expect("valid");
        serve(None).configured(|c| c.artifacts.s3 = s3).start()
    })
}

fn metrics(server: &Running) -> String {
    let proof = crate::auth::bearer(crate::auth::CI);
    let text =
        format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: {proof}\r\n\r\n");
    server.connect().send(&text).receive().body
}

#[test]
fn a_large_result_in_a_bucket_is_a_link_for_its_caller_on_every_replica() {
    let store = FakeS3::start();
    let servers = serve_s3(&store);
    let params = json!({"name": "large", "arguments": {}});
    let result = ask(&servers[0], crate::auth::CI, "tools/call", params).result();
    let uri = json!({"uri": result["content"][1]["uri"]});
    let objects = store.objects();
    let (path, object) = &objects[0];
    assert!(
        path.starts_with("/results/of/longshore/") && path.ends_with(".artifact"),
        "{path}"
    );
    assert_eq!(object.body.len(), 5000);
    assert_eq!(object.headers["content-type"], "text/plain; charset=utf-8");
    assert!(object.headers["x-amz-meta-expires"].parse::<u64>().is_ok());
    for server in &servers {
        let read = ask(server, crate::auth::CI, "resources/read", uri.clone()).result();
        assert_eq!(
            read["contents"][0]["text"].as_str().map(str::len),
            Some(5000)
        );
        assert_eq!(read["contents"][0]["mimeType"], "text/plain; charset=utf-8");
        let refused = ask(server, crate::auth::BOB, "resources/read", uri.clone());
        assert!(refused.json().get("error").is_some(), "it is not bob's");
    }
    assert_eq!(
        store.seen(),
        (3, 0),
        "each was signed, and bob's were not asked"
    );
}

#[test]
fn a_store_that_fails_keeps_no_result_from_its_caller_and_is_left_alone() {
    let store = FakeS3::start();
    let servers = serve_s3(&store);
    let call = || {
        let params = json!({"name": "large", "arguments": {}});
        ask(&servers[0], crate::auth::CI, "tools/call", params).result()
    };
    let link = call()["content"][1]["uri"].clone();
    store.fail(true);
    for _ in 0..2 {
        let whole = call();
        assert_eq!(
            whole["content"][0]["text"].as_str().map(str::len),
            Some(5000)
        );
    }
    let read = ask(
        &servers[0],
        crate::auth::CI,
        "resources/read",
        json!({"uri": link}),
    );
    let error = read.json()["error"]["message"].to_string();
    assert!(
        error.contains("try again later") && !error.contains("127.0.0.1"),
        "{error}"
    );
    // The third failure in a row was the last that was asked for.
    store.fail(false);
    let whole = call();
    assert_eq!(whole["content"].as_array().map(Vec::len), Some(1));
    assert_eq!(store.seen(), (1, 0));
}

#[test]
fn a_bucket_that_is_gone_is_not_a_missing_result() {
    let store = FakeS3::start();
    let servers = serve_s3(&store);
    let params = json!({"name": "large", "arguments": {}});
    let result = ask(&servers[0], crate::auth::CI, "tools/call", params).result();
    let uri = json!({"uri": result["content"][1]["uri"]});
    store.lose();
    let read = ask(&servers[0], crate::auth::CI, "resources/read", uri);
    let error = read.json()["error"]["message"].to_string();
    assert!(error.contains("try again later"), "{error}");
}

#[test]
fn what_becomes_of_large_results_and_of_requests_to_sources_is_counted() {
    let store = FakeS3::start();
    let servers = serve_s3(&store);
    let server = &servers[0];
    for name in ["large", "small"] {
        let params = json!({"name": name, "arguments": {}});
        ask(server, crate::auth::CI, "tools/call", params).result();
    }
    let metrics = metrics(server);
    for line in [
        r#"longshore_artifacts_total{outcome="kept"} 1"#,
        r#"longshore_artifacts_total{outcome="refused"} 0"#,
        r#"longshore_upstream_requests_total{upstream="artifacts",kind="artifacts"} 1"#,
        r#"longshore_upstream_retries_total{upstream="artifacts",kind="artifacts"} 0"#,
        r#"longshore_upstream_requests_total{upstream="large",kind="command"} 1"#,
        r#"longshore_upstream_waiting_requests{upstream="small",kind="command"} 0"#,
        r#"longshore_upstream_breaker{upstream="small",kind="command"} 0"#,
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} is not in {metrics}"
        );
    }
}

#[test]
fn a_bucket_that_cannot_be_used_is_told_at_start() {
    for (s3, part) in [
        (
            json!({"bucket": "a/b"}),
            "artifacts.s3.bucket cannot be used",
        ),
        (
            json!({"bucket": "b", "access_key_id": "x"}),
            "artifacts.s3.secret_access_key cannot be used; access_key_id is set without secret_access_key; set both",
        ),
    ] {
        let mut config = longshore::Config::default();
        config.artifacts.above_bytes = Some(1000);
        config.artifacts.s3 = serde_json::from_value(s3).expect("valid");
        config.toolsets = vec!["demo".to_owned()];
        let error = longshore::App::new().config(config).harness().map(drop);
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// A store as an application may have one, which can be asked what it was given.
#[derive(Clone, Debug, Default)]
struct ItemKind(Arc<Mutex<HashMap<String, Artifact>>>);

impl ArtifactStore for ItemKind {
    fn put<'a>(
        &'a self,
        key: &'a str,
        artifact: Artifact,
        now: SystemTime,
    ) -> ArtifactFuture<'a, ()> {
        assert!(now < artifact.expires);
        let mut shelf = self.0.lock().expect("no panics");
        shelf.insert(key.to_owned(), artifact);
        Box::pin(ready(Ok(())))
    }

    fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>> {
        let found = self.0.lock().expect("no panics").get(key).cloned();
        Box::pin(ready(Ok(found)))
    }
}

#[test]
fn an_application_keeps_large_results_where_it_likes() {
    let shelf = ItemKind::default();
    let servers = [(); 2].map(|()| {
        let shelf = shelf.clone();
        serve(None).app(|app| app.artifact_store(shelf)).start()
    });
    let params = json!({"name": "large", "arguments": {}});
    let result = ask(&servers[0], crate::auth::CI, "tools/call", params).result();
    let (key, artifact) = {
        let shelf = shelf.0.lock().expect("no panics");
        assert_eq!(shelf.len(), 1);
        let (key, artifact) = shelf.iter().next().expect("one");
        (key.clone(), artifact.clone())
    };
    assert_eq!(key.len(), 32);
    assert!(key.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(artifact.bytes.len(), 5000);
    assert_eq!(artifact.media_type, "text/plain; charset=utf-8");
    let link = result["content"][1]["uri"].as_str().expect("a link");
    assert!(!link.contains(&key), "a link says nothing of its key");
    let uri = json!({ "uri": link });
    let read = ask(&servers[1], crate::auth::CI, "resources/read", uri.clone()).result();
    let text = read["contents"][0]["text"].as_str().expect("a text");
    assert_eq!(text.len(), 5000);
    shelf.0.lock().expect("no panics").clear();
    let gone = ask(&servers[1], crate::auth::CI, "resources/read", uri);
    assert_eq!(gone.json()["error"]["code"], -32602);
}

#[test]
fn settings_of_another_store_are_refused_where_there_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = App::new().artifact_store(ItemKind::default());
    let mut config = Config::default();
    config.artifacts.folder = Some(folder.path().to_owned());
    config.http.port = 0;
    let error = crate::support::bind(app.config(config))
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("artifacts.folder") && error.contains("artifacts has no effect, because the application has its own store; remove the setting"),
        "{error}"
    );
}
