//! Discovers what upstreams offer, when the server starts and when lists change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::cache::Memory;
use super::config::OnDown;
use super::connection::{GRACE, Upstream};
use crate::net::{BreakerState, with_causes};

/// Logs the servers that have not responded at the end of the startup timeout.
pub(super) fn warn_of_late(upstreams: &[Arc<Upstream>]) {
    let awaited = upstreams.iter().filter(|upstream| upstream.is_awaited());
    let late: Vec<&str> = awaited.map(|upstream| &*upstream.name).collect();
    tracing::warn!(
        upstreams = late.len(),
        first = late.first(),
        "not all upstream servers have responded in time; serving starts, and their items are listed when they respond (upstreams_wait_seconds)"
    );
}

/// Obtains the listing of a server from the cache, or from the server.
pub(super) async fn discover(upstream: &Arc<Upstream>, memory: &Memory) -> Result<(), String> {
    let keeps = upstream.config.on_down == OnDown::Keep;
    // The other modes have to know whether the server is reachable.
    if let Some(listing) = memory.recall(&upstream.name, &upstream.fingerprint)
        && keeps
    {
        upstream.recall(listing);
        return Ok(());
    }
    // A program that starts for the first time may have to be installed first.
    let patience = upstream.discovery();
    let problem = match timeout(patience, upstream.listing()).await {
        Ok(Ok(fresh)) => {
            upstream.learn(fresh, memory);
            return Ok(());
        }
        Ok(Err(error)) => with_causes(&error),
        Err(_) => format!("it did not list its items within {} s", patience.as_secs()),
    };
    match memory.recall_any(&upstream.name) {
        Some(remembered) if keeps => {
            tracing::warn!(
                upstream = upstream.name,
                problem,
                "the upstream server's items from before its configuration changed stay listed"
            );
            upstream.recall(remembered);
            Ok(())
        }
        _ => Err(problem),
    }
}

pub(super) fn describe(upstream: &Upstream) -> Value {
    let (stats, usage) = (upstream.stats(), upstream.usage.figures(Instant::now()));
    let state = if upstream.is_connected() {
        "connected"
    } else if upstream.is_down() {
        "down"
    } else {
        "idle"
    };
    let known = upstream.known();
    let mut described = json!({
        "name": upstream.name,
        "state": state,
        "breaker": match stats.breaker {
            BreakerState::Passing => "passing",
            BreakerState::Tripped => "tripped",
            BreakerState::Probing => "probing",
        },
        "tools": known.as_ref().map_or(0, |known| known.tools.len()),
        "quarantined": known.as_ref().map_or(0, |known| known.quarantined.len()),
        "connections": upstream.upkeep.connections(),
        "requests": usage.requests,
        "withheld_logs": upstream.upkeep.withheld_messages(true),
        "withheld_requests": upstream.upkeep.withheld_messages(false),
        "failed": stats.failed,
        "refused": stats.refused_full + stats.refused_tripped,
        "in_flight": stats.under_way,
        "first_used_seconds_ago": usage.first,
        "last_used_seconds_ago": usage.last,
        "seconds_between_uses": usage.pace,
    });
    if let Some((revision, server)) = upstream.spoken() {
        described["revision"] = revision.into();
        described["server"] = server.into();
    }
    described
}

pub(super) async fn reap(upstreams: Vec<Weak<Upstream>>, every: Duration) {
    let mut looks = tokio::time::interval(every);
    loop {
        looks.tick().await;
        let all: Vec<Arc<Upstream>> = upstreams.iter().filter_map(Weak::upgrade).collect();
        let callers = all
            .iter()
            .map(|upstream| upstream.close_idle_callers(GRACE));
        join_all(callers).await;
        let idle = all
            .iter()
            .filter(|upstream| upstream.is_idle() || upstream.is_to_be_renewed());
        join_all(idle.map(|upstream| upstream.shared.disconnect(GRACE))).await;
    }
}
