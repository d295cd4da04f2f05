//! The journal of a call: responses and results of durable steps, from earlier rounds and from this one.
//!
//! Plain data without locks or wakers. [`ReplaySession`](super::ReplaySession) owns it.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::step::STEP;
use crate::seal::{JournalEntry, JournalKey, RequestState, random_bytes};

/// Responses of the client in this round, by the name of their request.
pub type InputResponses = HashMap<Box<str>, Box<RawValue>>;

/// Values that the tool is given instead of sending a request or running a step again.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// ID of the call, and the time of its first round in Unix seconds. `None` until the first round ends.
    origin: Option<([u8; 16], u64)>,
    entries: HashMap<JournalKey, Entry>,
    /// Keys in the order of recording, which is the order in the resume token.
    order: Vec<JournalKey>,
    /// Responses that came without a resume token. Only requests with a name of their own can take them.
    early: HashMap<Box<str>, Box<str>>,
    /// Number of requests and steps in this round, by kind and digest.
    occurrences: HashMap<(u8, [u8; 16]), u32>,
    /// Number of entries of earlier rounds, and of responses, that the tool has not read.
    unread: usize,
}

#[derive(Debug)]
struct Entry {
    /// JSON text.
    value: Box<str>,
    /// Name under which the client sent the value in this round.
    response_name: Option<Box<str>>,
    is_read: bool,
}

/// A value of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// JSON text.
    pub(super) value: Box<str>,
    /// Name under which the client sent the value in this round. `None` if it was accepted in an earlier one.
    pub(super) response_name: Option<Box<str>>,
}

impl Journal {
    /// Creates the journal of a call whose client sent a resume token.
    ///
    /// Only responses to requests of the token's round count; others are ignored.
    pub(super) fn resume(state: RequestState, responses: InputResponses) -> Self {
        let mut journal = Self {
            origin: Some((state.call_id, state.started_at)),
            ..Self::default()
        };
        for JournalEntry { key, value } in state.entries {
            journal.insert_unread(key, value, None);
        }
        let mut responses = texts(responses);
        for request in state.requests {
            if let Some(value) = responses.remove(&request.name) {
                journal.insert_unread(request.key, value, Some(request.name));
            }
        }
        journal
    }

    /// Creates the journal of a call whose client sent responses before it was asked.
    pub(super) fn with_early_responses(responses: InputResponses) -> Self {
        Self {
            early: texts(responses),
            ..Self::default()
        }
    }

    /// Returns the ID of the call, which is the same in all rounds. `None` until the first round ends.
    pub(super) fn call_id(&self) -> Option<[u8; 16]> {
        self.origin.map(|(call_id, _)| call_id)
    }

    /// Returns true if values remain that the tool has not read.
    pub(super) fn has_unread(&self) -> bool {
        0 < self.unread
    }

    /// Returns the key of the next request or step of a kind and digest.
    pub(super) fn next_key(&mut self, kind: u8, digest: [u8; 16]) -> JournalKey {
        let occurrences = self.occurrences.entry((kind, digest)).or_default();
        let nth = *occurrences;
        *occurrences += 1;
        JournalKey { kind, digest, nth }
    }

    /// Gives the last key of its kind and digest out again.
    pub(super) fn take_back(&mut self, key: JournalKey) {
        if let Some(occurrences) = self.occurrences.get_mut(&(key.kind, key.digest))
            && *occurrences == key.nth + 1
        {
            *occurrences = key.nth;
        }
    }

    /// Returns the value of a key, if there is one.
    pub(super) fn read(&mut self, key: JournalKey) -> Option<Recorded> {
        let entry = self.entries.get_mut(&key)?;
        if !std::mem::replace(&mut entry.is_read, true) {
            self.unread -= 1;
        }
        Some(Recorded {
            value: entry.value.clone(),
            response_name: entry.response_name.clone(),
        })
    }

    /// Takes the early response to a request with a name of its own, and records it.
    pub(super) fn take_early(&mut self, key: JournalKey, name: &str) -> Option<Recorded> {
        let value = self.early.remove(name)?;
        self.record(key, value.clone());
        Some(Recorded {
            value,
            response_name: Some(name.into()),
        })
    }

    /// Records a value of this round, which the tool has.
    pub(super) fn record(&mut self, key: JournalKey, value: Box<str>) {
        let entry = Entry {
            value,
            response_name: None,
            is_read: true,
        };
        self.insert(key, entry);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: JournalKey) {
        if let Some(entry) = self.entries.remove(&key) {
            self.unread -= usize::from(!entry.is_read);
            self.order.retain(|other| *other != key);
        }
    }

    /// Gives a key out again, with those of its kind and digest after it.
    pub(super) fn rewind(&mut self, key: JournalKey) {
        if let Some(occurrences) = self.occurrences.get_mut(&(key.kind, key.digest)) {
            *occurrences = (*occurrences).min(key.nth);
        }
    }

    /// Removes the responses that the tool has not read. Results of steps stay, because their effects have happened.
    pub(super) fn remove_unread(&mut self) {
        self.entries
            .retain(|key, entry| entry.is_read || key.kind == STEP);
        for entry in self.entries.values_mut() {
            entry.is_read = true;
        }
        self.order.retain(|key| self.entries.contains_key(key));
        self.unread = 0;
    }

    /// Returns what the next round needs: everything recorded, in order, under the call's ID.
    pub(super) fn snapshot(&mut self) -> RequestState {
        let (call_id, started_at) = *self.origin.get_or_insert_with(|| (random_bytes(), 0));
        let entries = self.order.iter().filter_map(|key| {
            self.entries.get(key).map(|entry| JournalEntry {
                key: *key,
                value: entry.value.clone(),
            })
        });
        RequestState {
            call_id,
            started_at,
            entries: entries.collect(),
            requests: Vec::new(),
        }
    }

    fn insert_unread(&mut self, key: JournalKey, value: Box<str>, response_name: Option<Box<str>>) {
        let entry = Entry {
            value,
            response_name,
            is_read: false,
        };
        if self.insert(key, entry) {
            self.unread += 1;
        }
    }

    /// Inserts an entry. Returns false if it replaces one.
    fn insert(&mut self, key: JournalKey, entry: Entry) -> bool {
        let is_new = self.entries.insert(key, entry).is_none();
        if is_new {
            self.order.push(key);
        }
        is_new
    }
}

fn texts(responses: InputResponses) -> HashMap<Box<str>, Box<str>> {
    responses
        .into_iter()
        .map(|(name, value)| (name, Box::from(value.get())))
        .collect()
}
