//! The journal of a call, and what suspends it.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::journal::{InputResponses, Journal, Recorded};
use super::super::pending::{PendingRequest, RequestKind};
use super::super::{ClientRequestError, ReplayError};
use super::{InputRound, OpenOutcome, PENDING_MAX, ReplayState, StoredJournal, Suspension};
use crate::seal::{JournalKey, RequestState};
use crate::state::SharedState;

#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) state: ReplayState,
    pub(super) journal: Journal,
    /// Requests that wait for a response, in the order of opening.
    pub(super) pending: Vec<Arc<PendingRequest>>,
    /// Number of `pending` that the server has taken, from the front.
    pub(super) taken: usize,
    /// Number of steps that are running. While there are any, the call is not suspended.
    pub(super) running_steps: usize,
    /// Steps that began within a step without a result, by its key.
    within: HashMap<JournalKey, Vec<JournalKey>>,
    /// True if a step without a recorded result has begun before the tool had read all values.
    pub(super) begins_anew: bool,
    /// First error of the replay. It replaces the call's result.
    pub(super) failure: Option<ReplayError>,
    /// Store for the claims of steps that run at most once. Only set in rounds that a client can repeat.
    pub(super) claims: Option<SharedState>,
}

impl Replay {
    pub(super) fn resume(
        &mut self,
        state: Option<RequestState>,
        responses: InputResponses,
        claims: SharedState,
    ) {
        match state {
            Some(state) => {
                self.journal = Journal::resume(state, responses);
                self.claims = Some(claims);
            }
            None => self.journal = Journal::with_early_responses(responses),
        }
        self.state = ReplayState::Replaying;
        self.update_state();
    }

    /// Takes the journal that has to be fetched. Until then the call takes no requests.
    pub(super) fn take_stored(&mut self) -> Option<StoredJournal> {
        match std::mem::replace(&mut self.state, ReplayState::Closed) {
            ReplayState::Fetching(stored) => Some(stored),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Goes from `Replaying` to `Live` once the tool has read all values.
    fn update_state(&mut self) {
        if matches!(self.state, ReplayState::Replaying) && !self.journal.has_unread() {
            self.state = ReplayState::Live;
        }
    }

    pub(super) fn read(&mut self, key: JournalKey) -> Option<Recorded> {
        let recorded = self.journal.read(key);
        self.update_state();
        recorded
    }

    pub(super) fn open_request(
        &mut self,
        kind: RequestKind,
        digest: [u8; 16],
        name: Option<Box<str>>,
        params: Box<str>,
        is_in_step: bool,
    ) -> Result<OpenOutcome, ClientRequestError> {
        if matches!(self.state, ReplayState::Closed) {
            return Err(ClientRequestError::Ended);
        }
        let key = self.journal.next_key(kind as u8, digest);
        if let Some(recorded) = self.read(key) {
            return Ok(OpenOutcome::Recorded(recorded));
        }
        if let Some(name) = &name
            && let Some(recorded) = self.journal.take_early(key, name)
        {
            return Ok(OpenOutcome::Recorded(recorded));
        }
        // The call is not suspended while the step runs, and the step would wait for the response.
        if is_in_step {
            let problem = "a step sends it; send it before or after the step";
            return Err(ClientRequestError::InvalidRequest(problem.to_owned()));
        }
        if PENDING_MAX <= self.pending.len() {
            return Err(ClientRequestError::TooMany("64 in one call"));
        }
        let request = Arc::new(PendingRequest::new(kind, key, name, params));
        self.pending.push(Arc::clone(&request));
        Ok(OpenOutcome::Pending(request))
    }

    /// Notes a step that begins within a running one.
    pub(super) fn note_within(&mut self, outer: JournalKey, key: JournalKey) {
        let inner = self.within.entry(outer).or_default();
        if !inner.contains(&key) {
            inner.push(key);
        }
    }

    pub(super) fn end_step(&mut self, key: JournalKey, result: Option<Box<str>>) {
        self.running_steps -= 1;
        match result {
            Some(result) => {
                self.remove_within(key);
                self.journal.record(key, result);
            }
            None => {
                // The next attempt reads the results of the steps within this one.
                for inner in self.within.get(&key).into_iter().flatten() {
                    self.journal.rewind(*inner);
                }
                self.journal.take_back(key);
            }
        }
        self.update_state();
    }

    /// Removes the results of the steps within a step, which has one now.
    fn remove_within(&mut self, key: JournalKey) {
        for inner in self.within.remove(&key).unwrap_or_default() {
            self.remove_within(inner);
            self.journal.remove(inner);
        }
    }

    pub(super) fn drop_unread(&mut self) {
        self.journal.remove_unread();
        self.update_state();
    }

    pub(super) fn withdraw(&mut self, request: &Arc<PendingRequest>) {
        let position = self
            .pending
            .iter()
            .position(|pending| Arc::ptr_eq(pending, request));
        if let Some(position) = position {
            self.pending.remove(position);
            if position < self.taken {
                self.taken -= 1;
            }
        }
    }

    pub(super) fn suspension(&mut self, is_resumable: bool) -> Option<Suspension> {
        if let Some(error) = &self.failure {
            return Some(Suspension::Failed(error.clone()));
        }
        // While the tool replays, another of its futures can still be on its way to a recorded value.
        let is_live = matches!(self.state, ReplayState::Live);
        if !is_resumable || !is_live || self.pending.is_empty() || 0 < self.running_steps {
            return None;
        }
        self.state = ReplayState::Closed;
        Some(Suspension::InputRequired(InputRound {
            requests: std::mem::take(&mut self.pending),
            state: self.journal.snapshot(),
        }))
    }
}
