//! Messages to tasks: cancellations and client responses reach the runner on any replica through a log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;

use super::record::Record;
use super::store::{RESULT_BYTES_MAX, Tasks, ttl};
use crate::server::share::StateKind;
use crate::state::{Retention, StateError, Subscription};

/// Maximum number of messages of a task.
const MESSAGES_MAX: usize = 1000;
/// Delay before the next attempt after the state failed.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Messages of one task, read by its runner.
struct Inbox {
    tasks: Arc<Tasks>,
    id: String,
    /// Announces new messages.
    wakeup: Option<Box<dyn Subscription>>,
    /// Number of the last message that was read.
    last: u64,
    /// True if the last read found no message.
    is_empty: bool,
}

impl Tasks {
    /// Appends a message for the runner of a task.
    pub(super) async fn send(
        &self,
        record: &Record,
        message: &Value,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let log = self.key("task-in", &record.id);
        let keep = Retention {
            entries: MESSAGES_MAX,
            bytes: RESULT_BYTES_MAX,
            life: ttl(record),
            may_go: false,
        };
        let message = Bytes::from(message.to_string());
        let state = StateKind::Task.of(&self.state, share);
        state.append(&log, message, keep).await?;
        self.state.publish(&log, Bytes::new()).await
    }

    /// Stream of the messages of a task. It never ends, and retries while the state is unavailable.
    pub(super) fn inbox(self: &Arc<Self>, id: &str) -> BoxStream<'static, Vec<Value>> {
        let mailbox = Inbox {
            tasks: Arc::clone(self),
            id: id.to_owned(),
            wakeup: None,
            last: 0,
            is_empty: false,
        };
        stream::unfold(mailbox, |mut mailbox| async move {
            loop {
                match mailbox.poll_messages().await {
                    Ok(messages) if !messages.is_empty() => return Some((messages, mailbox)),
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
                }
            }
        })
        .boxed()
    }
}

impl Inbox {
    /// Waits for an announcement, except the first time, and returns new messages.
    async fn poll_messages(&mut self) -> Result<Vec<Value>, StateError> {
        let log = self.tasks.key("task-in", &self.id);
        match &mut self.wakeup {
            None => self.wakeup = Some(self.tasks.state.subscribe(&log).await?),
            Some(wakeup) if self.is_empty => {
                wakeup.next().await;
                self.is_empty = false;
            }
            // More messages are possible, or the last read failed.
            Some(_) => {}
        }
        let state = &self.tasks.state;
        let page = state.read_after(&log, self.last, MESSAGES_MAX).await?;
        let entries = page.map(|page| page.entries).unwrap_or_default();
        self.is_empty = entries.is_empty();
        if let Some((last, _)) = entries.last() {
            self.last = *last;
        }
        let messages = entries.iter();
        Ok(messages
            .filter_map(|(_, message)| serde_json::from_slice(message).ok())
            .collect())
    }
}
