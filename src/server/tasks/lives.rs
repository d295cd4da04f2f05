//! Which tasks run in this process, and which other processes that run tasks are gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::record::{Ended, Record};
use super::store::Tasks;
use crate::limit::Limit;
use crate::state::StateError;
use crate::telemetry::{Metrics, TASKS_RUNNING};

/// What runs in this process.
#[derive(Debug, Default)]
pub(super) struct Running {
    tasks: HashSet<Arc<str>>,
    of: HashMap<Arc<str>, usize>,
}

/// The place of one task among those that run.
#[derive(Debug)]
pub(super) struct Place {
    tasks: Arc<Tasks>,
    id: Arc<str>,
    owner: Arc<str>,
}

/// How long a process is taken to be there after it last said so.
const ALIVE: Duration = Duration::from_secs(60);
/// How often it says so.
pub(crate) const SAY_ALIVE: Duration = Duration::from_secs(15);
/// How long a process has to have been missed here before it is taken to be gone: where it was the state that was away,
/// it has time to say that it is there, and again if that fails.
const GRACE: Duration = Duration::from_secs(45);
/// Who was not looked for in so long is missed anew.
const MISSED_FOR: Duration = Duration::from_secs(300);
/// So many processes are missed at once.
const MISSED_MAX: usize = 1024;

/// Since when a process is missed, and when it was last looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    since: Instant,
    looked: Instant,
}

impl Tasks {
    /// A place for one more task. Without room, the limit that was hit.
    pub(super) fn enter(self: &Arc<Self>, id: &str, owner: &str) -> Result<Place, Limit> {
        let mut running = self.running();
        let of = running.of.get(owner).copied().unwrap_or_default();
        if self.config.total <= running.tasks.len() {
            return Err(Limit::Tasks);
        }
        if self.config.per_principal <= of {
            return Err(Limit::PrincipalTasks);
        }
        let (id, owner): (Arc<str>, Arc<str>) = (id.into(), owner.into());
        running.tasks.insert(Arc::clone(&id));
        *running.of.entry(Arc::clone(&owner)).or_default() += 1;
        Ok(Place {
            tasks: Arc::clone(self),
            id,
            owner,
        })
    }

    /// Whether any task runs in this process.
    pub(crate) fn run_here(&self) -> bool {
        !self.running().tasks.is_empty()
    }

    /// Says that this process is there, and with it the tasks that it runs. To be said again before [`ALIVE`] is over.
    pub(crate) async fn say_alive(&self) -> Result<(), StateError> {
        let (alive, life) = (Bytes::from_static(b"1"), self.life_of(self.replica));
        self.state.put(&life, alive, ALIVE).await
    }

    /// Ends a task whose process is gone, as far as anybody knows: nobody else would. Returns what it is then.
    pub(super) async fn bury(&self, record: Record) -> Result<Option<Record>, StateError> {
        if record.is_over() || self.is_run(&record).await? {
            return Ok(Some(record));
        }
        tracing::warn!(task = %record.id, "the process that ran a task is gone; the task has failed");
        let ended = Ended::internal("the process that ran the task is gone");
        self.end(&record, &ended, None).await
    }

    /// Nobody is missed any more: it may be the state that was away.
    pub(crate) fn miss_nobody(&self) {
        self.missed().clear();
    }

    /// Whether there is a process that runs a task, as far as anybody knows.
    async fn is_run(&self, record: &Record) -> Result<bool, StateError> {
        if record.runner == self.replica {
            return Ok(self.running().tasks.contains(record.id.as_str()));
        }
        // Nobody has said who runs it.
        if record.runner == 0 {
            return Ok(true);
        }
        let is_there = self.state.get(&self.life_of(record.runner)).await;
        let is_there = is_there.inspect_err(|_| self.miss_nobody())?;
        let mut missed = self.missed();
        missed.retain(|_, missed| missed.looked.elapsed() < MISSED_FOR);
        if is_there.is_some() {
            missed.remove(&record.runner);
            return Ok(true);
        }
        let now = Instant::now();
        if MISSED_MAX <= missed.len() && !missed.contains_key(&record.runner) {
            return Ok(true);
        }
        let missed = missed.entry(record.runner).or_insert(Missed {
            since: now,
            looked: now,
        });
        missed.looked = now;
        Ok(missed.since.elapsed() < GRACE)
    }

    fn missed(&self) -> MutexGuard<'_, HashMap<u64, Missed>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life_of(&self, replica: u64) -> String {
        self.key("task-runner", &format!("{replica:016x}"))
    }

    /// Has operators see how many tasks run in this process.
    pub(crate) fn show(self: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let tasks = Arc::clone(self);
        let running = move || tasks.running().tasks.len() as f64;
        metrics.read(&TASKS_RUNNING, labels, running);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.tasks.running();
        running.tasks.remove(&self.id);
        if let Some(of) = running.of.get_mut(&self.owner) {
            *of -= 1;
            if *of == 0 {
                running.of.remove(&self.owner);
            }
        }
    }
}
