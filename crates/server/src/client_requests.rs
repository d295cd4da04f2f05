//! Requests to clients with sessions, from the call that sends one to the response that arrives in another HTTP
//! request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Duration, Instant};

use super::liveness::short_id;
use super::quota::Counts;
use crate::catalog::{CallContext, ClientRequestError, PendingRequest};
use crate::environment::Conflicts;
use crate::net::{Mutex, ShareKey};
use crate::protocol::message::{self, Response};
use crate::telemetry::{Metrics, QUESTIONS, QUESTIONS_WAITING};

/// Client requests of tools: elicitation, sampling and roots.
///
/// ```toml
/// [server.client_requests]
/// timeout_seconds = 120
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientRequestConfig {
    /// Timeout of an elicitation, sampling or other client request in a session, in seconds. The call waits
    /// meanwhile.
    pub timeout_seconds: u64,
    /// Maximum number of pending client requests of one session, up to 200.
    pub per_session: usize,
    /// Maximum number of pending client requests of all sessions. One caller may have three quarters of them.
    pub total: usize,
    /// Time in which a client of 2026-07-28 must repeat the call with its responses, in seconds.
    pub state_seconds: u64,
}

/// Maximum of `per_session`. Over stdio 256 messages are handled concurrently, and responses need some of these places.
const PER_SESSION_MAX: usize = 200;

impl ClientRequestConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([
            (
                "server.client_requests.timeout_seconds",
                self.timeout_seconds,
            ),
            ("server.client_requests.state_seconds", self.state_seconds),
        ]);
        let per_session = self.per_session;
        if PER_SESSION_MAX < per_session {
            conflicts.add(
                format!("server.client_requests.per_session is {per_session}"),
                "set it to at most 200: over stdio 256 messages are handled concurrently, and responses need some of these slots",
            );
        }
    }
}

impl Default for ClientRequestConfig {
    fn default() -> Self {
        Self {
            timeout_seconds: 300,
            per_session: 64,
            total: 10_000,
            state_seconds: 900,
        }
    }
}

/// Counters of requests sent to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientRequestCounts {
    /// Waiting for a response now.
    pub waiting: u64,
    /// Sent to a client, on a stream or in an `input_required` result.
    pub asked: u64,
    /// Completed with a result.
    pub answered: u64,
    /// Completed with an error.
    pub refused: u64,
    /// Cancelled: timed out, or not needed any more.
    pub withdrawn: u64,
    /// Rejected because too many were waiting.
    pub turned_away: u64,
    /// Responses without a matching request: unknown, duplicate, or from another client.
    pub unheard: u64,
    /// Calls resumed with client input, in 2026-07-28.
    pub resumed: u64,
    /// Request states that could not be verified.
    pub states_refused: u64,
}

/// Pending client requests, by id.
#[derive(Debug)]
pub struct ClientRequests {
    config: ClientRequestConfig,
    /// Short identifier of this process, which its ids contain.
    replica: u32,
    waiting: Mutex<Waiting>,
    /// Notified of a shutdown in which no response can arrive.
    stopping: Notify,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
struct Waiting {
    by_id: HashMap<u64, Sent>,
    by_session: Counts<Arc<str>>,
    /// Number of requests of a caller, who could leave no room for others.
    by_caller: Counts<ShareKey>,
    /// True during a shutdown in which no response can arrive.
    is_stopped: bool,
}

#[derive(Debug)]
struct Sent {
    session: Arc<str>,
    principal: Box<str>,
    caller: ShareKey,
    slot: Arc<PendingRequest>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) asked: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    withdrawn: AtomicU64,
    turned_away: AtomicU64,
    unheard: AtomicU64,
    pub(super) resumed: AtomicU64,
    pub(super) states_refused: AtomicU64,
}

/// Destination of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The request was sent by this process, or is unknown. The client need not know which.
    Here,
    /// The request was sent by another replica, with this short identifier.
    Elsewhere(u32),
}

/// Highest bit of all ids. Ids are numbers of 63 bits, sent as strings of digits: LangChain4j reads an id as a number of that
/// size and returns it as a number, JavaScript reads only strings exactly.
const ID_MARK: u64 = 1 << 62;
/// Number of random bits at the end of an id. The bits before them are those of the replica.
const ID_RANDOM_BITS: u32 = 30;

/// Reads an id from the JSON text of a response, which is a string or a number.
fn id_of(json: &str) -> Option<u64> {
    let digits = message::string(json).unwrap_or(json.into());
    digits.parse().ok()
}

/// Replica in an id of the form that this server uses.
fn replica_of(id: u64) -> Option<u32> {
    let is_ours = id / ID_MARK == 1;
    is_ours.then_some((id >> ID_RANDOM_BITS) as u32)
}

/// Error of requests during a shutdown in which no response can arrive.
pub(super) const STOPPED: ClientRequestError = ClientRequestError::Unreachable("this server stops");

impl ClientRequests {
    pub fn new(config: ClientRequestConfig, replica: u64) -> Self {
        Self {
            config,
            replica: short_id(replica),
            waiting: Mutex::default(),
            stopping: Notify::new(),
            counters: Counters::default(),
        }
    }

    /// Maximum time that a call waits for the response to one request.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_seconds)
    }

    pub fn counts(&self) -> ClientRequestCounts {
        let c = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientRequestCounts {
            waiting: self.waiting.lock().by_id.len() as u64,
            asked: read(&c.asked),
            answered: read(&c.answered),
            refused: read(&c.refused),
            withdrawn: read(&c.withdrawn),
            turned_away: read(&c.turned_away),
            unheard: read(&c.unheard),
            resumed: read(&c.resumed),
            states_refused: read(&c.states_refused),
        }
    }

    /// Registers the metrics.
    pub fn show(self: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let read = |outcome: &'static str, of: fn(&ClientRequestCounts) -> u64| {
            let client_requests = Arc::clone(self);
            let read = move || of(&client_requests.counts()) as f64;
            let labels = [&[("outcome", outcome)], labels].concat();
            metrics.read(&QUESTIONS, &labels, read);
        };
        read("asked", |counts| counts.asked);
        read("answered", |counts| counts.answered);
        read("refused", |counts| counts.refused);
        read("withdrawn", |counts| counts.withdrawn);
        read("turned_away", |counts| counts.turned_away);
        read("unheard", |counts| counts.unheard);
        read("resumed", |counts| counts.resumed);
        read("state_refused", |counts| counts.states_refused);
        let client_requests = Arc::clone(self);
        let waiting = move || client_requests.counts().waiting as f64;
        metrics.read(&QUESTIONS_WAITING, labels, waiting);
    }

    /// Registers a request under a random id.
    ///
    /// # Errors
    ///
    /// There are too many, or no response could arrive.
    fn register(
        &self,
        context: &CallContext,
        slot: &Arc<PendingRequest>,
    ) -> Result<u64, ClientRequestError> {
        let Some(session) = &context.session else {
            return Err(ClientRequestError::Unreachable(
                "the request has no session",
            ));
        };
        let mut waiting = self.waiting.lock();
        if waiting.is_stopped {
            return Err(STOPPED);
        }
        let of_session = waiting.by_session.of(session);
        let caller = context.share;
        let of_caller = waiting.by_caller.of(&caller);
        // One caller leaves a quarter of the requests to others.
        let per_caller = self.config.total - self.config.total / 4;
        let full = if self.config.total <= waiting.by_id.len() || per_caller <= of_caller {
            Some("server.client_requests.total")
        } else if self.config.per_session <= of_session {
            Some("server.client_requests.per_session")
        } else {
            None
        };
        if let Some(setting) = full {
            count(&self.counters.turned_away);
            return Err(ClientRequestError::TooMany(setting));
        }
        let id = loop {
            let random = u32::from_ne_bytes(crate::seal::random_bytes()) >> (32 - ID_RANDOM_BITS);
            let replica = u64::from(self.replica) << ID_RANDOM_BITS;
            let id = ID_MARK | replica | u64::from(random);
            if !waiting.by_id.contains_key(&id) {
                break id;
            }
        };
        waiting.by_session.add(Arc::clone(session));
        if !caller.is_none() {
            waiting.by_caller.add(caller);
        }
        let sent = Sent {
            session: Arc::clone(session),
            principal: context.principal.id().into(),
            caller,
            slot: Arc::clone(slot),
        };
        waiting.by_id.insert(id, sent);
        count(&self.counters.asked);
        Ok(id)
    }

    /// Delivers a response to the waiting call, if the session and the principal match those of the request.
    pub fn deliver(&self, session: &str, principal: &str, response: &Response<'_>) -> Delivery {
        let Some(id) = response.id.and_then(id_of) else {
            count(&self.counters.unheard);
            return Delivery::Here;
        };
        if let Some(replica) = replica_of(id)
            && replica != self.replica
        {
            return Delivery::Elsewhere(replica);
        }
        let found = {
            let mut waiting = self.waiting.lock();
            match waiting.by_id.get(&id) {
                Some(sent) if *sent.session == *session && *sent.principal == *principal => {
                    waiting.remove(id)
                }
                _ => None,
            }
        };
        let Some(sent) = found else {
            count(&self.counters.unheard);
            return Delivery::Here;
        };
        let (counter, answer) = match response.outcome {
            Ok(result) => (&self.counters.answered, Ok(result.into())),
            Err(error) => (
                &self.counters.refused,
                Err(ClientRequestError::from_response(error)),
            ),
        };
        if sent.slot.respond(answer) {
            count(counter);
        } else {
            count(&self.counters.unheard);
        }
        Delivery::Here
    }

    /// Cancels a request. Returns false if the response has arrived.
    fn withdraw(&self, id: u64) -> bool {
        let was_there = self.waiting.lock().remove(id).is_some();
        if was_there {
            count(&self.counters.withdrawn);
        }
        was_there
    }

    /// Fails all requests of a session that has ended.
    pub fn end_session(&self, session: &str) {
        let ended: Vec<_> = {
            let mut waiting = self.waiting.lock();
            if waiting.by_session.of(session) == 0 {
                return;
            }
            let of_session = waiting.by_id.iter().filter(|(_, s)| *s.session == *session);
            let ids: Vec<_> = of_session.map(|(id, _)| *id).collect();
            ids.into_iter()
                .filter_map(|id| waiting.remove(id))
                .collect()
        };
        for sent in ended {
            count(&self.counters.withdrawn);
            sent.slot.respond(Err(ClientRequestError::Ended));
        }
    }

    /// Fails all requests, and those that follow: the server stops, and no response can arrive. Their calls cancel them.
    pub fn stop(&self) {
        let slots: Vec<_> = {
            let mut waiting = self.waiting.lock();
            waiting.is_stopped = true;
            let sent = waiting.by_id.values();
            sent.map(|sent| Arc::clone(&sent.slot)).collect()
        };
        self.stopping.notify_waiters();
        for slot in slots {
            slot.respond(Err(STOPPED));
        }
    }

    /// Returns true during a shutdown in which no response can arrive.
    pub(super) fn is_stopped(&self) -> bool {
        self.waiting.lock().is_stopped
    }

    /// Completes when such a shutdown begins, unless it began before.
    pub(super) fn stopping(&self) -> Notified<'_> {
        self.stopping.notified()
    }
}

impl Waiting {
    fn remove(&mut self, id: u64) -> Option<Sent> {
        let sent = self.by_id.remove(&id)?;
        self.by_session.remove(&sent.session);
        self.by_caller.remove(&sent.caller);
        Some(sent)
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Requests of one call that were sent and are possibly pending.
#[derive(Debug, Default)]
pub struct PendingSends {
    sent: Vec<(u64, Arc<PendingRequest>)>,
    /// Start of the current wait for responses.
    waiting_since: Option<Instant>,
}

impl PendingSends {
    /// Sends new requests of the call and cancels those it has dropped.
    pub(super) fn sync(&mut self, context: &CallContext, client_requests: &ClientRequests) {
        for slot in context.replay.take_new_requests() {
            match client_requests.register(context, &slot) {
                Ok(id) => {
                    context.outlet.send_message(request(id, &slot));
                    self.sent.push((id, slot));
                }
                Err(error) => drop(slot.respond(Err(error))),
            }
        }
        self.withdraw_closed(context, client_requests);
    }

    /// Cancels requests that the call has dropped, or that failed without a response (TMO-01).
    pub(super) fn withdraw_closed(
        &mut self,
        context: &CallContext,
        client_requests: &ClientRequests,
    ) {
        self.sent.retain(|(id, slot)| {
            let is_waiting = slot.is_waiting();
            if !is_waiting && client_requests.withdraw(*id) {
                context.outlet.send_message(cancelled(*id));
            }
            is_waiting
        });
    }

    /// Time spent waiting for responses, which does not count towards the timeout. Returns `None` while the call
    /// waits.
    pub(super) fn waited(&mut self, waits: bool) -> Option<Duration> {
        match (waits, self.waiting_since) {
            (true, _) => {
                self.waiting_since.get_or_insert_with(Instant::now);
                None
            }
            (false, Some(since)) => {
                self.waiting_since = None;
                Some(since.elapsed())
            }
            (false, None) => Some(Duration::ZERO),
        }
    }

    /// Cancels all requests at the end of the call (TMO-01).
    pub(super) fn withdraw_all(&mut self, context: &CallContext, client_requests: &ClientRequests) {
        for (id, _) in self.sent.drain(..) {
            if client_requests.withdraw(id) {
                context.outlet.send_message(cancelled(id));
            }
        }
    }
}

/// The JSON-RPC request to the client.
fn request(id: u64, slot: &PendingRequest) -> Vec<u8> {
    let (method, params) = (slot.kind().method(), slot.params());
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#).into()
}

/// TMO-01: the notification that cancels a request.
fn cancelled(id: u64) -> Vec<u8> {
    let reason = "the answer is not needed any more";
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}","reason":"{reason}"}}}}"#
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_responses_are_strings_or_numbers() {
        let id = ID_MARK | (7 << ID_RANDOM_BITS) | 5;
        assert!(i64::try_from(id).is_ok());
        for json in [id.to_string(), format!("\"{id}\"")] {
            assert_eq!(id_of(&json), Some(id));
        }
        assert_eq!(replica_of(id), Some(7));
        for other in [0, 1, ID_MARK - 1, ID_MARK * 2] {
            assert_eq!(replica_of(other), None);
        }
        for other in ["null", "\"q-1\"", "-1", "1.5", "true"] {
            assert_eq!(id_of(other), None);
        }
    }
}
