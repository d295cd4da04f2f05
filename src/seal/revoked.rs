//! Sessions that were ended before their time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::Session;
use super::session::log_name;

/// How many ended sessions are remembered one by one.
const NONCES_MAX: usize = 100_000;

/// The sessions that a client has ended with DELETE. Bounded: once too many are remembered, the sessions of
/// the same principal that are older than the newest one ended are taken to be ended too.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    /// Whether there are any at all, so that a server on which nobody says goodbye pays one load.
    any: AtomicBool,
    ended: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Nonce to the time at which the session would have ended by itself.
    nonces: HashMap<[u8; 16], u64>,
    /// Principal to the last second whose sessions are all ended.
    issued_until: HashMap<Box<str>, u64>,
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
        if ended.nonces.len() >= NONCES_MAX {
            ended.nonces.retain(|_, expires| *expires > now);
        }
        if ended.nonces.len() >= NONCES_MAX {
            let until = ended
                .issued_until
                .entry(session.principal.clone())
                .or_default();
            *until = session.issued.max(*until);
        } else {
            ended.nonces.insert(session.nonce, session.expires);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether a session was ended.
    #[inline]
    pub(crate) fn contains(&self, session: &Session) -> bool {
        self.any.load(Ordering::Acquire) && self.look_up(session)
    }

    fn look_up(&self, session: &Session) -> bool {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        ended.nonces.contains_key(&session.nonce)
            || ended
                .issued_until
                .get(&session.principal)
                .is_some_and(|until| session.issued <= *until)
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
    fn memory_is_bounded_and_no_ended_session_comes_back_to_life() {
        let revoked = Revoked::default();
        let first = session("a", 0);
        revoked.end(&Ended::from(&first), 0);
        for n in 0..NONCES_MAX {
            let mut other = session("b", 0);
            other.nonce = (n as u128).to_le_bytes();
            revoked.end(&Ended::from(&other), 0);
        }
        let late = session("a", 5);
        revoked.end(&Ended::from(&late), 5);
        assert!(revoked.contains(&first) && revoked.contains(&late));
        assert!(
            revoked.contains(&session("a", 4)),
            "older ones of the same principal go too"
        );
        assert!(!revoked.contains(&session("a", 6)));
        assert!(!revoked.contains(&session("c", 4)));
        assert!(revoked.ended.read().expect("not poisoned").nonces.len() <= NONCES_MAX);
    }
}
