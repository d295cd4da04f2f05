//! Settings of the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// The program's log, on standard error. An application that uses the library has a log of its own, and none of this.
///
/// ```toml
/// [log]
/// level = "warn,longshore_http=debug"
/// format = "json"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Level: `error`, `warn`, `info`, `debug`, `trace` or `off`; also for parts, as in
    /// `warn,longshore_http=debug`. Default: `info`.
    #[schemars(extend("x-reload" = "live"))]
    pub level: String,
    /// Maximum length of a line, in bytes, 512 to 1048576. A longer line is cut.
    pub line_bytes: usize,
    /// Log format. If unset: `json` in containers and on platforms, `text` elsewhere and on terminals.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For collectors of logs: every line is an object.
    Json,
}

impl LogConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.within([("log.line_bytes", self.line_bytes as u64, 512..=1024 * 1024)]);
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            line_bytes: 8 * 1024,
            format: LogFormat::Text,
        }
    }
}
