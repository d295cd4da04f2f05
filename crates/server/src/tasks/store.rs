//! Records and results of tasks in the shared state.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use futures_util::future::join_all;

use super::TaskConfig;
use super::orphans::OrphanSweep;
use super::record::{Record, StoredResult, TaskResult, now_ms};
use super::running::LocalTasks;
use crate::net::Mutex;
use crate::seal::short_digest;
use crate::server::liveness::Liveness;
use crate::server::quota::Quota;
use crate::server::share::StateKind;
use crate::server::streams::Streams;
use crate::state::{Retention, SharedState, StateError, Subscription};

/// Tasks of one server.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(super) state: SharedState,
    pub(super) config: TaskConfig,
    endpoint: Box<str>,
    pub(super) running: Mutex<LocalTasks>,
    /// Tasks that may run.
    pub(super) places: Arc<Quota>,
    /// Requests that wait for the result of a task.
    pub(super) waiters: Arc<Quota>,
    /// Liveness of the replicas that run tasks.
    pub(super) liveness: Arc<Liveness>,
    pub(super) runners: Mutex<OrphanSweep>,
    /// True if other replicas use the same state.
    pub(super) is_shared: bool,
    /// Notified of changes.
    streams: Arc<Streams>,
    /// Identifier of this process as a runner of tasks.
    pub(super) replica: u64,
}

/// Size of one part of a result in bytes.
const PART_BYTES: usize = 200 * 1024;
/// Maximum size of a result: 4 MiB.
pub(super) const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of parts of a result.
const PARTS_MAX: usize = RESULT_BYTES_MAX / PART_BYTES + 1;
/// Maximum size that encryption adds to an entry of a log.
const SEALING_BYTES_MAX: usize = 256;
/// Maximum number of listed tasks of an owner. Older ones can still be requested by id.
pub(super) const LISTED_MAX: usize = 10_000;
/// Maximum number of lookups for one page, including expired tasks. A page that reaches it has a cursor and may be
/// empty.
const LOOKUPS_MAX: usize = 500;
/// Number of requests that may wait for results, for each task that may run: clients ask again, and tasks run on other
/// replicas too.
const WAITERS_PER_TASK: usize = 2;
/// Maximum number of attempts when others write at the same time.
const ATTEMPTS_MAX: usize = 50;

impl Tasks {
    pub fn new(
        (state, is_shared): (SharedState, bool),
        config: TaskConfig,
        endpoint: &str,
        streams: Arc<Streams>,
        liveness: Arc<Liveness>,
    ) -> Arc<Self> {
        let per_caller = config.per_principal.saturating_mul(WAITERS_PER_TASK);
        let total = config.total.saturating_mul(WAITERS_PER_TASK);
        Arc::new(Self {
            places: Quota::new(config.total, config.per_principal),
            waiters: Quota::new(total, per_caller),
            replica: liveness.replica(),
            liveness,
            is_shared,
            runners: Mutex::default(),
            streams,
            state,
            config,
            endpoint: endpoint.into(),
            running: Mutex::default(),
        })
    }

    /// Announces that a task will run here, before its record exists.
    pub(super) async fn announce(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        self.liveness.heartbeat_tasks().await?;
        self.register_run(record, share).await
    }

    /// Writes a new record, before its id is returned (TSK-03).
    pub(super) async fn create(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let ttl = ttl(record);
        let fresh = StateKind::Task
            .of(&self.state, share)
            .put_if_absent(&self.key("task", &record.id), written(record), ttl)
            .await?;
        debug_assert!(fresh, "ids are never drawn twice");
        Ok(())
    }

    /// Finds a task that belongs to the owner (TSK-10).
    pub(super) async fn find(&self, id: &str, owner: &str) -> Result<Option<Record>, StateError> {
        Ok(self
            .read(id)
            .await?
            .map(|(record, _)| record)
            .filter(|r| r.owner == owner))
    }

    /// Changes a record. `change` returns false if it changed nothing; it runs again after a conflicting write.
    ///
    /// Returns the current record, or `None` if there is none.
    pub(super) async fn change(
        &self,
        id: &str,
        mut change: impl FnMut(&mut Record) -> bool,
    ) -> Result<Option<Record>, StateError> {
        let key = self.key("task", id);
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut record, before)) = self.read(id).await? else {
                return Ok(None);
            };
            if !change(&mut record) {
                return Ok(Some(record));
            }
            // The time must not go backwards if the clocks of replicas differ.
            record.updated = now_ms().max(record.updated);
            let after = written(&record);
            if self
                .state
                .compare_and_swap(&key, before, after, ttl(&record))
                .await?
            {
                // A lost announcement only delays the readers, who poll.
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
            reason: "a task is changed by too many concurrent requests".to_owned(),
        })
    }

    /// Adds a task to the list of its owner, before its record exists. Entries without a record are skipped.
    pub(super) async fn enlist(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let keep = Retention {
            entries: LISTED_MAX,
            bytes: LISTED_MAX * (ID_LEN + SEALING_BYTES_MAX),
            life: self.life_of_lists(),
            may_go: false,
        };
        let log = self.list_of(&record.owner);
        let id = Bytes::copy_from_slice(record.id.as_bytes());
        let state = StateKind::Task.of(&self.state, share);
        state.append(&log, id, keep).await.map(drop)
    }

    /// Lists tasks of an owner after a position. Also returns the position for the next page, if there is one.
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
            if max <= found.len() || LOOKUPS_MAX <= looked_up {
                return Ok((found, Some(at)));
            }
        }
    }

    /// Time to live of lists of tasks after their last entry. It depends on no single task: a short one must not end the list
    /// of longer ones. A task runs for at most its TTL, and its result is kept as long again.
    pub(super) fn life_of_lists(&self) -> Duration {
        2 * Duration::from_secs(self.config.ttl_seconds).max(TTL_MIN)
    }

    fn list_of(&self, owner: &str) -> String {
        let mut key = self.key("tasks-of", "");
        HEXLOWER.encode_append(&short_digest(&[owner.as_bytes()]), &mut key);
        key
    }

    /// Ends a task and stores its result. Does nothing if it has ended before.
    pub(super) async fn end(
        &self,
        record: &Record,
        ended: &TaskResult,
        share: Option<&str>,
    ) -> Result<Option<Record>, StateError> {
        // A stored result must not be evicted for one that is never read.
        match self.read(&record.id).await? {
            Some((record, _)) if !record.is_finished() => {}
            other => return Ok(other.map(|(record, _)| record)),
        }
        let kept = self.store_result(record, ended, share).await?;
        self.change(&record.id, |record| record.end(ended.status(), kept))
            .await
    }

    /// Stores the result of a task. Returns its location.
    pub(super) async fn store_result(
        &self,
        record: &Record,
        ended: &TaskResult,
        share: Option<&str>,
    ) -> Result<StoredResult, StateError> {
        let text = serde_json::to_vec(ended).unwrap_or_default();
        let max = RESULT_BYTES_MAX;
        if max < text.len() {
            return Err(StateError::TooLarge {
                bytes: text.len(),
                max,
            });
        }
        let log = self.key("task-end", &record.id);
        let keep = Retention {
            entries: PARTS_MAX,
            bytes: RESULT_BYTES_MAX + PARTS_MAX * SEALING_BYTES_MAX,
            life: ttl(record),
            may_go: true,
        };
        let state = StateKind::Outcome.of(&self.state, share);
        let mut kept = StoredResult::default();
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

    /// Loads the result of a task.
    pub(super) async fn load_result(
        &self,
        record: &Record,
    ) -> Result<Option<TaskResult>, StateError> {
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

    /// Subscribes to changes of a task.
    pub(super) async fn changes(&self, id: &str) -> Result<Box<dyn Subscription>, StateError> {
        self.state.subscribe(&self.key("task-out", id)).await
    }

    /// Gets a task of any owner.
    pub(super) async fn get(&self, id: &str) -> Result<Option<Record>, StateError> {
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

    /// Returns true during shutdown.
    pub(super) fn is_stopping(&self) -> bool {
        self.streams.is_stopping()
    }

    pub(super) fn key(&self, kind: &str, id: &str) -> String {
        format!("{kind}/{}/{id}", self.endpoint)
    }
}

/// Length of an id: 128 bits in hexadecimal.
const ID_LEN: usize = 32;

/// A random id.
pub(super) fn new_id() -> String {
    HEXLOWER.encode(&crate::seal::random_bytes::<16>())
}

fn written(record: &Record) -> Bytes {
    serde_json::to_vec(record).unwrap_or_default().into()
}

/// Time to live of a record, from its last change.
pub(super) fn ttl(record: &Record) -> Duration {
    Duration::from_millis(record.ttl_ms).max(TTL_MIN)
}

const TTL_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use serde_json::value::to_raw_value;

    use super::super::record::TaskStatus;
    use super::*;
    use crate::seal::{KeyRing, SealedState};
    use crate::server::tests::replica_of;
    use crate::state::Memory;

    fn record(id: String) -> Record {
        Record {
            id,
            owner: "ada".to_owned(),
            tool: "t".to_owned(),
            created: now_ms(),
            updated: now_ms(),
            ttl_ms: 60_000,
            poll_ms: 1000,
            status: TaskStatus::Running,
            requests: Map::new(),
            kept: StoredResult::default(),
            runner: 0,
            session: None,
            scopes: Vec::new(),
        }
    }

    #[tokio::test]
    async fn one_page_looks_up_a_bounded_number_of_forgotten_tasks() {
        let server = replica_of(SharedState::default());
        let forgotten = 2 * LOOKUPS_MAX;
        for n in 0..=forgotten {
            let entry = record(format!("{n:0ID_LEN$}"));
            server.tasks.enlist(&entry, None).await.expect("a state");
        }
        let last = record(format!("{forgotten:0ID_LEN$}"));
        let key = server.tasks.key("task", &last.id);
        let text = written(&last);
        let state = &server.tasks.state;
        let put = state.put(&key, text, ttl(&last)).await;
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

    #[tokio::test(start_paused = true)]
    async fn a_short_task_does_not_end_the_list_of_a_longer_one() {
        let server = replica_of(SharedState::default());
        let tasks = &server.tasks;
        let long = record("0".repeat(ID_LEN));
        let short = Record {
            ttl_ms: 500,
            ..record("1".repeat(ID_LEN))
        };
        for one in [&long, &short] {
            tasks.enlist(one, None).await.expect("a state");
            tasks.create(one, None).await.expect("a state");
        }
        tokio::time::advance(Duration::from_secs(30)).await;
        let (listed, _) = tasks.list("ada", 0, 10).await.expect("a state");
        let listed: Vec<_> = listed.into_iter().map(|record| record.id).collect();
        assert_eq!(listed, [long.id]);
    }

    #[tokio::test]
    async fn an_outcome_that_was_half_kept_before_is_read_whole() {
        let server = replica_of(SharedState::default());
        let mut record = record("0".repeat(ID_LEN));
        let half = Bytes::from_static(b"{\"result\":\"");
        let log = server.tasks.key("task-end", &record.id);
        let keep = Retention {
            entries: 10,
            bytes: RESULT_BYTES_MAX,
            life: ttl(&record),
            may_go: false,
        };
        let state = &server.tasks.state;
        state.append(&log, half, keep).await.expect("a state");
        let outcome = to_raw_value(&"x".repeat(2 * PART_BYTES)).expect("JSON");
        let ended = TaskResult::Result(outcome.clone());
        record.kept = server
            .tasks
            .store_result(&record, &ended, None)
            .await
            .expect("kept");
        assert_eq!(record.kept.parts, 3);
        let read = server.tasks.load_result(&record).await.expect("a state");
        assert!(matches!(read, Some(TaskResult::Result(text)) if text.get() == outcome.get()));
    }

    #[tokio::test]
    async fn the_largest_result_is_kept_whole_where_the_state_is_encrypted() {
        let sealed = SealedState::new(Arc::new(Memory::default()), Arc::new(KeyRing::random()));
        let state = SharedState::new(Arc::new(sealed), Duration::from_secs(10));
        let server = replica_of(state);
        let mut record = record("0".repeat(ID_LEN));
        let of =
            |length: usize| TaskResult::Result(to_raw_value(&"x".repeat(length)).expect("JSON"));
        let around = serde_json::to_vec(&of(0)).expect("JSON").len();
        let largest = of(RESULT_BYTES_MAX - around);
        let kept = server.tasks.store_result(&record, &largest, None).await;
        record.kept = kept.expect("kept");
        let read = server.tasks.load_result(&record).await.expect("a state");
        assert!(read.is_some());
    }
}
