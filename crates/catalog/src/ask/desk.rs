//! The questions and steps of one call, and what is settled of them.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::question::{ClientError, Slot, SlotKey};
use super::{AskError, Asking};
use crate::seal::{JournalEntry, JournalKey, RequestState, random_bytes};
use crate::state::SharedState;

/// What one call has asked, and what it was told, in this round and in those before it.
#[derive(Debug, Default)]
pub struct Desk(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The same in all rounds of a call, and when it began; `None` in the first until that ends.
    root: Option<([u8; 16], u64)>,
    /// Where steps are noted that must not be taken twice; there where the call may have been taken further before.
    ledger: Option<SharedState>,
    settled: HashMap<JournalKey, Settled>,
    /// In the order in which it was settled; sealed in that order.
    order: Vec<JournalKey>,
    /// Answers to questions that have a name of their own, and came without a state.
    by_name: HashMap<Box<str>, Box<str>>,
    /// How often the same was asked or done in this round.
    seen: HashMap<(u8, [u8; 16]), u32>,
    /// What waits for an answer, in the order in which it was asked.
    open: Vec<Arc<Slot>>,
    /// How many of those the server has seen.
    taken: usize,
    /// Answers that the tool has not come to yet.
    unused: usize,
    /// Steps that are being taken.
    steps: usize,
    fault: Option<Fault>,
    closed: bool,
    /// What is settled is kept elsewhere, and has to be got first.
    kept: Option<Kept>,
}

/// Gets what is settled from where it is kept, or says why it is not there.
pub(crate) type GetJournal = BoxFuture<'static, Result<RequestState, Fault>>;

/// What a call needs before it can begin anew.
struct Kept {
    get: GetJournal,
    responses: HashMap<Box<str>, Box<RawValue>>,
    ledger: SharedState,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

#[derive(Debug)]
struct Settled {
    value: Box<str>,
    /// Under which name the client has sent it in this round.
    fresh: Option<Box<str>>,
    used: bool,
}

/// Why a call cannot go on, whatever it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It asks or does something else than before. The tool is at fault.
    Departed(String),
    /// What the client has sent is no answer to what it was asked (MRTR-09). Under which name, and why.
    BadAnswer(String),
    /// What was settled cannot be got from where it is kept. Why.
    Lost(String),
}

/// What ends a call before it has a result.
#[derive(Debug)]
pub enum Interruption {
    Round(Round),
    Fault(Fault),
}

/// The questions of one round, and what is settled.
#[derive(Debug)]
pub struct Round {
    pub questions: Vec<Arc<Slot>>,
    pub state: RequestState,
}

/// What a question finds on the desk.
#[derive(Debug)]
pub(super) enum Begun {
    /// Its answer, and the name under which it has come, if that was in this round.
    Answered(Box<str>, Option<Box<str>>),
    Open(Arc<Slot>),
}

/// So many questions of one call may wait at once.
const OPEN_MAX: usize = 64;

impl Desk {
    /// The desk of a call that begins anew: what it has learnt, and what its client says now, by name.
    pub fn resume(
        state: Option<RequestState>,
        responses: HashMap<Box<str>, Box<RawValue>>,
        ledger: SharedState,
    ) -> Self {
        let mut desk = State::default();
        desk.resume(state, responses, ledger);
        Self(Mutex::new(desk))
    }

    /// The desk of a call that begins anew once what is settled is there.
    pub fn resume_with(
        get: GetJournal,
        responses: HashMap<Box<str>, Box<RawValue>>,
        ledger: SharedState,
    ) -> Self {
        let kept = Kept {
            get,
            responses,
            ledger,
        };
        Self(Mutex::new(State {
            kept: Some(kept),
            ..State::default()
        }))
    }

    /// An id of the call that is the same in all of its rounds; `None` in the first until that ends with a question.
    pub(super) fn root(&self) -> Option<[u8; 16]> {
        self.state().root.map(|(root, _)| root)
    }

    /// Whether what is settled has to be got first.
    pub(super) fn is_kept_elsewhere(&self) -> bool {
        self.state().kept.is_some()
    }

    /// Gets what is settled. If that fails the call does not begin: it ends with that as its fault.
    pub(super) async fn fetch(&self) {
        let Some(Kept {
            get,
            responses,
            ledger,
        }) = self.state().kept.take()
        else {
            return;
        };
        match get.await {
            Ok(state) => self.state().resume(Some(state), responses, ledger),
            Err(fault) => {
                self.fail(fault);
                std::future::pending::<()>().await;
            }
        }
    }

    /// Puts a question on the desk, or takes its answer.
    pub(super) fn ask(&self, key: SlotKey) -> Result<Begun, AskError> {
        let mut desk = self.state();
        if desk.closed {
            return Err(AskError::Ended);
        }
        let place = desk.next(key.kind as u8, key.digest);
        if let Some((value, fresh)) = desk.recall(place) {
            return Ok(Begun::Answered(value, fresh));
        }
        if let Some(name) = &key.name
            && let Some(value) = desk.by_name.remove(name)
        {
            let name = name.clone();
            desk.order.push(place);
            let settled = Settled {
                value: value.clone(),
                fresh: None,
                used: true,
            };
            desk.settled.insert(place, settled);
            return Ok(Begun::Answered(value, Some(name)));
        }
        if OPEN_MAX <= desk.open.len() {
            return Err(AskError::TooMany("64 in one call"));
        }
        let slot = Arc::new(Slot::new(key, place));
        desk.open.push(Arc::clone(&slot));
        Ok(Begun::Open(slot))
    }

    /// A question that nobody waits for any more.
    pub(super) fn withdraw(&self, slot: &Arc<Slot>) {
        let mut desk = self.state();
        if let Some(at) = desk.open.iter().position(|open| Arc::ptr_eq(open, slot)) {
            desk.open.remove(at);
            if at < desk.taken {
                desk.taken -= 1;
            }
        }
    }

    /// The questions that were put since the last time.
    pub fn take_new(&self) -> Vec<Arc<Slot>> {
        let mut desk = self.state();
        let taken = desk.taken;
        desk.taken = desk.open.len();
        desk.open[taken..].to_vec()
    }

    /// Whether questions were put since the last time.
    pub fn has_new(&self) -> bool {
        let desk = self.state();
        desk.taken < desk.open.len()
    }

    /// Whether a question waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.state().open.iter().any(|slot| slot.is_open())
    }

    /// Whether answers wait that the tool has not come to yet.
    pub(super) fn is_replaying(&self) -> bool {
        0 < self.state().unused
    }

    /// Begins a step. `Ok` if it was taken before: what it gave.
    pub(super) fn begin_step(&self, kind: u8, digest: [u8; 16]) -> Result<Box<str>, JournalKey> {
        let mut desk = self.state();
        let place = desk.next(kind, digest);
        match desk.recall(place) {
            Some((value, _)) => Ok(value),
            None => {
                desk.steps += 1;
                Err(place)
            }
        }
    }

    /// Ends a step, with what it gave if it succeeded.
    pub(super) fn end_step(&self, place: JournalKey, value: Option<Box<str>>) {
        let mut desk = self.state();
        desk.steps -= 1;
        if let Some(value) = value {
            desk.order.push(place);
            let settled = Settled {
                value,
                fresh: None,
                used: true,
            };
            desk.settled.insert(place, settled);
        }
    }

    /// Where it is noted that a step is taken which must not be taken twice, and under which key. `None` in a call
    /// that nobody can have taken further before.
    pub(super) fn ledger(&self, place: JournalKey) -> Option<(SharedState, String)> {
        let desk = self.state();
        let ((root, _), ledger) = (desk.root?, desk.ledger.clone()?);
        let mut key = "step/".to_owned();
        HEXLOWER.encode_append(&root, &mut key);
        HEXLOWER.encode_append(&place.digest, &mut key);
        let _ = write!(key, "/{}", place.nth);
        Some((ledger, key))
    }

    /// Makes the call fail, whatever it says itself. The first reason counts.
    pub(super) fn fail(&self, fault: Fault) {
        self.state().fault.get_or_insert(fault);
    }

    pub fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    /// Whether the call, which waits, ends here. It does as soon as it has asked something, unless a step is being
    /// taken, which is never broken off by a question.
    pub(super) fn interruption(&self, in_rounds: bool) -> Option<Interruption> {
        let mut desk = self.state();
        if let Some(fault) = &desk.fault {
            return Some(Interruption::Fault(fault.clone()));
        }
        if !in_rounds || desk.open.is_empty() || 0 < desk.steps || desk.closed {
            return None;
        }
        if 0 < desk.unused {
            let asks: Vec<_> = desk.open.iter().map(|slot| slot.describe()).collect();
            let fault = format!(
                "when it began anew it asked something else than before: {}",
                asks.join(", ")
            );
            return Some(Interruption::Fault(Fault::Departed(fault)));
        }
        let (root, begun) = *desk.root.get_or_insert_with(|| (random_bytes(), 0));
        let entries = desk.order.iter().filter_map(|key| {
            desk.settled.get(key).map(|settled| JournalEntry {
                key: *key,
                value: settled.value.clone(),
            })
        });
        let state = RequestState {
            root,
            begun,
            entries: entries.collect(),
            asked: Vec::new(),
        };
        desk.closed = true;
        Some(Interruption::Round(Round {
            questions: std::mem::take(&mut desk.open),
            state,
        }))
    }

    /// Nothing more is asked, and nothing more is answered. Tasks that the call has left behind find out.
    pub fn close(&self) {
        let open = {
            let mut desk = self.state();
            desk.closed = true;
            std::mem::take(&mut desk.open)
        };
        for slot in open {
            slot.answer(Err(ClientError::ended()));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn resume(
        &mut self,
        state: Option<RequestState>,
        responses: HashMap<Box<str>, Box<RawValue>>,
        ledger: SharedState,
    ) {
        let mut responses: HashMap<Box<str>, Box<str>> = responses
            .into_iter()
            .map(|(name, value)| (name, Box::from(value.get())))
            .collect();
        // Answers come with the state of the round in which they were asked for. One whose question has a name of its
        // own stands for itself.
        let Some(state) = state else {
            self.by_name = responses;
            return;
        };
        self.root = Some((state.root, state.begun));
        self.ledger = Some(ledger);
        for entry in state.entries {
            self.settle(entry.key, entry.value, None);
        }
        for asked in state.asked {
            if let Some(value) = responses.remove(&asked.name) {
                self.settle(asked.key, value, Some(asked.name));
            }
        }
    }

    fn settle(&mut self, key: JournalKey, value: Box<str>, fresh: Option<Box<str>>) {
        let settled = Settled {
            value,
            fresh,
            used: false,
        };
        if self.settled.insert(key, settled).is_none() {
            self.order.push(key);
            self.unused += 1;
        }
    }

    /// The place of what is asked or done now: how many of the same came before it.
    fn next(&mut self, kind: u8, digest: [u8; 16]) -> JournalKey {
        let seen = self.seen.entry((kind, digest)).or_default();
        let nth = *seen;
        *seen += 1;
        JournalKey { kind, digest, nth }
    }

    fn recall(&mut self, place: JournalKey) -> Option<(Box<str>, Option<Box<str>>)> {
        let settled = self.settled.get_mut(&place)?;
        if !std::mem::replace(&mut settled.used, true) {
            self.unused -= 1;
        }
        Some((settled.value.clone(), settled.fresh.clone()))
    }
}

impl Asking {
    /// Puts a question to the client.
    pub(super) fn put(&self, key: SlotKey) -> Result<Begun, AskError> {
        if let super::Client::Nobody(why) = self.client {
            return Err(AskError::Unreachable(why));
        }
        let begun = self.desk_or_new().ask(key);
        if let Ok(Begun::Open(_)) = begun {
            self.wake_driver();
        }
        begun
    }
}
