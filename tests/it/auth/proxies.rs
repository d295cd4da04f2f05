//! Users that a proxy forwards.

use std::sync::Arc;

use longshore::net::TrustedProxies;
use longshore::{CallContext, Definition, tool_fn};
use serde_json::{Map, Value, json};

use crate::support::{Running, Serve, Stateless};

fn server(trusted: &str) -> Running {
    let who = tool_fn(
        Definition::new("who"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let seen = context
                .headers()
                .expect("over HTTP")
                .contains_key("x-forwarded-user");
            let principal = context.principal();
            let groups: Vec<_> = principal.groups().collect();
            Ok::<_, longshore::ToolError>(format!("{} {groups:?} {seen}", principal.name()))
        },
    );
    let trusted = TrustedProxies::from_iter([trusted.parse().expect("a network")]);
    Serve::new()
        .tool(who)
        .configured(|c| {
            c.http.trusted_proxies = trusted;
            c.auth.forwarded.user_header = Some("x-forwarded-user".to_owned());
            c.auth.forwarded.groups_header = Some("x-forwarded-groups".to_owned());
            c.auth.anonymous = Some("guest".to_owned());
        })
        .start()
}

#[test]
fn a_trusted_proxy_names_the_user_and_anybody_else_names_nobody() {
    let call = Stateless::call("who", json!({}))
        .and("x-forwarded-user", "alice")
        .and("x-forwarded-groups", "ops, dev");
    let told = |trusted: &str| call.send(&server(trusted)).result()["content"][0]["text"].clone();
    assert_eq!(told("127.0.0.0/8"), r#"user:alice ["ops", "dev"] false"#);
    // Headers of an untrusted peer are ignored, and hidden from tools.
    assert_eq!(told("10.0.0.0/8"), "guest [] false");
}

#[test]
fn a_user_that_is_named_twice_is_nobody() {
    let call = Stateless::call("who", json!({}))
        .and("x-forwarded-user", "alice")
        .and("x-forwarded-user", "bob");
    assert_eq!(call.send(&server("127.0.0.0/8")).status, 400);
}
