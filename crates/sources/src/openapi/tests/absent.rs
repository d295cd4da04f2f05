//! Read-only and write-only properties that several schemas describe.

use super::*;

/// Imports a document with one operation, whose body and response have this schema.
fn with_schema(version: &str, schema: &Value, schemas: &Value) -> SourceBuilder {
    let media = json!({"content": {"application/json": {"schema": schema}}});
    let document = json!({
        "openapi": version,
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/a": {"post": {"operationId": "a", "requestBody": media, "responses": {"200": media}}}},
        "components": {"schemas": schemas},
    });
    import_with(document, json!({"output_schemas": true}))
}

fn input(collector: &SourceBuilder) -> Compiled {
    Compiled::input(schema_of(collector, "a")).expect("sound")
}

fn output(collector: &SourceBuilder) -> Compiled {
    let definition = collector.offered.tools[0].definition();
    Compiled::output(definition.output_schema.as_ref().expect("an output schema")).expect("sound")
}

/// OpenAPI 3.0.3, Schema Object, `readOnly`: "`required` will take effect on the response only".
#[test]
fn what_one_part_marks_as_read_only_no_other_part_demands() {
    let id = json!({"type": "object", "properties": {"id": {"type": "string", "readOnly": true}}});
    let inline = json!({"type": "object", "required": ["id", "total"], "properties": {"total": {"type": "number"}}});
    let strict = json!({"type": "object", "required": ["id", "total"], "properties": {"id": {"type": "string"}}});
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let choice = json!({"oneOf": [inline, {"type": "object", "required": ["id"]}]});
    for (name, schema) in [
        (
            "inline",
            json!({"type": "object", "allOf": [reference("Id"), inline]}),
        ),
        (
            "beside",
            json!({"type": "object", "allOf": [reference("Id")], "required": ["id", "total"]}),
        ),
        (
            "referenced",
            json!({"type": "object", "allOf": [reference("Strict"), reference("Id")]}),
        ),
        (
            "alternative",
            json!({"type": "object", "allOf": [reference("Id"), choice, reference("Strict")]}),
        ),
    ] {
        for version in ["3.0.3", "3.1.0"] {
            let schemas = json!({"Id": id, "Strict": strict});
            let collector = with_schema(version, &schema, &schemas);
            let input = input(&collector);
            let body = |value: Value| json!({ "body": value });
            assert!(input.check(&body(json!({"total": 1}))).is_ok(), "{name}");
            assert!(input.check(&body(json!({}))).is_err(), "{name}");
            let output = output(&collector);
            assert!(output.check(&json!({"total": 1})).is_err(), "{name}");
            assert!(
                output.check(&json!({"id": "1", "total": 1})).is_ok(),
                "{name}"
            );
        }
    }
}

#[test]
fn a_schema_that_is_used_in_two_ways_is_relaxed_in_one_of_them() {
    let schemas = json!({
        "Id": {"type": "object", "properties": {"id": {"type": "string", "readOnly": true}}},
        "Strict": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
    });
    let schema = json!({"type": "object", "properties": {
        "relaxed": {"allOf": [{"$ref": "#/components/schemas/Id"}, {"$ref": "#/components/schemas/Strict"}]},
        "strict": {"$ref": "#/components/schemas/Strict"},
    }});
    let input = input(&with_schema("3.1.0", &schema, &schemas));
    let check = |name: &str| input.check(&json!({"body": {name: {}}}));
    assert!(check("relaxed").is_ok());
    assert!(check("strict").is_err());
}

#[test]
fn a_mark_beside_a_reference_counts_where_keywords_beside_references_do() {
    let schemas = json!({"Ref": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}});
    let schema = json!({
        "type": "object", "required": ["owner", "secret", "qty"],
        "properties": {
            "owner": {"$ref": "#/components/schemas/Ref", "readOnly": true},
            "secret": {"$ref": "#/components/schemas/Ref", "writeOnly": true},
            "qty": {"type": "integer"},
        },
    });
    let collector = with_schema("3.1.0", &schema, &schemas);
    let sent = &schema_of(&collector, "a")["properties"]["body"];
    assert_eq!(sent["required"], json!(["secret", "qty"]));
    assert!(sent["properties"].get("owner").is_none(), "{sent}");
    let returned = collector.offered.tools[0].definition();
    let returned = returned.output_schema.as_ref().expect("an output schema");
    assert_eq!(returned["required"], json!(["owner", "qty"]));
    let collector = with_schema("3.0.3", &schema, &schemas);
    let sent = &schema_of(&collector, "a")["properties"]["body"];
    assert_eq!(sent["required"], json!(["owner", "secret", "qty"]));
}

#[test]
fn parts_that_lead_round_in_a_circle_end() {
    let reference = json!({"$ref": "#/components/schemas/A"});
    let schemas = json!({"A": {
        "allOf": [reference, reference, {"required": ["id"]}],
        "properties": {"id": {"readOnly": true}},
    }});
    let collector = with_schema("3.1.0", &reference, &schemas);
    assert_eq!(refusals(&collector), [""; 0]);
    let sent = &schema_of(&collector, "a")["properties"]["body"];
    assert!(sent.is_object(), "{sent}");
}
