//! Examples of changes: lists, a resource that counts, and interrupted streams.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::catalog::{
    Announcer, AnyResource, CallContext, Definition, IntoResource as _, ResourceDefinition,
    ResourceError, Tool, resource_fn, tool_fn,
};
use crate::tool;

/// Sends a notification that the list of tools has changed. The list stays the same.
pub(super) fn test_trigger_tool_change(announcer: &Announcer) -> Arc<dyn Tool> {
    let announcer = announcer.clone();
    announcing(
        "test_trigger_tool_change",
        "Announces that the list of tools has changed.",
        "Tool list change triggered",
        move || announcer.tools_changed(),
    )
}

/// Sends a notification that the list of prompts has changed.
pub(super) fn test_trigger_prompt_change(announcer: &Announcer) -> Arc<dyn Tool> {
    let announcer = announcer.clone();
    announcing(
        "test_trigger_prompt_change",
        "Announces that the list of prompts has changed.",
        "Prompt list change triggered",
        move || announcer.prompts_changed(),
    )
}

/// Sends a notification that the watched resource has changed.
pub(super) fn touch_watched_resource(announcer: &Announcer) -> Arc<dyn Tool> {
    let announcer = announcer.clone();
    announcing(
        "touch_watched_resource",
        "Announces that test://watched-resource has changed.",
        "Resource update triggered",
        move || announcer.resource_changed("test://watched-resource"),
    )
}

fn announcing(
    name: &str,
    description: &str,
    answer: &'static str,
    announce: impl Fn() + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    let definition = Definition::new(name).description(description);
    Arc::new(tool_fn(definition, move |_, _: Map<String, Value>| {
        announce();
        async move { Ok(answer) }
    }))
}

/// Interval of the pulse.
const BEAT: Duration = Duration::from_secs(5);

/// A resource that changes every five seconds. Subscribe to it to receive updates.
pub(super) fn pulse(announcer: &Announcer) -> AnyResource {
    let definition = ResourceDefinition::new("everything://pulse", "pulse")
        .title("Pulse")
        .description("Counts up every five seconds.")
        .mime_type("application/json");
    let begun = Instant::now();
    let announcer = announcer.downgrade();
    // The thread ends with the resource, of which each reload creates another.
    let (resource, ended) = channel::<Infallible>();
    let beating = thread::Builder::new().name("everything-pulse".to_owned());
    let beating = beating.spawn(move || {
        beat(&ended, || {
            let announcer = announcer.upgrade();
            announcer.map(|announcer| announcer.resource_changed("everything://pulse"))
        });
    });
    if let Err(error) = beating {
        tracing::warn!(%error, "clients cannot be notified that everything://pulse changes");
    }
    let read = move |_: Arc<CallContext>| {
        let _resource = &resource;
        async move {
            let beats = begun.elapsed().as_secs() / BEAT.as_secs();
            Ok::<_, ResourceError>(json!({ "beats": beats }))
        }
    };
    resource_fn(definition, read).into_resource()
}

/// Announces the pulse until its resource has ended, or `announce` returns `None`.
fn beat(ended: &Receiver<Infallible>, announce: impl Fn() -> Option<()>) {
    while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        if announce().is_none() {
            return;
        }
    }
}

/// Closes the stream of its response, and continues. Clients with sessions of 2025-11-25 resume the stream.
#[tool(title = "Come back later", read_only, open_world = false)]
pub(super) async fn test_reconnection(context: &CallContext) -> &'static str {
    context.release_connection().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    "Reconnection test completed"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_of_a_pulse_ends_with_its_resource() {
        let (resource, ended) = channel();
        drop(resource);
        beat(&ended, || unreachable!("it has ended"));
    }
}
