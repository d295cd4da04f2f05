//! Lines of the log on their way to a collector.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};
use std::time::SystemTime;

use tokio::sync::mpsc;

use super::metrics::Counter;
use super::trace::TraceContext;

/// One line of the log.
#[derive(Debug)]
pub struct Record {
    pub time: SystemTime,
    pub level: tracing::Level,
    pub target: Cow<'static, str>,
    pub message: String,
    pub fields: Vec<(Cow<'static, str>, String)>,
    pub trace: Option<TraceContext>,
}

/// Where records go; the log begins before there is a place for them, and is the whole process's.
static SINK: RwLock<Option<Sink>> = RwLock::new(None);

#[derive(Debug)]
struct Sink {
    records: mpsc::Sender<Record>,
    dropped: Counter,
}

/// Has records sent from now on.
#[cfg(feature = "otlp")]
pub(super) fn send_to(records: mpsc::Sender<Record>, dropped: Counter) {
    let mut sink = SINK.write().unwrap_or_else(PoisonError::into_inner);
    *sink = Some(Sink { records, dropped });
}

/// Has no further records sent.
#[cfg(feature = "otlp")]
pub(super) fn send_nowhere() {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Whether there is a place for records.
pub fn are_sent() -> bool {
    SINK.read()
        .unwrap_or_else(PoisonError::into_inner)
        .is_some()
}

/// Sends a record, if there is a place for it; it is only made if there is.
pub fn send(record: impl FnOnce() -> Record) {
    let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(sink) = &*sink
        && sink.records.try_send(record()).is_err()
    {
        sink.dropped.add(1);
    }
}
