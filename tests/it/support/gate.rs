//! A tool that waits until it is let go.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use longshore::{CallContext, Definition, IntoTool, ToolError, tool_fn};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

/// Timeout of an expected event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Controls a tool named `gate`: observes the start and end of calls, and releases them. Callers with a progress
/// token get a notification at the gate.
pub(crate) struct Gate {
    open: Arc<Semaphore>,
    begun: mpsc::Receiver<()>,
    ended: mpsc::Receiver<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The call has finished.
    Done,
    /// Its future was dropped before.
    Dropped,
}

/// Tells of the end of one call.
struct Call {
    ended: mpsc::Sender<End>,
    end: End,
}

impl Gate {
    pub(crate) fn new() -> (Self, impl IntoTool) {
        let open = Arc::new(Semaphore::new(0));
        let (tell_begun, begun) = mpsc::channel();
        let (tell_ended, ended) = mpsc::channel();
        let gate = Self {
            open: Arc::clone(&open),
            begun,
            ended,
        };
        let tool = tool_fn(
            Definition::new("gate"),
            move |context, _: Map<String, Value>| {
                let context: Arc<CallContext> = context;
                let (open, begun) = (Arc::clone(&open), tell_begun.clone());
                let call = Call {
                    ended: tell_ended.clone(),
                    end: End::Dropped,
                };
                async move {
                    // Whole, not only the one field that is named below.
                    let mut call = call;
                    context.progress(0.5, None, "at the gate").await;
                    let _ = begun.send(());
                    let permit = open.acquire().await.map_err(ToolError::from)?;
                    permit.forget();
                    call.end = End::Done;
                    Ok("through".to_owned())
                }
            },
        );
        (gate, tool)
    }

    /// Waits until a call has begun.
    #[track_caller]
    pub(crate) fn begun(&self) {
        self.begun.recv_timeout(PATIENCE).expect("a call begins");
    }

    /// Lets one call go.
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }

    /// Waits for the end of a call.
    #[track_caller]
    pub(crate) fn end(&self) -> End {
        self.ended.recv_timeout(PATIENCE).expect("a call ends")
    }

    /// Asserts that no other call has ended.
    #[track_caller]
    pub(crate) fn assert_running(&self) {
        assert_eq!(self.ended.try_recv().ok(), None);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let _ = self.ended.send(self.end);
    }
}
