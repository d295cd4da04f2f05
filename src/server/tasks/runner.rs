//! One task while it runs.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Abortable, Aborted};
use serde_json::{Value, json, value::RawValue};

use super::record::{Ended, Record, Status};
use super::store::{Place, Tasks};
use crate::catalog::{CallContext, ClientError, Slot};
use crate::limit::Held;
use crate::server::call::{self, Guarded, Outcome};
use crate::state::StateError;

/// A call that goes on by itself.
pub(super) struct Runner {
    pub(super) tasks: Arc<Tasks>,
    pub(super) record: Record,
    pub(super) context: Arc<CallContext>,
    /// How long it may take.
    pub(super) timeout: Duration,
    pub(super) place: Place,
    /// It counts as a call that runs, which a server that stops waits for.
    pub(super) inflight: call::Place,
    /// The places that it takes among calls.
    pub(super) held: Held,
}

/// What happened to a task.
enum Event<T> {
    /// The call is over.
    Ended(Outcome<T>),
    /// It has asked something, or does not want to know it any more.
    Asked,
    /// There may be letters.
    Letters,
    TimedOut,
}

/// Why a task does not go on.
enum Stop<T> {
    Ended(Outcome<T>),
    TimedOut,
    /// Its record says that it was cancelled, or is gone.
    Cancelled,
}

/// Questions that wait for answers, by the names they have in the record.
#[derive(Default)]
struct Open {
    slots: Vec<(String, Arc<Slot>)>,
    /// TSK-06: no name is used twice.
    used: HashSet<String>,
}

impl Runner {
    /// Runs the call to its end, and keeps what it gave.
    pub(super) async fn run<T: Send + 'static>(
        self,
        call: Abortable<Guarded<T>>,
        conclude: impl FnOnce(Outcome<T>) -> Ended + Send + 'static,
    ) {
        let id = self.record.id.clone();
        let stopped = self.drive(call).await;
        if let Some(desk) = self.context.asking.desk() {
            desk.close();
        }
        let ended = match stopped {
            Ok(Stop::Ended(outcome)) => conclude(outcome),
            Ok(Stop::TimedOut) => {
                tracing::warn!(task = %id, tool = %self.record.tool, "a task ran out of time");
                Ended::internal("the task did not end in time")
            }
            Ok(Stop::Cancelled) => return,
            Err(error) => {
                tracing::error!(task = %id, %error, "a task cannot go on without the shared state");
                Ended::internal("Internal error")
            }
        };
        if let Err(error) = self.end(&ended).await {
            tracing::error!(task = %id, %error, "what a task gave cannot be kept");
            let _ = self
                .end(&Ended::internal("what the task gave cannot be kept"))
                .await;
        }
        drop((self.place, self.inflight, self.held));
    }

    async fn end(&self, ended: &Ended) -> Result<(), StateError> {
        let parts = self.tasks.keep(&self.record, ended).await?;
        let change = |record: &mut Record| record.end(ended.status(), parts);
        self.tasks.change(&self.record.id, change).await.map(drop)
    }

    async fn drive<T>(&self, mut call: Abortable<Guarded<T>>) -> Result<Stop<T>, StateError> {
        let id = &self.record.id;
        let mut inbox = self.tasks.inbox(id).await?;
        let mut deadline = std::pin::pin!(tokio::time::sleep(self.timeout));
        let mut open = Open::default();
        let mut last = 0;
        loop {
            let mut letters = inbox.next();
            loop {
                let event = poll_fn(|cx| {
                    if let Poll::Ready(event) = self.poll(&mut call, &open, cx) {
                        return Poll::Ready(event);
                    }
                    if letters.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Event::Letters);
                    }
                    deadline.as_mut().poll(cx).map(|()| Event::TimedOut)
                });
                match event.await {
                    Event::Ended(outcome) => return Ok(Stop::Ended(outcome)),
                    Event::TimedOut => {
                        self.context.outlet.cancel();
                        return Ok(Stop::TimedOut);
                    }
                    Event::Asked => {
                        if !self.tell_what_is_asked(&mut open).await? {
                            self.context.outlet.cancel();
                            return Ok(Stop::Cancelled);
                        }
                    }
                    Event::Letters => break,
                }
            }
            drop(letters);
            let (letters, to) = self.tasks.letters(id, last).await?;
            last = to;
            for letter in &letters {
                if letter["cancel"] == true {
                    self.context.outlet.cancel();
                    return Ok(Stop::Cancelled);
                }
                open.answer(letter);
            }
        }
    }

    fn poll<T>(
        &self,
        call: &mut Abortable<Guarded<T>>,
        open: &Open,
        cx: &mut Context<'_>,
    ) -> Poll<Event<T>> {
        if let Poll::Ready(outcome) = Pin::new(call).poll(cx) {
            return Poll::Ready(Event::Ended(match outcome {
                Ok(outcome) => call::settled(outcome, &self.context),
                Err(Aborted) => {
                    self.context.outlet.cancel();
                    Outcome::Stopped
                }
            }));
        }
        let asking = &self.context.asking;
        asking.driven_by(cx.waker());
        let Some(desk) = asking.desk() else {
            return Poll::Pending;
        };
        if desk.has_new() || open.slots.iter().any(|(_, slot)| slot.is_closed()) {
            return Poll::Ready(Event::Asked);
        }
        Poll::Pending
    }

    /// Writes into the record what is asked. `false` if the task is over.
    async fn tell_what_is_asked(&self, open: &mut Open) -> Result<bool, StateError> {
        let new = match self.context.asking.desk() {
            Some(desk) => desk.take_new(),
            None => Vec::new(),
        };
        let mut closed = Vec::new();
        open.slots.retain(|(name, slot)| {
            if slot.is_closed() {
                closed.push(name.clone());
            }
            slot.is_open()
        });
        let mut asked = Vec::new();
        for slot in new {
            let name = open.unused_name(&slot);
            let params: Value = serde_json::from_str(slot.params()).unwrap_or_default();
            asked.push((
                name.clone(),
                json!({"method": slot.kind().method(), "params": params}),
            ));
            open.slots.push((name, slot));
        }
        let change = |record: &mut Record| {
            if record.is_over() {
                return false;
            }
            for name in &closed {
                record.requests.shift_remove(name);
            }
            for (name, request) in &asked {
                record.requests.insert(name.clone(), request.clone());
            }
            true
        };
        match self.tasks.change(&self.record.id, change).await {
            Ok(record) => Ok(record.is_some_and(|record| !record.is_over())),
            Err(StateError::TooLarge { .. }) => {
                // They do not fit into the record: the tool is told, and goes on.
                for (name, _) in &asked {
                    open.refuse(name, ClientError::too_many("64 KiB in one task"));
                }
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

impl Open {
    fn unused_name(&mut self, slot: &Slot) -> String {
        let stem = slot.name().unwrap_or(slot.kind().as_str());
        let mut name = stem.to_owned();
        let mut number = 1;
        while !self.used.insert(name.clone()) {
            number += 1;
            name = format!("{stem}-{number}");
        }
        name
    }

    /// Takes a letter's answers to where they are waited for.
    fn answer(&mut self, letter: &Value) {
        for (name, answer) in letter["answers"].as_object().into_iter().flatten() {
            if let Ok(text) = serde_json::value::to_raw_value(answer) {
                self.take(name, |slot| slot.answer(Ok(raw(&text))));
            }
        }
        for (name, error) in letter["errors"].as_object().into_iter().flatten() {
            self.refuse(name, ClientError::read(&error.to_string()));
        }
    }

    fn refuse(&mut self, name: &str, error: ClientError) {
        self.take(name, |slot| slot.answer(Err(error)));
    }

    fn take(&mut self, name: &str, answer: impl FnOnce(&Slot) -> bool) {
        if let Some(at) = self.slots.iter().position(|(known, _)| known == name) {
            let (_, slot) = self.slots.swap_remove(at);
            answer(&slot);
        }
    }
}

fn raw(text: &RawValue) -> Box<str> {
    text.get().into()
}

/// The status of a task that is cancelled where that is still possible.
pub(super) fn cancel(record: &mut Record) -> bool {
    let runs = !record.is_over();
    if runs {
        record.status = Status::Cancelled;
        record.requests.clear();
    }
    runs
}
