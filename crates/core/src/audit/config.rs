//! What can be set about the audit log.

use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// Who did what, and what was decided about it: a record for each call and for each request that was turned away.
///
/// Without a place to write to there are none. What a record says is told in [security.md](security.md).
///
/// ```toml
/// [audit]
/// file = "/var/log/longshore/audit.jsonl"
/// required = true
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// A file to write to, a JSON object in each line. It is made with mode 0600 if it is not there, and opened again on
    /// SIGHUP. Default: none.
    #[schemars(extend("x-path" = "file"))]
    pub file: Option<PathBuf>,
    /// Whether to write to standard error, between the lines of the log. Default: false.
    pub stderr: bool,
    /// Whether to send records to the OpenTelemetry collector that gets the log. Default: false.
    pub otlp: bool,
    /// Whether nothing may happen that is not recorded: while records cannot be written, calls are refused (503) and the
    /// server is not ready. Demands `audit.file` or `audit.stderr`. Default: false, and records that cannot be written are
    /// lost and counted.
    pub required: bool,
    /// How many records may wait to be written. Default: 8192.
    pub queue: usize,
    /// Whether requests are recorded too that only ask: lists, completions, pings, handshakes. Default: false.
    pub all_methods: bool,
    /// How many requests a second are recorded that were turned away before it was known who sent them; others are
    /// counted. 0 records none. Default: 100.
    pub refusals_per_second: u32,
    /// Whether the arguments of calls are recorded, without what looks like a secret. Default: false.
    pub arguments: bool,
    /// Bytes of arguments that a record may have; longer texts in them are cut, and of what is still too large only the
    /// size is recorded. Default: 4096.
    pub arguments_bytes: usize,
    /// Names of further arguments whose values are left out, at any depth; `*` and `?` stand for anything. Default:
    /// none, beside names such as `password`, `token` and `api_key`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub redact: Vec<String>,
}

impl AuditConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([("audit.queue", self.queue as u64)]);
        if self.lacks_a_place() {
            conflicts.add(
                "audit.required is true, and nothing is written here",
                "set audit.file or audit.stderr: whether a collector has kept a record is not known in time",
            );
        }
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            file: None,
            stderr: false,
            otlp: false,
            required: false,
            queue: 8192,
            all_methods: false,
            refusals_per_second: 100,
            arguments: false,
            arguments_bytes: 4096,
            redact: Vec::new(),
        }
    }
}

/// Why there can be no audit log as it was configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("audit.file: {} cannot be opened for writing; name a file in a folder that exists and that this process may write to", path.display())]
    Open {
        /// Which one.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is no file to which lines can be added.
    #[error("audit.file: {} is a folder or a pipe; name a file", path.display())]
    NoFile {
        /// Which one.
        path: PathBuf,
    },
    /// What is demanded cannot be known.
    #[error(
        "audit.required is true, but nothing is written here; set audit.file or audit.stderr: whether a collector has kept a record is not known in time"
    )]
    NothingToWriteTo,
    /// There is no room for anything.
    #[error("audit.queue is 0; give it at least 1, or leave it out for the default")]
    NoQueue,
    /// A name that is none.
    #[error(
        "audit.redact has {pattern:?}, which is no name of an argument; `*` and `?` stand for anything"
    )]
    Pattern {
        /// What it says instead.
        pattern: String,
    },
    /// The thread that writes cannot be started.
    #[error("the thread that writes the audit log cannot be started")]
    Thread(#[source] io::Error),
}

impl AuditConfig {
    /// Whether there is a place for records.
    pub fn is_on(&self) -> bool {
        self.file.is_some() || self.stderr || self.otlp
    }

    /// Whether records are demanded, and nobody would know of one that was written.
    pub fn lacks_a_place(&self) -> bool {
        self.required && self.file.is_none() && !self.stderr
    }

    pub(super) fn check(&self) -> Result<(), AuditError> {
        if self.lacks_a_place() {
            return Err(AuditError::NothingToWriteTo);
        }
        if self.queue == 0 {
            return Err(AuditError::NoQueue);
        }
        Ok(())
    }
}
