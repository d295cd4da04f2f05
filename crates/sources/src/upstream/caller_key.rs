//! Key of a caller's connection.

use crate::auth::Principal;
use crate::seal::digest;

/// Digest of what identifies the connection of a caller: the principal, and everything that requests can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallerKey([u8; 32]);

impl CallerKey {
    /// Computes the key of a caller.
    pub(super) fn of(caller: &Principal) -> Self {
        let claims = serde_json::to_vec(caller.claims()).unwrap_or_default();
        let words = |words: Vec<&str>| words.join("\0");
        Self(digest(&[
            caller.id().as_bytes(),
            caller.access_token().unwrap_or_default().as_bytes(),
            &claims,
            words(caller.scopes().collect()).as_bytes(),
            words(caller.groups().collect()).as_bytes(),
        ]))
    }
}
