//! Audit log: a record of each call and each rejected request.
//!
//! Records are queued where a decision is made, and written by a separate thread, so that no request waits for a disk
//! or a collector. The queue is bounded. If records are [required](AuditConfig::required), a call reserves its place
//! in the queue before it runs, or does not run.
//!
//! # Failure
//!
//! Lost records are counted. If records are required, none is dropped: the thread retries, calls are rejected
//! meanwhile, and the server is not ready.

mod config;
mod queue;
mod record;
mod writer;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use config::{AuditConfig, AuditError};
use queue::Queue;
pub use queue::QueueSlot;
pub use record::{Entry, Event, Outcome, Subject, SubjectKind};
use writer::Writer;

use crate::telemetry::{Redaction, Telemetry, omitted, records_are_sent, secret_properties};

/// The audit log. Clones share it.
#[derive(Debug)]
pub struct Audit {
    queue: Arc<Queue>,
    /// Redaction of arguments. `None` if they are not recorded.
    arguments: Option<Redaction>,
    all_methods: bool,
    required: bool,
}

impl Audit {
    /// Starts the audit log. Returns `None` if it is not configured.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or a setting is invalid.
    pub fn start(
        config: &AuditConfig,
        telemetry: &Telemetry,
    ) -> Result<Option<Arc<Self>>, AuditError> {
        config.check()?;
        if !config.is_on() {
            return Ok(None);
        }
        if config.otlp && !records_are_sent() {
            tracing::warn!(
                setting = "audit.otlp",
                "no collector is sent the log, so it gets no records either; name one with telemetry.endpoint"
            );
        }
        Self::writing(config, telemetry, |queue| Writer::open(config, queue)).map(Some)
    }

    fn writing(
        config: &AuditConfig,
        telemetry: &Telemetry,
        open: impl FnOnce(Arc<Queue>) -> Result<Writer, AuditError>,
    ) -> Result<Arc<Self>, AuditError> {
        let arguments = config.redaction()?;
        let queue = Arc::new(Queue::new(config, telemetry));
        let writer = open(Arc::clone(&queue))?;
        std::thread::Builder::new()
            .name("longshore-audit".to_owned())
            .spawn(move || writer.run())
            .map_err(AuditError::Thread)?;
        let audit = Self {
            queue,
            arguments,
            all_methods: config.all_methods,
            required: config.required,
        };
        Ok(Arc::new(audit))
    }

    /// Records the start of the log.
    pub fn begin(&self) {
        self.note(Entry::new(Event::Start).saying("version", env!("CARGO_PKG_VERSION")));
    }

    /// Returns true if read-only requests are recorded too.
    pub fn records_all_methods(&self) -> bool {
        self.all_methods
    }

    /// Reserves the record of a call that is about to run.
    ///
    /// # Errors
    ///
    /// The record cannot be stored, and the call must not run without it.
    pub fn ticket(&self) -> Result<Option<QueueSlot>, AuditFull> {
        if self.required {
            Queue::reserve(&self.queue).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Queues a record.
    pub fn note(&self, entry: Entry) {
        self.queue.push(entry);
    }

    /// Queues a record of a rejected unauthenticated request. These are rate-limited and leave room for others.
    pub fn note_stranger(&self, entry: Entry) {
        self.queue.push_of_stranger(entry);
    }

    /// Returns the redacted arguments, if arguments are recorded.
    pub fn arguments(
        &self,
        json: &str,
        schema: Option<&serde_json::Value>,
    ) -> Option<serde_json::Value> {
        let redaction = self.arguments.as_ref()?;
        let mut marked = BTreeSet::new();
        if let Some(schema) = schema {
            secret_properties(schema, &mut marked);
        }
        Some(redaction.show(json, &marked))
    }

    /// Returns a placeholder with the size of the arguments, if arguments are recorded.
    pub fn omitted(&self, json: &str) -> Option<serde_json::Value> {
        self.arguments.as_ref()?;
        Some(omitted(json))
    }

    /// Reopens the file on SIGHUP, for as long as it is polled.
    pub async fn keep_reopening(&self) -> std::convert::Infallible {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            if let Ok(mut hangup) = signal(SignalKind::hangup()) {
                while hangup.recv().await.is_some() {
                    self.queue.reopen();
                }
            }
        }
        std::future::pending().await
    }

    /// Waits until all queued records are written, with a timeout.
    pub async fn flush(&self, within: Duration) {
        self.note(Entry::new(Event::Stop));
        if tokio::time::timeout(within, self.queue.written())
            .await
            .is_err()
        {
            tracing::warn!(
                setting = "audit",
                "records of the audit log were not written in time"
            );
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue.stop();
    }
}

/// Error: the queue has no room for a required record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditFull;

/// Destination of lines: a file, standard error, or a test double.
trait Sink: Send {
    /// Writes a part of the bytes, like [`io::Write`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Reopens a named file. Returns true if it is empty.
    fn reopen(&mut self) -> io::Result<bool>;

    /// Returns true for a file that was deleted, so that nobody could read what is written.
    fn is_deleted(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
