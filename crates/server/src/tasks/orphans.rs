//! Tasks of replicas that are gone. Any replica fails them, so that their subscribers are notified.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::record::{Record, TaskResult};
use super::store::{LISTED_MAX, Tasks};
use crate::net;
use crate::server::share::StateKind;
use crate::state::{Retention, StateError};

/// Replicas that run tasks.
#[derive(Debug, Default)]
pub(super) struct OrphanSweep {
    known: HashSet<u64>,
    /// Position in the log of replicas.
    at: u64,
    /// Time at which this replica was added to the log, while it runs tasks.
    listed: Option<Instant>,
    /// Number of skipped checks.
    rested: u32,
}

/// Retention of the log of replicas that run tasks.
const RUNNERS: Retention = Retention {
    entries: 1000,
    bytes: 16 * 1024,
    life: Duration::from_secs(24 * 60 * 60),
    may_go: false,
};
const PAGE: usize = 100;
/// Time after which another replica may retry an interrupted sweep.
const SWEEP_LOCK_TTL: Duration = Duration::from_secs(60);
/// Time after which a replica that still runs tasks adds itself to the log again, because the log expires, and the store can
/// lose it.
const LISTING_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Number of checks to skip while no replica is missing.
const CHECK_INTERVAL: u32 = 2;

impl Tasks {
    /// Registers a task of this replica before its record exists, so that others find it if the replica dies.
    pub(super) async fn register_run(
        &self,
        record: &Record,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        if !self.is_shared {
            return Ok(());
        }
        let keep = Retention {
            entries: LISTED_MAX,
            bytes: LISTED_MAX * (record.id.len() + 8),
            life: self.life_of_lists(),
            may_go: false,
        };
        let log = self.tasks_of(self.replica);
        let id = Bytes::copy_from_slice(record.id.as_bytes());
        StateKind::Task
            .of(&self.state, share)
            .append(&log, id, keep)
            .await?;
        let listed = self.runners.lock().listed;
        if listed.is_none_or(|at| LISTING_INTERVAL <= at.elapsed()) {
            let own = Bytes::from(format!("{:016x}", self.replica));
            self.state.append(&self.all_runners(), own, RUNNERS).await?;
            self.runners.lock().listed = Some(Instant::now());
        }
        Ok(())
    }

    /// Checks for replicas that are gone, and fails their tasks. Returns false if no check was due, so that the state was
    /// not used.
    pub(crate) async fn check_runners(self: &Arc<Self>) -> Result<bool, StateError> {
        if !self.is_shared || !self.is_check_due() {
            return Ok(false);
        }
        self.read_runners().await?;
        let known: Vec<u64> = self.runners.lock().known.iter().copied().collect();
        let there = join_all(known.iter().map(|runner| self.liveness.runs_tasks(*runner))).await;
        for (runner, is_there) in known.into_iter().zip(there) {
            if is_there? {
                continue;
            }
            let tasks = Arc::clone(self);
            // Spawned, because a replica may have run thousands of tasks.
            net::spawn(async move {
                if let Err(error) = tasks.fail_orphans_of(runner).await {
                    tracing::warn!(%error, "tasks of a replica that is gone cannot be ended yet; it is tried again");
                }
            });
        }
        Ok(true)
    }

    fn is_check_due(&self) -> bool {
        let mut runners = self.runners.lock();
        let looks = CHECK_INTERVAL <= runners.rested || self.liveness.has_missing_peers();
        runners.rested = if looks { 0 } else { runners.rested + 1 };
        // The replica is registered again with its next task.
        if !self.has_running() {
            runners.listed = None;
        }
        looks
    }

    async fn read_runners(&self) -> Result<(), StateError> {
        loop {
            let at = self.runners.lock().at;
            let page = self.state.read_after(&self.all_runners(), at, PAGE).await?;
            let Some(page) = page.filter(|page| !page.entries.is_empty()) else {
                return Ok(());
            };
            let mut runners = self.runners.lock();
            for (number, entry) in &page.entries {
                runners.at = *number;
                let runner = std::str::from_utf8(entry).ok();
                let runner = runner.and_then(|text| u64::from_str_radix(text, 16).ok());
                runners
                    .known
                    .extend(runner.filter(|runner| *runner != self.replica));
            }
        }
    }

    /// Fails the tasks of a replica that is gone, unless another replica does.
    async fn fail_orphans_of(&self, runner: u64) -> Result<(), StateError> {
        let turn = self.key("task-turn", &format!("{runner:016x}"));
        if !self
            .state
            .put_if_absent(&turn, Bytes::new(), SWEEP_LOCK_TTL)
            .await?
        {
            return Ok(());
        }
        let (log, mut at) = (self.tasks_of(runner), 0);
        loop {
            let page = self.state.read_after(&log, at, PAGE).await?;
            let Some(page) = page.filter(|page| !page.entries.is_empty()) else {
                break;
            };
            // A replica sends a heartbeat before it registers a task, so tasks registered since the absence are safe.
            if self.liveness.runs_tasks(runner).await? {
                return Ok(());
            }
            for (number, id) in &page.entries {
                at = *number;
                let record = self.get(&String::from_utf8_lossy(id)).await?;
                if let Some(record) = record
                    && record.runner == runner
                    && !record.is_finished()
                {
                    self.fail(&record).await?;
                }
            }
        }
        self.state.trim(&log, at).await?;
        self.runners.lock().known.remove(&runner);
        // The log is empty, so the lock is not needed any more.
        self.state.remove(&turn).await?;
        Ok(())
    }

    /// Fails a task if its process is gone, since no other process will. Returns its current record.
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

    /// Fails a task whose replica is gone.
    pub(super) async fn fail(&self, record: &Record) -> Result<Option<Record>, StateError> {
        let ended = TaskResult::internal("the process that ran the task is gone");
        let record = self.end(record, &ended, None).await?;
        if let Some(record) = &record
            && record.status == ended.status()
        {
            tracing::warn!(task = %record.id, "the replica that ran a task is gone; the task has failed");
        }
        Ok(record)
    }

    fn all_runners(&self) -> String {
        self.key("task-runners", "all")
    }

    /// Key of the log of a replica's tasks.
    fn tasks_of(&self, runner: u64) -> String {
        self.key("task-run", &format!("{runner:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::record::{StoredResult, TaskStatus, now_ms};
    use super::*;
    use crate::net::ShareKey;
    use crate::server::Server;
    use crate::server::liveness::HEARTBEAT_INTERVAL;
    use crate::server::tests::replica_of;
    use crate::state::SharedState;

    async fn begin(server: &Arc<Server>, id: char) -> Record {
        let record = Record {
            id: id.to_string().repeat(32),
            owner: "ada".to_owned(),
            tool: "t".to_owned(),
            created: now_ms(),
            updated: now_ms(),
            ttl_ms: 600_000,
            poll_ms: 1000,
            status: TaskStatus::Running,
            requests: Map::new(),
            kept: StoredResult::default(),
            runner: server.tasks.replica,
            session: None,
            scopes: Vec::new(),
        };
        server.tasks.announce(&record, None).await.expect("noted");
        server.tasks.create(&record, None).await.expect("created");
        record
    }

    async fn status(server: &Arc<Server>, record: &Record) -> TaskStatus {
        let known = server.tasks.get(&record.id).await.expect("a state");
        known.expect("the task").status
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_replica_that_is_gone_are_ended_though_nobody_asks_for_them() {
        let state = SharedState::default();
        let [gone, stays, looks] = [(); 3].map(|()| replica_of(state.clone()));
        let lost = [begin(&gone, '1').await, begin(&gone, '2').await];
        let own = begin(&stays, '3').await;
        let _place = stays.tasks.enter(&own.id, ShareKey::NONE).expect("a place");
        let begun = Instant::now();
        while status(&stays, &lost[1]).await == TaskStatus::Running {
            assert!(begun.elapsed() < Duration::from_secs(75));
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            stays.tasks.liveness.heartbeat_tasks().await.expect("said");
            for server in [&stays, &looks] {
                server.tasks.check_runners().await.expect("a state");
            }
            tokio::task::yield_now().await;
        }
        assert!(
            Duration::from_secs(30) < begun.elapsed(),
            "it had time to come back"
        );
        for record in &lost {
            assert_eq!(status(&looks, record).await, TaskStatus::Broken);
        }
        assert_eq!(status(&looks, &own).await, TaskStatus::Running);
        // Whoever is not there any more is not looked for.
        for _ in 0..4 {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            looks.tasks.check_runners().await.expect("a state");
        }
        assert!(
            !looks
                .tasks
                .runners
                .lock()
                .known
                .contains(&gone.tasks.replica)
        );
        // Until it begins something anew.
        gone.tasks.runners.lock().listed = None;
        let again = begin(&gone, '4').await;
        for _ in 0..5 {
            looks.tasks.check_runners().await.expect("a state");
        }
        assert!(
            looks
                .tasks
                .runners
                .lock()
                .known
                .contains(&gone.tasks.replica)
        );
        assert_eq!(status(&looks, &again).await, TaskStatus::Running);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_always_runs_tasks_stays_in_the_log() {
        let state = SharedState::default();
        let server = replica_of(state.clone());
        let own = begin(&server, '1').await;
        let _place = server
            .tasks
            .enter(&own.id, ShareKey::NONE)
            .expect("a place");
        for _ in 0..30 {
            tokio::time::advance(LISTING_INTERVAL).await;
            begin(&server, '2').await;
        }
        let starts_later = replica_of(state);
        starts_later.tasks.read_runners().await.expect("a state");
        let known = starts_later.tasks.runners.lock().known.clone();
        assert!(known.contains(&server.tasks.replica));
    }

    #[tokio::test]
    async fn a_check_that_is_not_due_is_told_from_one_that_used_the_state() {
        let server = replica_of(SharedState::default());
        let mut looked = Vec::new();
        for _ in 0..=CHECK_INTERVAL {
            looked.push(server.tasks.check_runners().await.expect("a state"));
        }
        assert_eq!(looked, [false, false, true]);
    }
}
