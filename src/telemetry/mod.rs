//! What operators see of a running server.
//!
//! Rooms below count: simple counters and gauges come from [`Metrics`], which hands out cells by the [`Instrument`] that
//! describes them; what every request passes through is counted in [`Cells`], of which each worker has its own. Readers
//! (`/metrics`, an exporter) look at a [`Family`] list made for them, so that both say the same.
//!
//! Nothing here knows sockets or messages. Names that strangers choose never become labels: cells are found by ids that
//! were given to names of the catalog when it was built.

mod cells;
mod config;
mod histogram;
mod instruments;
mod life;
mod metrics;
mod names;
mod process;
mod prometheus;
mod snapshot;
mod watch;

pub use config::{MetricsPolicy, TelemetryConfig};

pub(crate) use cells::{Cells, HttpKey, Route, Verdict, Wire};
pub(crate) use instruments::*;
#[allow(
    unused_imports,
    reason = "for rooms below that something must be waited for"
)]
pub(crate) use life::Gate;
pub(crate) use life::{Life, Phase};
pub(crate) use metrics::{Counter, Gauge, Hold, Metrics, Timing};
pub(crate) use names::{OperationId, Target};
pub(crate) use prometheus::{MEDIA as PROMETHEUS_MEDIA, page as prometheus_page};
pub(crate) use watch::{HttpWatch, Telemetry, Watch, WatchedLater};
