//! Log records on their way to a collector.

use std::borrow::Cow;
use std::time::SystemTime;

use tokio::sync::mpsc;

use super::metrics::Counter;
use super::trace::TraceContext;
use crate::net::RwLock;

/// A log record.
#[derive(Debug)]
pub struct Record {
    pub time: SystemTime,
    pub level: tracing::Level,
    pub target: Cow<'static, str>,
    pub message: String,
    pub fields: Vec<(Cow<'static, str>, String)>,
    pub trace: Option<TraceContext>,
}

/// Destination of records. It is process-wide, and unset until exporters start after the log does.
static SINK: RwLock<Option<Sink>> = RwLock::new(None);

#[derive(Debug)]
struct Sink {
    records: mpsc::Sender<Record>,
    dropped: Counter,
}

/// Starts the export of records.
#[cfg(feature = "otlp")]
pub(super) fn send_to(records: mpsc::Sender<Record>, dropped: Counter) {
    *SINK.write() = Some(Sink { records, dropped });
}

/// Stops the export of records.
#[cfg(feature = "otlp")]
pub(super) fn send_nowhere() {
    *SINK.write() = None;
}

/// Returns true if records are exported.
pub fn are_sent() -> bool {
    SINK.read().is_some()
}

/// Queues a record for export. `record` is evaluated only if records are exported.
pub fn send(record: impl FnOnce() -> Record) {
    if let Some(sink) = &*SINK.read()
        && sink.records.try_send(record()).is_err()
    {
        sink.dropped.add(1);
    }
}
