//! Other MCP servers, and what they offer under a prefix.
//!
//! Nothing is connected before it is needed. What a server offers is asked for once, and remembered in a folder if there
//! is one, so that the next start needs no connection at all. Each server has its own limits: one that hangs holds up
//! its own calls and no others.

mod config;
mod connection;
mod listing;
mod offer;
mod relay;
mod usage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

pub use config::{OnChange, OnDown, UpstreamConfig, UpstreamError};
use connection::Upstream;
use listing::{Listing, Memory};

use crate::catalog::{Offered, Refused};

/// How long a start waits for servers whose offer nobody remembers.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How often connections are looked at that nobody uses.
const REAPING: Duration = Duration::from_secs(30);
/// Servers that are asked at once at start.
const DISCOVERED_AT_ONCE: usize = 16;

/// All upstream servers of a configuration, and the thread that their connections live on.
pub(crate) struct Upstreams {
    upstreams: Vec<Arc<Upstream>>,
    memory: Memory,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Upstreams {
    /// Connects to none yet.
    pub(crate) fn new(
        configs: &BTreeMap<String, UpstreamConfig>,
        folder: Option<PathBuf>,
    ) -> Result<Self, UpstreamError> {
        let mut upstreams = Vec::new();
        for (name, config) in configs.iter().filter(|(_, config)| !config.disabled) {
            upstreams.push(Arc::new(Upstream::new(name, config.clone())?));
        }
        let runtime = (!upstreams.is_empty())
            .then(|| {
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("longshore-upstreams")
                    .enable_all()
                    .build()
            })
            .transpose()
            .map_err(|error| UpstreamError::system(&error))?;
        if let Some(runtime) = &runtime {
            for upstream in &upstreams {
                upstream.live_on(runtime.handle().clone());
            }
            runtime.spawn(reap(upstreams.clone()));
        }
        Ok(Self {
            upstreams,
            memory: Memory::new(folder),
            runtime,
        })
    }

    /// What they offer: as far as it is remembered at once, else by asking them, for a few seconds at most.
    pub(crate) fn offer(&self) -> Result<Offered, UpstreamError> {
        let mut all = Offered::default();
        let Some(runtime) = &self.runtime else {
            return Ok(all);
        };
        let (sender, listings) = std::sync::mpsc::channel();
        let upstreams = self.upstreams.clone();
        let memory = self.memory.clone();
        runtime.spawn(async move {
            for some in upstreams.chunks(DISCOVERED_AT_ONCE) {
                let asked = some.iter().map(|upstream| discover(upstream, &memory));
                let found = join_all(asked).await;
                if sender.send(found).is_err() {
                    return;
                }
            }
        });
        for (upstream, found) in self.upstreams.iter().zip(listings.into_iter().flatten()) {
            match found {
                Ok(listing) => offer::add(upstream, &listing, &mut all),
                Err(problem) if upstream.config.on_down == OnDown::Error => {
                    return Err(UpstreamError::down(&upstream.name, &problem));
                }
                Err(problem) => {
                    let place = format!("upstreams.{}", upstream.name);
                    all.refused.push(Refused::new(&upstream.name, place, problem));
                }
            }
        }
        Ok(all)
    }

    /// Names of all, and whether each is connected.
    pub(crate) fn health(&self) -> Vec<(String, bool)> {
        let state = |upstream: &Arc<Upstream>| (upstream.name.clone(), upstream.is_connected());
        self.upstreams.iter().map(state).collect()
    }

    /// Ends all connections, and the programs that were started.
    pub(crate) fn stop(&mut self, grace: Duration) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let upstreams = std::mem::take(&mut self.upstreams);
        let (done, ended) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            join_all(upstreams.iter().map(|upstream| upstream.disconnect(grace))).await;
            // Nobody may be waiting any more.
            let _ = done.send(());
        });
        let _ = ended.recv_timeout(grace + Duration::from_millis(500));
        runtime.shutdown_background();
    }
}

impl Drop for Upstreams {
    fn drop(&mut self) {
        self.stop(Duration::from_millis(1500));
    }
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Upstreams").field(&self.health()).finish()
    }
}

/// What one offers: as remembered, or as it says.
async fn discover(upstream: &Arc<Upstream>, memory: &Memory) -> Result<Listing, String> {
    if let Some(listing) = memory.recall(&upstream.name, &upstream.fingerprint) {
        return Ok(listing);
    }
    let fresh = match timeout(DISCOVERY, upstream.listing()).await {
        Ok(Ok(fresh)) => fresh,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => {
            return Err(format!(
                "it did not say what it offers within {} s",
                DISCOVERY.as_secs()
            ));
        }
    };
    let before = memory.recall_any(&upstream.name);
    let listing = listing::compare(upstream, before, fresh);
    memory.keep(&upstream.name, &upstream.fingerprint, &listing);
    Ok(listing)
}

async fn reap(upstreams: Vec<Arc<Upstream>>) {
    let mut looks = tokio::time::interval(REAPING);
    loop {
        looks.tick().await;
        let idle = upstreams.iter().filter(|upstream| upstream.is_idle());
        join_all(idle.map(|upstream| upstream.disconnect(Duration::from_secs(5)))).await;
    }
}
