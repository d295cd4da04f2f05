//! Values and schemas whose check would take long, or exhaust the stack.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{accepted, refused, reported};
use crate::catalog::schema::Compiled;

/// Each level of the value matches one of two branches that both lead deeper: two to the power of the depth,
/// for whoever does not remember.
#[test]
fn a_recursive_choice_is_checked_in_time() {
    let bomb = json!({
        "type": "object",
        "anyOf": [
            {"properties": {"in": {"$ref": "#"}}, "required": ["x"]},
            {"properties": {"in": {"$ref": "#"}}, "required": ["y"]},
        ]
    });
    let deep = (0..60).fold(json!({}), |inner, _| json!({"in": inner, "x": 1, "y": 2}));
    let compiled = accepted(&bomb);
    let start = Instant::now();
    compiled
        .check(&deep)
        .expect_err("the innermost has neither");
    assert!(start.elapsed() < Duration::from_secs(30));
}

/// Definitions that each lead to the next one, and none of them back.
fn chain(of: fn(Value) -> Value) -> Compiled {
    let next = |level: usize| json!({"$ref": format!("#/$defs/{}", level + 1)});
    let mut defs: serde_json::Map<_, _> = (0..60)
        .map(|level| (level.to_string(), of(next(level))))
        .collect();
    defs.insert("60".to_owned(), json!({"required": ["x"]}));
    accepted(&json!({
        "type": "object", "properties": {"in": {"$ref": "#/$defs/0"}}, "$defs": defs
    }))
}

/// The time doubles with each level, since nothing is remembered.
#[test]
fn a_chain_of_choices_is_refused_before_it_takes_long() {
    let deep = |levels| (0..levels).fold(json!({}), |inner, _| json!({"in": inner}));
    let both: fn(Value) -> Value =
        |next| json!({"allOf": [{"properties": {"in": next}}, {"properties": {"in": next}}]});
    for of in [
        both,
        |next| json!({"anyOf": [{"properties": {"in": next}}], "unevaluatedProperties": false}),
        |next| json!({"if": {"properties": {"in": next}}, "else": {"properties": {"in": next}}}),
        |next| json!({"patternProperties": {"^i": next, "n$": next}}),
        |next| json!({"propertyNames": next, "unevaluatedProperties": next}),
    ] {
        let compiled = chain(of);
        let start = Instant::now();
        let message = compiled.check(&deep(60)).expect_err("refused").to_string();
        assert!(
            message.contains("more than 5000000 comparisons"),
            "{message}"
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    assert!(chain(both).check(&deep(8)).is_ok());
}

#[test]
fn many_values_and_a_large_schema_are_refused_before_they_take_long() {
    let of = |items: Value| json!({"type": "object", "properties": {"a": {"type": "array", "items": items}}});
    let some: Vec<Value> = (0..5_000).map(|i| json!({"k": i})).collect();
    let branches: Vec<Value> = (0..1_000)
        .map(|i| json!({"required": [i.to_string()]}))
        .collect();
    for (items, value) in [
        (json!({"enum": some}), json!({"k": 4_999})),
        (json!({"anyOf": branches}), json!({})),
        (
            json!({"pattern": "^(.*a){1,200}$"}),
            json!("a".repeat(1_000)),
        ),
    ] {
        let compiled = accepted(&of(items));
        let start = Instant::now();
        let many = json!({"a": vec![value.clone(); 50_000]});
        let message = compiled.check(&many).expect_err("refused").to_string();
        assert!(
            message.contains("more than 5000000 comparisons"),
            "{message}"
        );
        assert!(start.elapsed() < Duration::from_secs(30));
        let few = compiled.check(&json!({"a": [value.clone(), value]}));
        assert!(few.is_ok() || few.is_err_and(|e| !e.to_string().contains("comparisons")));
    }
}

#[test]
fn large_and_recursive_values_of_ordinary_schemas_are_checked() {
    let items = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12}$"},
            "kind": {"enum": ["a", "b", "c"]},
            "at": {"$ref": "#/$defs/Point"},
        },
        "additionalProperties": false,
    });
    let point =
        json!({"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}});
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "array", "items": items}, "data": {"type": "string", "pattern": "^[A-Za-z0-9+/=]*$"}},
        "$defs": {"Point": point},
    });
    let item = json!({"id": "01234567-89ab-0123456789ab", "kind": "c", "at": {"x": 1, "y": 2.5}});
    let many = json!({"a": vec![item; 40_000], "data": "A".repeat(4_000_000)});
    assert!(accepted(&schema).check(&many).is_ok());

    // An expression, whose kinds all contain further ones.
    let kinds: Vec<Value> = ["and", "or", "not", "all", "any"]
        .iter()
        .map(|name| {
            let more = json!({"type": "array", "items": {"$ref": "#/$defs/Expression"}});
            json!({"type": "object", "properties": {*name: more}, "required": [name]})
        })
        .chain([json!({"type": "string"})])
        .collect();
    let schema = json!({
        "type": "object",
        "properties": {"filter": {"$ref": "#/$defs/Expression"}},
        "$defs": {"Expression": {"anyOf": kinds}},
    });
    let deep = (0..25).fold(
        json!("x"),
        |inner, _| json!({"any": [inner, "y", {"not": ["z"]}]}),
    );
    assert_eq!(accepted(&schema).check(&json!({"filter": deep})), Ok(()));
}

#[test]
fn a_choice_that_leads_back_dynamically_is_checked_in_time() {
    let bomb = json!({
        "$id": "https://example.com/tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "anyOf": [
            {"properties": {"in": {"$dynamicRef": "#node"}}, "required": ["x"]},
            {"properties": {"in": {"$dynamicRef": "#node"}}, "required": ["y"]},
        ]
    });
    let deep = (0..60).fold(json!({}), |inner, _| json!({"in": inner, "x": 1, "y": 2}));
    let start = Instant::now();
    accepted(&bomb).check(&deep).expect_err("refused");
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn checking_does_not_exhaust_the_stack() {
    // As deep as JSON may be, with as long a chain at each level as is allowed.
    let mut defs = serde_json::Map::new();
    for link in 0..15 {
        defs.insert(
            link.to_string(),
            json!({"allOf": [{"$ref": format!("#/$defs/{}", link + 1)}]}),
        );
    }
    defs.insert(
        "15".to_owned(),
        json!({"type": "array", "items": {"$ref": "#/$defs/0"}}),
    );
    let schema =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": defs});
    let compiled = accepted(&schema);
    let deep = (0..125).fold(json!([1]), |inner, _| json!([inner]));
    let checked = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || compiled.check(&json!({"a": deep})).is_err())
        .expect("starts")
        .join();
    assert!(checked.expect("does not overflow"));
}

#[test]
fn patterns_run_in_linear_time_or_not_at_all() {
    let with = |pattern: &str| json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
    // Exponential for an engine that goes back.
    let compiled = accepted(&with("^(a+)+$"));
    let start = Instant::now();
    let long = "a".repeat(100_000) + "!";
    let message = compiled
        .check(&json!({"a": long}))
        .expect_err("does not match");
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(
        message.to_string(),
        format!(
            "`a`: \"{}…\" does not match the pattern ^(a+)+$",
            "a".repeat(40)
        )
    );

    for pattern in [r"(?=a)b", r"(a)\1", r"a{1000}{1000}{1000}"] {
        let message = refused(&with(pattern));
        assert!(
            message.starts_with("`#/properties/a/pattern`: the pattern"),
            "{message}"
        );
    }
    let message = refused(&json!({"type": "object", "patternProperties": {"^(?!x)": true}}));
    assert!(
        message.starts_with("`#/patternProperties/^(?!x)`"),
        "{message}"
    );
    accepted(&json!({"type": "object", "patternProperties": {r"^\d+$": true}}));
}

#[test]
fn patterns_are_compiled_once_for_many_items() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"pattern": "^(a|b|c){1,50}$"}}},
        "required": ["b"],
    });
    let start = Instant::now();
    assert_eq!(
        reported(&schema, &json!({"a": vec!["abc"; 15_000]})),
        "\"b\" is missing"
    );
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_million_wrong_items_are_told_briefly() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"anyOf": [
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "boolean"}},
        ]}}
    });
    let start = Instant::now();
    let message = reported(&schema, &json!({"a": vec![1; 1_000_000]}));
    assert!(message.len() < 1_000, "{message}");
    assert!(start.elapsed() < Duration::from_secs(30));
}
