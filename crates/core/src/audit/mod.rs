//! Who did what, and what was decided about it: one record for each.
//!
//! Records are put down where something is decided, and written by a thread of their own, so that no request waits for a
//! disk or a collector. What waits to be written is bounded. Where records are [required](AuditConfig::required), a call
//! takes its record's place in the queue before it runs, and does not run if there is none.
//!
//! # Failure
//!
//! What could not be written is counted. Where records are required nothing is given up: the thread keeps what it has and
//! tries again, calls are refused meanwhile, and the server is not ready.

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
pub use queue::Ticket;
pub use record::{Entry, Event, Outcome, Subject, SubjectKind};
use writer::Writer;

use crate::telemetry::{Redaction, Telemetry, omitted, records_are_sent, secret_properties};

/// Where records are put down.
#[derive(Debug)]
pub struct Audit {
    queue: Arc<Queue>,
    /// How arguments are shown; `None` if they are not.
    arguments: Option<Redaction>,
    all_methods: bool,
    required: bool,
}

impl Audit {
    /// Begins to write records. `None` if nobody wants any.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or a setting makes no sense.
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
        let arguments = match config.arguments {
            true => Some(
                Redaction::new(&config.redact, config.arguments_bytes)
                    .map_err(|pattern| AuditError::Pattern { pattern })?,
            ),
            false => None,
        };
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

    /// Says that records are written from here on.
    pub fn begin(&self) {
        self.note(Entry::new(Event::Start).saying("version", env!("CARGO_PKG_VERSION")));
    }

    /// Whether requests are recorded too that change nothing and call nothing.
    pub fn records_all_methods(&self) -> bool {
        self.all_methods
    }

    /// A place for the record of a call that is about to run.
    ///
    /// # Errors
    ///
    /// There is none, and the call must not run without.
    pub fn ticket(&self) -> Result<Option<Ticket>, Unrecorded> {
        if self.required {
            Queue::reserve(&self.queue).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Puts a record down.
    pub fn note(&self, entry: Entry) {
        self.queue.push(entry);
    }

    /// Puts down that somebody was turned away who may be anybody. Such records leave room for others, and are only so
    /// many a second.
    pub fn note_stranger(&self, entry: Entry) {
        self.queue.push_of_stranger(entry);
    }

    /// Arguments as a record shows them, if it does; without what their schema calls a secret.
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

    /// Arguments of which a record says only how large they are, if it shows arguments.
    pub fn omitted(&self, json: &str) -> Option<serde_json::Value> {
        self.arguments.as_ref()?;
        Some(omitted(json))
    }

    /// Has the file opened again, after it was moved away.
    pub(crate) fn reopen(&self) {
        self.queue.reopen();
    }

    /// Opens the file again whenever the process is sent SIGHUP, for as long as it is polled.
    pub async fn keep_reopening(&self) -> std::convert::Infallible {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            if let Ok(mut hangup) = signal(SignalKind::hangup()) {
                while hangup.recv().await.is_some() {
                    self.reopen();
                }
            }
        }
        std::future::pending().await
    }

    /// Waits until everything is written that was put down so far, but not for longer.
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

/// There is no place for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecorded;

/// Where lines go. Files and standard error are; tests have others.
trait Sink: Send {
    /// Writes some of the bytes, as [`io::Write`] does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Opens anew what has a name.
    fn reopen(&mut self) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
