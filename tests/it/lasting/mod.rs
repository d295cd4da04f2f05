//! Streams that last: a session's own, those of `subscriptions/listen`, and answers that are taken up again.

mod balanced;
mod held;
mod kept;
#[cfg(feature = "redis")]
mod killed;
mod legacy;
mod listen;
mod replicas;
mod resume;
mod standing;

use longshore::CallContext;
use longshore::{Announcer, App, LogLevel, ResourceDefinition, StaticResource, tool};
use serde_json::{Value, json};

use crate::support::{Connection, Event, Gate, Running, Serve, Session, request};

/// Logs at the lowest level.
#[tool]
async fn whisper(context: &CallContext) -> String {
    context.log(LogLevel::Debug, "psst").await;
    "whispered".to_owned()
}

/// A server with a tool that waits, a resource and a prompt, and what announces changes.
pub(crate) struct Announcing {
    pub(crate) announcer: Announcer,
    pub(crate) gate: Gate,
    pub(crate) server: Running,
}

pub(crate) fn announcing(change: impl FnOnce(Serve) -> Serve) -> Announcing {
    let (gate, tool) = Gate::new();
    let mut announcer = None;
    let serve = Serve::new().tool(tool).tool(whisper).app(|app| {
        announcer = Some(app.announcer());
        with_offers(app)
    });
    Announcing {
        announcer: announcer.expect("an application"),
        gate,
        server: change(serve).start(),
    }
}

fn with_offers(app: App) -> App {
    let definition = ResourceDefinition::new("test://watched", "watched");
    let prompt = longshore::prompt_fn(
        longshore::PromptDefinition::new("greeting"),
        |_context: std::sync::Arc<CallContext>, _arguments: longshore::Parameters| async {
            Ok::<_, longshore::PromptError>("Ahoy!".to_owned())
        },
    );
    app.resource(StaticResource::text(definition, "a text"))
        .prompt(prompt)
}

/// Opens a session's own stream, and passes over what it begins with.
pub(crate) fn open(server: &Running, session: &Session<'_>) -> Connection {
    let mut connection = server.connect();
    let head = connection.get(&session.headers());
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    connection
}

/// Comes back to a stream after one of its events.
pub(crate) fn resume(server: &Running, session: &Session<'_>, id: &str) -> Connection {
    let mut connection = server.connect();
    let [session] = session.headers();
    let head = connection.get(&[session, ("last-event-id", id)]);
    assert_eq!(head.status, 200);
    connection
}

fn updated(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
}

pub(crate) fn changed(list: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed")})
}

pub(crate) fn id_of(event: &Event) -> &str {
    event.id.as_deref().expect("an id")
}

/// Begins a call that waits, and says so.
pub(crate) fn begin_call(server: &Running, session: &Session<'_>) -> Connection {
    let mut connection = server.connect();
    let params = json!({"name": "gate", "_meta": {"progressToken": 7}});
    connection.send(session.text("tools/call", &params));
    assert_eq!(connection.receive_head().status, 200);
    connection
}

fn notification(method: &str, params: &Value) -> String {
    request(method, params).replace("\"id\":1,", "")
}
