//! How upstream servers are, for whoever looks.

use std::sync::Arc;

use crate::net::{BreakerState, BulkheadStats};
use crate::source::{UpstreamGauge, UpstreamStates, Upstreams};
use crate::telemetry::{
    BACKEND_ACTIVE, BACKEND_BREAKER, BACKEND_CONNECTIONS, BACKEND_FAILURES, BACKEND_REQUESTS,
    BACKENDS, BackendCounts, Metrics, Telemetry,
};

/// Has them read whenever somebody looks.
pub(super) fn watch(upstreams: &Upstreams, telemetry: &Telemetry) {
    let census = upstreams.census();
    if census() == UpstreamStates::default() {
        return;
    }
    type Count = fn(UpstreamStates) -> usize;
    let states: [(&str, Count); 3] = [
        ("connected", |states| states.connected),
        ("idle", |states| states.idle),
        ("down", |states| states.down),
    ];
    for (state, count) in states {
        let census = Arc::clone(&census);
        telemetry
            .metrics
            .read(&BACKENDS, &[("state", state)], move || {
                count(census()) as f64
            });
    }
    for (name, gauge) in upstreams.gauges() {
        watch_one(name, &gauge, &telemetry.metrics);
    }
    let counts = move || {
        let states = census();
        BackendCounts {
            configured: states.connected + states.idle + states.down,
            connected: states.connected,
            down: states.down,
        }
    };
    telemetry.life.watch_backends(counts, upstreams.described());
}

type Figure = fn(&BulkheadStats) -> f64;

fn watch_one(name: &str, gauge: &UpstreamGauge, metrics: &Metrics) {
    let read = |figure: Figure| {
        let gauge = gauge.clone();
        move || gauge.stats().as_ref().map_or(0.0, figure)
    };
    let backend = ("backend", name);
    metrics.read(&BACKEND_REQUESTS, &[backend], read(|s| s.entered as f64));
    metrics.read(&BACKEND_ACTIVE, &[backend], read(|s| s.under_way as f64));
    let reasons: [(&str, Figure); 3] = [
        ("error", |s| s.failed as f64),
        ("full", |s| s.refused_full as f64),
        ("tripped", |s| s.refused_tripped as f64),
    ];
    for (reason, count) in reasons {
        metrics.read(
            &BACKEND_FAILURES,
            &[backend, ("reason", reason)],
            read(count),
        );
    }
    let breaker = read(|s| match s.breaker {
        BreakerState::Passing => 0.0,
        BreakerState::Probing => 1.0,
        BreakerState::Tripped => 2.0,
    });
    metrics.read(&BACKEND_BREAKER, &[backend], breaker);
    let gauge = gauge.clone();
    metrics.read(&BACKEND_CONNECTIONS, &[backend], move || {
        gauge.connections() as f64
    });
}
