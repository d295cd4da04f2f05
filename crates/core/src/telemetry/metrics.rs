//! Counters, gauges and timings, and the registry that collects them.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::histogram::{self, Histogram};
use super::operation_ids::{Names, OTHER, OperationId, Target};
use super::snapshot::{self, Family, Kind, Label, Series, Value};
use super::worker_counters::WorkerCounters;
use crate::net::Mutex;

/// An instrument: dotted name, UCUM unit and description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: &'static str,
    pub help: &'static str,
}

impl Instrument {
    /// A monotonic counter.
    pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind: Kind::Counter,
            unit,
            help,
        }
    }

    /// A value that can increase and decrease.
    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind: Kind::Gauge,
            unit,
            help,
        }
    }

    /// A duration histogram, in seconds.
    pub const fn timing(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind: Kind::Histogram,
            unit: "s",
            help,
        }
    }
}

/// Metrics of one server. Clones share them.
///
/// ```ignore
/// const HITS: Instrument = Instrument::counter("longshore.limit.hits", "{request}", "Requests refused by a limit");
/// let hits = metrics.counter(&HITS, &[("limit", "principal")]); // once, at start
/// hits.add(1); // as often as needed: one atomic addition
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Registry>);

#[derive(Default)]
struct Registry {
    /// URL scheme of the listeners. Unset means plain HTTP.
    scheme: OnceLock<&'static str>,
    declared: Mutex<Vec<Declared>>,
    workers: Mutex<Vec<Arc<WorkerCounters>>>,
    names: Names,
}

struct Declared {
    instrument: Instrument,
    series: Vec<(Vec<Label>, Source)>,
}

#[derive(Clone)]
enum Source {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<AtomicI64>),
    Timing(Arc<Histogram>),
    /// A callback, evaluated on each collection. It returns `None` if the series has ended.
    Read(Arc<dyn Fn() -> Option<f64> + Send + Sync>),
}

impl Source {
    /// Returns the current value, or `None` if the series has ended.
    fn value(&self, instrument: &Instrument) -> Option<Value> {
        Some(match self {
            Self::Counter(cell) => Value::Number(cell.load(Relaxed) as f64),
            Self::Gauge(cell) => Value::Number(cell.load(Relaxed) as f64),
            Self::Timing(cell) => {
                let fine = cell.read(histogram::OPERATION);
                // Instruments of the semantic conventions have the buckets of the conventions.
                let is_theirs = instrument.name.starts_with("mcp.");
                Value::Distribution(match is_theirs {
                    true => fine.coarser(histogram::OPERATION_CONVENTION),
                    false => fine,
                })
            }
            Self::Read(read) => Value::Number(read()?),
        })
    }
}

/// Maximum number of series of an instrument.
const SERIES_MAX: usize = 1024;

/// A counter. The default one is not collected.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A gauge. The default one is not collected.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn value(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Increments a gauge until the returned guard is dropped.
    pub fn hold(&self) -> GaugeGuard {
        self.0.fetch_add(1, Relaxed);
        GaugeGuard(self.clone())
    }
}

/// Decrements a gauge when dropped.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// A timing. The default one is not collected.
#[derive(Clone, Debug, Default)]
pub struct Timing(Arc<Histogram>);

impl Timing {
    pub fn record(&self, elapsed: Duration) {
        self.0.record(histogram::OPERATION, elapsed);
    }
}

impl Metrics {
    /// Sets the URL scheme of the listeners, `http` or `https`. Only the first call counts.
    pub fn speaks(&self, scheme: &'static str) {
        let _ = self.0.scheme.set(scheme);
    }

    /// Returns the URL scheme of the listeners.
    pub fn scheme(&self) -> &'static str {
        self.0.scheme.get().copied().unwrap_or("http")
    }

    /// Returns the counter with these labels, and creates it on first use. Label values must come from a fixed set,
    /// never from clients. Beyond the maximum, series share one counter.
    pub fn counter(&self, instrument: &Instrument, labels: &[(&'static str, &str)]) -> Counter {
        match self.declare(instrument, labels, || Source::Counter(Arc::default())) {
            Source::Counter(cell) => Counter(cell),
            _ => Counter::default(),
        }
    }

    /// Returns the gauge with these labels, like `counter`.
    pub fn gauge(&self, instrument: &Instrument, labels: &[(&'static str, &str)]) -> Gauge {
        match self.declare(instrument, labels, || Source::Gauge(Arc::default())) {
            Source::Gauge(cell) => Gauge(cell),
            _ => Gauge::default(),
        }
    }

    /// Returns the timing with these labels, like `counter`.
    pub fn timing(&self, instrument: &Instrument, labels: &[(&'static str, &str)]) -> Timing {
        match self.declare(instrument, labels, || Source::Timing(Arc::default())) {
            Source::Timing(cell) => Timing(cell),
            _ => Timing::default(),
        }
    }

    /// Registers a callback for a counter or gauge, and replaces an earlier one.
    pub fn read(
        &self,
        instrument: &Instrument,
        labels: &[(&'static str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.read_while_some(instrument, labels, move || Some(read()));
    }

    /// Registers a callback in the same way. The series is removed once the callback returns `None`.
    pub fn read_while_some(
        &self,
        instrument: &Instrument,
        labels: &[(&'static str, &str)],
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        let read: Source = Source::Read(Arc::new(read));
        let labels: Vec<Label> = snapshot::labels(labels);
        let mut declared = self.0.declared.lock();
        let family = family(&mut declared, instrument);
        if let Some((_, source)) = family.series.iter_mut().find(|(known, _)| *known == labels) {
            *source = read;
        } else if family.series.len() < SERIES_MAX {
            family.series.push((labels, read));
        }
    }

    fn declare(
        &self,
        instrument: &Instrument,
        labels: &[(&'static str, &str)],
        source: impl FnOnce() -> Source,
    ) -> Source {
        let mut labels: Vec<Label> = snapshot::labels(labels);
        let mut declared = self.0.declared.lock();
        let family = family(&mut declared, instrument);
        let is_full = SERIES_MAX <= family.series.len() + 1;
        if is_full && !family.series.iter().any(|(known, _)| *known == labels) {
            for (_, value) in &mut labels {
                *value = OTHER.into();
            }
        }
        if let Some((_, known)) = family.series.iter().find(|(known, _)| *known == labels) {
            return known.clone();
        }
        let source = source();
        family.series.push((labels, source.clone()));
        source
    }

    /// Cells for one more worker.
    pub(super) fn worker(&self) -> Arc<WorkerCounters> {
        let cells = Arc::new(WorkerCounters::counting());
        self.0.workers.lock().push(Arc::clone(&cells));
        cells
    }

    pub(super) fn workers(&self) -> Vec<Arc<WorkerCounters>> {
        self.0.workers.lock().clone()
    }

    /// Returns the number of MCP requests in progress.
    pub fn in_flight(&self) -> i64 {
        self.workers().iter().map(|cells| cells.in_flight()).sum()
    }

    /// Returns the ID of an operation; see [`Names::id`].
    pub fn operation(&self, method: &str, target: Option<(Target, &str)>) -> OperationId {
        self.0.names.id(method, target)
    }

    pub(super) fn names(&self) -> &Names {
        &self.0.names
    }

    /// Returns all metrics, sorted by name.
    pub fn families(&self) -> Vec<Family> {
        let mut families = snapshot::of_cells(self);
        families.extend(super::process::families());
        for declared in &mut *self.0.declared.lock() {
            let instrument = declared.instrument;
            let mut series = Vec::with_capacity(declared.series.len());
            declared.series.retain(|(labels, source)| {
                let value = source.value(&instrument);
                let is_there = value.is_some();
                series.extend(value.map(|value| Series {
                    labels: labels.clone(),
                    value,
                }));
                is_there
            });
            families.push(Family { instrument, series });
        }
        families.sort_by_key(|family| family.instrument.name);
        families
    }
}

fn family<'d>(declared: &'d mut Vec<Declared>, instrument: &Instrument) -> &'d mut Declared {
    let known = declared
        .iter()
        .position(|declared| declared.instrument.name == instrument.name);
    let at = known.unwrap_or_else(|| {
        declared.push(Declared {
            instrument: *instrument,
            series: Vec::new(),
        });
        declared.len() - 1
    });
    &mut declared[at]
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HITS: Instrument = Instrument::counter("test.hits", "{hit}", "Hits");

    #[test]
    fn the_same_labels_are_the_same_cell() {
        let metrics = Metrics::default();
        metrics.counter(&HITS, &[("limit", "a")]).add(1);
        metrics.clone().counter(&HITS, &[("limit", "a")]).add(2);
        metrics.counter(&HITS, &[("limit", "b")]).add(5);
        assert_eq!(metrics.counter(&HITS, &[("limit", "a")]).value(), 3);
        let families = metrics.families();
        let hits = families
            .iter()
            .find(|f| f.instrument == HITS)
            .expect("hits");
        assert_eq!(hits.series.len(), 2);
    }

    #[test]
    fn a_series_without_a_value_is_removed_and_can_return() {
        const STATE: Instrument = Instrument::gauge("test.state", "{state}", "State");
        let metrics = Metrics::default();
        let values = || -> Vec<f64> {
            let families = metrics.families();
            let states = families.iter().filter(|family| family.instrument == STATE);
            let series = states.flat_map(|family| &family.series);
            series
                .filter_map(|series| match series.value {
                    Value::Number(value) => Some(value),
                    Value::Distribution(_) => None,
                })
                .collect()
        };
        let owner = Arc::new(7.0);
        let watched = Arc::downgrade(&owner);
        metrics.read_while_some(&STATE, &[("of", "a")], move || {
            watched.upgrade().map(|value| *value)
        });
        metrics.read(&STATE, &[("of", "b")], || 1.0);
        assert_eq!(values(), [7.0, 1.0]);
        drop(owner);
        assert_eq!(values(), [1.0]);
        metrics.read(&STATE, &[("of", "a")], || 2.0);
        assert_eq!(values(), [1.0, 2.0]);
    }

    #[test]
    fn labels_without_end_share_a_cell() {
        let metrics = Metrics::default();
        for number in 0..10 * SERIES_MAX {
            metrics
                .counter(&HITS, &[("limit", &number.to_string())])
                .add(1);
        }
        let families = metrics.families();
        let hits = families
            .iter()
            .find(|f| f.instrument == HITS)
            .expect("hits");
        assert_eq!(hits.series.len(), SERIES_MAX);
    }

    #[test]
    fn what_is_held_is_counted_until_it_is_let_go() {
        let gauge = Gauge::default();
        let held = gauge.hold();
        assert_eq!(gauge.value(), 1);
        drop(held);
        assert_eq!(gauge.value(), 0);
    }
}
