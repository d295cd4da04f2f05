use super::*;

fn of(text: &str) -> UpstreamConfig {
    serde_json::from_str(text).expect("valid")
}

fn refused(text: &str) -> String {
    of(text).target("x").expect_err("refused").to_string()
}

#[test]
fn entries_of_other_products_can_be_used_as_they_are() {
    let stdio = of(
        r#"{"type": "stdio", "command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "s3cret"}, "alwaysAllow": ["a"], "autoApprove": [], "transportType": "stdio", "disabled": false}"#,
    );
    let Ok(Target::Program(program)) = stdio.target("x") else {
        panic!("a program");
    };
    assert_eq!(program.arguments, ["-y", "server"]);
    assert_eq!(program.environment[std::ffi::OsStr::new("TOKEN")], "s3cret");
    assert!(!format!("{stdio:?}{program:?}").contains("s3cret"));
    let http =
        of(r#"{"url": "http://localhost:1/mcp", "headers": {"Authorization": "Bearer s3cret"}}"#);
    let target = http.target("x").expect("a URL");
    assert!(!format!("{http:?}{target:?}").contains("s3cret"));
}

#[test]
fn names_of_settings_in_other_products_are_known() {
    let entry = of(
        r#"{"httpUrl": "http://a/b", "includeTools": ["a"], "disabledTools": ["b"], "type": "http", "transport": "http"}"#,
    );
    assert_eq!(entry.url.as_deref(), Some("http://a/b"));
    assert_eq!(
        (entry.tools, entry.exclude_tools),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
}

#[test]
fn entries_that_match_no_tool_are_found() {
    let entry = of(
        r#"{"url": "http://a/b", "tools": ["get*", "lst", "*"], "exclude_tools": ["drop", "get_b"]}"#,
    );
    let tools = ["get_a", "get_b"].map(|name| serde_json::json!({ "name": name }));
    assert_eq!(
        entry.unmatched(&tools),
        [("tools", "lst"), ("exclude_tools", "drop")]
    );
    let all = of(r#"{"tools": ["*"]}"#);
    assert!(all.unmatched(&[]).is_empty());
}

#[test]
fn lists_are_those_of_one_identity() {
    let texts = [
        r#"{"url": "http://a/b"}"#,
        r#"{"url": "http://a/b", "auth": {"bearer": "s3cret"}}"#,
        r#"{"url": "http://a/b", "auth": {"bearer": "other"}}"#,
        r#"{"url": "http://a/b", "auth": {"header": {"name": "x-key", "value": "s3cret"}}}"#,
        r#"{"url": "http://a/b", "auth": {"login": true}}"#,
        r#"{"url": "http://a/b", "listing_auth": {"bearer": "s3cret"}}"#,
        r#"{"url": "http://a/b", "forward": {"headers": {"x-user": "{{ caller.name }}"}}}"#,
    ];
    let all: std::collections::BTreeSet<String> =
        texts.iter().map(|text| of(text).fingerprint()).collect();
    assert_eq!(all.len(), texts.len());
}

#[test]
fn what_cannot_be_is_told_with_its_place() {
    assert_eq!(
        refused("{}"),
        "upstreams.x: it needs a command to start, or the url of its endpoint"
    );
    assert_eq!(
        refused(r#"{"command": "a", "url": "http://b"}"#),
        "upstreams.x: it has a command and a URL; leave one of them out"
    );
    for url in ["weather", "localhost:3000/mcp"] {
        assert_eq!(
            refused(&format!(r#"{{"url": "{url}"}}"#)),
            "upstreams.x.url: it is not a valid URL; write it whole: https://host/path, or http://host:port/path"
        );
    }
    assert!(refused(r#"{"url": "ftp://a/b"}"#).starts_with("upstreams.x.url: "));
    assert_eq!(
        refused(r#"{"url": "http://a/b", "headers": {"a b": "c"}}"#),
        "upstreams.x.headers: \"a b\" is not a valid header name"
    );
    let copied = of(r#"{"url": "http://a/b", "headers": {"Connection": "close", "x-a": "b"}}"#);
    let headers = copied.header_map("x").expect("headers");
    assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-a"]);
}

#[tokio::test]
async fn large_responses_take_memory() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n");
        let _ = stream.write_all(&[b'x'; 200_000]);
    });
    let memory = MemoryBudget::default();
    memory.set_room(1);
    let config = of(&format!(r#"{{"url": "http://{address}/mcp"}}"#));
    let Ok(Target::Url { url, client, .. }) = config.target_within("x", &memory) else {
        panic!("a URL");
    };
    let response = client.fetch(crate::net::OutgoingRequest::get(url)).await;
    let error = response.expect_err("no memory").to_string();
    assert!(error.contains("limits.memory_bytes"), "{error}");
}
