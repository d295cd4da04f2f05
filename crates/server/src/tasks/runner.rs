//! One task while it runs.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Abortable, Aborted};
use futures_util::stream::StreamExt as _;
use serde_json::{Value, json, value::RawValue};
use tokio::time::{Instant, Sleep};

use super::lives::Place;
use super::mail::AGAIN;
use super::record::{Ended, Record, Status};
use super::store::Tasks;
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
    /// Whose share of the state it takes.
    pub(super) share: Option<String>,
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
    /// There is something that the record does not know of what it asks.
    Asked,
    Letters(Vec<Value>),
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
    /// What the record does not know yet: questions by their names, and the names of those that are over.
    asked: Vec<(String, Value)>,
    over: Vec<String>,
    /// When it is told again, if it could not be.
    again: Option<Pin<Box<Sleep>>>,
}

/// The longest time between two attempts to keep what a task gave.
const AGAIN_MAX: Duration = Duration::from_secs(15);
/// For how long a server that stops goes on trying.
const LAST_TRIES: Duration = Duration::from_secs(3);

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
            Stop::Ended(outcome) => conclude(outcome),
            Stop::TimedOut => {
                tracing::warn!(task = %id, tool = %self.record.tool, "a task ran out of time");
                Ended::internal("the task did not end in time")
            }
            Stop::Cancelled => return,
        };
        let Self {
            tasks,
            record,
            share,
            place,
            inflight,
            held,
            ..
        } = self;
        drop(held);
        settle(&tasks, &record, ended, share.as_deref()).await;
        // It counts as one that runs until others know how it ended: a server that stops waits for that.
        drop((place, inflight));
    }

    async fn drive<T>(&self, mut call: Abortable<Guarded<T>>) -> Stop<T> {
        let mut mail = self.tasks.mail(&self.record.id);
        let mut deadline = std::pin::pin!(tokio::time::sleep(self.timeout));
        let mut open = Open::default();
        loop {
            let event = poll_fn(|cx| {
                if let Poll::Ready(event) = self.poll(&mut call, &mut open, cx) {
                    return Poll::Ready(event);
                }
                if let Poll::Ready(Some(letters)) = mail.poll_next_unpin(cx) {
                    return Poll::Ready(Event::Letters(letters));
                }
                deadline.as_mut().poll(cx).map(|()| Event::TimedOut)
            });
            match event.await {
                Event::Ended(outcome) => return Stop::Ended(outcome),
                Event::TimedOut => {
                    self.context.outlet.cancel();
                    return Stop::TimedOut;
                }
                Event::Asked => {
                    if !self.tell_what_is_asked(&mut open).await {
                        self.context.outlet.cancel();
                        return Stop::Cancelled;
                    }
                }
                Event::Letters(letters) => {
                    for letter in &letters {
                        if letter["cancel"] == true {
                            self.context.outlet.cancel();
                            return Stop::Cancelled;
                        }
                        open.answer(letter);
                    }
                }
            }
        }
    }

    fn poll<T>(
        &self,
        call: &mut Abortable<Guarded<T>>,
        open: &mut Open,
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
        if let Some(again) = &mut open.again {
            return again.as_mut().poll(cx).map(|()| Event::Asked);
        }
        let Some(desk) = asking.desk() else {
            return Poll::Pending;
        };
        if desk.has_new()
            || !open.over.is_empty()
            || open.slots.iter().any(|(_, slot)| slot.is_closed())
        {
            return Poll::Ready(Event::Asked);
        }
        Poll::Pending
    }

    /// Writes into the record what is asked; later, if the state cannot be used now. `false` if the task is over.
    async fn tell_what_is_asked(&self, open: &mut Open) -> bool {
        let new = match self.context.asking.desk() {
            Some(desk) => desk.take_new(),
            None => Vec::new(),
        };
        open.note(new);
        let (asked, over) = (&open.asked, &open.over);
        let change = |record: &mut Record| {
            if record.is_over() {
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
                record.is_some_and(|record| !record.is_over())
            }
            Err(StateError::TooLarge { .. }) => {
                // They do not fit into the record: the tool is told, and goes on.
                for (name, _) in std::mem::take(&mut open.asked) {
                    open.refuse(&name, ClientError::too_many("64 KiB in one task"));
                }
                open.again = (!open.over.is_empty()).then(in_a_while);
                true
            }
            Err(error) => {
                if open.again.is_none() {
                    tracing::warn!(task = %self.record.id, %error, "what a task asks cannot be told yet");
                }
                open.again = Some(in_a_while());
                true
            }
        }
    }
}

fn in_a_while() -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(AGAIN))
}

/// Keeps how a task ended. While the state cannot be used that is tried again, for as long as the task would be known.
async fn settle(tasks: &Tasks, record: &Record, mut ended: Ended, share: Option<&str>) {
    let id = &record.id;
    let mut give_up = Instant::now() + Duration::from_millis(record.ttl_ms);
    let mut stopping_until = None;
    let mut wait = AGAIN;
    let (mut is_told, mut is_short) = (false, false);
    loop {
        let error = match tasks.end(record, &ended, share).await {
            Ok(_) if is_told => {
                tracing::info!(task = %id, "how a task ended is kept now");
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
            tracing::error!(task = %id, %error, "what a task gave cannot be kept");
            ended = Ended::internal("what the task gave cannot be kept");
            is_short = true;
            continue;
        }
        if tasks.is_stopping() {
            wait = AGAIN;
            give_up =
                give_up.min(*stopping_until.get_or_insert_with(|| Instant::now() + LAST_TRIES));
        }
        if give_up <= Instant::now() + wait {
            tracing::error!(task = %id, %error, "how a task ended could not be kept; it is lost");
            return;
        }
        if !is_told {
            tracing::warn!(task = %id, %error, "how a task ended cannot be kept yet; it is tried again");
            is_told = true;
        }
        let again = Instant::now() + wait;
        while Instant::now() < again && !tasks.is_stopping() {
            tokio::time::sleep(AGAIN).await;
        }
        if tasks.is_stopping() {
            tokio::time::sleep(AGAIN).await;
        }
        wait = (2 * wait).min(AGAIN_MAX);
    }
}

impl Open {
    /// Takes up what was asked, and what is over since that was last looked at.
    fn note(&mut self, new: Vec<Arc<Slot>>) {
        let over = &mut self.over;
        self.slots.retain(|(name, slot)| {
            if slot.is_closed() {
                over.push(name.clone());
            }
            slot.is_open()
        });
        for slot in new {
            let name = self.unused_name(&slot);
            let params: Value = serde_json::from_str(slot.params()).unwrap_or_default();
            let request = json!({"method": slot.kind().method(), "params": params});
            self.asked.push((name.clone(), request));
            self.slots.push((name, slot));
        }
    }

    /// The record knows all of it.
    fn is_told(&mut self) {
        self.asked.clear();
        self.over.clear();
        self.again = None;
    }

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

/// The status of a task that is cancelled where that is still possible.
pub(super) fn cancel(record: &mut Record) -> bool {
    let runs = !record.is_over();
    if runs {
        record.status = Status::Cancelled;
        record.requests.clear();
    }
    runs
}
