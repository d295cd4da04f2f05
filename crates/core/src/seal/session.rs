//! Sessions of the stateful lifecycle, which live in their ids.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::key_ring::{KeyRing, Purpose, random_bytes};
use crate::digest::short_digest;
use crate::protocol::{ClientCapabilities, Revision};

/// Maximum length of client names and versions, in bytes. Principal ids are never longer, so that none is truncated.
const CLIENT_TEXT_MAX_BYTES: usize = 64;
const PRINCIPAL_MAX_BYTES: usize = 128;

/// Maximum length of an id that is decrypted, in bytes.
const ID_MAX_BYTES: usize = 512;

const LAYOUT: u8 = 1;
const KIND: &str = "session 1";

/// Immutable result of `initialize`, which the session id contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub revision: Revision,
    pub capabilities: ClientCapabilities,
    pub client_name: Box<str>,
    pub client_version: Box<str>,
    pub principal: Box<str>,
    pub nonce: [u8; 16],
    /// The replica that issued it.
    pub replica: u64,
    /// In seconds of Unix time.
    pub issued: u64,
    /// In seconds of Unix time.
    pub expires: u64,
    /// The nonce in hexadecimal: names the session in logs, and opens nothing.
    pub log_name: Arc<str>,
}

/// Parameters of a new session.
#[derive(Clone, Copy, Debug)]
pub struct SessionIssue<'a> {
    pub revision: Revision,
    pub capabilities: ClientCapabilities,
    pub client_name: &'a str,
    pub client_version: &'a str,
    pub principal: &'a str,
    pub replica: u64,
    /// In seconds of Unix time.
    pub now: u64,
    /// Lifetime in seconds.
    pub life: u64,
}

impl Session {
    /// A session that begins now.
    pub fn begin(issue: SessionIssue<'_>) -> Self {
        let nonce = random_bytes();
        Self {
            revision: issue.revision,
            capabilities: issue.capabilities,
            client_name: longshore_protocol::prefix(issue.client_name, CLIENT_TEXT_MAX_BYTES)
                .into(),
            client_version: longshore_protocol::prefix(issue.client_version, CLIENT_TEXT_MAX_BYTES)
                .into(),
            principal: longshore_protocol::prefix(issue.principal, PRINCIPAL_MAX_BYTES).into(),
            nonce,
            replica: issue.replica,
            issued: issue.now,
            expires: issue.now.saturating_add(issue.life),
            log_name: log_name(&nonce),
        }
    }

    /// This session under the name of an earlier one of its client.
    pub fn in_place_of(self, earlier: &Self) -> Self {
        Self {
            nonce: earlier.nonce,
            log_name: Arc::clone(&earlier.log_name),
            ..self
        }
    }

    /// A session for an id that says nothing here. `None` if no id of a session looks like it.
    pub fn stand_in(endpoint: &str, id: &[u8], issue: SessionIssue<'_>) -> Option<Self> {
        let is_visible = |byte: &u8| (0x21..=0x7e).contains(byte);
        if id.is_empty() || ID_MAX_BYTES < id.len() || !id.iter().all(is_visible) {
            return None;
        }
        let nonce = short_digest(&[
            b"stand-in",
            endpoint.as_bytes(),
            issue.principal.as_bytes(),
            id,
        ]);
        Some(Self {
            nonce,
            log_name: log_name(&nonce),
            ..Self::begin(issue)
        })
    }

    /// The value of `Mcp-Session-Id`: at most 512 bytes of visible ASCII.
    pub fn seal(&self, keys: &KeyRing, endpoint: &str) -> String {
        let mut plain = Vec::with_capacity(160);
        plain.push(LAYOUT);
        plain.push(self.revision as u8);
        plain.extend_from_slice(&self.capabilities.bits().to_le_bytes());
        plain.extend_from_slice(&self.nonce);
        plain.extend_from_slice(&self.replica.to_le_bytes());
        plain.extend_from_slice(&self.issued.to_le_bytes());
        plain.extend_from_slice(&self.expires.to_le_bytes());
        for text in [&self.principal, &self.client_name, &self.client_version] {
            // Each was cut to less than 256 bytes.
            plain.push(text.len() as u8);
            plain.extend_from_slice(text.as_bytes());
        }
        keys.seal(purpose(endpoint), &plain)
    }

    /// Opens an id. `None` if it is foreign or of another endpoint. Does not check the time.
    pub fn open(keys: &KeyRing, endpoint: &str, id: &[u8]) -> Option<Self> {
        let plain = keys.open(purpose(endpoint), id)?;
        let mut rest = Reader(&plain);
        if rest.array()? != [LAYOUT] {
            return None;
        }
        let [revision] = rest.array()?;
        let capabilities = ClientCapabilities::from_bits(u16::from_le_bytes(rest.array()?));
        let nonce = rest.array()?;
        let replica = u64::from_le_bytes(rest.array()?);
        let issued = u64::from_le_bytes(rest.array()?);
        let expires = u64::from_le_bytes(rest.array()?);
        Some(Self {
            revision: *Revision::ALL.get(usize::from(revision))?,
            capabilities,
            principal: rest.text()?,
            client_name: rest.text()?,
            client_version: rest.text()?,
            nonce,
            replica,
            issued,
            expires,
            log_name: log_name(&nonce),
        })
    }

    /// Returns true if the session belongs to a principal.
    pub fn belongs_to(&self, principal: &str) -> bool {
        *self.principal == *longshore_protocol::prefix(principal, PRINCIPAL_MAX_BYTES)
    }
}

fn purpose(endpoint: &str) -> Purpose<'_> {
    Purpose {
        kind: KIND,
        endpoint,
    }
}

/// Reader of the binary layout.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(super) fn text(&mut self) -> Option<Box<str>> {
        let [length] = self.array()?;
        let text = self.bytes(usize::from(length))?;
        std::str::from_utf8(text).ok().map(Box::from)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head)
    }
}

pub(super) fn log_name(nonce: &[u8; 16]) -> Arc<str> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = [0; 32];
    for (digits, byte) in name.chunks_exact_mut(2).zip(nonce) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 0xf)];
    }
    std::str::from_utf8(&name).unwrap_or_default().into()
}

/// Cache of recently decrypted IDs, so that a busy session costs a look-up instead of a decryption.
///
/// Holds at most two times [`GENERATION_MAX`]: a full young half becomes the old half, and the previous old half is
/// dropped. A hit moves an entry to the young half.
#[derive(Debug, Default)]
pub struct OpenedSessions {
    young: HashMap<Box<[u8]>, Arc<Session>, RandomState>,
    old: HashMap<Box<[u8]>, Arc<Session>, RandomState>,
}

const GENERATION_MAX: usize = 2048;

impl OpenedSessions {
    /// The session of an id, opened at most once while it is in use.
    #[inline]
    pub fn get(&mut self, keys: &KeyRing, endpoint: &str, id: &[u8]) -> Option<Arc<Session>> {
        if let Some(session) = self.young.get(id) {
            return Some(Arc::clone(session));
        }
        self.open(keys, endpoint, id)
    }

    #[cold]
    fn open(&mut self, keys: &KeyRing, endpoint: &str, id: &[u8]) -> Option<Arc<Session>> {
        let session = match self.old.remove(id) {
            Some(session) => session,
            None => Arc::new(Session::open(keys, endpoint, id)?),
        };
        if self.young.len() == GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id.into(), Arc::clone(&session));
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue() -> SessionIssue<'static> {
        SessionIssue {
            revision: Revision::V2025_06_18,
            capabilities: ClientCapabilities::from_bits(0b101),
            client_name: "a client",
            client_version: "1.2.3",
            principal: "somebody",
            replica: 7,
            now: 1_000,
            life: 24 * 60 * 60,
        }
    }

    #[test]
    fn lh_06_ids_are_visible_ascii_unique_and_short() {
        let keys = KeyRing::random();
        let long = "\u{e9}".repeat(500);
        let session = Session::begin(SessionIssue {
            client_name: &long,
            client_version: &long,
            principal: &long,
            ..issue()
        });
        let id = session.seal(&keys, "mcp");
        assert!(id.len() <= 512, "{}", id.len());
        assert!(id.bytes().all(|b| (0x21..=0x7e).contains(&b)));
        assert_ne!(
            Session::begin(issue()).seal(&keys, "mcp"),
            Session::begin(issue()).seal(&keys, "mcp")
        );
        assert!(session.belongs_to(&long));
    }

    #[test]
    fn a_session_comes_back_whole_from_its_id() {
        let keys = KeyRing::random();
        let session = Session::begin(issue());
        let id = session.seal(&keys, "mcp");
        assert_eq!(Session::open(&keys, "mcp", id.as_bytes()), Some(session));
        assert_eq!(Session::open(&keys, "other", id.as_bytes()), None);
        assert_eq!(
            Session::open(&KeyRing::random(), "mcp", id.as_bytes()),
            None
        );
        for junk in [
            "",
            "x",
            "00000000-0000-0000-0000-000000000000",
            &id[1..],
            &id[..id.len() - 1],
        ] {
            assert_eq!(Session::open(&keys, "mcp", junk.as_bytes()), None);
        }
    }

    #[test]
    fn the_cache_of_opened_ids_is_bounded_and_never_vouches_for_a_stranger() {
        let keys = KeyRing::random();
        let mut opened = OpenedSessions::default();
        let first = Session::begin(issue()).seal(&keys, "mcp");
        for _ in 0..2 * GENERATION_MAX + 10 {
            let id = Session::begin(issue()).seal(&keys, "mcp");
            assert!(opened.get(&keys, "mcp", id.as_bytes()).is_some());
            assert!(opened.get(&keys, "mcp", first.as_bytes()).is_some());
        }
        assert!(opened.young.len() + opened.old.len() <= 2 * GENERATION_MAX);
        assert!(opened.get(&keys, "mcp", b"junk").is_none());
        assert!(opened.get(&keys, "mcp", b"junk").is_none());
    }
}
