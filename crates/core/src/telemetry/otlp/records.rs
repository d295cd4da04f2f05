//! Conversion of log lines to OTLP records.

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, Severity};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger};

use crate::telemetry::records::Record;
use crate::telemetry::settings::AttributeLimits;

pub(super) fn log_record(
    record: Record,
    logger: &SdkLogger,
    limits: AttributeLimits,
) -> SdkLogRecord {
    let mut out = logger.create_log_record();
    out.set_timestamp(record.time);
    out.set_observed_timestamp(record.time);
    out.set_target(record.target);
    let (severity, word) = match record.level {
        tracing::Level::TRACE => (Severity::Trace, "TRACE"),
        tracing::Level::DEBUG => (Severity::Debug, "DEBUG"),
        tracing::Level::INFO => (Severity::Info, "INFO"),
        tracing::Level::WARN => (Severity::Warn, "WARN"),
        tracing::Level::ERROR => (Severity::Error, "ERROR"),
    };
    out.set_severity_number(severity);
    out.set_severity_text(word);
    out.set_body(AnyValue::String(record.message.into()));
    for (name, value) in record.fields.into_iter().take(limits.count) {
        match limits.cut(&value) {
            Some(cut) => out.add_attribute(name, cut.to_owned()),
            None => out.add_attribute(name, value),
        }
    }
    if let Some(trace) = record.trace {
        out.set_trace_context(
            TraceId::from(trace.trace_id),
            SpanId::from(trace.span_id),
            Some(TraceFlags::new(trace.flags)),
        );
    }
    out
}
