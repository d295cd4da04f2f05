//! Forged client data, and data that was issued to another client.

use longshore::{CallContext, JsonSchema, ResourceError, ToolError, resource, tool};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Connection, Response, Running, Serve, Stateless, post, request};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks who is there.
#[tool]
async fn asks(context: &CallContext) -> Result<String, ToolError> {
    let name = context.elicit::<Name>("Who is there?").named("who").await?;
    Ok(name.accepted().map_or("nobody".to_owned(), |n| n.name))
}

/// Never ends.
#[tool(task)]
async fn endless() -> String {
    std::future::pending().await
}

/// A template with everything that templates have.
#[resource(uri = "tree://{root}/{+path}{?a,b,c}")]
async fn tree(
    root: String,
    path: String,
    a: Option<String>,
    b: Option<String>,
    c: Option<String>,
) -> Result<String, ResourceError> {
    drop((a, b, c));
    Ok(format!("{root} {}", path.len()))
}

fn serve() -> Running {
    Serve::new()
        .tool(asks)
        .tool(endless)
        .app(|app| app.resource(tree))
        .configured(with_keys)
        .admin()
        .start()
}

/// A session of the holder of a key.
struct Of<'s> {
    server: &'s Running,
    key: String,
    session: String,
}

impl<'s> Of<'s> {
    fn begin(server: &'s Running, key: &str) -> Self {
        let key = bearer(key);
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let begun = server.post(&[("authorization", &key)], &request("initialize", &params));
        let session = begun.header("mcp-session-id").expect("an id").to_owned();
        Self {
            server,
            key,
            session,
        }
    }

    fn headers(&self) -> [(&str, &str); 2] {
        [
            ("authorization", &self.key),
            ("mcp-session-id", &self.session),
        ]
    }

    fn post(&self, body: &str) -> Response {
        self.server.post(&self.headers(), body)
    }

    fn request(&self, method: &str, params: &Value) -> Response {
        self.post(&request(method, params))
    }

    /// Comes back to a stream.
    fn resume(&self, event: &str) -> u16 {
        let [key, session] = self.headers();
        let mut connection = self.server.connect();
        let head = connection.get(&[key, session, ("last-event-id", event)]);
        head.status
    }

    /// Calls the tool that asks, and reads its question.
    fn asked(&self) -> (Connection, Value) {
        let mut connection = self.server.connect();
        let call = request("tools/call", &json!({"name": "asks"}));
        connection.send(post(&self.headers(), &call));
        assert_eq!(connection.receive_head().status, 200);
        let question = connection.event().expect("a question");
        (connection, question)
    }
}

fn stateless(method: &str, params: Value, key: &str) -> Stateless {
    let able = json!({
        "elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
    });
    Stateless::new(method, params)
        .meta("clientCapabilities", able)
        .and("authorization", &bearer(key))
}

fn metric(server: &Running, name: &str) -> f64 {
    server.admin_page("/metrics").metric(name)
}

#[test]
fn res_04_uris_of_any_size_are_read_in_a_moment_or_refused() {
    let server = serve();
    let of = Of::begin(&server, CI);
    let begun = std::time::Instant::now();
    let huge = [
        format!("tree://root/{}", "a".repeat(1_000_000)),
        format!("tree://root/{}", ",".repeat(50_000)),
        format!("tree://root/x?{}", "a=1,".repeat(50_000)),
        format!("tree://{}/x", "%41".repeat(300_000)),
        format!("tree://root/{}", "/..".repeat(300_000)),
    ];
    for uri in &huge {
        of.request("resources/read", &json!({ "uri": uri }))
            .error(200, -32602, "1");
        of.request("resources/subscribe", &json!({ "uri": uri }))
            .error(200, -32602, "1");
        let read = stateless("resources/read", json!({ "uri": uri }), CI).without("mcp-name");
        // The header has the same size and is rejected for it; a missing header is checked first.
        read.send(&server).error(400, -32020, "1");
        let filter = json!({"notifications": {"resourceSubscriptions": [uri]}});
        stateless("subscriptions/listen", filter, CI)
            .send(&server)
            .error(200, -32602, "1");
        let complete = json!({
            "ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "root", "value": uri},
        });
        for refused in [
            of.request("completion/complete", &complete),
            stateless("completion/complete", complete.clone(), CI).send(&server),
        ] {
            let body = refused.json();
            let code = body["error"]["code"].as_i64();
            assert!(matches!(code, Some(-32602 | -32601)), "{body}");
            assert!(refused.body.len() < 2000, "{} bytes", refused.body.len());
        }
    }
    // A value at the limit is accepted: as many commas as fit.
    let fits = format!("tree://root/{}", ",".repeat(7_000));
    let read = of
        .request("resources/read", &json!({ "uri": fits }))
        .result();
    assert_eq!(read["contents"][0]["text"], "root 7000");
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn answers_that_nobody_waits_for_change_nothing_and_are_counted() {
    let server = serve();
    let (ci, bob) = (Of::begin(&server, CI), Of::begin(&server, BOB));
    let (mut connection, question) = ci.asked();
    let answer = |id: &Value, name: &str| {
        let result = json!({"action": "accept", "content": {"name": name}});
        json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
    };
    let id = question["id"].as_str().expect("a text");
    // Answers to unknown requests, with IDs of all forms.
    let (start, last) = id.split_at(id.len() - 1);
    let flipped = format!("{start}{}", if last == "0" { "1" } else { "0" });
    let forged = [
        json!(1),
        json!(""),
        json!("q-"),
        json!("q-0000000000000000-00000000000000000000000000000000"),
        json!(flipped),
        json!(format!("{id}0")),
    ];
    for id in &forged {
        let response = ci.post(&answer(id, "Eve"));
        // An ID that another process may have issued cannot be forwarded here.
        assert!(
            matches!((response.status, &*response.body), (202, "") | (409, _)),
            "{response:?}"
        );
    }
    // An invalid ID.
    let long = ci.post(&answer(&json!("q-".repeat(50_000)), "Eve"));
    long.error(400, -32600, "");
    // From another session, of another principal, and by a stolen session id.
    bob.post(&answer(&question["id"], "Eve")).accepted();
    let stolen = [
        ("authorization", &*bob.key),
        ("mcp-session-id", &*ci.session),
    ];
    server
        .post(&stolen, &answer(&question["id"], "Eve"))
        .error(404, 404, "");
    // Neither a result nor an error: no response at all.
    let neither = json!({"jsonrpc": "2.0", "id": question["id"]});
    assert_eq!(ci.post(&neither.to_string()).status, 400);
    ci.post(&answer(&question["id"], "Ada")).accepted();
    // A second answer comes too late.
    ci.post(&answer(&question["id"], "Eve")).accepted();
    let result = connection.event().expect("an answer");
    assert_eq!(result["result"]["content"][0]["text"], "Ada");
    // A response with both ends the call.
    let (mut connection, question) = ci.asked();
    let both = json!({"jsonrpc": "2.0", "id": question["id"], "result": {}, "error": {"code": 1, "message": "x"}});
    assert_eq!(ci.post(&both.to_string()).status, 400);
    let result = connection.event().expect("an answer");
    let text = result["result"]["content"][0]["text"].as_str();
    assert!(text.is_some_and(|text| text.contains("-32600")), "{result}");
    let unheard = metric(
        &server,
        "longshore_client_requests_total{outcome=\"unheard\"}",
    );
    assert!(6.0 <= unheard, "{unheard}");
    assert!(metric(&server, "longshore_client_requests_waiting").abs() < 0.5);
}

#[test]
fn mrtr_09_answers_of_every_wrong_shape_are_refused_and_leave_nothing() {
    let server = serve();
    let call = stateless("tools/call", json!({"name": "asks", "arguments": {}}), CI);
    let asked = call.send(&server).result();
    let again = |responses: Value, state: Value| {
        let retry = call.clone().params(|params| {
            params["inputResponses"] = responses;
            params["requestState"] = state;
        });
        retry.send(&server)
    };
    let state = &asked["requestState"];
    for wrong in [
        json!([]),
        json!("who"),
        json!(7),
        json!(true),
        json!([{"who": {"action": "accept"}}]),
        json!({"who": null}),
        json!({"who": []}),
        json!({"who": "accept"}),
        json!({"who": {}}),
        json!({"who": {"action": "perhaps"}}),
        json!({"who": {"action": "accept", "content": []}}),
        json!({"who": {"action": "accept", "content": {"name": 7}}}),
        json!({"who": {"action": "accept", "content": {"name": {"name": "x"}}}}),
        json!({"who": {"action": "accept"}}),
        json!({"who": {"roots": []}}),
        json!({"who": {"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}}}),
    ] {
        let refused = again(wrong.clone(), state.clone());
        assert_eq!(
            refused.json()["error"]["code"],
            -32602,
            "{wrong}: {refused:?}"
        );
    }
    // Unknown names are ignored, and missing answers are requested again.
    for beside in [json!({}), json!({"else": {"action": "accept"}, "": null})] {
        let result = again(beside, state.clone()).result();
        assert_eq!(result["resultType"], "input_required");
    }
    let accepted = json!({"who": {"action": "accept", "content": {"name": "Ada"}}});
    let done = again(accepted, state.clone()).result();
    assert_eq!(done["content"][0]["text"], "Ada");
}

#[test]
fn mrtr_05_states_that_nobody_gave_out_or_that_are_somebody_elses_are_refused() {
    let server = serve();
    let call = |key: &str| stateless("tools/call", json!({"name": "asks", "arguments": {}}), key);
    let asked = call(CI).send(&server).result();
    let state = asked["requestState"].as_str().expect("a state").to_owned();
    let accepted = json!({"who": {"action": "accept", "content": {"name": "Eve"}}});
    let with = |request: Stateless, state: Value| {
        let accepted = accepted.clone();
        request.params(|params| {
            params["inputResponses"] = accepted;
            params["requestState"] = state;
        })
    };
    let mut forged: Vec<Value> = vec![
        json!(""),
        json!("x"),
        json!("A".repeat(1_000_000)),
        json!(state[1..]),
        json!(state[..state.len() - 1]),
        json!(format!("{state}{state}")),
        json!(state.to_lowercase()),
        json!(7),
        json!({}),
        json!([state]),
    ];
    // Changes one letter at several places.
    for at in (0..state.len()).step_by(state.len() / 16) {
        let letter = if &state[at..=at] == "A" { "B" } else { "A" };
        let mut changed = state.clone();
        changed.replace_range(at..=at, letter);
        forged.push(json!(changed));
    }
    for forged in forged {
        let refused = with(call(CI), forged.clone()).send(&server);
        refused.error(200, -32602, "1");
        assert!(refused.body.len() < 1000);
    }
    with(call(BOB), json!(state))
        .send(&server)
        .error(200, -32602, "1");
    let other = stateless(
        "tools/call",
        json!({"name": "asks", "arguments": {"x": 1}}),
        CI,
    );
    let refused = with(other, json!(state)).send(&server).json();
    assert!(
        refused["result"]["content"][0]["text"] != "Eve",
        "{refused}"
    );
    // And it is as good as ever.
    let done = with(call(CI), json!(state)).send(&server).result();
    assert_eq!(done["content"][0]["text"], "Eve");
}

#[test]
fn lh_13_events_that_nobody_gave_out_or_that_are_somebody_elses_lead_nowhere() {
    let server = serve();
    let (ci, bob) = (Of::begin(&server, CI), Of::begin(&server, BOB));
    let mut connection = server.connect();
    let call = request("tools/call", &json!({"name": "asks"}));
    connection.send(post(&ci.headers(), &call)).receive_head();
    let first = connection.any_event().expect("an event").id.expect("an id");
    let (stream, number) = first.split_once('-').expect("two parts");
    let number: u64 = number.parse().expect("a number");
    for forged in [
        "x".to_owned(),
        "s-".to_owned(),
        format!("{stream}-0"),
        format!("{stream}-{}", number + 1_000),
        format!("{stream}-{}", number - 1_000),
        format!("{stream}-{}", u64::MAX),
        format!("{stream}-0{number}"),
        format!("{}-{number}", "0".repeat(16)),
        format!("{}-{number}", stream.to_uppercase() + "A"),
        "9".repeat(64),
        "9".repeat(65),
        "9".repeat(8_000),
    ] {
        assert_eq!(ci.resume(&forged), 400, "{forged}");
    }
    // The caller's own notification stream, from now.
    for position in ["s-1".to_owned(), format!("s-{}", u64::MAX)] {
        assert_eq!(ci.resume(&position), 200, "{position}");
    }
    assert_eq!(bob.resume(&first), 400);
    let [_, stolen] = ci.headers();
    let mut theirs = server.connect();
    let head = theirs.get(&[
        ("authorization", &bob.key),
        stolen,
        ("last-event-id", &first),
    ]);
    assert_eq!(head.status, 404);
    // The stream is still its reader's.
    assert_eq!(
        connection.event().expect("a question")["method"],
        "elicitation/create"
    );
}

#[test]
fn tsk_10_tasks_that_nobody_began_or_that_are_somebody_elses_are_unknown_in_both_eras() {
    let server = serve();
    let (ci, bob) = (Of::begin(&server, CI), Of::begin(&server, BOB));
    let begun = ci.request(
        "tools/call",
        &json!({"name": "endless", "task": {"ttl": 60_000}}),
    );
    let task = begun.result()["task"]["taskId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let forged = [
        String::new(),
        "x".to_owned(),
        "0".repeat(32),
        task.to_uppercase() + "0",
        task[1..].to_owned(),
        format!("{task}0"),
        format!("../{task}"),
        format!("{task}\u{0}"),
        "f".repeat(100_000),
    ];
    for forged in &forged {
        let params = json!({"taskId": forged, "inputResponses": {}});
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            ci.request(method, &params).error(200, -32602, "1");
        }
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            stateless(method, params.clone(), CI)
                .send(&server)
                .error(200, -32602, "1");
        }
    }
    let params = json!({"taskId": task, "inputResponses": {}});
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        bob.request(method, &params).error(200, -32602, "1");
    }
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        stateless(method, params.clone(), BOB)
            .send(&server)
            .error(200, -32602, "1");
    }
    for wrong in [
        json!(null),
        json!(7),
        json!([task]),
        json!({"taskId": task}),
    ] {
        ci.request("tasks/get", &json!({ "taskId": wrong }))
            .error(200, -32602, "1");
    }
    // None of these had an effect.
    assert_eq!(
        ci.request("tasks/get", &params).result()["status"],
        "working"
    );
    ci.request("tasks/cancel", &params).result();
}
