//! Snapshot of all metrics, for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::histogram::{Distribution, HTTP, OPERATION, OPERATION_CONVENTION};
use super::instruments::{HTTP_ACTIVE, HTTP_DURATION, IN_FLIGHT, LATENCY, OPERATION_DURATION};
use super::metrics::{Instrument, Metrics};
use super::operation_ids::{Operation, Target};
use super::worker_counters::{HttpKey, OperationKey, OperationOutcome};

/// A label: dotted name and value.
pub type Label = (&'static str, Arc<str>);

/// Kind of an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// All series of an instrument.
#[derive(Clone, Debug)]
pub struct Family {
    pub instrument: Instrument,
    pub(crate) series: Vec<Series>,
}

/// Value of one label set.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub labels: Vec<Label>,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    Number(f64),
    Distribution(Distribution),
}

pub(super) fn labels(labels: &[(&'static str, &str)]) -> Vec<Label> {
    labels
        .iter()
        .map(|(name, value)| (*name, Arc::from(*value)))
        .collect()
}

/// Sums the counters of all workers.
pub(super) fn of_cells(metrics: &Metrics) -> Vec<Family> {
    let mut operations: BTreeMap<(usize, String), (OperationKey, Distribution)> = BTreeMap::new();
    let mut latencies: BTreeMap<usize, Distribution> = BTreeMap::new();
    let mut http: BTreeMap<String, (HttpKey, Distribution)> = BTreeMap::new();
    let (mut in_flight, mut active) = (0, 0);
    for cells in metrics.workers() {
        in_flight += cells.in_flight();
        active += cells.active_requests();
        cells.operations(|id, key, distribution| {
            latencies
                .entry(id)
                .or_insert_with(|| Distribution::empty(OPERATION))
                .add(&distribution);
            operations
                .entry((id, format!("{key:?}")))
                .or_insert_with(|| (key, Distribution::empty(OPERATION)))
                .1
                .add(&distribution);
        });
        cells.http(|key, distribution| {
            http.entry(format!("{key:?}"))
                .or_insert_with(|| (key, Distribution::empty(HTTP)))
                .1
                .add(&distribution);
        });
    }
    let names = metrics.names().all();
    let name_of = |id: usize| names.get(id).unwrap_or(&names[0]);
    let operations = operations
        .into_iter()
        .map(|((id, _), (key, distribution))| Series {
            labels: operation_labels(name_of(id), key),
            value: Value::Distribution(distribution.coarser(OPERATION_CONVENTION)),
        });
    let latencies = latencies.into_iter().map(|(id, distribution)| Series {
        labels: name_labels(name_of(id)),
        value: Value::Distribution(distribution),
    });
    let http = http.into_values().map(|(key, distribution)| Series {
        labels: http_labels(key, metrics.scheme()),
        value: Value::Distribution(distribution),
    });
    vec![
        family(&OPERATION_DURATION, operations),
        family(&LATENCY, latencies),
        family(&HTTP_DURATION, http),
        number(&IN_FLIGHT, in_flight as f64),
        number(&HTTP_ACTIVE, active as f64),
    ]
}

fn family(instrument: &Instrument, series: impl Iterator<Item = Series>) -> Family {
    Family {
        instrument: *instrument,
        series: series.collect(),
    }
}

/// Creates a family with a single value.
pub(super) fn number(instrument: &Instrument, value: f64) -> Family {
    let series = Series {
        labels: Vec::new(),
        value: Value::Number(value),
    };
    family(instrument, std::iter::once(series))
}

fn name_labels(operation: &Operation) -> Vec<Label> {
    let mut labels = vec![("mcp.method.name", Arc::clone(&operation.method))];
    if let Some((target, name)) = &operation.target {
        labels.push((target.attribute(), Arc::clone(name)));
    }
    labels
}

/// Labels of an operation, after the semantic conventions for MCP.
fn operation_labels(operation: &Operation, key: OperationKey) -> Vec<Label> {
    let mut labels = name_labels(operation);
    if matches!(operation.target, Some((Target::Tool, _))) {
        labels.push(("gen_ai.operation.name", "execute_tool".into()));
    }
    if let Some(error) = key.verdict.error_type() {
        labels.push(("error.type", error.into()));
    }
    if let Some(code) = key.verdict.status_code() {
        labels.push(("rpc.response.status_code", code.into()));
    }
    if let Some(revision) = key.revision {
        labels.push(("mcp.protocol.version", revision.as_str().into()));
    }
    if key.verdict == OperationOutcome::Other {
        return labels;
    }
    labels.push(("network.transport", key.wire.transport().into()));
    if let Some(version) = key.wire.http_version() {
        labels.push(("network.protocol.name", "http".into()));
        labels.push(("network.protocol.version", version.into()));
    }
    labels
}

/// Labels of an HTTP request, after the semantic conventions for HTTP.
fn http_labels(key: HttpKey, scheme: &str) -> Vec<Label> {
    let mut labels: Vec<Label> = vec![
        ("http.request.method", key.method().into()),
        ("http.response.status_code", key.status.to_string().into()),
        ("url.scheme", scheme.into()),
    ];
    if let Some(route) = key.route.label() {
        labels.push(("http.route", route.into()));
    }
    if let Some(version) = key.wire.http_version() {
        labels.push(("network.protocol.version", version.into()));
    }
    if key.status >= 500 {
        labels.push(("error.type", key.status.to_string().into()));
    }
    labels
}

impl Target {
    /// Returns the name of the attribute.
    pub fn attribute(self) -> &'static str {
        match self {
            Self::Tool => "gen_ai.tool.name",
            Self::Prompt => "gen_ai.prompt.name",
        }
    }
}
