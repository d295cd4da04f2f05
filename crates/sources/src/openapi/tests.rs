use std::sync::Mutex;

use serde_json::{Map, Value, json};

mod absent;
mod forms;
mod hostile;
mod likenesses;
mod requests;

use super::*;
use crate::catalog::{Catalog, OutputContent};
use crate::net::testing::{response, serve};

fn import_document(config: &OpenApiSourceConfig, document: &Document) -> SourceBuilder {
    let mut collector = SourceBuilder::new("api", "sources[0]", Some(""));
    let limits = ImportLimits::new(config, 0);
    import(config, document, "api", limits, &mut collector);
    collector
}

fn import_with(document: Value, settings: Value) -> SourceBuilder {
    let config: OpenApiSourceConfig = serde_json::from_value(settings).expect("a configuration");
    let document = Document::new(document, None).expect("a document");
    import_document(&config, &document)
}

/// Imports a document as if it was fetched from a URL.
fn import_fetched(document: Value, url: &str, settings: Value) -> SourceBuilder {
    let config: OpenApiSourceConfig = serde_json::from_value(settings).expect("a configuration");
    let url = url.parse().expect("a URL");
    let document = Document::new(document, Some(url)).expect("a document");
    import_document(&config, &document)
}

fn refusals(collector: &SourceBuilder) -> Vec<String> {
    let refused = collector.offered.refused.iter();
    refused.map(ToString::to_string).collect()
}

fn schema_of<'a>(collector: &'a SourceBuilder, name: &str) -> &'a Value {
    let tool = collector
        .offered
        .tools
        .iter()
        .find(|tool| tool.definition().name == name);
    &tool
        .unwrap_or_else(|| panic!("no {name}: {:?}", collector.offered))
        .definition()
        .input_schema
}

fn petstore(version: &str, server: &str) -> Value {
    json!({
        "openapi": version,
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "{base}/v2", "variables": {"base": {"default": server}}}],
        "security": [{"key": []}],
        "paths": {
            "/pets": {
                "parameters": [{"$ref": "#/components/parameters/Trace"}],
                "get": {
                    "operationId": "pets.list", "tags": ["pets"], "summary": "Lists pets", "description": "All of them.",
                    "parameters": [
                        {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100, "exclusiveMaximum": version.starts_with("3.0").then_some(true).map_or(json!(100), Value::from)}},
                        {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                        {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                        {"name": "ids", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "integer"}}},
                        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                    ],
                    "responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Page"}}}}},
                },
                "post": {
                    "operationId": "pets.create", "tags": ["pets", "write"],
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}},
                    "responses": {"201": {"description": "made"}},
                },
            },
            "/pets/{petId}": {
                "parameters": [{"name": "petId", "in": "path", "required": true, "description": "Which", "schema": {"type": "string"}}],
                "get": {"responses": {}},
                "delete": {"operationId": "delete", "responses": {}, "security": []},
                "put": {
                    "operationId": "photo",
                    "parameters": [{"name": "petId", "in": "query", "schema": {"type": "integer"}}],
                    "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object", "properties": {
                        "file": {"type": "string", "format": "binary"}, "note": {"type": "string"}, "meta": {"type": "object"},
                    }}}}},
                    "responses": {},
                },
            },
            "/login": {"post": {
                "operationId": "login",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object", "properties": {"user": {"type": "string"}}}}}},
                "responses": {},
            }},
            "/broken": {"get": {"operationId": "broken", "parameters": [{"$ref": "#/components/parameters/Nowhere"}], "responses": {}}},
            "/outside": {"get": {"operationId": "outside", "parameters": [{"name": "a", "in": "query", "schema": {"$ref": "other.json#/A"}}], "responses": {}}},
            "/odd/{a}": {"get": {"operationId": "odd", "parameters": [{"name": "a", "in": "path", "required": true, "style": "deepObject", "schema": {}}], "responses": {}}},
            "/lost/{a}": {"get": {"operationId": "lost", "responses": {}}},
        },
        "components": {
            "parameters": {"Trace": {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}},
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "x-key"}},
            "schemas": {
                "Pet": {
                    "type": "object", "required": ["id", "name"],
                    "properties": {
                        "id": {"type": "integer", "readOnly": true},
                        "name": {"type": "string", "pattern": "^(?!x)[a-z]+$"},
                        "nick": {"type": "string", "nullable": true, "enum": ["a", "b"]},
                        "parent": {"$ref": "#/components/schemas/Pet"},
                        "owner": {"allOf": [{"$ref": "#/components/schemas/Owner"}, {"type": "object"}], "nullable": true},
                        "password": {"type": "string", "writeOnly": true},
                        "kind": {"oneOf": [{"type": "string"}, {"type": "integer"}], "discriminator": {"propertyName": "x"}},
                    },
                },
                "Owner": {"type": "object", "properties": {"pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}},
                "Page": {"type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}},
            },
        },
    })
}

#[test]
fn operations_become_tools_and_those_that_cannot_are_told_of() {
    for version in ["3.0.3", "3.1.0"] {
        let collector = import_with(petstore(version, "https://api.example.com"), json!({}));
        let names: Vec<&str> = collector
            .offered
            .tools
            .iter()
            .map(|tool| tool.definition().name())
            .collect();
        assert_eq!(
            names,
            [
                "pets_list",
                "pets_create",
                "get_pets_petId",
                "photo",
                "delete",
                "login"
            ],
            "{version}"
        );
        let reasons: Vec<String> = collector
            .offered
            .refused
            .iter()
            .map(|r| format!("{}: {}", r.place, r.problem))
            .collect();
        assert_eq!(reasons.len(), 4, "{reasons:#?}");
        for (reason, part) in
            reasons
                .iter()
                .zip(["leads nowhere", "out of the document", "deepObject", "{a}"])
        {
            assert!(reason.contains(part), "{reason}");
        }
        // The catalog accepts all of them.
        let catalog =
            Catalog::default().with_offered("api", std::mem::take(&mut { collector }.offered));
        assert_eq!(catalog.len(), 6);
        assert_eq!(catalog.refused().len(), 4, "{:?}", catalog.refused());
    }
}

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
fn what_is_wanted_is_chosen_and_named() {
    let names = |settings: Value| -> Vec<String> {
        let collector = import_with(petstore("3.1.0", "https://api.example.com"), settings);
        collector
            .offered
            .tools
            .iter()
            .map(|tool| tool.definition().name.clone())
            .collect()
    };
    assert_eq!(
        names(json!({"include": {"tags": ["pets"]}})),
        ["pets_list", "pets_create"]
    );
    assert_eq!(
        names(json!({"include": {"tags": ["pets"]}, "exclude": {"methods": ["POST"]}})),
        ["pets_list"]
    );
    assert_eq!(
        names(json!({"include": {"paths": ["/pets/*"]}, "exclude": {"operations": ["del*"]}})),
        ["get_pets_petId", "photo"]
    );
    assert_eq!(
        names(
            json!({"include": {"tags": ["pets"]}, "rename": {"pets.list": "all", "POST /pets": "add"}})
        ),
        ["all", "add"]
    );
    let twice = names(
        json!({"include": {"tags": ["pets"]}, "rename": {"pets.list": "a", "pets.create": "a"}}),
    );
    assert_eq!(twice, ["a", "post_pets"]);
    let short = names(
        json!({"include": {"operations": ["pets.*"]}, "rename": {"pets.list": "x".repeat(100)}, "name_characters": 20}),
    );
    assert_eq!(short.iter().map(String::len).collect::<Vec<_>>(), [20, 11]);
    let wrong = import_with(
        petstore("3.1.0", "https://api.example.com"),
        json!({"rename": {"nonesuch": "x"}}),
    );
    assert!(
        wrong
            .offered
            .refused
            .iter()
            .any(|r| r.place.ends_with("rename.nonesuch"))
    );
    let wrong = import_with(
        petstore("3.1.0", "https://api.example.com"),
        json!({"credentials": {"nonesuch": "x"}}),
    );
    assert!(
        wrong.offered.refused[0].problem.contains("it has key"),
        "{:?}",
        wrong.offered
    );
    let relative = import_with(petstore("3.1.0", "/api"), json!({}));
    assert!(
        relative.offered.refused[0]
            .problem
            .contains("openapi.server"),
        "{:?}",
        relative.offered
    );
}

#[test]
fn what_is_no_such_document_is_refused() {
    for (document, part) in [
        (json!({"swagger": "2.0", "paths": {}}), "Swagger 2.0"),
        (json!({"openapi": "4.0.0", "paths": {}}), "OpenAPI 4.0.0"),
        (json!({"openapi": "3.0.0"}), "no `paths`"),
        (
            json!([]),
            "it is not an OpenAPI document: it has no `openapi`",
        ),
    ] {
        let problem = Document::new(document, None).expect_err("refused");
        assert!(problem.contains(part), "{problem}");
    }
}

/// Calls a tool, and returns the request that it sent.
async fn request_of(
    collector: &SourceBuilder,
    seen: &Mutex<Vec<String>>,
    name: &str,
    arguments: Value,
) -> String {
    call(collector, name, arguments).await.expect("sent");
    seen.lock().expect("no panic").pop().expect("a request")
}

#[track_caller]
fn begins(request: &str, with: &str) {
    assert!(request.starts_with(with), "{request}");
}

async fn call(collector: &SourceBuilder, name: &str, arguments: Value) -> Result<Output, String> {
    let tool = collector
        .offered
        .tools
        .iter()
        .find(|tool| tool.definition().name == name)
        .expect("a tool");
    let Value::Object(arguments) = arguments else {
        panic!("an object")
    };
    let called = tool.call(Arc::new(CallContext::for_test()), arguments.into());
    match called.await {
        Ok(output) if output.is_error => match output.content {
            OutputContent::Blocks(blocks) => Err(serde_json::to_string(&blocks).expect("JSON")),
            other => panic!("{other:?}"),
        },
        Ok(output) => Ok(output),
        Err(error) => Err(error.message().to_owned()),
    }
}

#[tokio::test]
async fn arguments_go_where_the_document_says() {
    let (server, seen) = serve(|_| {
        response(
            "200 OK\r\ncontent-type: application/json",
            br#"{"items": []}"#,
        )
    })
    .await;
    let collector = import_with(
        petstore("3.0.3", &format!("http://{server}")),
        json!({"credentials": {"key": "k-1"}}),
    );
    let last = || seen.lock().expect("no panic").pop().expect("a request");
    let arguments = json!({
        "limit": 5, "tag": ["a b", "c"], "filter": {"age": {"gt": 3}, "x": [1]}, "ids": [1, 2], "session": "s;1", "X-Trace": "t",
    });
    let output = call(&collector, "pets_list", arguments)
        .await
        .expect("a result");
    assert_eq!(output.structured.as_deref(), Some(r#"{"items":[]}"#));
    let request = last();
    begins(
        &request,
        "GET /v2/pets?limit=5&tag=a%20b&tag=c&filter%5Bage%5D%5Bgt%5D=3&filter%5Bx%5D%5B0%5D=1&ids=1,2 HTTP/1.1",
    );
    for part in ["cookie: session=s%3b1", "x-trace: t", "x-key: k-1"] {
        assert!(request.to_lowercase().contains(part), "{request}");
    }
    let request = request_of(&collector, &seen, "delete", json!({"petId": "a/b"})).await;
    assert!(
        request.starts_with("DELETE /v2/pets/a%2Fb HTTP/1.1") && !request.contains("k-1"),
        "{request}"
    );
    for id in ["..", "../x", "", "x/../../y"]
        .map(Value::from)
        .into_iter()
        .chain([Value::Null])
    {
        let reported = call(&collector, "delete", json!({ "petId": id }))
            .await
            .expect_err("no path");
        assert!(reported.starts_with("petId: "), "{id}: {reported}");
    }
    call(&collector, "login", json!({"body": {"user": "a&b"}}))
        .await
        .expect("a result");
    assert!(last().ends_with("\r\n\r\nuser=a%26b"));
    let request = request_of(&collector, &seen, "photo", json!({"petId": "1", "petId_query": 2, "body": {"file": "aGVsbG8=", "note": "n", "meta": {"a": 1}}})).await;
    begins(&request, "PUT /v2/pets/1?petId=2 ");
    for part in [
        "name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\nhello\r\n",
        "name=\"note\"\r\n\r\nn\r\n",
        "name=\"meta\"\r\nContent-Type: application/json\r\n\r\n{\"a\":1}\r\n",
    ] {
        assert!(request.contains(part), "{request}");
    }
    assert!(
        call(
            &collector,
            "photo",
            json!({"petId": "1", "body": {"file": "***"}})
        )
        .await
        .is_err()
    );
    call(&collector, "pets_create", json!({"body": {"name": "Rex"}}))
        .await
        .expect("a result");
    assert!(last().ends_with("\r\n\r\n{\"name\":\"Rex\"}"));
}

#[test]
fn names_of_arguments_are_those_that_model_apis_accept() {
    let long = "x".repeat(70);
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Names", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/{id}": {"get": {
            "operationId": "find",
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
                query("filter[status]"), query("$top"), query("id"), query(&long),
                {"name": &long, "in": "header", "schema": {"type": "string"}},
            ],
            "responses": {"200": {"description": "All."}},
        }}},
    });
    let collector = import_with(document, json!({}));
    let properties = schema_of(&collector, "find")["properties"].as_object();
    let names: Vec<_> = properties.expect("an object").keys().collect();
    assert_eq!(names[..4], ["id", "filter_status", "top", "id_query"]);
    assert_eq!(names.len(), 6);
    assert!(names[4..].iter().all(|name| name.len() == 64), "{names:?}");
}

/// Returns a document of the size that large services publish: many operations with schemas that refer to one
/// another.
fn large(seed: usize, version: &str, operations: usize) -> Value {
    let schemas = 60 + seed * 17;
    let name = |number: usize| format!("Thing{}", number % schemas);
    let mut components = serde_json::Map::new();
    for number in 0..schemas {
        let reference = |to: usize| json!({"$ref": format!("#/components/schemas/{}", name(to))});
        let mut schema = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string", "readOnly": true, "example": "x"},
                "created": {"type": "string", "format": "date-time"},
                "self": reference(number),
                "next": reference(number * 7 + 1),
                "many": {"type": "array", "items": reference(number * 3 + seed)},
                "any": {"oneOf": [reference(number + 1), {"type": "string"}]},
            },
        });
        match (number % 5, version.starts_with("3.0")) {
            (0, true) => {
                schema["properties"]["note"] =
                    json!({"type": "string", "nullable": true, "x-own": 1});
            }
            (0, false) => {
                schema["properties"]["note"] =
                    json!({"type": ["string", "null"], "examples": ["x"]});
            }
            (1, _) => {
                schema = json!({"allOf": [reference(number + 2), schema], "description": "Both"});
            }
            (2, _) => schema["additionalProperties"] = reference(number + 4),
            (3, _) => schema["required"] = json!(["id", "created"]),
            _ => {}
        }
        components.insert(name(number), schema);
    }
    let mut paths = serde_json::Map::new();
    for number in 0..operations {
        let id = format!(
            "service{}/resources/{}/do-something-with-a-rather-long-name-v{seed}",
            number % 11,
            number
        );
        let path = format!("/r{}/{{id}}/p{number}", number % 13);
        let body = json!({"content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{}", name(number))}}}});
        paths.insert(path, json!({
            "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
            "get": {"operationId": format!("{id}/get"), "tags": [format!("t{}", number % 9)],
                "parameters": [{"name": "page[size]", "in": "query", "schema": {"type": "integer"}}],
                "responses": {"200": body}},
            "post": {"operationId": format!("{id}/post"), "requestBody": body, "responses": {"default": {"description": "x"}}},
        }));
    }
    json!({
        "openapi": version, "info": {"title": "Large", "version": "1"}, "servers": [{"url": "https://api.example.com"}],
        "paths": paths, "components": {"schemas": components},
    })
}

#[test]
fn large_documents_are_imported_whole() {
    for (seed, version) in ["3.0.0", "3.0.3", "3.1.0", "3.1.1", "3.0.2"]
        .into_iter()
        .enumerate()
    {
        let collector = import_with(large(seed, version, 4), json!({}));
        assert_eq!(collector.offered.refused, [], "{version}");
        assert_eq!(collector.offered.tools.len(), 8);
        let catalog = Catalog::default().with_offered("api", collector.offered);
        assert_eq!(catalog.len(), 8, "{:?}", catalog.refused());
    }
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

/// Returns a document with these GET operations, each at a path of its name.
fn with_responses(operations: &[(&str, Value)]) -> Value {
    let paths: Map<String, Value> = operations
        .iter()
        .map(|(name, responses)| {
            let get = json!({"operationId": name, "responses": responses});
            (format!("/{name}"), json!({ "get": get }))
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": paths,
    })
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

#[tokio::test]
async fn eli_08_what_a_scheme_was_given_is_taken_out_of_answers() {
    let (server, seen) = serve(|request| {
        let status = match request.contains("/fails") {
            true => "403 Forbidden",
            false => "200 OK",
        };
        response(
            &format!("{status}\r\ncontent-type: text/plain"),
            request.as_bytes(),
        )
    })
    .await;
    let schemes = json!({
        "head": {"type": "apiKey", "in": "header", "name": "x-key"},
        "query": {"type": "apiKey", "in": "query", "name": "key"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "key"},
        "basic": {"type": "http", "scheme": "basic"},
        "bearer": {"type": "http", "scheme": "bearer"},
        "oauth": {"type": "oauth2", "flows": {}},
    });
    let none = json!({"default": {"description": "any"}});
    for (scheme, secret) in [
        ("head", "canary+of/it="),
        ("query", "canary+of/it="),
        ("cookie", "canary-of-it"),
        ("basic", "me:canary-of-it"),
        ("bearer", "canary-of-it"),
        ("oauth", "canary-of-it"),
    ] {
        let mut document = with_responses(&[("works", none.clone()), ("fails", none.clone())]);
        document["servers"] = json!([{"url": format!("http://{server}")}]);
        document["security"] = json!([{scheme: []}]);
        document["components"] = json!({"securitySchemes": schemes});
        let collector = import_with(document, json!({"credentials": {scheme: secret}}));
        for name in ["works", "fails"] {
            let reported = match call(&collector, name, json!({})).await {
                Ok(output) => format!("{output:?}"),
                Err(message) => message,
            };
            let sent = seen.lock().expect("no panic").pop().expect("a request");
            assert!(
                sent.contains("canary") || sent.contains("bWU6Y2FuYXJ5"),
                "{sent}"
            );
            assert!(reported.contains("***"), "{scheme}: {reported}");
            for part in ["canary", "bWU6Y2FuYXJ5"] {
                assert!(!reported.contains(part), "{scheme}: {reported}");
            }
        }
    }
}

async fn read(document: &str) -> Document {
    let config = json!({ "document": document });
    let config: OpenApiSourceConfig = serde_json::from_value(config).expect("a configuration");
    Document::read(&config, ImportLimits::new(&config, 0))
        .await
        .expect("a document")
}

fn operations(schema: &Value) -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": "https://pets.example"}],
        "paths": {"/pets": {"post": {"operationId": "add", "requestBody": {"content": {"application/json": {"schema": schema}}}}}},
        "components": {"schemas": {"Name": {"type": "string", "maxLength": 7}}},
    })
}

/// Returns the first tool's input schema, which contains the body and the definitions of its references.
fn body(document: &Document) -> Result<Value, String> {
    let mut collector = SourceBuilder::new("api", "sources[0]", Some(""));
    let config = OpenApiSourceConfig::default();
    import(
        &config,
        document,
        "api",
        ImportLimits::new(&config, 0),
        &mut collector,
    );
    match collector.offered.tools.first() {
        Some(tool) => Ok(tool.definition().input_schema.clone()),
        None => Err(format!("{:?}", collector.offered.refused)),
    }
}

#[tokio::test]
async fn references_to_other_files_are_followed_wherever_they_lead_in_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("made");
        std::fs::write(file, text).expect("written");
    };
    let root = operations(&json!({"$ref": "schemas/pet.yaml#/Pet"}));
    write("api.json", &root.to_string());
    write(
        "schemas/pet.yaml",
        "Pet:\n  type: object\n  properties:\n    name: {$ref: '../api.json#/components/schemas/Name'}\n    tag: {$ref: tag.json}\n    friend: {$ref: '#/Pet'}\n",
    );
    write("schemas/tag.json", r#"{"type": "integer", "minimum": 3}"#);
    let document = read(folder.path().join("api.json").to_str().expect("text")).await;
    let schema = body(&document).expect("a tool").to_string();
    for part in [r#""maxLength":7"#, r#""minimum":3"#] {
        assert!(schema.contains(part), "{part} in {schema}");
    }
    assert!(
        !schema.contains(".yaml") && !schema.contains(".json"),
        "{schema}"
    );
}

#[tokio::test]
async fn references_to_named_schemas_are_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut root = operations(&json!({"type": "object", "properties": {
        "name": {"$ref": "#name"},
        "tag": {"$ref": "Tag#"},
        "mark": {"$ref": "https://pets.example/tag#/properties/mark"},
        "owner": {"$ref": "owner.json#owner"},
    }}));
    root["components"]["schemas"] = json!({
        "Name": {"$anchor": "name", "type": "string", "maxLength": 7},
        "Tag": {"$id": "Tag", "type": "integer", "minimum": 3},
        "Other": {"$id": "https://pets.example/tag", "properties": {"mark": {"type": "string", "maxLength": 5}}},
    });
    let file = folder.path().join("api.json");
    std::fs::write(&file, root.to_string()).expect("written");
    let owner = r#"{"$defs": {"Owner": {"$anchor": "owner", "type": "string", "maxLength": 9}}}"#;
    std::fs::write(folder.path().join("owner.json"), owner).expect("written");
    let schema = body(&read(file.to_str().expect("text")).await).expect("a tool");
    let schema = Compiled::input(&schema).expect("sound");
    let accepts = |body: Value| schema.check(&json!({ "body": body })).is_ok();
    assert!(accepts(
        json!({"name": "a", "tag": 3, "mark": "a", "owner": "a"})
    ));
    for refused in [
        json!({"name": "aaaaaaaa"}),
        json!({"tag": 2}),
        json!({"mark": "aaaaaa"}),
        json!({"owner": "aaaaaaaaaa"}),
    ] {
        assert!(!accepts(refused.clone()), "{refused}");
    }
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
fn entries_of_a_selection_that_match_nothing_are_found() {
    let selection = json!({
        "tags": ["pets", "pest"], "paths": ["/pets*", "/admin/*"], "operations": ["list", "get /pets", "DELETE /pets", "Get *"],
    });
    let selection: Selection = serde_json::from_value(selection).expect("a selection");
    let operations = [("get", "/pets", "list", vec!["pets"])];
    assert_eq!(
        selection.unmatched(&operations),
        [
            ("tags", "pest"),
            ("paths", "/admin/*"),
            ("operations", "DELETE /pets"),
            ("operations", "Get *")
        ]
    );
}

#[tokio::test]
async fn a_response_to_head_is_its_headers() {
    let (server, _) = serve(|_| {
        response(
            "200 OK\r\netag: \"a1\"\r\nset-cookie: session=secret\r\ncontent-length: 12",
            b"",
        )
    })
    .await;
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Files", "version": "1"}, "servers": [{"url": format!("http://{server}")}],
        "paths": {"/file": {"head": {"operationId": "look"}}},
    });
    let collector = import_with(document, json!({}));
    let output = call(&collector, "look", json!({})).await.expect("a result");
    let OutputContent::Text(text) = output.content else {
        panic!("a text");
    };
    assert!(
        text.starts_with("200 OK\n") && text.contains("\netag: \"a1\""),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn what_is_outside_or_missing_is_told_and_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("secret.json"), r#"{"type": "object"}"#).expect("written");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("made");
    std::os::unix::fs::symlink(folder.path().join("secret.json"), inner.join("link.json"))
        .expect("linked");
    for (reference, reported) in [
        ("../secret.json", "not in the folder of the document"),
        ("link.json", "not in the folder of the document"),
        ("/etc/hostname", "not in the folder of the document"),
        ("nothing.json", "cannot be read"),
        ("http://127.0.0.1:1/x.json", "cannot be followed"),
        ("http://169.254.169.254/latest", "cannot be followed"),
        ("file:///etc/passwd", "cannot be followed"),
    ] {
        let root = operations(&json!({ "$ref": reference }));
        std::fs::write(inner.join("api.json"), root.to_string()).expect("written");
        let document = read(inner.join("api.json").to_str().expect("text")).await;
        let refused = body(&document).expect_err(reference);
        assert!(refused.contains(reported), "{reference}: {refused}");
    }
}

#[tokio::test]
async fn references_of_a_fetched_document_are_fetched() {
    let (server, seen) = serve(|request| {
        let body = if request.starts_with("GET /v1/api.json ") {
            operations(&json!({"$ref": "parts/pet.json#/Pet"})).to_string()
        } else if request.starts_with("GET /v1/parts/pet.json ") {
            r#"{"Pet": {"type": "object", "properties": {"a": {"$ref": "pet.json#/A"}}}, "A": {"const": 5}}"#.to_owned()
        } else {
            return response("404 Not Found", b"");
        };
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let document = read(&format!("http://{server}/v1/api.json")).await;
    let schema = body(&document).expect("a tool").to_string();
    assert!(schema.contains(r#""const":5"#), "{schema}");
    assert_eq!(seen.lock().expect("no panic").len(), 2, "each is read once");
}

#[tokio::test]
async fn sec_12_the_query_of_a_documents_url_is_not_told() {
    let (server, _) = serve(|request| {
        let body: &[u8] = match request.starts_with("GET /broken?") {
            true => b"{",
            false => b"{}",
        };
        response("200 OK\r\ncontent-type: application/json", body)
    })
    .await;
    for path in ["broken", "other"] {
        let url = format!("http://{server}/{path}");
        let config = json!({"document": format!("{url}?token=canary")});
        let config: OpenApiSourceConfig = serde_json::from_value(config).expect("a configuration");
        let unread = Document::read(&config, ImportLimits::new(&config, 0)).await;
        let problem = unread.expect_err("no document").problem;
        assert!(problem.starts_with(&format!("{url}: ")), "{problem}");
    }
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

const SECRETS: [&str; 3] = ["auth", "credentials", "headers"];

/// Returns one of the settings that hold secrets.
fn with_secret(which: &str) -> Value {
    match which {
        "auth" => json!({"auth": {"bearer": "canary"}}),
        "credentials" => json!({"credentials": {"key": "canary"}}),
        _ => json!({"headers": {"x-any": "canary"}}),
    }
}

#[test]
fn a_fetched_document_does_not_decide_where_credentials_go() {
    let there = "https://api.example.com";
    let elsewhere = "https://docs.example.com/openapi.json";
    for which in SECRETS {
        let secret = with_secret(which);
        let refused = import_fetched(petstore("3.1.0", there), elsewhere, secret.clone());
        let problems = refusals(&refused);
        assert!(
            problems[0].contains("sources[0].openapi.server")
                && problems[0].contains("https://api.example.com/v2")
                && problems[0].contains("set openapi.server"),
            "{problems:?}"
        );
        assert_eq!(refused.offered.tools.len(), 0);
        // The operator knows the document's own origin, and the configured server.
        let own = import_fetched(
            petstore("3.1.0", there),
            "https://api.example.com/openapi.json",
            secret.clone(),
        );
        assert_eq!(own.offered.tools.len(), 6, "{:?}", refusals(&own));
        let mut named = secret.clone();
        named["server"] = there.into();
        let named = import_fetched(petstore("3.1.0", there), elsewhere, named);
        assert_eq!(named.offered.tools.len(), 6, "{:?}", refusals(&named));
        // The operator wrote or reviewed a document in a file.
        let file = import_with(petstore("3.1.0", there), secret);
        assert_eq!(file.offered.tools.len(), 6, "{:?}", refusals(&file));
    }
    let open = import_fetched(petstore("3.1.0", there), elsewhere, json!({}));
    assert_eq!(open.offered.tools.len(), 6, "there is nothing to send");
}

#[test]
fn nor_do_servers_of_its_paths_and_operations() {
    let mut document = petstore("3.1.0", "https://api.example.com");
    document["paths"]["/login"]["servers"] = json!([{"url": "https://evil.example"}]);
    document["paths"]["/pets"]["get"]["servers"] = json!([{"url": "https://evil.example"}]);
    document["paths"]["/pets"]["post"]["servers"] = json!([{"url": "/v3"}]);
    let url = "https://api.example.com/openapi.json";
    for which in SECRETS {
        let collector = import_fetched(document.clone(), url, with_secret(which));
        let problems = refusals(&collector);
        let of_origin: Vec<_> = problems
            .iter()
            .filter(|problem| problem.contains("whose origin differs from that of the fetched document: credentials are not sent there; set openapi.server to the URL of the API"))
            .map(|problem| problem.split(':').next().unwrap_or_default())
            .collect();
        assert_eq!(of_origin.len(), 2, "{problems:?}");
        assert_eq!(collector.offered.tools.len(), 4);
        let file = import_with(document.clone(), with_secret(which));
        // A file has no URL of its own, so it cannot have relative ones.
        assert_eq!(file.offered.tools.len(), 5, "{:?}", refusals(&file));
    }
}

#[tokio::test]
async fn a_part_that_was_fetched_does_not_decide_for_a_document_in_a_file() {
    let (server, _) = serve(|_| {
        let item = json!({
            "get": {"operationId": "taken", "servers": [{"url": "https://evil.example"}], "responses": {}},
            "post": {"operationId": "plain", "responses": {}},
        });
        response("200 OK\r\ncontent-type: application/json", item.to_string().as_bytes())
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("api.json");
    let root = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/a": {"$ref": format!("http://{server}/part.json")}},
    });
    std::fs::write(&file, root.to_string()).expect("written");
    let config = json!({
        "document": file, "auth": {"bearer": "canary"}, "egress": {"loopback": true},
    });
    let config: OpenApiSourceConfig = serde_json::from_value(config).expect("a configuration");
    let document = Document::read(&config, ImportLimits::new(&config, 0))
        .await
        .expect("a document");
    let collector = import_document(&config, &document);
    let problems = refusals(&collector);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("GET /a") && problems[0].contains("whose origin differs from that of the fetched document: credentials are not sent there; set openapi.server to the URL of the API"));
    assert_eq!(collector.offered.tools.len(), 1);
}

#[tokio::test]
async fn lists_in_a_query_have_delimiters_that_are_no_part_of_values() {
    let (server, seen) = serve(|_| response("200 OK\r\ncontent-type: text/plain", b"")).await;
    let list = |name: &str, style: &str, more: Value| {
        let mut parameter = json!({
            "name": name, "in": "query", "style": style, "explode": false,
            "schema": {"type": ["array", "object", "string"]},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            parameter[name] = value.clone();
        }
        parameter
    };
    let reserved = json!({"allowReserved": true});
    let mut document = with_responses(&[("all", json!({}))]);
    document["servers"] = json!([{"url": format!("http://{server}")}]);
    document["paths"]["/all"]["get"]["parameters"] = json!([
        list("form", "form", json!({})),
        list("space", "spaceDelimited", json!({})),
        list("pipe", "pipeDelimited", json!({})),
        list("many", "form", json!({"explode": true})),
        list("free", "form", reserved),
    ]);
    let collector = import_with(document, json!({}));
    for (arguments, query) in [
        (json!({"form": ["a b", "c,d"]}), "form=a%20b,c%2Cd"),
        (json!({"form": {"a,b": "c&d"}}), "form=a%2Cb,c%26d"),
        (json!({"space": ["a", "b+c"]}), "space=a%20b%2Bc"),
        (json!({"pipe": ["a", "b|c"]}), "pipe=a%7Cb%7Cc"),
        (json!({"many": ["a", "b,c"]}), "many=a&many=b%2Cc"),
        (json!({"form": "a,b/c"}), "form=a%2Cb%2Fc"),
        // Characters that would begin another value, or end the query, are always encoded.
        (
            json!({"free": "a:/?@!$'()*,;=b&c#d[e]+f g%2Fh%i"}),
            "free=a:/?@!$'()*,;=b%26c%23d%5Be%5D%2Bf%20g%2Fh%25i",
        ),
        (json!({}), ""),
    ] {
        let request = request_of(&collector, &seen, "all", arguments).await;
        let question = if query.is_empty() { "" } else { "?" };
        // The apostrophe is always encoded in URLs of this kind (WHATWG URL, special-query percent-encode set).
        let expected = format!("GET /all{question}{} HTTP", query.replace('\'', "%27"));
        assert!(request.starts_with(&expected), "{expected}: {request}");
    }
}

#[test]
fn operations_that_are_not_offered_are_told_of() {
    let operation = json!({"operationId": "x", "tags": ["t"], "responses": {}});
    let mut document = with_responses(&[("a", json!({}))]);
    document["openapi"] = "3.2.0".into();
    document["paths"]["/b"] = json!({
        "trace": operation, "query": operation, "additionalOperations": {"COPY": operation},
    });
    let reported = |settings: Value| refusals(&import_with(document.clone(), settings));
    let all = reported(json!({}));
    let places = ["TRACE /b", "QUERY /b", "COPY /b"];
    assert_eq!(all.len(), 3, "{all:?}");
    for (reported, place) in all.iter().zip(places) {
        assert!(
            reported.contains(place) && reported.contains("not offered"),
            "{reported}"
        );
    }
    assert_eq!(reported(json!({"exclude": {"tags": ["t"]}})), [""; 0]);
}

#[test]
fn an_operation_without_words_is_described_by_its_method_and_path() {
    let collector = import_with(petstore("3.1.0", "https://api.example.com"), json!({}));
    let of = |name: &str| {
        let mut tools = collector.offered.tools.iter();
        let tool = tools.find(|tool| tool.definition().name == name);
        tool.and_then(|tool| tool.definition().description.clone())
    };
    assert_eq!(of("delete").as_deref(), Some("DELETE /pets/{petId}"));
    assert_eq!(
        of("pets_list").as_deref(),
        Some("Lists pets\n\nAll of them.")
    );
}

/// Returns a folder with these files.
fn folder_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("made");
        std::fs::write(file, text).expect("written");
    }
    folder
}

async fn import_file(file: &std::path::Path, mut settings: Value) -> SourceBuilder {
    settings["document"] = json!(file);
    let config: OpenApiSourceConfig = serde_json::from_value(settings).expect("a configuration");
    let mut collector = SourceBuilder::new("api", "sources[0]", Some(""));
    collect(&config, "api", &mut collector).await;
    collector
}

const SPLIT: [(&str, &str); 6] = [
    (
        "api.yaml",
        "openapi: 3.0.3\ninfo: {title: t, version: '1'}\nservers: [{url: https://api.example.com}]\npaths:\n  \
         /pets:\n    get: {$ref: ops/list.yml}\n  /pets/{id}:\n    $ref: items/pet.yml\n  \
         /round:\n    get: {$ref: ops/round.yml}\n  /gone:\n    get: {$ref: ops/gone.yml}\n",
    ),
    (
        "ops/list.yml",
        "operationId: list\nsummary: Lists\nparameters:\n- $ref: parameters.yml#/limit\nresponses:\n  '200': {$ref: ../shared/ok.yml}\n",
    ),
    (
        "ops/parameters.yml",
        "limit: {name: limit, in: query, schema: {type: integer, maximum: 9}}\nid: {name: id, in: path, required: true, schema: {$ref: ../shared/id.yml}}\n",
    ),
    (
        "items/pet.yml",
        "parameters:\n- $ref: ../ops/parameters.yml#/id\nget:\n  operationId: show\n  responses: {}\ndelete: {$ref: '../ops/more.yml#/remove'}\n",
    ),
    (
        "ops/more.yml",
        "remove:\n  $ref: '#/removal'\nremoval:\n  operationId: remove\n  responses: {}\n",
    ),
    ("ops/round.yml", "$ref: ../ops/round.yml\n"),
];

#[tokio::test]
async fn operations_and_paths_that_are_references_are_followed_from_where_they_stand() {
    let mut files = SPLIT.to_vec();
    files.push(("shared/id.yml", "type: string\nmaxLength: 7\n"));
    files.push(("shared/ok.yml", "description: fine\n"));
    let folder = folder_of(&files);
    let collector = import_file(&folder.path().join("api.yaml"), json!({})).await;
    let tools = &collector.offered.tools;
    let names: Vec<&str> = tools.iter().map(|tool| tool.definition().name()).collect();
    assert_eq!(names, ["list", "show", "remove"]);
    assert_eq!(
        schema_of(&collector, "list")["properties"],
        json!({"limit": {"type": "integer", "maximum": 9}})
    );
    for name in ["show", "remove"] {
        let schema = schema_of(&collector, name);
        assert_eq!(schema["required"], json!(["id"]));
        assert_eq!(schema["$defs"]["id"]["maxLength"], 7, "{schema}");
    }
    let reported = refusals(&collector);
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(
        reported[0].contains("GET /round") && reported[0].contains("circle"),
        "{reported:?}"
    );
    assert!(
        reported[1].contains("GET /gone")
            && reported[1].contains("ops/gone.yml")
            && reported[1].contains("cannot be read"),
        "{reported:?}"
    );
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

#[tokio::test]
async fn one_name_in_two_folders_is_two_documents() {
    let folder = folder_of(&[
        (
            "api.yaml",
            "openapi: 3.0.3\ninfo: {title: t, version: '1'}\nservers: [{url: https://api.example.com}]\npaths:\n  \
             /a: {$ref: a/item.yml}\n  /b: {$ref: b/item.yml}\n",
        ),
        (
            "a/item.yml",
            "get: {operationId: a, parameters: [{$ref: p.yml}], responses: {}}\n",
        ),
        (
            "b/item.yml",
            "get: {operationId: b, parameters: [{$ref: p.yml}], responses: {}}\n",
        ),
        // This folder has no such file beside the first one.
        ("b/p.yml", "name: q\nin: query\nschema: {type: integer}\n"),
    ]);
    let collector = import_file(&folder.path().join("api.yaml"), json!({})).await;
    assert_eq!(
        collector.offered.tools.len(),
        1,
        "{:?}",
        refusals(&collector)
    );
    assert!(schema_of(&collector, "b")["properties"]["q"].is_object());
    let reported = refusals(&collector);
    assert!(
        reported[0].contains("GET /a") && reported[0].contains("a/p.yml"),
        "{reported:?}"
    );
}

#[tokio::test]
async fn the_number_of_documents_is_a_setting_and_what_to_do_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths = Map::new();
    for number in 0..100 {
        let name = format!("op{number}.json");
        let operation = json!({"operationId": format!("op{number}"), "responses": {}});
        std::fs::write(folder.path().join(&name), operation.to_string()).expect("written");
        paths.insert(format!("/p{number}"), json!({"get": {"$ref": name}}));
    }
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}], "paths": paths,
    });
    let file = folder.path().join("api.json");
    std::fs::write(&file, document.to_string()).expect("written");
    let all = import_file(&file, json!({})).await;
    assert_eq!(all.offered.tools.len(), 100, "{:?}", refusals(&all));
    let some = import_file(&file, json!({"max_documents": 10})).await;
    assert_eq!(some.offered.tools.len(), 10);
    let reported = refusals(&some);
    assert_eq!(reported.len(), 90);
    for part in ["openapi.max_documents", "bundle"] {
        assert!(reported[0].contains(part), "{reported:?}");
    }
}

#[tokio::test]
async fn referenced_documents_have_a_size_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths = Map::new();
    for number in 0..5 {
        let name = format!("op{number}.json");
        let operation = json!({"operationId": format!("op{number}"), "x-note": "x".repeat(50_000), "responses": {}});
        std::fs::write(folder.path().join(&name), operation.to_string()).expect("written");
        paths.insert(format!("/p{number}"), json!({"get": {"$ref": name}}));
    }
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}], "paths": paths,
    });
    let file = folder.path().join("api.json");
    std::fs::write(&file, document.to_string()).expect("written");
    let collector = import_file(&file, json!({"document_bytes": 120_000})).await;
    assert_eq!(collector.offered.tools.len(), 2);
    let reported = refusals(&collector);
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(
        reported
            .iter()
            .all(|reported| reported.contains("openapi.document_bytes")),
        "{reported:?}"
    );
}
