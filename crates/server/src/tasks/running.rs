//! Tasks that run in this process.

use std::collections::HashSet;
use std::sync::Arc;

use super::store::Tasks;
use crate::limit::Limit;
use crate::net::ShareKey;
use crate::server::quota::{QuotaExceeded, QuotaPlace};
use crate::telemetry::{Metrics, TASKS_RUNNING};

/// Tasks that run in this process.
#[derive(Debug, Default)]
pub(super) struct LocalTasks {
    pub(super) tasks: HashSet<Arc<str>>,
    /// True once a task has begun.
    has_begun: bool,
}

/// Registration of a running task; removed on drop.
#[derive(Debug)]
pub(super) struct TaskSlot {
    tasks: Arc<Tasks>,
    id: Arc<str>,
    _place: QuotaPlace,
}

impl Tasks {
    /// Registers a task. Returns the limit that was hit if there are too many.
    pub(super) fn enter(self: &Arc<Self>, id: &str, owner: ShareKey) -> Result<TaskSlot, Limit> {
        let place = self.places.take(owner).map_err(|exceeded| match exceeded {
            QuotaExceeded::Total => Limit::Tasks,
            QuotaExceeded::Caller => Limit::PrincipalTasks,
        })?;
        let mut running = self.running.lock();
        running.has_begun = true;
        let id: Arc<str> = id.into();
        running.tasks.insert(Arc::clone(&id));
        Ok(TaskSlot {
            tasks: Arc::clone(self),
            id,
            _place: place,
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

    /// Registers the metrics.
    pub fn show(self: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let tasks = Arc::clone(self);
        let running = move || tasks.running.lock().tasks.len() as f64;
        metrics.read(&TASKS_RUNNING, labels, running);
    }
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        self.tasks.running.lock().tasks.remove(&self.id);
    }
}
