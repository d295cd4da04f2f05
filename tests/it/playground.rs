//! The playground page at `/`.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use longshore::App;
use longshore::net::Body;

use super::support::{Running, Serve};

fn get(server: &Running, headers: &str) -> super::support::Response {
    let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
    server.connect().send(text).receive()
}

const LOCAL: &str = "host: localhost\r\n";

#[test]
fn a_browser_gets_a_page_that_may_run_its_own_script_and_nothing_else() {
    let server = Serve::demo();
    let page = get(&server, LOCAL);
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let (_, rest) = page.body.split_once("<script>").expect("a script");
    let (script, _) = rest.split_once("</script>").expect("its end");
    let digest =
        base64::engine::general_purpose::STANDARD.encode(digest(&SHA256, script.as_bytes()));
    let policy = page.header("content-security-policy").expect("a policy");
    for part in [
        "default-src 'none'",
        &format!("script-src 'sha256-{digest}'"),
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(part), "{part} is not in {policy}");
    }
}

#[test]
fn http_01_http_08_foreign_names_and_pages_of_others_do_not_get_it() {
    let server = Serve::demo();
    assert_eq!(get(&server, "host: evil.example.com\r\n").status, 403);
    let framed = format!("{LOCAL}origin: https://evil.example.com\r\n");
    assert_eq!(get(&server, &framed).status, 403);
}

#[test]
fn there_is_none_where_a_setting_says_so() {
    let server = Serve::demo_with(|c| c.http.playground = Some(false));
    let page = get(&server, LOCAL);
    assert_eq!(page.status, 404);
    assert_eq!(
        page.header("content-type"),
        Some("application/problem+json")
    );
    assert!(page.body.contains("(http.playground)"), "{}", page.body);
    assert!(
        page.body.contains(r#""setting":"http.playground""#),
        "{}",
        page.body
    );
}

#[test]
fn http_01_http_08_the_page_may_call_beyond_loopback_but_not_under_a_name_of_anybodys() {
    let beyond = |c: &mut longshore::Config| {
        c.http.host = [0, 0, 0, 0].into();
        c.http.insecure = true;
        c.http.playground = Some(true);
    };
    let call = |server: &Running, host: &str, origin: &str| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
        let text = format!(
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        server.connect().send(text).receive()
    };
    let server = Serve::demo_with(beyond);
    for own in ["localhost:8081", "127.0.0.1:49153", "192.168.1.20:8080"] {
        let page = get(&server, &format!("host: {own}\r\n"));
        assert_eq!(page.status, 200, "{own}");
        let answer = call(&server, own, &format!("http://{own}"));
        assert_eq!(answer.status, 200, "{own}: {}", answer.body);
    }
    let rebound = call(&server, "evil.example.com", "http://evil.example.com");
    assert_eq!(rebound.status, 403);
    assert!(
        rebound.body.contains(r#""setting":"http.allowed_hosts""#),
        "{}",
        rebound.body
    );
    let foreign = call(&server, "localhost:8081", "http://evil.example.com");
    assert_eq!(foreign.status, 403);
    assert!(
        foreign.body.contains(r#""setting":"http.allowed_origins""#),
        "{}",
        foreign.body
    );
    let named = Serve::demo_with(|c| {
        beyond(c);
        c.http.allowed_hosts = vec!["mcp.example.com".to_owned()];
    });
    let answer = call(&named, "mcp.example.com", "https://mcp.example.com");
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn an_application_may_have_a_page_of_its_own_there() {
    let own = |app: App| {
        app.route("/", |_: Request<Bytes>| async {
            Response::new(Body::from("mine"))
        })
    };
    let server = Serve::new().app(own).start();
    assert_eq!(get(&server, LOCAL).body, "mine");
    assert_eq!(get(&server, "host: evil.example.com\r\n").status, 403);
}
