//! Parts of the responses and notifications of upstreams that reach the caller, and what upstreams learn about the caller.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::behind;
use super::failing::{config, error, legacy, modern, response, text, upstream};
use crate::lasting::open;
use crate::support::{Site, Stateless, Told};

/// A server with a resource, whose reads `answer` responds to.
fn with_resource(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Site {
    upstream(move |method, _, message| {
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"resources": {}},
                "serverInfo": {"name": "x", "version": "0"},
            }),
            "resources/list" => json!({"resources": [{"uri": "test://a", "name": "a"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "resources/read" => return Some(Told::json(200, answer(message))),
            _ => return None,
        };
        Some(Told::json(200, response(message, result)))
    })
}

#[test]
fn the_error_of_a_call_has_its_code_and_its_data() {
    let site = upstream(|method, _, message| {
        let code = message["params"]["arguments"]["code"]
            .as_i64()
            .unwrap_or_default();
        (method == "tools/call").then(|| Told::json(200, error(message, code, json!({"a": 1}))))
    });
    let server = behind([("up", legacy(&site))]).start();
    let (old, new) = (server.session("2025-06-18"), server.session("2025-11-25"));
    for (code, passed, data) in [
        (-32000, -32000, json!({"a": 1})),
        (-32603, -32603, json!({"a": 1})),
        (404, 404, json!({"a": 1})),
        (-32602, -32602, json!({"a": 1})),
        // The message of the caller was not the invalid one.
        (-32600, -32603, Value::Null),
    ] {
        let failed = old.call("up__act", &json!({"code": code}));
        assert_eq!(failed.error(200, passed, "1"), "up: no");
        assert_eq!(failed.json()["error"]["data"], data, "{code}");
    }
    // From this version on, the model corrects the arguments.
    let invalid = new.call("up__act", &json!({"code": -32602})).result();
    assert_eq!(invalid["isError"], true, "{invalid}");
    assert_eq!(invalid["content"][0]["text"], "up: no");
}

#[test]
fn a_read_is_not_found_only_if_the_upstream_says_so() {
    let site = with_resource(|message| error(message, -32602, json!({"argument": "a"})));
    let server = behind([("up", legacy(&site))]).start();
    let read = |server: &crate::support::Running| {
        let session = server.session("2025-11-25");
        session.request("resources/read", &json!({"uri": "test://a"}))
    };
    let invalid = read(&server);
    assert_eq!(invalid.error(200, -32602, "1"), "up: no");
    assert_eq!(invalid.json()["error"]["data"], json!({"argument": "a"}));
    let site = with_resource(|message| error(message, -32602, json!({"uri": "test://a"})));
    let server = behind([("up", legacy(&site))]).start();
    read(&server).error(200, -32002, "1");
}

#[test]
fn the_meta_of_a_read_is_passed_on() {
    let site = with_resource(|message| {
        let contents = json!([{"uri": "test://a", "text": "A", "_meta": {"of": "contents"}}]);
        let meta =
            json!({"com.example/cost": 7, "io.modelcontextprotocol/serverInfo": {"name": "x"}});
        response(message, json!({"contents": contents, "_meta": meta}))
    });
    let server = behind([("up", legacy(&site))]).start();
    let session = server.session("2025-11-25");
    let read = || {
        session
            .request("resources/read", &json!({"uri": "test://a"}))
            .result()
    };
    for _ in 0..2 {
        assert_eq!(read()["_meta"], json!({"com.example/cost": 7}));
    }
}

#[test]
fn an_upstream_of_2026_07_28_learns_what_each_caller_can_do() {
    let site = modern(|method, message| {
        (method == "tools/call").then(|| {
            let mut result = text("done");
            result["resultType"] = json!("complete");
            Told::json(200, response(message, result))
        })
    });
    let server = behind([("up", config(&site, json!({})))]).start();
    for (able, declared) in [
        (json!({}), json!({})),
        (json!({"sampling": {}}), json!({"sampling": {}})),
        (
            json!({"elicitation": {"url": {}}, "roots": {}}),
            json!({"elicitation": {"url": {}}, "roots": {}}),
        ),
    ] {
        let call = Stateless::call("up__act", json!({}));
        call.meta("clientCapabilities", able).send(&server).result();
        let asked = site.asked("/mcp").into_iter();
        let mut asked = asked.filter(|asked| asked.body.contains("tools/call"));
        let asked = asked.next_back().expect("a call");
        let message: Value = serde_json::from_str(&asked.body).expect("JSON");
        let said = &message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        for capability in ["sampling", "elicitation", "roots"] {
            assert_eq!(said[capability], declared[capability], "{said}");
        }
    }
}

#[test]
fn a_call_continues_at_an_upstream_of_2026_07_28_where_it_was() {
    let calls = AtomicUsize::new(0);
    let site = modern(move |method, message| {
        (method == "tools/call").then(|| {
            let params = &message["params"];
            let state = params["requestState"].as_str();
            let answer = params["inputResponses"]["q"]["content"]["name"].as_str();
            let result = match (state, answer) {
                (Some("second"), Some(answer)) => {
                    let mut result = text(&format!("Hello, {answer}"));
                    result["resultType"] = json!("complete");
                    result
                }
                (state, answer) => {
                    // A call that begins again would get another question.
                    let number = calls.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(state.is_some(), answer.is_some());
                    let message = format!("Question {number}");
                    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                    let question = json!({"method": "elicitation/create", "params": {
                        "mode": "form", "message": message, "requestedSchema": schema,
                    }});
                    let state = if state.is_some() { "second" } else { "first" };
                    json!({"resultType": "input_required", "inputRequests": {"q": question}, "requestState": state})
                }
            };
            Told::json(200, response(message, result))
        })
    });
    let server = behind([("up", config(&site, json!({})))]).start();
    let able = json!({"elicitation": {"form": {}}});
    let call = || Stateless::call("up__act", json!({})).meta("clientCapabilities", able.clone());
    let mut result = call().send(&server).result();
    for (number, name) in ["Ada", "Bob"].into_iter().enumerate() {
        assert_eq!(result["resultType"], "input_required", "{result}");
        let requests = result["inputRequests"].as_object().expect("requests");
        let (key, request) = requests.iter().next().expect("a request");
        assert_eq!(request["params"]["message"], format!("Question {number}"));
        let answer = json!({"action": "accept", "content": {"name": name}});
        let again = call().params(|params| {
            params["inputResponses"] = json!({ key: answer });
            params["requestState"] = result["requestState"].clone();
        });
        result = again.send(&server).result();
    }
    assert_eq!(result["content"][0]["text"], "Hello, Bob", "{result}");
}

#[test]
fn questions_of_one_round_reach_the_client_together_and_under_their_names() {
    let site = modern(|method, message| {
        (method == "tools/call").then(|| {
            let answer = |name: &str| {
                message["params"]["inputResponses"][name]["content"]["name"].as_str()
            };
            let result = match answer("first").zip(answer("second")) {
                Some((first, second)) => {
                    let mut result = text(&format!("{first} {second}"));
                    result["resultType"] = json!("complete");
                    result
                }
                None => {
                    let question = |message: &str| {
                        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                        let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
                        json!({"method": "elicitation/create", "params": params})
                    };
                    let requests = json!({"first": question("One?"), "second": question("Two?")});
                    json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"})
                }
            };
            Told::json(200, response(message, result))
        })
    });
    let server = behind([("up", config(&site, json!({})))]).start();
    let able = json!({"elicitation": {"form": {}}});
    let call = || Stateless::call("up__act", json!({})).meta("clientCapabilities", able.clone());
    let asked = call().send(&server).result();
    let requests = asked["inputRequests"].as_object().expect("requests");
    let names: Vec<_> = requests.keys().collect();
    assert_eq!(names, ["first", "second"], "{asked}");
    let accept = |name: &str| json!({"action": "accept", "content": {"name": name}});
    let again = call().params(|params| {
        params["inputResponses"] = json!({"first": accept("Ada"), "second": accept("Bob")});
        params["requestState"] = asked["requestState"].clone();
    });
    let result = again.send(&server).result();
    assert_eq!(result["content"][0]["text"], "Ada Bob", "{result}");
}

#[test]
fn eli_11_that_a_visit_is_over_reaches_the_client_that_was_asked() {
    let site = upstream(|method, _, message| {
        if method != "tools/call" {
            return None;
        }
        if message["params"]["arguments"]["done"] == true {
            let complete = json!({
                "jsonrpc": "2.0", "method": "notifications/elicitation/complete",
                "params": {"elicitationId": "page-1"},
            });
            return Some(Told::events(
                &[complete, response(message, text("done"))],
                None,
            ));
        }
        let page = json!({"mode": "url", "elicitationId": "page-1", "message": "Log in", "url": "https://idp.example/a"});
        Some(Told::json(
            200,
            error(message, -32042, json!({"elicitations": [page]})),
        ))
    });
    let server = behind([("up", legacy(&site))]).start();
    let session = server.session_of("2025-11-25", &json!({"elicitation": {"url": {}}}));
    let mut standing = open(&server, &session);
    standing.any_event().expect("its beginning");
    let required = session.call("up__act", &json!({}));
    required.error(200, -32042, "1");
    let id = required.json()["error"]["data"]["elicitations"][0]["elicitationId"].clone();
    server
        .session("2025-11-25")
        .call("up__act", &json!({"done": true}))
        .result();
    let told = standing.event().expect("a notification");
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(told["params"]["elicitationId"], id);
}

#[test]
fn numbers_of_meta_keep_their_digits_and_halves_of_characters_are_replaced() {
    let site = upstream(|method, _, message| {
        (method == "tools/call").then(|| {
            let result = r#"{"content":[{"type":"text","text":"cut \ud83d"}],"_meta":{"com.example/n":12345678901234567890123,"com.example/s":"a"}}"#;
            let id = &message["id"];
            Told::stream(&format!(r#"data: {{"jsonrpc":"2.0","id":{id},"result":{result}}}{}"#, "\n\n"))
        })
    });
    let server = behind([("up", legacy(&site))]).start();
    let session = server.session("2025-11-25");
    let called = session.call("up__act", &json!({}));
    let meta = r#""_meta":{"com.example/n":12345678901234567890123,"com.example/s":"a"}"#;
    assert!(called.body.contains(meta), "{called:?}");
    assert_eq!(called.result()["content"][0]["text"], "cut \u{fffd}");
    let stateless = Stateless::call("up__act", json!({})).send(&server);
    assert!(
        stateless.body.contains(&meta[r#""_meta":{"#.len()..]),
        "{stateless:?}"
    );
    assert!(stateless.result()["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
}

#[test]
fn content_with_annotations_that_are_not_valid_is_kept() {
    let site = upstream(|method, _, message| {
        let block =
            json!({"type": "text", "text": "kept", "annotations": {"audience": ["everyone"]}});
        (method == "tools/call")
            .then(|| Told::json(200, response(message, json!({"content": [block]}))))
    });
    let server = behind([("up", legacy(&site))]).start();
    let called = server
        .session("2025-11-25")
        .call("up__act", &json!({}))
        .result();
    assert_eq!(called["content"][0]["text"], "kept", "{called}");
}

#[test]
fn a_structured_result_without_content_is_content_for_clients_that_see_nothing_else() {
    let site = upstream(|method, _, message| {
        (method == "tools/call").then(|| {
            let result = json!({"structuredContent": {"a": 1}});
            Told::json(200, response(message, result))
        })
    });
    let server = behind([("up", legacy(&site))]).start();
    let called = |revision| {
        server
            .session(revision)
            .call("up__act", &json!({}))
            .result()
    };
    let old = called("2025-03-26");
    assert_eq!(
        old["content"],
        json!([{"type": "text", "text": "{\"a\":1}"}])
    );
    let new = called("2025-06-18");
    assert_eq!(new["content"], json!([]));
    assert_eq!(new["structuredContent"], json!({"a": 1}));
}
