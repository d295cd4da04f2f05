//! Upstream servers over HTTP that deny or fail some of their requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore::source::UpstreamConfig;
use serde_json::{Value, json};

use super::{behind, listed, result};
use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Asked, Serve, Site, Stateless, Told, becomes};

/// A server with the tool `act`. `answer` may respond to a request in its place: to a method with its message, or to
/// `GET`.
pub(super) fn upstream(
    answer: impl Fn(&str, &Asked, &Value) -> Option<Told> + Send + Sync + 'static,
) -> Site {
    Site::start(move |_, asked| {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let method = match &*asked.method {
            "POST" => message["method"].as_str().unwrap_or_default(),
            other => other,
        };
        if let Some(told) = answer(method, asked, &message) {
            return told;
        }
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "completions": {}},
                "serverInfo": {"name": "x", "version": "0"},
            }),
            "tools/list" => tools("act"),
            "prompts/list" => json!({"prompts": [{"name": "ask", "arguments": [{"name": "a"}]}]}),
            "tools/call" => text("done"),
            "GET" => return Told::json(405, json!({})),
            _ if message["id"].is_null() => return Told::json(202, json!({})),
            _ => return Told::json(200, error(&message, -32601, json!({}))),
        };
        Told::json(200, response(&message, result))
    })
}

/// A server of 2026-07-28.
pub(super) fn modern(
    answer: impl Fn(&str, &Value) -> Option<Told> + Send + Sync + 'static,
) -> Site {
    upstream(move |method, _, message| {
        answer(method, message).or_else(|| {
            let mut result = match method {
                "server/discover" => json!({
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
                }),
                "tools/list" => tools("act"),
                _ => return None,
            };
            result["resultType"] = json!("complete");
            Some(Told::json(200, response(message, result)))
        })
    })
}

fn tools(name: &str) -> Value {
    json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]})
}

pub(super) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub(super) fn response(to: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": to["id"], "result": result})
}

pub(super) fn error(to: &Value, code: i64, data: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": to["id"], "error": {"code": code, "message": "no", "data": data}})
}

pub(super) fn legacy(site: &Site) -> UpstreamConfig {
    config(site, json!({"protocol": "legacy"}))
}

pub(super) fn config(site: &Site, mut more: Value) -> UpstreamConfig {
    more["url"] = json!(format!("{}/mcp", site.url));
    serde_json::from_value(more).expect("valid")
}

fn with_demo(name: &'static str, config: UpstreamConfig) -> Serve {
    behind([(name, config)]).toolset("demo")
}

#[test]
fn a_caller_without_rights_opens_the_circuit_breaker_for_nobody() {
    for (status, said) in [
        (
            401,
            "the upstream server up: it does not accept your credentials (HTTP 401)",
        ),
        (
            403,
            "the upstream server up: you have no right to do this there (HTTP 403)",
        ),
    ] {
        let site = upstream(move |_, asked, _| {
            let is_denied = asked
                .headers
                .get("x-user")
                .is_some_and(|user| user == "key:ci");
            is_denied.then(|| Told::json(status, json!("internal")))
        });
        let per_caller = json!({
            "protocol": "legacy",
            "forward": {"headers": {"x-user": "{{ caller.name }}"}},
            "bulkhead": {"breaker_failures": 2, "breaker_pause_ms": 60000},
        });
        let server = behind([("up", config(&site, per_caller))])
            .configured(with_keys)
            .start();
        let call = |key| {
            let call = Stateless::call("up__act", json!({}));
            call.and("authorization", &bearer(key))
                .send(&server)
                .result()
        };
        for _ in 0..4 {
            let denied = call(CI);
            assert_eq!(denied["isError"], true, "{denied}");
            assert_eq!(denied["content"][0]["text"], said);
        }
        assert_eq!(call(BOB)["content"][0]["text"], "done");
    }
}

#[test]
fn a_list_that_could_not_be_fetched_is_fetched_later() {
    let changed = Arc::new(AtomicBool::new(false));
    let fails = AtomicUsize::new(1);
    let site = upstream(move |method, _, message| match method {
        "tools/call" => {
            changed.store(true, Ordering::SeqCst);
            let notification =
                json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Some(Told::events(
                &[notification, response(message, text("done"))],
                None,
            ))
        }
        "tools/list" if changed.load(Ordering::SeqCst) => {
            let fail = fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
            Some(match fail {
                Ok(_) => Told::json(503, json!({})),
                Err(_) => Told::json(200, response(message, tools("new"))),
            })
        }
        _ => None,
    });
    let server = with_demo("up", legacy(&site)).start();
    let session = server.session("2025-11-25");
    session.call("up__act", &json!({})).result();
    becomes(|| listed(&server).contains_key("up__new"));
}

#[test]
fn what_changed_while_the_get_stream_was_broken_is_found_out() {
    let gets = AtomicUsize::new(0);
    let changed = Arc::new(AtomicBool::new(false));
    let has_changed = Arc::clone(&changed);
    let site = upstream(move |method, _, message| match method {
        // The stream breaks, its next opening is rejected for a while, and then it is back.
        "GET" => Some(match gets.fetch_add(1, Ordering::SeqCst) {
            0 => Told::events(&[], Some("retry: 10")),
            1 => Told::json(429, json!({})),
            _ => {
                changed.store(true, Ordering::SeqCst);
                Told::events(&[], Some("retry: 10"))
            }
        }),
        "tools/list" if has_changed.load(Ordering::SeqCst) => {
            Some(Told::json(200, response(message, tools("new"))))
        }
        _ => None,
    });
    let server = with_demo("up", legacy(&site)).start();
    becomes(|| listed(&server).contains_key("up__new"));
}

#[test]
fn a_stream_is_resumed_as_often_as_it_has_something_new() {
    let site = upstream(|method, asked, message| {
        let next = |id: usize| format!("retry: 1\nid: {id}");
        match (method, asked.headers.get("last-event-id")) {
            ("tools/call", _) => Some(Told::events(
                &[],
                Some(&format!("{}-{}", next(0), message["id"])),
            )),
            ("GET", Some(last)) => {
                let (last, id) = last.split_once('-').expect("an ID of this server");
                let number = last.parse::<usize>().expect("a number") + 1;
                Some(match number {
                    12 => {
                        let request: Value = serde_json::from_str(id).expect("JSON");
                        Told::events(&[response(&json!({"id": request}), text("done"))], None)
                    }
                    number => Told::events(&[], Some(&format!("{}-{id}", next(number)))),
                })
            }
            _ => None,
        }
    });
    let server = with_demo("up", legacy(&site)).start();
    let call = json!({"name": "up__act"});
    let called = result(&server, "2025-11-25", "tools/call", call);
    assert_eq!(called["content"][0]["text"], "done", "{called}");
}

#[test]
fn a_poll_that_fails_does_not_end_a_running_task() {
    let polls = AtomicUsize::new(0);
    let site = modern(move |method, message| match method {
        "tools/call" => {
            let task = json!({"resultType": "task", "taskId": "1", "status": "working", "pollIntervalMs": 50});
            let declares = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
                ["extensions"]["io.modelcontextprotocol/tasks"]
                .is_object();
            Some(match declares {
                true => Told::json(200, response(message, task)),
                false => Told::json(
                    400,
                    error(
                        message,
                        -32021,
                        json!({"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}),
                    ),
                ),
            })
        }
        "tasks/get" => Some(match polls.fetch_add(1, Ordering::SeqCst) {
            // The second one is the immediate retry of an unsent request.
            0 | 1 => Told::json(503, json!({})),
            _ => {
                let task = json!({"resultType": "complete", "taskId": "1", "status": "completed", "result": text("done")});
                Told::json(200, response(message, task))
            }
        }),
        _ => None,
    });
    let one_at_a_time = json!({"bulkhead": {"concurrency": 1, "queue_ms": 100}});
    let server = with_demo("up", config(&site, one_at_a_time)).start();
    let call = json!({"name": "up__act"});
    let called = result(&server, "2025-11-25", "tools/call", call);
    assert_eq!(called["content"][0]["text"], "done", "{called}");
    let asked = site.asked("/mcp");
    assert!(
        !asked
            .iter()
            .any(|asked| asked.body.contains("tasks/cancel"))
    );
}

#[test]
fn a_result_of_an_unknown_type_is_an_error() {
    for kind in ["surprise", "task"] {
        let site = modern(move |method, message| {
            let result = || json!({"resultType": kind, "taskId": "1"});
            (method == "tools/call").then(|| Told::json(200, response(message, result())))
        });
        let server = with_demo("up", config(&site, json!({}))).start();
        let call = json!({"name": "up__act"});
        let called = result(&server, "2025-11-25", "tools/call", call);
        assert_eq!(called["isError"], true, "{called}");
    }
}

#[test]
fn eli_10_a_page_that_an_upstream_requires_reaches_the_user() {
    let site = upstream(|method, _, message| {
        let page = json!({"mode": "url", "elicitationId": "1", "message": "Log in", "url": "https://idp.example/a"});
        let data = json!({"elicitations": [page]});
        (method == "tools/call").then(|| Told::json(200, error(message, -32042, data)))
    });
    let server = with_demo("up", legacy(&site)).start();
    let call = json!({"name": "up__act"});
    let able = json!({"elicitation": {"url": {}}});
    let response = server
        .session_of("2025-11-25", &able)
        .request("tools/call", &call);
    assert_eq!(response.error(200, -32042, "1"), "Log in");
    let data = response.json()["error"]["data"].take();
    assert_eq!(data["elicitations"][0]["url"], "https://idp.example/a");
    // A client that cannot be sent to a page.
    let called = result(&server, "2025-06-18", "tools/call", call.clone());
    assert_eq!(called["isError"], true);
    let said = "up: Log in: open https://idp.example/a in a browser, then call again";
    assert_eq!(called["content"][0]["text"], said);
    // 2026-07-28: as an elicitation request.
    let asked = Stateless::call("up__act", json!({}))
        .meta("clientCapabilities", able)
        .send(&server)
        .result();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert!(
        asked.to_string().contains("https://idp.example/a"),
        "{asked}"
    );
}

#[test]
fn that_there_are_more_suggestions_is_passed_on() {
    let site = upstream(|method, _, message| {
        let completion = json!({"completion": {"values": ["one"], "hasMore": true}});
        (method == "completion/complete").then(|| Told::json(200, response(message, completion)))
    });
    let server = with_demo("up", legacy(&site)).start();
    let params = json!({"ref": {"type": "ref/prompt", "name": "up__ask"}, "argument": {"name": "a", "value": ""}});
    let completed = result(&server, "2025-11-25", "completion/complete", params);
    assert_eq!(
        completed["completion"],
        json!({"values": ["one"], "hasMore": true})
    );
}

#[test]
fn a_resource_whose_uri_is_not_encoded_is_listed_and_read_by_the_spelling_of_its_server() {
    let site = upstream(|method, _, message| {
        let own = "file:///data/a report <1>.txt";
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"resources": {}},
                "serverInfo": {"name": "x", "version": "0"},
            }),
            "resources/list" => json!({"resources": [{"uri": own, "name": "report"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "resources/read" if message["params"]["uri"] == own => {
                json!({"contents": [{"uri": own, "text": "good"}]})
            }
            _ => return None,
        };
        Some(Told::json(200, response(message, result)))
    });
    let server = with_demo("up", legacy(&site)).start();
    let listed = result(&server, "2025-11-25", "resources/list", json!({}));
    let mut resources = listed["resources"].as_array().into_iter().flatten();
    let report = resources.find(|resource| resource["name"] == "report");
    let uri = &report.expect("listed")["uri"];
    assert_eq!(uri, "file:///data/a%20report%20%3C1%3E.txt");
    let params = json!({ "uri": uri });
    let read = result(&server, "2025-11-25", "resources/read", params);
    assert_eq!(read["contents"], json!([{"uri": uri, "text": "good"}]));
}

#[test]
fn servers_of_2024_11_05_complete_without_declaring_it() {
    for (completes, values) in [(true, json!(["one"])), (false, json!([]))] {
        let site = upstream(move |method, _, message| {
            let result = match method {
                "initialize" => json!({
                    "protocolVersion": "2024-11-05",
                    "capabilities": {"prompts": {}},
                    "serverInfo": {"name": "x", "version": "0"},
                }),
                "completion/complete" if completes => json!({"completion": {"values": ["one"]}}),
                _ => return None,
            };
            Some(Told::json(200, response(message, result)))
        });
        let server = with_demo("up", legacy(&site)).start();
        let params = json!({"ref": {"type": "ref/prompt", "name": "up__ask"}, "argument": {"name": "a", "value": ""}});
        let completed = result(&server, "2025-11-25", "completion/complete", params);
        assert_eq!(completed["completion"]["values"], values, "{completed}");
    }
}

#[test]
fn the_error_of_a_completion_is_the_upstreams() {
    let site = upstream(|method, _, message| {
        let refused = || Told::json(200, error(message, -32602, json!({})));
        (method == "completion/complete").then(refused)
    });
    let server = with_demo("up", legacy(&site)).start();
    let params = json!({"ref": {"type": "ref/prompt", "name": "up__ask"}, "argument": {"name": "a", "value": ""}});
    let session = server.session("2025-11-25");
    let refused = session.request("completion/complete", &params);
    assert_eq!(refused.json()["error"]["message"], "up: no");
}

#[test]
fn content_of_an_unknown_type_is_a_text_in_prompts_too() {
    let site = upstream(|method, _, message| {
        let video = json!({"type": "video", "data": "x"});
        let got = json!({"messages": [
            {"role": "assistant", "content": {"type": "text", "text": "look"}},
            {"role": "user", "content": video},
        ]});
        (method == "prompts/get").then(|| Told::json(200, response(message, got)))
    });
    let server = with_demo("up", legacy(&site)).start();
    let got = result(
        &server,
        "2025-11-25",
        "prompts/get",
        json!({"name": "up__ask"}),
    );
    let messages = &got["messages"];
    assert_eq!(
        messages[0],
        json!({"role": "assistant", "content": {"type": "text", "text": "look"}})
    );
    assert_eq!(messages[1]["content"]["type"], "text");
    assert!(messages[1].to_string().contains("video"), "{got}");
}

#[test]
fn a_resource_that_is_listed_twice_is_there_once() {
    let site = upstream(|method, _, message| {
        let found = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"resources": {}},
                "serverInfo": {"name": "x", "version": "0"},
            }),
            "resources/list" => json!({"resources": [
                {"uri": "test://a", "name": "a"}, {"uri": "test://a", "name": "again"},
            ]}),
            "resources/templates/list" => json!({"resourceTemplates": [
                {"uriTemplate": "test://t/{x}", "name": "t"}, {"uriTemplate": "test://t/{x}", "name": "again"},
            ]}),
            _ => return None,
        };
        Some(Told::json(200, response(message, found)))
    });
    let server = with_demo("up", legacy(&site)).start();
    for (method, member, name) in [
        ("resources/list", "resources", "uri"),
        (
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
        ),
    ] {
        let list = result(&server, "2025-11-25", method, json!({}));
        let items = list[member].as_array().expect("a list").iter();
        let found = items.filter(|item| item[name].to_string().contains("test://"));
        assert_eq!(found.count(), 1, "{list}");
    }
}

#[test]
fn a_session_that_a_server_rejects_with_status_400_is_replaced() {
    const INVALID: &str = "Bad Request: No valid session ID provided";
    let session = Arc::new(AtomicUsize::new(1));
    let site = upstream({
        let session = Arc::clone(&session);
        move |method, asked, message| {
            let valid = session.load(Ordering::Relaxed).to_string();
            let rejected = |said: &str| {
                let error = json!({"code": -32000, "message": said});
                Told::json(
                    400,
                    json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
                )
            };
            match method {
                "GET" | "DELETE" => None,
                "initialize" => {
                    let result = json!({
                        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                        "serverInfo": {"name": "x", "version": "0"},
                    });
                    let told = Told::json(200, response(message, result));
                    Some(told.header("mcp-session-id", &valid))
                }
                _ if asked.headers.get("mcp-session-id") != Some(&valid) => Some(rejected(INVALID)),
                "ping" => Some(Told::json(200, response(message, json!({})))),
                "tools/call" if !message["params"]["arguments"]["bad"].is_null() => {
                    Some(rejected("a bad argument"))
                }
                _ => None,
            }
        }
    });
    let server = behind([("up", legacy(&site))]).start();
    let call = |arguments: Value| {
        let call = json!({"name": "up__act", "arguments": arguments});
        server.session("2025-11-25").request("tools/call", &call)
    };
    let called = |arguments: Value| call(arguments).result()["content"][0]["text"].clone();
    assert_eq!(called(json!({})), "done");
    // The server is restarted, and has lost its sessions.
    session.store(2, Ordering::Relaxed);
    assert_eq!(called(json!({})), "done");
    let rejected = call(json!({"bad": 1})).error(200, -32000, "1");
    assert_eq!(rejected, "up: a bad argument");
    let initialized = site.asked("/mcp").into_iter();
    let initialized = initialized.filter(|asked| asked.body.contains("\"initialize\""));
    assert_eq!(initialized.count(), 2, "one for each session");
}

#[test]
fn a_list_that_a_server_only_declares_is_empty() {
    let site = upstream(|method, _, message| {
        (method == "prompts/list").then(|| Told::json(200, error(message, -32601, json!({}))))
    });
    let server = behind([("up", legacy(&site))]).start();
    assert!(listed(&server).contains_key("up__act"));
    let capabilities = &server.session("2025-11-25").initialized["capabilities"];
    assert_eq!(capabilities.get("prompts"), None, "there are none");
}

#[test]
fn log_messages_are_requested_once_and_forwarded_with_their_logger() {
    let site = upstream(|method, _, message| {
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "x", "version": "0"},
            }),
            "logging/setLevel" => json!({}),
            "tools/call" => {
                let log = json!({"level": "error", "logger": "db", "data": {"msg": "full"}});
                let log =
                    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log});
                return Some(Told::events(&[log, response(message, text("done"))], None));
            }
            _ => return None,
        };
        Some(Told::json(200, response(message, result)))
    });
    let server = behind([("up", legacy(&site))]).start();
    for _ in 0..2 {
        let reply = Stateless::call("up__act", json!({}))
            .meta("logLevel", json!("warning"))
            .send(&server);
        let log = r#""level":"error","logger":"db","data":{"msg":"full"}"#;
        assert!(reply.body.contains(log), "{reply:?}");
    }
    let set = site.asked("/mcp").into_iter();
    let set: Vec<Value> = set
        .filter_map(|asked| serde_json::from_str(&asked.body).ok())
        .filter(|message: &Value| message["method"] == "logging/setLevel")
        .map(|mut message| message["params"].take())
        .collect();
    assert_eq!(set, [json!({"level": "warning"})]);
}

#[test]
fn an_upstream_that_moves_within_its_origin_is_connected_again() {
    let has_moved = Arc::new(AtomicBool::new(false));
    let moved = Arc::clone(&has_moved);
    let site = upstream(move |_, asked, _| {
        let is_old = asked.target == "/mcp" && moved.load(Ordering::SeqCst);
        is_old.then(|| Told::json(307, Value::Null).header("location", "/new"))
    });
    let server = behind([("up", legacy(&site))]).start();
    has_moved.store(true, Ordering::SeqCst);
    let call = json!({"name": "up__act", "arguments": {}});
    let called = result(&server, "2025-11-25", "tools/call", call);
    assert_eq!(called["content"][0]["text"], "done", "{called}");
}

#[test]
fn a_subscription_that_is_rejected_for_a_while_is_made_again() {
    let listens = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&listens);
    let site = modern(move |method, message| match method {
        "server/discover" => {
            let discovered = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": true}},
            });
            Some(Told::json(200, response(message, discovered)))
        }
        "subscriptions/listen" => {
            counted.fetch_add(1, Ordering::SeqCst);
            Some(Told::json(503, error(message, -32000, json!({}))))
        }
        _ => None,
    });
    let _server = behind([("up", config(&site, json!({})))]).start();
    becomes(|| 2 <= listens.load(Ordering::SeqCst));
}

#[test]
fn a_list_that_is_announced_and_not_there_keeps_no_other_list_away() {
    let changed = AtomicBool::new(false);
    let site = upstream(move |method, _, message| match method {
        "initialize" => {
            let initialized = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "0"},
            });
            Some(Told::json(200, response(message, initialized)))
        }
        "tools/call" => {
            changed.store(true, Ordering::SeqCst);
            let notification =
                json!({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"});
            let called = [notification, response(message, text("done"))];
            Some(Told::events(&called, None))
        }
        "tools/list" if changed.load(Ordering::SeqCst) => {
            Some(Told::json(200, response(message, tools("another"))))
        }
        "prompts/list" => Some(Told::json(200, error(message, -32602, json!({})))),
        _ => None,
    });
    let server = behind([("up", legacy(&site))]).start();
    let call = json!({"name": "up__act", "arguments": {}});
    result(&server, "2025-11-25", "tools/call", call);
    becomes(|| listed(&server).contains_key("up__another"));
}

#[test]
fn a_response_that_is_too_large_is_not_a_connection_that_broke_off() {
    let site = upstream(|method, _, message| {
        let large = || text(&"x".repeat(70_000));
        (method == "tools/call").then(|| Told::json(200, response(message, large())))
    });
    let config = config(
        &site,
        json!({"protocol": "legacy", "message_bytes": 65_536}),
    );
    let server = behind([("up", config)]).start();
    let call = json!({"name": "up__act", "arguments": {}});
    let called = result(&server, "2025-11-25", "tools/call", call);
    assert_eq!(called["isError"], true);
    assert_eq!(
        called["content"][0]["text"],
        "the response of the upstream server up is not readable or too large; the call may have been executed"
    );
}
