//! Runner of a task.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Abortable, Aborted};
use futures_util::stream::StreamExt as _;
use serde_json::{Value, json, value::RawValue};
use tokio::time::{Instant, Sleep};

use super::inbox::RETRY_INTERVAL;
use super::record::{Record, TaskResult, TaskStatus};
use super::running::TaskSlot;
use super::store::Tasks;
use crate::catalog::{CallContext, ClientRequestError, PendingRequest};
use crate::limit::CallPermits;
use crate::server::client_requests::STOPPED;
use crate::server::held_permits::HeldPermits;
use crate::server::inflight::InflightEntry;
use crate::server::running_call::{self, CallFailure, CallOutcome, CatchUnwind};
use crate::state::StateError;

/// Drives a call that has become a task.
pub(super) struct Runner {
    pub(super) tasks: Arc<Tasks>,
    pub(super) record: Record,
    pub(super) context: Arc<CallContext>,
    /// Maximum duration.
    pub(super) timeout: Duration,
    /// Owner that state entries are charged to.
    pub(super) share: Option<String>,
    pub(super) place: TaskSlot,
    /// Registration of the call; shutdown waits for it.
    pub(super) inflight: InflightEntry,
}

/// Event while a task runs.
enum RunnerEvent<T> {
    /// The call has completed.
    Ended(CallOutcome<T>),
    /// The record must be updated with new or closed client requests.
    Asked,
    Messages(Vec<Value>),
    TimedOut,
}

/// Reason for the end of a run.
enum StopReason<T> {
    Ended(CallOutcome<T>),
    TimedOut,
    /// The record was cancelled or has expired.
    Cancelled,
}

/// Pending client requests, by their names in the record.
#[derive(Default)]
struct OpenRequests {
    slots: Vec<(String, Arc<PendingRequest>)>,
    /// TSK-06: names are never reused.
    used: HashSet<String>,
    /// Changes that are not in the record yet: new requests, and names of closed ones.
    asked: Vec<(String, Value)>,
    over: Vec<String>,
    /// Timer of the next attempt to write the record.
    again: Option<Pin<Box<Sleep>>>,
}

/// Maximum delay between two attempts to store a result.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(15);
/// Maximum duration of retries during shutdown.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(3);

impl Runner {
    /// Drives the call until it completes and stores its result. `held` are the concurrency permits of the call.
    pub(super) async fn run<T: Send + 'static>(
        self,
        call: Abortable<CatchUnwind<T>>,
        held: CallPermits,
        conclude: impl FnOnce(CallOutcome<T>) -> TaskResult + Send + 'static,
    ) {
        let stopped = self.drive(call, HeldPermits::Held(held)).await;
        self.context.replay.close();
        let ended = match stopped {
            StopReason::Ended(outcome) => conclude(outcome),
            StopReason::TimedOut => {
                // Logs and audits the timeout.
                let _ = conclude(Err(CallFailure::TimedOut(self.timeout)));
                TaskResult::internal("the task did not end in time")
            }
            StopReason::Cancelled => return,
        };
        let Self {
            tasks,
            record,
            share,
            place,
            inflight,
            ..
        } = self;
        settle(&tasks, &record, ended, share.as_deref()).await;
        // The registration ends after the result is stored, so that shutdown waits for it.
        drop((place, inflight));
    }

    async fn drive<T>(
        &self,
        mut call: Abortable<CatchUnwind<T>>,
        mut held: HeldPermits,
    ) -> StopReason<T> {
        let mut inbox = self.tasks.inbox(&self.record.id);
        let mut deadline = std::pin::pin!(tokio::time::sleep(self.timeout));
        let _ = self.context.deadline.set(deadline.deadline());
        let mut stopping = std::pin::pin!(self.inflight.inflight.client_requests.stopping());
        let mut open = OpenRequests::default();
        loop {
            let event = poll_fn(|cx| {
                if let Poll::Ready(event) = self.poll(&mut call, &mut open, &mut held, cx) {
                    return Poll::Ready(event);
                }
                if !self.tasks.is_shared
                    && !open.slots.is_empty()
                    && stopping.as_mut().poll(cx).is_ready()
                {
                    return Poll::Ready(RunnerEvent::Asked);
                }
                if let Poll::Ready(Some(messages)) = inbox.poll_next_unpin(cx) {
                    return Poll::Ready(RunnerEvent::Messages(messages));
                }
                deadline.as_mut().poll(cx).map(|()| RunnerEvent::TimedOut)
            });
            match event.await {
                RunnerEvent::Ended(outcome) => return StopReason::Ended(outcome),
                RunnerEvent::TimedOut => {
                    self.context.outlet.cancel();
                    return StopReason::TimedOut;
                }
                RunnerEvent::Asked => {
                    if !self.record_requests(&mut open).await {
                        self.context.outlet.cancel();
                        return StopReason::Cancelled;
                    }
                }
                RunnerEvent::Messages(messages) => {
                    for message in &messages {
                        if message["cancel"] == true {
                            self.context.outlet.cancel();
                            return StopReason::Cancelled;
                        }
                        open.respond(message);
                    }
                }
            }
        }
    }

    fn poll<T>(
        &self,
        call: &mut Abortable<CatchUnwind<T>>,
        open: &mut OpenRequests,
        held: &mut HeldPermits,
        cx: &mut Context<'_>,
    ) -> Poll<RunnerEvent<T>> {
        let replay = &self.context.replay;
        let admitted = held.poll_admitted(cx);
        // A call that is stopped is polled to its end.
        let is_polled = admitted.is_ready() || call.is_aborted();
        if is_polled && let Poll::Ready(outcome) = Pin::new(call).poll(cx) {
            return Poll::Ready(RunnerEvent::Ended(match outcome {
                Ok(outcome) => running_call::finish_replay(outcome, &self.context),
                Err(Aborted) => {
                    self.context.outlet.cancel();
                    Err(CallFailure::Stopped)
                }
            }));
        }
        replay.set_driver(cx.waker());
        if replay.is_waiting() {
            held.release();
        }
        // A task is not suspended, but its stored journal may not be there.
        if let Some(failed) = replay.suspension() {
            let failed = running_call::suspended(failed, &self.context);
            return Poll::Ready(RunnerEvent::Ended(failed));
        }
        if let Some(again) = &mut open.again {
            return again.as_mut().poll(cx).map(|()| RunnerEvent::Asked);
        }
        if replay.has_new_requests()
            || !open.over.is_empty()
            || open.slots.iter().any(|(_, slot)| slot.is_closed())
        {
            return Poll::Ready(RunnerEvent::Asked);
        }
        Poll::Pending
    }

    /// Writes client requests to the record, and retries if the state is unavailable. Returns false if the task has
    /// ended.
    async fn record_requests(&self, open: &mut OpenRequests) -> bool {
        open.update(self.context.replay.take_new_requests());
        // No other process could receive the responses, so the task must not hold up the stop until its limit.
        if !self.tasks.is_shared && self.inflight.inflight.client_requests.is_stopped() {
            open.stop();
        }
        let (asked, over) = (&open.asked, &open.over);
        let change = |record: &mut Record| {
            if record.is_finished() {
                return false;
            }
            let mut changes = false;
            for (name, request) in asked {
                record.requests.insert(name.clone(), request.clone());
                changes = true;
            }
            for name in over {
                changes |= record.requests.shift_remove(name).is_some();
            }
            changes
        };
        match self.tasks.change(&self.record.id, change).await {
            Ok(record) => {
                open.is_told();
                record.is_some_and(|record| !record.is_finished())
            }
            Err(StateError::TooLarge { .. }) => {
                // The requests exceed the size of a record, so they fail.
                for (name, _) in std::mem::take(&mut open.asked) {
                    open.refuse(&name, ClientRequestError::TooMany("64 KiB in one task"));
                }
                open.again = (!open.over.is_empty()).then(retry_timer);
                true
            }
            Err(error) => {
                if open.again.is_none() {
                    tracing::warn!(task = %self.record.id, %error, "a client request of a task cannot be stored yet");
                }
                open.again = Some(retry_timer());
                true
            }
        }
    }
}

fn retry_timer() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(RETRY_INTERVAL))
}

/// Stores the result of a task. Retries while the state is unavailable, until the task would expire.
async fn settle(tasks: &Tasks, record: &Record, mut ended: TaskResult, share: Option<&str>) {
    let id = &record.id;
    let mut give_up = Instant::now() + Duration::from_millis(record.ttl_ms);
    let mut stopping_until = None;
    let mut wait = RETRY_INTERVAL;
    let (mut is_told, mut is_short) = (false, false);
    loop {
        let error = match tasks.end(record, &ended, share).await {
            Ok(_) if is_told => {
                tracing::info!(task = %id, "the outcome of a task is stored now");
                return;
            }
            Ok(_) => return,
            Err(error) => error,
        };
        if !is_short
            && matches!(
                error,
                StateError::TooLarge { .. } | StateError::Full | StateError::Share
            )
        {
            tracing::error!(task = %id, %error, "the result of a task cannot be stored");
            ended = TaskResult::internal("the result of the task cannot be stored");
            is_short = true;
            continue;
        }
        if tasks.is_stopping() {
            wait = RETRY_INTERVAL;
            give_up =
                give_up.min(*stopping_until.get_or_insert_with(|| Instant::now() + SHUTDOWN_RETRY));
        }
        if give_up <= Instant::now() + wait {
            tracing::error!(task = %id, %error, "the outcome of a task could not be stored; it is lost");
            return;
        }
        if !is_told {
            tracing::warn!(task = %id, %error, "the outcome of a task cannot be stored yet; storing is retried");
            is_told = true;
        }
        let again = Instant::now() + wait;
        while Instant::now() < again && !tasks.is_stopping() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        if tasks.is_stopping() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        wait = (2 * wait).min(RETRY_INTERVAL_MAX);
    }
}

impl OpenRequests {
    /// Adds new client requests and removes closed ones.
    fn update(&mut self, new: Vec<Arc<PendingRequest>>) {
        let over = &mut self.over;
        self.slots.retain(|(name, slot)| {
            if slot.is_closed() {
                over.push(name.clone());
            }
            slot.is_waiting()
        });
        for slot in new {
            let name = self.unused_name(&slot);
            let params: Value = serde_json::from_str(slot.params()).unwrap_or_default();
            let request = json!({"method": slot.kind().method(), "params": params});
            self.asked.push((name.clone(), request));
            self.slots.push((name, slot));
        }
    }

    /// Clears the changes after they were written.
    fn is_told(&mut self) {
        self.asked.clear();
        self.over.clear();
        self.again = None;
    }

    fn unused_name(&mut self, slot: &PendingRequest) -> String {
        let stem = slot.name().unwrap_or(slot.kind().as_str());
        let mut name = stem.to_owned();
        let mut number = 1;
        while !self.used.insert(name.clone()) {
            number += 1;
            name = format!("{stem}-{number}");
        }
        name
    }

    /// Delivers the client responses in a message.
    fn respond(&mut self, message: &Value) {
        for (name, answer) in message["answers"].as_object().into_iter().flatten() {
            if let Ok(text) = serde_json::value::to_raw_value(answer) {
                self.take(name, |slot| slot.respond(Ok(raw(&text))));
            }
        }
        for (name, error) in message["errors"].as_object().into_iter().flatten() {
            self.refuse(name, ClientRequestError::from_response(&error.to_string()));
        }
    }

    /// Fails all requests, because no response can arrive any more.
    fn stop(&mut self) {
        self.asked.clear();
        for (name, slot) in self.slots.drain(..) {
            slot.respond(Err(STOPPED));
            self.over.push(name);
        }
    }

    fn refuse(&mut self, name: &str, error: ClientRequestError) {
        self.take(name, |slot| slot.respond(Err(error)));
    }

    fn take(&mut self, name: &str, answer: impl FnOnce(&PendingRequest) -> bool) {
        if let Some(at) = self.slots.iter().position(|(known, _)| known == name) {
            let (name, slot) = self.slots.swap_remove(at);
            answer(&slot);
            self.asked.retain(|(asked, _)| *asked != name);
            self.over.push(name);
        }
    }
}

fn raw(text: &RawValue) -> Box<str> {
    text.get().into()
}

/// Cancels a task that has not ended. Returns false otherwise.
pub(super) fn cancel(record: &mut Record) -> bool {
    let runs = !record.is_finished();
    if runs {
        record.status = TaskStatus::Cancelled;
        record.requests.clear();
    }
    runs
}
