//! Sessions that were ended before their time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

use super::Session;
use super::session::log_name;
use crate::net::{RwLock, ShareKey};

/// Maximum number of ended sessions that are remembered.
const REMEMBERED_MAX: usize = 200_000;
/// Number of records that are dropped at a time when the limit is reached.
const DROPPED_AT_ONCE: usize = REMEMBERED_MAX / 64;

/// Sessions that clients have ended with DELETE.
///
/// Each entry stays until the session would have expired, so an ended session never affects another. The number of
/// entries is bounded. At the bound, callers with the most entries lose those that expire soonest. Such a session can
/// be used again until it expires, by its principal with its ID.
#[derive(Debug, Default)]
pub struct Revoked {
    /// True if there is a record at all, so that a server without ended sessions pays one load.
    any: AtomicBool,
    ended: RwLock<KnownRevocations>,
}

#[derive(Debug, Default)]
struct KnownRevocations {
    /// By nonce.
    sessions: HashMap<[u8; 16], Record, RandomState>,
    /// Number of records of each caller.
    of: HashMap<u64, usize, RandomState>,
}

/// A session that was ended.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Whose record it is: a [`ShareKey`] of the replica where it was ended.
    caller: u64,
    /// When the session would have expired, in seconds of Unix time.
    expires: u64,
}

/// Record of an ended session, shared with other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedSession {
    nonce: [u8; 16],
    principal: Box<str>,
    issued: u64,
    expires: u64,
    /// Whose record it is; 0 from replicas that do not say so.
    #[serde(default)]
    caller: u64,
}

impl RevokedSession {
    /// A session that was ended by a caller.
    pub fn by(session: &Session, caller: ShareKey) -> Self {
        Self {
            nonce: session.nonce,
            principal: session.principal.clone(),
            issued: session.issued,
            expires: session.expires,
            caller: caller.number(),
        }
    }

    /// The session's name for logs.
    pub fn log_name(&self) -> Arc<str> {
        log_name(&self.nonce)
    }
}

impl Revoked {
    /// Ends a session. `now` is in seconds of Unix time.
    pub fn end(&self, session: &RevokedSession, now: u64) {
        let mut ended = self.ended.write();
        if REMEMBERED_MAX <= ended.sessions.len() {
            ended.drop_expired(now);
        }
        if REMEMBERED_MAX <= ended.sessions.len() {
            ended.make_room();
        }
        ended.remember(session);
        self.any.store(true, Ordering::Release);
    }

    /// Returns true if a session was ended.
    #[inline]
    pub fn contains(&self, session: &Session) -> bool {
        self.any.load(Ordering::Acquire) && self.look_up(session)
    }

    fn look_up(&self, session: &Session) -> bool {
        self.ended.read().sessions.contains_key(&session.nonce)
    }
}

impl KnownRevocations {
    fn remember(&mut self, session: &RevokedSession) {
        let record = Record {
            caller: session.caller,
            expires: session.expires,
        };
        if self.sessions.insert(session.nonce, record).is_none() {
            *self.of.entry(session.caller).or_default() += 1;
        }
    }

    fn drop_expired(&mut self, now: u64) {
        self.sessions.retain(|_, record| now < record.expires);
        self.count();
    }

    /// Drops records of the callers that have at least half as many as the one with most.
    fn make_room(&mut self) {
        let most = self.of.values().copied().max().unwrap_or_default();
        let of = &self.of;
        let is_heavy = |record: &Record| {
            let own = of.get(&record.caller).copied().unwrap_or_default();
            most <= 2 * own
        };
        let mut ends: Vec<u64> = self
            .sessions
            .values()
            .filter(|record| is_heavy(record))
            .map(|record| record.expires)
            .collect();
        let last = DROPPED_AT_ONCE.min(ends.len().div_ceil(2));
        let Some(at) = last.checked_sub(1) else {
            return;
        };
        let (_, until, _) = ends.select_nth_unstable(at);
        let until = *until;
        // Many may expire in the same second.
        let mut left = last;
        self.sessions.retain(|_, record| {
            let goes = 0 < left && record.expires <= until && is_heavy(record);
            left -= usize::from(goes);
            !goes
        });
        self.count();
    }

    fn count(&mut self) {
        self.of.clear();
        for record in self.sessions.values() {
            *self.of.entry(record.caller).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ClientCapabilities, Revision};
    use crate::seal::SessionIssue;

    const LIFE: u64 = 24 * 60 * 60;

    fn session(principal: &str, now: u64) -> Session {
        Session::begin(SessionIssue {
            revision: Revision::V2025_06_18,
            capabilities: ClientCapabilities::default(),
            client_name: "",
            client_version: "",
            principal,
            replica: 0,
            now,
            life: LIFE,
        })
    }

    /// An ended session, with a nonce that is not random.
    fn ended(caller: u64, number: u64, now: u64) -> RevokedSession {
        RevokedSession {
            nonce: (u128::from(caller) << 64 | u128::from(number)).to_le_bytes(),
            principal: "anonymous".into(),
            issued: now,
            expires: now + LIFE,
            caller,
        }
    }

    fn known(revoked: &Revoked) -> usize {
        let known = revoked.ended.read();
        assert_eq!(known.of.values().sum::<usize>(), known.sessions.len());
        known.sessions.len()
    }

    #[test]
    fn an_ended_session_stays_ended_and_no_other() {
        let revoked = Revoked::default();
        let (one, other) = (session("a", 0), session("a", 0));
        assert!(!revoked.contains(&one));
        revoked.end(&RevokedSession::by(&one, ShareKey::NONE), 0);
        revoked.end(&RevokedSession::by(&one, ShareKey::NONE), 0);
        assert!(revoked.contains(&one) && known(&revoked) == 1);
        assert!(!revoked.contains(&other));
    }

    /// Ten minutes in which clients without a name open and delete sessions, a thousand in each second.
    #[test]
    fn however_many_sessions_are_ended_none_that_lives_ends() {
        let revoked = Revoked::default();
        let mut living = Vec::new();
        let quiet: Vec<_> = (0..100).map(|_| session("anonymous", 0)).collect();
        for one in &quiet {
            let own = ShareKey::of_network(7);
            revoked.end(&RevokedSession::by(one, own), 0);
        }
        for second in 0..600 {
            living.push(session("anonymous", second));
            for number in 0..1000 {
                revoked.end(&ended(1, second * 1000 + number, second), second);
            }
            assert!(known(&revoked) <= REMEMBERED_MAX);
        }
        assert!(living.iter().all(|one| !revoked.contains(one)));
        // Nor does a session come back that was ended by somebody else.
        assert!(quiet.iter().all(|one| revoked.contains(one)));
    }

    #[test]
    fn memory_is_bounded_for_however_many_callers() {
        let revoked = Revoked::default();
        for caller in 0..REMEMBERED_MAX as u64 + 10 {
            revoked.end(&ended(caller, 0, caller), 0);
        }
        assert_eq!(known(&revoked), REMEMBERED_MAX + 10 - DROPPED_AT_ONCE);
        // Those that would expire soonest were dropped.
        let known = revoked.ended.read();
        let soonest = known.sessions.values().map(|record| record.expires).min();
        assert_eq!(soonest, Some(LIFE + DROPPED_AT_ONCE as u64));
    }

    #[test]
    fn what_has_expired_is_dropped_first() {
        let revoked = Revoked::default();
        for number in 0..REMEMBERED_MAX as u64 {
            revoked.end(&ended(1, number, 0), 0);
        }
        let now = 2 * LIFE;
        let last = session("b", now);
        revoked.end(&RevokedSession::by(&last, ShareKey::NONE), now);
        assert!(revoked.contains(&last) && known(&revoked) == 1);
    }
}
