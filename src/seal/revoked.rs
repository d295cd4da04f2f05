//! Sessions that were ended before their time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::Session;
use super::session::log_name;

/// How many ended sessions are remembered one by one.
const REMEMBERED_MAX: usize = 100_000;
/// How many go together where each is of somebody else.
const FORGOTTEN_AT_ONCE: usize = REMEMBERED_MAX / 64;

/// The sessions that a client has ended with DELETE. Bounded: once too many are remembered, those of the principal that has
/// ended most are remembered in a shorter form: whatever session it began no later than the older half of them is taken to
/// be ended too. Where that many principals have ended one session each, those are forgotten that would end soonest.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    /// Whether there are any at all, so that a server on which nobody says goodbye pays one load.
    any: AtomicBool,
    ended: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// How many sessions and times are remembered in all.
    remembered: usize,
    of: HashMap<Box<str>, Theirs>,
}

/// What one principal has ended.
#[derive(Debug, Default)]
struct Theirs {
    /// By nonce.
    sessions: HashMap<[u8; 16], Times>,
    /// The last second whose sessions are all ended, and when the last of them would have ended by itself.
    all: Option<Times>,
}

impl Theirs {
    fn len(&self) -> usize {
        self.sessions.len() + usize::from(self.all.is_some())
    }

    /// When nothing of it matters any more.
    fn expires(&self) -> u64 {
        let times = self.sessions.values().chain(&self.all);
        times.map(|times| times.expires).max().unwrap_or_default()
    }
}

/// When a session began, and would have ended by itself, in seconds of Unix time.
#[derive(Clone, Copy, Debug)]
struct Times {
    issued: u64,
    expires: u64,
}

/// What has to be known of a session that was ended, by this replica and the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    nonce: [u8; 16],
    principal: Box<str>,
    issued: u64,
    expires: u64,
}

impl Ended {
    /// The session's name for logs.
    pub(crate) fn log_name(&self) -> Arc<str> {
        log_name(&self.nonce)
    }
}

impl From<&Session> for Ended {
    fn from(session: &Session) -> Self {
        Self {
            nonce: session.nonce,
            principal: session.principal.clone(),
            issued: session.issued,
            expires: session.expires,
        }
    }
}

impl Revoked {
    /// Ends a session. `now` is in seconds of Unix time.
    pub(crate) fn end(&self, session: &Ended, now: u64) {
        let mut ended = self.ended.write().unwrap_or_else(PoisonError::into_inner);
        if ended.knows(&session.principal, &session.nonce, session.issued) {
            return;
        }
        if REMEMBERED_MAX <= ended.remembered {
            ended.forget_expired(now);
        }
        if REMEMBERED_MAX <= ended.remembered {
            ended.shorten();
        }
        ended.remember(session);
        self.any.store(true, Ordering::Release);
    }

    /// Whether a session was ended.
    #[inline]
    pub(crate) fn contains(&self, session: &Session) -> bool {
        self.any.load(Ordering::Acquire) && self.look_up(session)
    }

    fn look_up(&self, session: &Session) -> bool {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        ended.knows(&session.principal, &session.nonce, session.issued)
    }
}

impl Known {
    fn knows(&self, principal: &str, nonce: &[u8; 16], issued: u64) -> bool {
        self.of.get(principal).is_some_and(|theirs| {
            theirs.sessions.contains_key(nonce)
                || theirs.all.is_some_and(|all| issued <= all.issued)
        })
    }

    fn remember(&mut self, session: &Ended) {
        let times = Times {
            issued: session.issued,
            expires: session.expires,
        };
        let theirs = self.of.entry(session.principal.clone()).or_default();
        if theirs.sessions.insert(session.nonce, times).is_none() {
            self.remembered += 1;
        }
    }

    fn forget_expired(&mut self, now: u64) {
        self.of.retain(|_, theirs| {
            theirs.sessions.retain(|_, times| now < times.expires);
            theirs.all = theirs.all.filter(|all| now < all.expires);
            !theirs.sessions.is_empty() || theirs.all.is_some()
        });
        self.remembered = self.of.values().map(Theirs::len).sum();
    }

    /// Makes room at the cost of who takes most of it.
    fn shorten(&mut self) {
        let most = self
            .of
            .values_mut()
            .max_by_key(|theirs| theirs.sessions.len());
        let Some(theirs) = most.filter(|theirs| 1 < theirs.sessions.len()) else {
            self.forget_some();
            return;
        };
        let (sessions, before) = (theirs.sessions.len(), theirs.len());
        let mut issued: Vec<u64> = theirs.sessions.values().map(|times| times.issued).collect();
        issued.sort_unstable();
        let until = issued.get(sessions / 2).copied().unwrap_or_default();
        let mut all = theirs.all.unwrap_or(Times {
            issued: until,
            expires: 0,
        });
        all.issued = all.issued.max(until);
        theirs.sessions.retain(|_, times| {
            let stays = until < times.issued;
            if !stays {
                all.expires = all.expires.max(times.expires);
            }
            stays
        });
        theirs.all = Some(all);
        self.remembered -= before - theirs.len();
    }

    /// With so many principals that have ended one session each, those go that would be over soonest.
    fn forget_some(&mut self) {
        let ends = self.of.iter();
        let mut ends: Vec<_> = ends
            .map(|(name, theirs)| (theirs.expires(), name.clone()))
            .collect();
        ends.sort_unstable();
        for (_, name) in ends.into_iter().take(FORGOTTEN_AT_ONCE) {
            let theirs = self.of.remove(&name);
            self.remembered -= theirs.map_or(0, |theirs| theirs.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ClientCapabilities, Revision};
    use crate::seal::SessionIssue;

    fn session(principal: &str, now: u64) -> Session {
        Session::begin(SessionIssue {
            revision: Revision::V2025_06_18,
            capabilities: ClientCapabilities::default(),
            client_name: "",
            client_version: "",
            principal,
            replica: 0,
            now,
            life: 24 * 60 * 60,
        })
    }

    #[test]
    fn an_ended_session_stays_ended_and_no_other() {
        let revoked = Revoked::default();
        let (one, other) = (session("a", 0), session("a", 0));
        assert!(!revoked.contains(&one));
        revoked.end(&Ended::from(&one), 0);
        assert!(revoked.contains(&one));
        assert!(!revoked.contains(&other));
    }

    #[test]
    fn memory_is_bounded_at_the_cost_of_who_ends_most_and_no_ended_session_comes_back_to_life() {
        let revoked = Revoked::default();
        let first = session("a", 0);
        revoked.end(&Ended::from(&first), 0);
        for n in 0..REMEMBERED_MAX as u64 + 10 {
            let mut other = session("b", n);
            other.nonce = u128::from(n).to_le_bytes();
            revoked.end(&Ended::from(&other), 0);
        }
        let late = session("a", 5);
        revoked.end(&Ended::from(&late), 5);
        assert!(revoked.contains(&first) && revoked.contains(&late));
        for going in [session("a", 0), session("a", 4), session("c", 4)] {
            assert!(!revoked.contains(&going), "nobody pays for what others do");
        }
        let half = REMEMBERED_MAX as u64 / 2;
        assert!(revoked.contains(&session("b", 0)) && revoked.contains(&session("b", half - 1)));
        assert!(!revoked.contains(&session("b", half + 1)));
        let mut ended = session("b", half + 1);
        ended.nonce = u128::from(half + 1).to_le_bytes();
        assert!(revoked.contains(&ended));
        let known = revoked.ended.read().expect("not poisoned");
        let remembered: usize = known.of.values().map(Theirs::len).sum();
        assert_eq!(remembered, known.remembered);
        assert!(remembered <= REMEMBERED_MAX);
    }

    #[test]
    fn memory_is_bounded_for_however_many_principals() {
        let revoked = Revoked::default();
        for n in 0..REMEMBERED_MAX + 10 {
            let ended = session(&n.to_string(), n as u64);
            revoked.end(&Ended::from(&ended), 0);
        }
        let known = revoked.ended.read().expect("not poisoned");
        let left = REMEMBERED_MAX + 10 - FORGOTTEN_AT_ONCE;
        assert_eq!((known.of.len(), known.remembered), (left, left));
        let soonest = FORGOTTEN_AT_ONCE - 1;
        assert!(!known.of.contains_key(&*soonest.to_string()));
        assert!(known.of.contains_key(&*FORGOTTEN_AT_ONCE.to_string()));
    }

    #[test]
    fn what_would_have_ended_by_itself_is_forgotten_first() {
        let revoked = Revoked::default();
        for n in 0..REMEMBERED_MAX as u64 {
            let mut old = session("b", 0);
            old.nonce = u128::from(n).to_le_bytes();
            revoked.end(&Ended::from(&old), 0);
        }
        let now = 2 * 24 * 60 * 60;
        let last = session("b", now);
        revoked.end(&Ended::from(&last), now);
        assert!(revoked.contains(&last) && !revoked.contains(&session("b", now)));
        assert_eq!(revoked.ended.read().expect("not poisoned").remembered, 1);
    }
}
