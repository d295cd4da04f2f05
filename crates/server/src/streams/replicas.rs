//! How replicas keep in touch.
//!
//! What all have to know is in two logs. A word on the bus says that there is something new in them, and carries what
//! concerns one replica only; words may be lost, entries of logs are not, and wait while there is no writing them. After a pause, or when words were missed, a
//! replica reads the logs from where it was.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{Streams, notice};
use crate::catalog::LogLevel;
use crate::protocol::message::Response;
use crate::seal::Ended;
use crate::server::Server;
use crate::server::liveness::SAY_ALIVE;
use crate::state::{Retention, StateError, Subscription, SubscriptionEvent};

/// Something about a session that every replica has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::server) enum Fact {
    /// It was ended before its time.
    Ended(Ended),
    /// From which level on it wants log messages.
    Level { session: Arc<str>, level: LogLevel },
}

/// Something that matters to other replicas now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::server) enum Word {
    /// There is something new in the logs.
    News,
    /// A request was cancelled whose call runs elsewhere.
    Cancelled { session: Arc<str>, request: String },
    /// A client's answer to what another replica has asked.
    Answered {
        /// That replica.
        to: u64,
        session: Arc<str>,
        principal: Arc<str>,
        /// JSON text.
        id: String,
        /// JSON text of the result, or of the error.
        outcome: Result<String, String>,
    },
    /// A session has a new standing stream. Those with smaller numbers are older.
    Opened { session: Arc<str>, opening: u64 },
    /// It has it no longer.
    Closed { session: Arc<str>, opening: u64 },
    /// What a session has subscribed to has changed.
    Subscribed { session: Arc<str> },
    /// A task has changed; calls of that session have made it.
    Task {
        task: Arc<str>,
        session: Option<Arc<str>>,
    },
    /// A message of a session of 2024-11-05, whose stream that replica has.
    Posted {
        to: u64,
        session: String,
        /// Who has posted it.
        principal: Arc<str>,
        message: String,
    },
    /// A call's stream was taken up.
    Taken { session: Arc<str>, stream: u64 },
    /// A call's stream that was taken up elsewhere has something new.
    Appended { session: Arc<str>, stream: u64 },
}

/// A word, and which replica it comes from.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    from: u64,
    word: Word,
}

/// How often streams are ended whose credentials were taken away.
const LOOK_AT_CREDENTIALS: Duration = Duration::from_secs(1);

/// The log of notices. Ids of events name places in it, for as long as it reaches back.
pub(super) const NOTICES: Retention = Retention {
    entries: 10_000,
    bytes: 1024 * 1024,
    life: DAY,
    may_go: false,
};
/// The log of facts: as long as a session may last.
const FACTS: Retention = Retention {
    entries: 100_000,
    bytes: 16 * 1024 * 1024,
    life: DAY,
    may_go: false,
};
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const PAGE: usize = 500;
/// After which time a bus that could not be listened to is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many notices go into the log before they are told.
const ANNOUNCED_AT_ONCE: usize = 64;
/// What may wait to be said to other replicas.
const OUTGOING_MAX: usize = 8192;

/// What is to be said to other replicas.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: Mutex<VecDeque<Out>>,
    news: Notify,
}

#[derive(Debug)]
enum Out {
    Word(Word),
    Fact(Box<Fact>),
    /// What was kept for a session that was ended here is to be removed.
    Forget(Arc<str>),
}

impl Outgoing {
    pub(super) fn word(&self, word: Word) {
        self.put(Out::Word(word));
    }

    pub(super) fn forget(&self, session: Arc<str>) {
        self.put(Out::Forget(session));
    }

    fn put(&self, out: Out) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if OUTGOING_MAX <= waiting.len() {
            // Words may be lost, and what is not removed expires; facts go before them.
            let lesser = waiting.iter().position(|out| !matches!(out, Out::Fact(_)));
            waiting.remove(lesser.unwrap_or(0));
        }
        waiting.push_back(out);
        drop(waiting);
        self.news.notify_one();
    }

    fn take(&self) -> Option<Out> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }

    /// Has facts that could not be said wait again, before everything else.
    fn put_back(&self, facts: impl DoubleEndedIterator<Item = Box<Fact>>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for fact in facts.rev() {
            waiting.push_front(Out::Fact(fact));
        }
        // Whichever came last has to go.
        waiting.truncate(OUTGOING_MAX);
    }
}

impl Streams {
    /// Tells all replicas of a fact. This one knows it already.
    pub(in crate::server) fn state_fact(&self, fact: Fact) {
        if self.is_shared {
            self.outgoing.put(Out::Fact(Box::new(fact)));
        }
    }

    /// Tells other replicas of something that matters now.
    pub(in crate::server) fn say(&self, word: Word) {
        if self.is_shared {
            self.outgoing.word(word);
        }
    }

    /// What there is in the log of notices after what was read, told to everybody here.
    pub(super) async fn read_notices(&self) -> Result<(), StateError> {
        let log = &self.names.notices;
        let Some(mut at) = self.position() else {
            // Nobody here knows of anything older. In a log that has not begun, everything will be new.
            let page = self.state.read_after(log, 0, 0).await?;
            self.begin_at(page.map_or(0, |page| page.last));
            return Ok(());
        };
        loop {
            let Some(page) = self.state.read_after(log, at, PAGE).await? else {
                return Ok(());
            };
            for (number, entry) in &page.entries {
                at = *number;
                match notice::read_entry(entry) {
                    Some(notice) => self.tell(&notice, Some(*number)),
                    // Of a later version, or sealed by a key that is not here.
                    None => self.begin_at(*number),
                }
            }
            if page.entries.is_empty() || page.last <= at {
                return Ok(());
            }
        }
    }
}

/// How far one replica is.
#[derive(Default)]
struct Attention {
    bus: Option<Box<dyn Subscription>>,
    retry_at: Option<Instant>,
    /// When facts that could not be said are tried again.
    say_at: Option<Instant>,
    /// How far the log of facts was read.
    facts: u64,
    /// When logs that could not be read are tried again.
    read_at: Option<Instant>,
}

impl Server {
    /// Keeps in touch with the other replicas, and tells those who want to know what has changed. Runs until it is
    /// dropped; there is one of it at a time.
    pub(crate) async fn attend(self: Arc<Self>) {
        let mut attention = Attention::default();
        let mut alive = tokio::time::interval(SAY_ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut credentials = tokio::time::interval(LOOK_AT_CREDENTIALS);
        credentials.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if attention.bus.is_none() && attention.retry_at.is_none_or(|at| at <= Instant::now()) {
                self.listen_to_bus(&mut attention).await;
            }
            let retry_at = attention.retry_at.unwrap_or_else(Instant::now);
            let is_deaf = attention.bus.is_none();
            let (say_at, read_at) = (attention.say_at, attention.read_at);
            tokio::select! {
                heard = next(&mut attention.bus) => match heard {
                    SubscriptionEvent::Message(message) => self.hear(&mut attention, &message).await,
                    SubscriptionEvent::Missed => {
                        self.streams.liveness.miss_nobody();
                        self.say_alive(&mut alive).await;
                        self.catch_up(&mut attention).await;
                        self.streams.look_at_tasks();
                    }
                },
                () = self.streams.outgoing.news.notified() => {
                    attention.say_at = self.say_what_waits().await;
                }
                () = tokio::time::sleep_until(say_at.unwrap_or(retry_at)), if say_at.is_some() => {
                    attention.say_at = self.say_what_waits().await;
                }
                () = tokio::time::sleep_until(read_at.unwrap_or(retry_at)), if read_at.is_some() => {
                    self.catch_up(&mut attention).await;
                }
                () = self.announcer.news() => {
                    if self.announce().await.is_err() {
                        attention.read_at = Some(Instant::now() + RETRY);
                    }
                }
                () = tokio::time::sleep_until(retry_at), if is_deaf => {}
                _ = credentials.tick() => self.streams.end_withdrawn(),
                _ = alive.tick() => {
                    self.say_alive(&mut alive).await;
                    let looked = self.tasks.look_for_runners().await;
                    self.streams.heed(&looked);
                }
            }
        }
    }

    /// Tells other replicas that the tasks and calls that run here have somebody who runs them; soon again if that fails.
    async fn say_alive(&self, ticks: &mut Interval) {
        let streams = &self.streams;
        if !streams.is_shared {
            return;
        }
        let (tasks, calls) = (self.tasks.run_here(), streams.runs_calls());
        let said = async {
            if tasks {
                streams.liveness.say_for_tasks().await?;
            }
            if calls {
                streams.liveness.say_for_calls().await?;
            }
            Ok(())
        };
        let said = said.await;
        if tasks || calls {
            streams.heed(&said);
        }
        if said.is_err() {
            ticks.reset_after(RETRY);
        }
    }

    async fn listen_to_bus(&self, attention: &mut Attention) {
        let streams = &self.streams;
        let bus = streams.state.subscribe(&streams.names.bus).await;
        streams.heed(&bus);
        match bus {
            Ok(bus) => {
                attention.bus = Some(bus);
                attention.retry_at = None;
                self.catch_up(attention).await;
            }
            Err(_) => attention.retry_at = Some(Instant::now() + RETRY),
        }
    }

    /// Reads both logs from where this replica was, and again if that fails: nobody may say once more that there is news.
    async fn catch_up(&self, attention: &mut Attention) {
        let facts = self.read_facts(&mut attention.facts).await;
        self.streams.heed(&facts);
        let notices = self.streams.read_notices().await;
        self.streams.heed(&notices);
        let failed = facts.is_err() || notices.is_err();
        attention.read_at = failed.then(|| Instant::now() + RETRY);
    }

    async fn read_facts(&self, at: &mut u64) -> Result<(), StateError> {
        let log = &self.streams.names.facts;
        loop {
            let Some(page) = self.streams.state.read_after(log, *at, PAGE).await? else {
                return Ok(());
            };
            if page.last < *at {
                // The store was set back, to a time before what was read from it. Facts can be learnt twice.
                *at = 0;
                continue;
            }
            for (number, entry) in &page.entries {
                *at = *number;
                // What a later version may have written, or sealed by a key that is not here, is left out.
                if let Ok(fact) = serde_json::from_slice::<Fact>(entry) {
                    self.learn(fact);
                }
            }
            if page.entries.is_empty() || page.last <= *at {
                return Ok(());
            }
        }
    }

    fn learn(&self, fact: Fact) {
        match fact {
            Fact::Ended(ended) => self.end_here(&ended),
            Fact::Level { session, level } => self.levels.set(&session, level),
        }
    }

    async fn hear(self: &Arc<Self>, attention: &mut Attention, message: &Bytes) {
        let Ok(Envelope { from, word }) = serde_json::from_slice(message) else {
            return;
        };
        if from == self.replica {
            return;
        }
        let streams = &self.streams;
        match word {
            Word::News => self.catch_up(attention).await,
            Word::Cancelled { session, request } => drop(self.inflight.cancel(&session, &request)),
            Word::Answered {
                to,
                session,
                principal,
                id,
                outcome,
            } => {
                if to == self.replica {
                    let outcome = outcome.as_deref().map_err(String::as_str);
                    let response = Response {
                        id: Some(&id),
                        outcome,
                    };
                    self.inflight
                        .questions
                        .hear(&session, &principal, &response);
                }
            }
            Word::Opened { session, opening } => streams.opened(&session, opening),
            Word::Closed { session, opening } => streams.closed(&session, opening),
            Word::Subscribed { session } => {
                if streams.is_here(&session)
                    && let Ok(uris) = streams.subscriptions_of(&session).await
                {
                    streams.subscribed(&session, &uris);
                }
            }
            Word::Posted {
                to,
                session,
                principal,
                message,
            } => {
                if to == self.replica {
                    self.posted_elsewhere(&session, &principal, message);
                }
            }
            Word::Task { task, session } => streams.tell_task(&task, session.as_ref()),
            Word::Taken { session, stream } => streams.call_taken(&session, stream),
            Word::Appended { session, stream } => streams.call_said(&session, stream),
        }
    }

    /// Says to other replicas what waits to be said. What they must not miss waits on if there is no saying it; then this
    /// is when to try again.
    async fn say_what_waits(&self) -> Option<Instant> {
        let streams = &self.streams;
        let mut unsaid = Vec::new();
        while let Some(out) = streams.outgoing.take() {
            let word = match out {
                Out::Word(word) => word,
                Out::Forget(session) => {
                    streams.forget(&session).await;
                    continue;
                }
                Out::Fact(fact) if !unsaid.is_empty() => {
                    unsaid.push(fact);
                    continue;
                }
                Out::Fact(fact) => {
                    let entry = serde_json::to_vec(&fact).unwrap_or_default();
                    let log = &streams.names.facts;
                    let appended = streams.state.append(log, entry.into(), FACTS).await;
                    streams.heed(&appended);
                    if appended.is_err() {
                        unsaid.push(fact);
                        continue;
                    }
                    Word::News
                }
            };
            self.publish(word).await;
        }
        let waits = !unsaid.is_empty();
        streams.outgoing.put_back(unsaid.into_iter());
        waits.then(|| Instant::now() + RETRY)
    }

    /// Tells what was announced: to all through the log, or, if there is none, at least here.
    async fn announce(&self) -> Result<(), StateError> {
        while self.announce_some().await? == ANNOUNCED_AT_ONCE {}
        Ok(())
    }

    /// Says how many there were.
    async fn announce_some(&self) -> Result<usize, StateError> {
        let streams = &self.streams;
        let (mut taken, mut is_in_log, mut is_read_there) = (0, false, false);
        while taken < ANNOUNCED_AT_ONCE
            && let Some(notice) = self.announcer.take()
        {
            taken += 1;
            if streams.position().is_none() {
                let _ = streams.read_notices().await;
            }
            let entry = notice::entry(&notice);
            let log = &streams.names.notices;
            let appended = streams.state.append(log, entry, NOTICES).await;
            streams.heed(&appended);
            is_in_log |= appended.is_ok();
            // From where nothing is known of the log, it could not be told from what is old.
            match appended.is_ok() && streams.position().is_some() {
                true => is_read_there = true,
                false => streams.tell(&notice, None),
            }
        }
        if is_in_log {
            self.publish(Word::News).await;
        }
        if is_read_there {
            // Others may have said something in between, which comes before it.
            let read = streams.read_notices().await;
            streams.heed(&read);
            read?;
        }
        Ok(taken)
    }

    async fn publish(&self, word: Word) {
        let envelope = Envelope {
            from: self.replica,
            word,
        };
        let message = serde_json::to_vec(&envelope).unwrap_or_default();
        let streams = &self.streams;
        let said = streams
            .state
            .publish(&streams.names.bus, message.into())
            .await;
        streams.heed(&said);
    }
}

/// What is heard next; nothing, if nobody listens.
async fn next(bus: &mut Option<Box<dyn Subscription>>) -> SubscriptionEvent {
    match bus {
        Some(bus) => bus.next().await,
        None => std::future::pending().await,
    }
}
