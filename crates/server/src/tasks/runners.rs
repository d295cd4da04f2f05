//! Tasks of replicas that are gone: whoever notices ends them, so that everyone who listens is told.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::record::{Ended, Record};
use super::store::{LISTED_MAX, Tasks, life};
use crate::net;
use crate::server::share::Kind;
use crate::state::{Retention, StateError};

/// Replicas that have said that they run tasks.
#[derive(Debug, Default)]
pub(super) struct Runners {
    known: HashSet<u64>,
    /// How far their log was read.
    at: u64,
    /// Whether this replica is in it.
    is_listed: bool,
    /// How often nobody was looked for since somebody was last.
    rested: u32,
}

/// The log of replicas that run tasks.
const RUNNERS: Retention = Retention {
    entries: 1000,
    bytes: 16 * 1024,
    life: Duration::from_secs(24 * 60 * 60),
    may_go: false,
};
const PAGE: usize = 100;
/// How long one replica has to end the tasks of another that is gone, before a third one tries.
const TURN: Duration = Duration::from_secs(60);
/// While nobody is missed, replicas are looked for at each third occasion.
const REST: u32 = 2;

impl Tasks {
    /// Notes that this replica runs a task, before the task is there: if the replica is killed, others find it.
    pub(super) async fn note(
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
            // A task runs for its time at most, and is kept for as long again.
            life: 2 * life(record),
            may_go: false,
        };
        let log = self.tasks_of(self.replica);
        let id = Bytes::copy_from_slice(record.id.as_bytes());
        Kind::Task
            .of(&self.state, share)
            .append(&log, id, keep)
            .await?;
        if !self.runners().is_listed {
            let own = Bytes::from(format!("{:016x}", self.replica));
            self.state.append(&self.all_runners(), own, RUNNERS).await?;
            self.runners().is_listed = true;
        }
        Ok(())
    }

    /// Looks whether replicas that run tasks are gone, and ends the tasks of those that are.
    pub(crate) async fn look_for_runners(self: &Arc<Self>) -> Result<(), StateError> {
        if !self.is_shared || !self.is_time_to_look() {
            return Ok(());
        }
        self.read_runners().await?;
        let known: Vec<u64> = self.runners().known.iter().copied().collect();
        let there = join_all(known.iter().map(|runner| self.liveness.runs_tasks(*runner))).await;
        for (runner, is_there) in known.into_iter().zip(there) {
            if is_there? {
                continue;
            }
            let tasks = Arc::clone(self);
            // It may have run thousands.
            net::spawn(async move {
                if let Err(error) = tasks.bury_all(runner).await {
                    tracing::warn!(%error, "tasks of a replica that is gone cannot be ended yet; it is tried again");
                }
            });
        }
        Ok(())
    }

    fn is_time_to_look(&self) -> bool {
        let mut runners = self.runners();
        let looks = REST <= runners.rested || self.liveness.misses_somebody();
        runners.rested = if looks { 0 } else { runners.rested + 1 };
        // It is listed anew once it runs tasks again.
        runners.is_listed &= self.run_here();
        looks
    }

    async fn read_runners(&self) -> Result<(), StateError> {
        loop {
            let at = self.runners().at;
            let page = self.state.read_after(&self.all_runners(), at, PAGE).await?;
            let Some(page) = page.filter(|page| !page.entries.is_empty()) else {
                return Ok(());
            };
            let mut runners = self.runners();
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

    /// Ends what a replica has run that is gone, unless another one is about it.
    async fn bury_all(&self, runner: u64) -> Result<(), StateError> {
        let turn = self.key("task-turn", &format!("{runner:016x}"));
        if !self.state.put_if_absent(&turn, Bytes::new(), TURN).await? {
            return Ok(());
        }
        let (log, mut at) = (self.tasks_of(runner), 0);
        loop {
            let page = self.state.read_after(&log, at, PAGE).await?;
            let Some(page) = page.filter(|page| !page.entries.is_empty()) else {
                break;
            };
            // It says that it is there before it notes a task: what was noted since it was missed is not lost.
            if self.liveness.runs_tasks(runner).await? {
                return Ok(());
            }
            for (number, id) in &page.entries {
                at = *number;
                let record = self.known(&String::from_utf8_lossy(id)).await?;
                if let Some(record) = record
                    && record.runner == runner
                    && !record.is_over()
                {
                    self.end_for(&record).await?;
                }
            }
        }
        self.state.trim(&log, at).await?;
        self.runners().known.remove(&runner);
        // Others find nothing to do.
        self.state.remove(&turn).await?;
        Ok(())
    }

    /// Ends a task whose replica is gone.
    pub(super) async fn end_for(&self, record: &Record) -> Result<Option<Record>, StateError> {
        tracing::warn!(task = %record.id, "the replica that ran a task is gone; the task has failed");
        let ended = Ended::internal("the process that ran the task is gone");
        self.end(record, &ended, None).await
    }

    fn runners(&self) -> MutexGuard<'_, Runners> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_runners(&self) -> String {
        self.key("task-runners", "all")
    }

    /// The log of the tasks that a replica has begun.
    fn tasks_of(&self, runner: u64) -> String {
        self.key("task-run", &format!("{runner:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use tokio::time::Instant;

    use super::super::record::{Kept, Status, now_ms};
    use super::*;
    use crate::server::Server;
    use crate::server::liveness::SAY_ALIVE;
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
            status: Status::Running,
            requests: Map::new(),
            kept: Kept::default(),
            runner: server.tasks.replica,
            session: None,
        };
        server.tasks.begins(&record, None).await.expect("noted");
        server.tasks.create(&record, None).await.expect("created");
        record
    }

    async fn status(server: &Arc<Server>, record: &Record) -> Status {
        let known = server.tasks.known(&record.id).await.expect("a state");
        known.expect("the task").status
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_replica_that_is_gone_are_ended_though_nobody_asks_for_them() {
        let state = SharedState::default();
        let [gone, stays, looks] = [(); 3].map(|()| replica_of(state.clone()));
        let lost = [begin(&gone, '1').await, begin(&gone, '2').await];
        let own = begin(&stays, '3').await;
        let _place = stays.tasks.enter(&own.id, &own.owner).expect("a place");
        let begun = Instant::now();
        while status(&stays, &lost[1]).await == Status::Running {
            assert!(begun.elapsed() < Duration::from_secs(75));
            tokio::time::sleep(SAY_ALIVE).await;
            stays.tasks.liveness.say_for_tasks().await.expect("said");
            for server in [&stays, &looks] {
                server.tasks.look_for_runners().await.expect("a state");
            }
            tokio::task::yield_now().await;
        }
        assert!(
            Duration::from_secs(30) < begun.elapsed(),
            "it had time to come back"
        );
        for record in &lost {
            assert_eq!(status(&looks, record).await, Status::Broken);
        }
        assert_eq!(status(&looks, &own).await, Status::Running);
        // Whoever is not there any more is not looked for.
        for _ in 0..4 {
            tokio::time::sleep(SAY_ALIVE).await;
            looks.tasks.look_for_runners().await.expect("a state");
        }
        assert!(!looks.tasks.runners().known.contains(&gone.tasks.replica));
        // Until it begins something anew.
        gone.tasks.runners().is_listed = false;
        let again = begin(&gone, '4').await;
        for _ in 0..5 {
            looks.tasks.look_for_runners().await.expect("a state");
        }
        assert!(looks.tasks.runners().known.contains(&gone.tasks.replica));
        assert_eq!(status(&looks, &again).await, Status::Running);
    }
}
