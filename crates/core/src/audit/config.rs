//! Audit log settings.

use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::writer::NamedFile;
use crate::environment::Conflicts;
use crate::telemetry::Redaction;

/// Audit log: a record for each call and each rejected request, with the caller and the decision.
///
/// Records need a destination: a file, standard error or the collector. [security.md](security.md) lists the fields
/// of a record.
///
/// ```toml
/// [audit]
/// file = "/var/log/longshore/audit.jsonl"
/// required = true
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// File to write to, one JSON object per line. It is created with mode 0600 and reopened on SIGHUP.
    #[schemars(extend("x-path" = "file"))]
    pub file: Option<PathBuf>,
    /// Write to standard error, between the lines of the log.
    pub stderr: bool,
    /// Send records to the OpenTelemetry collector that receives the log.
    pub otlp: bool,
    /// Reject calls that cannot be recorded: while records cannot be written, calls get 503 and the server is not
    /// ready. Requires `audit.file` or `audit.stderr`. If false, records that cannot be written are counted and lost.
    pub required: bool,
    /// Maximum number of records that wait to be written.
    pub queue: usize,
    /// Record read-only requests too: lists, completions, pings, handshakes.
    pub all_methods: bool,
    /// Maximum number of records per second for rejected unauthenticated requests; others are only counted. 0 records
    /// none.
    pub refusals_per_second: u32,
    /// Record the arguments of calls, with secrets redacted.
    pub arguments: bool,
    /// Maximum size of recorded arguments, in bytes. Long strings are cut; if the rest is still too large, only the
    /// size is recorded.
    pub arguments_bytes: usize,
    /// Names of further arguments to redact at any depth; `*` and `?` are wildcards. Names such as `password`,
    /// `token` and `api_key` are always redacted.
    #[serde(deserialize_with = "crate::environment::list")]
    pub redact: Vec<String>,
}

impl AuditConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([("audit.queue", self.queue as u64)]);
        if self.lacks_a_place() {
            conflicts.add(
                "audit.required is true, and no record is written on this machine",
                "set audit.file or audit.stderr: a collector confirms a record too late",
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

/// Error in the audit log settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("audit.file: {} cannot be opened for writing; name a file in a folder that exists and that this process may write to", path.display())]
    Open {
        /// Name of the setting.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("audit.file: {} is a folder or a pipe; name a file", path.display())]
    NoFile {
        /// Name of the setting.
        path: PathBuf,
    },
    /// Records are required but have no reliable destination.
    #[error(
        "audit.required is true, but no record is written on this machine; set audit.file or audit.stderr: a collector confirms a record too late"
    )]
    NothingToWriteTo,
    /// There is no room for anything.
    #[error("audit.queue is 0; set it to at least 1, or remove it for the default")]
    NoQueue,
    /// The value is not a valid name.
    #[error(
        "audit.redact has {pattern:?}, which is not a pattern for argument names; `*` and `?` match anything"
    )]
    Pattern {
        /// The pattern.
        pattern: String,
    },
    /// The thread that writes cannot be started.
    #[error("the thread that writes the audit log cannot be started")]
    Thread(#[source] io::Error),
}

impl AuditConfig {
    /// Returns true if the audit log has a destination.
    pub fn is_on(&self) -> bool {
        self.file.is_some() || self.stderr || self.otlp
    }

    /// Returns true if records are required but have no destination that confirms a write.
    pub fn lacks_a_place(&self) -> bool {
        self.required && self.file.is_none() && !self.stderr
    }

    /// Checks the settings, and that a file which exists can be written to. No file is created.
    ///
    /// # Errors
    ///
    /// The setting with which the audit log cannot start.
    pub fn check(&self) -> Result<(), AuditError> {
        if self.lacks_a_place() {
            return Err(AuditError::NothingToWriteTo);
        }
        if self.queue == 0 {
            return Err(AuditError::NoQueue);
        }
        if let Some(path) = self.file.as_deref().filter(|path| path.exists()) {
            NamedFile::open(path)?;
        }
        self.redaction().map(drop)
    }

    /// Returns the redaction of arguments; `None` if they are not recorded.
    pub(super) fn redaction(&self) -> Result<Option<Redaction>, AuditError> {
        let redaction = self
            .arguments
            .then(|| Redaction::new(&self.redact, self.arguments_bytes));
        let redaction = redaction.transpose();
        redaction.map_err(|pattern| AuditError::Pattern { pattern })
    }
}
