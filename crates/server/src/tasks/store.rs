//! Tasks in the shared state: their records and their outcomes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use futures_util::future::join_all;

use super::TaskConfig;
use super::lives::Running;
use super::record::{Ended, Kept, Record, now_ms};
use super::runners::Runners;
use crate::seal::short_digest;
use crate::server::liveness::Liveness;
use crate::server::share::Kind;
use crate::server::streams::Streams;
use crate::state::{Retention, SharedState, StateError, Subscription};

/// The tasks of one server.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(super) state: SharedState,
    pub(super) config: TaskConfig,
    mount: Box<str>,
    pub(super) running: Mutex<Running>,
    /// Which replicas are there that run tasks.
    pub(super) liveness: Arc<Liveness>,
    pub(super) runners: Mutex<Runners>,
    /// Whether other replicas have the same state.
    pub(super) is_shared: bool,
    /// Whoever wants to know of changes.
    streams: Arc<Streams>,
    /// Names this process among those that run tasks.
    pub(super) replica: u64,
}

/// One piece of an outcome.
const PART_BYTES: usize = 200 * 1024;
/// How large an outcome may be: 4 MiB.
pub(super) const OUTCOME_BYTES: usize = 4 * 1024 * 1024;
/// How many tasks of one owner are listed; older ones can still be asked for by their ids.
pub(super) const LISTED_MAX: usize = 10_000;
/// Maximum number of tasks that are looked up for one page, those that are forgotten included. A page that ends for it has a
/// cursor, and may be empty.
const LOOKED_UP_MAX: usize = 500;
/// How often a record is read anew because somebody else was faster.
const TRIES: usize = 50;

impl Tasks {
    pub(crate) fn new(
        (state, is_shared): (SharedState, bool),
        config: TaskConfig,
        mount: &str,
        streams: Arc<Streams>,
        liveness: Arc<Liveness>,
    ) -> Arc<Self> {
        Arc::new(Self {
            replica: liveness.replica(),
            liveness,
            is_shared,
            runners: Mutex::default(),
            streams,
            state,
            config,
            mount: mount.into(),
            running: Mutex::default(),
        })
    }

    /// Has others know that a task begins here, before its record is there.
    pub(super) async fn begins(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        self.liveness.say_for_tasks().await?;
        self.note(record, share).await
    }

    /// Writes a new record (TSK-03: before its id is given out).
    pub(super) async fn create(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let life = life(record);
        let fresh = Kind::Task
            .of(&self.state, share)
            .put_if_absent(&self.key("task", &record.id), written(record), life)
            .await?;
        debug_assert!(fresh, "ids are never drawn twice");
        Ok(())
    }

    /// A task, if it is there and belongs to the caller (TSK-10).
    pub(super) async fn find(&self, id: &str, owner: &str) -> Result<Option<Record>, StateError> {
        Ok(self
            .read(id)
            .await?
            .map(|(record, _)| record)
            .filter(|r| r.owner == owner))
    }

    /// Changes a record. `change` says whether there is anything to change; it may be asked again if somebody else was
    /// faster. Returns what the record is then; `None` if there is none.
    pub(super) async fn change(
        &self,
        id: &str,
        mut change: impl FnMut(&mut Record) -> bool,
    ) -> Result<Option<Record>, StateError> {
        let key = self.key("task", id);
        for _ in 0..TRIES {
            let Some((mut record, before)) = self.read(id).await? else {
                return Ok(None);
            };
            if !change(&mut record) {
                return Ok(Some(record));
            }
            // Never back in time, whichever replica's clock it is.
            record.updated = now_ms().max(record.updated);
            let after = written(&record);
            if self
                .state
                .compare_and_swap(&key, before, after, life(&record))
                .await?
            {
                // Those who wait for it look themselves; a lost message costs them a moment.
                let _ = self
                    .state
                    .publish(&self.key("task-out", id), Bytes::new())
                    .await;
                let task = record.id.as_str().into();
                self.streams.task_changed(&task, record.session.as_ref());
                return Ok(Some(record));
            }
        }
        Err(StateError::Unreachable {
            reason: "a task is changed by too many at once".to_owned(),
        })
    }

    /// Notes a task among those of its owner, for lists of them. Before it is there: one that is not is passed over.
    pub(super) async fn enlist(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let keep = Retention {
            entries: LISTED_MAX,
            bytes: LISTED_MAX * (ID_LEN + 8),
            // A task runs for its time at most, and is kept for as long again.
            life: 2 * life(record),
            may_go: false,
        };
        let log = self.list_of(&record.owner);
        let id = Bytes::copy_from_slice(record.id.as_bytes());
        let state = Kind::Task.of(&self.state, share);
        state.append(&log, id, keep).await.map(drop)
    }

    /// Tasks of an owner that began after a place in their list, and the place of the last that was looked at; `None`
    /// if there are no more behind it.
    pub(super) async fn list(
        &self,
        owner: &str,
        after: u64,
        max: usize,
    ) -> Result<(Vec<Record>, Option<u64>), StateError> {
        let log = self.list_of(owner);
        let (mut found, mut at, mut looked_up) = (Vec::new(), after, 0);
        loop {
            let page = self.state.read_after(&log, at, max - found.len()).await?;
            let Some(page) = page.filter(|page| !page.entries.is_empty()) else {
                return Ok((found, None));
            };
            let ids = page.entries.iter().map(|(_, id)| async {
                let id = String::from_utf8_lossy(id);
                self.find(&id, owner).await
            });
            for record in join_all(ids).await {
                found.extend(record?);
            }
            at = page.entries.last().map_or(at, |(number, _)| *number);
            if page.last <= at {
                return Ok((found, None));
            }
            looked_up += page.entries.len();
            if max <= found.len() || LOOKED_UP_MAX <= looked_up {
                return Ok((found, Some(at)));
            }
        }
    }

    fn list_of(&self, owner: &str) -> String {
        let mut key = self.key("tasks-of", "");
        HEXLOWER.encode_append(&short_digest(&[owner.as_bytes()]), &mut key);
        key
    }

    /// Ends a task, and keeps how. One that is over stays what it is.
    pub(super) async fn end(
        &self,
        record: &Record,
        ended: &Ended,
        share: Option<&str>,
    ) -> Result<Option<Record>, StateError> {
        // What was kept already may not make room for what nobody will ask for.
        match self.read(&record.id).await? {
            Some((record, _)) if !record.is_over() => {}
            other => return Ok(other.map(|(record, _)| record)),
        }
        let kept = self.keep(record, ended, share).await?;
        self.change(&record.id, |record| record.end(ended.status(), kept))
            .await
    }

    /// Keeps how a task ended. Says where.
    pub(super) async fn keep(
        &self,
        record: &Record,
        ended: &Ended,
        share: Option<&str>,
    ) -> Result<Kept, StateError> {
        let text = serde_json::to_vec(ended).unwrap_or_default();
        let max = OUTCOME_BYTES;
        if max < text.len() {
            return Err(StateError::TooLarge {
                bytes: text.len(),
                max,
            });
        }
        let log = self.key("task-end", &record.id);
        let keep = Retention {
            entries: OUTCOME_BYTES / PART_BYTES + 1,
            bytes: OUTCOME_BYTES,
            life: life(record),
            may_go: true,
        };
        let state = Kind::Outcome.of(&self.state, share);
        let mut kept = Kept::default();
        for part in text.chunks(PART_BYTES) {
            let part = Bytes::copy_from_slice(part);
            let number = state.append(&log, part, keep).await?;
            if kept.parts == 0 {
                kept.first = number;
            }
            kept.parts += 1;
        }
        Ok(kept)
    }

    /// How a task ended.
    pub(super) async fn ended(&self, record: &Record) -> Result<Option<Ended>, StateError> {
        let log = self.key("task-end", &record.id);
        let page = self
            .state
            .read_after(
                &log,
                record.kept.first.saturating_sub(1),
                record.kept.parts as usize,
            )
            .await?;
        let parts = page.map(|page| page.entries).unwrap_or_default();
        let is_whole = parts
            .first()
            .is_some_and(|(number, _)| *number == record.kept.first);
        let mut text = BytesMut::new();
        for (_, part) in parts.iter().filter(|_| is_whole) {
            text.extend_from_slice(part);
        }
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Hears when a task changes.
    pub(super) async fn changes(&self, id: &str) -> Result<Box<dyn Subscription>, StateError> {
        self.state.subscribe(&self.key("task-out", id)).await
    }

    /// A task, whoever asks.
    pub(super) async fn known(&self, id: &str) -> Result<Option<Record>, StateError> {
        Ok(self.read(id).await?.map(|(record, _)| record))
    }

    async fn read(&self, id: &str) -> Result<Option<(Record, Bytes)>, StateError> {
        let is_ours = id.len() == ID_LEN && id.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_ours {
            return Ok(None);
        }
        let Some(text) = self.state.get(&self.key("task", id)).await? else {
            return Ok(None);
        };
        Ok(serde_json::from_slice(&text)
            .ok()
            .map(|record| (record, text)))
    }

    /// Whether the server stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.streams.is_stopping()
    }

    pub(super) fn key(&self, kind: &str, id: &str) -> String {
        format!("{kind}/{}/{id}", self.mount)
    }
}

/// How long ids are: 128 bits in hexadecimal.
const ID_LEN: usize = 32;

/// An id that nobody can guess.
pub(super) fn new_id() -> String {
    HEXLOWER.encode(&crate::seal::random_bytes::<16>())
}

fn written(record: &Record) -> Bytes {
    serde_json::to_vec(record).unwrap_or_default().into()
}

/// A record is there for as long as the task may run, and as long again from each change.
pub(super) fn life(record: &Record) -> Duration {
    Duration::from_millis(record.ttl_ms.max(1000))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::record::Status;
    use super::*;
    use crate::server::tests::replica_of;

    fn record(id: String) -> Record {
        Record {
            id,
            owner: "ada".to_owned(),
            tool: "t".to_owned(),
            created: now_ms(),
            updated: now_ms(),
            ttl_ms: 60_000,
            poll_ms: 1000,
            status: Status::Running,
            requests: Map::new(),
            kept: Kept::default(),
            runner: 0,
            session: None,
        }
    }

    #[tokio::test]
    async fn one_page_looks_up_a_bounded_number_of_forgotten_tasks() {
        let server = replica_of(SharedState::default());
        let forgotten = 2 * LOOKED_UP_MAX;
        for n in 0..=forgotten {
            let entry = record(format!("{n:0ID_LEN$}"));
            server.tasks.enlist(&entry, None).await.expect("a state");
        }
        let last = record(format!("{forgotten:0ID_LEN$}"));
        let key = server.tasks.key("task", &last.id);
        let text = written(&last);
        let state = &server.tasks.state;
        let put = state.put(&key, text, life(&last)).await;
        put.expect("a state");

        let (mut found, mut after, mut pages) = (Vec::new(), 0, 0);
        loop {
            let (page, next) = server.tasks.list("ada", after, 50).await.expect("a state");
            pages += 1;
            found.extend(page.into_iter().map(|record| record.id));
            let Some(next) = next else { break };
            after = next;
        }
        assert_eq!(found, [last.id]);
        // Two full pages of forgotten tasks, and one with the last entry.
        assert_eq!(pages, 3);
    }

    #[tokio::test]
    async fn an_outcome_that_was_half_kept_before_is_read_whole() {
        let server = replica_of(SharedState::default());
        let mut record = record("0".repeat(ID_LEN));
        let half = Bytes::from_static(b"{\"result\":\"");
        let log = server.tasks.key("task-end", &record.id);
        let keep = Retention {
            entries: 10,
            bytes: OUTCOME_BYTES,
            life: life(&record),
            may_go: false,
        };
        let state = &server.tasks.state;
        state.append(&log, half, keep).await.expect("a state");
        let ended = Ended::Result(json!("x".repeat(2 * PART_BYTES)));
        record.kept = server
            .tasks
            .keep(&record, &ended, None)
            .await
            .expect("kept");
        assert_eq!(record.kept.parts, 3);
        let read = server.tasks.ended(&record).await.expect("a state");
        assert!(
            matches!(read, Some(Ended::Result(text)) if text == json!("x".repeat(2 * PART_BYTES)))
        );
    }
}
