//! Configuration of command tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::environment::Secret;
use crate::net::BulkheadConfig;
use crate::source::argument::ArgumentConfig;

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
    /// Working directory of commands. Default: the root of the file system.
    #[schemars(extend("x-path" = "file"))]
    pub directory: Option<PathBuf>,
    /// Environment variables for commands. Commands also get `PATH`, `LANG` and, if their call is traced,
    /// `TRACEPARENT` and `TRACESTATE`, and no others.
    pub environment: BTreeMap<String, Secret>,
    /// Names of this process's own environment variables to pass to commands, such as `HOME`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub inherit: Vec<String>,
    /// Resource limits of a command.
    pub limits: CommandLimits,
    /// The tools.
    pub tools: Vec<CommandToolConfig>,
}

impl CommandSourceConfig {
    /// Returns the settings that concern one of the tools.
    pub(super) fn with_tool_alone(&self, tool: &CommandToolConfig) -> Self {
        Self {
            directory: self.directory.clone(),
            environment: self.environment.clone(),
            inherit: self.inherit.clone(),
            limits: self.limits.clone(),
            tools: vec![tool.clone()],
        }
    }
}

/// Resource limits of a command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandLimits {
    /// Maximum run time, in seconds. The command and all of its descendants are then killed.
    pub timeout_seconds: u64,
    /// Maximum output, in bytes. A command that writes more is killed.
    pub output_bytes: usize,
    /// Maximum address space of each of its processes, in bytes; 0 for no limit.
    pub memory_bytes: u64,
    /// Maximum number of processes and threads, in addition to those that this user already has; 0 for unlimited. The
    /// superuser is not limited.
    pub processes: u64,
    /// Maximum number of open files of each of its processes.
    pub open_files: u64,
    /// Maximum number of concurrent runs of each tool.
    pub concurrency: usize,
    /// Maximum time a call waits in the queue, in milliseconds.
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
    pub(super) fn bulkhead(&self) -> BulkheadConfig {
        BulkheadConfig {
            concurrency: self.concurrency,
            queue_ms: self.queue_ms,
            ..BulkheadConfig::default()
        }
    }
}

/// A command line, described as a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandToolConfig {
    /// Name of the tool.
    pub name: String,
    /// Display name of the tool.
    pub title: Option<String>,
    /// Description of the tool, for the model.
    pub description: Option<String>,
    /// Arguments of the tool.
    #[schemars(with = "BTreeMap<String, ArgumentConfig>")]
    pub arguments: Map<String, Value>,
    /// Arguments as a JSON Schema, instead of `arguments`.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub input_schema: Option<Value>,
    /// Output schema of the tool, as a JSON Schema.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
    /// Program and its arguments.
    ///
    /// A string is one argument, regardless of the values in its placeholders. It is omitted if a placeholder has no
    /// value. If it is only one placeholder whose value is a list, each element is an argument. A list of strings is
    /// several arguments that are omitted together. A value cannot begin an argument with a dash, except after `--`.
    #[schemars(extend("x-path" = "program"))]
    pub argv: Vec<Value>,
    /// Allow values to begin an argument with a dash.
    pub allow_leading_dash: bool,
    /// Standard input of the command. Default: nothing.
    pub stdin: Option<String>,
    /// Type of the command's output.
    pub output: CommandOutput,
    /// Media type of the output for `output: binary`, such as `image/png`.
    pub media_type: Option<String>,
    /// Exit codes to treat as success in addition to 0.
    pub ok: Vec<i32>,
    /// Error messages for the model by exit code. Default: the code and the command's standard error, or if that is
    /// empty, its standard output.
    pub errors: BTreeMap<String, String>,
    /// Declare that the tool changes nothing.
    pub read_only: bool,
    /// Declare that the tool can destroy data.
    pub destructive: Option<bool>,
    /// Declare that the tool is idempotent.
    pub idempotent: Option<bool>,
}

/// Type of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CommandOutput {
    /// Text.
    #[default]
    Text,
    /// JSON.
    Json,
    /// An image, audio or a file.
    Binary,
}
