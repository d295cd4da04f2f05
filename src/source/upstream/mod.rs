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
use std::sync::{Arc, Weak};
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
/// How long a program has to end when it is not needed any more.
const GRACE: Duration = Duration::from_secs(5);
/// Servers that are asked at once at start.
const DISCOVERED_AT_ONCE: usize = 16;

/// All upstream servers of a configuration.
pub(crate) struct Upstreams {
    upstreams: Vec<Arc<Upstream>>,
    memory: Memory,
    background: Option<Arc<Background>>,
}

/// The thread that connections live on: they outlive the requests that made them.
pub(super) struct Background(Option<tokio::runtime::Runtime>);

/// How many upstream servers are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamStates {
    pub(crate) connected: usize,
    /// Not connected, since nobody needs them.
    pub(crate) idle: usize,
    /// The last attempt to reach them failed.
    pub(crate) down: usize,
}

/// Says how many upstream servers are in which state; for metrics and health.
pub(crate) type UpstreamCensus = Arc<dyn Fn() -> UpstreamStates + Send + Sync>;

impl Background {
    fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("longshore-upstreams")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<tokio::task::JoinHandle<T>> {
        Some(self.0.as_ref()?.spawn(task))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may be a worker that drops the last of it, which must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Upstreams {
    /// Connects to none yet.
    pub(crate) fn new(
        configs: &BTreeMap<String, UpstreamConfig>,
        folder: Option<PathBuf>,
    ) -> Result<Self, UpstreamError> {
        let used: Vec<_> = configs
            .iter()
            .filter(|(_, config)| !config.disabled)
            .collect();
        if used.is_empty() {
            return Ok(Self {
                upstreams: Vec::new(),
                memory: Memory::new(None),
                background: None,
            });
        }
        let background = Background::start().map_err(|error| UpstreamError::system(&error))?;
        let background = Arc::new(background);
        let mut upstreams = Vec::new();
        for (name, config) in used {
            let upstream = Upstream::new(name, config.clone(), Arc::clone(&background))?;
            upstreams.push(Arc::new(upstream));
        }
        background.spawn(reap(upstreams.iter().map(Arc::downgrade).collect()));
        Ok(Self {
            upstreams,
            memory: Memory::new(folder),
            background: Some(background),
        })
    }

    /// What they offer: as far as it is remembered at once, else by asking them, for a few seconds at most.
    pub(crate) fn offer(&self) -> Result<Offered, UpstreamError> {
        let mut all = Offered::default();
        let Some(background) = &self.background else {
            return Ok(all);
        };
        let (sender, listings) = std::sync::mpsc::channel();
        let upstreams = self.upstreams.clone();
        let memory = self.memory.clone();
        background.spawn(async move {
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
                    all.refused
                        .push(Refused::new(&upstream.name, place, problem));
                }
            }
        }
        Ok(all)
    }

    /// Tells how they are, as long as they are.
    pub(crate) fn census(&self) -> UpstreamCensus {
        let upstreams: Vec<Weak<Upstream>> = self.upstreams.iter().map(Arc::downgrade).collect();
        Arc::new(move || {
            let mut states = UpstreamStates::default();
            for upstream in upstreams.iter().filter_map(Weak::upgrade) {
                if upstream.is_connected() {
                    states.connected += 1;
                } else if upstream.is_down() {
                    states.down += 1;
                } else {
                    states.idle += 1;
                }
            }
            states
        })
    }

    /// Ends all connections, and the programs that were started.
    pub(crate) async fn stop(&self, grace: Duration) {
        join_all(
            self.upstreams
                .iter()
                .map(|upstream| upstream.disconnect(grace)),
        )
        .await;
    }
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Upstreams")
            .field(&self.upstreams.len())
            .finish()
    }
}

/// What one offers: as remembered, or as it says.
async fn discover(upstream: &Arc<Upstream>, memory: &Memory) -> Result<Listing, String> {
    let keeps = upstream.config.on_down == OnDown::Keep;
    // Who wants to know whether it is there has to ask.
    if let Some(listing) = memory.recall(&upstream.name, &upstream.fingerprint)
        && keeps
    {
        return Ok(listing);
    }
    let before = memory.recall_any(&upstream.name);
    let problem = match timeout(DISCOVERY, upstream.listing()).await {
        Ok(Ok(fresh)) => {
            let listing = listing::compare(upstream, before, fresh);
            memory.keep(&upstream.name, &upstream.fingerprint, &listing);
            return Ok(listing);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!(
            "it did not say what it offers within {} s",
            DISCOVERY.as_secs()
        ),
    };
    match before {
        Some(remembered) if keeps => {
            tracing::warn!(
                upstream = upstream.name,
                problem,
                "what it offered before its configuration changed stays listed"
            );
            Ok(remembered)
        }
        _ => Err(problem),
    }
}

async fn reap(upstreams: Vec<Weak<Upstream>>) {
    let mut looks = tokio::time::interval(REAPING);
    loop {
        looks.tick().await;
        let idle: Vec<Arc<Upstream>> = upstreams
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|upstream| upstream.is_idle())
            .collect();
        join_all(idle.iter().map(|upstream| upstream.disconnect(GRACE))).await;
    }
}
