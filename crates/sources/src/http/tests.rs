mod credentials;
mod outcomes;
mod pages;

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::*;
use crate::catalog::{OutputContent, Tool};
use crate::net::testing::{response, serve};
use crate::protocol::Content;
use crate::source::testing::{call, text};
use crate::source::tokens::Tokens;

fn config(server: SocketAddr, tool: Value) -> HttpSourceConfig {
    let mut config = json!({
        "base_url": format!("http://{server}/v1"),
        "headers": {"x-fixed": "always"},
        "tools": [],
        "limits": {"bulkhead": {"breaker_failures": 3}},
    });
    if let Some(source) = tool.get("source") {
        for (name, value) in source.as_object().expect("an object") {
            config[name] = value.clone();
        }
    }
    let mut tool = tool;
    tool.as_object_mut().expect("an object").remove("source");
    tool["name"] = "t".into();
    config["tools"] = json!([tool]);
    serde_json::from_value(config).expect("a configuration")
}

fn collected(config: &HttpSourceConfig) -> SourceBuilder {
    collected_with(config, Tokens::default())
}

fn collected_with(config: &HttpSourceConfig, tokens: Tokens) -> SourceBuilder {
    let mut collector = SourceBuilder::new("api", "sources[0]", None);
    collector.parts.tokens = tokens;
    collect(config, &mut collector);
    collector
}

fn tool(server: SocketAddr, tool: Value) -> Arc<dyn Tool> {
    tool_with(server, tool, Tokens::default())
}

fn tool_with(server: SocketAddr, tool: Value, tokens: Tokens) -> Arc<dyn Tool> {
    let mut collector = collected_with(&config(server, tool), tokens);
    assert_eq!(collector.offered.refused, []);
    collector.offered.tools.remove(0)
}

#[tokio::test]
async fn a_description_becomes_a_request_and_an_answer_a_result() {
    let (server, seen) = serve(|_| {
        let body = br#"{"data": {"days": [1, 2]}}"#;
        response(
            "200 OK\r\ncontent-type: application/json; charset=utf-8",
            body,
        )
    })
    .await;
    let tool = tool(
        server,
        json!({
            "description": "The weather",
            "arguments": {
                "city": {}, "days": {"type": "integer", "default": 3}, "tags": {"type": "array", "optional": true},
                "unit": {"optional": true},
            },
            "url": "/forecast/{{ city }}/x?fixed=1&c={{ city }}",
            "query": {"days": "{{ days }}", "tag": "{{ tags }}", "unit": "{{ unit }}", "k": 7},
            "headers": {"x-city": "in {{ city }}", "x-unit": "{{ unit }}"},
            "source": {"auth": {"bearer": "secret"}, "forward_headers": ["x-request-id"]},
        }),
    );
    assert_eq!(tool.definition().annotations.read_only_hint, Some(true));
    let output = call(
        &tool,
        json!({"city": "São Paulo/..x?&#", "tags": ["a b", "c&d"]}),
    )
    .await
    .expect("a result");
    assert_eq!(
        output.structured.as_deref(),
        Some(r#"{"data":{"days":[1,2]}}"#)
    );
    let seen = seen.lock().expect("no panic")[0].clone();
    let line = seen.lines().next().expect("a line");
    assert_eq!(
        line,
        "GET /v1/forecast/S%C3%A3o%20Paulo%2F%2E%2Ex%3F%26%23/x?fixed=1&c=S%C3%A3o%20Paulo%2F%2E%2Ex%3F%26%23&days=3&tag=a+b&tag=c%26d&k=7 HTTP/1.1"
    );
    let lower = seen.to_lowercase();
    for part in ["authorization: bearer secret", "x-fixed: always"] {
        assert!(lower.contains(part), "{seen}");
    }
    assert!(
        !lower.contains("x-unit") && !lower.contains("unit="),
        "{seen}"
    );
}

#[tokio::test]
async fn no_value_leaves_its_place() {
    let (server, seen) = serve(|_| response("200 OK\r\ncontent-type: text/plain", b"ok")).await;
    let tool = tool(
        server,
        json!({
            "method": "post",
            "arguments": {"id": {"optional": true}, "name": {"optional": true}, "n": {"type": "integer", "optional": true}},
            "url": "/users/{{ id }}/orders",
            "headers": {"x-name": "{{ name }}"},
            "json": {"name": "{{ name }}", "n": "{{ n }}", "hi": "hi {{ id }}", "list": ["{{ n }}", 1], "fixed": true},
        }),
    );
    for id in [
        "..",
        "../admin",
        "",
        ".",
        "a/../b",
        "..\\x",
        "x\r\nHost: evil",
        "\0",
    ] {
        let refused = call(&tool, json!({ "id": id })).await.expect_err("refused");
        assert!(refused.contains("path"), "{id:?}: {refused}");
    }
    assert!(call(&tool, json!({})).await.is_err(), "no id");
    for name in ["a\r\nx-evil: 1", "a\nb", "\0"] {
        let refused = call(&tool, json!({"id": "1", "name": name}))
            .await
            .expect_err("refused");
        assert!(refused.contains("header"), "{refused}");
    }
    assert!(seen.lock().expect("no panic").is_empty());
    let output = call(
        &tool,
        json!({"id": "%2e%2e%2f", "name": "\",\"admin\":true,\"x\":\"", "n": 7}),
    )
    .await
    .expect("sent");
    assert_eq!(text(&output), "ok");
    let seen = seen.lock().expect("no panic")[0].clone();
    assert!(
        seen.starts_with("POST /v1/users/%252e%252e%252f/orders HTTP/1.1"),
        "{seen}"
    );
    let body: Value =
        serde_json::from_str(seen.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert_eq!(
        body,
        json!({"name": "\",\"admin\":true,\"x\":\"", "n": 7, "hi": "hi %2e%2e%2f", "list": [7, 1], "fixed": true})
    );
}

#[tokio::test]
async fn bodies_are_forms_and_texts_too() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let form = tool(
        server,
        json!({"method": "PUT", "arguments": {"a": {}}, "form": {"x": "{{ a }}", "y": ["1", "{{ a }}"]}}),
    );
    assert_eq!(
        text(&call(&form, json!({"a": "ä&=b"})).await.expect("sent")),
        "204 No Content"
    );
    let json_text = tool(
        server,
        json!({"method": "PATCH", "arguments": {"a": {}}, "body": "{\"q\": {{ a }}}", "content_type": "application/json"}),
    );
    call(&json_text, json!({"a": "\"}, {"}))
        .await
        .expect("sent");
    let seen = seen.lock().expect("no panic");
    assert!(
        seen[0].starts_with("PUT /v1 ") && seen[0].ends_with("x=%C3%A4%26%3Db&y=1&y=%C3%A4%26%3Db"),
        "{seen:?}"
    );
    assert!(seen[1].ends_with("{\"q\": \"\\\"}, {\"}"), "{seen:?}");
}

#[tokio::test]
async fn values_in_an_xml_body_are_no_markup() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let body = "<a n='{{ n }}'>{{ a }}{{ a | e }}{{ b | safe }}</a>";
    let arguments = json!({"a": {}, "b": {}, "n": {"type": "integer"}});
    for (kind, expected) in [
        (
            "application/soap+xml; charset=utf-8",
            "<a n='7'>&lt;x&gt;&amp;&lt;x&gt;&amp;<b/></a>",
        ),
        ("text/plain", "<a n='7'><x>&&lt;x&gt;&amp;<b/></a>"),
    ] {
        let post = tool(
            server,
            json!({"method": "POST", "arguments": arguments, "body": body, "content_type": kind}),
        );
        let given = json!({"a": "<x>&", "b": "<b/>", "n": 7.0});
        call(&post, given).await.expect("sent");
        let request = seen.lock().expect("no panic").pop().expect("a request");
        assert!(request.ends_with(expected), "{request}");
    }
}

#[tokio::test]
async fn a_json_body_that_the_values_break_is_not_sent() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let quoted = tool(
        server,
        json!({"method": "POST", "arguments": {"a": {}}, "body": "{\"q\": \"{{ a }}\"}", "content_type": "application/json"}),
    );
    let problem = call(&quoted, json!({"a": "x"})).await.expect_err("no JSON");
    assert!(
        problem.contains("not valid JSON") && problem.contains("quotes"),
        "{problem}"
    );
    assert!(seen.lock().expect("no panic").is_empty());
    let number = tool(
        server,
        json!({"method": "POST", "arguments": {"a": {"type": "integer"}}, "body": "{\"q\": \"n-{{ a }}\"}", "content_type": "application/json"}),
    );
    call(&number, json!({"a": 7})).await.expect("sent");
}

#[tokio::test]
async fn statuses_are_told_in_the_words_of_the_description() {
    let (server, _) = serve(|request| match request.split(' ').nth(1).expect("a path") {
        "/v1/404" => response(
            "404 Not Found\r\ncontent-type: application/json",
            br#"{"reason": "gone"}"#,
        ),
        "/v1/418" => response("418 I'm a teapot\r\ncontent-type: text/plain", b"tea"),
        "/v1/500" => response(
            "500 Oops\r\ncontent-type: text/html",
            b"<h1>secret stack</h1>",
        ),
        _ => response("400 Bad Request\r\ncontent-type: text/plain", &[b'x'; 5000]),
    })
    .await;
    let tool = tool(
        server,
        json!({
            "arguments": {"code": {}}, "url": "/{{ code }}",
            "response": {"ok": [418], "errors": {"404": "{{ code }} is not there: {{ body.reason }}"}},
        }),
    );
    assert_eq!(
        call(&tool, json!({"code": "404"})).await.expect_err("404"),
        "404 is not there: gone"
    );
    assert_eq!(
        text(&call(&tool, json!({"code": "418"})).await.expect("ok here")),
        "tea"
    );
    let message = call(&tool, json!({"code": "500"})).await.expect_err("500");
    assert_eq!(
        message,
        "127.0.0.1 responded with 500 Internal Server Error"
    );
    let message = call(&tool, json!({"code": "400"})).await.expect_err("400");
    assert!(
        message.starts_with("127.0.0.1 responded with 400 Bad Request: xxx")
            && message.len() < 2100,
        "{message}"
    );
}

#[tokio::test]
async fn answers_become_text_pictures_parts_and_lists() {
    let (server, _) = serve(|request| {
        let path = request.split(' ').nth(1).expect("a path");
        let port = request.to_lowercase();
        let host = port.split("host: ").nth(1).expect("a host").split('\r').next().expect("a line").to_owned();
        match path {
            "/v1/png" => response("200 OK\r\ncontent-type: image/png", b"\x89PNG"),
            "/v1/zip" => response("200 OK\r\ncontent-type: application/zip", b"PK"),
            "/v1/latin" => response("200 OK\r\ncontent-type: text/plain; charset=ISO-8859-1", b"caf\xe9"),
            "/v1/json" => response("200 OK\r\ncontent-type: application/hal+json", b"\xef\xbb\xbf{\"a\": {\"b\": [\"x\"]}}"),
            "/v1/list" => response(
                &format!("200 OK\r\ncontent-type: application/json\r\nlink: <http://{host}/v1/list2>; rel=\"next\""),
                br#"{"items": [1, 2]}"#,
            ),
            "/v1/list2" => response("200 OK\r\ncontent-type: application/json", br#"{"items": [3]}"#),
            "/v1/elsewhere" => response(
                "200 OK\r\ncontent-type: application/json\r\nlink: <http://127.0.0.1:1/x>; rel=next",
                br#"{"items": []}"#,
            ),
            "/v1/cursor" => response("200 OK\r\ncontent-type: application/json", br#"{"items": [1], "next": "a&b"}"#),
            "/v1/cursor?after=a%26b" => response("200 OK\r\ncontent-type: application/json", br#"{"items": [2], "next": null}"#),
            "/v1/endless" => response("200 OK\r\ncontent-type: application/json", br#"{"items": [1], "next": "a"}"#),
            "/v1/endless?after=a" => response("200 OK\r\ncontent-type: application/json", br#"{"items": [1], "next": "b"}"#),
            "/v1/endless?after=b" => response("200 OK\r\ncontent-type: application/json", br#"{"items": [1], "next": "a"}"#),
            _ => response("200 OK\r\ncontent-type: application/json", b"not JSON"),
        }
    })
    .await;
    let get = async |url: &str, more: Value| {
        let mut description = json!({ "url": url });
        for (name, value) in more.as_object().expect("an object") {
            description[name] = value.clone();
        }
        call(&tool(server, description), json!({})).await
    };
    let blocks = |output: Output| match output.content {
        OutputContent::Blocks(mut blocks) => blocks.remove(0),
        other => panic!("{other:?}"),
    };
    let picture = blocks(get("/png", json!({})).await.expect("a picture"));
    assert!(
        matches!(&picture, Content::Image(image) if image.mime_type == "image/png"),
        "{picture:?}"
    );
    assert!(matches!(
        blocks(get("/zip", json!({})).await.expect("bytes")),
        Content::Resource(_)
    ));
    assert_eq!(text(&get("/latin", json!({})).await.expect("text")), "café");
    let part = get("/json", json!({"response": {"pointer": "/a/b/0"}}))
        .await
        .expect("a part");
    assert_eq!(text(&part), "x");
    assert!(
        get("/json", json!({"response": {"pointer": "/nothing"}}))
            .await
            .is_err()
    );
    let written = get(
        "/json",
        json!({"response": {"template": "{{ body.a.b | join }} {{ status }}"}}),
    )
    .await;
    assert_eq!(text(&written.expect("a text")), "x 200");
    assert!(
        get("/broken", json!({"response": {"as": "json"}}))
            .await
            .is_err()
    );
    let pages = json!({"pages": {"items": "/items"}});
    assert_eq!(
        get("/list", pages.clone())
            .await
            .expect("pages")
            .structured
            .as_deref(),
        Some(r#"{"items":[1,2,3]}"#)
    );
    assert!(
        get("/elsewhere", pages)
            .await
            .expect_err("refused")
            .contains("another host")
    );
    let pages = json!({"pages": {"items": "/items", "next": "/next", "query": "after", "max": 3}});
    assert_eq!(
        get("/cursor", pages.clone())
            .await
            .expect("pages")
            .structured
            .as_deref(),
        Some(r#"{"items":[1,2]}"#)
    );
    assert_eq!(
        get("/endless", pages)
            .await
            .expect("pages")
            .structured
            .as_deref(),
        Some(r#"{"items":[1,1,1],"truncated":true,"next":"a"}"#)
    );
}

#[tokio::test]
async fn only_what_cannot_happen_twice_is_tried_again() {
    let (server, seen) =
        serve(|_| response("503 Service Unavailable\r\nretry-after: 0", b"")).await;
    let count = |seen: &Arc<std::sync::Mutex<Vec<String>>>| {
        std::mem::take(&mut *seen.lock().expect("no panic")).len()
    };
    let get = tool(server, json!({"url": "/"}));
    assert!(call(&get, json!({})).await.is_err());
    assert_eq!(count(&seen), 3);
    let post = tool(server, json!({"url": "/", "method": "POST"}));
    assert!(call(&post, json!({})).await.is_err());
    assert_eq!(count(&seen), 1);
    let idempotent = tool(
        server,
        json!({"url": "/", "method": "POST", "idempotent": true}),
    );
    assert!(call(&idempotent, json!({})).await.is_err());
    assert_eq!(count(&seen), 3);
    // The circuit breaker opens after three failed calls in a row, however often each was retried.
    for _ in 0..2 {
        assert!(call(&idempotent, json!({})).await.is_err());
        assert_eq!(count(&seen), 3);
    }
    let message = call(&idempotent, json!({})).await.expect_err("down");
    let expected = "api: the circuit breaker of 127.0.0.1 is open after repeated failures (last: 127.0.0.1 responded with 503 Service Unavailable); try again in ";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(count(&seen), 0);
    let (server, seen) = serve(|_| response("429 Too Many Requests\r\nretry-after: 0", b"")).await;
    let post = tool(server, json!({"url": "/", "method": "POST"}));
    assert!(call(&post, json!({})).await.is_err());
    assert_eq!(count(&seen), 3, "who is told to wait has done nothing");
    let (server, seen) = serve(|_| response("200 OK\r\ncontent-encoding: br", b"x")).await;
    let get = tool(server, json!({"url": "/"}));
    for _ in 0..5 {
        let message = call(&get, json!({})).await.expect_err("unreadable");
        assert!(message.contains("content encoding"), "{message}");
        assert_eq!(count(&seen), 1, "it would be no other way");
    }
}

#[tokio::test]
async fn a_server_may_ask_for_any_patience_and_gets_what_there_is() {
    let (server, seen) = serve(|_| {
        response(
            "503 Service Unavailable\r\nretry-after: 18446744073709551615",
            b"",
        )
    })
    .await;
    let get = tool(server, json!({"url": "/"}));
    let message = call(&get, json!({})).await.expect_err("503");
    assert!(message.contains("503"), "{message}");
    assert_eq!(seen.lock().expect("no panic").len(), 1);
}

#[tokio::test]
async fn a_breaker_that_is_open_says_why_and_of_what() {
    // No server listens at this address.
    let server: SocketAddr = "127.0.0.1:1".parse().expect("an address");
    let limits = json!({"limits": {"retries": 0, "bulkhead": {"breaker_failures": 1}}});
    let get = tool(server, json!({"url": "/", "source": limits}));
    let first = call(&get, json!({})).await.expect_err("nobody is there");
    let then = call(&get, json!({})).await.expect_err("nobody is there");
    let expected = format!(
        "api: the circuit breaker of 127.0.0.1 is open after repeated failures (last: {first}); try again in "
    );
    assert!(then.starts_with(&expected), "{then}");
}

#[test]
fn mistakes_are_told_with_their_place_and_keep_nothing_else_from_being_offered() {
    let server: SocketAddr = "127.0.0.1:1".parse().expect("an address");
    for (description, part) in [
        (
            json!({"url": "/{{ citty }}", "arguments": {"city": {}}}),
            "citty",
        ),
        (json!({"url": "/{{ city"}), "url"),
        (
            json!({"url": "/{{ b }}/{a}", "arguments": {"a": {}, "b": {}}}),
            "url: {a} is not a placeholder; write {{ a }}",
        ),
        (json!({"url": "x"}), "slash"),
        (
            json!({"url": "ftp://example.com/"}),
            "url: it must begin with http:// or https:// and a host without placeholders; they may follow in the path",
        ),
        (
            json!({"url": "https://{{ host }}/", "arguments": {"host": {}}}),
            "url: it must begin with http:// or https:// and a host without placeholders; they may follow in the path",
        ),
        (
            json!({"url": "https://a.{{ host }}.com/", "arguments": {"host": {}}}),
            "url: it must begin with http:// or https:// and a host without placeholders; they may follow in the path",
        ),
        (json!({"url": "http://169.254.169.254/"}), "url: 169.254"),
        (json!({"json": {"a": 1}}), "cannot have a body"),
        (
            json!({"method": "POST", "json": 1, "body": "x"}),
            "exclude each other",
        ),
        (
            json!({"method": "POST", "arguments": {"a": {}}, "body": "{\"a\": \"{{ a }}\"}", "headers": {"Content-Type": "application/json; charset=utf-8"}}),
            "set content_type to application/json",
        ),
        (
            json!({"method": "POST", "arguments": {"a": {}}, "body": "<a>{{ a }}</a>", "headers": {"Content-Type": "text/xml"}}),
            "set content_type instead of the header",
        ),
        (
            json!({"method": "POST", "arguments": {"a": {}}, "content_type": "text/xml", "body": "<a><![CDATA[{{ a | safe }}, {{ a }}]]></a>"}),
            "CDATA does not undo",
        ),
        (
            json!({"method": "POST", "json": {"a": 1}, "content_type": "application/vnd.api+json"}),
            "content_type: it is the media type of body",
        ),
        (json!({"method": "G E T"}), "method"),
        (json!({"method": "CONNECT"}), "not for calling"),
        (json!({"headers": {"host": "x"}}), "by the client itself"),
        (json!({"headers": {"a b": "x"}}), "not a valid header name"),
        (json!({"query": {"a": {"b": 1}}}), "query.a"),
        (json!({"arguments": {"a": {"type": "text"}}}), "arguments.a"),
        (
            json!({"arguments": {"a": {}}, "input_schema": {}}),
            "remove one",
        ),
        (
            json!({"response": {"pointer": "a"}}),
            "is not a JSON pointer; it must begin with a slash, as in /data/items",
        ),
        (
            json!({"response": {"errors": {"teapot": "x"}}}),
            "which is not a status; write 404, or 4xx for all of them",
        ),
        (json!({"pages": {"query": "a"}}), "pages.next"),
    ] {
        let mut both = config(server, description.clone());
        both.tools.push(HttpToolConfig {
            name: "good".to_owned(),
            ..HttpToolConfig::default()
        });
        let collector = collected(&both);
        let [refused] = &collector.offered.refused[..] else {
            panic!("{description}: {:?}", collector.offered.refused)
        };
        assert_eq!(refused.place, "sources[0].http.tools[0] (t)");
        assert!(refused.problem.contains(part), "{description}: {refused}");
        assert_eq!(collector.offered.tools.len(), 1);
    }
    for (source, part) in [
        (json!({"base_url": "api.example.com"}), "http.base_url"),
        (
            json!({"base_url": "https://user:pw@example.com"}),
            "user name",
        ),
        (
            json!({"base_url": "https://example.com/?key=1"}),
            "has a query",
        ),
        (
            json!({"base_url": "http://169.254.169.254/"}),
            "may not be reached",
        ),
        (
            json!({"auth": {"bearer": "a", "basic": {"username": "b", "password": "c"}}}),
            "several authentication methods",
        ),
        (
            json!({"auth": {"bearer_file": "/nonexistent"}}),
            "bearer_file",
        ),
        (json!({"auth": {"bearer": "a\nb"}}), "no header can hold"),
        (
            json!({"auth": {"header": {"name": "Host", "value": "x"}}}),
            "http.auth: Host is set by the client itself",
        ),
        (
            json!({"headers": {"te": "trailers"}}),
            "http.headers: te is set by the client itself",
        ),
        (
            json!({"forward_headers": ["Authorization"]}),
            "which concerns only the connection of the caller to this server; use auth of the source",
        ),
        (
            json!({"forward_headers": ["host"]}),
            "forward_headers: host is set by the client itself",
        ),
        (
            json!({"auth": {"header": {"name": "Content-Length", "value": "1"}}}),
            "Content-Length is set by the client itself",
        ),
        (json!({"egress": {"hosts": ["a b"]}}), "names no host"),
    ] {
        let collector = collected(&config(server, json!({ "source": source })));
        assert_eq!(collector.offered.tools.len(), 0, "{source}");
        let refused = collector.offered.refused[0].to_string();
        assert!(
            refused.contains(part)
                && ["a\nb", "pw", "key=1"]
                    .iter()
                    .all(|it| !refused.contains(it)),
            "{source}: {refused}"
        );
    }
}
