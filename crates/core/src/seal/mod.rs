//! What the server hands out and must recognise later, on any replica: sealed session ids and cursors,
//! and the states of requests that wait for their client's input.
//!
//! No id is stored. An id *is* its content, encrypted and authenticated under a key that the replicas
//! share ([`KeyRing`]); whoever holds the key can open it. What it is for and which mount it belongs to are
//! bound into the seal, so that one thing cannot be passed off as another.
//!
//! # Failure
//!
//! What was tampered with, sealed for something else, or sealed by a key that is gone looks all the same from
//! outside: it does not open.

mod config;
mod digest;
mod key_ring;
mod request_state;
mod revoked;
mod session;
mod stored;

pub use crate::environment::Secret;
pub use config::{KeyError, SealConfig};
pub use digest::{digest, short_digest};
pub use key_ring::KeyRing;
pub use key_ring::Purpose;
pub use key_ring::random_bytes;
pub use request_state::{
    JOURNAL_MAX_BYTES, JournalEntry, JournalKey, MAX_AGE_SECONDS, OpenedState, RequestName,
    RequestState, STORED_MAX_BYTES, StateScope,
};
pub use revoked::{Ended, Revoked};
pub use session::{OpenedSessions, Session, SessionIssue};
pub use stored::SealedState;
