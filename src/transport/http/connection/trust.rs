//! Whether a connection is trusted, and where it stands if it is not.

use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering::Relaxed};

use super::ConnectionState;

/// Where a connection that is not trusted stands ([`super::turnstile`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Turn {
    /// Nowhere.
    None,
    /// In line.
    Awaited,
    /// It may be looked at once.
    Come,
}

/// The most that answers are worth: so much is lost before a connection is no longer trusted, and won back after.
const CREDIT_MAX: i32 = 64;
/// What a stream that is taken back costs: as much as so many answers are worth.
const RESET_COST: i32 = 4;
/// Turns after which there mostly is an answer, be it over TLS.
const TURNS_NEW: u32 = 8;
/// What a connection has won and lost by its requests.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Whether its requests lead to answers: above zero it is trusted.
    credit: AtomicI32,
    /// Where it stands in the line of those that are not trusted.
    turn: AtomicU8,
    /// How many turns it has had.
    turns: AtomicU32,
}

impl ConnectionState {
    /// Whether its requests lead to answers, as far as that is known.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        0 < self.trust.credit.load(Relaxed)
    }

    /// A request has its answer.
    #[inline]
    pub(crate) fn has_answered(&self) {
        let credit = self.trust.credit.load(Relaxed);
        if credit < CREDIT_MAX {
            self.trust.credit.store(credit + 1, Relaxed);
        }
    }

    /// HTTP/2: the client has taken back so many streams. Whether they were answered does not matter: who takes back what
    /// is answered at once makes just as much work.
    pub(crate) fn takes_back(&self, streams: u32) {
        let cost = RESET_COST.saturating_mul(i32::try_from(streams).unwrap_or(i32::MAX));
        let credit = self.trust.credit.load(Relaxed).saturating_sub(cost);
        self.trust.credit.store(credit.max(-CREDIT_MAX), Relaxed);
    }

    pub(crate) fn turn(&self) -> Turn {
        match self.trust.turn.load(Relaxed) {
            0 => Turn::None,
            1 => Turn::Awaited,
            _ => Turn::Come,
        }
    }

    pub(crate) fn has_turn(&self, turn: Turn) {
        self.trust.turn.store(turn as u8, Relaxed);
    }

    /// It is looked at, without being trusted.
    pub(crate) fn takes_turn(&self) {
        self.has_turn(Turn::None);
        let turns = self.trust.turns.load(Relaxed);
        self.trust.turns.store(turns.saturating_add(1), Relaxed);
    }

    /// Whether it has had so few turns that there may be no answer yet, and has done no harm.
    pub(crate) fn is_new(&self) -> bool {
        self.trust.turns.load(Relaxed) < TURNS_NEW && 0 <= self.trust.credit.load(Relaxed)
    }
}
