//! Questions within a session: out on the stream of the call's answer, answered in requests of their own.

use longshore::protocol::Revision;
use serde_json::{Value, json};

use super::{app, harness, text};
use crate::support::Checked as _;
use crate::support::{Connection, Running, Serve, Session, post, request};

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn serve() -> Running {
    Serve::new().app(|_| app()).start()
}

/// Calls a tool, and reads on until it asks.
fn asked(server: &Running, session: &Session<'_>, tool: &str) -> (Connection, Value) {
    let mut connection = server.connect();
    let call = session.text("tools/call", &json!({"name": tool}));
    let head = connection.send(call).receive_head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let question = connection.event().expect("a question");
    assert_eq!(question["jsonrpc"], "2.0");
    (connection, question)
}

fn answer(question: &Value, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string()
}

fn name(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[test]
fn lh_01_the_question_is_on_the_calls_stream_and_the_answer_in_a_request_of_its_own() {
    let server = serve();
    for revision in ["2025-06-18", "2025-11-25"] {
        let session = server.session_of(revision, &able());
        let (mut connection, question) = asked(&server, &session, "named");
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["message"], "What is your name?");
        session.post(&answer(&question, name("Ada"))).accepted();
        let result = connection.event().expect("an answer");
        assert_eq!(
            (&result["id"], text(&result["result"])),
            (&json!(1), "Hello, Ada!")
        );
        assert!(connection.event().is_none());
    }
}

#[test]
fn only_the_session_that_was_asked_is_heard_and_only_once() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    let other = server.session_of("2025-11-25", &able());
    let (mut connection, question) = asked(&server, &session, "two_questions");
    // Answers from another session, or to unknown requests, have no effect and reveal nothing.
    other.post(&answer(&question, name("Eve"))).accepted();
    session
        .post(&answer(&json!({"id": "q-1"}), name("Eve")))
        .accepted();
    session
        .post(&answer(&json!({"id": 1}), name("Eve")))
        .accepted();
    session.post(&answer(&question, name("Ada"))).accepted();
    session.post(&answer(&question, name("Eve"))).accepted();
    let question = connection.event().expect("the second question");
    let blue = json!({"action": "accept", "content": {"color": "blue"}});
    session.post(&answer(&question, blue)).accepted();
    let result = connection.event().expect("an answer");
    assert_eq!(text(&result["result"]), "Ada likes blue.");
}

#[test]
fn ids_of_questions_cannot_be_guessed() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    let (_one, first) = asked(&server, &session, "named");
    let (_two, second) = asked(&server, &session, "named");
    let [first, second] = [first, second].map(|question| {
        let id: u64 = question["id"]
            .as_str()
            .expect("a text")
            .parse()
            .expect("a number");
        id
    });
    assert_eq!(first >> 30, second >> 30, "the replica");
    assert!(1 < (first ^ second).count_ones(), "{first} {second}");
    assert!((1 << 62..1 << 63).contains(&first), "{first}");
}

#[test]
fn an_error_for_an_answer_fails_the_call() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    let (mut connection, question) = asked(&server, &session, "tactful");
    let refused = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "User rejected"}});
    session.post(&refused.to_string()).accepted();
    let result = connection.event().expect("an answer")["result"].take();
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("User rejected (-1)"), "{result}");
}

#[test]
fn a_malformed_answer_fails_the_call_at_once() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    for members in [
        r#""error":{"code":-1}"#,
        r#""result":{},"error":{"code":-1,"message":"no"}"#,
        r#""result":{},"result":{}"#,
    ] {
        let (mut connection, question) = asked(&server, &session, "tactful");
        let id = question["id"].to_string();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},{members}}}"#);
        session.post(&answer).error(400, -32600, &id);
        let result = connection.event().expect("an answer")["result"].take();
        assert_eq!(result["isError"], true);
        assert!(text(&result).contains("(-32600)"), "{result}");
    }
    let batched = server.session_of("2025-03-26", &able());
    let (mut connection, question) = asked(&server, &batched, "tactful");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "error": "no"});
    assert_eq!(batched.post(&format!("[{answer}]")).status, 200);
    let result = connection.event().expect("an answer")["result"].take();
    assert_eq!(result["isError"], true);
}

#[test]
fn a_call_that_waits_for_its_client_ends_when_no_response_can_arrive() {
    let mut server = Serve::new()
        .app(|_| app())
        .configured(|c| c.drain.grace_seconds = Some(600))
        .start();
    let (mut connection, question) = {
        let session = server.session_of("2025-11-25", &able());
        asked(&server, &session, "named")
    };
    server.begin_to_stop();
    let cancelled = connection.event().expect("a notification");
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    let result = connection.event().expect("an answer")["result"].take();
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("this server stops"), "{result}");
    assert!(connection.event().is_none());
}

#[test]
fn an_answer_that_reaches_another_replica_is_told_so() {
    let replica = || Serve::new().app(|_| app()).shared_key().start();
    let (here, there) = (replica(), replica());
    let session = here.session_of("2025-11-25", &able());
    let (mut connection, question) = asked(&here, &session, "named");
    let body = answer(&question, name("Ada"));
    let response = there.post(&session.headers(), &body);
    let message = response.error(409, 409, "");
    assert!(message.contains("another replica"), "{message}");
    assert_eq!(response.json()["error"]["data"]["setting"], "state");
    session.post(&body).accepted();
    assert_eq!(
        text(&connection.event().expect("an answer")["result"]),
        "Hello, Ada!"
    );
}

#[test]
fn an_answer_finds_its_way_between_replicas_that_share_their_state() {
    let state = std::sync::Arc::new(longshore::state::Memory::default());
    let replica = || {
        let state = std::sync::Arc::clone(&state);
        Serve::new()
            .app(|_| app().store(state))
            .shared_key()
            .start()
    };
    let (here, there) = (replica(), replica());
    let session = here.session_of("2025-11-25", &able());
    let (mut connection, question) = asked(&here, &session, "two_questions");
    // Only the session that was asked receives the request there too.
    let other = there.session_of("2025-11-25", &able());
    other.post(&answer(&question, name("Eve"))).accepted();
    let body = answer(&question, name("Ada"));
    there.post(&session.headers(), &body).accepted();
    let question = connection.event().expect("the second question");
    let blue = json!({"action": "accept", "content": {"color": "blue"}});
    there
        .post(&session.headers(), &answer(&question, blue))
        .accepted();
    let result = connection.event().expect("an answer");
    assert_eq!(text(&result["result"]), "Ada likes blue.");
    let (_, question) = asked(&here, &session, "named");
    let large = answer(&question, name(&"x".repeat(60_000)));
    there.post(&session.headers(), &large).error(409, 409, "");
}

#[test]
fn the_first_clients_of_streamable_http_are_asked_although_they_negotiate_2024_11_05() {
    let server = serve();
    let session = server.session_of("2024-11-05", &able());
    let (mut connection, question) = asked(&server, &session, "tactful");
    assert_eq!(question["method"], "sampling/createMessage");
    let said =
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hm!"}});
    session.post(&answer(&question, said)).accepted();
    let result = connection.event().expect("an answer");
    assert_eq!(text(&result["result"]), "Hm!");
}

#[test]
fn clients_that_take_no_stream_are_not_asked() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    let mut headers = session.headers().to_vec();
    headers.push(("accept", "application/json"));
    let call = request("tools/call", &json!({"name": "named"}));
    let result = server.post(&headers, &call).result();
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("text/event-stream"), "{result}");
    let batched = server.session_of("2025-03-26", &able());
    let mut headers = batched.headers().to_vec();
    headers.push(("accept", "application/json"));
    let call = request("tools/call", &json!({"name": "tactful"}));
    let result = server.post(&headers, &format!("[{call}]"));
    assert!(result.body.contains("without"), "{result:?}");
}

#[test]
fn calls_of_a_batch_ask_on_its_stream_which_ends_with_all_responses() {
    let server = serve();
    let session = server.session_of("2025-03-26", &able());
    let call = |id: u64| {
        let params = json!({"name": "tactful"});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let batch = json!([call(1), ping, call(3)]).to_string();
    let mut connection = server.connect();
    let head = connection
        .send(post(&session.headers(), &batch))
        .receive_head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for _ in 0..2 {
        let question = connection.event().expect("a question");
        assert_eq!(question["method"], "sampling/createMessage");
        let message =
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}});
        session.post(&answer(&question, message)).accepted();
    }
    let responses = connection.event().expect("responses");
    let responses = responses.as_array().expect("an array");
    let ids: Vec<_> = responses.iter().map(|response| &response["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &json!(3)]);
    assert_eq!(text(&responses[0]["result"]), "hm");
    assert_eq!(connection.event(), None);
}

#[test]
fn a_session_that_ends_ends_its_questions() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    let (mut connection, _) = asked(&server, &session, "named");
    session.end();
    assert_eq!(
        connection.event(),
        None,
        "the call has ended with its session"
    );
}

#[test]
fn the_question_of_a_cancelled_call_is_taken_back() {
    let server = serve();
    let session = server.session_of("2025-11-25", &able());
    let (mut connection, question) = asked(&server, &session, "named");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    session.post(&cancel.to_string()).accepted();
    let cancelled = connection.event().expect("a notification");
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert_eq!(connection.event(), None);
}

#[test]
fn a_call_that_waits_for_its_client_leaves_its_permits_to_others() {
    let server = Serve::new()
        .app(|_| app())
        .configured(|c| c.limits.calls = Some(1))
        .start();
    let sessions = [(); 3].map(|()| server.session_of("2025-11-25", &able()));
    let waiting = sessions.each_ref().map(|session| {
        let (connection, question) = asked(&server, session, "named");
        (session, connection, question)
    });
    for (session, mut connection, question) in waiting {
        session.post(&answer(&question, name("Ada"))).accepted();
        let result = connection.event().expect("an answer")["result"].take();
        assert_eq!(text(&result), "Hello, Ada!");
    }
}

#[test]
fn one_caller_leaves_questions_to_others() {
    let server = Serve::new()
        .app(|_| app())
        .configured(|c| c.server.client_requests.total = 4)
        .start();
    let session = server.session_of("2025-11-25", &able());
    let _three = [(); 3].map(|()| asked(&server, &session, "named"));
    let refused = session.call("named", &json!({})).result();
    assert!(
        text(&refused).contains("server.client_requests.total"),
        "{refused}"
    );
}

#[test]
fn questions_are_bounded_and_nothing_is_left_of_them() {
    let server = Serve::new()
        .app(|_| app())
        .configured(|c| c.server.client_requests.per_session = 1)
        .start();
    let session = server.session_of("2025-11-25", &able());
    let (mut first, question) = asked(&server, &session, "named");
    let refused = session.call("named", &json!({})).result();
    assert!(
        text(&refused).contains("server.client_requests.per_session"),
        "{refused}"
    );
    // Another session has room of its own.
    let other = server.session_of("2025-11-25", &able());
    drop(asked(&server, &other, "named"));
    session.post(&answer(&question, name("Ada"))).accepted();
    assert_eq!(
        text(&first.event().expect("an answer")["result"]),
        "Hello, Ada!"
    );
    drop(asked(&server, &session, "named"));
}

#[test]
fn questions_of_all_sessions_together_are_bounded_too() {
    let server = Serve::new()
        .app(|_| app())
        .configured(|c| c.server.client_requests.total = 1)
        .start();
    let session = server.session_of("2025-11-25", &able());
    let other = server.session_of("2025-11-25", &able());
    let (mut first, question) = asked(&server, &session, "named");
    let refused = other.call("named", &json!({})).result();
    assert!(
        text(&refused).contains("server.client_requests.total"),
        "{refused}"
    );
    session.post(&answer(&question, name("Ada"))).accepted();
    first.event().expect("an answer");
    drop(asked(&server, &other, "named"));
}

/// Returns the messages to a client with all capabilities that sends no answers.
async fn silent(server: &longshore::Harness, tool: &str) -> Vec<Value> {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": able(), "clientInfo": {"name": "c", "version": "1"}});
    server
        .send(&request("initialize", &params))
        .await
        .expect("an answer");
    server
        .send_and_listen(&request("tools/call", &json!({"name": tool})))
        .await
}

#[tokio::test(start_paused = true)]
async fn tmo_01_a_question_that_nobody_answers_ends_and_is_taken_back() {
    let server = harness(Revision::V2025_11_25);
    let begun = tokio::time::Instant::now();
    let said = silent(&server, "named").await;
    // Not the call's own minute.
    assert_eq!(begun.elapsed().as_secs(), 300);
    let [question, cancelled, answer] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert_eq!(answer["result"]["isError"], true);
    assert!(text(&answer["result"]).contains("within 300 s"), "{answer}");
    let counts = server.client_request_counts();
    assert_eq!((counts.asked, counts.withdrawn, counts.waiting), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn time_spent_waiting_for_an_answer_is_not_the_calls_own() {
    let app = longshore::App::new()
        .config(longshore::Config::default())
        .tool(slow);
    let server = app.checked_harness().expect("valid");
    let said = silent(&server, "slow").await;
    // 50 s, then a question of 300 s, then 9 s: within the minute. Another 2 s are too many.
    let answer = said.last().expect("an answer");
    assert!(text(&answer["result"]).contains("60 s"), "{answer}");
}

/// Takes 61 seconds without its question.
#[longshore::tool]
async fn slow(context: &longshore::CallContext) -> String {
    let sleep = |s| tokio::time::sleep(std::time::Duration::from_secs(s));
    sleep(50).await;
    let unanswered = context.roots().await.is_err();
    assert!(unanswered);
    sleep(9).await;
    context.log(longshore::LogLevel::Info, "nearly").await;
    sleep(2).await;
    "done".to_owned()
}
