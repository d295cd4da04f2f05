//! Metrics of upstream servers and sources.

use std::sync::Arc;

use crate::net::{BreakerState, BulkheadStats};
use crate::source::{
    ARTIFACT_OUTCOMES, Artifacts, ClientStatsHandle, UpstreamGauge, UpstreamStates, Upstreams,
};
use crate::telemetry::{
    ARTIFACTS, Metrics, Telemetry, UPSTREAM_ACTIVE, UPSTREAM_BREAKER, UPSTREAM_CONNECTIONS,
    UPSTREAM_FAILURES, UPSTREAM_MISMATCHES, UPSTREAM_REQUESTS, UPSTREAM_RETRIES, UPSTREAM_WAITING,
    UPSTREAM_WITHHELD, UPSTREAMS, UpstreamCounts,
};

/// Exports the upstream servers. The values are read at each scrape.
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
            .read(&UPSTREAMS, &[("state", state)], move || {
                count(census()) as f64
            });
    }
    for (name, gauge) in upstreams.gauges() {
        watch_one(name, &gauge, &telemetry.metrics);
        if telemetry.counts() {
            gauge.count(&telemetry.metrics);
        }
    }
    let counts = move || {
        let states = census();
        UpstreamCounts {
            configured: states.connected + states.idle + states.down,
            connected: states.connected,
            down: states.down,
        }
    };
    telemetry
        .life
        .watch_upstreams(counts, upstreams.described());
}

/// Exports the sources, for as long as they are served. A source with a known name replaces the previous one.
pub(super) fn watch_sources(gauges: &[ClientStatsHandle], metrics: &Metrics) {
    for gauge in gauges {
        let labels = [("upstream", &*gauge.name), ("kind", gauge.kind)];
        let read = || {
            let gauge = gauge.clone();
            move || Some(gauge.figures()?.bulkhead)
        };
        watch_bulkhead(labels, read, metrics);
        let retried = gauge.clone();
        metrics.read_while_some(&UPSTREAM_RETRIES, &labels, move || {
            Some(retried.figures()?.retries as f64)
        });
        let gauge = gauge.clone();
        metrics.read_while_some(&UPSTREAM_MISMATCHES, &labels, move || {
            gauge.figures().map(|_| gauge.mismatches() as f64)
        });
    }
}

/// Exports the store of large results.
pub(super) fn watch_artifacts(artifacts: &Arc<Artifacts>, metrics: &Metrics) {
    for (position, outcome) in ARTIFACT_OUTCOMES.into_iter().enumerate() {
        let artifacts = Arc::clone(artifacts);
        metrics.read(&ARTIFACTS, &[("outcome", outcome)], move || {
            artifacts.counted()[position] as f64
        });
    }
    watch_sources(artifacts.gauge().as_slice(), metrics);
}

type Labels<'a> = [(&'static str, &'a str); 2];

fn watch_bulkhead<R>(labels: Labels<'_>, read: impl Fn() -> R, metrics: &Metrics)
where
    R: Fn() -> Option<BulkheadStats> + Send + Sync + 'static,
{
    type Figure = fn(&BulkheadStats) -> f64;
    let figure = |figure: Figure| {
        let read = read();
        move || read().as_ref().map(figure)
    };
    metrics.read_while_some(&UPSTREAM_REQUESTS, &labels, figure(|s| s.entered as f64));
    metrics.read_while_some(&UPSTREAM_ACTIVE, &labels, figure(|s| s.under_way as f64));
    metrics.read_while_some(&UPSTREAM_WAITING, &labels, figure(|s| s.waiting as f64));
    let reasons: [(&str, Figure); 3] = [
        ("error", |s| s.failed as f64),
        ("full", |s| s.refused_full as f64),
        ("tripped", |s| s.refused_tripped as f64),
    ];
    for (reason, count) in reasons {
        let [upstream, kind] = labels;
        let labels = [upstream, kind, ("reason", reason)];
        metrics.read_while_some(&UPSTREAM_FAILURES, &labels, figure(count));
    }
    let breaker = figure(|s| match s.breaker {
        BreakerState::Passing => 0.0,
        BreakerState::Probing => 1.0,
        BreakerState::Tripped => 2.0,
    });
    metrics.read_while_some(&UPSTREAM_BREAKER, &labels, breaker);
}

fn watch_one(name: &str, gauge: &UpstreamGauge, metrics: &Metrics) {
    let labels = [("upstream", name), ("kind", "upstream")];
    let read = || {
        let gauge = gauge.clone();
        move || gauge.stats()
    };
    watch_bulkhead(labels, read, metrics);
    let retried = gauge.clone();
    metrics.read(&UPSTREAM_RETRIES, &labels, move || retried.retried() as f64);
    for message in ["log", "request"] {
        let [upstream, kind] = labels;
        let gauge = gauge.clone();
        let labels = [upstream, kind, ("message", message)];
        metrics.read(&UPSTREAM_WITHHELD, &labels, move || {
            gauge.withheld(message == "log") as f64
        });
    }
    let gauge = gauge.clone();
    metrics.read(&UPSTREAM_CONNECTIONS, &labels, move || {
        gauge.connections() as f64
    });
}
