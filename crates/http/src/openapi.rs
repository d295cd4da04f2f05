//! The tools as an OpenAPI document.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::context::{Outcome, RequestContext, Waiting};
use super::rejection::HttpError;
use super::rest::{self, ResultText};

/// Describes the tools that the caller can see.
pub(super) fn describe(request: &RequestContext<'_>, headers: HeaderMap) -> Waiting<Outcome> {
    let endpoint = &request.origin.router.endpoint;
    let server = Arc::clone(&endpoint.server);
    let url = endpoint.config.public_url.clone();
    let (principal, share) = (Arc::clone(request.principal), request.share());
    Box::pin(async move {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let listed = poll_fn(|cx| {
                Poll::Ready(server.list_tools_rest(cx, None, &principal, cursor.as_deref()))
            });
            let page = match ResultText::of(listed.await.reply().await)? {
                ResultText::Result(page) => page,
                ResultText::Problem(response) => return Ok(response),
            };
            let page = serde_json::from_slice::<Value>(&page);
            let mut page = page.map_err(|_| HttpError::Internal)?;
            if let Value::Array(more) = page["tools"].take() {
                tools.extend(more);
            }
            match page["nextCursor"].take() {
                Value::String(next) => cursor = Some(next),
                _ => break,
            }
        }
        let document = document(&server.info(), &tools, url.as_deref());
        rest::document(&server, share, &headers, &document.to_string().into())
    })
}

/// An OpenAPI 3.1 document, whose schemas are those of JSON Schema. `url` is that of the server: without one, its paths
/// begin at the root of the host that the document comes from.
fn document(info: &Value, tools: &[Value], url: Option<&str>) -> Value {
    let mut paths = Map::new();
    let mut list = LIST.to_owned();
    // A tool can have the same name, and operation IDs are unique.
    while tools.iter().any(|tool| tool["name"] == *list) {
        list.push('_');
    }
    paths.insert("/tools".to_owned(), list_of_tools(&list));
    for tool in tools {
        if let Some(name) = tool["name"].as_str() {
            paths.insert(format!("/tools/{name}"), operation(name, tool));
        }
    }
    let mut about = Map::new();
    about.insert(
        "title".to_owned(),
        info.get("title").unwrap_or(&info["name"]).clone(),
    );
    about.insert("version".to_owned(), info["version"].clone());
    if let Some(instructions) = info.get("instructions") {
        about.insert("description".to_owned(), instructions.clone());
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": about,
        "paths": paths,
        "components": {
            "schemas": {"Problem": problem_schema()},
            "responses": {
                "Problem": {
                    "description": "What went wrong.",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                },
            },
        },
    });
    if let Some(url) = url {
        document["servers"] = json!([{"url": url.trim_end_matches('/')}]);
    }
    document
}

/// Operation ID of the list of tools.
const LIST: &str = "listTools";

fn list_of_tools(operation_id: &str) -> Value {
    json!({"get": {
        "operationId": operation_id,
        "summary": "Lists the tools.",
        "parameters": [{
            "name": "cursor", "in": "query", "schema": {"type": "string"},
            "description": "The nextCursor of the page before.",
        }],
        "responses": {
            "200": {
                "description": "A page of the list.",
                "content": {"application/json": {"schema": {
                    "type": "object",
                    "properties": {
                        "tools": {"type": "array", "items": {"type": "object"}},
                        "nextCursor": {"type": "string"},
                    },
                    "required": ["tools"],
                }}},
            },
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }})
}

fn operation(name: &str, tool: &Value) -> Value {
    let at = |rest: &str| format!("#/paths/~1tools~1{}/post/{rest}", name.replace('~', "~0"));
    let arguments = at("requestBody/content/application~1json/schema");
    let structured =
        at("responses/200/content/application~1json/schema/properties/structuredContent");
    let input = tool["inputSchema"].clone();
    let required = input["required"].as_array().is_some_and(|r| !r.is_empty());
    let mut result = json!({
        "content": {"type": "array", "items": {"type": "object"}},
        "isError": {"const": false},
    });
    let mut required_of_result = vec!["content"];
    if let Some(schema) = tool.get("outputSchema") {
        result["structuredContent"] =
            relocated(schema.clone(), &structured, &format!("result:{name}"));
        required_of_result.push("structuredContent");
    }
    let mut post = json!({
        "operationId": name,
        "requestBody": {
            "required": required,
            "content": {"application/json": {"schema": relocated(input, &arguments, &format!("arguments:{name}"))}},
        },
        "responses": {
            "200": {
                "description": "Result of the tool.",
                "content": {"application/json": {"schema": {
                    "type": "object", "properties": result, "required": required_of_result,
                }}},
            },
            "default": {"$ref": "#/components/responses/Problem"},
        },
    });
    let title = tool
        .get("title")
        .or_else(|| tool["annotations"].get("title"));
    if let Some(title) = title {
        post["summary"] = title.clone();
    }
    if let Some(description) = tool.get("description") {
        post["description"] = description.clone();
    }
    json!({ "post": post })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457).",
        "properties": {
            "status": {"type": "integer"},
            "title": {"type": "string"},
            "detail": {"type": "string"},
            "setting": {"type": "string", "description": "Setting that rejected the request."},
            "retryAfterMs": {"type": "integer"},
        },
        "required": ["status", "title", "detail"],
    })
}

/// A schema at its place in the document: references into itself are references into the document now. One with an
/// identifier of its own is found by that, and left as it is. One with anchors, which other tools can have too, gets an
/// identifier.
fn relocated(mut schema: Value, place: &str, id: &str) -> Value {
    if schema.get("$id").is_some() {
        return schema;
    }
    if has_anchors(&schema)
        && let Some(members) = schema.as_object_mut()
    {
        members.insert("$id".to_owned(), format!("urn:longshore:{id}").into());
    } else {
        relocate(&mut schema, place);
    }
    schema
}

/// Returns true if a part of a schema has an anchor, or another member of such a name.
fn has_anchors(part: &Value) -> bool {
    match part {
        Value::Object(members) => {
            ["$anchor", "$dynamicAnchor"]
                .iter()
                .any(|keyword| members.get(*keyword).is_some_and(Value::is_string))
                || members.values().any(has_anchors)
        }
        Value::Array(items) => items.iter().any(has_anchors),
        _ => false,
    }
}

/// Keywords with an object of schemas.
const SCHEMAS_BY_NAME: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

fn relocate(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(reference) if name == "$ref" => {
                        if let Some(pointer) = reference.strip_prefix('#')
                            && (pointer.is_empty() || pointer.starts_with('/'))
                        {
                            *reference = format!("{place}{pointer}");
                        }
                    }
                    // Their members are names, which can be those of keywords.
                    Value::Object(named) if SCHEMAS_BY_NAME.contains(&&**name) => {
                        named
                            .values_mut()
                            .for_each(|schema| relocate(schema, place));
                    }
                    // Values, not schemas.
                    _ if matches!(&**name, "const" | "enum" | "default" | "examples") => {}
                    member => relocate(member, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, place)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_a_schema_lead_to_where_it_stands() {
        let tool = json!({
            "name": "t.1",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"$ref": "#/$defs/a"},
                    "self": {"$ref": "#"},
                    "$ref": {"type": "string"},
                    "default": {"$ref": "#/$defs/a"},
                    "far": {"$ref": "https://example.com/schema"},
                },
                "$defs": {"a": {"type": "integer", "default": {"$ref": "#/$defs/a"}}},
            },
        });
        let document = document(&json!({"name": "n", "version": "1"}), &[tool], None);
        let schema = &document["paths"]["/tools/t.1"]["post"]["requestBody"]["content"]["application/json"]
            ["schema"];
        let reference = schema["properties"]["a"]["$ref"]
            .as_str()
            .expect("a reference");
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert_eq!(
            document.pointer(pointer).expect("leads somewhere")["type"],
            "integer"
        );
        let whole = schema["properties"]["self"]["$ref"]
            .as_str()
            .expect("a reference");
        let whole = whole.strip_prefix('#').expect("within the document");
        assert_eq!(document.pointer(whole), Some(schema));
        assert_eq!(schema["properties"]["$ref"]["type"], "string");
        assert_eq!(schema["properties"]["default"]["$ref"], reference);
        assert_eq!(
            schema["properties"]["far"]["$ref"],
            "https://example.com/schema"
        );
        assert_eq!(schema["$defs"]["a"]["default"]["$ref"], "#/$defs/a");
    }

    #[test]
    fn a_schema_with_anchors_has_an_identifier() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#a"}, "b": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$anchor": "a", "type": "integer"}},
        });
        let tools = ["t", "u"].map(|name| json!({"name": name, "inputSchema": schema}));
        let document = document(&json!({"name": "n", "version": "1"}), &tools, None);
        for name in ["t", "u"] {
            let body = &document["paths"][format!("/tools/{name}")]["post"]["requestBody"];
            let mut found = body["content"]["application/json"]["schema"].clone();
            let id = found.as_object_mut().expect("a schema").remove("$id");
            assert_eq!(id, Some(json!(format!("urn:longshore:arguments:{name}"))));
            assert_eq!(found, schema, "its references are relative to it");
        }
    }

    #[test]
    fn a_tool_can_have_the_name_of_the_list() {
        let tools =
            ["listTools", "listTools_"].map(|name| json!({"name": name, "inputSchema": {}}));
        let document = document(&json!({"name": "n", "version": "1"}), &tools, None);
        let ids = document["paths"].as_object().expect("paths").values();
        let ids = ids.flat_map(|path| path.as_object().expect("operations").values());
        let ids: Vec<_> = ids.map(|operation| &operation["operationId"]).collect();
        assert_eq!(ids, ["listTools__", "listTools", "listTools_"]);
    }

    #[test]
    fn paths_begin_at_the_public_url() {
        let info = json!({"name": "n", "version": "1"});
        let at = |url| document(&info, &[], url).get("servers").cloned();
        let expected = json!([{"url": "https://example.com/base"}]);
        assert_eq!(at(Some("https://example.com/base/")), Some(expected));
        assert_eq!(at(None), None);
    }

    #[test]
    fn a_body_is_required_where_an_argument_is() {
        let required = |schema: Value| {
            operation("t", &json!({"name": "t", "inputSchema": schema}))["post"]["requestBody"]["required"]
                .clone()
        };
        assert_eq!(required(json!({"type": "object"})), false);
        assert_eq!(required(json!({"type": "object", "required": ["a"]})), true);
    }
}
