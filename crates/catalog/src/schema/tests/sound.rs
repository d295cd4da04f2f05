//! Rules for sound schemas (SCH-01 to SCH-05, TOOL-08).

use serde_json::{Value, json};

use super::{accepted, check_shown, refused};
use crate::catalog::schema::Compiled;

fn nested(depth: usize) -> Value {
    (0..depth).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"in": inner}}),
    )
}

#[test]
fn the_root_of_an_input_schema_is_an_object_schema() {
    accepted(&json!({"type": "object"}));
    for schema in [
        json!({}),
        json!({"type": "string"}),
        json!(true),
        json!(null),
        json!({"type": ["object"]}),
    ] {
        assert_eq!(
            refused(&schema),
            "`#`: the root of an input schema must have `\"type\": \"object\"`"
        );
    }
    for schema in [json!({}), json!({"type": "string"}), json!(true)] {
        Compiled::output(&schema).expect("any root will do");
    }
    assert_eq!(
        Compiled::output(&json!([]))
            .expect_err("is none")
            .to_string(),
        "`#`: not a valid schema: [] is not of types \"boolean\", \"object\""
    );
}

#[test]
fn declared_dialects_are_honoured_and_unknown_ones_refused() {
    // SCH-01
    for known in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ] {
        accepted(&json!({"$schema": known, "type": "object"}));
    }
    // `exclusiveMaximum` was a flag, and `items` a list.
    let old = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"maximum": 3, "exclusiveMaximum": true}}
    });
    assert!(accepted(&old).check(&json!({"n": 3})).is_err());
    assert!(accepted(&old).check(&json!({"n": 2})).is_ok());
    for unknown in ["https://example.com/mine", "draft-07"] {
        assert_eq!(
            refused(&json!({"$schema": unknown, "type": "object"})),
            format!(
                "`#/$schema`: the dialect {unknown:?} is not supported; use 2020-12, which needs no `$schema`"
            )
        );
    }
    assert!(refused(&json!({"$schema": 7, "type": "object"})).contains("dialect \"7\""));
}

#[test]
fn a_schema_is_valid_in_its_dialect() {
    let schema = json!({"type": "object", "properties": {"a": {"minimum": "three"}}});
    assert_eq!(
        refused(&schema),
        "`#/properties/a/minimum`: not a valid schema: \"three\" is not of type \"number\""
    );
    assert!(
        refused(&json!({"type": "object", "properties": {"a": 7}})).starts_with("`#/properties/a`")
    );
    assert!(refused(&json!({"type": "object", "required": "a"})).starts_with("`#/required`"));
}

#[test]
fn references_stay_within_the_schema() {
    // SCH-03
    accepted(&json!({
        "type": "object",
        "properties": {
            "pointer": {"$ref": "#/$defs/a~1b"},
            "encoded": {"$ref": "#/$defs/a~1b%20c"},
            "anchor": {"$ref": "#here"},
            "unusual": {"$ref": "#/x-shared/thing"},
        },
        "$defs": {
            "a/b": {"type": "string"},
            "a/b c": {"type": "string"},
            "c": {"$anchor": "here", "type": "integer"}
        },
        "x-shared": {"thing": {"type": "string"}}
    }));
    // SCH-04
    for remote in [
        "https://example.com/a.json",
        "a.json#/x",
        "file:///etc/passwd",
        "urn:x:y",
    ] {
        assert_eq!(
            refused(&json!({"type": "object", "properties": {"a": {"$ref": remote}}})),
            format!(
                "`#/properties/a/$ref`: {remote:?} is not part of this schema, and is not fetched; copy its target into `$defs`"
            )
        );
        let dynamic = json!({"type": "object", "items": {"$dynamicRef": remote}});
        assert!(refused(&dynamic).starts_with("`#/items/$dynamicRef`"));
    }
    for (nowhere, at) in [("#/$defs/b", "a"), ("#b", "a/b"), ("#/$defs/%zz", "~")] {
        let message = refused(&json!({"type": "object", "properties": {at: {"$ref": nowhere}}}));
        assert!(
            message.ends_with(&format!("{nowhere:?} leads nowhere in this schema")),
            "{message}"
        );
    }
    let no_schema = json!({"type": "object", "$ref": "#/x-words", "x-words": "none"});
    assert_eq!(
        refused(&no_schema),
        "`#/x-words`: a schema is an object, `true` or `false`"
    );
    // Below an unusual pointer, too.
    let hidden = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/x/y"}},
        "x": {"y": {"items": {"$ref": "https://example.com"}}}
    });
    assert!(refused(&hidden).starts_with("`#/x/y/items/$ref`"));
}

#[test]
fn references_may_name_a_part_by_its_id() {
    let schema = json!({
        "$id": "https://example.com/root",
        "type": "object",
        "properties": {"a": {"$ref": "part#/$defs/n"}, "b": {"$ref": "https://example.com/part"}},
        "$defs": {"part": {"$id": "part", "type": "object", "$defs": {"n": {"type": "integer"}}}}
    });
    let compiled = accepted(&schema);
    assert!(compiled.check(&json!({"a": 1, "b": {}})).is_ok());
    assert!(compiled.check(&json!({"a": "x"})).is_err());
    assert!(compiled.check(&json!({"b": 1})).is_err());
    // What has an address of its own is the base of the references in it.
    let moved = json!({
        "type": "object",
        "$defs": {"n": true, "part": {"$id": "https://example.com/part", "$ref": "#/$defs/n"}}
    });
    assert!(refused(&moved).starts_with("`#/$defs/part/$ref`: \"#/$defs/n\" leads nowhere"));
}

#[test]
fn schemas_have_a_depth_and_a_size() {
    accepted(&nested(64));
    assert_eq!(
        refused(&nested(65)).split_once(':').expect("has a place").1,
        " more than 64 subschemas within subschemas; split the tool, or make its arguments simpler"
    );
    assert!(refused(&nested(500)).contains("more than 64"));

    let wide = |n: usize| {
        let properties: serde_json::Map<_, _> =
            (0..n).map(|i| (i.to_string(), json!(true))).collect();
        json!({"type": "object", "properties": properties})
    };
    accepted(&wide(9_999));
    assert!(refused(&wide(10_000)).contains("more than 10000 subschemas;"));
}

#[test]
fn a_schema_may_be_recursive() {
    let tree = json!({
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "leaf": {"type": "integer"}},
        "additionalProperties": false
    });
    let compiled = accepted(&tree);
    assert!(
        compiled
            .check(&json!({"left": {"leaf": 1}, "right": {}}))
            .is_ok()
    );
    assert_eq!(
        compiled
            .check(&json!({"left": {"right": {"leaf": "x"}}}))
            .expect_err("is wrong")
            .to_string(),
        "`left.right.leaf`: \"x\" is not an integer"
    );
}

#[test]
fn a_reference_that_comes_back_to_itself_is_refused() {
    for schema in [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "anyOf": [{"$ref": "#"}, true]}),
        json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}
        }),
    ] {
        let message = refused(&schema);
        assert!(
            message.contains("this reference leads back to itself without a constraint"),
            "{message}"
        );
    }
}

#[test]
fn a_bomb_of_references_is_refused() {
    // Thirty levels, each of which applies the next one twice: a thousand million checks of one value.
    let mut defs = serde_json::Map::new();
    for level in 0..30 {
        let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
        defs.insert(level.to_string(), json!({"anyOf": [next, next]}));
    }
    defs.insert("30".to_owned(), json!(false));
    let bomb = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": defs});
    let message = refused(&bomb);
    assert!(
        message.contains("more than 10000 subschemas that apply to one value")
            || message.contains("more than 32 references"),
        "{message}"
    );
}

#[test]
fn a_schema_that_is_only_shown_may_have_any_pattern() {
    const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
    // Zod and Pydantic write such patterns for email addresses and decimal numbers.
    let patterns = [
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
        r"(?<=a)b",
        r"(a)\1",
    ];
    for pattern in patterns {
        let mut schema = json!({
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": pattern}},
            "patternProperties": {"^(?!x)": true}
        });
        assert_eq!(check_shown(&schema), Ok(()), "{pattern}");
        schema["$schema"] = DRAFT_7.into();
        assert_eq!(check_shown(&schema), Ok(()), "{pattern} in draft 7");
        schema["properties"]["b"] = json!({"$ref": "#/$defs/none"});
        assert!(check_shown(&schema).is_err(), "its references are checked");
    }
}
