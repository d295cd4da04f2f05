//! Encrypted state of a request that waits for client input (`requestState`).

use super::session::Reader;
use super::{KeyRing, Purpose};

const LAYOUT: u8 = 1;
/// Layout of a state that only refers to a stored journal.
const LAYOUT_REFERENCE: u8 = 2;
const KIND: &str = "request state 1";

/// Maximum age of a request with several rounds, in seconds: a day.
pub const MAX_AGE_SECONDS: u64 = 24 * 60 * 60;

/// Maximum size of the journal that travels through the client, in bytes.
pub const JOURNAL_MAX_BYTES: usize = 64 * 1024;

/// Maximum size of a stored journal, in bytes.
pub const STORED_MAX_BYTES: usize = 1024 * 1024;

/// Journal of a call that is suspended: the content of its resume token.
///
/// It travels through the client, encrypted and authenticated. It is valid for one principal and one request, until it
/// expires. A client can send it several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestState {
    /// Random ID of the call, which is the same in all rounds.
    pub call_id: [u8; 16],
    /// End of the first round, in seconds of Unix time.
    pub started_at: u64,
    /// Completed entries.
    pub entries: Vec<JournalEntry>,
    /// Requests of the last round, whose responses are due.
    pub requests: Vec<RequestName>,
}

/// Identifies a response or the result of a step within one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JournalKey {
    /// Kind of the entry.
    pub kind: u8,
    /// Digest of the client request, or of the step's name.
    pub digest: [u8; 16],
    /// Number of equal entries before it.
    pub nth: u32,
}

/// A completed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    pub key: JournalKey,
    /// JSON text.
    pub value: Box<str>,
}

/// A client request, and its name in `inputRequests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestName {
    pub key: JournalKey,
    pub name: Box<str>,
}

/// An opened state.
#[derive(Debug, PartialEq, Eq)]
pub enum OpenedState {
    /// The state contains the journal.
    Inline(RequestState),
    /// The state is a reference to a stored journal, by its ID.
    Stored([u8; 16]),
}

/// Scope of a state: principal and request.
#[derive(Clone, Copy, Debug)]
pub struct StateScope<'a> {
    pub endpoint: &'a str,
    /// ID of the principal that sent the request.
    pub principal: &'a str,
    /// Digest of the request's method, its target and its arguments.
    pub target: [u8; 32],
}

/// The journal exceeds its maximum size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl RequestState {
    /// Seals the state. It expires at a time in seconds of Unix time.
    ///
    /// # Errors
    ///
    /// The journal is larger than [`JOURNAL_MAX_BYTES`].
    pub fn seal(
        &self,
        keys: &KeyRing,
        scope: StateScope<'_>,
        expires: u64,
    ) -> Result<String, TooLarge> {
        self.seal_within(JOURNAL_MAX_BYTES, keys, scope, expires)
    }

    /// Seals the state for storage.
    ///
    /// # Errors
    ///
    /// The journal is larger than [`STORED_MAX_BYTES`].
    pub fn seal_for_storage(
        &self,
        keys: &KeyRing,
        scope: StateScope<'_>,
        expires: u64,
    ) -> Result<String, TooLarge> {
        self.seal_within(STORED_MAX_BYTES, keys, scope, expires)
    }

    /// Seals a reference to a stored journal.
    pub fn seal_reference(
        keys: &KeyRing,
        scope: StateScope<'_>,
        expires: u64,
        id: [u8; 16],
    ) -> String {
        let mut plain = scope.header(LAYOUT_REFERENCE, expires);
        plain.extend_from_slice(&id);
        keys.seal(scope.purpose(), &plain)
    }

    fn seal_within(
        &self,
        max: usize,
        keys: &KeyRing,
        scope: StateScope<'_>,
        expires: u64,
    ) -> Result<String, TooLarge> {
        let mut plain = scope.header(LAYOUT, expires);
        plain.extend_from_slice(&self.call_id);
        plain.extend_from_slice(&self.started_at.to_le_bytes());
        plain.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            entry.key.write(&mut plain);
            plain.extend_from_slice(&(entry.value.len() as u32).to_le_bytes());
            plain.extend_from_slice(entry.value.as_bytes());
            if max < plain.len() {
                return Err(TooLarge);
            }
        }
        for request in &self.requests {
            request.key.write(&mut plain);
            let length = u8::try_from(request.name.len()).map_err(|_| TooLarge)?;
            plain.push(length);
            plain.extend_from_slice(request.name.as_bytes());
        }
        if max < plain.len() {
            return Err(TooLarge);
        }
        Ok(keys.seal(scope.purpose(), &plain))
    }

    /// Opens a state that a client sent. `None` if it is not ours, expired, or belongs to another request.
    pub fn open(
        keys: &KeyRing,
        scope: StateScope<'_>,
        sealed: &str,
        now: u64,
    ) -> Option<OpenedState> {
        // Base64 encodes three bytes as four; the rest of the state is small.
        if 2 * JOURNAL_MAX_BYTES < sealed.len() {
            return None;
        }
        Self::open_any(keys, scope, sealed, now)
    }

    /// Opens a stored journal. `None` as in `open`.
    pub fn open_stored(
        keys: &KeyRing,
        scope: StateScope<'_>,
        sealed: &str,
        now: u64,
    ) -> Option<Self> {
        match Self::open_any(keys, scope, sealed, now)? {
            OpenedState::Inline(state) => Some(state),
            OpenedState::Stored(_) => None,
        }
    }

    fn open_any(
        keys: &KeyRing,
        scope: StateScope<'_>,
        sealed: &str,
        now: u64,
    ) -> Option<OpenedState> {
        let plain = keys.open(scope.purpose(), sealed.as_bytes())?;
        let mut rest = Reader(&plain);
        let [layout] = rest.array()?;
        if u64::from_le_bytes(rest.array()?) <= now || rest.array()? != scope.digest() {
            return None;
        }
        match layout {
            LAYOUT => {}
            LAYOUT_REFERENCE => return rest.array().map(OpenedState::Stored),
            _ => return None,
        }
        let call_id = rest.array()?;
        let started_at = u64::from_le_bytes(rest.array()?);
        if started_at + MAX_AGE_SECONDS <= now {
            return None;
        }
        let count = u32::from_le_bytes(rest.array()?);
        let mut state = Self {
            call_id,
            started_at,
            ..Self::default()
        };
        for _ in 0..count {
            let key = JournalKey::read(&mut rest)?;
            let length = u32::from_le_bytes(rest.array()?) as usize;
            let value = std::str::from_utf8(rest.bytes(length)?).ok()?.into();
            state.entries.push(JournalEntry { key, value });
        }
        while !rest.0.is_empty() {
            state.requests.push(RequestName {
                key: JournalKey::read(&mut rest)?,
                name: rest.text()?,
            });
        }
        Some(OpenedState::Inline(state))
    }
}

impl StateScope<'_> {
    fn purpose(&self) -> Purpose<'_> {
        Purpose {
            kind: KIND,
            endpoint: self.endpoint,
        }
    }

    /// Returns the beginning of a state: its layout, its expiry and what it belongs to.
    fn header(&self, layout: u8, expires: u64) -> Vec<u8> {
        let mut header = vec![layout];
        header.extend_from_slice(&expires.to_le_bytes());
        header.extend_from_slice(&self.digest());
        header
    }

    fn digest(&self) -> [u8; 32] {
        super::digest(&[self.principal.as_bytes(), &self.target])
    }
}

impl JournalKey {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        out.extend_from_slice(&self.digest);
        out.extend_from_slice(&self.nth.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let [kind] = from.array()?;
        Some(Self {
            kind,
            digest: from.array()?,
            nth: u32::from_le_bytes(from.array()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn scope() -> StateScope<'static> {
        StateScope {
            endpoint: "mcp",
            principal: "ada",
            target: [7; 32],
        }
    }

    fn state(value: &str) -> RequestState {
        let key = JournalKey {
            kind: 1,
            digest: [3; 16],
            nth: 2,
        };
        RequestState {
            call_id: [9; 16],
            started_at: NOW,
            entries: vec![JournalEntry {
                key,
                value: value.into(),
            }],
            requests: vec![RequestName {
                key,
                name: "user_name".into(),
            }],
        }
    }

    #[test]
    fn mrtr_05_a_state_opens_for_its_request_only_and_in_its_time() {
        let keys = KeyRing::random();
        let state = state("\"an answer\"");
        let sealed = state.seal(&keys, scope(), NOW + 900).expect("small");
        let open = |scope, now| RequestState::open(&keys, scope, &sealed, now);
        let whole = OpenedState::Inline(state.clone());
        assert_eq!(open(scope(), NOW).as_ref(), Some(&whole));
        assert_eq!(open(scope(), NOW + 899).as_ref(), Some(&whole));
        assert_eq!(open(scope(), NOW + 900), None);
        for other in [
            StateScope {
                endpoint: "other",
                ..scope()
            },
            StateScope {
                principal: "eve",
                ..scope()
            },
            StateScope {
                target: [8; 32],
                ..scope()
            },
        ] {
            assert_eq!(open(other, NOW), None);
        }
        assert_eq!(
            RequestState::open(&KeyRing::random(), scope(), &sealed, NOW),
            None
        );
        let endless = state.seal(&keys, scope(), u64::MAX).expect("small");
        let open = |now| RequestState::open(&keys, scope(), &endless, now);
        assert!(open(NOW + MAX_AGE_SECONDS - 1).is_some());
        assert_eq!(open(NOW + MAX_AGE_SECONDS), None);
        let tampered = format!("{sealed}-TAMPERED");
        assert_eq!(RequestState::open(&keys, scope(), &tampered, NOW), None);
        assert_eq!(RequestState::open(&keys, scope(), "", NOW), None);
    }

    #[test]
    fn mrtr_05_a_reference_to_a_stored_journal_has_the_scope_of_the_journal() {
        let keys = KeyRing::random();
        let referred = RequestState::seal_reference(&keys, scope(), NOW + 900, [5; 16]);
        let open = |scope, now| RequestState::open(&keys, scope, &referred, now);
        assert_eq!(open(scope(), NOW), Some(OpenedState::Stored([5; 16])));
        assert_eq!(open(scope(), NOW + 900), None);
        let other = StateScope {
            principal: "eve",
            ..scope()
        };
        assert_eq!(open(other, NOW), None);
        // A reference is not a journal.
        assert_eq!(
            RequestState::open_stored(&keys, scope(), &referred, NOW),
            None
        );
        let state = state(&"x".repeat(2 * JOURNAL_MAX_BYTES));
        let kept = state
            .seal_for_storage(&keys, scope(), NOW + 900)
            .expect("fits");
        assert_eq!(RequestState::open(&keys, scope(), &kept, NOW), None);
        assert_eq!(
            RequestState::open_stored(&keys, scope(), &kept, NOW),
            Some(state)
        );
        assert_eq!(RequestState::open_stored(&keys, other, &kept, NOW), None);
        assert_eq!(
            RequestState::open_stored(&keys, scope(), &kept, NOW + 900),
            None
        );
    }

    #[test]
    fn a_state_is_bounded() {
        let keys = KeyRing::random();
        let large = |bytes: usize| state(&"x".repeat(bytes)).seal(&keys, scope(), NOW + 1);
        let most = (0..200)
            .map(|spare| JOURNAL_MAX_BYTES - spare)
            .find(|bytes| large(*bytes).is_ok())
            .expect("something fits");
        let sealed = large(most).expect("fits");
        assert!(RequestState::open(&keys, scope(), &sealed, NOW).is_some());
        assert_eq!(large(most + 1), Err(TooLarge));
        let long = "x".repeat(3 * JOURNAL_MAX_BYTES);
        assert_eq!(RequestState::open(&keys, scope(), &long, NOW), None);
    }
}
