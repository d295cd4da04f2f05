use serde_json::json;

use super::*;

fn policy(config: serde_json::Value) -> Policy {
    let config: PolicyConfig = serde_json::from_value(config).expect("sound");
    Policy::new(&config).expect("sound").expect("a policy")
}

fn tool(name: &str) -> Target<'_> {
    Target {
        kind: Kind::Tool,
        name,
        access: Access::Write,
    }
}

fn allowed(policy: &Policy, principal: &Principal, target: Target<'_>) -> bool {
    policy.decide(&policy.class_of(principal), target).allowed
}

#[test]
fn without_rules_there_is_no_policy_and_nothing_to_ask() {
    assert!(
        Policy::new(&PolicyConfig::default())
            .expect("sound")
            .is_none()
    );
    let closed = policy(json!({"default": "deny"}));
    assert!(!allowed(&closed, &Principal::new("a"), tool("x")));
}

#[test]
fn what_one_rule_denies_no_other_allows_in_whatever_order() {
    let allow = json!({"effect": "allow", "tools": ["files_*"]});
    let deny = json!({"effect": "deny", "principals": ["key:ci"], "tools": ["*_delete"]});
    for rules in [json!([allow, deny]), json!([deny, allow])] {
        let policy = policy(json!({ "rules": rules }));
        let (ci, bob) = (Principal::new("key:ci"), Principal::new("key:bob"));
        for (principal, name, expected) in [
            (&ci, "files_read", true),
            (&ci, "files_delete", false),
            (&bob, "files_delete", true),
            (&bob, "users_read", false),
        ] {
            assert_eq!(allowed(&policy, principal, tool(name)), expected, "{name}");
        }
    }
    let only_deny = policy(json!({"rules": [{"effect": "deny", "tools": ["x"]}]}));
    assert!(allowed(&only_deny, &Principal::new("a"), tool("y")));
    assert!(!allowed(&only_deny, &Principal::new("a"), tool("x")));
}

#[test]
fn rules_are_for_clients_actors_and_nested_claims() {
    use crate::auth::principal::Facts;

    let claims = json!({
        "realm_access": {"roles": ["clerk"]},
        "dotted.name": "yes",
        "act": {"sub": "agent-1", "act": {"sub": "orchestrator"}},
    });
    let facts = Facts {
        client: Some("https://app.example.com/client.json".into()),
        ..Facts::default()
    };
    let serde_json::Value::Object(claims) = claims else {
        unreachable!()
    };
    let caller = Principal::new("oauth:id#42")
        .with_facts(facts)
        .with_claims(claims);
    assert_eq!(
        caller.actors().collect::<Vec<_>>(),
        ["agent-1", "orchestrator"]
    );
    for (who, expected) in [
        (json!({"clients": ["https://app.example.com/*"]}), true),
        (
            json!({"clients": ["other", "https://app.example.com/client.json"]}),
            true,
        ),
        (json!({"clients": ["https://app.example.com"]}), false),
        (json!({"actors": ["agent-*"]}), true),
        (json!({"actors": ["orchestrator"]}), true),
        (json!({"actors": ["agent-2"]}), false),
        (json!({"claims": {"realm_access.roles": ["clerk"]}}), true),
        (json!({"claims": {"realm_access.roles": ["boss"]}}), false),
        (json!({"claims": {"dotted.name": ["yes"]}}), true),
        (json!({"claims": {"act.sub": ["agent-1"]}}), true),
        (json!({"clients": ["*"], "actors": ["agent-2"]}), false),
    ] {
        let mut rule = who.clone();
        rule["effect"] = "allow".into();
        let policy = policy(json!({"rules": [rule]}));
        assert_eq!(allowed(&policy, &caller, tool("t")), expected, "{who}");
        let other = Principal::new("other");
        assert!(!allowed(&policy, &other, tool("t")), "{who}");
    }
}

#[test]
fn rules_are_for_names_groups_claims_and_scopes_and_all_have_to_hold() {
    let claims = json!({"tenant": "acme", "roles": ["a", "b"], "level": 3});
    let serde_json::Value::Object(claims) = claims else {
        unreachable!()
    };
    let alice = Principal::new("user:alice")
        .with_groups(["ops", "dev"])
        .with_scopes(["read", "write"])
        .with_claims(claims);
    for (who, expected) in [
        (json!({"principals": ["user:*"]}), true),
        (json!({"principals": ["user:bob", "user:al?ce"]}), true),
        (json!({"principals": ["alice"]}), false),
        (json!({"groups": ["ops"]}), true),
        (json!({"groups": ["op*"]}), false),
        (json!({"groups": ["none", "dev"]}), true),
        (json!({"scopes": ["read", "write"]}), true),
        (json!({"scopes": ["read", "admin"]}), false),
        (json!({"claims": {"tenant": ["acme"]}}), true),
        (json!({"claims": {"tenant": ["other"]}}), false),
        (json!({"claims": {"roles": ["b"]}}), true),
        (json!({"claims": {"level": ["3"]}}), true),
        (
            json!({"claims": {"tenant": ["acme"], "missing": ["x"]}}),
            false,
        ),
        (
            json!({"groups": ["ops"], "principals": ["user:bob"]}),
            false,
        ),
        (json!({}), true),
    ] {
        let mut rule = who.clone();
        rule["effect"] = "allow".into();
        let policy = policy(json!({"rules": [rule]}));
        assert_eq!(allowed(&policy, &alice, tool("x")), expected, "{who}");
    }
}

#[test]
fn a_rule_that_names_some_kinds_is_about_these_only() {
    let policy = policy(json!({"rules": [
        {"effect": "allow", "tools": ["a"]},
        {"effect": "allow", "access": "read"},
    ]}));
    let nobody = Principal::anonymous();
    let target = |kind, name, access| Target { kind, name, access };
    for (target, expected) in [
        (target(Kind::Tool, "a", Access::Write), true),
        (target(Kind::Tool, "b", Access::Write), false),
        (target(Kind::Tool, "b", Access::Read), true),
        (target(Kind::Prompt, "a", Access::Read), false),
        (target(Kind::Resource, "a", Access::Read), false),
    ] {
        assert_eq!(allowed(&policy, &nobody, target), expected, "{target:?}");
    }
}

#[test]
fn principals_of_the_same_rules_are_one_class_and_what_they_see_is_found_out_once() {
    let rules: Vec<_> = (0..100)
        .map(|n| json!({"effect": "allow", "groups": [format!("g{n}")], "tools": [format!("t{n}_*")]}))
        .collect();
    let policy = policy(json!({ "rules": rules }));
    let of = |group: &str| policy.class_of(&Principal::new("x").with_groups([group]));
    assert!(Arc::ptr_eq(&of("g7"), &of("g7")));
    assert!(Arc::ptr_eq(&of("none"), &of("nobody")));
    assert_ne!(of("g7").digest, of("g8").digest);
    let names: Vec<_> = (0..100).map(|n| format!("t{n}_x")).collect();
    let class = of("g7");
    let see = || {
        policy.visible(&class, ItemKind::Tools, names.len(), || {
            names.iter().map(|n| tool(n)).collect()
        })
    };
    let seen: Vec<_> = (0..100).filter(|place| see().sees(*place)).collect();
    assert_eq!((seen, see().everything), (vec![7], false));
    assert!(!see().sees(100) && !see().sees(1 << 20));
    // Another policy is not taken for this one.
    let alice = Principal::new("x").with_groups(["g7"]);
    let before = policy.class_of(&alice);
    let other = self::policy(json!({"default": "deny"}));
    assert!(!other.decide(&other.class_of(&alice), tool("t7_x")).allowed);
    assert!(Arc::ptr_eq(&before, &policy.class_of(&alice)));
}

#[test]
fn what_is_found_out_of_a_whole_table_is_what_is_decided_about_each_entry() {
    let rules = json!([
        {"effect": "allow", "groups": ["a"], "tools": ["*_1", "t_20"], "requires": ["one"]},
        {"effect": "allow", "groups": ["a", "b"], "tools": ["t_1*"], "requires": ["two", "one"]},
        {"effect": "deny", "groups": ["b"], "tools": ["t_11", "t_7?"]},
        {"effect": "allow", "groups": ["c"], "access": "read"},
        {"effect": "deny", "groups": ["d"]},
    ]);
    let names: Vec<_> = (0..130).map(|n| format!("t_{n}")).collect();
    let entries = || {
        let targets = names.iter().enumerate().map(|(at, name)| Target {
            access: if at % 3 == 0 {
                Access::Read
            } else {
                Access::Write
            },
            ..tool(name)
        });
        targets.collect::<Vec<_>>()
    };
    for default in ["allow", "deny"] {
        let policy = policy(json!({"default": default, "rules": rules}));
        for groups in ["", "a", "b", "a b", "c", "b c", "d", "a b c d"] {
            let principal = Principal::new("x").with_groups(groups.split_whitespace());
            let class = policy.class_of(&principal);
            let visible = policy.visible(&class, ItemKind::Tools, names.len(), entries);
            let decided = entries()
                .into_iter()
                .map(|entry| policy.decide(&class, entry));
            let decided: Vec<_> = decided.collect();
            for (place, decision) in decided.iter().enumerate() {
                let name = &names[place];
                assert_eq!(visible.sees(place), decision.allowed, "{groups}: {name}");
                let required = visible.requires(place).map_or(&[][..], |all| &all[..]);
                assert_eq!(required, decision.requires, "{groups}: {name}");
            }
            let everything = decided.iter().all(|decision| decision.allowed);
            assert_eq!(visible.everything, everything, "{groups}");
        }
    }
}

#[test]
fn however_a_uri_is_written_what_it_means_is_decided_about() {
    let policy = policy(json!({"rules": [{"effect": "deny", "resources": ["file:///secret/*"]}]}));
    let class = policy.class_of(&Principal::anonymous());
    for (uri, expected) in [
        ("file:///public/a", true),
        ("file:///secret/a", false),
        ("file:///%73ecret/a", false),
        ("file:///public/../secret/a", false),
        ("file:///public/%2e%2e/secret/a", false),
        ("file:///./secret/a", false),
        ("FILE:///secret/a", false),
        ("file:///secrets/a", true),
        // Empty segments, also before dots.
        ("file:////secret/x", false),
        ("file:///public/..//secret/x", false),
        ("file:///public//../secret/x", false),
        ("file:///secret//x", false),
        ("file:////secret/", false),
        // Escapes within escapes.
        ("file:///%2573ecret/x", false),
        ("file:///%252573ecret/x", false),
        ("file:///public/%252e%252e/secret/x", false),
        ("file:///%25252525252525252573ecret/x", false),
        // Scheme, host and slashes.
        ("fILE:///secret/x", false),
        ("file:/secret/x", false),
        ("file:secret/x", false),
        ("file://localhost/secret/x", false),
        ("file://LOCALHOST/secret/x", false),
        ("file:\\\\\\secret\\x", false),
        ("file:///public\\..\\secret\\x", false),
        ("file:///public/..%5csecret/x", false),
        // Dots and blanks at the end of a name, and what parsers leave out.
        ("file:///secret./x", false),
        ("file:///secret%20/x", false),
        ("file:///sec\tret/x", false),
        (" file:///secret/x", false),
        // Other resources.
        ("file:///public/secret/x", true),
        ("file:///public//x", true),
        ("https://secret/x", true),
        ("file:///public/a%20b?c#d", true),
    ] {
        assert_eq!(policy.decide_uri(&class, uri).allowed, expected, "{uri}");
    }
    let whole = policy_of(
        &json!([{"effect": "deny", "resources": ["HTTPS://API.example/secret", "file:///etc/passwd"]}]),
    );
    let class = whole.class_of(&Principal::anonymous());
    for (uri, expected) in [
        ("https://api.example/secret", false),
        ("https://Api.Example:443//secret", false),
        ("https://user@api.example./secret/", false),
        ("https://api.example/secret#a", false),
        ("https://api.example:/secret", false),
        ("https://api.example/secret?a=b", true),
        ("file:///etc/passwd/", false),
        ("file:///etc/passwd?a#b", false),
        ("file:///etc//passwd.", false),
        ("file:///etc/passwd2", true),
    ] {
        assert_eq!(whole.decide_uri(&class, uri).allowed, expected, "{uri}");
    }
}

fn policy_of(rules: &serde_json::Value) -> Policy {
    policy(json!({ "rules": rules }))
}

#[test]
fn a_list_of_what_is_allowed_lets_nothing_else_through() {
    let rules = json!([{"effect": "allow", "resources": ["file:///public/*", "s3://b/*"], "requires": ["a"]}]);
    let policy = policy_of(&rules);
    let class = policy.class_of(&Principal::anonymous());
    for (uri, expected) in [
        ("file:///public/a", true),
        ("file:///public/", true),
        ("file:///public/a//b", true),
        ("s3://b/a/../c/", true),
        ("file:///public/../secret/x", false),
        ("file:///public//../secret/x", false),
        ("file:///public/..%2fsecret/x", false),
        ("file:///public/..%5csecret/x", false),
        ("file:///public/%252e%252e/secret/x", false),
        ("s3://b/a/..?x", true),
        ("s3://b/..#x", true),
        ("file:///public/..?x", false),
        ("file:///public/%2e%2e#x", false),
    ] {
        let decision = policy.decide_uri(&class, uri);
        assert_eq!(decision.allowed, expected, "{uri}");
        if expected {
            assert_eq!(decision.requires, ["a"], "{uri}");
        }
    }
}

#[test]
fn a_scope_that_a_rule_requires_is_required_for_every_form_of_a_uri() {
    let rules = json!([
        {"effect": "allow"},
        {"effect": "allow", "resources": ["file:///secret/*", "https://api.example/admin"], "requires": ["a"]},
    ]);
    let policy = policy_of(&rules);
    let class = policy.class_of(&Principal::anonymous());
    for (uri, expected) in [
        ("file:///secret/x", &["a"][..]),
        ("file:///public/..%2fsecret/x", &["a"]),
        ("file://localhost/secret/x", &["a"]),
        ("file:/secret/x", &["a"]),
        ("https://api.example:443/admin/", &["a"]),
        ("file:///public/x", &[]),
    ] {
        let decision = policy.decide_uri(&class, uri);
        assert!(decision.allowed, "{uri}");
        assert_eq!(decision.requires, expected, "{uri}");
    }
}

#[test]
fn a_class_of_tools_beside_resources_or_prompts_is_refused() {
    for others in ["resources", "prompts"] {
        let rule = json!({"effect": "deny", "access": "write", "tools": ["a"], others: ["b"]});
        let config: PolicyConfig = serde_json::from_value(json!({"rules": [rule]})).expect("rules");
        let setting = "policy.rules[0].access".to_owned();
        let found = Policy::build(&config).expect_err("refused");
        assert_eq!(found, PolicyError::Access { setting, others });
    }
}

#[test]
fn patterns_that_fit_nothing_are_mistakes() {
    let reported = |config: serde_json::Value| {
        let config: PolicyConfig = serde_json::from_value(config).expect("sound");
        match Policy::new(&config) {
            Err(error) => Some(error.to_string()),
            Ok(_) => Policy::check_names(&config, &["files_read"], &["hello"])
                .err()
                .map(|e| e.to_string()),
        }
    };
    let rule =
        |name: &str, value: serde_json::Value| json!({"rules": [{"effect": "deny", name: value}]});
    assert_eq!(reported(rule("tools", json!(["files_*", "*"]))), None);
    for (config, expected) in [
        (
            rule("tools", json!(["fils_*"])),
            "policy.rules[0].tools has \"fils_*\", which matches no tool",
        ),
        (rule("prompts", json!(["files_read"])), "matches no prompt"),
        (
            rule("tools", json!(["[a"])),
            "which is not a pattern; write a name, with * and ? for anything",
        ),
        (
            rule("tools", json!([""])),
            "which is not a pattern; write a name, with * and ? for anything",
        ),
        (rule("requires", json!(["a b"])), "not a valid scope"),
        (json!({"read": ["x"]}), "policy.read"),
    ] {
        let error = reported(config).expect("a mistake");
        assert!(error.contains(expected), "{error}");
    }
}
