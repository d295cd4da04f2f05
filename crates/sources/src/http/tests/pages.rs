use super::*;

/// Returns the request lines that a server has seen.
fn lines(seen: &Arc<std::sync::Mutex<Vec<String>>>) -> Vec<String> {
    let seen = seen.lock().expect("no panic");
    let lines = seen.iter().map(|request| request.lines().next());
    lines.map(|line| line.expect("a line").to_owned()).collect()
}

#[tokio::test]
async fn the_next_page_may_be_named_in_any_of_several_link_fields() {
    let (server, _) = serve(|request| match request.contains("page=2") {
        true => response("200 OK\r\ncontent-type: application/json", b"[2]"),
        false => response(
            "200 OK\r\ncontent-type: application/json\r\nlink: </v1?page=1>; rel=\"first\"\r\nlink: </v1?page=2>; rel=\"next\"",
            b"[1]",
        ),
    })
    .await;
    let tool = tool(server, json!({"pages": {"items": ""}}));
    let output = call(&tool, json!({})).await.expect("pages");
    assert_eq!(output.structured.as_deref(), Some(r#"{"items":[1,2]}"#));
}

#[tokio::test]
async fn a_list_with_more_pages_than_are_read_says_that_it_is_truncated() {
    let (server, seen) = serve(|request| {
        let page = request
            .split(['=', ' '])
            .nth(2)
            .and_then(|p| p.parse::<u32>().ok());
        let next = match page {
            None => "2".to_owned(),
            Some(page) if page < 3 => (page + 1).to_string(),
            Some(_) => "null".to_owned(),
        };
        let body = format!(r#"{{"items": [0], "next": {next}}}"#);
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    for (max, expected) in [
        (2, r#"{"items":[0,0],"truncated":true,"next":3}"#),
        (3, r#"{"items":[0,0,0]}"#),
        (4, r#"{"items":[0,0,0]}"#),
    ] {
        let pages = json!({"items": "/items", "next": "/next", "query": "page", "max": max});
        let tool = tool(server, json!({ "pages": pages }));
        let output = call(&tool, json!({})).await.expect("pages");
        let read = lines(&seen);
        assert_eq!(output.structured.as_deref(), Some(expected), "{read:?}");
    }
}

/// A cursor belongs to one caller's list, so it is the caller who has to pass it on.
#[tokio::test]
async fn a_truncated_list_goes_on_from_its_cursor() {
    let (server, seen) = serve(|request| {
        let line = request.lines().next().expect("a line");
        let (items, next) = match line {
            line if line.contains("after=b%26c") => ("[3]", "null"),
            line if line.contains("after=a") => ("[2]", r#""b&c""#),
            _ => ("[1]", r#""a""#),
        };
        let body = format!(r#"{{"items": {items}, "next": {next}}}"#);
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let pages = json!({"items": "/items", "next": "/next", "query": "after", "max": 2});
    let tool = tool(
        server,
        json!({
            "arguments": {"cursor": {"optional": true}},
            "query": {"after": "{{ cursor }}"},
            "pages": pages,
        }),
    );
    let first = call(&tool, json!({})).await.expect("pages");
    let expected = r#"{"items":[1,2],"truncated":true,"next":"b&c"}"#;
    assert_eq!(first.structured.as_deref(), Some(expected));
    let rest = call(&tool, json!({"cursor": "b&c"})).await.expect("pages");
    assert_eq!(rest.structured.as_deref(), Some(r#"{"items":[3]}"#));
    assert_eq!(lines(&seen).len(), 3);
}

#[tokio::test]
async fn parts_of_responses_keep_all_digits_of_their_numbers() {
    let (server, seen) = serve(|request| {
        let next = match request.contains("after=") {
            false => "98765432109876543210",
            true => "null",
        };
        let body = format!(r#"{{"items": [{{"id": 20000000000000000001}}, "a"], "next": {next}}}"#);
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let structured = async |tool: Value| {
        let output = call(&self::tool(server, tool), json!({})).await;
        output.expect("a result").structured
    };
    let pages = json!({"pages": {"items": "/items", "next": "/next", "query": "after"}});
    let item = r#"{"id":20000000000000000001}"#;
    let all = format!(r#"{{"items":[{item},"a",{item},"a"]}}"#);
    assert_eq!(structured(pages).await, Some(all));
    assert!(lines(&seen)[1].contains("after=98765432109876543210"));
    let pointer = json!({"response": {"pointer": "/items/0"}});
    assert_eq!(structured(pointer).await.as_deref(), Some(item));
    let template = json!({"response": {"template": "{{ body.items[0].id }} {{ body.items[1] }}"}});
    let output = call(&tool(server, template), json!({})).await;
    let text = output.expect("a result").content;
    assert_eq!(
        text,
        OutputContent::Text("20000000000000000001 a".to_owned())
    );
}

#[tokio::test]
async fn pages_are_read_as_the_type_that_is_configured() {
    let (server, _) = serve(|_| response("200 OK\r\ncontent-type: text/plain", b"[1]")).await;
    let pages = json!({"pages": {"items": ""}, "response": {"as": "json"}});
    let output = call(&tool(server, pages), json!({})).await.expect("JSON");
    assert_eq!(output.structured.as_deref(), Some(r#"{"items":[1]}"#));
    let pages = tool(server, json!({"pages": {"items": ""}}));
    let problem = call(&pages, json!({})).await.expect_err("text");
    assert!(problem.contains("not JSON"), "{problem}");
}

#[test]
fn settings_of_a_response_that_pages_would_ignore_are_rejected() {
    let server: SocketAddr = "127.0.0.1:1".parse().expect("an address");
    for (response, setting) in [
        (json!({"template": "{{ body }}"}), "response.template"),
        (json!({"pointer": "/data"}), "response.pointer"),
        (json!({"as": "text"}), "response.as"),
        (json!({"as": "binary"}), "response.as"),
    ] {
        let tool = json!({"pages": {"items": "/items"}, "response": response});
        let collector = collected(&config(server, tool));
        let problem = collector.offered.refused[0].to_string();
        let expected = format!("{setting} cannot be combined with pages");
        assert!(problem.contains(&expected), "{problem}");
    }
}

#[tokio::test]
async fn the_url_of_a_next_page_that_repeats_the_credentials_gets_them_once() {
    let (server, seen) = serve(|request| {
        let line = request.lines().next().expect("a line");
        let query = line.split(['?', ' ']).nth(2).expect("a query");
        let body = match query.contains("page=2") {
            true => r#"{"items": [2], "next": null}"#.to_owned(),
            false => format!(r#"{{"items": [1], "next": "/v1?{query}&page=2&q=a%20b"}}"#),
        };
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let auth = json!({"auth": {"query": {"name": "api_key", "value": "canary+of/it"}}});
    let pages = json!({"items": "/items", "next": "/next"});
    let tool = tool(server, json!({"pages": pages, "source": auth}));
    let output = call(&tool, json!({})).await.expect("pages");
    assert_eq!(output.structured.as_deref(), Some(r#"{"items":[1,2]}"#));
    assert_eq!(
        lines(&seen),
        [
            "GET /v1?api_key=canary%2Bof%2Fit HTTP/1.1",
            "GET /v1?page=2&q=a%20b&api_key=canary%2Bof%2Fit HTTP/1.1"
        ]
    );
}
