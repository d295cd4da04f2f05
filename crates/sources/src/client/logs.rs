//! Log messages of servers that send them only after `logging/setLevel`, in versions with sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::listener::Listener;
use super::{Client, Params};
use crate::catalog::LogLevel;

/// Above all levels.
const NONE: u8 = LogLevel::Emergency as u8 + 1;
/// Time to wait for the response to `logging/setLevel`.
const SETS: Duration = Duration::from_secs(3);

/// Lowest log level that was requested on a connection.
#[derive(Debug, Default)]
pub(super) struct RequestedLevel(AtomicU8);

impl RequestedLevel {
    /// Records that the server supports `logging/setLevel`. Without that, nothing is requested.
    pub(super) fn is_supported(&self) {
        self.0.store(NONE, Ordering::Relaxed);
    }

    /// Returns true if no level as low as this was requested before, and records it.
    fn lower_to(&self, level: &str) -> bool {
        if self.0.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let level = LogLevel::parse(level).map(|level| level as u8);
        level.is_some_and(|level| level < self.0.fetch_min(level, Ordering::Relaxed))
    }
}

impl Client {
    /// Requests the log messages that a listener wants, unless they were requested before. Many servers send none
    /// until then.
    pub(super) async fn request_logs(&self, listener: Option<&Arc<dyn Listener>>) {
        let Some(level) = listener.and_then(|listener| listener.wants_log()) else {
            return;
        };
        if !self.logs.lower_to(level) {
            return;
        }
        let params = Params::new().with("level", level);
        let set = self.exchange("logging/setLevel", &params, None, Some(SETS));
        if let Err(error) = Box::pin(set).await {
            tracing::debug!(upstream = self.options.name, %error, "logging/setLevel failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_requested_once_and_only_if_it_is_lower() {
        let level = RequestedLevel::default();
        assert!(!level.lower_to("info"), "not supported");
        level.is_supported();
        for (name, is_lower) in [
            ("emergency", true),
            ("info", true),
            ("info", false),
            ("error", false),
            ("unknown", false),
            ("debug", true),
            ("debug", false),
        ] {
            assert_eq!(level.lower_to(name), is_lower, "{name}");
        }
    }
}
