//! Letters: what is said to a task reaches whoever runs it, on whichever replica.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;

use super::record::Record;
use super::store::{OUTCOME_BYTES, Tasks, life};
use crate::server::share::Kind;
use crate::state::{Retention, StateError, Subscription};

/// How many letters of a task are kept.
const LETTERS_MAX: usize = 1000;
/// After which time the state is asked again that could not be used.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The letters of one task, as whoever runs it reads them.
struct Mailbox {
    tasks: Arc<Tasks>,
    id: String,
    /// What says that there may be more.
    bell: Option<Box<dyn Subscription>>,
    /// The number of the last that was read.
    last: u64,
    /// There was nothing behind it when that was last looked at.
    is_empty: bool,
}

impl Tasks {
    /// Sends whoever runs the task a letter.
    pub(super) async fn tell(
        &self,
        record: &Record,
        letter: &Value,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let log = self.key("task-in", &record.id);
        let keep = Retention {
            entries: LETTERS_MAX,
            bytes: OUTCOME_BYTES,
            life: life(record),
            may_go: false,
        };
        let letter = Bytes::from(letter.to_string());
        let state = Kind::Task.of(&self.state, share);
        state.append(&log, letter, keep).await?;
        self.state.publish(&log, Bytes::new()).await
    }

    /// All letters of a task as they come, however long the state is away in between. It never ends.
    pub(super) fn mail(self: &Arc<Self>, id: &str) -> BoxStream<'static, Vec<Value>> {
        let mailbox = Mailbox {
            tasks: Arc::clone(self),
            id: id.to_owned(),
            bell: None,
            last: 0,
            is_empty: false,
        };
        stream::unfold(mailbox, |mut mailbox| async move {
            loop {
                match mailbox.look().await {
                    Ok(letters) if !letters.is_empty() => return Some((letters, mailbox)),
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        })
        .boxed()
    }
}

impl Mailbox {
    /// What there is when it has rung, or when it is first looked into.
    async fn look(&mut self) -> Result<Vec<Value>, StateError> {
        let log = self.tasks.key("task-in", &self.id);
        match &mut self.bell {
            None => self.bell = Some(self.tasks.state.subscribe(&log).await?),
            Some(bell) if self.is_empty => {
                bell.next().await;
                self.is_empty = false;
            }
            // There may be more, or it could not be read.
            Some(_) => {}
        }
        let state = &self.tasks.state;
        let page = state.read_after(&log, self.last, LETTERS_MAX).await?;
        let entries = page.map(|page| page.entries).unwrap_or_default();
        self.is_empty = entries.is_empty();
        if let Some((last, _)) = entries.last() {
            self.last = *last;
        }
        let letters = entries.iter();
        Ok(letters
            .filter_map(|(_, letter)| serde_json::from_slice(letter).ok())
            .collect())
    }
}
