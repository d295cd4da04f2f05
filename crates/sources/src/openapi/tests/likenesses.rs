//! Documents modeled on those of large services, imported and called.

use super::*;

/// Imports a document and sets its server to this one.
fn tools_of(document: &str, server: &str, settings: Value) -> SourceBuilder {
    let text = document.replace("SERVER", server);
    let document = super::super::document::parse(text.as_bytes()).expect("a document");
    import_with(document, settings)
}

fn names(collector: &SourceBuilder) -> Vec<&str> {
    let tools = &collector.offered.tools;
    tools.iter().map(|tool| tool.definition().name()).collect()
}

/// Checks that the catalog accepts all tools too, since it validates schemas again.
fn all_are_taken(collector: SourceBuilder, number: usize) {
    assert_eq!(collector.offered.refused, []);
    let catalog = Catalog::default().with_offered("api", collector.offered);
    assert_eq!(catalog.refused(), []);
    assert_eq!(catalog.len(), number);
}

const FORGE: &str = include_str!("forge.yaml");
const PAYMENTS: &str = include_str!("payments.yaml");
const CLUSTER: &str = include_str!("cluster.yaml");
const CHAT: &str = include_str!("chat.yaml");
const DRIVE: &str = include_str!("drive.yaml");

const SOMEWHERE: &str = "https://api.example.com";

#[test]
fn every_operation_of_every_likeness_becomes_a_tool() {
    for (document, number) in [(FORGE, 4), (PAYMENTS, 3), (CHAT, 2), (DRIVE, 6)] {
        all_are_taken(tools_of(document, SOMEWHERE, json!({})), number);
    }
    let settings = json!({"server": "https://cluster.example"});
    all_are_taken(tools_of(CLUSTER, SOMEWHERE, settings), 5);
    let without = tools_of(CLUSTER, SOMEWHERE, json!({}));
    let problem = &without.offered.refused[0].problem;
    assert!(problem.contains("set openapi.server"), "{problem}");
}

#[tokio::test]
async fn what_two_alternatives_allow_is_allowed() {
    let (server, seen) = serve(|_| {
        response(
            "201 Created\r\ncontent-type: application/json",
            br#"{"id": 1, "title": "t", "user": null, "assignees": null, "parent": {"id": 2, "title": "u"}}"#,
        )
    })
    .await;
    let collector = tools_of(FORGE, &format!("http://{server}"), json!({}));
    assert_eq!(
        names(&collector),
        [
            "repos_get-content",
            "issues_list-for-repo",
            "issues_create",
            "markdown_render-raw"
        ]
    );
    let schema = schema_of(&collector, "issues_create");
    let arguments = json!({"owner": "o", "repo": "r", "body": {"title": "t", "labels": ["a", {"name": "b"}], "milestone": null}});
    let compiled = Compiled::input(schema).expect("sound");
    compiled.check(&arguments).expect("a label of either kind");
    let output = call(&collector, "issues_create", arguments)
        .await
        .expect("a result");
    assert!(output.structured.is_some());
    let request = seen.lock().expect("no panic").pop().expect("a request");
    begins(&request, "POST /repos/o/r/issues HTTP/1.1");
    let request = request_of(
        &collector,
        &seen,
        "markdown_render-raw",
        json!({"body": "# T"}),
    )
    .await;
    assert!(
        request.contains("text/plain") && request.ends_with("\r\n\r\n# T"),
        "{request}"
    );
    let content = json!({"owner": "o", "repo": "r", "path": "src/a b.rs"});
    let request = request_of(&collector, &seen, "repos_get-content", content).await;
    begins(&request, "GET /repos/o/r/contents/src%2Fa%20b%2Ers ");
}

#[tokio::test]
async fn lists_and_objects_in_forms_are_written_as_the_document_says() {
    let (server, seen) = serve(|_| {
        response(
            "200 OK\r\ncontent-type: application/json",
            br#"{"id": "c", "customer": {"id": "x", "charges": []}}"#,
        )
    })
    .await;
    let settings = json!({"credentials": {"bearer": "secret-1"}, "output_schemas": true});
    let collector = tools_of(PAYMENTS, &format!("http://{server}"), settings);
    let last = || seen.lock().expect("no panic").pop().expect("a request");
    let body = json!({
        "amount": 5, "expand": ["customer"], "items": [{"price": "p", "tiers": [1, 2]}],
        "metadata": {"a b": "c"}, "shipping": {"address": {"city": "X"}},
    });
    let request = request_of(&collector, &seen, "PostCharges", json!({ "body": body })).await;
    assert!(
        request.ends_with(
            "\r\n\r\namount=5&expand%5B0%5D=customer&items%5B0%5D%5Bprice%5D=p&items%5B0%5D%5Btiers%5D%5B0%5D=1\
             &items%5B0%5D%5Btiers%5D%5B1%5D=2&metadata%5Ba%20b%5D=c&shipping%5Baddress%5D%5Bcity%5D=X"
        ),
        "{request}"
    );
    assert!(request.contains("Bearer secret-1"), "{request}");
    let reported = call(
        &collector,
        "GetCharges",
        json!({"created": {"gt": 1}, "expand": ["data"]}),
    )
    .await
    .expect_err("another answer than the document says");
    assert!(
        reported.contains("\\\"data\\\" is missing") && reported.contains(r#"{\"id\":\"c\""#),
        "{reported}"
    );
    let request = last();
    begins(
        &request,
        "GET /v1/charges?created%5Bgt%5D=1&expand%5B%5D=data ",
    );
    let file = json!({"body": {"purpose": "p", "file": "f"}});
    call(&collector, "PostFiles", file).await.expect("a result");
    assert!(last().starts_with("POST /files/v1/files "));
}

#[tokio::test]
async fn an_answer_that_is_not_what_the_document_says_is_shown_all_the_same() {
    let (server, seen) = serve(|_| {
        response(
            "200 OK\r\ncontent-type: application/json",
            br#"{"ok": true, "ts": "1503435956.000247", "message": {"text": "hi"}}"#,
        )
    })
    .await;
    let settings = json!({"output_schemas": true});
    let collector = tools_of(CHAT, &format!("http://{server}"), settings);
    let arguments = json!({"token": "t", "body": {"channel": "C1", "blocks": [{"type": "divider"}], "text": "a&b"}});
    let schema = schema_of(&collector, "chat_postMessage");
    assert_eq!(schema["properties"]["body"]["required"], json!(["channel"]));
    let meta = &schema["properties"]["body"]["properties"]["meta"];
    assert_eq!(
        meta["required"],
        json!([]),
        "what cannot be is not demanded"
    );
    let reported = call(&collector, "chat_postMessage", arguments)
        .await
        .expect_err("more than the document says");
    assert!(
        reported.contains(
            "The call was executed, but the response does not match the tool's output schema ("
        ) && reported.contains(r#"\"message\":{\"text\":\"hi\"}"#),
        "{reported}"
    );
    let request = seen.lock().expect("no panic").pop().expect("a request");
    assert!(
        request.ends_with("channel=C1&blocks=%5B%7B%22type%22%3A%22divider%22%7D%5D&text=a%26b"),
        "{request}"
    );
    let lenient = tools_of(CHAT, &format!("http://{server}"), json!({}));
    let arguments = json!({"types": ["a", "b"], "exclude_archived": true, "prefs": {"a": 1}, "note": "n", "any": "a", "level": "2"});
    let request = request_of(&lenient, &seen, "conversations_list", arguments).await;
    begins(
        &request,
        "GET /api/conversations.list?types=a,b&exclude_archived=true&prefs=%7B%22a%22%3A1%7D&note=n&any=a&level=2 ",
    );
}

#[tokio::test]
async fn files_go_in_parts_in_the_documents_order_and_fragments_go_nowhere() {
    let (server, seen) = serve(|_| response("204 No Content", b"")).await;
    let collector = tools_of(
        DRIVE,
        &format!("http://{server}"),
        json!({"output_schemas": false}),
    );
    let last = || seen.lock().expect("no panic").pop().expect("a request");
    let file = json!({"data": "aGVsbG8=", "filename": "a\".txt", "media_type": "text/plain"});
    let body = json!({"file": file, "attributes": {"name": "n"}});
    let arguments = json!({"file_id": "1", "content-md5": "m", "body": body});
    let schema = schema_of(&collector, "post_files_id_content");
    assert!(schema["properties"].get("Content-Length").is_none());
    let compiled = Compiled::input(schema).expect("sound");
    compiled.check(&arguments).expect("a file with its name");
    let request = request_of(&collector, &seen, "post_files_id_content", arguments).await;
    let attributes = request
        .find("name=\"attributes\"\r\nContent-Type: application/json\r\n\r\n{\"name\":\"n\"}");
    let file = request
        .find("name=\"file\"; filename=\"a%22.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n");
    assert!(attributes.is_some() && attributes < file, "{request}");
    let arguments = json!({"file_id": "7", "body": {"parent": {"id": "0"}}});
    call(&collector, "post_files_id_copy", arguments)
        .await
        .expect("a result");
    assert!(last().starts_with("POST /2.0/files/7 HTTP/1.1"));
    let arguments = json!({"file_id": "7", "content-range": "bytes 0-4/5", "body": "aGVsbG8="});
    call(&collector, "put_files_upload_sessions_id", arguments)
        .await
        .expect("a result");
    assert!(last().ends_with("\r\n\r\nhello"));
    let arguments = json!({
        "at": [1, 2], "label": ["a", "b"], "plain": {"x": "1", "y": "2"}, "piped": ["a", "b"], "spaced": ["c", "d"],
    });
    let request = request_of(&collector, &seen, "styles", arguments).await;
    assert!(
        request
            .starts_with("GET /2.0/matrix/;at=1;at=2/.a,b/x=1,y=2?piped=a%7Cb&spaced=c&spaced=d "),
        "{request}"
    );
    call(&collector, "search", json!({"q": "x"}))
        .await
        .expect("a result");
    assert!(last().starts_with("GET /2.0/search?kind=any&q=x "));
}

#[test]
fn a_schema_that_is_too_large_is_described_as_far_as_there_is_room() {
    let settings = json!({"server": "https://cluster.example", "schema_bytes": 500, "output_schema_bytes": 200});
    let collector = tools_of(CLUSTER, SOMEWHERE, settings);
    let schema = schema_of(&collector, "createCoreV1NamespacedPod");
    let compiled = Compiled::input(schema).expect("sound");
    let pod =
        json!({"metadata": {"name": "n"}, "spec": {"containers": [{"name": "c", "anything": 1}]}});
    let arguments = json!({"namespace": "d", "body": pod});
    compiled
        .check(&arguments)
        .expect("what is not described is taken");
    assert!(
        compiled
            .check(&json!({"namespace": "d", "body": {"metadata": 1}}))
            .is_err(),
        "what is near is described: {schema}"
    );
    assert!(schema.to_string().len() < 1500, "{schema}");
    all_are_taken(collector, 5);
}
