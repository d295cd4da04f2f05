//! Upstream MCP servers, whose items are offered under a prefix.
//!
//! A server is connected only when it is needed. Its listing is requested once and cached in a folder, if one is
//! configured, so that the next start needs no connection. Each server has its own limits: one that hangs blocks only
//! its own calls.

mod discovery;
mod fingerprint;
mod call_error;
mod caller_key;
mod config;
mod connection;
mod line;
mod links;
mod cache;
mod names;
mod proxy_items;
mod forwarding;
mod subscriptions;
mod tasks;
mod maintenance;
mod passed_error;
mod uri_prefix;
mod usage;
mod visits;
mod instrumented;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::catalog::{Announcer, Catalog, RejectedItem, SourceItems, StartingSource};
use crate::client::TIMEOUT_MAX;
use crate::net::{self, Background, BulkheadStats, Mutex, OnFailure};
use crate::seal::KeyRing;
use crate::source::parts::SourceParts;
use crate::telemetry::Metrics;
use cache::Memory;
pub use config::TIMEOUT_SECONDS;
pub use config::{OnChange, OnDown, UpstreamConfig, UpstreamError};
use connection::Upstream;
use discovery::{describe, discover, reap, warn_of_late};
use links::Given;
pub use names::UpstreamNames;
use names::{NamedUpstream, Names};
pub use names::{Naming, SEPARATOR};
use proxy_items::AllReadable;

/// Number of servers that are listed concurrently at startup.
const DISCOVERED_AT_ONCE: usize = 16;
/// Time for which listings that arrive after startup are collected and then served together.
const TOGETHER: Duration = Duration::from_millis(100);

/// Settings that apply to all upstream servers.
#[derive(Clone, Debug)]
pub struct UpstreamRules {
    /// Folder of the listing cache.
    pub folder: Option<PathBuf>,
    /// Time that the startup waits for the listings.
    pub patience: Duration,
    /// Default timeout of a call, in seconds.
    pub timeout_seconds: u64,
    /// Interval at which idle connections are closed.
    pub reaping: Duration,
    pub naming: Naming,
    /// Parts of the server for credentials.
    pub parts: SourceParts,
    /// Keys that seal the links in results.
    pub keys: Arc<KeyRing>,
    /// Registry of background tasks; connections live on its runtime.
    pub background: Background,
}

/// All configured upstream servers.
pub struct Upstreams {
    upstreams: Vec<Arc<Upstream>>,
    naming: Naming,
    keys: Arc<KeyRing>,
    memory: Memory,
    /// Registry of the tasks that outlive the requests that started them.
    background: Background,
    /// True once each listing was requested or read from the cache.
    asked: AtomicBool,
    /// Time that the startup waits for the listings.
    patience: Duration,
    /// Notified when the items to list have changed.
    news: Arc<Notify>,
    /// Background tasks that keep the listings up to date.
    attending: Mutex<Vec<AbortHandle>>,
}

/// Handle to the statistics of an upstream server, read at each scrape.
#[derive(Clone)]
pub struct UpstreamGauge(Weak<Upstream>);

impl UpstreamGauge {
    /// Returns the bulkhead statistics.
    pub fn stats(&self) -> Option<BulkheadStats> {
        Some(self.0.upgrade()?.stats())
    }

    /// Starts recording metrics of its requests.
    pub fn count(&self, metrics: &Metrics) {
        if let Some(upstream) = self.0.upgrade() {
            upstream.peer.count(metrics);
        }
    }

    /// Returns the number of requests that were retried over a new connection.
    pub fn retried(&self) -> u64 {
        self.read(|upstream| upstream.retried.load(Ordering::Relaxed))
    }

    /// Returns the number of dropped log messages, or of rejected requests to clients. Either could not be attributed
    /// to a call.
    pub fn withheld(&self, logs: bool) -> u64 {
        self.read(|upstream| upstream.upkeep.withheld_messages(logs))
    }

    /// Returns the number of connections made.
    pub fn connections(&self) -> u64 {
        self.read(|upstream| upstream.upkeep.connections())
    }

    fn read(&self, read: impl FnOnce(&Upstream) -> u64) -> u64 {
        self.0.upgrade().map_or(0, |upstream| read(&upstream))
    }
}

/// Number of upstream servers in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamStates {
    pub connected: usize,
    /// Not connected, because they are not in use.
    pub idle: usize,
    /// Unreachable at the last attempt.
    pub down: usize,
}

/// Returns the number of upstream servers in each state, for metrics and health.
pub(crate) type UpstreamCensus = Arc<dyn Fn() -> UpstreamStates + Send + Sync>;

impl Upstreams {
    /// Creates the servers without connecting to them.
    pub fn new(
        configs: &BTreeMap<String, UpstreamConfig>,
        rules: UpstreamRules,
    ) -> Result<Self, UpstreamError> {
        let mut upstreams = Vec::new();
        for (name, config) in configs.iter().filter(|(_, config)| !config.disabled) {
            let mut config = config.clone();
            config.timeout_seconds.get_or_insert(rules.timeout_seconds);
            let upstream = Upstream::new(name, config, rules.background.clone(), &rules.parts)?;
            upstreams.push(Arc::new(upstream));
        }
        if !upstreams.is_empty() {
            let each = upstreams.iter().map(Arc::downgrade).collect();
            rules.background.run(
                "upstreams: close idle connections",
                OnFailure::Continue,
                reap(each, rules.reaping),
            );
        }
        Ok(Self {
            upstreams,
            naming: rules.naming,
            keys: rules.keys,
            memory: Memory::new(rules.folder),
            background: rules.background,
            asked: AtomicBool::new(false),
            patience: rules.patience.min(TIMEOUT_MAX),
            news: Arc::default(),
            attending: Mutex::default(),
        })
    }

    /// Keeps listings and connection states up to date, until stopped. `changed` is called when the items have
    /// changed, on a thread where it can block.
    pub fn maintain(&self, changed: impl Fn() + Send + Sync + 'static) {
        if self.upstreams.is_empty() {
            return;
        }
        let news = Arc::clone(&self.news);
        for upstream in &self.upstreams {
            let task = maintenance::run(
                Arc::downgrade(upstream),
                Arc::clone(&upstream.upkeep),
                self.memory.clone(),
                Arc::clone(&news),
            );
            let name = format!("upstream {}: keep the listing current", upstream.name);
            self.spawn_task(name, task);
        }
        let changed = Arc::new(changed);
        self.spawn_task("upstreams: apply changed listings".to_owned(), async move {
            loop {
                news.notified().await;
                tokio::time::sleep(TOGETHER).await;
                let changed = Arc::clone(&changed);
                // Building a catalog takes time, and this thread serves the connections.
                let _ = net::spawn_blocking(move || changed()).await;
            }
        });
    }

    /// Starts a task that ends when the servers are stopped.
    fn spawn_task<T>(&self, name: String, task: impl Future<Output = T> + Send + 'static) {
        let started = self.background.run(name, OnFailure::Continue, task);
        self.attending.lock().extend(started);
    }

    /// Forwards resource updates of the upstreams to local subscribers, through `announcer`. `listed` is notified
    /// when the items have changed.
    pub fn relay_changes(&self, announcer: Announcer, listed: Arc<Notify>) {
        if self.upstreams.is_empty() {
            return;
        }
        let each: Vec<_> = self.upstreams.iter().map(Arc::downgrade).collect();
        for upstream in &self.upstreams {
            let name = format!("upstream {}: keep subscriptions", upstream.name);
            let task = subscriptions::run(Arc::downgrade(upstream), subscriptions::RETRY);
            self.spawn_task(name, task);
        }
        self.spawn_task(
            "upstreams: forward resource updates".to_owned(),
            subscriptions::share_out(each, announcer, listed),
        );
    }

    /// Returns true while any listing is outstanding.
    pub fn are_awaited(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.is_awaited())
    }

    /// Returns true if the current items of each server are known.
    pub fn are_known(&self) -> bool {
        let mut all = self.upstreams.iter();
        all.all(|upstream| upstream.offered().is_ok())
    }

    /// Returns the names of the servers whose items are known, and the total number of servers.
    #[cfg(feature = "cli")]
    pub fn known_of_all(&self) -> (Vec<String>, usize) {
        let all = self.upstreams.iter();
        let known = all.filter(|upstream| upstream.offered().is_ok());
        let names = known.map(|upstream| upstream.name.clone());
        (names.collect(), self.upstreams.len())
    }

    /// Returns the names of the servers whose listing is outstanding.
    #[cfg(feature = "cli")]
    pub fn awaited(&self) -> Vec<String> {
        let all = self.upstreams.iter();
        let awaited = all.filter(|upstream| upstream.is_awaited());
        awaited.map(|upstream| upstream.name.clone()).collect()
    }

    /// Returns true if the items of a server reached over HTTP are unknown. Such a server can be down temporarily,
    /// unlike a missing program.
    pub fn may_come(&self) -> bool {
        let mut all = self.upstreams.iter();
        all.any(|upstream| upstream.config.url.is_some() && upstream.offered().is_err())
    }

    /// Returns the items of the servers, named so that they do not collide with `others`. Servers that did not respond to
    /// [`discover`](Self::discover) in time are added when they do.
    pub fn offer(&self, others: &Catalog) -> Result<SourceItems, UpstreamError> {
        let mut all = SourceItems::default();
        let mut found = Vec::new();
        for upstream in &self.upstreams {
            if upstream.is_awaited() {
                all.starting.push(StartingSource {
                    name: upstream.name.clone(),
                    prefix: self.naming.prefix(upstream).into_owned(),
                    patience: upstream.discovery(),
                });
                continue;
            }
            match upstream.offered() {
                Ok(listing) => found.push(NamedUpstream {
                    upstream: Arc::clone(upstream),
                    listing,
                    is_hidden: false,
                }),
                Err(problem) => {
                    found.extend(upstream.known().map(|listing| NamedUpstream {
                        upstream: Arc::clone(upstream),
                        listing,
                        is_hidden: true,
                    }));
                    let place = format!("upstreams.{}", upstream.name);
                    let rejected = RejectedItem::new(&upstream.name, place, problem);
                    all.refused.push(rejected.retried());
                }
            }
        }
        let mut names = Names::new(&self.naming, &self.upstreams, &found, others);
        let given = Arc::new(OnceLock::new());
        let readable = found
            .iter()
            .filter_map(|found| match found.is_hidden {
                true => {
                    proxy_items::reserve(found, &mut names, &self.keys);
                    None
                }
                false => Some(proxy_items::add(
                    found, &mut names, &mut all, &self.keys, &given,
                )),
            })
            .collect();
        let _ = given.set(Given::new(names.uris()));
        all.unlisted = Some(Arc::new(AllReadable(readable)));
        Ok(all)
    }

    /// Requests all listings that are not cached, with limited concurrency, and waits for the startup timeout. If a
    /// server is mandatory, it waits until that server has responded. Only the first call does so.
    pub async fn discover(&self) -> Result<(), UpstreamError> {
        if self.asked.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let mut upstreams = self.upstreams.clone();
        upstreams.sort_by_key(|upstream| upstream.config.on_down != OnDown::Error);
        let (sender, mut answers) = mpsc::channel(upstreams.len().max(1));
        for upstream in &upstreams {
            upstream.await_answer();
        }
        let asking = {
            let (upstreams, memory) = (upstreams.clone(), self.memory.clone());
            let news = Arc::clone(&self.news);
            async move {
                let each = stream::iter(upstreams).map(|upstream| {
                    let memory = memory.clone();
                    async move {
                        let found = discover(&upstream, &memory).await;
                        (upstream, found)
                    }
                });
                let mut each = std::pin::pin!(each.buffer_unordered(DISCOVERED_AT_ONCE));
                while let Some((upstream, found)) = each.next().await {
                    if let Err(problem) = &found {
                        upstream.blame(problem.clone());
                    }
                    upstream.has_answered();
                    if sender.send((upstream, found)).await.is_err() {
                        // The startup is over.
                        news.notify_one();
                    }
                }
            }
        };
        self.background
            .run("upstreams: first listing", OnFailure::Continue, asking);
        // Slower servers are logged and no longer waited for.
        let deadline = Instant::now() + self.patience + TOGETHER;
        let mut open = upstreams.len();
        while 0 < open {
            let needs_one = upstreams
                .iter()
                .any(|upstream| upstream.config.on_down == OnDown::Error && upstream.is_awaited());
            let answer = match needs_one {
                true => answers.recv().await,
                false => timeout_at(deadline, answers.recv()).await.ok().flatten(),
            };
            match answer {
                Some((upstream, Err(problem))) if upstream.config.on_down == OnDown::Error => {
                    return Err(UpstreamError::down(&upstream.name, &problem));
                }
                Some(_) => open -= 1,
                None => break,
            }
        }
        drop(answers);
        if 0 < open {
            warn_of_late(&upstreams);
            // A listing may have arrived since the last check.
            self.news.notify_one();
        }
        Ok(())
    }

    /// Returns the statistics of each server by name.
    pub fn gauges(&self) -> impl Iterator<Item = (&str, UpstreamGauge)> {
        self.upstreams.iter().map(|upstream| {
            let gauge = UpstreamGauge(Arc::downgrade(upstream));
            (upstream.name.as_str(), gauge)
        })
    }

    /// Returns a function that describes each server for the operator, while it exists.
    pub fn described(&self) -> impl Fn() -> Value + Send + Sync + use<> {
        let upstreams: Vec<Weak<Upstream>> = self.upstreams.iter().map(Arc::downgrade).collect();
        move || {
            let each = upstreams.iter().filter_map(Weak::upgrade);
            each.map(|upstream| describe(&upstream)).collect()
        }
    }

    /// Returns a function that counts the servers by state, while they exist.
    pub fn census(&self) -> UpstreamCensus {
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

    /// Closes all connections and ends the programs that were started.
    pub async fn stop(&self, grace: Duration) {
        let attending = std::mem::take(&mut *self.attending.lock());
        attending.iter().for_each(AbortHandle::abort);
        join_all(self.upstreams.iter().map(|upstream| upstream.stop(grace))).await;
    }
}
