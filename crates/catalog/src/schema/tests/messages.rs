//! Messages that models read about rejected arguments.

use serde_json::{Value, json};

use super::reported;

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
fn of_several_forms_with_a_tag_the_one_of_the_tag_is_told() {
    let form = |kind: &str, member: &str| {
        json!({
            "type": "object",
            "properties": {"kind": {"const": kind}, member: {"type": "integer"}},
            "required": ["kind", member],
        })
    };
    let point = json!({"properties": {"kind": {"enum": ["point"]}}, "required": ["kind"]});
    let schema = json!({
        "type": "object",
        "properties": {"shape": {"oneOf": [
            {"type": "null"}, form("circle", "radius"), {"$ref": "#/$defs/Square"}, point,
        ]}},
        "$defs": {"Square": form("square", "side")},
    });
    for (shape, message) in [
        (json!({"kind": "square"}), "`shape`: \"side\" is missing"),
        (
            json!({"kind": "circle", "radius": "1"}),
            "`shape.radius`: \"1\" is not an integer",
        ),
        (
            json!({"kind": "hexagon", "side": 1}),
            "`shape.kind`: \"hexagon\" is not one of \"circle\", \"square\", \"point\"",
        ),
        (
            json!({"side": 1}),
            "`shape`: \"kind\" is missing; it is one of \"circle\", \"square\", \"point\"",
        ),
    ] {
        assert_eq!(reported(&schema, &json!({"shape": shape})), message);
    }
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
            "\"y\" is not a known property; others match ^x",
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
