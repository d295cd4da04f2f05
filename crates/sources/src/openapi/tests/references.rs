//! References, also to other documents.

use super::*;

async fn read(document: &str) -> Document {
    let config = json!({ "document": document });
    let config: OpenApiSourceConfig = serde_json::from_value(config).expect("a configuration");
    Document::read(&config, ImportLimits::new(&config, 0))
        .await
        .expect("a document")
}

/// Returns the first tool's input schema, which contains the body and the definitions of its references.
fn body(document: &Document) -> Result<Value, String> {
    let mut collector = SourceBuilder::new("api", "sources[0]", Some(""));
    let config = OpenApiSourceConfig::default();
    let limits = ImportLimits::new(&config, 0);
    import(&config, document, limits, &mut collector);
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

/// Documents of large services have such references, and one of them costs no operation.
#[test]
fn what_a_reference_without_a_target_describes_accepts_any_value() {
    let schema = json!({"properties": {
        "name": {"$ref": "#/components/schemas/Name"}, "gone": {"$ref": "#/components/schemas/Gone"},
    }});
    let collector = import_with(operations(&schema), json!({}));
    assert_eq!(refusals(&collector), [""; 0]);
    let schema = Compiled::input(schema_of(&collector, "add")).expect("valid");
    let accepts = |body: Value| schema.check(&json!({ "body": body })).is_ok();
    assert!(accepts(json!({"name": "a", "gone": [1]})));
    assert!(!accepts(json!({"name": "aaaaaaaa"})));
}
