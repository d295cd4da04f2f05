//! Encryption of data that the server issues and must recognise on any replica: session IDs, cursors, and the state
//! of requests that wait for client input.
//!
//! No ID is stored. An ID *is* its content, encrypted and authenticated with a key that the replicas share
//! ([`KeyRing`]). Purpose and endpoint are authenticated too, so that one kind of data cannot be used as another.
//!
//! # Failure
//!
//! Tampered data, data for another purpose, and data under a removed key are indistinguishable to clients: decryption
//! fails.

mod config;
#[cfg(feature = "oauth")]
mod dpop_nonces;
mod key_ring;
mod request_state;
mod revocation;
mod session;
mod signing;
mod sealed_store;

pub use crate::digest::{digest, sha256, sha256_base64url, sha256_hex, short_digest};
pub use crate::environment::Secret;
pub use config::{KeyError, SealConfig};
#[cfg(feature = "oauth")]
pub use dpop_nonces::SignedNonces;
pub use key_ring::KeyRing;
pub use key_ring::Purpose;
pub use key_ring::random_bytes;
pub use request_state::{
    JOURNAL_MAX_BYTES, JournalEntry, JournalKey, MAX_AGE_SECONDS, OpenedState, RequestName,
    RequestState, STORED_MAX_BYTES, StateScope,
};
pub use revocation::{Revoked, RevokedSession};
pub use sealed_store::SealedState;
pub use session::{OpenedSessions, Session, SessionIssue};
pub use signing::SigningKeys;
