//! Names, values and media types that no request can have.

use super::*;

fn operation(operation: &Value) -> SourceBuilder {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://api.example.com"}],
        "paths": {"/a": {"post": operation}},
    });
    import_with(document, json!({}))
}

#[test]
fn headers_are_rejected_as_those_of_http_sources_are() {
    for (name, value, part) in [
        (
            "Host",
            "x",
            "Host is set by the client itself; leave it out",
        ),
        (
            "transfer-encoding",
            "chunked",
            "transfer-encoding is set by the client itself",
        ),
        ("te", "trailers", "te is set by the client itself"),
        ("a b", "x", "\"a b\" is not a valid header name"),
        (
            "x-key",
            "a\nb",
            "x-key: the secret has characters that no header can hold",
        ),
    ] {
        let document = with_responses(&[("a", json!({}))]);
        let collector = import_with(document, json!({"headers": {name: value}}));
        let problem = refusals(&collector).concat();
        let expected = format!("sources[0].openapi.headers: {part}");
        assert!(problem.contains(&expected), "{problem}");
    }
}

#[tokio::test]
async fn values_are_reported_with_their_argument() {
    let form = json!({"schema": {"type": "object", "properties": {
        "file": {"type": "string", "format": "binary"},
    }}});
    let collector = operation(&json!({
        "operationId": "a", "responses": {},
        "parameters": [
            {"name": "X-Note", "in": "header", "schema": {}},
        ],
        "requestBody": {"content": {"multipart/form-data": form}},
    }));
    let no_media_type = json!({"data": "YQ==", "media_type": "text/plain\r\nx: y"});
    for (arguments, expected) in [
        (
            json!({"X-Note": "a\nb"}),
            "X-Note: a value has characters that no header can hold",
        ),
        (
            json!({"body": {"file": "***"}}),
            "body: file: bytes have to be a text in Base64",
        ),
        (
            json!({"body": {"file": no_media_type}}),
            "body: file: the media type \"text/plain\\r\\nx: y\" has characters",
        ),
    ] {
        let problem = call(&collector, "a", arguments)
            .await
            .expect_err("no request");
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn a_document_that_has_them_is_told_where() {
    let form = json!({
        "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
        "encoding": {"a": {"contentType": "text/plain\r\nx: y"}},
    });
    let cookie = json!([{"name": "a;b", "in": "cookie", "schema": {}}]);
    for (wrong, part) in [
        (
            json!({"requestBody": {"content": {"multipart/form-data": form}}}),
            "its form field \"a\": the media type \"text/plain\\r\\nx: y\" has characters",
        ),
        (
            json!({"requestBody": {"content": {"application/json\n": {}}}}),
            "its body: the media type \"application/json\\n\" has characters",
        ),
        (
            json!({ "parameters": cookie }),
            "its parameter \"a;b\" is not a valid cookie name",
        ),
    ] {
        let problem = refusals(&operation(&wrong)).concat();
        assert!(
            problem.contains("POST /a") && problem.contains(part),
            "{problem}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_document_that_is_a_named_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("api.json");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let problem = refusals(&import_file(&pipe, json!({})).await).concat();
    assert!(problem.contains("it is not a regular file"), "{problem}");
}
