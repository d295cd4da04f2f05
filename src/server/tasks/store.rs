//! Tasks in the shared state: their records, their outcomes, and the letters that they are sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use futures_util::future::join_all;
use serde_json::Value;

use super::TaskConfig;
use super::record::{Ended, Record, now_ms};
use crate::limit::Limit;
use crate::seal::short_digest;
use crate::server::streams::Streams;
use crate::state::{Keep, SharedState, StateError, Subscription};
use crate::telemetry::{Metrics, TASKS_RUNNING};

/// The tasks of one server.
#[derive(Debug)]
pub(crate) struct Tasks {
    state: SharedState,
    pub(super) config: TaskConfig,
    mount: Box<str>,
    running: Mutex<Running>,
    /// Whoever wants to know of changes.
    streams: Arc<Streams>,
    /// Names this process among those that run tasks.
    pub(super) replica: u64,
}

/// What runs in this process.
#[derive(Debug, Default)]
struct Running {
    total: usize,
    of: HashMap<Arc<str>, usize>,
}

/// The place of one task among those that run.
#[derive(Debug)]
pub(super) struct Place {
    tasks: Arc<Tasks>,
    owner: Arc<str>,
}

/// One piece of an outcome.
const PART_BYTES: usize = 200 * 1024;
/// How large an outcome may be: 4 MiB.
const OUTCOME_BYTES: usize = 4 * 1024 * 1024;
/// How long a process is taken to be there after it last said so.
const ALIVE: Duration = Duration::from_secs(60);
/// How often it says so.
pub(crate) const SAY_ALIVE: Duration = Duration::from_secs(15);
/// How many tasks of one owner are listed; older ones can still be asked for by their ids.
const LISTED_MAX: usize = 10_000;
/// How often a record is read anew because somebody else was faster.
const TRIES: usize = 50;

impl Tasks {
    pub(crate) fn new(
        state: SharedState,
        config: TaskConfig,
        mount: &str,
        streams: Arc<Streams>,
        replica: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            replica,
            streams,
            state,
            config,
            mount: mount.into(),
            running: Mutex::default(),
        })
    }

    /// A place for one more task. Without room, the limit that was hit.
    pub(super) fn enter(self: &Arc<Self>, owner: &str) -> Result<Place, Limit> {
        let mut running = self.running();
        let of = running.of.get(owner).copied().unwrap_or_default();
        if self.config.total <= running.total {
            return Err(Limit::Tasks);
        }
        if self.config.per_principal <= of {
            return Err(Limit::PrincipalTasks);
        }
        let owner: Arc<str> = owner.into();
        running.total += 1;
        *running.of.entry(Arc::clone(&owner)).or_default() += 1;
        Ok(Place {
            tasks: Arc::clone(self),
            owner,
        })
    }

    /// Whether any task runs in this process.
    pub(crate) fn run_here(&self) -> bool {
        0 < self.running().total
    }

    /// Says that this process is there, and with it the tasks that it runs. To be said again before
    /// [`ALIVE`] is over.
    pub(crate) async fn say_alive(&self) -> Result<(), StateError> {
        let alive = Bytes::from_static(b"1");
        self.state
            .put(&self.life_of(self.replica), alive, ALIVE)
            .await
    }

    /// Ends a task whose process is gone, as far as anybody knows: nobody else would. Returns what it is then.
    pub(super) async fn bury(&self, record: Record) -> Result<Option<Record>, StateError> {
        let is_ours = record.runner == self.replica || record.runner == 0;
        if record.is_over() || is_ours {
            return Ok(Some(record));
        }
        if self
            .state
            .get(&self.life_of(record.runner))
            .await?
            .is_some()
        {
            return Ok(Some(record));
        }
        tracing::warn!(task = %record.id, "the process that ran a task is gone; the task has failed");
        let ended = Ended::internal("the process that ran the task is gone");
        let parts = self.keep(&record, &ended).await?;
        self.change(&record.id, |record| record.end(ended.status(), parts))
            .await
    }

    fn life_of(&self, replica: u64) -> String {
        self.key("task-runner", &format!("{replica:016x}"))
    }

    /// Has operators see how many tasks run in this process.
    pub(crate) fn show(self: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let tasks = Arc::clone(self);
        metrics.read(&TASKS_RUNNING, labels, move || tasks.running().total as f64);
    }

    /// Writes a new record (TSK-03: before its id is given out).
    pub(super) async fn create(&self, record: &Record) -> Result<(), StateError> {
        self.say_alive().await?;
        let life = life(record);
        let fresh = self
            .state
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
    pub(super) async fn enlist(&self, record: &Record) -> Result<(), StateError> {
        let keep = Keep {
            entries: LISTED_MAX,
            bytes: LISTED_MAX * (ID_LEN + 8),
            // A task runs for its time at most, and is kept for as long again.
            life: 2 * life(record),
        };
        let log = self.list_of(&record.owner);
        let id = Bytes::copy_from_slice(record.id.as_bytes());
        self.state.append(&log, id, keep).await.map(drop)
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
        let (mut found, mut at) = (Vec::new(), after);
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
            if max <= found.len() {
                return Ok((found, Some(at)));
            }
        }
    }

    fn list_of(&self, owner: &str) -> String {
        let mut key = self.key("tasks-of", "");
        HEXLOWER.encode_append(&short_digest(&[owner.as_bytes()]), &mut key);
        key
    }

    /// Keeps how a task ended. Says in how many parts.
    pub(super) async fn keep(&self, record: &Record, ended: &Ended) -> Result<u32, StateError> {
        let text = serde_json::to_vec(ended).unwrap_or_default();
        let max = OUTCOME_BYTES;
        if max < text.len() {
            return Err(StateError::TooLarge {
                bytes: text.len(),
                max,
            });
        }
        let log = self.key("task-end", &record.id);
        let keep = Keep {
            entries: OUTCOME_BYTES / PART_BYTES + 1,
            bytes: OUTCOME_BYTES,
            life: life(record),
        };
        let mut parts = 0;
        for part in text.chunks(PART_BYTES) {
            self.state
                .append(&log, Bytes::copy_from_slice(part), keep)
                .await?;
            parts += 1;
        }
        Ok(parts)
    }

    /// How a task ended.
    pub(super) async fn ended(&self, record: &Record) -> Result<Option<Ended>, StateError> {
        let log = self.key("task-end", &record.id);
        let page = self
            .state
            .read_after(&log, 0, record.parts as usize)
            .await?;
        let mut text = BytesMut::new();
        for (_, part) in page.into_iter().flat_map(|page| page.entries) {
            text.extend_from_slice(&part);
        }
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Sends whoever runs the task a letter.
    pub(super) async fn tell(&self, record: &Record, letter: &Value) -> Result<(), StateError> {
        let log = self.key("task-in", &record.id);
        let keep = Keep {
            entries: 1000,
            bytes: OUTCOME_BYTES,
            life: life(record),
        };
        let letter = Bytes::from(letter.to_string());
        self.state.append(&log, letter, keep).await?;
        self.state.publish(&log, Bytes::new()).await
    }

    /// The letters behind a number, and the number of the last.
    pub(super) async fn letters(
        &self,
        id: &str,
        after: u64,
    ) -> Result<(Vec<Value>, u64), StateError> {
        let page = self
            .state
            .read_after(&self.key("task-in", id), after, 1000)
            .await?;
        let Some(page) = page else {
            return Ok((Vec::new(), after));
        };
        let last = page.entries.last().map_or(after, |(number, _)| *number);
        let read = page
            .entries
            .iter()
            .filter_map(|(_, letter)| serde_json::from_slice(letter).ok());
        Ok((read.collect(), last))
    }

    /// Hears when there are letters for a task.
    pub(super) async fn inbox(&self, id: &str) -> Result<Box<dyn Subscription>, StateError> {
        self.state.subscribe(&self.key("task-in", id)).await
    }

    /// Hears when a task changes.
    pub(super) async fn changes(&self, id: &str) -> Result<Box<dyn Subscription>, StateError> {
        self.state.subscribe(&self.key("task-out", id)).await
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

    fn key(&self, kind: &str, id: &str) -> String {
        format!("{kind}/{}/{id}", self.mount)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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
fn life(record: &Record) -> Duration {
    Duration::from_millis(record.ttl_ms.max(1000))
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.tasks.running();
        running.total -= 1;
        if let Some(of) = running.of.get_mut(&self.owner) {
            *of -= 1;
            if *of == 0 {
                running.of.remove(&self.owner);
            }
        }
    }
}
