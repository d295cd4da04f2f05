//! Other MCP servers, and what they offer under a prefix.
//!
//! Nothing is connected before it is needed. What a server offers is asked for once, and remembered in a folder if there
//! is one, so that the next start needs no connection at all. Each server has its own limits: one that hangs holds up
//! its own calls and no others.

mod config;
mod connection;
mod links;
mod listing;
mod names;
mod offer;
mod relay;
mod subscriptions;
mod tasks;
mod upkeep;
mod usage;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, mpsc};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

pub(crate) use config::TIMEOUT_SECONDS;
pub use config::{OnChange, OnDown, UpstreamConfig, UpstreamError};
use connection::Upstream;
use links::Given;
use listing::Memory;
pub use names::UpstreamNames;
use names::{Found, Names};
pub(crate) use names::{Naming, SEPARATOR};
use offer::AllReadable;

use crate::catalog::{Announcer, Catalog, Offered, Refused, StartingSource};
use crate::net::{self, BreakerState, BulkheadStats, with_causes};
use crate::seal::KeyRing;
use crate::source::tokens::Tokens;
use crate::telemetry::Metrics;

/// How long a server may take to say what it offers, once it is connected.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How long a program has to end when it is not needed any more.
const GRACE: Duration = Duration::from_secs(5);
/// Servers that are asked at once at start.
const DISCOVERED_AT_ONCE: usize = 16;
/// What they say one after another, once the start is over, is served together.
const TOGETHER: Duration = Duration::from_millis(100);

/// How all upstream servers of a configuration are dealt with.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamRules {
    /// Where it is remembered what they offer.
    pub(crate) folder: Option<PathBuf>,
    /// How long the start waits until they have said what they offer.
    pub(crate) patience: Duration,
    /// How long a call may take, in seconds, where an upstream sets nothing else.
    pub(crate) timeout_seconds: u64,
    /// How often connections are looked at that nobody uses.
    pub(crate) reaping: Duration,
    pub(crate) naming: Naming,
    /// Where tokens are kept that this server gets for itself.
    pub(crate) tokens: Tokens,
    /// Keys that vouch for what results of theirs link to.
    pub(crate) keys: Arc<KeyRing>,
}

/// All upstream servers of a configuration.
pub(crate) struct Upstreams {
    upstreams: Vec<Arc<Upstream>>,
    naming: Naming,
    keys: Arc<KeyRing>,
    memory: Memory,
    background: Option<Arc<Background>>,
    /// Each was asked what it offers, or is remembered.
    asked: AtomicBool,
    /// How long the start waits until they have said so.
    patience: Duration,
    /// Something else is to be listed.
    news: Arc<Notify>,
    /// What keeps up with them.
    attending: Mutex<Vec<AbortHandle>>,
}

/// How one upstream server is doing, read whenever somebody looks.
#[derive(Clone)]
pub(crate) struct UpstreamGauge(Weak<Upstream>);

impl UpstreamGauge {
    /// How calls of it fare.
    pub(crate) fn stats(&self) -> Option<BulkheadStats> {
        Some(self.0.upgrade()?.stats())
    }

    /// Has its requests counted from now on.
    pub(crate) fn count(&self, metrics: &Metrics) {
        if let Some(upstream) = self.0.upgrade() {
            upstream.count(metrics);
        }
    }

    /// How often a request was made again, over a new connection.
    pub(crate) fn retried(&self) -> u64 {
        self.0.upgrade().map_or(0, |upstream| upstream.retried())
    }

    /// How many of its log messages were dropped, or of its requests to clients refused, since it is not known whose call
    /// they are about.
    pub(crate) fn withheld(&self, logs: bool) -> u64 {
        self.0
            .upgrade()
            .map_or(0, |upstream| upstream.upkeep.withheld_messages(logs))
    }

    /// How often a connection was made.
    pub(crate) fn connections(&self) -> u64 {
        self.0
            .upgrade()
            .map_or(0, |upstream| upstream.upkeep.connections())
    }
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
        Some(net::spawn_on(self.0.as_ref()?.handle(), task))
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
        rules: UpstreamRules,
    ) -> Result<Self, UpstreamError> {
        let UpstreamRules {
            folder,
            patience,
            timeout_seconds,
            reaping,
            naming,
            tokens,
            keys,
        } = rules;
        let used: Vec<_> = configs
            .iter()
            .filter(|(_, config)| !config.disabled)
            .collect();
        if used.is_empty() {
            return Ok(Self {
                upstreams: Vec::new(),
                naming,
                keys,
                memory: Memory::new(None),
                background: None,
                asked: AtomicBool::new(false),
                patience,
                news: Arc::default(),
                attending: Mutex::default(),
            });
        }
        let background = Background::start().map_err(|error| UpstreamError::system(&error))?;
        let background = Arc::new(background);
        let mut upstreams = Vec::new();
        for (name, config) in used {
            let mut config = config.clone();
            config.timeout_seconds.get_or_insert(timeout_seconds);
            let upstream = Upstream::new(name, config, Arc::clone(&background), &tokens)?;
            upstreams.push(Arc::new(upstream));
        }
        background.spawn(reap(
            upstreams.iter().map(Arc::downgrade).collect(),
            reaping,
        ));
        Ok(Self {
            upstreams,
            naming,
            keys,
            memory: Memory::new(folder),
            background: Some(background),
            asked: AtomicBool::new(false),
            patience,
            news: Arc::default(),
            attending: Mutex::default(),
        })
    }

    /// Keeps up with what they offer and whether they are there, until they are stopped. `changed` is called when what
    /// is offered has changed, on a thread that may wait.
    pub(crate) fn keep_up(&self, changed: impl Fn() + Send + Sync + 'static) {
        let Some(background) = &self.background else {
            return;
        };
        let news = Arc::clone(&self.news);
        let each = self.upstreams.iter().filter_map(|upstream| {
            let task = upkeep::attend(
                Arc::downgrade(upstream),
                Arc::clone(&upstream.upkeep),
                self.memory.clone(),
                Arc::clone(&news),
            );
            background.spawn(task)
        });
        let mut attending: Vec<_> = each.map(|task| task.abort_handle()).collect();
        let changed = Arc::new(changed);
        let telling = background.spawn(async move {
            loop {
                news.notified().await;
                tokio::time::sleep(TOGETHER).await;
                let changed = Arc::clone(&changed);
                // Catalogs take their time, and connections live on this thread.
                let _ = net::spawn_blocking(move || changed()).await;
            }
        });
        attending.extend(telling.map(|task| task.abort_handle()));
        self.attending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(attending);
    }

    /// Has those who listen to a resource of an upstream's told what the upstream says of it, by whoever announces to them.
    /// `listed` is told when what is offered has changed.
    pub(crate) fn relay_changes(&self, announcer: Announcer, listed: Arc<Notify>) {
        let Some(background) = &self.background else {
            return;
        };
        let each: Vec<_> = self.upstreams.iter().map(Arc::downgrade).collect();
        let attending = each
            .iter()
            .map(|upstream| background.spawn(subscriptions::attend(Weak::clone(upstream))))
            .collect::<Vec<_>>();
        let sharing = background.spawn(subscriptions::share_out(each.clone(), announcer, listed));
        let tasks = attending.into_iter().chain([sharing]).flatten();
        self.attending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(tasks.map(|task| task.abort_handle()));
    }

    /// Whether one of them has still to say what it offers.
    pub(crate) fn are_awaited(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.is_awaited())
    }

    /// Whether it is known what each of them offers now.
    pub(crate) fn are_known(&self) -> bool {
        let mut all = self.upstreams.iter();
        all.all(|upstream| upstream.offered().is_ok())
    }

    /// The names of those of which it is known what they offer, and how many there are in all.
    #[cfg(feature = "cli")]
    pub(crate) fn known_of_all(&self) -> (Vec<String>, usize) {
        let all = self.upstreams.iter();
        let known = all.filter(|upstream| upstream.offered().is_ok());
        let names = known.map(|upstream| upstream.name.clone());
        (names.collect(), self.upstreams.len())
    }

    /// The names of those that have not said yet what they offer.
    #[cfg(feature = "cli")]
    pub(crate) fn awaited(&self) -> Vec<String> {
        let all = self.upstreams.iter();
        let awaited = all.filter(|upstream| upstream.is_awaited());
        awaited.map(|upstream| upstream.name.clone()).collect()
    }

    /// Whether one of which that is not known is asked over HTTP: it may be down for a while, as a program that is not
    /// there is not.
    pub(crate) fn may_come(&self) -> bool {
        let mut all = self.upstreams.iter();
        all.any(|upstream| upstream.config.url.is_some() && upstream.offered().is_err())
    }

    /// What they offer beside what `others` do. The first time they are asked, as far as they are not remembered. Those
    /// who have not answered in time are listed when they do.
    pub(crate) fn offer(&self, others: &Catalog) -> Result<Offered, UpstreamError> {
        if !self.asked.swap(true, Ordering::Relaxed) {
            self.discover()?;
        }
        let mut all = Offered::default();
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
                Ok(listing) => found.push(Found {
                    upstream: Arc::clone(upstream),
                    listing,
                }),
                Err(problem) => {
                    let place = format!("upstreams.{}", upstream.name);
                    all.refused
                        .push(Refused::new(&upstream.name, place, problem));
                }
            }
        }
        let mut names = Names::new(&self.naming, &found, others);
        let given = Arc::new(OnceLock::new());
        let readable = found
            .iter()
            .map(|found| offer::add(found, &mut names, &mut all, &self.keys, &given))
            .collect();
        let _ = given.set(Given::new(names.uris()));
        all.unlisted = Some(Arc::new(AllReadable(readable)));
        Ok(all)
    }

    /// Asks all of them, so many at once, and waits for as long as the start has patience; for those without whom it
    /// does not start, until they have answered.
    fn discover(&self) -> Result<(), UpstreamError> {
        let Some(background) = &self.background else {
            return Ok(());
        };
        let mut upstreams = self.upstreams.clone();
        upstreams.sort_by_key(|upstream| upstream.config.on_down != OnDown::Error);
        let (sender, answers) = mpsc::channel();
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
                    if sender.send((upstream, found)).is_err() {
                        // The start is over.
                        news.notify_one();
                    }
                }
            }
        };
        background.spawn(asking);
        // Those whose own time is over by then are told of, and not waited for any more.
        let deadline = std::time::Instant::now() + self.patience + TOGETHER;
        let mut open = upstreams.len();
        while 0 < open {
            let needs_one = upstreams
                .iter()
                .any(|upstream| upstream.config.on_down == OnDown::Error && upstream.is_awaited());
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let answer = match needs_one {
                true => answers.recv().ok(),
                false => answers.recv_timeout(left).ok(),
            };
            match answer {
                Some((upstream, Err(problem))) if upstream.config.on_down == OnDown::Error => {
                    return Err(UpstreamError::down(&upstream.name, &problem));
                }
                Some(_) => open -= 1,
                None => break,
            }
        }
        if 0 < open {
            let late: Vec<&str> = upstreams
                .iter()
                .filter(|upstream| upstream.is_awaited())
                .map(|upstream| &*upstream.name)
                .collect();
            tracing::warn!(
                upstreams = late.len(),
                first = late.first(),
                "not all upstream servers have said what they offer; the start goes on, and they are listed when they do \
                 (upstreams_wait_seconds)"
            );
        }
        drop(answers);
        if 0 < open {
            // One may have answered since it was last looked for.
            self.news.notify_one();
        }
        Ok(())
    }

    /// Each of them by name, for whoever counts.
    pub(crate) fn gauges(&self) -> impl Iterator<Item = (&str, UpstreamGauge)> {
        self.upstreams.iter().map(|upstream| {
            let gauge = UpstreamGauge(Arc::downgrade(upstream));
            (upstream.name.as_str(), gauge)
        })
    }

    /// Describes each of them for whoever runs the server, as long as they are.
    pub(crate) fn described(&self) -> impl Fn() -> Value + Send + Sync + use<> {
        let upstreams: Vec<Weak<Upstream>> = self.upstreams.iter().map(Arc::downgrade).collect();
        move || {
            let each = upstreams.iter().filter_map(Weak::upgrade);
            each.map(|upstream| describe(&upstream)).collect()
        }
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
        let attending = std::mem::take(
            &mut *self
                .attending
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        attending.iter().for_each(AbortHandle::abort);
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

/// Finds out what one offers: as remembered, or as it says.
async fn discover(upstream: &Arc<Upstream>, memory: &Memory) -> Result<(), String> {
    let keeps = upstream.config.on_down == OnDown::Keep;
    // Who wants to know whether it is there has to ask.
    if let Some(listing) = memory.recall(&upstream.name, &upstream.fingerprint)
        && keeps
    {
        upstream.recall(listing);
        return Ok(());
    }
    // A program that is started for the first time may have to be installed first.
    let patience = upstream.discovery();
    let problem = match timeout(patience, upstream.listing()).await {
        Ok(Ok(fresh)) => {
            upstream.learn(fresh, memory);
            return Ok(());
        }
        Ok(Err(error)) => with_causes(&error),
        Err(_) => format!(
            "it did not say what it offers within {} s",
            patience.as_secs()
        ),
    };
    match memory.recall_any(&upstream.name) {
        Some(remembered) if keeps => {
            tracing::warn!(
                upstream = upstream.name,
                problem,
                "what it offered before its configuration changed stays listed"
            );
            upstream.recall(remembered);
            Ok(())
        }
        _ => Err(problem),
    }
}

fn describe(upstream: &Upstream) -> Value {
    let (stats, usage) = (upstream.stats(), upstream.usage().figures(Instant::now()));
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

async fn reap(upstreams: Vec<Weak<Upstream>>, every: Duration) {
    let mut looks = tokio::time::interval(every);
    loop {
        looks.tick().await;
        let idle: Vec<Arc<Upstream>> = upstreams
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|upstream| upstream.is_idle() || upstream.is_to_be_renewed())
            .collect();
        join_all(idle.iter().map(|upstream| upstream.disconnect(GRACE))).await;
    }
}
