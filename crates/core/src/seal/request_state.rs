//! Encrypted state of a request that waits for client input (`requestState`).

use super::session::Reader;
use super::{KeyRing, Purpose};

const LAYOUT: u8 = 1;
/// Layout of a state that only refers to a stored journal.
const LAYOUT_KEPT: u8 = 2;
const KIND: &str = "request state 1";

/// Maximum age of a request with several rounds, in seconds: a day.
pub const LIFE_SECONDS_MAX: u64 = 24 * 60 * 60;

/// Maximum size of the journal that travels through the client, in bytes.
pub const JOURNAL_MAX_BYTES: usize = 64 * 1024;

/// Maximum size of a stored journal, in bytes.
pub const KEPT_MAX_BYTES: usize = 1024 * 1024;

/// The journal of a request that is answered in rounds.
///
/// It travels through the client. Nobody can read or change it, and it is good for one principal and one request,
/// for some minutes. It is not good for one use only: a client may send it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestState {
    /// Drawn in the first round; the same in all.
    pub root: [u8; 16],
    /// When the first round ended, in seconds of Unix time.
    pub begun: u64,
    /// Completed entries.
    pub entries: Vec<JournalEntry>,
    /// Client requests of the last round.
    pub asked: Vec<AskedQuestion>,
}

/// Names an answer or the result of a step within one request.
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

/// A question that waits for its answer, and the name that it goes by in `inputRequests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedQuestion {
    pub key: JournalKey,
    pub name: Box<str>,
}

/// An opened state.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// The journal itself.
    Whole(RequestState),
    /// Under which name the sealed journal is kept.
    Kept([u8; 16]),
}

/// Scope of a state: principal and request.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    pub mount: &'a str,
    /// Whose request it is.
    pub principal: &'a str,
    /// Digest of the request's method, and of what it names with which arguments.
    pub target: [u8; 32],
}

/// More than may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl RequestState {
    /// Seals it until a time, in seconds of Unix time.
    ///
    /// # Errors
    ///
    /// It holds more than [`JOURNAL_MAX_BYTES`].
    pub fn seal(
        &self,
        keys: &KeyRing,
        binding: Binding<'_>,
        expires: u64,
    ) -> Result<String, TooLarge> {
        self.seal_within(JOURNAL_MAX_BYTES, keys, binding, expires)
    }

    /// Seals it to be kept elsewhere.
    ///
    /// # Errors
    ///
    /// It holds more than [`KEPT_MAX_BYTES`].
    pub fn seal_to_keep(
        &self,
        keys: &KeyRing,
        binding: Binding<'_>,
        expires: u64,
    ) -> Result<String, TooLarge> {
        self.seal_within(KEPT_MAX_BYTES, keys, binding, expires)
    }

    /// Seals a reference to a journal that is stored under a name.
    pub fn refer(keys: &KeyRing, binding: Binding<'_>, expires: u64, name: [u8; 16]) -> String {
        let mut plain = vec![LAYOUT_KEPT];
        plain.extend_from_slice(&expires.to_le_bytes());
        plain.extend_from_slice(&binding.digest());
        plain.extend_from_slice(&name);
        let purpose = Purpose {
            kind: KIND,
            mount: binding.mount,
        };
        keys.seal(purpose, &plain)
    }

    fn seal_within(
        &self,
        max: usize,
        keys: &KeyRing,
        binding: Binding<'_>,
        expires: u64,
    ) -> Result<String, TooLarge> {
        let mut plain = vec![LAYOUT];
        plain.extend_from_slice(&expires.to_le_bytes());
        plain.extend_from_slice(&binding.digest());
        plain.extend_from_slice(&self.root);
        plain.extend_from_slice(&self.begun.to_le_bytes());
        plain.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            entry.key.write(&mut plain);
            plain.extend_from_slice(&(entry.value.len() as u32).to_le_bytes());
            plain.extend_from_slice(entry.value.as_bytes());
            if max < plain.len() {
                return Err(TooLarge);
            }
        }
        for asked in &self.asked {
            asked.key.write(&mut plain);
            let length = u8::try_from(asked.name.len()).map_err(|_| TooLarge)?;
            plain.push(length);
            plain.extend_from_slice(asked.name.as_bytes());
        }
        if max < plain.len() {
            return Err(TooLarge);
        }
        let purpose = Purpose {
            kind: KIND,
            mount: binding.mount,
        };
        Ok(keys.seal(purpose, &plain))
    }

    /// Opens a state that a client sent. `None` if it is foreign, expired, or belongs to another request.
    pub fn open(keys: &KeyRing, binding: Binding<'_>, sealed: &str, now: u64) -> Option<Opened> {
        // Base64 encodes three bytes as four; the rest of the state is small.
        if 2 * JOURNAL_MAX_BYTES < sealed.len() {
            return None;
        }
        Self::open_any(keys, binding, sealed, now)
    }

    /// Opens a stored journal. `None` as in `open`.
    pub fn open_kept(keys: &KeyRing, binding: Binding<'_>, sealed: &str, now: u64) -> Option<Self> {
        match Self::open_any(keys, binding, sealed, now)? {
            Opened::Whole(state) => Some(state),
            Opened::Kept(_) => None,
        }
    }

    fn open_any(keys: &KeyRing, binding: Binding<'_>, sealed: &str, now: u64) -> Option<Opened> {
        let purpose = Purpose {
            kind: KIND,
            mount: binding.mount,
        };
        let plain = keys.open(purpose, sealed.as_bytes())?;
        let mut rest = Reader(&plain);
        let [layout] = rest.array()?;
        if u64::from_le_bytes(rest.array()?) <= now || rest.array()? != binding.digest() {
            return None;
        }
        match layout {
            LAYOUT => {}
            LAYOUT_KEPT => return rest.array().map(Opened::Kept),
            _ => return None,
        }
        let root = rest.array()?;
        let begun = u64::from_le_bytes(rest.array()?);
        if begun + LIFE_SECONDS_MAX <= now {
            return None;
        }
        let count = u32::from_le_bytes(rest.array()?);
        let mut state = Self {
            root,
            begun,
            ..Self::default()
        };
        for _ in 0..count {
            let key = JournalKey::read(&mut rest)?;
            let length = u32::from_le_bytes(rest.array()?) as usize;
            let value = std::str::from_utf8(rest.bytes(length)?).ok()?.into();
            state.entries.push(JournalEntry { key, value });
        }
        while !rest.0.is_empty() {
            state.asked.push(AskedQuestion {
                key: JournalKey::read(&mut rest)?,
                name: rest.text()?,
            });
        }
        Some(Opened::Whole(state))
    }
}

impl Binding<'_> {
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

    fn binding() -> Binding<'static> {
        Binding {
            mount: "mcp",
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
            root: [9; 16],
            begun: NOW,
            entries: vec![JournalEntry {
                key,
                value: value.into(),
            }],
            asked: vec![AskedQuestion {
                key,
                name: "user_name".into(),
            }],
        }
    }

    #[test]
    fn mrtr_05_a_state_opens_for_its_request_only_and_in_its_time() {
        let keys = KeyRing::random();
        let state = state("\"an answer\"");
        let sealed = state.seal(&keys, binding(), NOW + 900).expect("small");
        let open = |binding, now| RequestState::open(&keys, binding, &sealed, now);
        let whole = Opened::Whole(state.clone());
        assert_eq!(open(binding(), NOW).as_ref(), Some(&whole));
        assert_eq!(open(binding(), NOW + 899).as_ref(), Some(&whole));
        assert_eq!(open(binding(), NOW + 900), None);
        for other in [
            Binding {
                mount: "other",
                ..binding()
            },
            Binding {
                principal: "eve",
                ..binding()
            },
            Binding {
                target: [8; 32],
                ..binding()
            },
        ] {
            assert_eq!(open(other, NOW), None);
        }
        assert_eq!(
            RequestState::open(&KeyRing::random(), binding(), &sealed, NOW),
            None
        );
        let endless = state.seal(&keys, binding(), u64::MAX).expect("small");
        let open = |now| RequestState::open(&keys, binding(), &endless, now);
        assert!(open(NOW + LIFE_SECONDS_MAX - 1).is_some());
        assert_eq!(open(NOW + LIFE_SECONDS_MAX), None);
        let tampered = format!("{sealed}-TAMPERED");
        assert_eq!(RequestState::open(&keys, binding(), &tampered, NOW), None);
        assert_eq!(RequestState::open(&keys, binding(), "", NOW), None);
    }

    #[test]
    fn mrtr_05_a_state_that_names_where_its_journal_is_kept_is_as_good_as_the_journal() {
        let keys = KeyRing::random();
        let referred = RequestState::refer(&keys, binding(), NOW + 900, [5; 16]);
        let open = |binding, now| RequestState::open(&keys, binding, &referred, now);
        assert_eq!(open(binding(), NOW), Some(Opened::Kept([5; 16])));
        assert_eq!(open(binding(), NOW + 900), None);
        let other = Binding {
            principal: "eve",
            ..binding()
        };
        assert_eq!(open(other, NOW), None);
        // One does not stand for another.
        assert_eq!(
            RequestState::open_kept(&keys, binding(), &referred, NOW),
            None
        );
        let state = state(&"x".repeat(2 * JOURNAL_MAX_BYTES));
        let kept = state
            .seal_to_keep(&keys, binding(), NOW + 900)
            .expect("fits");
        assert_eq!(RequestState::open(&keys, binding(), &kept, NOW), None);
        assert_eq!(
            RequestState::open_kept(&keys, binding(), &kept, NOW),
            Some(state)
        );
        assert_eq!(RequestState::open_kept(&keys, other, &kept, NOW), None);
        assert_eq!(
            RequestState::open_kept(&keys, binding(), &kept, NOW + 900),
            None
        );
    }

    #[test]
    fn a_state_is_bounded() {
        let keys = KeyRing::random();
        let large = |bytes: usize| state(&"x".repeat(bytes)).seal(&keys, binding(), NOW + 1);
        let most = (0..200)
            .map(|spare| JOURNAL_MAX_BYTES - spare)
            .find(|bytes| large(*bytes).is_ok())
            .expect("something fits");
        let sealed = large(most).expect("fits");
        assert!(RequestState::open(&keys, binding(), &sealed, NOW).is_some());
        assert_eq!(large(most + 1), Err(TooLarge));
        let long = "x".repeat(3 * JOURNAL_MAX_BYTES);
        assert_eq!(RequestState::open(&keys, binding(), &long, NOW), None);
    }
}
