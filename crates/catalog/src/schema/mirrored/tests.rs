// MH-10 to MH-12, MH-19

use serde_json::json;

use super::*;

fn mirrored(schema: &Value) -> Result<Vec<(String, String, ParameterKind)>, String> {
    header_parameters(schema)
        .map(|found| {
            found
                .into_iter()
                .map(|p| (p.header.to_string(), p.path.join("."), p.kind))
                .collect()
        })
        .map_err(|e| e.to_string())
}

#[test]
fn mirrored_parameters_are_found_with_their_paths() {
    let schema = json!({
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "method": {"type": "boolean", "x-mcp-header": "Method"},
            "place": {"type": "object", "properties": {
                "x-mcp-header": {"type": "integer", "x-mcp-header": "Z~"}
            }},
            "plain": {"type": "string", "default": {"x-mcp-header": "data"}}
        }
    });
    assert_eq!(
        mirrored(&schema),
        Ok(vec![
            (
                "mcp-param-region".into(),
                "region".into(),
                ParameterKind::String
            ),
            (
                "mcp-param-method".into(),
                "method".into(),
                ParameterKind::Boolean
            ),
            (
                "mcp-param-z~".into(),
                "place.x-mcp-header".into(),
                ParameterKind::Integer
            ),
        ])
    );
    assert_eq!(mirrored(&json!({"type": "object"})), Ok(vec![]));
}

#[test]
fn a_mirrored_parameter_that_breaks_a_rule_is_refused() {
    // MH-19
    let on = |property: Value| json!({"type": "object", "properties": {"a": property}});
    let typed = |of: &str, header: &str| on(json!({"type": of, "x-mcp-header": header}));
    let within = |keyword: &str, schema: Value| {
        let mut root = json!({"type": "object"});
        root[keyword] = schema;
        root
    };
    let annotated = || json!({"type": "string", "x-mcp-header": "A"});
    let a = "/properties/a";
    let place = "only a property that `properties` alone lead to from the root can have it";
    let kind = "the property's `type` must be `integer`, `string` or `boolean`, and only that";
    let name = "is not a header name, which is one or more letters, digits or !#$%&'*+-.^_`|~";
    for (schema, pointer, why) in [
        (typed("string", ""), a, name),
        (typed("string", "a b"), a, name),
        (typed("string", "a\r\nb"), a, name),
        (typed("string", "ä"), a, name),
        (
            on(json!({"type": "string", "x-mcp-header": 7})),
            a,
            "its value is a string",
        ),
        (typed("number", "A"), a, kind),
        (typed("object", "A"), a, kind),
        (
            on(json!({"type": ["string", "null"], "x-mcp-header": "A"})),
            a,
            kind,
        ),
        (on(json!({"x-mcp-header": "A"})), a, kind),
        (
            on(json!({"$ref": "#/$defs/b", "x-mcp-header": "A"})),
            a,
            kind,
        ),
        (
            on(json!({"items": annotated()})),
            "/properties/a/items",
            place,
        ),
        (
            on(json!({"anyOf": [true, annotated()]})),
            "/properties/a/anyOf/1",
            place,
        ),
        (
            within("$defs", json!({"b": annotated()})),
            "/$defs/b",
            place,
        ),
        (
            within("allOf", json!([{"properties": {"b": annotated()}}])),
            "/allOf/0/properties/b",
            place,
        ),
        (
            within("if", json!({"properties": {"b": annotated()}})),
            "/if/properties/b",
            place,
        ),
        (
            within("additionalProperties", annotated()),
            "/additionalProperties",
            place,
        ),
        (
            within("patternProperties", json!({"b": annotated()})),
            "/patternProperties/b",
            place,
        ),
        (
            within("x-mcp-header", json!("A")),
            "",
            "only a property can have it, not the root",
        ),
        (
            json!({"type": "object", "properties": {"a": annotated(), "b": {
                "type": "object", "properties": {"c": {"type": "string", "x-mcp-header": "a"}}}}}),
            "/properties/b/properties/c",
            "\"a\" is given twice (case does not count)",
        ),
    ] {
        let message = mirrored(&schema).expect_err("is refused");
        assert!(
            message.starts_with(&format!("`#{pointer}`: x-mcp-header: ")),
            "{message}"
        );
        assert!(message.ends_with(why), "{message}");
    }
}
