//! Completion of arguments of prompts and of variables of templates.

use serde_json::{Value, json};

use super::{WITH_SESSIONS, harness, prompts, served};
use crate::support::{Serve, Stateless};

fn of_prompt(argument: &str, value: &str) -> Value {
    json!({
        "ref": {"type": "ref/prompt", "name": "review"},
        "argument": {"name": argument, "value": value},
    })
}

#[test]
fn completions_come_in_both_eras_and_for_both_references() {
    let server = served();
    let of_template = json!({
        "ref": {"type": "ref/resource", "uri": "verb://{verb}/{tense}"},
        "argument": {"name": "verb", "value": "g"},
    });
    let mut known = of_prompt("language", "x = 1");
    known["context"] = json!({"arguments": {"code": "x = 1"}});
    for (params, values) in [
        (of_prompt("language", "RU"), json!(["rust", "ruby"])),
        (of_prompt("language", "by"), json!(["ruby"])),
        (known, json!(["for x = 1"])),
        (of_template, json!(["go", "get"])),
        // There are no suggestions for this one.
        (of_prompt("code", "x"), json!([])),
    ] {
        let total = values.as_array().expect("an array").len();
        let completion = json!({"values": values, "total": total, "hasMore": false});
        let found = Stateless::new("completion/complete", params.clone())
            .send(&server)
            .result();
        assert_eq!(found["completion"], completion);
        assert_eq!(found["resultType"], "complete");
        assert!(found.get("ttlMs").is_none());
        for revision in WITH_SESSIONS {
            let found = server
                .session(revision)
                .request("completion/complete", &params)
                .result();
            assert_eq!(found, json!({"completion": completion}));
        }
    }
}

#[tokio::test]
async fn comp_02_at_most_a_hundred_values_are_sent() {
    let harness = harness();
    let found = async |value: &str| {
        let found = harness
            .request("completion/complete", of_prompt("language", value))
            .await;
        found.expect("a result")["completion"].clone()
    };
    let many = found("many").await;
    assert_eq!(many["values"].as_array().map(Vec::len), Some(100));
    assert_eq!(
        (&many["total"], &many["hasMore"]),
        (&json!(250), &json!(true))
    );
    assert_eq!(
        found("counted").await,
        json!({"values": ["one"], "total": 1_000, "hasMore": true})
    );
}

#[test]
fn comp_02_where_rules_hide_values_there_are_more_but_not_how_many() {
    let rules = json!({"rules": [{"effect": "deny", "resources": ["verb://walk/*"]}]});
    let server = Serve::new()
        .app(prompts)
        .configured(|c| c.policy = serde_json::from_value(rules).expect("valid"))
        .start();
    for (typed, completion) in [
        ("many", json!({"values": ["go", "get"], "hasMore": true})),
        (
            "",
            json!({"values": ["go", "get"], "total": 2, "hasMore": false}),
        ),
    ] {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": "verb://{verb}/{tense}"},
            "argument": {"name": "verb", "value": typed},
        });
        let found = Stateless::new("completion/complete", params).send(&server);
        assert_eq!(found.result()["completion"], completion, "{typed}");
    }
}

#[tokio::test]
async fn comp_03_what_is_asked_for_has_to_exist() {
    let harness = harness();
    let argument = json!({"name": "language", "value": ""});
    for (params, message) in [
        (
            json!({"ref": {"type": "ref/prompt", "name": "nobody"}, "argument": argument}),
            "Unknown prompt: nobody",
        ),
        (
            json!({"ref": {"type": "ref/resource", "uri": "verb://go/past"}, "argument": argument}),
            "Unknown resource template: verb://go/past",
        ),
        (
            of_prompt("nothing", ""),
            "Invalid params: the argument `nothing` does not exist",
        ),
        (
            json!({"argument": argument}),
            "Invalid params: missing field `ref`",
        ),
        (
            json!({"ref": {"type": "ref/prompt", "name": "review"}}),
            "Invalid params: missing field `argument`",
        ),
        (
            of_prompt("language", &"x".repeat(9_000)),
            "Invalid params: argument.value has more than 8192 bytes",
        ),
    ] {
        let error = harness
            .request("completion/complete", params)
            .await
            .expect_err(message);
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
    for reference in [
        json!({"type": "ref/prompt", "uri": "verb://{verb}/{tense}"}),
        json!({"type": "ref/other", "name": "review"}),
        json!({"type": "ref/resource"}),
    ] {
        let params = json!({"ref": reference, "argument": argument});
        let error = harness
            .request("completion/complete", params)
            .await
            .expect_err("refused");
        assert_eq!(error["code"], -32602);
    }
}

#[tokio::test]
async fn completions_fail_alone() {
    let harness = harness();
    for (value, message) in [
        ("fails", "no suggestions today"),
        ("panics", "Internal error"),
    ] {
        let error = harness
            .request("completion/complete", of_prompt("language", value))
            .await;
        assert_eq!(
            error.expect_err(value),
            json!({"code": -32603, "message": message})
        );
    }
    let params = json!({
        "ref": {"type": "ref/resource", "uri": "verb://{verb}/{tense}"},
        "argument": {"name": "verb", "value": "fails"},
    });
    let error = harness
        .request("completion/complete", params)
        .await
        .expect_err("fails");
    assert_eq!(error, json!({"code": -32603, "message": "Internal error"}));
}
