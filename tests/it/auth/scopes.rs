//! Required scopes over HTTP: what a client is asked for, and what the audit log says.

use longshore::auth::RuleConfig;
use longshore::tool;
use serde_json::{Value, json};

use super::tokens::{Issuer, serve};
use super::{CI, bearer, with_keys};
use crate::support::{Response, Running, Serve, Stateless};

/// The endpoint `files` requires a scope, as does a rule about the tool `who`.
fn scoped(issuer: &Issuer) -> Serve {
    serve(issuer).configured(|c| {
        with_keys(c);
        c.auth.oauth.scopes = vec!["mcp".to_owned()];
        let files = json!({"tools": ["who"], "scopes": ["files:read"]});
        let files = serde_json::from_value(files).expect("an endpoint");
        c.endpoints.insert("files".to_owned(), files);
        let rule = json!({"effect": "allow", "tools": ["who"], "requires": ["special"]});
        c.policy.rules = vec![serde_json::from_value::<RuleConfig>(rule).expect("a rule")];
    })
}

fn call(server: &Running, path: &str, credential: &str) -> Response {
    let call = Stateless::call("who", json!({})).and("authorization", &bearer(credential));
    let text = call.text();
    let text = text.replacen("POST /mcp ", &format!("POST {path} "), 1);
    server.connect().send(text).receive()
}

fn token(issuer: &Issuer, scope: &str) -> String {
    let audience = [
        "https://mcp.example.com/mcp",
        "https://mcp.example.com/mcp/files",
    ];
    issuer.token(json!({"aud": audience, "scope": scope}))
}

#[test]
fn auth_09_a_client_that_requests_what_a_challenge_names_is_not_asked_again() {
    let issuer = Issuer::start();
    let server = scoped(&issuer).start();
    for (path, expected) in [
        ("/mcp", vec!["mcp", "mcp special"]),
        (
            "/mcp/files",
            vec!["mcp files:read", "mcp files:read special"],
        ),
    ] {
        let mut scope = String::new();
        let mut asked = Vec::new();
        loop {
            let response = call(&server, path, &token(&issuer, &scope));
            if response.status == 200 {
                break;
            }
            assert_eq!(response.status, 403, "{path}: {}", response.body);
            let challenge = response.header("www-authenticate").expect("a challenge");
            let (_, rest) = challenge.split_once(" scope=\"").expect("scopes");
            scope = rest.split('"').next().expect("a value").to_owned();
            assert!(
                challenge.contains(&format!("needed: {scope}\"")),
                "{challenge}"
            );
            asked.push(scope.clone());
            assert!(asked.len() <= expected.len(), "{path}: {asked:?}");
        }
        assert_eq!(asked, expected, "{path}");
    }
}

/// Needs a scope, and can be called as a task.
#[tool(task, scopes("special"))]
async fn report() -> &'static str {
    "done"
}

#[test]
fn a_task_needs_the_scopes_of_its_tool_too() {
    let issuer = Issuer::start();
    let server = serve(&issuer).tool(report).start();
    let send = |request: Stateless, scope: &str| {
        let extensions = json!({"io.modelcontextprotocol/tasks": {}});
        request
            .meta("clientCapabilities", json!({"extensions": extensions}))
            .and("authorization", &bearer(&token(&issuer, scope)))
            .send(&server)
    };
    let created = send(Stateless::call("report", json!({})), "special").result();
    let task = created["taskId"].as_str().expect("a task");
    let get = |scope: &str| {
        let get = Stateless::new("tasks/get", json!({"taskId": task}));
        send(get.and("mcp-name", task), scope)
    };
    assert_eq!(get("special").status, 200);
    let refused = get("other");
    assert_eq!(refused.status, 403, "{}", refused.body);
    let challenge = refused.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("scope=\"special\""), "{challenge}");
}

#[test]
fn callers_without_a_required_scope_are_recorded_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let issuer = Issuer::start();
    let server = scoped(&issuer)
        .configured(|c| {
            c.audit.file = Some(file.clone());
            // Of unauthenticated callers.
            c.audit.refusals_per_second = 0;
        })
        .start();
    assert_eq!(call(&server, "/mcp", "unknown").status, 401);
    assert_eq!(call(&server, "/mcp", &token(&issuer, "other")).status, 403);
    assert_eq!(
        call(&server, "/mcp/files", &token(&issuer, "mcp")).status,
        403
    );
    assert_eq!(call(&server, "/mcp/files", CI).status, 403);
    drop(server);
    let text = std::fs::read_to_string(&file).expect("a file");
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let records: Vec<_> = records
        .filter(|record| record["event"] == "refusal")
        .collect();
    let subject = |record: &Value| record["principal"].as_str().unwrap_or_default().to_owned();
    let found: Vec<_> = records
        .iter()
        .map(|record| (record["endpoint"].clone(), subject(record)))
        .collect();
    let host = issuer.url.trim_start_matches("http://");
    let alice = format!("oauth:{host}#alice");
    let expected = [("mcp", &*alice), ("files", &*alice), ("files", "key:ci")];
    assert_eq!(
        found,
        expected.map(|(endpoint, name)| (json!(endpoint), name.to_owned()))
    );
    assert!(
        records
            .iter()
            .all(|record| record["reason"] == "scope" && record["outcome"] == "denied")
    );
}
