//! Telemetry: metrics, traces, log records and readiness.
//!
//! Rooms below count: simple counters and gauges come from `Metrics`, which hands out cells by the `Instrument` that
//! describes them; what every request passes through is counted in `WorkerCounters`, of which each worker has its own. Readers
//! (`/metrics`, an exporter) look at a `Family` list made for them, so that both say the same.
//!
//! This module knows neither sockets nor messages. Client-chosen names never become labels. Operation IDs are
//! assigned to catalog names when the catalog is built.

mod worker_counters;
mod config;
mod export;
mod histogram;
mod instruments;
mod legible;
mod log_interval;
mod readiness;
mod metrics;
mod operation_ids;
mod propagation;
mod export_queue;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
mod prometheus;
mod reasons;
mod records;
mod redact;
#[cfg(feature = "otlp")]
mod settings;
mod snapshot;
mod trace;
#[cfg(feature = "otlp")]
mod variables;
mod request_scope;

pub use config::{ExportProtocol, MetricsPolicy, SpanNames, TelemetryConfig};
pub use trace::{TraceContext, current as current_trace};

pub use export::Export;
#[cfg(feature = "cli")]
pub use export::{EndpointCheck, check_export, examine_export};
pub use instruments::*;
#[cfg(feature = "cli")]
pub use legible::is_misleading;
pub use legible::legible_json;
pub use log_interval::LogInterval;
pub use metrics::{Counter, Gauge, GaugeGuard, Metrics, Timing};
pub use operation_ids::{OperationId, Target};
pub use process::memory_bytes;
pub use prometheus::{MEDIA as PROMETHEUS_MEDIA, page as prometheus_page};
pub use propagation::{AttributeValue, ClientSpan, SpanEnd, SpanInfo, TraceLink};
pub use readiness::ReadinessGate;
pub use readiness::{Phase, ServerLifecycle, UpstreamCounts};
pub use reasons::{Reason, Refusals};
pub use records::{Record, are_sent as records_are_sent, send as send_record};
pub use redact::{Redaction, is_named_like_a_secret, omitted, secret_properties};
pub use request_scope::{
    DeferredScope, HttpWatch, RequestObserver, RequestOrigin, RequestResult, RequestScope,
    Succession, Telemetry,
};
pub use trace::{
    Baggage, Propagation, enter as enter_trace, of_headers as trace_of_headers,
    of_meta as trace_of_meta,
};
pub use worker_counters::{CountedTransport, HttpKey, OperationOutcome, Route, WorkerCounters};
