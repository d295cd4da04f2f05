//! `subscriptions/listen`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore::{CacheScope, ResourceDefinition, resource_fn};
use serde_json::{Value, json};

use super::announcing;
use crate::support::{Connection, Running, Serve, Stateless};

fn listen(id: Value, filter: Value) -> Stateless {
    let mut request = Stateless::new("subscriptions/listen", json!({"notifications": filter}));
    request.id = id;
    request
}

/// Opens a subscription stream, and reads its acknowledgement.
fn begin(server: &Running, request: &Stateless) -> (Connection, Value) {
    let mut connection = server.connect();
    connection.send(request.text());
    let head = connection.receive_head();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(head.header("mcp-session-id"), None, "MH-02");
    let first = connection.any_event().expect("an event");
    assert_eq!(first.id, None, "MH-02");
    let message = first.message.expect("JSON");
    assert_eq!(
        message["method"],
        "notifications/subscriptions/acknowledged"
    );
    (connection, message["params"].clone())
}

fn subscription(id: &Value) -> Value {
    json!({"io.modelcontextprotocol/subscriptionId": id})
}

#[test]
fn cache_01_a_resource_that_was_announced_as_changed_is_read_anew() {
    let reads = Arc::new(AtomicUsize::new(0));
    let mut announcer = None;
    let server = Serve::new()
        .app(|app| {
            announcer = Some(app.announcer());
            let definition = ResourceDefinition::new("test://kept", "kept");
            let reads = Arc::clone(&reads);
            app.resource(resource_fn(
                definition
                    .ttl(Duration::from_secs(3600))
                    .cache_scope(CacheScope::Public),
                move |_| {
                    let count = reads.fetch_add(1, Ordering::Relaxed) + 1;
                    async move { Ok(count.to_string()) }
                },
            ))
        })
        .start();
    let read = || {
        let read = Stateless::new("resources/read", json!({"uri": "test://kept"}));
        read.send(&server).result()["contents"][0]["text"].take()
    };
    let filter = json!({"resourceSubscriptions": ["test://kept"]});
    let (mut connection, _) = begin(&server, &listen(json!(1), filter));
    assert_eq!([read(), read()], ["1", "1"]);
    announcer
        .expect("an application")
        .resource_changed("test://kept");
    connection.event().expect("a notification");
    assert_eq!([read(), read()], ["2", "2"]);
}

#[test]
fn sub_01_sub_02_what_is_honoured_comes_first_and_everything_names_its_subscription() {
    let it = announcing(|serve| serve);
    for id in [json!(7), json!("7"), json!("a \"quoted\" id"), json!(-1)] {
        let filter = json!({
            "toolsListChanged": true,
            "promptsListChanged": false,
            "resourceSubscriptions": ["test://watched"],
        });
        let (mut connection, honoured) = begin(&it.server, &listen(id.clone(), filter));
        assert_eq!(
            honoured,
            json!({
                "_meta": subscription(&id),
                "notifications": {
                    "toolsListChanged": true,
                    "resourceSubscriptions": ["test://watched"],
                },
            })
        );
        it.announcer.prompts_changed();
        it.announcer.resources_changed();
        it.announcer.resource_changed("test://other");
        it.announcer.tools_changed();
        it.announcer.resource_changed("test://watched");
        assert_eq!(
            connection.event().expect("a notification"),
            json!({
                "jsonrpc": "2.0",
                "method": "notifications/tools/list_changed",
                "params": {"_meta": subscription(&id)},
            })
        );
        assert_eq!(
            connection.event().expect("a notification"),
            json!({
                "jsonrpc": "2.0",
                "method": "notifications/resources/updated",
                "params": {"_meta": subscription(&id), "uri": "test://watched"},
            })
        );
    }
}

#[test]
fn sub_02_an_id_is_repeated_as_it_came() {
    let it = announcing(|serve| serve);
    let mut connection = it.server.connect();
    let large = "18446744073709551615";
    let text = listen(json!(1), json!({}))
        .text()
        .replace(r#""id":1,"#, &format!(r#""id":{large},"#));
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let head = head
        .lines()
        .filter(|line| !line.starts_with("content-length"))
        .collect::<Vec<_>>()
        .join("\r\n");
    connection.send(format!(
        "{head}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(connection.receive_head().status, 200);
    let event = connection.any_event().expect("an event");
    let data = event.data.expect("data");
    assert!(
        data.contains(&format!(r#"subscriptionId":{large}}}"#)),
        "{data}"
    );
}

#[test]
fn sub_03_what_is_not_offered_is_not_honoured() {
    let server = Serve::demo_with(|c| c.toolsets.clear());
    let everything = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourcesListChanged": true,
        "resourceSubscriptions": ["x://a"],
        "somethingOfTheFuture": true,
    });
    let (_connection, honoured) = begin(&server, &listen(json!(1), everything));
    assert_eq!(honoured["notifications"], json!({"toolsListChanged": true}));
    // An empty set is held open too.
    let (_connection, honoured) = begin(&server, &listen(json!(1), json!({})));
    assert_eq!(honoured["notifications"], json!({}));
}

#[test]
fn sub_05_the_servers_end_is_a_result() {
    let mut it = announcing(|serve| serve);
    let (mut connection, _) = begin(&it.server, &listen(json!("x"), json!({})));
    it.server.begin_to_stop();
    let last = connection.event().expect("a result");
    assert_eq!(last["id"], "x");
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(
        last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "x"
    );
    assert_eq!(connection.any_event(), None);
}

#[test]
fn a_stream_lives_only_so_long_and_ends_with_its_result() {
    let it = announcing(|s| s.configured(|c| c.server.streams.max_age_seconds = 1));
    let (mut connection, _) = begin(&it.server, &listen(json!(1), json!({})));
    assert!(connection.event().expect("a result")["result"].is_object());
    assert_eq!(connection.any_event(), None);
}

#[test]
fn sub_07_ids_of_tasks_need_their_extension() {
    let it = announcing(|serve| serve);
    let request = listen(json!(1), json!({"taskIds": ["a"]}));
    let response = request.send(&it.server);
    response.error(400, -32021, "1");
    assert_eq!(
        response.json()["error"]["data"]["requiredCapabilities"],
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
    );
    let declared = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let request = request.meta("clientCapabilities", declared);
    let (_connection, honoured) = begin(&it.server, &request);
    assert_eq!(honoured["notifications"], json!({}), "there are no tasks");
}

#[test]
fn a_filter_has_its_shape_and_its_bounds() {
    let it = announcing(|s| s.configured(|c| c.server.streams.subscriptions = 2));
    for wrong in [
        json!(null),
        json!([]),
        json!({"toolsListChanged": 1}),
        json!({"resourceSubscriptions": "x://a"}),
        json!({"resourceSubscriptions": ["no scheme"]}),
        json!({"resourceSubscriptions": ["x://a", "x://b", "x://c"]}),
    ] {
        listen(json!(1), wrong)
            .send(&it.server)
            .error(200, -32602, "1");
    }
    let without = listen(json!(1), json!({})).params(|params| {
        params
            .as_object_mut()
            .expect("an object")
            .remove("notifications");
    });
    without.send(&it.server).error(200, -32602, "1");
    let twice = json!({"resourceSubscriptions": ["x://a", "x://b", "x://a"]});
    begin(&it.server, &listen(json!(1), twice));
    let json_only = listen(json!(1), json!({})).and("accept", "application/json");
    json_only.send(&it.server).error(406, 406, "1");
}

#[test]
fn sub_04_a_stream_says_nothing_of_calls() {
    let it = announcing(|serve| serve);
    let (mut connection, _) = begin(
        &it.server,
        &listen(json!(1), json!({"toolsListChanged": true})),
    );
    let call = Stateless::call("whisper", json!({})).meta("logLevel", json!("debug"));
    let mut calling = it.server.connect();
    calling.send(call.text());
    calling.receive_head();
    assert_eq!(
        calling.event().expect("a message")["method"],
        "notifications/message"
    );
    it.announcer.tools_changed();
    let told = connection.event().expect("a notification");
    assert_eq!(told["method"], "notifications/tools/list_changed");
}
