use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn refused(schema: &Value) -> String {
    Compiled::input(schema).expect_err("is refused").to_string()
}

fn accepted(schema: &Value) -> Compiled {
    Compiled::input(schema).expect("is accepted")
}

/// What a model is told about `value`.
fn reported(schema: &Value, value: &Value) -> String {
    accepted(schema)
        .check(value)
        .expect_err("is refused")
        .to_string()
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"in": inner}}),
    )
}

// === Which schemas are sound (SCH-01 to SCH-05, TOOL-08) ===

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

/// Objects of keywords, right and wrong ones.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-1_i64..3).prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "#",
            "#a",
            "a",
            "/",
            "#/",
            "#/$defs/a",
            "#/properties/a",
            "a#a",
            "#a/b",
            "%",
            "#%",
            "urn:a:b",
            "urn:",
            "https://example.com/",
            "//x",
            "?",
            "::",
            "[",
            "object",
            "array",
            "http://json-schema.org/draft-07/schema#",
            "http://json-schema.org/draft-04/schema",
            "^(a|b",
            "\\d+",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let keywords = prop::sample::select(vec![
            "$id",
            "id",
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "$anchor",
            "$dynamicAnchor",
            "$recursiveAnchor",
            "$defs",
            "definitions",
            "properties",
            "items",
            "anyOf",
            "allOf",
            "not",
            "if",
            "then",
            "pattern",
            "patternProperties",
            "type",
            "enum",
            "const",
            "unevaluatedProperties",
            "dependencies",
            "dependentSchemas",
            "$schema",
            "a",
            "minimum",
            "x-mcp-header",
            "required",
            "additionalProperties",
            "prefixItems",
            "contains",
        ]);
        prop_oneof![
            2 => prop::collection::btree_map(keywords, inner.clone(), 0..6)
                .prop_map(|m| Value::from_iter(m.into_iter().map(|(k, v)| (k.to_owned(), v)))),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_and_no_value_makes_it_panic(schema in schemas(), value in schemas()) {
        let _ = header_parameters(&schema);
        let _ = says_no_more_than_type(&schema);
        if let Ok(compiled) = Compiled::output(&schema) {
            let _ = compiled.check(&value);
            let _ = compiled.check(&schema);
            let _ = explain::explain(&schema, &value);
        }
    }
}

// === What a model is told ===

#[test]
fn violations_name_the_path_and_what_was_expected() {
    let schema = json!({
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"latitude": {"type": "number", "maximum": 90}}
            },
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 3},
            "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]*$"},
            "note": {"type": ["string", "null"]},
        },
        "required": ["unit"],
        "additionalProperties": false
    });
    for (value, message) in [
        (
            json!({"place": {"latitude": 123}, "unit": "kelvin"}),
            "`place.latitude`: 123 is greater than the maximum of 90; `unit`: \"kelvin\" is not one \
             of \"celsius\", \"fahrenheit\"",
        ),
        (json!({}), "\"unit\" is missing"),
        (
            json!({"unit": "celsius", "dayz": 1}),
            "\"dayz\" is not a known property; there are \"place\", \"unit\", \"days\", \"name\", \"note\"",
        ),
        (
            json!({"unit": "celsius", "days": [1, 0, 2.5, "x"]}),
            "`days`: has 4 items, and may have at most 3; `days[1]`: 0 is less than the minimum of \
             1; `days[2]`: 2.5 is not an integer; `days[3]`: \"x\" is not an integer",
        ),
        (
            json!({"unit": "celsius", "name": ""}),
            "`name`: \"\" is shorter than 1 character",
        ),
        (
            json!({"unit": "celsius", "name": "NAMES!"}),
            "`name`: \"NAMES!\" is longer than 5 characters; `name`: \"NAMES!\" does not match the \
             pattern ^[a-z]*$",
        ),
        (
            json!({"unit": "celsius", "note": 7, "place": []}),
            "`place`: an array of 0 items is not an object; `note`: 7 is not a string or null",
        ),
        (json!([]), "an array of 0 items is not an object"),
    ] {
        assert_eq!(reported(&schema, &value), message);
    }
}

#[test]
fn of_several_forms_the_nearest_one_is_told() {
    let schema = json!({
        "type": "object",
        "properties": {"shape": {"oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                "required": ["kind", "radius"]
            },
            {"type": "string", "enum": ["point"]},
        ]}, "plain": {"oneOf": [{"const": "a"}, {"const": "b"}]}}
    });
    assert_eq!(
        reported(
            &schema,
            &json!({"shape": {"kind": "circle", "radius": "1"}})
        ),
        "`shape.radius`: \"1\" is not a number"
    );
    assert_eq!(
        reported(&schema, &json!({"shape": 7})),
        "`shape`: 7 matches none of the forms allowed here"
    );
    assert_eq!(
        reported(&schema, &json!({"plain": "c"})),
        "`plain`: \"c\" is not one of \"a\", \"b\""
    );
}

#[test]
fn every_keyword_has_a_reason_and_a_place() {
    let of = |keywords: Value| {
        let mut schema = json!({"type": "object", "properties": {"a": keywords}});
        schema["$defs"] = json!({"Short": {"type": "string", "maxLength": 1}});
        schema
    };
    for (keywords, value, message) in [
        (
            json!({"not": {"enum": ["x"]}}),
            json!("x"),
            "\"x\" matches a schema that is not allowed here: {\"enum\":[\"x\"]}",
        ),
        (json!({"not": true}), json!(1), "is not allowed here"),
        (
            json!({"not": {"$ref": "#/$defs/Short"}}),
            json!("x"),
            "\"x\" matches a schema that is not allowed here: {\"$ref\":\"#/$defs/Short\"}",
        ),
        (
            json!({"minProperties": 2}),
            json!({"b": 1}),
            "has 1 property, and needs at least 2",
        ),
        (
            json!({"maxProperties": 1}),
            json!({"b": 1, "c": 2}),
            "has 2 properties, and may have at most 1",
        ),
        (
            json!({"dependentRequired": {"b": ["c"]}}),
            json!({"b": 1}),
            "\"c\" is missing, which is required with \"b\"",
        ),
        (
            json!({"dependentSchemas": {"b": {"required": ["c"]}}}),
            json!({"b": 1}),
            "\"c\" is missing",
        ),
        (
            json!({"if": {"required": ["b"]}, "then": {"required": ["c"]}}),
            json!({"b": 1}),
            "\"c\" is missing",
        ),
        (
            json!({"if": {"required": ["b"]}, "else": {"required": ["c"]}}),
            json!({}),
            "\"c\" is missing",
        ),
        (
            json!({"contains": {"const": 1}}),
            json!([2]),
            "has 0 items like {\"const\":1}, and needs at least 1",
        ),
        (
            json!({"contains": {"const": 1}, "maxContains": 1}),
            json!([1, 1]),
            "has 2 items like {\"const\":1}, and may have at most 1",
        ),
        (
            json!({"propertyNames": {"maxLength": 2}}),
            json!({"long": 1}),
            "no property may be called \"long\"; names match {\"maxLength\":2}",
        ),
        (
            json!({"properties": {"b": {}}, "unevaluatedProperties": false}),
            json!({"b": 1, "c": 2}),
            "\"c\" is not a known property",
        ),
        (
            json!({"prefixItems": [{}], "unevaluatedItems": false}),
            json!([1, 2]),
            "has 2 items, of which some are not allowed",
        ),
        (
            json!({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": false}),
            json!({"y": 1}),
            "\"y\" is not a known property",
        ),
        (
            json!({"multipleOf": 0.5}),
            json!(0.7),
            "0.7 is not a multiple of 0.5",
        ),
        (
            json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(3),
            "3 matches 2 of the forms allowed here, and may match only one",
        ),
        (
            json!({"uniqueItems": true}),
            json!(vec![1; 30]),
            "has an item more than once",
        ),
    ] {
        let expected = format!("`a`: {message}");
        assert_eq!(
            reported(&of(keywords.clone()), &json!({"a": value})),
            expected
        );
        // Within alternatives, of which only one is of the value's type.
        let alternatives = of(json!({"anyOf": [{"type": "null"}, keywords]}));
        assert_eq!(
            reported(&alternatives, &json!({"a": value})),
            expected,
            "{keywords}"
        );
    }
    let schema = of(json!({"patternProperties": {"^x": {"type": "integer"}}}));
    assert_eq!(
        reported(&schema, &json!({"a": {"x1": "1"}})),
        "`a.x1`: \"1\" is not an integer"
    );
    let schema = json!({"type": "object", "propertyNames": {"maxLength": 2}, "minProperties": 1});
    assert_eq!(
        reported(&schema, &json!({})),
        "has 0 properties, and needs at least 1"
    );
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

// === Who checks ===

#[test]
fn what_types_say_is_told_from_what_says_more() {
    for harmless in [
        json!(true),
        json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}),
        json!({"type": "integer", "format": "uint64", "minimum": 0}),
        json!({"type": "string", "enum": ["a", "b"], "description": "x", "default": "a"}),
        json!({"type": ["string", "null"], "enum": ["a", null]}),
        json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
        json!({"oneOf": [{"type": "string", "const": "a", "description": "x"}]}),
        json!({"type": "array", "items": {"type": "string", "format": "date-time"}}),
        json!({"type": "array", "prefixItems": [true, true], "minItems": 2, "maxItems": 2}),
        json!({"type": "object", "additionalProperties": {"type": "boolean"}}),
    ] {
        assert!(says_no_more_than_type(&harmless), "{harmless}");
    }
    for more in [
        json!(false),
        json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 10}),
        json!({"type": "integer", "format": "int64", "minimum": 0}),
        json!({"type": "integer", "minimum": 0}),
        json!({"type": "integer", "multipleOf": 2}),
        json!({"type": "integer", "enum": [1, 2]}),
        json!({"type": "string", "minLength": 1}),
        json!({"type": "string", "pattern": "a"}),
        json!({"type": "array", "maxItems": 3, "minItems": 3, "items": true}),
        json!({"type": "array", "uniqueItems": true}),
        json!({"type": "object", "patternProperties": {"a": true}}),
        json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"oneOf": [{"type": "object", "properties": {}}]}),
        json!({"properties": {"a": {"items": {"maxLength": 1}}}}),
        json!({"$defs": {"a": {"minimum": 1}}}),
        json!({"$ref": "https://example.com"}),
        json!({"what-is-this": 1}),
    ] {
        assert!(!says_no_more_than_type(&more), "{more}");
    }
}
