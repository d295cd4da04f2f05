//! Request scope: metrics, trace and audit hooks around one request.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;

use super::metrics::Metrics;
use super::operation_ids::OperationId;
use super::readiness::ServerLifecycle;
use super::reasons::Reason;
use super::trace::{Propagation, SpanResult, TraceContext, Traced, Tracer};
use super::worker_counters::{
    CountedTransport, HttpKey, OperationKey, OperationOutcome, WorkerCounters,
};
use crate::net::Peer;
use crate::protocol::Revision;
use crate::protocol::message::Request;

/// Telemetry of one server: its metrics and its tracer. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    pub metrics: Metrics,
    pub life: Arc<ServerLifecycle>,
    counting: bool,
    tracer: Option<Arc<Tracer>>,
    propagation: Propagation,
}

impl Telemetry {
    /// `counting`: true if requests are counted.
    pub fn new(metrics: Metrics, counting: bool) -> Self {
        Self {
            metrics,
            counting,
            ..Self::default()
        }
    }

    /// Enables tracing.
    #[cfg(feature = "otlp")]
    pub(crate) fn traced_by(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(Arc::new(tracer));
        self
    }

    /// Sets the propagation formats to read from callers and to pass on.
    pub(crate) fn propagating(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    /// Returns the enabled propagation formats.
    #[inline]
    pub fn propagation(&self) -> Propagation {
        self.propagation
    }

    /// Marks tool arguments as secret by name. Traces omit their values.
    pub fn mark_secret(&self, names: &BTreeSet<String>) {
        if let Some(tracer) = &self.tracer {
            // A name that is secret at one endpoint is secret at all endpoints, and stays secret.
            if !names.is_subset(&tracer.secrets.load()) {
                let all = |known: &Arc<BTreeSet<String>>| -> BTreeSet<String> {
                    known.union(names).cloned().collect()
                };
                tracer.secrets.rcu(all);
            }
        }
    }

    /// Returns true if requests are counted, traced or audited. Otherwise this check is their only cost.
    #[inline]
    pub fn watches(&self) -> bool {
        self.counting || self.tracer.is_some()
    }

    /// Returns true if requests are counted.
    #[inline]
    pub fn counts(&self) -> bool {
        self.counting
    }

    /// Cells for one more worker.
    pub fn cells(&self) -> Arc<WorkerCounters> {
        if self.counting {
            self.metrics.worker()
        } else {
            Arc::new(WorkerCounters::idle())
        }
    }

    /// Begins the scope of an MCP request.
    #[inline]
    pub fn watch<'a>(
        &self,
        cells: &'a Arc<WorkerCounters>,
        seen: RequestOrigin<'_>,
        request: &Request<'_>,
    ) -> RequestScope<'a> {
        cells.operation_begins();
        let traced = self
            .tracer
            .as_ref()
            .map(|tracer| tracer.begin(self.propagation, request, seen.headers, seen.peer));
        let mut watch = RequestScope {
            cells,
            started: None,
            wire: seen.wire,
            id: Cell::new(None),
            revision: Cell::new(None),
            session: Cell::new(None),
            traced,
            witness: None,
            barred: false,
            goes_on: Cell::new(false),
            replaced: Cell::new(None),
        };
        if self.counting || watch.is_recorded() {
            watch.started = Some(Instant::now());
        }
        watch
    }
}

/// Transport and client of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOrigin<'h> {
    pub wire: CountedTransport,
    pub headers: Option<&'h HeaderMap>,
    /// The client's address and port, if known.
    pub peer: Option<Peer>,
}

impl RequestOrigin<'static> {
    /// Over standard input and output.
    pub const PIPE: Self = Self {
        wire: CountedTransport::Pipe,
        headers: None,
        peer: None,
    };
}

/// A request that is observed. Its details become known during processing.
pub struct RequestScope<'a> {
    cells: &'a Arc<WorkerCounters>,
    /// Start time; `None` if no metric or span needs the duration.
    started: Option<Instant>,
    wire: CountedTransport,
    id: Cell<Option<OperationId>>,
    revision: Cell<Option<Revision>>,
    session: Cell<Option<Arc<str>>>,
    traced: Option<Traced>,
    witness: Option<Box<dyn RequestObserver>>,
    /// The call is denied.
    barred: bool,
    /// The call continues after its response.
    goes_on: Cell<bool>,
    /// Set by the scope that replaces this one, if replacement is allowed.
    replaced: Cell<Option<Arc<AtomicBool>>>,
}

/// State that a second scope of the same request needs to replace the first.
#[derive(Debug)]
pub struct Succession {
    pub cells: Arc<WorkerCounters>,
    pub wire: CountedTransport,
    started: Option<Instant>,
    replaced: Arc<AtomicBool>,
}

/// Observer of a request's outcome. If it is dropped without one, the request has not ended.
pub trait RequestObserver: fmt::Debug + Send {
    /// The response is complete, or the client no longer waits for it.
    fn ends(self: Box<Self>, ended: RequestResult);
}

/// Result of a request.
#[derive(Debug)]
pub struct RequestResult {
    pub verdict: OperationOutcome,
    /// Reason of the rejection, if the request was rejected.
    pub reason: Option<Reason>,
    pub elapsed: Duration,
    pub session: Option<Arc<str>>,
    /// True if the request continues after its response.
    pub goes_on: bool,
}

impl fmt::Debug for RequestScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestScope")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl RequestScope<'_> {
    /// Registers an observer for the outcome.
    pub fn witnessed_by(mut self, witness: Box<dyn RequestObserver>) -> Self {
        self.started.get_or_insert_with(Instant::now);
        self.witness = Some(witness);
        self
    }

    /// Marks the request as one that must be rejected.
    pub fn bar(mut self) -> Self {
        self.barred = true;
        self
    }

    /// Returns true if the request must be rejected.
    #[inline]
    pub fn is_barred(&self) -> bool {
        self.barred
    }

    /// The call continues after its response.
    pub fn goes_on(&self) {
        self.goes_on.set(true);
    }

    /// Allows another scope of the same request to replace this one. It is used when more becomes known about the
    /// request.
    #[cold]
    pub fn hand_over(&self) -> Succession {
        let replaced = Arc::new(AtomicBool::new(false));
        self.replaced.set(Some(Arc::clone(&replaced)));
        Succession {
            cells: Arc::clone(self.cells),
            wire: self.wire,
            started: self.started,
            replaced,
        }
    }

    /// Replaces another scope, which then records nothing. The duration is counted from the start of the replaced
    /// scope.
    #[cold]
    pub fn taking_over(mut self, succession: &Succession) -> Self {
        if !succession.replaced.swap(true, Ordering::AcqRel) {
            succession.cells.operation_replaced();
        }
        self.started = self.started.and(succession.started).or(self.started);
        self
    }

    #[inline]
    pub fn names(&self, id: OperationId) {
        self.id.set(Some(id));
    }

    #[inline]
    pub fn has_name(&self) -> bool {
        self.id.get().is_some()
    }

    #[inline]
    pub fn speaks(&self, revision: Revision) {
        self.revision.set(Some(revision));
    }

    /// Sets the session of the request. `name` is a digest, not the session ID.
    #[inline]
    pub fn is_in(&self, name: &Arc<str>) {
        if self.is_recorded() || self.witness.is_some() {
            self.session.set(Some(Arc::clone(name)));
        }
    }

    /// Returns the trace context of the request.
    #[inline]
    pub fn context(&self) -> Option<TraceContext> {
        self.traced.as_ref().map(|traced| traced.context)
    }

    /// Returns true if the request is recorded as a span.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.tracer().is_some()
    }

    /// Returns the recorder of the request's spans, or `None` if it is not sampled.
    #[inline]
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        Some(self.traced.as_ref()?.draft.as_ref()?.tracer())
    }

    /// Records the response. `answer` returns it as JSON; it is evaluated only if a span needs it.
    #[inline]
    pub fn end(
        self,
        verdict: OperationOutcome,
        reason: Option<Reason>,
        answer: impl FnOnce() -> Option<Bytes>,
    ) {
        let cells = self.cells;
        self.open().record(cells, verdict, reason, answer);
    }

    /// The answer will come later, if it comes.
    pub fn later(self) -> DeferredScope {
        DeferredScope {
            cells: Arc::clone(self.cells),
            replaced: self.replaced.take(),
            open: Some(self.open()),
        }
    }

    #[inline]
    fn open(self) -> OpenScope {
        OpenScope {
            started: self.started,
            wire: self.wire,
            id: self.id.get().unwrap_or(OperationId::OTHER),
            revision: self.revision.get(),
            session: self.session.take(),
            traced: self.traced,
            witness: self.witness,
            goes_on: self.goes_on.get(),
        }
    }
}

/// Details of a request that its record needs.
#[derive(Debug)]
struct OpenScope {
    started: Option<Instant>,
    wire: CountedTransport,
    id: OperationId,
    revision: Option<Revision>,
    session: Option<Arc<str>>,
    traced: Option<Traced>,
    witness: Option<Box<dyn RequestObserver>>,
    goes_on: bool,
}

impl OpenScope {
    #[inline]
    fn record(
        self,
        cells: &WorkerCounters,
        verdict: OperationOutcome,
        reason: Option<Reason>,
        answer: impl FnOnce() -> Option<Bytes>,
    ) {
        let key = OperationKey {
            revision: self.revision,
            wire: self.wire,
            verdict,
        };
        let elapsed = self
            .started
            .map_or(Duration::ZERO, |started| started.elapsed());
        cells.operation_ends(self.id, key, elapsed);
        if let Some(witness) = self.witness {
            witness.ends(RequestResult {
                verdict,
                reason,
                elapsed,
                session: self.session.clone(),
                goes_on: self.goes_on,
            });
        }
        if let Some(Traced {
            context,
            draft: Some(draft),
        }) = self.traced
        {
            let asks = draft.asks_for_answer(verdict);
            draft.finish(SpanResult {
                context,
                elapsed,
                operation: self.id,
                key,
                answer: asks.then(answer).flatten(),
                session: self.session,
            });
        }
    }
}

/// Scope of a request whose response is asynchronous. Dropping it unfinished records a cancellation.
#[derive(Debug)]
pub struct DeferredScope {
    cells: Arc<WorkerCounters>,
    replaced: Option<Arc<AtomicBool>>,
    /// `None` once the request is recorded.
    open: Option<OpenScope>,
}

impl DeferredScope {
    /// Returns true if another scope has replaced it.
    pub fn is_replaced(&self) -> bool {
        let replaced = self.replaced.as_ref();
        replaced.is_some_and(|replaced| replaced.load(Ordering::Acquire))
    }

    /// Records the response.
    pub fn end(
        mut self,
        verdict: OperationOutcome,
        reason: Option<Reason>,
        answer: impl FnOnce() -> Option<Bytes>,
    ) {
        self.record(verdict, reason, answer);
    }

    fn record(
        &mut self,
        verdict: OperationOutcome,
        reason: Option<Reason>,
        answer: impl FnOnce() -> Option<Bytes>,
    ) {
        if let Some(open) = self.open.take()
            && !self.is_replaced()
        {
            open.record(&self.cells, verdict, reason, answer);
        }
    }
}

impl Drop for DeferredScope {
    fn drop(&mut self) {
        self.record(OperationOutcome::Cancelled, None, || None);
    }
}

/// Scope of an HTTP request in progress.
#[derive(Debug)]
pub struct HttpWatch {
    cells: Arc<WorkerCounters>,
    started: Instant,
    key: HttpKey,
    answered: bool,
}

impl HttpWatch {
    #[inline]
    pub fn begin(cells: Arc<WorkerCounters>, key: HttpKey) -> Self {
        cells.http_begins();
        Self {
            cells,
            started: Instant::now(),
            key,
            answered: false,
        }
    }

    /// Records the response head.
    #[inline]
    pub fn end(mut self, status: u16) {
        self.answered = true;
        let key = self.key.with_status(status);
        self.cells.http_ends(Some((key, self.started.elapsed())));
    }
}

impl Drop for HttpWatch {
    #[inline]
    fn drop(&mut self) {
        if !self.answered {
            self.cells.http_ends(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::snapshot::Value;

    const SEEN: RequestOrigin<'static> = RequestOrigin {
        wire: CountedTransport::Pipe,
        headers: None,
        peer: None,
    };

    fn ping() -> Request<'static> {
        Request {
            id: "1",
            method: "ping".into(),
            params: crate::protocol::message::Params::default(),
        }
    }

    #[test]
    fn what_is_dropped_before_its_end_was_cancelled() {
        let telemetry = Telemetry::new(Metrics::default(), true);
        let cells = telemetry.cells();
        let id = telemetry.metrics.operation("ping", None);
        for ended in [true, false] {
            let watch = telemetry.watch(&cells, SEEN, &ping());
            watch.names(id);
            watch.speaks(Revision::V2026_07_28);
            let later = watch.later();
            assert_eq!(cells.in_flight(), 1);
            if ended {
                later.end(OperationOutcome::Done, None, || None);
            }
        }
        assert_eq!(cells.in_flight(), 0);
        let families = telemetry.metrics.families();
        let family = families
            .iter()
            .find(|f| f.instrument.name == "mcp.server.operation.duration")
            .expect("a family");
        let errors: Vec<_> = family
            .series
            .iter()
            .map(|series| {
                assert!(matches!(&series.value, Value::Distribution(d) if d.count() == 1));
                let labels = series.labels.iter();
                labels
                    .filter(|(name, _)| *name == "error.type")
                    .map(|(_, value)| value.to_string())
                    .collect::<String>()
            })
            .collect();
        assert_eq!(errors, ["cancelled", ""]);
    }

    #[test]
    fn without_readers_nothing_is_kept() {
        let telemetry = Telemetry::default();
        assert!(!telemetry.watches());
        let cells = telemetry.cells();
        telemetry
            .watch(&cells, SEEN, &ping())
            .end(OperationOutcome::Done, None, || None);
        let families = telemetry.metrics.families();
        assert!(
            families.iter().all(
                |f| f.instrument.name != "mcp.server.operation.duration" || f.series.is_empty()
            )
        );
    }
}
