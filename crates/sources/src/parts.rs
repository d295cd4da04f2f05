//! Parts of the server that sources use.

use super::identity::AssertionSigner;
use super::per_user::Accounts;
use super::reuse::Reuse;
use super::tokens::Tokens;
use crate::net::MemoryBudget;
use crate::telemetry::Metrics;

/// Parts of the server that sources use.
#[derive(Clone, Debug, Default)]
pub struct SourceParts {
    /// Token store for configured refresh tokens and for logins.
    pub tokens: Tokens,
    /// Signer of assertions about callers.
    pub signer: Option<AssertionSigner>,
    /// Logins of users at the APIs of sources.
    pub accounts: Accounts,
    pub metrics: Metrics,
    /// Memory limit of the process, in bytes; 0 for no limit.
    pub memory_bytes: u64,
    /// Memory for large responses of APIs.
    pub memory: MemoryBudget,
    /// State of the served sources that a reload keeps.
    pub reuse: Reuse,
}
