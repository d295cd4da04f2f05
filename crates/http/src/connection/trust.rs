//! Trust of a connection, and its place in the queue while it is untrusted.

use std::cell::Cell;

use super::ConnectionState;

/// Queue state of an untrusted connection ([`super::admission`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// Nowhere.
    #[default]
    None,
    /// In line.
    Awaited,
    /// The connection may be polled once.
    Come,
}

/// Maximum credit. It bounds the losses before a connection becomes untrusted, and the gains afterwards.
const CREDIT_MAX: i32 = 64;
/// Cost of a stream reset, in units of one response.
const RESET_COST: i32 = 4;
/// Number of turns after which a connection has mostly sent a response, even over TLS.
const TURNS_NEW: u32 = 8;
/// Credit that a connection has earned and lost by its requests.
#[derive(Debug, Default)]
pub(super) struct Reputation {
    /// Credit for completed responses; the connection is trusted above zero.
    credit: Cell<i32>,
    /// State in the queue of untrusted connections.
    turn: Cell<QueueState>,
    /// Number of turns so far.
    turns: Cell<u32>,
}

impl ConnectionState {
    /// Returns true if the connection has positive credit from its responses.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        0 < self.trust.credit.get()
    }

    /// Records a completed response.
    #[inline]
    pub(crate) fn has_answered(&self) {
        let credit = self.trust.credit.get();
        if credit < CREDIT_MAX {
            self.trust.credit.set(credit + 1);
        }
    }

    /// Charges the client for HTTP/2 streams that it has reset, whether or not they had a response. Resets after a fast
    /// response cause the same work.
    pub(crate) fn takes_back(&self, streams: u32) {
        let cost = RESET_COST.saturating_mul(i32::try_from(streams).unwrap_or(i32::MAX));
        let credit = self.trust.credit.get().saturating_sub(cost);
        self.trust.credit.set(credit.max(-CREDIT_MAX));
    }

    pub(crate) fn turn(&self) -> QueueState {
        self.trust.turn.get()
    }

    pub(crate) fn has_turn(&self, turn: QueueState) {
        self.trust.turn.set(turn);
    }

    /// Records one poll of the untrusted connection.
    pub(crate) fn takes_turn(&self) {
        self.has_turn(QueueState::None);
        let turns = self.trust.turns.get();
        self.trust.turns.set(turns.saturating_add(1));
    }

    /// Returns true if the connection has had few turns, too few for a response, and has done no harm.
    pub(crate) fn is_new(&self) -> bool {
        self.trust.turns.get() < TURNS_NEW && 0 <= self.trust.credit.get()
    }
}
