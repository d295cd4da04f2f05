use std::sync::Mutex;

use serde_json::{Map, Value, json};

mod absent;
mod credentials;
mod forms;
mod hostile;
mod likenesses;
mod references;
mod requests;
mod schemas;
mod tools;
mod unsendable;

use super::*;
use crate::catalog::{Catalog, OutputContent};
use crate::net::testing::{response, serve};

fn import_document(config: &OpenApiSourceConfig, document: &Document) -> SourceBuilder {
    let mut collector = SourceBuilder::new("api", "sources[0]", Some(""));
    let limits = ImportLimits::new(config, 0);
    import(config, document, limits, &mut collector);
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

fn operations(schema: &Value) -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": "https://pets.example"}],
        "paths": {"/pets": {"post": {"operationId": "add", "requestBody": {"content": {"application/json": {"schema": schema}}}}}},
        "components": {"schemas": {"Name": {"type": "string", "maxLength": 7}}},
    })
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
    collect(&config, &mut collector).await;
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
