//! Lifecycle phase of the server and the conditions of its readiness.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::net::Mutex;

/// Number of upstreams in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamCounts {
    pub configured: usize,
    pub connected: usize,
    pub down: usize,
}

/// Callbacks that report the state of the upstreams.
struct Upstreams {
    counts: Box<dyn Fn() -> UpstreamCounts + Send + Sync>,
    described: Box<dyn Fn() -> Value + Send + Sync>,
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upstreams")
    }
}

/// Lifecycle of one server: phase, readiness gates and open connections. Health probes read it.
#[derive(Debug)]
pub struct ServerLifecycle {
    phase: AtomicU8,
    gates: Mutex<Vec<Arc<ReadinessGate>>>,
    started: Instant,
    generation: AtomicU64,
    upstreams: OnceLock<Upstreams>,
    clients: AtomicUsize,
}

/// Lifecycle phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    Starting,
    Serving,
    /// Shutdown has begun. The server still serves for the drain period.
    Draining,
}

/// A named condition that must hold before the server is ready.
#[derive(Debug)]
pub struct ReadinessGate {
    name: Cow<'static, str>,
    open: AtomicBool,
}

impl ReadinessGate {
    /// The condition is met.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Marks the condition as no longer met.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }
}

impl Default for ServerLifecycle {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Starting as u8),
            gates: Mutex::default(),
            started: Instant::now(),
            generation: AtomicU64::new(1),
            upstreams: OnceLock::new(),
            clients: AtomicUsize::new(0),
        }
    }
}

impl ServerLifecycle {
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    #[inline]
    pub fn is_draining(&self) -> bool {
        self.phase() == Phase::Draining
    }

    /// Enters the serving phase, once listeners and workers run.
    pub fn begin_to_serve(&self) {
        // A shutdown that was requested earlier takes precedence.
        let _ = self.phase.compare_exchange(
            Phase::Starting as u8,
            Phase::Serving as u8,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Enters the draining phase. Readiness probes fail from here.
    pub fn begin_to_drain(&self) {
        self.phase.store(Phase::Draining as u8, Ordering::Release);
    }

    /// Adds something that has to be there before the server is ready. It is not there until [`ReadinessGate::open`].
    pub fn gate(&self, name: impl Into<Cow<'static, str>>) -> Arc<ReadinessGate> {
        let gate = Arc::new(ReadinessGate {
            name: name.into(),
            open: AtomicBool::new(false),
        });
        self.gates.lock().push(Arc::clone(&gate));
        gate
    }

    /// Returns the names of unmet conditions.
    pub fn waits_for(&self) -> Vec<Cow<'static, str>> {
        let gates = self.gates.lock();
        let closed = gates
            .iter()
            .filter(|gate| !gate.open.load(Ordering::Acquire));
        closed.map(|gate| gate.name.clone()).collect()
    }

    /// Returns true if load balancers should send requests here.
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Serving && self.waits_for().is_empty()
    }

    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Number of the active configuration, counted from 1.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Counts a new active configuration.
    pub fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of upstreams in each state.
    pub fn upstreams(&self) -> UpstreamCounts {
        let known = self.upstreams.get();
        known.map_or_else(UpstreamCounts::default, |known| (known.counts)())
    }

    /// Returns the state of each upstream, for operators.
    pub fn described_upstreams(&self) -> Value {
        let known = self.upstreams.get();
        known.map_or_else(|| Value::Array(Vec::new()), |known| (known.described)())
    }

    /// Registers the callbacks that report upstreams. Only the first registration counts.
    pub fn watch_upstreams(
        &self,
        counts: impl Fn() -> UpstreamCounts + Send + Sync + 'static,
        described: impl Fn() -> Value + Send + Sync + 'static,
    ) {
        let _ = self.upstreams.set(Upstreams {
            counts: Box::new(counts),
            described: Box::new(described),
        });
    }

    /// Returns the number of open connections.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn client(self: &Arc<Self>) -> Client {
        self.clients.fetch_add(1, Ordering::Relaxed);
        Client(Arc::clone(self))
    }
}

/// Guard of one open connection.
#[derive(Debug)]
pub struct Client(Arc<ServerLifecycle>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_who_serves_and_waits_for_nothing() {
        let life = ServerLifecycle::default();
        let keys = life.gate("signing keys");
        assert!(!life.is_ready());
        life.begin_to_serve();
        assert_eq!(
            (life.is_ready(), life.waits_for()),
            (false, vec![Cow::Borrowed("signing keys")])
        );
        keys.open();
        assert!(life.is_ready());
        keys.close();
        assert!(!life.is_ready());
        keys.open();
        life.begin_to_drain();
        life.begin_to_serve();
        assert_eq!((life.phase(), life.is_ready()), (Phase::Draining, false));
    }
}
