//! Command tools as they are configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Secret;
use crate::net::BulkheadConfig;
use crate::source::argument::ArgumentConfig;
use crate::source::config::TIMEOUT_SECONDS_MAX;

/// Command lines, each described as a tool.
///
/// ```yaml
/// sources:
///   - name: logs
///     command:
///       directory: /var/log
///       tools:
///         - name: search_logs
///           description: Lines of a log file that have a text in them.
///           arguments:
///             text: { description: "What to look for" }
///             file: { enum: [app.log, access.log] }
///             most: { type: integer, minimum: 1, maximum: 1000, default: 100 }
///           argv: [grep, --fixed-strings, "--max-count={{ most }}", "--regexp={{ text }}", --, "{{ file }}"]
///           ok: [1]
///           read_only: true
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandSourceConfig {
    /// Where commands run. Default: the root of the file system.
    #[schemars(extend("x-path" = "file"))]
    pub directory: Option<PathBuf>,
    /// Variables that commands get. Besides these they get `PATH`, `LANG` and, where their call is traced, `TRACEPARENT` and
    /// `TRACESTATE`, and no others.
    pub environment: BTreeMap<String, Secret>,
    /// Names of this process's own variables that commands get too, such as `HOME`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub inherit: Vec<String>,
    /// How much and how long.
    pub limits: CommandLimits,
    /// The tools.
    pub tools: Vec<CommandToolConfig>,
}

/// How much a command may take, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandLimits {
    /// How long it may run, in seconds. It is then killed, with everything it started. Default: 30.
    pub timeout_seconds: u64,
    /// How much it may write, in bytes; it is killed when it writes more. Default: 1048576, 1 MiB.
    pub output_bytes: usize,
    /// How much memory each of its processes may have, in bytes of address space; 0 for no limit. Default: 536870912,
    /// 512 MiB.
    pub memory_bytes: u64,
    /// How many processes and threads there may be besides those that this user already has; 0 for no limit. The
    /// superuser is not limited. Default: 64.
    pub processes: u64,
    /// How many files each of its processes may have open. Default: 256.
    pub open_files: u64,
    /// How many may run at once, of each tool. Default: 8.
    pub concurrency: usize,
    /// How long a call waits for its turn, in milliseconds. Default: 1000.
    pub queue_ms: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            timeout_seconds: 30,
            output_bytes: 1024 * 1024,
            memory_bytes: 512 * 1024 * 1024,
            processes: 64,
            open_files: 256,
            concurrency: 8,
            queue_ms: 1000,
        }
    }
}

impl CommandLimits {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX))
    }

    pub(super) fn bulkhead(&self) -> BulkheadConfig {
        BulkheadConfig {
            concurrency: self.concurrency,
            queue_ms: self.queue_ms,
            ..BulkheadConfig::default()
        }
    }
}

/// One command line, described as a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandToolConfig {
    /// The name it is called by.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, for the model that chooses.
    pub description: Option<String>,
    /// Its arguments.
    #[schemars(with = "BTreeMap<String, ArgumentConfig>")]
    pub arguments: Map<String, Value>,
    /// Its arguments as a JSON Schema, instead of `arguments`.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub input_schema: Option<Value>,
    /// What its results look like, as a JSON Schema.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
    /// The program and its arguments. A text is one argument, whatever its placeholders hold; where a placeholder has no
    /// value, it is left out. A list of texts is several arguments, which are left out together. A value must not begin an
    /// argument with a dash, except behind `--`.
    #[schemars(extend("x-path" = "program"))]
    pub argv: Vec<Value>,
    /// Whether values may begin an argument with a dash. Default: false.
    pub allow_leading_dash: bool,
    /// What the command reads. Default: nothing.
    pub stdin: Option<String>,
    /// What the command writes. Default: `text`.
    pub output: CommandOutput,
    /// What kind of bytes it writes, for `output: binary`, such as `image/png`.
    pub media_type: Option<String>,
    /// Exit codes that are none of success in general and are here. Default: none.
    pub ok: Vec<i32>,
    /// What the model is told of an exit code. Default: the code, and what the command wrote to its standard error.
    pub errors: BTreeMap<String, String>,
    /// Whether it changes nothing. Default: false.
    pub read_only: bool,
    /// Whether it may destroy what was there.
    pub destructive: Option<bool>,
    /// Whether running it twice changes no more than running it once.
    pub idempotent: Option<bool>,
}

/// What a command writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CommandOutput {
    /// Text.
    #[default]
    Text,
    /// JSON.
    Json,
    /// A picture, a sound or a file.
    Binary,
}
