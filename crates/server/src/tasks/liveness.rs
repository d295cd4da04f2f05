//! Tasks that run in this process, and tasks whose process is gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::record::Record;
use super::store::Tasks;
use crate::limit::Limit;
use crate::net::ShareKey;
use crate::state::StateError;
use crate::telemetry::{Metrics, TASKS_RUNNING};

/// Tasks that run in this process.
#[derive(Debug, Default)]
pub(super) struct LocalTasks {
    tasks: HashSet<Arc<str>>,
    /// Number of tasks of a caller.
    of: HashMap<ShareKey, usize>,
    /// True once a task has begun.
    has_begun: bool,
}

/// Registration of a running task; removed on drop.
#[derive(Debug)]
pub(super) struct TaskSlot {
    tasks: Arc<Tasks>,
    id: Arc<str>,
    owner: ShareKey,
}

impl Tasks {
    /// Registers a task. Returns the limit that was hit if there are too many.
    ///
    /// Only the total limit applies to callers without a share.
    pub(super) fn enter(self: &Arc<Self>, id: &str, owner: ShareKey) -> Result<TaskSlot, Limit> {
        let mut running = self.running.lock();
        if self.config.total <= running.tasks.len() {
            return Err(Limit::Tasks);
        }
        if !owner.is_none() {
            let own = running.of.get(&owner).copied().unwrap_or_default();
            if self.config.per_principal <= own {
                return Err(Limit::PrincipalTasks);
            }
            running.of.insert(owner, own + 1);
        }
        running.has_begun = true;
        let id: Arc<str> = id.into();
        running.tasks.insert(Arc::clone(&id));
        Ok(TaskSlot {
            tasks: Arc::clone(self),
            id,
            owner,
        })
    }

    /// Returns true if any task runs in this process.
    pub(crate) fn has_running(&self) -> bool {
        !self.running.lock().tasks.is_empty()
    }

    /// Returns true if any task has begun in this process.
    pub(crate) fn has_begun(&self) -> bool {
        self.running.lock().has_begun
    }

    /// Fails a task whose process is gone, since no other process will. Returns its current record.
    pub(super) async fn fail_orphan(&self, record: Record) -> Result<Option<Record>, StateError> {
        if record.is_finished() || self.has_runner(&record).await? {
            return Ok(Some(record));
        }
        self.fail(&record).await
    }

    /// Returns true if the process that runs a task is alive, as far as is known.
    async fn has_runner(&self, record: &Record) -> Result<bool, StateError> {
        if record.runner == self.replica {
            return Ok(self.running.lock().tasks.contains(record.id.as_str()));
        }
        // Records of earlier versions name no runner.
        if record.runner == 0 {
            return Ok(true);
        }
        self.liveness.runs_tasks(record.runner).await
    }

    /// Registers the metrics.
    pub fn show(self: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let tasks = Arc::clone(self);
        let running = move || tasks.running.lock().tasks.len() as f64;
        metrics.read(&TASKS_RUNNING, labels, running);
    }
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        let mut running = self.tasks.running.lock();
        running.tasks.remove(&self.id);
        if let Some(of) = running.of.get_mut(&self.owner) {
            *of -= 1;
            if *of == 0 {
                running.of.remove(&self.owner);
            }
        }
    }
}
