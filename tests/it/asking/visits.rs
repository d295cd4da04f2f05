//! Pages that a client's person is asked to visit, and what becomes of that.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use longshore::{
    Announcer, CallContext, Definition, PromptError, ResourceError, ToolError, UrlElicitation,
    prompt, resource, tool, tool_fn,
};
use serde_json::{Map, Value, json};

use super::text;
use crate::lasting::{open, resume};
use crate::support::{Running, Serve, Session, Stateless};

const PAGE: &str = "https://example.com/connect?flow=7";

/// Cannot do without a visit.
#[tool]
async fn insists(context: &CallContext) -> Result<String, ToolError> {
    let question = context.elicit_url("Connect your account.", PAGE).required();
    Ok(question.await?.action().to_owned())
}

#[resource(uri = "insists://account")]
async fn insisting_resource(context: &CallContext) -> Result<String, ResourceError> {
    let question = context.elicit_url("Connect your account.", PAGE).required();
    Ok(question.await?.action().to_owned())
}

/// Cannot do without a visit either.
#[prompt]
async fn insisting_prompt(context: &CallContext) -> Result<String, PromptError> {
    let question = context.elicit_url("Connect your account.", PAGE).required();
    Ok(question.await?.action().to_owned())
}

/// Servers that share a state, what announces on each, and the visits that were asked for.
struct Visits {
    servers: Vec<Running>,
    announcers: Vec<Announcer>,
    asked: mpsc::Receiver<Option<UrlElicitation>>,
}

fn visits(replicas: usize) -> Visits {
    let state = Arc::new(longshore::state::Memory::default());
    let (tell, asked) = mpsc::channel();
    let tell = Arc::new(Mutex::new(tell));
    let mut announcers = Vec::new();
    let servers = (0..replicas).map(|_| {
        let tell = Arc::clone(&tell);
        let connect = tool_fn(
            Definition::new("connect"),
            move |context: Arc<CallContext>, _: Map<String, Value>| {
                let tell = Arc::clone(&tell);
                async move {
                    let question = context.elicit_url("Connect your account.", PAGE);
                    let _ = tell.lock().expect("no panic").send(question.elicitation());
                    Ok::<_, ToolError>(question.await?.action().to_owned())
                }
            },
        );
        let state = Arc::clone(&state);
        Serve::new()
            .tool(connect)
            .tool(insists)
            .app(|app| {
                announcers.push(app.announcer());
                app.store(state)
                    .resource(insisting_resource)
                    .prompt(insisting_prompt)
            })
            .shared_key()
            .start()
    });
    let servers = servers.collect();
    Visits {
        servers,
        announcers,
        asked,
    }
}

fn able() -> Value {
    json!({"elicitation": {"url": {}}})
}

/// Has the client of a session accept a URL elicitation. Returns its `elicitationId`.
fn asked(server: &Running, session: &Session<'_>) -> String {
    let mut connection = server.connect();
    connection.send(session.text("tools/call", &json!({"name": "connect"})));
    connection.receive_head();
    let question = connection.event().expect("a question");
    let id = question["params"]["elicitationId"].as_str().expect("an id");
    let accepted = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    session.post(&accepted.to_string()).accepted();
    let answer = connection.event().expect("an answer");
    assert_eq!(text(&answer["result"]), "accept");
    id.to_owned()
}

#[test]
fn eli_11_that_a_visit_is_over_is_told_to_the_client_that_was_asked_and_no_other() {
    let it = visits(2);
    let [here, there] = &it.servers[..] else {
        panic!("two replicas")
    };
    let session = here.session_of("2025-11-25", &able());
    let other = here.session_of("2025-11-25", &able());
    let mut standing = open(there, &session.at(there));
    let first = standing.any_event().expect("its beginning");
    let mut others = open(here, &other);
    others.any_event().expect("its beginning");
    let id = asked(here, &session);
    let visit = it.asked.recv().expect("a call").expect("a visit");
    // Kept as data meanwhile, and used by whichever replica serves the page.
    let kept = serde_json::to_string(&visit).expect("JSON");
    let visit: UrlElicitation = serde_json::from_str(&kept).expect("a visit");
    it.announcers[1].elicitation_completed(&visit);
    it.announcers[1].tools_changed();
    let complete = json!({
        "jsonrpc": "2.0", "method": "notifications/elicitation/complete",
        "params": {"elicitationId": id},
    });
    assert_eq!(standing.event(), Some(complete.clone()));
    let told = others.event().expect("a notification");
    assert_eq!(told["method"], "notifications/tools/list_changed");
    // A client that reconnects later is notified too.
    drop(standing);
    let mut back = resume(here, &session.at(here), &first.id.expect("an id"));
    assert_eq!(back.event(), Some(complete));
}

#[test]
fn eli_11_no_other_revision_has_visits_that_end() {
    let it = visits(1);
    let server = &it.servers[0];
    let call = Stateless::call("connect", json!({})).meta("clientCapabilities", able());
    let asked = call.send(server).result();
    assert_eq!(asked["resultType"], "input_required");
    let params = &asked["inputRequests"]["elicitation-1"]["params"];
    assert_eq!(params["mode"], "url");
    assert!(params.get("elicitationId").is_none(), "{params}");
    assert_eq!(it.asked.recv().expect("a call"), None);
}

#[test]
fn eli_10_what_needs_a_visit_is_refused_with_the_page_where_the_revision_has_that() {
    let it = visits(1);
    let server = &it.servers[0];
    let session = server.session_of("2025-11-25", &able());
    let mut ids = Vec::new();
    for (method, params) in [
        ("tools/call", json!({"name": "insists"})),
        ("resources/read", json!({"uri": "insists://account"})),
        ("prompts/get", json!({"name": "insisting_prompt"})),
    ] {
        let response = session.request(method, &params);
        let message = response.error(200, -32042, "1");
        assert_eq!(message, "Connect your account.");
        let error = response.json()["error"].take();
        let visits = error["data"]["elicitations"].as_array().expect("visits");
        assert_eq!(visits.len(), 1);
        let id = visits[0]["elicitationId"].as_str().expect("an id");
        assert_eq!(
            visits[0],
            json!({"mode": "url", "message": "Connect your account.", "url": PAGE, "elicitationId": id})
        );
        ids.push(id.to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "no id is used twice");
    // ELI-01: who has not declared it is not sent anywhere.
    let plain = server.session_of("2025-11-25", &json!({"elicitation": {}}));
    let result = plain.call("insists", &json!({})).result();
    assert_eq!(result["isError"], true);
    // In the stateless lifecycle it is a question like others.
    let call = Stateless::call("insists", json!({})).meta("clientCapabilities", able());
    let asked = call.send(server).result();
    assert_eq!(asked["resultType"], "input_required");
    let again = call.params(|params| {
        params["inputResponses"] = json!({"elicitation-1": {"action": "accept"}});
        params["requestState"] = asked["requestState"].clone();
    });
    assert_eq!(text(&again.send(server).result()), "accept");
}
