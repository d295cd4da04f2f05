//! API keys over HTTP.

use std::sync::Arc;

use longshore::CallContext;
use longshore::auth::{AuthMethod, AuthOutcome, Credentials, Principal};
use longshore::{Definition, tool_fn};
use serde_json::{Map, Value, json};

use super::{BOB, CI, bearer, holder, locked};
use crate::support::{Serve, Stateless, request};

fn call() -> Stateless {
    Stateless::call("add", json!({"a": 1, "b": 2}))
}

/// Says who calls, and which headers the tool sees.
fn who() -> impl longshore::IntoTool {
    tool_fn(
        Definition::new("who"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let headers = context.headers().expect("over HTTP");
            let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
            names.sort();
            let principal = context.principal();
            Ok::<_, longshore::ToolError>(format!("{} {}", principal.name(), names.join(",")))
        },
    )
}

#[test]
fn auth_02_who_shows_nothing_is_refused_on_every_method_and_told_how_to_call() {
    let server = locked();
    for text in [
        call().text(),
        "GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".to_owned(),
        "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: x\r\n\r\n".to_owned(),
        "OPTIONS /mcp/ HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
    ] {
        let response = server.connect().send(&text).receive();
        assert_eq!(response.status, 401, "{text}");
        assert_eq!(
            response.header("www-authenticate"),
            Some("Bearer"),
            "{text}"
        );
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    let response = call().send(&server);
    assert_eq!(
        response.error(401, 401, ""),
        "A credential is needed: send Authorization: Bearer with a token or an API key"
    );
}

#[test]
fn auth_07_the_credential_is_looked_at_before_the_body_is() {
    let server = locked();
    // No byte of the body has been sent; its announced size and type are not acceptable.
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 99999999\r\n\r\n";
    let response = server.connect().send(head).receive();
    assert_eq!(response.status, 401);
    let response = server.post(&[], "{not json");
    assert_eq!(response.status, 401);
}

#[test]
fn auth_07_every_path_that_is_not_open_asks_for_a_credential() {
    // HTTP-03
    let server = locked();
    for route in longshore::transport::http::routes() {
        for method in route.methods.split(", ").filter(|m| *m != "HEAD") {
            let path = route.path.replace("{name}", "add");
            let text =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
            let status = server.connect().send(text).receive().status;
            assert_eq!(status == 401, !route.is_open(), "{method} {path}: {status}");
        }
    }
}

#[test]
fn probes_and_documents_for_clients_without_a_credential_need_none() {
    let server = locked();
    let get = |path: &str| server.page(path).status;
    assert_eq!(get("/health"), 200);
    assert_eq!(get("/.well-known/oauth-authorization-server"), 404);
}

#[test]
fn a_key_lets_its_holder_in_under_its_name_and_no_tool_sees_it() {
    // AUTH-06
    let server = Serve::new()
        .tool(who())
        .configured(super::with_keys)
        .start();
    for (name, value) in [
        ("authorization", bearer(CI)),
        ("authorization", format!("bearer {CI}")),
        ("x-api-key", CI.to_owned()),
    ] {
        let call = Stateless::call("who", json!({})).and(name, &value);
        let result = call.send(&server).result();
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(text.starts_with("key:ci "), "{text}");
        assert!(
            !text.contains("authorization") && !text.contains("api-key"),
            "{text}"
        );
    }
}

#[test]
fn auth_04_a_credential_that_is_no_good_is_refused_and_never_taken_for_none() {
    let server = Serve::new()
        .tool(who())
        .configured(|c| {
            super::with_keys(c);
            c.auth.anonymous = Some("guest".to_owned());
        })
        .start();
    let call = Stateless::call("who", json!({}));
    let text = call.send(&server).result()["content"][0]["text"].to_string();
    assert!(text.starts_with("\"guest "), "{text}");
    let wrong = bearer(&CI.replace("ci", "cj"));
    for (headers, status, code) in [
        (
            vec![("authorization", wrong.as_str())],
            401,
            "invalid_token",
        ),
        (vec![("authorization", "Bearer ")], 401, "invalid_token"),
        (vec![("x-api-key", "short")], 401, "invalid_token"),
        (
            vec![("authorization", "Bearer a"), ("authorization", "Bearer b")],
            400,
            "invalid_request",
        ),
        (
            vec![("authorization", "Bearer a"), ("x-api-key", CI)],
            400,
            "invalid_request",
        ),
    ] {
        let call = headers
            .iter()
            .fold(call.clone(), |call, (name, value)| call.and(name, value));
        let response = call.send(&server);
        assert_eq!(response.status, status, "{headers:?}");
        let challenge = response.header("www-authenticate").expect("a challenge");
        assert!(
            challenge.contains(&format!("error=\"{code}\"")),
            "{challenge}"
        );
        assert!(!response.body.contains("lsk_"), "{response:?}");
    }
}

#[test]
fn auth_08_a_key_in_the_query_opens_nothing() {
    let server = locked();
    for path in [
        format!("/mcp?access_token={CI}"),
        format!("/mcp?api_key={CI}"),
        format!("/mcp?x-api-key={CI}"),
    ] {
        let text = call().text().replacen("/mcp", &path, 1);
        assert_eq!(server.connect().send(text).receive().status, 401, "{path}");
    }
    let twice = call().and("authorization", &bearer(CI)).text().replacen(
        "/mcp",
        &format!("/mcp?access_token={CI}"),
        1,
    );
    assert_eq!(server.connect().send(twice).receive().status, 400);
}

#[test]
fn sec_04_a_session_of_another_principal_is_as_unknown_as_one_that_never_was() {
    let server = locked();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let (ci, bob) = (bearer(CI), bearer(BOB));
    let begun = server.post(&[("authorization", &ci)], &request("initialize", &params));
    let id = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let list = request("tools/list", &json!({}));
    let ask =
        |key: &str, id: &str| server.post(&[("authorization", key), ("mcp-session-id", id)], &list);
    assert_eq!(ask(&ci, &id).status, 200);
    let (foreign, unknown) = (ask(&bob, &id), ask(&bob, "never-was"));
    assert_eq!((foreign.status, &foreign.body), (404, &unknown.body));
    // Nor can another end it.
    let delete = |key: &str| {
        let text = format!(
            "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: {key}\r\nmcp-session-id: {id}\r\n\r\n"
        );
        server.connect().send(text).receive_head().status
    };
    assert_eq!(delete(&bob), 404);
    assert_eq!(ask(&ci, &id).status, 200);
    assert_eq!(delete(&ci), 200);
    assert_eq!(ask(&ci, &id).status, 404);
}

#[test]
fn a_session_outlives_the_rotation_of_its_holders_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    std::fs::write(&file, format!("ci {CI}\n")).expect("written");
    let server = |path: std::path::PathBuf| {
        Serve::new()
            .configured(move |c| {
                c.toolsets.push("demo".to_owned());
                c.auth.api_keys_file = Some(path);
            })
            .shared_key()
            .start()
    };
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let first = server(file.clone());
    let begun = first.post(
        &[("authorization", &bearer(CI))],
        &request("initialize", &params),
    );
    let id = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    std::fs::write(&file, format!("ci {BOB}\n")).expect("written");
    let second = server(file);
    let list = request("tools/list", &json!({}));
    let headers = [("authorization", &*bearer(BOB)), ("mcp-session-id", &id)];
    assert_eq!(second.post(&headers, &list).status, 200);
}

/// Trusts a header.
#[derive(Debug)]
struct Word;

impl AuthMethod for Word {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        let name = presented
            .bearer()
            .and_then(|token| token.strip_prefix("word-"));
        match name {
            None => AuthOutcome::Absent,
            Some("nobody") => AuthOutcome::refused("nobody is nobody"),
            Some(name) => {
                let principal = Arc::new(Principal::new(format!("word:{name}")));
                AuthOutcome::Later(Box::pin(async move {
                    tokio::task::yield_now().await;
                    AuthOutcome::Proven(principal)
                }))
            }
        }
    }
}

#[test]
fn a_proof_of_the_applications_own_is_asked_first_and_may_take_its_time() {
    let server = Serve::new()
        .tool(who())
        .app(|app| app.auth_method(Word))
        .configured(|c| c.auth.api_keys = vec![holder("ci", CI)])
        .start();
    let call = |credential: &str| {
        let call = Stateless::call("who", json!({}));
        call.and("authorization", &bearer(credential)).send(&server)
    };
    let text =
        |response: crate::support::Response| response.result()["content"][0]["text"].to_string();
    assert!(text(call("word-alice")).starts_with("\"word:alice "));
    assert!(text(call(CI)).starts_with("\"key:ci "));
    let refused = call("word-nobody");
    assert_eq!(refused.error(401, 401, ""), "nobody is nobody");
    assert_eq!(call("wordalice").status, 401);
}

#[test]
fn on_one_connection_each_request_is_known_by_what_it_shows_itself() {
    let server = Serve::new()
        .tool(who())
        .configured(super::with_keys)
        .start();
    let connection = &mut server.connect();
    let mut ask = |headers: &[(&str, &str)]| {
        let call = headers
            .iter()
            .fold(Stateless::call("who", json!({})), |call, (name, value)| {
                call.and(name, value)
            });
        let response = call.send_on(connection);
        match response.status {
            200 => response.result()["content"][0]["text"]
                .as_str()
                .expect("a text")
                .to_owned(),
            status => status.to_string(),
        }
    };
    let (ci, bob) = (bearer(CI), bearer(BOB));
    let as_ci = [("authorization", &*ci)];
    for _ in 0..5 {
        // The credential cache hides the key from tools as well.
        for _ in 0..3 {
            let seen = ask(&as_ci);
            assert!(seen.starts_with("key:ci "), "{seen}");
            assert!(!seen.contains("authorization"), "{seen}");
        }
        assert!(ask(&[("authorization", &bob)]).starts_with("key:bob "));
        assert!(ask(&[("x-api-key", CI)]).starts_with("key:ci "));
        assert_eq!(ask(&[]), "401");
        assert_eq!(ask(&[("authorization", &ci[..ci.len() - 1])]), "401");
        assert_eq!(ask(&[("authorization", &format!("{ci}x"))]), "401");
        assert_eq!(ask(&[("authorization", &ci), ("x-api-key", BOB)]), "400");
        assert_eq!(
            ask(&[("authorization", &ci), ("authorization", &bob)]),
            "400"
        );
        let proxied = [
            ("authorization", &*ci),
            ("proxy-authorization", "Basic YTpi"),
        ];
        let seen = ask(&proxied);
        assert!(seen.starts_with("key:ci "), "{seen}");
        assert!(!seen.contains("proxy-authorization"), "{seen}");
    }
}

/// Fails, and knows more than it says.
#[longshore::tool]
async fn fails(context: &CallContext) -> Result<String, longshore::ToolError> {
    context
        .log(longshore::LogLevel::Info, "what the tool says")
        .await;
    let cause = std::io::Error::other("canary: postgres://user:password@db");
    Err(longshore::ToolError::internal("canary in the log").caused_by(cause))
}

#[test]
fn log_04_clients_are_sent_what_tools_say_and_nothing_that_the_server_logs() {
    let server = Serve::new()
        .tool(fails)
        .configured(super::with_keys)
        .start();
    let key = bearer(CI);
    let call = Stateless::call("fails", json!({}))
        .meta("logLevel", json!("debug"))
        .and("authorization", &key);
    let mut connection = server.connect();
    connection.send(call.text());
    assert_eq!(connection.receive_head().status, 200);
    let said = connection.event().expect("a message");
    assert_eq!(said["method"], "notifications/message");
    assert_eq!(
        said["params"],
        json!({"level": "info", "data": "what the tool says"})
    );
    let answer = connection.event().expect("an answer");
    assert_eq!(
        answer["error"],
        json!({"code": -32603, "message": "Internal error"})
    );
    assert_eq!(connection.event(), None);
    // A refusal repeats nothing of the credential, either.
    let wrong = Stateless::call("fails", json!({}))
        .meta("logLevel", json!("debug"))
        .and("authorization", &bearer("lsk_canary-of-somebody"));
    let refused = wrong.send(&server);
    assert_eq!(refused.status, 401);
    assert!(!format!("{refused:?}").contains("canary"), "{refused:?}");
}
