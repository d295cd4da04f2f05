//! Files in multipart forms, and forms with alternatives.

use super::*;

fn with_form(schema: &Value, server: &str) -> SourceBuilder {
    let document = json!({
        "openapi": "3.0.3",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": server}],
        "paths": {"/a": {"post": {
            "operationId": "a",
            "requestBody": {"content": {"multipart/form-data": {"schema": schema}}},
            "responses": {},
        }}},
        "components": {"schemas": {
            "Files": {"type": "array", "maxItems": 3, "items": {"type": "string", "format": "binary"}},
        }},
    });
    import_with(document, json!({}))
}

const FILE: &str =
    "The file's bytes, as Base64; or these as `data`, with the file's name and type.";

#[tokio::test]
async fn files_are_lists_nullable_and_described_as_the_document_says() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let binary = json!({"type": "string", "format": "binary"});
    let schema = json!({"type": "object", "properties": {
        "files": {"$ref": "#/components/schemas/Files"},
        "more": {"type": "array", "nullable": true, "items": binary, "description": "Receipts, at most 3"},
        "typed": {"type": ["array", "null"], "items": binary},
        "image": {"type": "string", "format": "binary", "nullable": true, "description": "The image"},
        "either": {"anyOf": [binary, {"type": "null"}]},
    }});
    let collector = with_form(&schema, &format!("http://{server}"));
    let schema = schema_of(&collector, "a");
    let properties = &schema["properties"]["body"]["properties"];
    assert_eq!(properties["files"]["maxItems"], 3);
    assert_eq!(
        properties["more"]["description"],
        format!("Receipts, at most 3\n{FILE}")
    );
    assert_eq!(
        properties["image"]["description"],
        format!("The image\n{FILE}")
    );
    let compiled = Compiled::input(schema).expect("sound");
    let body = json!({"body": {
        "files": ["YQ==", {"data": "Yg==", "filename": "b.txt"}], "more": ["Yw=="], "typed": ["ZA=="],
        "image": "ZQ==", "either": "Zg==",
    }});
    compiled.check(&body).expect("lists");
    let nothing = json!({"body": {"more": null, "typed": null, "image": null, "either": null}});
    compiled.check(&nothing).expect("nullable");
    assert!(compiled.check(&json!({"body": {"files": "YQ=="}})).is_err());
    assert!(compiled.check(&json!({"body": {"files": null}})).is_err());
    let request = request_of(&collector, &seen, "a", body).await;
    for part in [
        "name=\"files\"; filename=\"files\"\r\nContent-Type: application/octet-stream\r\n\r\na\r\n",
        "name=\"files\"; filename=\"b.txt\"\r\nContent-Type: application/octet-stream\r\n\r\nb\r\n",
        "name=\"more\"; filename=\"more\"\r\nContent-Type: application/octet-stream\r\n\r\nc\r\n",
        "name=\"either\"; filename=\"either\"\r\nContent-Type: application/octet-stream\r\n\r\nf\r\n",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
}

#[tokio::test]
async fn a_form_has_the_fields_of_all_its_alternatives() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let alternative = |name: &str, kind: &str, schema: Value| {
        json!({"type": "object", "required": ["kind", name], "properties": {
            "kind": {"type": "string", "enum": [kind]}, (name): schema,
        }})
    };
    for keyword in ["oneOf", "anyOf"] {
        let schema = json!({(keyword): [
            alternative("file", "f", json!({"type": "string", "format": "binary"})),
            alternative("url", "u", json!({"type": "string"})),
        ]});
        let collector = with_form(&schema, &format!("http://{server}"));
        let schema = schema_of(&collector, "a");
        let compiled = Compiled::input(schema).expect("sound");
        let file = json!({"body": {"kind": "f", "file": "aGVsbG8="}});
        compiled.check(&file).expect("one alternative");
        let url = json!({"body": {"kind": "u", "url": "x"}});
        compiled.check(&url).expect("another alternative");
        assert!(compiled.check(&json!({"body": {"file": "YQ=="}})).is_err());
        let other = json!({"body": {"kind": "other", "file": "YQ=="}});
        assert!(compiled.check(&other).is_err());
        let request = request_of(&collector, &seen, "a", file).await;
        assert!(
            request.contains("filename=\"file\"") && request.contains("\r\n\r\nhello\r\n"),
            "{request}"
        );
    }
    // Alternatives that only demand fields are kept.
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    });
    let collector = with_form(&schema, "https://api.example.com");
    let compiled = Compiled::input(schema_of(&collector, "a")).expect("sound");
    assert!(compiled.check(&json!({"body": {"b": "x"}})).is_ok());
    assert!(compiled.check(&json!({"body": {}})).is_err());
}

#[tokio::test]
async fn a_field_of_json_is_json_whatever_the_parameters_of_its_type() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let media = json!({
            "schema": {"type": "object", "properties": {"a": {"type": "object"}}},
            "encoding": {"a": {"contentType": kind}},
        });
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": format!("http://{server}")}],
            "paths": {"/a": {"post": {
                "operationId": "a",
                "requestBody": {"content": {"application/x-www-form-urlencoded": media}},
                "responses": {},
            }}},
        });
        let collector = import_with(document, json!({}));
        let arguments = json!({"body": {"a": {"b": 1}}});
        let request = request_of(&collector, &seen, "a", arguments).await;
        assert!(request.ends_with("a=%7B%22b%22%3A1%7D"), "{request}");
    }
}

#[tokio::test]
async fn base64_in_a_part_of_multipart_is_bytes_that_are_sent_as_it() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let encoded = json!({"type": "string", "contentEncoding": "base64"});
    let schema = json!({"type": "object", "properties": {
        "old": {"type": "string", "format": "byte"},
        "new": encoded,
        "list": {"type": "array", "items": encoded},
    }});
    let collector = with_form(&schema, &format!("http://{server}"));
    let body = json!({"body": {"old": "YQ==", "new": "Yg==", "list": ["Yw=="]}});
    let request = request_of(&collector, &seen, "a", body).await;
    let bytes = "Content-Type: application/octet-stream\r\n";
    let encoding = "Content-Transfer-Encoding: base64\r\n";
    for part in [
        // Servers for Node take bytes without an encoding for a file.
        "name=\"old\"\r\n\r\nYQ==\r\n".to_owned(),
        format!("name=\"new\"\r\n{bytes}{encoding}\r\nYg==\r\n"),
        format!("name=\"list\"\r\n{bytes}{encoding}\r\nYw==\r\n"),
    ] {
        assert!(request.contains(&part), "{part}: {request}");
    }
}
