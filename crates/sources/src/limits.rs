//! Limits and timeouts that several kinds of source share.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits for requests to other servers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RequestLimits {
    /// Maximum time of one call, in seconds, retries included; from 1 to 86400.
    pub timeout_seconds: u64,
    /// Maximum response size, in bytes, after decompression.
    pub response_bytes: usize,
    /// Maximum number of retries of a request.
    ///
    /// A request is retried if no part of it was sent, or if it is idempotent.
    pub retries: u32,
    /// Maximum number of redirects to follow.
    pub redirects: usize,
    /// Concurrency limit and circuit breaker for calls to the other server.
    pub bulkhead: crate::net::BulkheadConfig,
}

/// Maximum of all timeouts, in seconds: a day.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;
/// Time by which the server's call timeout exceeds the tool's own, so that the tool can report what timed out.
pub const GRACE: Duration = Duration::from_secs(2);

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            timeout_seconds: 30,
            response_bytes: 8 * 1024 * 1024,
            retries: 2,
            redirects: 3,
            bulkhead: crate::net::BulkheadConfig::default(),
        }
    }
}

/// Returns the time limit that a `timeout_seconds` sets, from one second to a day.
pub fn time_limit(seconds: u64) -> Duration {
    Duration::from_secs(seconds.clamp(1, TIMEOUT_SECONDS_MAX))
}
