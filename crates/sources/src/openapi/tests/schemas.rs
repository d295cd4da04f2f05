//! Input and output schemas.

use super::*;

#[test]
fn schemas_of_3_0_become_those_of_2020_12_and_circles_stay_circles() {
    let settings = json!({"output_schemas": true});
    let collector = import_with(petstore("3.0.3", "https://api.example.com"), settings);
    let list = schema_of(&collector, "pets_list");
    assert_eq!(
        list["properties"]["limit"],
        json!({"type": "integer", "exclusiveMaximum": 100})
    );
    assert_eq!(list["properties"]["X-Trace"], json!({"type": "string"}));
    assert!(list["properties"].get("Authorization").is_none());
    let create = schema_of(&collector, "pets_create");
    assert_eq!(create["properties"]["body"], json!({"$ref": "#/$defs/Pet"}));
    assert_eq!(create["required"], json!(["body"]));
    let pet = &create["$defs"]["Pet"];
    assert_eq!(pet["required"], json!(["name"]), "the id is only read");
    assert!(pet["properties"].get("id").is_none());
    assert_eq!(
        pet["properties"]["nick"],
        json!({"type": ["string", "null"], "enum": ["a", "b", null]})
    );
    assert_eq!(pet["properties"]["parent"], json!({"$ref": "#/$defs/Pet"}));
    assert_eq!(
        pet["properties"]["owner"],
        json!({"anyOf": [{"allOf": [{"$ref": "#/$defs/Owner"}, {"type": "object"}]}, {"type": "null"}]})
    );
    assert_eq!(
        pet["properties"]["name"],
        json!({"type": "string"}),
        "a pattern for another engine is left out"
    );
    assert_eq!(
        pet["properties"]["kind"],
        json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})
    );
    let list = collector.offered.tools[0].definition();
    let output = list.output_schema.as_ref().expect("an output schema");
    assert!(
        output["$defs"]["Pet"]["properties"]
            .get("password")
            .is_none(),
        "{output}"
    );
    assert_eq!(
        list.description.as_deref(),
        Some("Lists pets\n\nAll of them.")
    );
    assert_eq!(list.annotations.read_only_hint, Some(true));
    let delete = collector
        .offered
        .tools
        .iter()
        .find(|t| t.definition().name == "delete")
        .expect("there");
    assert_eq!(delete.definition().annotations.destructive_hint, Some(true));
}

#[test]
fn output_schemas_are_not_announced_unless_they_are_asked_for() {
    let collector = import_with(petstore("3.1.0", "https://api.example.com"), json!({}));
    assert!(
        collector
            .offered
            .tools
            .iter()
            .all(|tool| tool.definition().output_schema.is_none())
    );
}

#[test]
fn an_output_schema_is_there_where_all_success_looks_like_it() {
    let object = json!({"type": "object", "required": ["a"]});
    let as_json = json!({"content": {"application/json": {"schema": object}}});
    let with = |kind: &str| {
        let mut response = as_json.clone();
        response["content"][kind] = json!({});
        response
    };
    let other = json!({"content": {"application/json": {"schema": {"type": "object"}}}});
    let document = with_responses(&[
        ("one", json!({"200": as_json, "404": other})),
        ("same", json!({"200": as_json, "201": as_json})),
        ("xml", json!({"200": with("application/xml")})),
        (
            "nothing",
            json!({"200": as_json, "204": {"description": "none"}}),
        ),
        ("part", json!({"200": as_json, "206": other})),
        ("file", json!({"200": with("application/pdf")})),
    ]);
    let collector = import_with(document, json!({"output_schemas": true}));
    let mut with_one: Vec<_> = collector
        .offered
        .tools
        .iter()
        .filter(|tool| tool.definition().output_schema.is_some())
        .map(|tool| &*tool.definition().name)
        .collect();
    with_one.sort_unstable();
    assert_eq!(with_one, ["one", "same", "xml"]);
}

#[test]
fn alternatives_show_the_value_of_the_discriminator() {
    let mut document = operations(&json!({
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"kitty": "#/components/schemas/Cat", "puppy": "Dog"}},
    }));
    let pet =
        json!({"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}});
    document["components"]["schemas"] = json!({"Cat": pet, "Dog": pet});
    let collector = import_with(document, json!({}));
    let alternatives = &schema_of(&collector, "add")["properties"]["body"]["anyOf"];
    assert_eq!(alternatives[0]["title"], "kind: kitty");
    assert_eq!(alternatives[1]["title"], "kind: puppy");
}

/// ASP.NET writes such documents.
#[test]
fn closed_parts_and_base_schemas_allow_the_properties_of_others() {
    let animal = json!({
        "type": "object", "required": ["kind"], "additionalProperties": false,
        "properties": {"kind": {"type": "string"}, "name": {"type": "string"}},
        "discriminator": {"propertyName": "kind", "mapping": {"dog": "#/components/schemas/Dog"}},
    });
    let owner = json!({"type": "object", "additionalProperties": false, "properties": {"id": {"type": "integer"}}});
    let part = json!({"type": "object", "additionalProperties": false, "properties": {"bark": {"type": "boolean"}}});
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let dog = json!({"allOf": [reference("Animal"), reference("Owner"), part]});
    for version in ["3.0.3", "3.1.0"] {
        let of = |schema: Value| {
            let mut document = operations(&schema);
            document["openapi"] = version.into();
            document["components"]["schemas"] =
                json!({"Animal": animal, "Owner": owner, "Dog": dog});
            let collector = import_with(document, json!({}));
            let schema = schema_of(&collector, "add").clone();
            let compiled = Compiled::input(&schema).expect("sound");
            (schema, move |body: Value| {
                compiled.check(&json!({ "body": body })).is_ok()
            })
        };
        let (_, accepts) = of(reference("Dog"));
        assert!(
            accepts(json!({"kind": "dog", "id": 1, "bark": true})),
            "{version}"
        );
        assert!(!accepts(json!({"id": 1, "bark": true})), "{version}");
        assert!(!accepts(json!({"kind": "dog", "bark": 1})), "{version}");
        let (schema, accepts) = of(reference("Animal"));
        assert!(accepts(json!({"kind": "dog", "bark": true})), "{version}");
        assert!(schema.to_string().contains("One of dog"), "{schema}");
        let (_, accepts) = of(json!({
            "type": "object", "properties": {"note": {"type": "string"}},
            "oneOf": [reference("Owner"), {"type": "object", "required": ["x"]}],
        }));
        assert!(accepts(json!({"id": 1, "note": "a"})), "{version}");
        let (_, accepts) = of(json!({"allOf": [reference("Owner")], "description": "Whose."}));
        assert!(accepts(json!({"id": 1})), "{version}");
        assert!(
            !accepts(json!({"id": 1, "bark": true})),
            "{version}: closed alone"
        );
        let mut wrapped =
            vec![json!({"allOf": [reference("Owner")], "additionalProperties": false})];
        if version == "3.1.0" {
            let mut beside = reference("Owner");
            beside["additionalProperties"] = false.into();
            wrapped.push(beside);
        }
        for schema in wrapped {
            let (_, accepts) = of(schema.clone());
            assert!(accepts(json!({"id": 1})), "{version}: {schema}");
            assert!(!accepts(json!({"bark": true})), "{version}: {schema}");
        }
    }
}

#[test]
fn a_default_beside_a_reference_matches_its_target() {
    let mut document = operations(&json!({"type": "object", "properties": {
        "a": {"$ref": "#/components/schemas/Color", "default": "rd"},
        "b": {"$ref": "#/components/schemas/Color", "default": "red"},
    }}));
    document["components"]["schemas"] = json!({"Color": {"type": "string", "enum": ["red"]}});
    let collector = import_with(document, json!({}));
    let properties = &schema_of(&collector, "add")["properties"]["body"]["properties"];
    assert_eq!(properties["a"], json!({"$ref": "#/$defs/Color"}));
    assert_eq!(properties["b"]["default"], "red");
}

#[test]
fn formats_of_numbers_are_not_passed_on() {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "a", "version": "1"}, "servers": [{"url": "https://api.example.com"}],
        "paths": {"/a": {"get": {
            "operationId": "a",
            "parameters": [
                {"name": "n", "in": "query", "schema": {"type": "integer", "format": "int32"}},
                {"name": "t", "in": "query", "schema": {"type": "string", "format": "date-time"}},
            ],
            "responses": {"200": {"content": {"application/json": {"schema": {
                "type": "object", "properties": {"x": {"type": "number", "format": "double"}},
            }}}}},
        }}},
    });
    let collector = import_with(document, json!({"output_schemas": true}));
    let definition = collector.offered.tools[0].definition();
    let arguments = &definition.input_schema["properties"];
    assert_eq!(arguments["n"], json!({"type": "integer"}));
    assert_eq!(arguments["t"]["format"], "date-time");
    let output = definition
        .output_schema
        .as_ref()
        .expect("a schema")
        .to_string();
    assert!(!output.contains("double"), "{output}");
}

#[test]
fn properties_that_are_a_reference_are_followed() {
    let body = |kind: &str| {
        let schema = json!({"type": "object", "properties": {"$ref": "#/components/x-shared"}});
        json!({"requestBody": {"content": {kind: {"schema": schema}}}, "responses": {}})
    };
    let mut document = with_responses(&[]);
    document["components"] = json!({"x-shared": {
        "ids": {"type": "array", "items": {"type": "integer"}},
        "seen": {"type": "string", "readOnly": true},
    }});
    for (number, kind) in ["application/json", "multipart/form-data"]
        .into_iter()
        .enumerate()
    {
        document["paths"][format!("/p{number}")] = json!({"post": body(kind)});
    }
    let collector = import_with(document, json!({}));
    assert_eq!(refusals(&collector), [""; 0]);
    for name in ["post_p0", "post_p1"] {
        assert_eq!(
            schema_of(&collector, name)["properties"]["body"]["properties"],
            json!({"ids": {"type": "array", "items": {"type": "integer"}}}),
            "{name}"
        );
    }
}

/// Such a document is not valid, but common: values of the base are those of its subtypes, which are values of the base.
#[test]
fn a_base_that_lists_its_subtypes_is_one() {
    let subtype = |kind: &str| {
        json!({
            "allOf": [{"$ref": "#/components/schemas/Key"}],
            "properties": {"kind": {"enum": [kind]}, "x": {"type": "string"}},
        })
    };
    let mut document = operations(&json!({"$ref": "#/components/schemas/Key"}));
    document["components"]["schemas"] = json!({
        "Key": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "id": {"type": "string"}},
            "required": ["kind"],
            "oneOf": [{"$ref": "#/components/schemas/Ec"}, {"$ref": "#/components/schemas/Rsa"}],
        },
        "Ec": subtype("EC"),
        "Rsa": subtype("RSA"),
    });
    let collector = import_with(document, json!({}));
    assert_eq!(refusals(&collector), [""; 0]);
    let schema = Compiled::input(schema_of(&collector, "add")).expect("valid");
    for (key, is_one) in [
        (json!({"kind": "EC", "id": "1", "x": "a"}), true),
        (json!({"kind": "RSA"}), true),
        (json!({"kind": "other"}), false),
        (json!({"kind": "EC", "id": 1}), false),
        (json!({"kind": "EC", "x": 1}), false),
        (json!({}), false),
    ] {
        assert_eq!(schema.check(&json!({"body": key})).is_ok(), is_one, "{key}");
    }
}
