//! What an upstream server says while it works on a call goes to whoever made the call.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::catalog::{CallContext, LogLevel};
use crate::client::Listener;

/// What upstream servers are told that they may ask for.
pub(super) fn capabilities() -> Map<String, Value> {
    Map::new()
}

/// Passes on what is said about one call.
pub(super) struct Relay(pub(super) Arc<CallContext>);

impl Listener for Relay {
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.0.report_progress(progress, total, message.unwrap_or_default());
    }

    fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let level = level.parse().unwrap_or(LogLevel::Info);
        match logger {
            Some(logger) => self.0.send_log(level, &serde_json::json!({"logger": logger, "data": data})),
            None => self.0.send_log(level, data),
        }
    }
}
