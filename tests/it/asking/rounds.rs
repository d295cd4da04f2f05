//! Calls of 2026-07-28 that return `input_required` and are re-run with the answers.

use std::sync::Arc;

use longshore::App;
use longshore::protocol::Revision;
use longshore::state::{Memory, State as _};
use serde_json::{Value, json};

use super::{answers, app, harness, text};
use crate::support::{Running, Serve, Stateless};

const ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{"listChanged":true}}"#;

fn able(request: Stateless) -> Stateless {
    let all: Value = serde_json::from_str(ALL).expect("JSON");
    request.meta("clientCapabilities", all)
}

fn call(tool: &str) -> Stateless {
    able(Stateless::call(tool, json!({})))
}

/// Builds the retry with the client's answers.
fn retry(first: &Stateless, result: &Value, responses: Value) -> Stateless {
    let state = result["requestState"].clone();
    first.clone().params(|params| {
        params["inputResponses"] = responses;
        if state.is_string() {
            params["requestState"] = state;
        }
    })
}

/// The answers to all that is asked.
fn all_answers(result: &Value) -> Value {
    let requests = result["inputRequests"].as_object().expect("questions");
    let answers = requests.iter().map(|(name, request)| {
        let method = request["method"].as_str().expect("a method");
        (name.clone(), answers(method, &request["params"]))
    });
    answers.collect::<serde_json::Map<_, _>>().into()
}

fn serve() -> Running {
    Serve::new().app(|_| app()).start()
}

/// Starts one of several replicas.
fn replica() -> Running {
    Serve::new().app(|_| app()).shared_key().start()
}

#[test]
fn mrtr_10_each_round_may_go_to_another_replica() {
    let replicas = [replica(), replica(), replica()];
    let first = call("two_questions");
    let asked = first.send(&replicas[0]).result();
    assert_eq!(asked["resultType"], "input_required");
    // CACHE-02: an input request must not be cached.
    assert!(asked.get("ttlMs").is_none() && asked.get("content").is_none());
    assert_eq!(
        asked["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "longshore"
    );
    let question = &asked["inputRequests"]["elicitation-1"];
    assert_eq!(
        question,
        &json!({"method": "elicitation/create", "params": {
            "mode": "form",
            "message": "What is your name?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        }})
    );
    let second = retry(&first, &asked, all_answers(&asked));
    let asked_again = second.send(&replicas[1]).result();
    let question = &asked_again["inputRequests"]["elicitation-1"];
    assert_eq!(
        question["params"]["message"],
        "What is your favorite color?"
    );
    assert_ne!(asked["requestState"], asked_again["requestState"]);
    let third = retry(&first, &asked_again, all_answers(&asked_again));
    let done = third.send(&replicas[2]).result();
    assert_eq!(
        (text(&done), &done["resultType"]),
        ("Ada likes blue.", &json!("complete"))
    );
}

#[test]
fn mrtr_03_what_is_asked_at_once_is_asked_in_one_round() {
    let server = serve();
    let first = call("at_once");
    let asked = first.send(&server).result();
    let names: Vec<_> = asked["inputRequests"]
        .as_object()
        .expect("questions")
        .keys()
        .collect();
    assert_eq!(names, ["user_name", "greeting", "client_roots"]);
    assert_eq!(
        asked["inputRequests"]["client_roots"],
        json!({"method": "roots/list", "params": {}})
    );
    // MRTR-09: missing answers are requested again, and unknown ones are ignored.
    let mut some = all_answers(&asked);
    let greeting = some["greeting"].take();
    some.as_object_mut()
        .expect("an object")
        .shift_remove("greeting");
    some["unknown"] = json!(12345);
    let asked_again = retry(&first, &asked, some).send(&server).result();
    let names: Vec<_> = asked_again["inputRequests"]
        .as_object()
        .expect("questions")
        .keys()
        .collect();
    assert_eq!(names, ["greeting"]);
    let done = retry(&first, &asked_again, json!({"greeting": greeting}))
        .send(&server)
        .result();
    assert_eq!(text(&done), "Hello there, Ada at file:///home/ada");
}

#[test]
fn mrtr_09_answers_of_the_wrong_shape_are_refused() {
    let server = serve();
    let first = call("named");
    let asked = first.send(&server).result();
    for responses in [
        json!(null),
        json!(12345),
        json!([]),
        json!({"user_name": 12345}),
        json!({"user_name": null}),
        json!({"user_name": {}}),
        json!({"user_name": {"action": "maybe"}}),
        json!({"user_name": {"action": "accept"}}),
        json!({"user_name": {"action": "accept", "content": {"name": 7}}}),
        json!({"user_name": {"action": "accept", "content": []}}),
    ] {
        let with_state = retry(&first, &asked, responses.clone());
        with_state.send(&server).error(200, -32602, "1");
        let without = with_state.params(|params| {
            params
                .as_object_mut()
                .expect("an object")
                .shift_remove("requestState");
        });
        without.send(&server).error(200, -32602, "1");
    }
    for state in [json!(null), json!(7), json!({})] {
        let request = first
            .clone()
            .params(|params| params["requestState"] = state);
        request.send(&server).error(200, -32602, "1");
    }
    let again = retry(&first, &asked, json!({})).send(&server).result();
    assert_eq!(again["inputRequests"], asked["inputRequests"]);
}

#[test]
fn an_answer_to_a_question_with_a_name_may_come_before_it_is_asked() {
    let server = serve();
    let answer =
        json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}, "more": {"x": 1}});
    let done = retry(&call("named"), &json!({}), answer)
        .send(&server)
        .result();
    assert_eq!(text(&done), "Hello, Alice!");
    // A name that was made up for it says nothing without the state in which it was.
    let answer = json!({"elicitation-1": {"action": "accept", "content": {"name": "Alice"}}});
    let asked = retry(&call("two_questions"), &json!({}), answer)
        .send(&server)
        .result();
    assert_eq!(asked["resultType"], "input_required");
}

#[test]
fn mrtr_05_a_state_is_good_for_its_own_request_only() {
    let server = serve();
    let first = call("named");
    let asked = first.send(&server).result();
    let good = retry(&first, &asked, all_answers(&asked));
    let state = asked["requestState"].as_str().expect("a state").to_owned();
    for bad in [
        format!("{state}-TAMPERED"),
        state[1..].to_owned(),
        String::new(),
        "x".repeat(200_000),
    ] {
        let request = good
            .clone()
            .params(|params| params["requestState"] = bad.into());
        let message = request.send(&server).error(200, -32602, "1");
        assert!(message.contains("requestState"), "{message}");
    }
    let elsewhere = able(Stateless::call("two_questions", json!({})));
    retry(&elsewhere, &asked, json!({}))
        .send(&server)
        .error(200, -32602, "1");
    let prompt = able(Stateless::new(
        "prompts/get",
        json!({"name": "asking_prompt"}),
    ));
    retry(&prompt, &asked, json!({}))
        .send(&server)
        .error(200, -32602, "1");
    let stranger = serve();
    good.send(&stranger).error(200, -32602, "1");
    assert_eq!(text(&good.send(&server).result()), "Hello, Ada!");
}

#[test]
fn a_retry_may_be_written_differently() {
    let server = Serve::new().app(|_| App::new().tool(echo_twice)).start();
    let first = able(Stateless::call(
        "echo_twice",
        json!({"a": {"x": 1.0, "y": [true]}, "b": "é"}),
    ));
    let asked = first.send(&server).result();
    let answers = all_answers(&asked);
    let rewritten = first.params(|params| {
        params["arguments"] = json!({"b": "\u{e9}", "a": {"y": [true], "x": 1}});
    });
    let again = retry(&rewritten, &asked, answers.clone());
    assert_eq!(text(&again.send(&server).result()), "é");
    let other = again.params(|params| params["arguments"]["b"] = "e".into());
    other.send(&server).error(200, -32602, "1");
}

/// Says it after a question.
#[longshore::tool]
async fn echo_twice(
    context: &longshore::CallContext,
    a: Value,
    b: String,
) -> Result<String, longshore::ToolError> {
    let _ = a;
    context.elicit::<super::Name>("Really?").await?;
    Ok(b)
}

#[test]
fn a_step_is_taken_once_along_one_line_of_answers() {
    let server = serve();
    let first = call("steps");
    let asked = first.send(&server).result();
    let second = retry(&first, &asked, all_answers(&asked));
    let asked_again = second.send(&server).result();
    let third = retry(&first, &asked_again, all_answers(&asked_again));
    let done = third.send(&server).result();
    let [before, taken] = text(&done)
        .strip_prefix("Ada: ")
        .expect("a name")
        .split(", ")
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .try_into()
        .expect("two numbers");
    assert_eq!(before, "17");
    // The same state gives the same result; an older state runs the step again: at least once.
    assert_eq!(
        text(&third.send(&server).result()),
        format!("Ada: 17, {taken}")
    );
    let other_line = second.send(&server).result();
    let done = retry(&first, &other_line, all_answers(&other_line))
        .send(&server)
        .result();
    assert_ne!(text(&done), format!("Ada: 17, {taken}"));
}

static CHARGED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Takes money, once.
#[longshore::tool]
async fn charge(context: &longshore::CallContext) -> Result<String, longshore::ToolError> {
    context.elicit::<super::Name>("Who pays?").await?;
    let take = async {
        Ok::<_, longshore::ToolError>(CHARGED.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
    };
    let number = context.step_once("charge", take).await?;
    context
        .elicit::<super::Name>("Who gets the receipt?")
        .await?;
    Ok(format!("charge {number}"))
}

#[test]
fn mrtr_07_a_step_that_is_taken_at_most_once_is_not_taken_for_an_old_state() {
    let state = Arc::new(Memory::default());
    let store = Arc::clone(&state);
    let server = Serve::new()
        .app(|_| App::new().tool(charge).store(store))
        .start();
    let first = call("charge");
    let asked = first.send(&server).result();
    let second = retry(&first, &asked, all_answers(&asked));
    let asked_again = second.send(&server).result();
    let refused = second.send(&server).result();
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("run before"), "{refused}");
    let third = retry(&first, &asked_again, all_answers(&asked_again));
    for _ in 0..2 {
        assert_eq!(text(&third.send(&server).result()), "charge 0");
    }
    // The record counts towards the caller's share of the state.
    let usage = state.usage();
    let of_calls = usage.iter().find(|usage| usage.kind == "journal");
    assert_eq!(of_calls.map(|usage| usage.entries), Some(1));
}

static PAID: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Pays, which fails, and asks whether to go on.
#[longshore::tool]
async fn pay(context: &longshore::CallContext) -> Result<String, longshore::ToolError> {
    let pay = async {
        PAID.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Err::<u32, _>(longshore::ToolError::new("no answer from the bank"))
    };
    let failed = context.step_once("pay", pay).await.expect_err("it fails");
    context.elicit::<super::Name>("Go on?").await?;
    Ok(failed.message().to_owned())
}

#[test]
fn mrtr_07_a_step_that_is_taken_at_most_once_and_failed_is_not_taken_in_the_next_round() {
    let server = Serve::new().app(|_| App::new().tool(pay)).start();
    let first = call("pay");
    let asked = first.send(&server).result();
    let second = retry(&first, &asked, all_answers(&asked));
    let done = second.send(&server).result();
    assert!(text(&done).contains("run before"), "{done}");
    assert_eq!(PAID.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_asks_something_else_when_it_runs_again_fails() {
    let server = harness(Revision::V2026_07_28).on_client_request(answers);
    let error = server
        .call("fickle", json!({}))
        .await
        .expect_err("an error");
    assert_eq!(error["code"], -32603);
    // With a session it does not run again.
    let server = harness(Revision::V2025_11_25).on_client_request(answers);
    let result = server.call("fickle", json!({})).await.expect("a result");
    assert_eq!(text(&result), "never");
}

#[test]
fn what_was_said_before_is_not_said_again() {
    let server = serve();
    let first = call("reports").params(|params| params["_meta"]["progressToken"] = "t".into());
    let mut connection = server.connect();
    connection.send(first.text()).receive_head();
    assert_eq!(
        connection.event().expect("progress")["params"]["progress"],
        1
    );
    let asked = connection.event().expect("an answer")["result"].take();
    assert_eq!(asked["resultType"], "input_required");
    assert!(connection.event().is_none());
    connection
        .send(retry(&first, &asked, all_answers(&asked)).text())
        .receive_head();
    assert_eq!(
        connection.event().expect("progress")["params"]["progress"],
        2
    );
    assert_eq!(
        text(&connection.event().expect("an answer")["result"]),
        "done"
    );
}

#[test]
fn meta_04_a_missing_capability_is_a_bad_request() {
    let server = serve();
    let response = Stateless::call("needs_sampling", json!({})).send(&server);
    response.error(400, -32021, "1");
    assert_eq!(
        response.json()["error"]["data"],
        json!({"requiredCapabilities": {"sampling": {}}})
    );
    assert_eq!(
        text(&call("needs_sampling").send(&server).result()),
        "has it"
    );
}

#[test]
fn what_is_kept_between_rounds_is_bounded() {
    let server = Serve::new().app(|_| App::new().tool(hoard)).start();
    let ask =
        |bytes: usize| able(Stateless::call("hoard", json!({ "bytes": bytes }))).send(&server);
    assert_eq!(ask(60_000).result()["resultType"], "input_required");
    assert_eq!(ask(1_040_000).result()["resultType"], "input_required");
    let message = ask(1_050_000).error(200, -32603, "1");
    assert!(message.contains("1024 KiB"), "{message}");
}

/// Keeps a lot.
#[longshore::tool]
async fn hoard(
    context: &longshore::CallContext,
    bytes: usize,
) -> Result<String, longshore::ToolError> {
    let much = context
        .step("much", async {
            Ok::<_, longshore::ToolError>("x".repeat(bytes))
        })
        .await?;
    context.elicit::<super::Name>("Enough?").await?;
    Ok(much)
}

/// Keeps a lot between its questions.
#[longshore::tool]
async fn hoards(
    context: &longshore::CallContext,
    bytes: usize,
) -> Result<String, longshore::ToolError> {
    let kept = context
        .step("hoard", async {
            HOARDED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok::<_, longshore::ToolError>("x".repeat(bytes))
        })
        .await?;
    let name = context.elicit::<super::Name>("Whose is it?").await?;
    context.elicit::<super::Colour>("In which color?").await?;
    let name = name.accepted().map_or(String::new(), |n| n.name);
    Ok(format!("{} for {name}", kept.len()))
}

static HOARDED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn hoarding(bytes: usize) -> Stateless {
    able(Stateless::call("hoards", json!({ "bytes": bytes })))
}

#[test]
fn what_is_too_much_to_travel_is_kept_for_every_replica() {
    let state = std::sync::Arc::new(longshore::state::Memory::default());
    let [one, other] = [(); 2].map(|()| {
        let state = std::sync::Arc::clone(&state);
        Serve::new()
            .app(|_| App::new().tool(hoards).store(state))
            .shared_key()
            .start()
    });
    // A little more than travels, and nearly all that is kept.
    for bytes in [70_000, 1_000_000] {
        let before = HOARDED.load(std::sync::atomic::Ordering::SeqCst);
        let call = hoarding(bytes);
        let mut result = call.send(&one).result();
        for server in [&other, &one] {
            assert_eq!(result["resultType"], "input_required");
            let state = result["requestState"].as_str().expect("a state");
            assert!(state.len() < 1000, "{} bytes travel", state.len());
            result = retry(&call, &result, all_answers(&result))
                .send(server)
                .result();
        }
        assert_eq!(text(&result), format!("{bytes} for Ada"));
        // MRTR-07: the step was not taken again.
        let taken = HOARDED.load(std::sync::atomic::Ordering::SeqCst) - before;
        assert!(1 <= taken);
    }
    // Small state still travels with the client, so a server with the key but without the store can continue.
    let stranger = Serve::new()
        .app(|_| App::new().tool(hoards))
        .shared_key()
        .start();
    let small = hoarding(1000);
    let asked = small.send(&one).result();
    let again = retry(&small, &asked, all_answers(&asked))
        .send(&stranger)
        .result();
    assert_eq!(again["resultType"], "input_required");
    let large = hoarding(70_000);
    let asked = large.send(&one).result();
    let refused = retry(&large, &asked, all_answers(&asked)).send(&stranger);
    let message = refused.error(200, -32602, "1");
    assert!(message.contains("requestState"), "{message}");
}

#[test]
fn mrtr_05_what_is_kept_is_good_for_its_own_request_only() {
    let server = Serve::new().app(|_| App::new().tool(hoards)).start();
    let call = hoarding(70_000);
    let asked = call.send(&server).result();
    let other = retry(&hoarding(70_001), &asked, all_answers(&asked));
    other.send(&server).error(200, -32602, "1");
    let state = asked["requestState"].as_str().expect("a state").to_owned();
    let mut tampered = asked.clone();
    tampered["requestState"] = format!("{state}A").into();
    retry(&call, &tampered, all_answers(&asked))
        .send(&server)
        .error(200, -32602, "1");
    // And as good as ever after that.
    let result = retry(&call, &asked, all_answers(&asked))
        .send(&server)
        .result();
    assert_eq!(result["resultType"], "input_required");
}
