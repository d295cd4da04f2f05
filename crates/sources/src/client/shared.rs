//! Requests that share a connection, and the routing of messages to them.

mod notices;
mod responsiveness;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, broadcast, oneshot};
use tokio::time::Instant;

use self::notices::{Acknowledgement, Acknowledgements};
use super::asked_time::AskedTime;
use super::attribution::{Attribution, Doubt, Owner, is_one};
use super::listener::{Events, Listener};
use super::wire::{self, Incoming};
use super::{ClientError, INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError};
use crate::net::{self, Mutex};
use crate::seal::random_bytes;

const PING: &str = "ping";
/// Maximum number of open client requests of one connection, which may serve all callers. There are more than calls that an
/// upstream runs at once by default, so that one silent client for each of them leaves room.
const QUESTIONS_MAX: usize = 256;
/// Maximum number of responses to client requests that are pending or not sent yet. A server that does not read them
/// gets no further ones.
const REPLIES_MAX: usize = 512;

/// Number of acknowledgements that wait for their receivers. A subscription has two requests at most.
const ACKNOWLEDGEMENTS_MAX: usize = 16;

pub(super) type Answered = Result<Box<RawValue>, ClientError>;

pub(super) struct Shared {
    next: AtomicU64,
    state: Mutex<State>,
    events: Option<Arc<dyn Events>>,
    questions: Semaphore,
    replies: Arc<Semaphore>,
    /// Acknowledgements of subscriptions.
    acknowledged: broadcast::Sender<Acknowledgement>,
    /// True if a message was withheld that a new connection would deliver.
    hindered: AtomicBool,
    /// Number of messages that have arrived.
    heard: AtomicU64,
}

#[derive(Default)]
struct State {
    pending: HashMap<u64, Pending>,
    /// Open client requests by the server's ID, as JSON text. A value ends the request without a response.
    questions: HashMap<Box<str>, oneshot::Sender<()>>,
    attribution: Attribution,
    /// Time of the first timeout since the last message, and the number of messages until then.
    timed_out: Option<(Instant, u64)>,
    /// Reason why no further responses will arrive.
    closed: Option<ClientError>,
}

struct Pending {
    answer: oneshot::Sender<Answered>,
    listener: Option<Arc<dyn Listener>>,
    /// Open client requests. Dropping a sender rejects its request with an error.
    questions: Vec<oneshot::Sender<()>>,
    asked: AskedTime,
}

impl Pending {
    fn owner(&self) -> Option<Owner> {
        Some(self.listener.as_ref()?.caller())
    }
}

/// Function that sends a message without waiting for the outcome.
pub(super) type Send1 = Arc<dyn Fn(Bytes) -> BoxFuture<'static, ()> + Send + Sync>;

impl Shared {
    pub(super) fn new(events: Option<Arc<dyn Events>>) -> Self {
        Self {
            next: AtomicU64::new(1),
            state: Mutex::default(),
            events,
            questions: Semaphore::new(QUESTIONS_MAX),
            replies: Arc::new(Semaphore::new(REPLIES_MAX)),
            acknowledged: broadcast::Sender::new(ACKNOWLEDGEMENTS_MAX),
            hindered: AtomicBool::new(false),
            heard: AtomicU64::new(0),
        }
    }

    /// Begins the request IDs at a random number. Some servers send each response to all of their clients, which must not
    /// have requests with equal IDs then.
    pub(super) fn with_random_ids(mut self) -> Self {
        // Within 30 bits, since servers may keep IDs as 32-bit numbers.
        let first = u32::from_le_bytes(random_bytes()) >> 2;
        self.next = AtomicU64::new(u64::from(first) + 1);
        self
    }

    /// Returns a receiver of the acknowledgements of subscriptions from now on.
    pub(super) fn acknowledgements(&self) -> Acknowledgements {
        Acknowledgements(self.acknowledged.subscribe())
    }

    /// Registers a request and returns the receiver of its response.
    pub(super) fn expect(
        self: &Arc<Self>,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Expected, ClientError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(closed) = &state.closed {
            return Err(closed.clone());
        }
        let pending = Pending {
            answer,
            listener,
            questions: Vec::new(),
            asked: AskedTime::default(),
        };
        state.pending.insert(id, pending);
        Ok(Expected {
            id,
            receiver,
            shared: Arc::clone(self),
        })
    }

    pub(super) fn waits_for(&self, id: u64) -> bool {
        self.state.lock().pending.contains_key(&id)
    }

    /// Returns true if a pending request has open client requests; without an ID, if any has.
    pub(super) fn is_asking(&self, id: Option<u64>) -> bool {
        let state = self.state.lock();
        match id {
            Some(id) => {
                let pending = state.pending.get(&id);
                pending.is_some_and(|pending| pending.asked.is_open())
            }
            None => state
                .pending
                .values()
                .any(|pending| pending.asked.is_open()),
        }
    }

    /// Waits until a request has had a time of its own, in which the time of its client requests does not count.
    pub(super) async fn time_is_up(&self, id: u64, limit: Duration) {
        /// Minimum wait while a client request is open, since the end of that moves on.
        const STEP: Duration = Duration::from_millis(250);
        let began = Instant::now();
        let mut until = began + limit;
        loop {
            tokio::time::sleep_until(until).await;
            let now = Instant::now();
            let asked = match self.state.lock().pending.get(&id) {
                Some(pending) => pending.asked,
                None => return,
            };
            let end = began + limit + asked.until(now);
            until = match asked.is_open() {
                true => end.max(now + STEP),
                false if now < end => end,
                false => return,
            };
        }
    }

    pub(super) fn settle(&self, id: u64, answer: Answered) {
        if let Some(pending) = self.end(id) {
            // The receiver may have been dropped.
            let _ = pending.answer.send(answer);
        }
    }

    /// Reports that a message longer than `max` was skipped. The request that it responds to, if known, fails.
    #[cold]
    pub(super) fn has_skipped(&self, id: Option<u64>, (name, max): (&str, usize)) {
        tracing::warn!(
            upstream = name,
            request = id,
            max,
            "an upstream server sent a message longer than message_bytes; it is skipped, and the request that it responds to fails, if it can be identified"
        );
        if let Some(id) = id {
            self.settle(id, Err(ClientError::TooLarge { max }));
        }
    }

    /// Records that the server has completed a request, or never began it.
    pub(super) fn over(&self, id: u64) {
        drop(self.end(id));
    }

    fn end(&self, id: u64) -> Option<Pending> {
        let mut state = self.state.lock();
        let pending = state.pending.remove(&id);
        match &pending {
            Some(pending) => {
                if let Some(owner) = pending.owner() {
                    state.attribution.ended(owner, Instant::now());
                }
            }
            None => state.attribution.resolve(id, Instant::now()),
        }
        pending
    }

    /// Records that a request was abandoned, which the server may still be working on. Its open client requests are
    /// rejected with errors; returns true if there were any.
    pub(super) fn abandon(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let Some(pending) = state.pending.remove(&id) else {
            return false;
        };
        if let Some(owner) = pending.owner() {
            state.attribution.abandon(id, owner);
        }
        pending
            .questions
            .iter()
            .any(|question| !question.is_closed())
    }

    /// Returns true if a request was abandoned, and has had no response since.
    pub(super) fn is_abandoned(&self, id: u64) -> bool {
        let state = self.state.lock();
        state.closed.is_none() && state.attribution.is_abandoned(id)
    }

    /// Stops attributing messages that name no request, because they can belong to requests of other connections.
    pub(super) fn unbind(&self) {
        self.state.lock().attribution.unbind();
    }

    /// Returns true if something was withheld that a new connection would deliver.
    pub(super) fn is_hindered(&self) -> bool {
        self.hindered.load(Ordering::Relaxed)
    }

    /// Reports that messages outside of requests may have been missed.
    pub(super) fn has_missed_messages(&self) {
        if let Some(events) = &self.events {
            events.missed();
        }
    }

    /// Reports these lists and resources as changed, since notifications of that may have been missed.
    pub(super) fn has_missed_changes<'u>(
        &self,
        lists: &[&str],
        resources: impl Iterator<Item = &'u Arc<str>>,
    ) {
        let Some(events) = &self.events else {
            return;
        };
        for list in lists {
            events.list_changed(list);
        }
        for uri in resources {
            events.resource_updated(uri);
        }
    }

    /// Fails all pending requests.
    pub(super) fn close(&self, why: &ClientError) {
        let pending = {
            let mut state = self.state.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(why.clone());
            std::mem::take(&mut state.pending)
        };
        for pending in pending.into_values() {
            let _ = pending.answer.send(Err(why.clone()));
        }
        if let Some(events) = &self.events {
            events.closed();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed.is_some()
    }

    /// Routes a message from the server. `about` is the request on whose response stream it came, if known. `send`
    /// sends the responses to client requests.
    pub(super) fn take(
        self: &Arc<Self>,
        incoming: Incoming,
        about: Option<u64>,
        send: impl FnOnce() -> Send1,
    ) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        match incoming {
            Incoming::Answer { id, outcome, .. } => {
                if let Some(id) = id.or(about) {
                    if outcome.is_err() && !self.waits_for(id) {
                        self.has_rejected(id);
                    }
                    self.settle(id, outcome.map_err(ClientError::Rpc));
                }
            }
            Incoming::Notice { method, params } => self.notice(&method, params.as_deref(), about),
            Incoming::Question { id, method, params } => {
                self.question(id, method, params, about, send());
            }
        }
    }

    fn question(
        self: &Arc<Self>,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
        about: Option<u64>,
        send: Send1,
    ) {
        let Ok(reply) = Arc::clone(&self.replies).try_acquire_owned() else {
            tracing::debug!(
                method = method.as_str(),
                "a client request is ignored: too many responses are not sent yet"
            );
            return;
        };
        let (open, over) = oneshot::channel::<()>();
        let (wanted, cancelled) = oneshot::channel::<()>();
        let found = {
            let mut state = self.state.lock();
            let found = self.recipient(&state, about, Kind::Question);
            if let Ok((about, _)) = &found
                && let Some(pending) = state.pending.get_mut(about)
            {
                pending.questions.retain(|question| !question.is_closed());
                pending.questions.push(open);
                if method != PING {
                    pending.asked.begin(Instant::now());
                    state.questions.insert(id.get().into(), wanted);
                }
            }
            found
        };
        let shared = Arc::clone(self);
        net::spawn(async move {
            let _reply = reply;
            let outcome = match (method.as_str(), found) {
                (PING, _) => Ok(json!({})),
                (_, Ok((about, listener))) => {
                    let outcome = match shared.questions.try_acquire() {
                        Ok(_permit) => {
                            tokio::select! {
                                biased;
                                // The sender is dropped together with the request that this client request belongs to.
                                _ = over => Some(Err(RpcError::new(INTERNAL_ERROR, "the call that this is about has ended"))),
                                // A later request with the same ID also drops the sender.
                                Ok(()) = cancelled => None,
                                outcome = listener.question(method, params) => Some(outcome),
                            }
                        }
                        Err(_) => Some(Err(RpcError::new(
                            INTERNAL_ERROR,
                            "too many concurrent client requests",
                        ))),
                    };
                    shared.has_answered(about, &id);
                    match outcome {
                        Some(outcome) => outcome,
                        // A cancelled request gets no response.
                        None => return,
                    }
                }
                (_, Err(doubt)) => {
                    shared.withheld(&method, doubt);
                    Err(RpcError::new(
                        METHOD_NOT_FOUND,
                        format!("no client can be asked ({method}): {}", doubt.reason()),
                    ))
                }
            };
            if !shared.is_closed() {
                send(wire::response(&id, &outcome).into()).await;
            }
        });
    }

    /// Records that the client request with the server's ID `id` has ended, which belonged to the request `about`.
    fn has_answered(&self, about: u64, id: &RawValue) {
        let mut state = self.state.lock();
        state.questions.remove(id.get());
        if let Some(pending) = state.pending.get_mut(&about) {
            pending.asked.end(Instant::now());
        }
    }

    fn listener(&self, id: u64) -> Option<Arc<dyn Listener>> {
        self.state.lock().pending.get(&id)?.listener.clone()
    }

    /// Returns the request that a message belongs to, and its listener. If the message does not name the request,
    /// every request that can have caused it must be of one caller. For a client request, there must also be only one
    /// request in progress.
    fn recipient(
        &self,
        state: &State,
        about: Option<u64>,
        kind: Kind,
    ) -> Result<(u64, Arc<dyn Listener>), Doubt> {
        if let Some(id) = about {
            let pending = state.pending.get(&id).ok_or(Doubt::Ended)?;
            let listener = pending.listener.as_ref().ok_or(Doubt::NoRequest)?;
            return Ok((id, Arc::clone(listener)));
        }
        let pending = state.pending.iter();
        let listening = pending.filter_map(|(id, pending)| Some((*id, pending.listener.as_ref()?)));
        let latest = listening.clone().max_by_key(|(id, _)| *id);
        let (id, listener) = latest.ok_or(Doubt::NoRequest)?;
        let owner = listener.caller();
        let mut others = listening.filter(|(other, _)| *other != id).peekable();
        let is_only_one = others.peek().is_none();
        if !others.all(|(_, other)| is_one(&owner, &other.caller())) {
            return Err(Doubt::SeveralCallers);
        }
        if kind == Kind::Question && !is_only_one {
            return Err(Doubt::SeveralRequests);
        }
        state.attribution.check(&owner, Instant::now())?;
        Ok((id, Arc::clone(listener)))
    }

    fn withheld(&self, method: &str, doubt: Doubt) {
        if doubt.ends_with_connection() {
            self.hindered.store(true, Ordering::Relaxed);
        }
        if let Some(events) = &self.events {
            events.withheld(method, doubt.reason());
        }
    }
}

/// Kind of a message that names no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Log,
    Question,
}

/// Pending response. Dropping it abandons the request.
pub(super) struct Expected {
    pub(super) id: u64,
    receiver: oneshot::Receiver<Answered>,
    shared: Arc<Shared>,
}

impl Expected {
    pub(super) async fn response(&mut self) -> Answered {
        match (&mut self.receiver).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Gone("the connection was closed".to_owned())),
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.shared.abandon(self.id);
    }
}

#[cfg(test)]
mod tests;
