//! Per-connection cache of the last authenticated credential.
//!
//! Clients reuse connections and send the same credential with each request. Verifying it takes a digest and several
//! look-ups, about a tenth of the cost of a small request. A connection therefore stores its last accepted header
//! with its principal. A request with identical bytes has the same principal.
//!
//! A cache hit never differs from a full verification:
//!
//! - The whole header is compared, byte for byte, in a time that does not depend on where it differs. Whoever shares a
//!   connection with others, as behind a proxy, is each time judged by what its own request shows.
//! - Only proofs that look at nothing but the credential, and at what is the same for the whole connection, say for how
//!   long they stand by what they said ([`Cacheable`]). If one of another kind is asked before them, nothing is remembered.
//! - Keys that are taken back, or read again, and keys of issuers that change are noted in [`Epoch`], which is looked at
//!   before anything that is remembered is believed. A token is believed no longer than it would be otherwise: to its end,
//!   five minutes after its signature was checked at the latest, and as long as its issuer's keys are in force.
//! - It never leaves its connection, and is overwritten when it is forgotten: with the connection, by another credential,
//!   or once it is found to hold no longer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::credentials::API_KEY_HEADER;
use super::store_backoff::StoreBackoff;
use super::{AuthMethod, Credentials, Principal};
use crate::net::Mutex;

/// Maximum size of a cached header. Each connection has one.
const REMEMBERED_MAX_BYTES: usize = 4096;

/// An authentication method with cacheable results.
///
/// It looks at nothing of a request but the credential, and at nothing of a connection that may change.
pub(super) trait Cacheable: AuthMethod {
    /// Unix time in seconds until which a result holds for a credential. `None` if it must not be cached.
    fn holds_until(&self, presented: &Credentials<'_>) -> Option<u64>;
}

/// Expiry of results that do not expire.
pub(super) const FOREVER: u64 = u64::MAX;

/// Counter of events that invalidate cached results.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch(Arc<AtomicU64>);

impl Epoch {
    /// Notes a change. What it is about is in force already.
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the epoch. If it is read before a verification, a later comparison detects changes.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Cache of one connection's last accepted credential.
///
/// One thread serves the connection, so the lock is never contended.
#[derive(Default)]
pub struct CredentialCache(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Box<Proven>>,
    /// Callers may alternate on a connection.
    backoff: StoreBackoff,
}

/// A header and its principal.
struct Proven {
    header: &'static HeaderName,
    /// The other credential header, which must be absent.
    other: &'static HeaderName,
    value: Zeroizing<Vec<u8>>,
    principal: Arc<Principal>,
    until: u64,
    changes: u64,
    was_of_use: bool,
}

static BEARER: HeaderName = AUTHORIZATION;
static API_KEY: HeaderName = API_KEY_HEADER;

impl CredentialCache {
    /// Returns the principal if the credential is cached and still valid, and removes the header. `changes` is the
    /// current epoch; `now` returns Unix time in seconds.
    #[inline]
    pub(super) fn recall(
        &self,
        headers: &mut HeaderMap,
        changes: u64,
        now: impl FnOnce() -> u64,
    ) -> Option<Arc<Principal>> {
        let mut state = self.0.lock();
        let proven = state.last.as_mut()?;
        if !proven.is_shown(headers) {
            return None;
        }
        if proven.changes != changes || proven.until != FOREVER && proven.until <= now() {
            state.last = None;
            return None;
        }
        proven.was_of_use = true;
        headers.remove(proven.header);
        Some(Arc::clone(&proven.principal))
    }

    /// Stores a credential and its principal.
    pub(super) fn remember(
        &self,
        presented: &Credentials<'_>,
        principal: &Arc<Principal>,
        until: u64,
        changes: u64,
    ) {
        let Some((header, other, value)) = credential(presented) else {
            return;
        };
        let mut state = self.0.lock();
        if state.backoff.passes_over() {
            return;
        }
        let was_in_vain = state.last.as_ref().is_some_and(|last| !last.was_of_use);
        state.backoff.stores(was_in_vain);
        state.last = Some(Box::new(Proven {
            header,
            other,
            value: Zeroizing::new(value.as_bytes().to_vec()),
            principal: Arc::clone(principal),
            until,
            changes,
            was_of_use: false,
        }));
    }
}

impl Proven {
    /// Returns true if the request has the same credential and no other.
    #[inline]
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(self.header).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        is_same(value.as_bytes(), &self.value) && !headers.contains_key(self.other)
    }
}

/// Returns the only credential header, if it is short enough.
fn credential<'p>(
    presented: &Credentials<'p>,
) -> Option<(&'static HeaderName, &'static HeaderName, &'p HeaderValue)> {
    let (header, other) = match (presented.bearer(), presented.api_key()) {
        (Some(_), None) => (&BEARER, &API_KEY),
        (None, Some(_)) => (&API_KEY, &BEARER),
        _ => return None,
    };
    let value = presented.header(header).ok()??;
    let has_other = presented.header(other).ok()?.is_some();
    (!has_other && value.len() <= REMEMBERED_MAX_BYTES).then_some((header, other, value))
}

/// Compares two strings in constant time, except for their length.
#[inline]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    // Compares whole words without an early exit. Library functions compare byte by byte.
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let (words, rest) = one.as_chunks();
    let (other_words, other_rest) = other.as_chunks();
    let pairs = words.iter().zip(other_words);
    let mut differences = pairs.fold(0, |differences, (one, other)| {
        differences | (word(one) ^ word(other))
    });
    if let (Some(one), Some(other)) = (one.last_chunk(), other.last_chunk()) {
        differences |= word(one) ^ word(other);
    } else {
        for (one, other) in rest.iter().zip(other_rest) {
            differences |= u64::from(one ^ other);
        }
    }
    std::hint::black_box(differences) == 0
}

/// Omits the credential.
impl fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "Bearer lsk_a-key-that-nobody-else-has";
    const NOW: u64 = 1_800_000_000;

    #[test]
    fn texts_are_the_same_if_no_byte_differs() {
        let text: Vec<u8> = (0..70).collect();
        for length in 0..text.len() {
            let one = &text[..length];
            let mut other = one.to_vec();
            assert!(is_same(one, &other));
            assert!(!is_same(one, &text[..=length]) && !is_same(&text[..=length], one));
            for place in 0..length {
                other[place] ^= 1 << (place % 8);
                assert!(!is_same(one, &other), "{length} {place}");
                other[place] = one[place];
            }
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            (HeaderName::from_static(name), value)
        });
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    fn remembering(
        shown: &CredentialCache,
        pairs: &[(&'static str, &str)],
        name: &str,
        until: u64,
    ) {
        let headers = headers(pairs);
        let presented = Credentials::read(&headers, None, None, NOW).expect("well-formed");
        shown.remember(&presented, &Arc::new(Principal::new(name)), until, 0);
    }

    fn recalled(
        shown: &CredentialCache,
        pairs: &[(&'static str, &str)],
        now: u64,
    ) -> Option<String> {
        let mut headers = headers(pairs);
        let principal = shown.recall(&mut headers, 0, || now)?;
        // What was recalled is gone, as after judging.
        assert!(!headers.contains_key("authorization") && !headers.contains_key("x-api-key"));
        Some(principal.name().to_owned())
    }

    #[test]
    fn the_same_bytes_in_the_same_header_are_the_same_caller_and_nothing_else_is() {
        let shown = CredentialCache::default();
        let key = ("authorization", KEY);
        assert_eq!(recalled(&shown, &[key], NOW), None);
        remembering(&shown, &[key], "alice", FOREVER);
        for (pairs, expected) in [
            (vec![key], Some("alice")),
            (vec![("accept", "*/*"), key], Some("alice")),
            (vec![], None),
            (vec![("authorization", &KEY[..KEY.len() - 1])], None),
            (vec![("authorization", &format!("{KEY}x"))], None),
            (vec![("authorization", &KEY.replace("lsk", "lsl"))], None),
            (vec![("authorization", &KEY.to_uppercase())], None),
            (vec![("authorization", &KEY[7..])], None),
            (vec![("x-api-key", KEY)], None),
            // AUTH-04: two of them are one too many, whatever the first one is.
            (vec![key, key], None),
            (vec![key, ("authorization", "Basic YTpi")], None),
            (vec![key, ("x-api-key", "k")], None),
        ] {
            assert_eq!(
                recalled(&shown, &pairs, NOW).as_deref(),
                expected,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_key_in_a_header_of_its_own_is_remembered_too() {
        let shown = CredentialCache::default();
        let key = ("x-api-key", "lsk_a-key-that-nobody-else-has");
        remembering(&shown, &[key], "alice", FOREVER);
        assert_eq!(recalled(&shown, &[key], NOW).as_deref(), Some("alice"));
        let with_basic = [key, ("authorization", "Basic YTpi")];
        assert_eq!(recalled(&shown, &with_basic, NOW), None);
    }

    #[test]
    fn auth_04_nothing_is_believed_beyond_its_end_or_after_a_change() {
        let shown = CredentialCache::default();
        let key = [("authorization", KEY)];
        remembering(&shown, &key, "alice", NOW + 5);
        assert_eq!(recalled(&shown, &key, NOW + 4).as_deref(), Some("alice"));
        assert_eq!(recalled(&shown, &key, NOW + 5), None);
        // And it is gone for good.
        assert_eq!(recalled(&shown, &key, NOW), None);

        let changes = Epoch::default();
        remembering(&shown, &key, "alice", FOREVER);
        let ask = || shown.recall(&mut headers(&key), changes.count(), || NOW);
        assert!(ask().is_some());
        changes.note();
        assert!(ask().is_none());
    }

    #[test]
    fn callers_who_share_a_connection_are_each_told_by_what_they_show() {
        let shown = CredentialCache::default();
        let key = |caller: u32| format!("Bearer lsk_a-key-of-{caller:024}");
        let mut remembered = 0;
        for turn in 0..3_000_u32 {
            let (name, key) = (format!("caller {}", turn % 3), key(turn % 3));
            let pairs = [("authorization", &*key)];
            match recalled(&shown, &pairs, NOW) {
                Some(found) => assert_eq!(found, name),
                None => {
                    let is_over = shown.0.lock().backoff.is_over();
                    remembering(&shown, &pairs, &name, FOREVER);
                    remembered += u32::from(is_over);
                }
            }
        }
        // One of the three is remembered at a time; to remember is not done over and over.
        assert!(remembered < 3_000, "{remembered}");
        // What takes turns without end is remembered seldom.
        let shown = CredentialCache::default();
        let mut remembered = 0;
        for turn in 0..6_400 {
            remembered += u32::from(shown.0.lock().backoff.is_over());
            remembering(&shown, &[("authorization", &key(turn))], "one", FOREVER);
        }
        assert!((100..120).contains(&remembered), "{remembered}");
    }

    #[test]
    fn sec_12_what_is_large_is_not_kept_and_nothing_is_shown() {
        let shown = CredentialCache::default();
        let long = format!("Bearer {}", "a".repeat(REMEMBERED_MAX_BYTES));
        let long = [("authorization", &*long)];
        remembering(&shown, &long, "alice", FOREVER);
        assert_eq!(recalled(&shown, &long, NOW), None);
        remembering(&shown, &[("authorization", KEY)], "alice", FOREVER);
        assert_eq!(format!("{shown:?}"), "Shown");
    }
}
