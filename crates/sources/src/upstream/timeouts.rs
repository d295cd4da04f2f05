//! Timeouts of connections to upstreams that have no setting.

use std::time::Duration;

/// Timeout of a listing request, once the server is connected.
pub(super) const DISCOVERY: Duration = Duration::from_secs(10);
/// Grace period for a program that is no longer needed.
pub(super) const GRACE: Duration = Duration::from_secs(5);
