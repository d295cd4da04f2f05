//! Servers, parameters and settings of single operations.

use super::*;

fn document(server: &Value, operations: &Value) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "servers": [server],
        "paths": operations,
    })
}

/// RFC 6570, 1.5 and 2.3: unreserved characters are literal, and an empty list is undefined.
#[tokio::test]
async fn rfc_6570_unreserved_characters_are_literal_and_empty_lists_are_left_out() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let list = json!({"type": "array", "items": {"type": "string"}});
    let parameters = json!([
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
        {"name": "prefs", "in": "cookie", "schema": {"type": "object"}},
        {"name": "tags", "in": "query", "explode": false, "schema": list},
        {"name": "piped", "in": "query", "style": "pipeDelimited", "explode": false, "schema": list},
        {"name": "x-list", "in": "header", "schema": list},
        {"name": "n", "in": "query", "schema": {"type": "integer"}},
        {"name": "my-id", "in": "path", "required": true, "style": "matrix", "schema": {"type": "integer"}},
    ]);
    let operations = json!({"/a/{my-id}": {"get": {"operationId": "a", "parameters": parameters, "responses": {}}}});
    let url = json!({"url": format!("http://{server}")});
    let collector = import_with(document(&url, &operations), json!({}));
    let arguments = json!({
        "session": "a-b.c_d~e;f", "prefs": {"x-y": "1.5"}, "tags": [], "piped": [], "x-list": [], "n": 1.0, "my-id": 7.0,
    });
    let request = request_of(&collector, &seen, "a", arguments).await;
    begins(&request, "GET /a/;my-id=7?n=1 HTTP/1.1\r\n");
    assert!(
        request.contains("cookie: session=a-b.c_d~e%3Bf; x-y=1.5\r\n"),
        "{request}"
    );
    assert!(!request.contains("x-list"), "{request}");
}

/// No style says how to nest values in a list (OpenAPI 3.1.1, Style Values).
#[tokio::test]
async fn lists_and_objects_inside_of_others_are_json() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let list = json!({"type": "array", "items": {"type": "object"}});
    let parameters = json!([
        {"name": "filters", "in": "query", "schema": list},
        {"name": "by", "in": "query", "schema": {"type": "object"}},
        {"name": "x-list", "in": "header", "schema": list},
        {"name": "sid", "in": "cookie", "explode": false, "schema": list},
        {"name": "id", "in": "path", "required": true, "schema": list},
    ]);
    let operations = json!({"/a/{id}": {"get": {"operationId": "a", "parameters": parameters, "responses": {}}}});
    let url = json!({"url": format!("http://{server}")});
    let collector = import_with(document(&url, &operations), json!({}));
    let nested = json!([{"b": 1}]);
    let arguments = json!({
        "filters": [{"b": 1}, "c"], "by": {"b": [1]}, "x-list": nested, "sid": nested, "id": nested,
    });
    let request = request_of(&collector, &seen, "a", arguments).await;
    let path = "%7B%22b%22%3A1%7D";
    begins(
        &request,
        &format!("GET /a/{path}?filters={path}&filters=c&b=%5B1%5D HTTP/1.1\r\n"),
    );
    assert!(
        request.contains(&format!("cookie: sid={path}\r\n")),
        "{request}"
    );
    assert!(request.contains("x-list: {\"b\":1}\r\n"), "{request}");
}

#[tokio::test]
async fn the_default_of_a_server_variable_is_a_number_too_and_must_exist() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let operations = json!({"/a": {"get": {"operationId": "a", "responses": {}}}});
    let variables = json!({"port": {"default": server.port()}, "version": {"default": 1.0}, "on": {"default": true}});
    let url = json!({"url": "http://127.0.0.1:{port}/v{version}/{on}", "variables": variables});
    let collector = import_with(document(&url, &operations), json!({}));
    let request = request_of(&collector, &seen, "a", json!({})).await;
    begins(&request, "GET /v1.0/true/a HTTP/1.1");
    for variables in [json!({"region": {"enum": ["eu"]}}), json!({})] {
        let url = json!({"url": "https://api.example.com/{region}", "variables": variables});
        let collector = import_with(document(&url, &operations), json!({}));
        let reported = refusals(&collector).concat();
        assert!(
            reported.contains(r#"the variable "region", which has no default; set openapi.server"#),
            "{reported}"
        );
    }
}

#[tokio::test]
async fn a_response_to_head_has_no_output_schema() {
    let (server, _) = serve(|_| response("200 OK\r\ncontent-type: application/json", b"")).await;
    let responses =
        json!({"200": {"content": {"application/json": {"schema": {"type": "object"}}}}});
    let operations = json!({"/a": {"head": {"operationId": "a", "responses": responses}}});
    let url = json!({"url": format!("http://{server}")});
    let collector = import_with(document(&url, &operations), json!({"output_schemas": true}));
    assert_eq!(collector.offered.tools[0].definition().output_schema, None);
    call(&collector, "a", json!({})).await.expect("a result");
}

#[test]
fn a_name_for_an_operation_that_is_left_out_says_so() {
    let operations = json!({"/a": {
        "get": {"operationId": "a", "responses": {}}, "post": {"operationId": "b", "responses": {}},
    }});
    let url = json!({"url": "https://api.example.com"});
    let settings = json!({
        "exclude": {"methods": ["post"]}, "rename": {"a": "x", "b": "y", "POST /a": "z", "c": "w"},
    });
    let collector = import_with(document(&url, &operations), settings);
    let reported = refusals(&collector);
    assert_eq!(reported.len(), 3, "{reported:?}");
    let parts = [
        "rename.POST /a: openapi.include and openapi.exclude leave",
        "rename.b: openapi.include and openapi.exclude leave",
        "rename.c: the document has no such operation",
    ];
    for (message, part) in reported.iter().zip(parts) {
        assert!(message.contains(part), "{message}");
    }
}

/// A URL parameter of the document that repeats a credential's name does not go beside it.
#[tokio::test]
async fn a_query_credential_is_sent_once() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let operations = json!({"/a": {"get": {
        "operationId": "a", "responses": {}, "security": [{"key": []}],
        "parameters": [{"name": "key", "in": "query", "schema": {"type": "string"}}, {"name": "q", "in": "query", "schema": {}}],
    }}});
    let url = json!({"url": format!("http://{server}")});
    let mut document = document(&url, &operations);
    let scheme = json!({"type": "apiKey", "in": "query", "name": "key"});
    document["components"] = json!({"securitySchemes": {"key": scheme}});
    let collector = import_with(document, json!({"credentials": {"key": "ours"}}));
    let arguments = json!({"key": "theirs", "q": "a b"});
    let request = request_of(&collector, &seen, "a", arguments).await;
    begins(&request, "GET /a?q=a%20b&key=ours HTTP/1.1");
}

#[tokio::test]
async fn the_files_that_a_document_refers_to_are_reported_even_if_they_are_missing() {
    let folder = folder_of(&SPLIT);
    let collector = import_file(&folder.path().join("api.yaml"), json!({})).await;
    let files: Vec<_> = collector.finish().files;
    for name in [
        "ops/list.yml",
        "items/pet.yml",
        "ops/gone.yml",
        "shared/id.yml",
    ] {
        assert!(
            files
                .iter()
                .any(|file| file.ends_with(name) || file.to_string_lossy().ends_with(name)),
            "{name}: {files:?}"
        );
    }
}

#[tokio::test]
async fn parameters_that_the_configuration_supplies_are_not_arguments() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let required = |name: &str, place: &str| json!({"name": name, "in": place, "required": true, "schema": {"type": "string"}});
    let parameters = json!([
        required("x-api-key", "header"),
        required("sid", "cookie"),
        required("Notion-Version", "header"),
        required("X-User", "header"),
        required("token", "query"),
        required("X-Api-Key", "query"),
        required("q", "query"),
    ]);
    let operation = |security: Value| json!({"operationId": "a", "security": security, "parameters": parameters, "responses": {}});
    let operations = json!({
        "/a": {"get": operation(json!([{"key": [], "session": []}]))},
        "/b": {"get": {"operationId": "b", "security": [], "parameters": [required("x-api-key", "header")], "responses": {}}},
    });
    let mut document = document(&json!({"url": format!("http://{server}")}), &operations);
    document["components"] = json!({"securitySchemes": {
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        "session": {"type": "apiKey", "in": "cookie", "name": "sid"},
    }});
    let settings = json!({
        "credentials": {"key": "k-1", "session": "s-1"},
        "headers": {"notion-version": "2022-06-28"},
        "forward": {"headers": {"x-user": "{{ caller.name }}"}},
        "auth": {"query": {"name": "token", "value": "t-1"}},
    });
    let collector = import_with(document, settings);
    let schema = schema_of(&collector, "a");
    assert_eq!(schema["required"], json!(["X-Api-Key", "q"]));
    // An operation that does not use the scheme keeps its parameter.
    assert_eq!(schema_of(&collector, "b")["required"], json!(["x-api-key"]));
    let request = request_of(
        &collector,
        &seen,
        "a",
        json!({"X-Api-Key": "mine", "q": "z"}),
    )
    .await;
    begins(&request, "GET /a?X-Api-Key=mine&q=z&token=t-1 HTTP/1.1");
    for part in [
        "x-api-key: k-1\r\n",
        "cookie: sid=s-1\r\n",
        "notion-version: 2022-06-28\r\n",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
}

/// The patches of Kubernetes have the same schema, that of an object, for all media types.
#[tokio::test]
async fn bodies_have_the_media_type_that_fits_their_argument() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let object = json!({"schema": {"type": "object"}});
    let string =
        json!({"schema": {"type": "string", "enum": ["a: 1", "b"], "description": "What"}});
    let binary = json!({"schema": {"type": "string", "format": "binary"}});
    let typed = json!({"data": "aGk=", "media_type": "image/png"});
    for (content, body, sent) in [
        (
            json!({"application/json-patch+json": object, "application/merge-patch+json": object}),
            json!({"a": 1}),
            ("application/merge-patch+json", r#"{"a":1}"#),
        ),
        (
            json!({"application/json-patch+json": {"schema": {"type": "array"}}}),
            json!([1]),
            ("application/json-patch+json", "[1]"),
        ),
        (
            json!({"application/octet-stream": binary, "application/yaml": string}),
            json!("a: 1"),
            ("application/yaml", "a: 1"),
        ),
        (json!({"text/*": {}}), json!("a"), ("text/plain", "a")),
        (
            json!({"image/*": binary}),
            typed.clone(),
            ("image/png", "hi"),
        ),
        (json!({"*/*": binary}), typed, ("image/png", "hi")),
        (
            json!({"*/*": string}),
            json!("b"),
            ("application/json", r#""b""#),
        ),
        (
            json!({"image/png": binary}),
            json!("aGk="),
            ("image/png", "hi"),
        ),
        (
            json!({"image/jpeg": {"schema": {"type": "string", "format": "byte"}}}),
            json!("aGk="),
            ("image/jpeg", "aGk="),
        ),
        (
            json!({"application/octet-stream": {"schema": {"type": "string", "format": "byte"}}}),
            json!("aGk="),
            ("application/octet-stream", "hi"),
        ),
    ] {
        let body_of = json!({"content": content, "description": "Of it", "required": true});
        let operations =
            json!({"/a": {"patch": {"operationId": "a", "requestBody": body_of, "responses": {}}}});
        let url = json!({"url": format!("http://{server}")});
        let collector = import_with(document(&url, &operations), json!({}));
        let schema = schema_of(&collector, "a")["properties"]["body"].clone();
        let about = schema["description"].as_str().unwrap_or_default();
        assert!(
            about.starts_with("Of it") || about.starts_with("What"),
            "{schema}"
        );
        assert!(!content.to_string().contains("yaml") || schema["enum"].is_array());
        let request = request_of(&collector, &seen, "a", json!({"body": body})).await;
        let (kind, text) = sent;
        let kind = format!("content-type: {kind}\r\n");
        assert!(request.contains(&kind), "{content}: {request}");
        assert!(request.ends_with(&format!("\r\n\r\n{text}")), "{request}");
    }
}

#[tokio::test]
async fn subtypes_of_multipart_have_a_boundary() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let schema = json!({"type": "object", "properties": {
        "metadata": {"type": "object"}, "data": {"type": "string", "format": "binary"},
    }});
    let content = json!({"multipart/related": {"schema": schema}});
    let operations = json!({"/a": {"post": {"operationId": "a", "requestBody": {"content": content}, "responses": {}}}});
    let url = json!({"url": format!("http://{server}")});
    let collector = import_with(document(&url, &operations), json!({}));
    let body = json!({"data": "aGk=", "metadata": {"a": 1}});
    let request = request_of(&collector, &seen, "a", json!({"body": body})).await;
    let (_, rest) = request
        .split_once("content-type: multipart/related; boundary=")
        .expect("a boundary");
    let (boundary, rest) = rest.split_once("\r\n").expect("a line");
    let parts: Vec<&str> = rest.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 4, "{request}");
    assert!(parts[1].ends_with("\r\n\r\n{\"a\":1}\r\n"), "{request}");
    assert!(parts[2].ends_with("\r\n\r\nhi\r\n"), "{request}");
}

#[test]
fn the_description_of_a_deprecated_operation_says_so() {
    let operations = json!({"/a": {
        "get": {"summary": "Old", "deprecated": true, "responses": {}},
        "put": {"summary": "New", "deprecated": false, "responses": {}},
    }});
    let url = json!({"url": "https://api.example.com"});
    let collector = import_with(document(&url, &operations), json!({}));
    let tools = collector.offered.tools.iter();
    let about = tools.map(|tool| tool.definition().description.as_deref());
    assert_eq!(
        about.collect::<Vec<_>>(),
        [Some("Deprecated. Old"), Some("New")]
    );
}

#[test]
fn an_error_in_yaml_names_its_place_and_no_function_of_the_parser() {
    let twice = "openapi: 3.1.0\npaths: {}\npaths: {}\n";
    let problem = super::super::document::parse(twice.as_bytes()).expect_err("twice");
    assert!(
        problem.contains("duplicate") && problem.ends_with("at line 3, column 1"),
        "{problem}"
    );
    assert!(!problem.contains("Options"), "{problem}");
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
