//! The state machine of one call that sends client requests or runs durable steps.

mod journal_state;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;

use super::client::{Client, StatelessRequest};
use super::journal::{InputResponses, Recorded};
use super::pending::{PendingRequest, RequestKind};
use super::task_phase::TaskPhase;
use super::{ClientRequestError, ReplayError, step};
use crate::net::Mutex;
use crate::protocol::{ClientAbility, ClientCapabilities, Revision};
use crate::seal::{JournalKey, RequestState};
use crate::state::SharedState;
use journal_state::Replay;

/// Client requests and durable steps of one call.
///
/// The tool's side opens requests and runs steps. The server's side, which polls the call, sends the requests of
/// clients with sessions, and suspends the call of a stateless client.
#[derive(Debug, Default)]
pub struct ReplaySession {
    client: Client,
    /// Created by the first request or step: most calls have none.
    replay: OnceLock<Box<Mutex<Replay>>>,
    /// Task that polls the call. Other tasks of the tool wake it when they open requests.
    driver: AtomicWaker,
    task: TaskPhase,
    /// True once the call has ended. Its tool may have left tasks behind.
    ended: AtomicBool,
}

/// Position of a call in its journal.
///
/// ```text
/// Fetching ──► Replaying ──► Live ──► Closed
///     └────────────┴───────────────────▲
/// ```
#[derive(Debug, Default)]
enum ReplayState {
    /// The journal is in the shared state. The tool starts after it has been fetched.
    Fetching(StoredJournal),
    /// The tool has not read all values of the journal. Messages that it sends are muted.
    Replaying,
    /// The tool has read all values; it opens new requests and runs new steps.
    #[default]
    Live,
    /// The call has been suspended or has ended.
    Closed,
}

/// Future that fetches a stored journal.
pub type FetchJournal = BoxFuture<'static, Result<RequestState, ReplayError>>;

/// A journal that has to be fetched before the tool starts.
struct StoredJournal {
    fetch: FetchJournal,
    responses: InputResponses,
    claims: SharedState,
}

impl fmt::Debug for StoredJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredJournal")
    }
}

/// Reason why a call ends before its tool has returned.
#[derive(Debug)]
pub enum Suspension {
    /// The client has to respond, and to send the call again.
    InputRequired(InputRound),
    Failed(ReplayError),
}

/// The requests that end a round, and the state for the next one.
#[derive(Debug)]
pub struct InputRound {
    pub requests: Vec<Arc<PendingRequest>>,
    pub state: RequestState,
}

/// Result of opening a request.
#[derive(Debug)]
pub(super) enum OpenOutcome {
    /// The journal has the response.
    Recorded(Recorded),
    Pending(Arc<PendingRequest>),
}

/// Maximum number of pending requests of one call.
const PENDING_MAX: usize = 64;

impl ReplaySession {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            ..Self::default()
        }
    }

    /// Creates the session of a call that a client sends again, or for the first time with early responses.
    ///
    /// `state` is the content of the resume token. Steps that run at most once are claimed in `claims`.
    pub fn resumed(
        client: Client,
        state: Option<RequestState>,
        responses: InputResponses,
        claims: SharedState,
    ) -> Self {
        Self::with_replay(client, |replay| replay.resume(state, responses, claims))
    }

    /// Creates the session of a call whose journal has to be fetched first.
    pub fn resumed_from_store(
        client: Client,
        fetch: FetchJournal,
        responses: InputResponses,
        claims: SharedState,
    ) -> Self {
        Self::with_replay(client, |replay| {
            replay.state = ReplayState::Fetching(StoredJournal {
                fetch,
                responses,
                claims,
            });
        })
    }

    fn with_replay(client: Client, start: impl FnOnce(&mut Replay)) -> Self {
        let mut replay = Replay::default();
        start(&mut replay);
        Self {
            client,
            replay: OnceLock::from(Box::new(Mutex::new(replay))),
            ..Self::default()
        }
    }

    /// Resets the state for the next call.
    #[inline]
    pub fn vacate(&mut self) {
        let Self {
            client,
            replay,
            driver,
            task,
            ended,
        } = self;
        *client = Client::default();
        drop(replay.take());
        *driver = AtomicWaker::new();
        *task = TaskPhase::default();
        *ended = AtomicBool::new(false);
    }

    // The client.

    /// Returns true if the client has declared an ability.
    pub fn client_can(&self, ability: ClientAbility) -> bool {
        self.client.can(ability)
    }

    /// Checks that the client has declared an ability, before it is sent a request for it (MRTR-04, ELI-01).
    pub fn require(&self, ability: ClientAbility) -> Result<(), ClientRequestError> {
        self.client.require(ability)
    }

    /// Returns the protocol version in which requests are written.
    pub fn revision(&self) -> Revision {
        self.client.revision()
    }

    /// Returns the request of a stateless client.
    pub fn stateless_request(&self) -> Option<&StatelessRequest> {
        match &self.client {
            Client::Stateless(request) => Some(request),
            Client::Unreachable(_) | Client::Session { .. } => None,
        }
    }

    /// Returns true if the client has declared the tasks extension on this request.
    pub fn declares_tasks(&self) -> bool {
        self.stateless_request()
            .is_some_and(|request| request.capabilities().contains(ClientCapabilities::TASKS))
    }

    /// Returns the time that the client has to respond while the call waits; `None` if the call is suspended instead.
    pub fn response_timeout(&self) -> Option<Duration> {
        if let Some(ttl) = self.task.ttl() {
            return Some(ttl);
        }
        match self.client {
            Client::Session {
                response_timeout, ..
            } => Some(response_timeout),
            Client::Unreachable(_) | Client::Stateless(_) => None,
        }
    }

    /// Returns true if a pending request suspends the call, so that the tool runs again.
    pub(super) fn is_resumable(&self) -> bool {
        matches!(self.client, Client::Stateless(_)) && self.task.ttl().is_none()
    }

    /// Returns true if results of steps are recorded: the call can be suspended, or was suspended before it became a task.
    pub(super) fn is_durable(&self) -> bool {
        let was_suspended = || self.started().is_some_and(|replay| replay.claims.is_some());
        self.is_resumable() || was_suspended()
    }

    // The transition to a task.

    pub fn task(&self) -> &TaskPhase {
        &self.task
    }

    /// Waits until the call is a task, if it can become one.
    pub fn poll_begin_task(&self, waker: &Waker) -> Poll<()> {
        self.task.poll_begin(waker, || self.wake_driver())
    }

    // The tool's side.

    /// Returns true if messages of the tool are dropped: it has sent them in an earlier round, or it is a task
    /// (TSK-11).
    pub fn is_muted(&self) -> bool {
        self.task.is_detached() || self.is_replaying()
    }

    /// Returns true if the tool has not read all values of the journal.
    pub(super) fn is_replaying(&self) -> bool {
        self.started()
            .is_some_and(|replay| matches!(replay.state, ReplayState::Replaying))
    }

    /// Opens a request to the client, or returns the response that the journal has.
    pub(super) fn open_request(
        &self,
        kind: RequestKind,
        digest: [u8; 16],
        name: Option<Box<str>>,
        params: Box<str>,
    ) -> Result<OpenOutcome, ClientRequestError> {
        self.client.check_reachable()?;
        if self.ended.load(Ordering::Acquire) {
            return Err(ClientRequestError::Ended);
        }
        let (opened, is_waiting) = {
            let is_in_step = self.is_resumable() && step::enclosing(self).is_some();
            let mut replay = self.start();
            let opened = replay.open_request(kind, digest, name, params, is_in_step)?;
            (opened, !replay.pending.is_empty())
        };
        // The driver sends the request, or suspends the call if this was the last value to read.
        if is_waiting {
            self.wake_driver();
        }
        Ok(opened)
    }

    /// Drops a request that the tool does not wait for any more. The server may cancel it at the client.
    pub(super) fn withdraw(&self, request: &Arc<PendingRequest>) {
        request.close();
        if let Some(mut replay) = self.started() {
            replay.withdraw(request);
        }
        self.wake_driver();
    }

    /// Begins a step, which may be part of another one. Returns its recorded result, or the key under which to record one.
    pub(super) fn begin_step(
        &self,
        kind: u8,
        digest: [u8; 16],
        outer: Option<JournalKey>,
    ) -> Result<Box<str>, JournalKey> {
        let mut replay = self.start();
        let key = replay.journal.next_key(kind, digest);
        if let Some(outer) = outer {
            replay.note_within(outer, key);
        }
        match replay.read(key) {
            Some(recorded) => Ok(recorded.value),
            None => {
                replay.running_steps += 1;
                replay.begins_anew |= matches!(replay.state, ReplayState::Replaying);
                Err(key)
            }
        }
    }

    /// Ends a step, and records its result in place of those of the steps within it. Without a result, the next step of its
    /// name takes its place.
    pub(super) fn end_step(&self, key: JournalKey, result: Option<Box<str>>) {
        if let Some(mut replay) = self.started() {
            replay.end_step(key, result);
        }
        self.wake_driver();
    }

    /// Drops the recorded responses that the tool has not read, if a step has run in this round that has no recorded result: its
    /// outcome can lead elsewhere than that of an earlier round. Returns false otherwise.
    pub(super) fn drop_unread(&self) -> bool {
        let Some(mut replay) = self.started().filter(|replay| replay.begins_anew) else {
            return false;
        };
        replay.drop_unread();
        drop(replay);
        self.wake_driver();
        true
    }

    /// Returns the store and the key of a step's claim. `None` in a first round, which no client can repeat.
    pub(super) fn step_claim(&self, key: JournalKey) -> Option<(SharedState, String)> {
        let replay = self.started()?;
        let (call_id, claims) = (replay.journal.call_id()?, replay.claims.clone()?);
        let mut name = "step/".to_owned();
        HEXLOWER.encode_append(&call_id, &mut name);
        HEXLOWER.encode_append(&key.digest, &mut name);
        let _ = write!(name, "/{}", key.nth);
        Some((claims, name))
    }

    /// Fails the call, regardless of the tool's result. The first error counts.
    pub(super) fn fail(&self, error: ReplayError) {
        self.start().failure.get_or_insert(error);
        self.wake_driver();
    }

    // The server's side.

    /// Returns true if the call has sent requests or run steps, or was resumed. Its result depends on client input.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.replay.get().is_some()
    }

    /// Returns the ID of the call, which is the same in all rounds. `None` until the first round ends.
    pub fn call_id(&self) -> Option<[u8; 16]> {
        self.started()?.journal.call_id()
    }

    /// Returns true if the journal has to be fetched before the tool starts.
    #[inline]
    pub fn is_fetching(&self) -> bool {
        self.started()
            .is_some_and(|replay| matches!(replay.state, ReplayState::Fetching(_)))
    }

    /// Fetches the journal. If that fails, never returns: the server sees the failure and ends the call.
    pub async fn fetch_journal(&self) {
        let stored = self.started().and_then(|mut replay| replay.take_stored());
        let Some(StoredJournal {
            fetch,
            responses,
            claims,
        }) = stored
        else {
            return;
        };
        match fetch.await {
            Ok(state) => self.start().resume(Some(state), responses, claims),
            Err(error) => {
                self.fail(error);
                std::future::pending::<()>().await;
            }
        }
    }

    /// Registers the task that polls the call.
    ///
    /// Call this before looking for new requests, so that none is missed.
    pub fn set_driver(&self, waker: &Waker) {
        self.driver.register(waker);
    }

    fn wake_driver(&self) {
        self.driver.wake();
    }

    /// Returns the reason to end a call that is waiting, if there is one.
    #[inline]
    pub fn suspension(&self) -> Option<Suspension> {
        let replay = self.replay.get()?;
        lock(replay).suspension(self.is_resumable())
    }

    /// Returns the requests that were opened since the last call of this.
    pub fn take_new_requests(&self) -> Vec<Arc<PendingRequest>> {
        let Some(mut replay) = self.started() else {
            return Vec::new();
        };
        let taken = replay.taken;
        replay.taken = replay.pending.len();
        replay.pending[taken..].to_vec()
    }

    /// Returns true if requests were opened since the last call of `take_new_requests`.
    pub fn has_new_requests(&self) -> bool {
        self.started()
            .is_some_and(|replay| replay.taken < replay.pending.len())
    }

    /// Returns true if a request waits for its response.
    pub fn is_waiting(&self) -> bool {
        self.started()
            .is_some_and(|replay| replay.pending.iter().any(|request| request.is_waiting()))
    }

    /// Closes the session when its call ends, and returns the error that replaces the call's result.
    ///
    /// Tasks that the tool has left behind get [`ClientRequestError::Ended`].
    #[inline]
    pub fn close(&self) -> Option<ReplayError> {
        self.ended.store(true, Ordering::Release);
        close(self.replay.get()?)
    }

    /// Locks the replay, if the call has any.
    #[inline]
    fn started(&self) -> Option<MutexGuard<'_, Replay>> {
        self.replay.get().map(|replay| lock(replay))
    }

    /// Locks the replay, which is created if the call has none.
    fn start(&self) -> MutexGuard<'_, Replay> {
        lock(self.replay.get_or_init(Box::default))
    }
}

fn close(replay: &Mutex<Replay>) -> Option<ReplayError> {
    let (pending, failure) = {
        let mut replay = lock(replay);
        replay.state = ReplayState::Closed;
        (std::mem::take(&mut replay.pending), replay.failure.clone())
    };
    for request in pending {
        request.respond(Err(ClientRequestError::Ended));
    }
    failure
}

fn lock(replay: &Mutex<Replay>) -> MutexGuard<'_, Replay> {
    replay.lock()
}
