//! Which tasks run in this process, and which other processes that run tasks are gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::record::Record;
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

    /// Ends a task whose process is gone, as far as anybody knows: nobody else would. Returns what it is then.
    pub(super) async fn bury(&self, record: Record) -> Result<Option<Record>, StateError> {
        if record.is_over() || self.is_run(&record).await? {
            return Ok(Some(record));
        }
        self.end_for(&record).await
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
        self.liveness.runs_tasks(record.runner).await
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
