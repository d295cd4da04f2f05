use super::*;

#[tokio::test]
async fn a_host_that_is_down_does_not_stop_the_tools_of_another() {
    let (server, _) = serve(|_| response("200 OK\r\ncontent-type: text/plain", b"ok")).await;
    // Nothing listens at the first address.
    let source = json!({
        "tools": [
            {"name": "dead", "url": "http://127.0.0.1:1/x"},
            {"name": "alive", "url": format!("http://localhost:{}/x", server.port())},
        ],
        "limits": {"retries": 0, "bulkhead": {"breaker_failures": 1}},
    });
    let source: HttpSourceConfig = serde_json::from_value(source).expect("a configuration");
    let tools = collected(&source).offered.tools;
    assert!(call(&tools[0], json!({})).await.is_err());
    let message = call(&tools[0], json!({})).await.expect_err("down");
    assert!(
        message.contains("the circuit breaker of 127.0.0.1 is open"),
        "{message}"
    );
    let output = call(&tools[1], json!({})).await.expect("another host");
    assert_eq!(text(&output), "ok");
}

#[tokio::test]
async fn a_status_that_counts_as_success_is_not_retried_and_opens_no_circuit_breaker() {
    for (status, name) in [(503, "Service Unavailable"), (429, "Too Many Requests")] {
        let (server, seen) = serve(move |_| {
            let head = format!("{status} {name}\r\nretry-after: 0\r\ncontent-type: text/plain");
            response(&head, b"degraded")
        })
        .await;
        let get = tool(server, json!({"url": "/", "response": {"ok": [status]}}));
        for _ in 0..5 {
            let output = call(&get, json!({})).await.expect("a success");
            assert_eq!(text(&output), "degraded");
        }
        assert_eq!(seen.lock().expect("no panic").len(), 5, "{status}");
    }
}

#[tokio::test]
async fn a_response_to_head_is_its_headers_unless_configured_otherwise() {
    let head = "200 OK\r\netag: \"a1\"\r\ncontent-length: 12";
    let (server, _) = serve(move |_| response(head, b"")).await;
    let plain = tool(server, json!({"url": "/", "method": "HEAD"}));
    let output = call(&plain, json!({})).await.expect("a success");
    let text_of_plain = text(&output);
    assert!(text_of_plain.starts_with("200 OK\n") && text_of_plain.contains("\netag: \"a1\""));
    let template = json!({"template": "{{ headers.etag }}"});
    let formatted = tool(
        server,
        json!({"url": "/", "method": "HEAD", "response": template}),
    );
    let output = call(&formatted, json!({})).await.expect("a success");
    assert_eq!(text(&output), "\"a1\"");
}

#[tokio::test]
async fn an_error_that_lacks_what_its_template_uses_is_shown_as_it_came() {
    let (server, _) = serve(|request| match request.contains("/null") {
        true => response(
            "404 Not Found\r\ncontent-type: application/json",
            br#"{"reason": null}"#,
        ),
        false => response(
            "502 Bad Gateway\r\ncontent-type: text/html",
            b"<h1>proxy</h1>",
        ),
    })
    .await;
    let tool = tool(
        server,
        json!({
            "arguments": {"path": {}, "hint": {"optional": true}}, "url": "/{{ path }}",
            "source": {"limits": {"retries": 0}},
            "response": {"errors": {
                "404": "not there ({{ body.reason }})", "5xx": "The API said {{ body.error.message }} {{ hint }}",
            }},
        }),
    );
    for (path, expected) in [
        ("html", "127.0.0.1 responded with 502 Bad Gateway"),
        ("null", "not there ()"),
    ] {
        let message = call(&tool, json!({ "path": path })).await;
        assert_eq!(message.expect_err("an error"), expected);
    }
}

#[tokio::test]
async fn a_template_names_the_value_that_a_response_lacks_and_null_is_empty() {
    let (server, _) = serve(|_| {
        response(
            "200 OK\r\ncontent-type: application/json",
            br#"{"name": "Ann", "nick": null, "status": "open"}"#,
        )
    })
    .await;
    let with = |template: &str| {
        tool(
            server,
            json!({
                "arguments": {"status": {}, "body": {"optional": true}},
                "response": {"template": template},
            }),
        )
    };
    for (template, expected) in [
        ("{{ body.name }} ({{ body.nick }})", Ok("Ann ()")),
        ("{{ status }} {{ arguments.status }}", Ok("200 mine")),
        (
            "{{ body.name }} {{ body.address.city }}",
            Err("the response is not as expected: body.address.city has no value"),
        ),
        (
            "{{ arguments.body }}",
            Err("the response is not as expected: arguments.body has no value"),
        ),
    ] {
        let output = call(&with(template), json!({"status": "mine"})).await;
        let output = output.as_ref().map(text).map_err(String::as_str);
        assert_eq!(output, expected, "{template}");
    }
}

#[tokio::test]
async fn a_base_url_is_requested_as_it_is_written_and_integers_are_integers() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    for (base, url, line) in [
        ("/v1/", "", "GET /v1/ HTTP/1.1"),
        ("/v1", "", "GET /v1 HTTP/1.1"),
        ("", "", "GET / HTTP/1.1"),
        ("/v1/", "?a={{ n }}", "GET /v1/?a=2 HTTP/1.1"),
        ("/v1/", "/x/{{ n }}", "GET /v1/x/2 HTTP/1.1"),
    ] {
        let tool = tool(
            server,
            json!({
                "arguments": {"n": {"type": "integer"}}, "url": url,
                "source": {"base_url": format!("http://{server}{base}")},
            }),
        );
        call(&tool, json!({"n": 2.0})).await.expect("sent");
        let request = seen.lock().expect("no panic").pop().expect("a request");
        assert!(request.starts_with(line), "{request}");
    }
}

/// Model APIs reject texts without characters other than white space.
#[tokio::test]
async fn a_response_without_text_is_described() {
    let (server, _) = serve(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (head, body): (_, &[u8]) = match path.trim_start_matches("/v1") {
            "/created" => ("201 Created\r\nlocation: /users/7", b""),
            "/blank" => ("200 OK\r\ncontent-type: text/plain", b" \n"),
            "/string" => ("200 OK\r\ncontent-type: application/json", br#"" ""#),
            "/latin" => (
                "200 OK\r\ncontent-type: application/json; charset=iso-8859-1",
                b"{\"a\": \"\xe9\"}",
            ),
            _ => ("200 OK\r\ncontent-type: application/json", b"null"),
        };
        response(head, body)
    })
    .await;
    let get = |url: &str, response: Value| tool(server, json!({"url": url, "response": response}));
    for (url, settings, expected) in [
        ("/created", json!({}), "201 Created, location: /users/7"),
        ("/blank", json!({}), "200 OK"),
        ("/blank", json!({"as": "text"}), "200 OK"),
        ("/null", json!({"template": "{{ body }}"}), "200 OK"),
        ("/string", json!({}), r#"" ""#),
    ] {
        let output = call(&get(url, settings), json!({}))
            .await
            .expect("a result");
        assert_eq!(text(&output), expected, "{url}");
    }
    let latin = call(&get("/latin", json!({})), json!({})).await;
    let structured = latin.expect("a result").structured;
    assert_eq!(structured.as_deref(), Some("{\"a\":\"\u{e9}\"}"));
}
