//! What is offered, from whichever place it comes, and how it becomes what is served.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use serde_json::Value;

use super::binding::{check_verbs, policy_for};
use super::mounts::Mount;
use super::{AppError, Hook, backends};
use crate::audit::{Entry, Event};
use crate::auth::Policy;
use crate::catalog::{
    Announcer, AnyResource, Catalog, Changed, Notice, Offered, Prompt, Provided, Refused, Skill,
    Source, Tool,
};
use crate::config::{Config, ConfigError, Conflict, Loaded};
use crate::environment::Probe;
use crate::net;
use crate::seal::KeyRing;
use crate::server::{Admission, PreparedSnapshot, Server};
use crate::source::{
    ArtifactError, ArtifactStore, Artifacts, Collected, Gauge, Grounds, Naming, SEPARATOR,
    SourceConfig, TIMEOUT_SECONDS, Tokens, UpstreamRules, Upstreams, builtin, offered, offered_at,
};
use crate::telemetry::Metrics;

/// What an application offers beside what its settings name.
#[derive(Clone, Default)]
pub(super) struct Offers {
    pub(super) tools: Vec<Arc<dyn Tool>>,
    pub(super) resources: Vec<AnyResource>,
    pub(super) prompts: Vec<Arc<dyn Prompt>>,
    pub(super) skills: Vec<Skill>,
    /// Values that tools, resources and prompts share.
    pub(super) provided: Provided,
    pub(super) extensions: Vec<(String, Value)>,
    pub(super) announcer: Announcer,
    /// Where toolsets count how often their limits were hit.
    pub(super) metrics: Metrics,
    /// What is asked what it offers, each with a prefix.
    pub(super) mounted: Vec<(String, Arc<dyn Source>)>,
    /// Tells that one of those has something else to offer.
    pub(super) changed: Changed,
    /// Where large results are kept, if they are.
    pub(super) artifacts: Option<Arc<Artifacts>>,
    /// Where they are kept, if that is not for the settings to say.
    pub(super) artifact_store: Option<Arc<dyn ArtifactStore>>,
    /// Where tokens are kept that this server gets for itself.
    pub(super) tokens: Tokens,
    /// Those of the settings that the server started with.
    pub(super) upstreams: Option<Arc<Upstreams>>,
    /// Something that is configured was left out, so that rules may be for what is not there.
    pub(super) leaves_out: bool,
    pub(super) places: Places,
}

/// Where settings were said, for messages about them.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<ArcSwapOption<Loaded>>);

impl Places {
    /// Looks settings up in these from now on.
    pub(super) fn are_in(&self, loaded: &Loaded) {
        self.0.store(Some(Arc::new(loaded.clone())));
    }

    /// A file, line and column, or a variable; `None` if nobody said it, or it is no setting.
    pub(super) fn of(&self, setting: &str) -> Option<String> {
        self.0.load().as_ref()?.place(setting)
    }
}

/// How much of what there will be a catalog has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// Of an upstream server it is not known what it offers, and there is no telling whether it ever will be.
    WithoutSome,
    /// An upstream server has not answered yet, or is down, or so is whoever has a document.
    Part,
}

/// What has been put together from code and settings. What upstream servers offer is not in it, since that changes.
#[derive(Clone)]
pub(super) struct Gathered {
    tools: Vec<Arc<dyn Tool>>,
    resources: Vec<AnyResource>,
    prompts: Vec<Arc<dyn Prompt>>,
    skills: Vec<Skill>,
    /// Built-in toolsets, by their names.
    toolsets: Vec<(String, Offered)>,
    sources: Vec<Collected>,
    mounted: Vec<(String, Offered)>,
}

impl Gathered {
    /// Whether something has to be asked for again.
    fn awaits_some(&self) -> bool {
        self.sources.iter().any(|source| source.is_awaited)
    }

    /// With what sources offered before that are still configured alike, as far as nothing of them can be had now.
    fn or_stay(mut self, sources: &[SourceConfig], before: &Current) -> Self {
        // Compared as they are: serialized, all secrets are alike.
        let known = |config: &SourceConfig| {
            let mut all = before.config.sources.iter();
            let place = all.position(|known| known == config)?;
            before.gathered.sources.get(place)
        };
        let fresh = std::mem::take(&mut self.sources).into_iter().zip(sources);
        self.sources = fresh
            .map(|(fresh, config)| match known(config) {
                Some(known) => fresh.or_stay(known),
                None => fresh,
            })
            .collect();
        self
    }

    /// How the sources are doing.
    fn gauges(&self) -> Vec<Gauge> {
        let each = self.sources.iter().flat_map(|source| &source.gauges);
        each.cloned().collect()
    }
}

/// How long a start waits until upstream servers have said what they offer, unless it is set.
const UPSTREAMS_WAIT: Duration = Duration::from_secs(10);
/// How often connections to upstream servers are looked at that nobody uses, unless it is set.
const UPSTREAMS_REAPING: Duration = Duration::from_secs(30);
/// How long one that was mounted may take to say what it offers.
const PATIENCE: Duration = Duration::from_secs(10);

impl Offers {
    /// Gets ready to ask upstream servers what they offer.
    pub(super) fn reach(&mut self, config: &Config) -> Result<(), AppError> {
        self.bind()?;
        self.tokens = Tokens::new(&config.tokens, &Probe::real())?;
        if !config.upstreams.is_empty() {
            let keys = Arc::new(KeyRing::new(&config.seal)?);
            let rules = rules_for_upstreams(config, &self.tokens, keys);
            let upstreams = Upstreams::new(&config.upstreams, rules)?;
            self.upstreams = Some(Arc::new(upstreams));
        }
        let keys = KeyRing::new(&config.seal)?;
        let artifacts = Artifacts::new(
            &config.artifacts,
            self.artifact_store.clone(),
            keys,
            &Probe::real(),
            config.limits.memory_bytes,
        );
        self.artifacts = artifacts.map_err(unusable)?.map(Arc::new);
        Ok(())
    }

    /// How much of what there will be is known.
    pub(super) fn extent(&self, gathered: &Gathered) -> Extent {
        match &self.upstreams {
            _ if self.leaves_out || gathered.awaits_some() => Extent::Part,
            Some(upstreams) if upstreams.are_awaited() || upstreams.may_come() => Extent::Part,
            Some(upstreams) if !upstreams.are_known() => Extent::WithoutSome,
            _ => Extent::Whole,
        }
    }

    /// Puts together what the settings name. Documents may have to be fetched for that.
    pub(super) fn gather(&self, config: &Config) -> Result<Gathered, AppError> {
        let mut gathered = Gathered {
            tools: self.tools.clone(),
            resources: self.resources.clone(),
            prompts: self.prompts.clone(),
            skills: self.skills.clone(),
            toolsets: Vec::new(),
            sources: Vec::new(),
            mounted: Vec::new(),
        };
        let grounds = Grounds {
            announcer: &self.announcer,
            settings: &config.builtin,
            metrics: &self.metrics,
        };
        for toolset in config.builtin.unused(&config.toolsets) {
            tracing::warn!(
                setting = %format_args!("builtin.{toolset}"),
                "the toolset is off: add {toolset} to toolsets, or take its settings away"
            );
        }
        for name in &config.toolsets {
            let toolset = builtin(name, &grounds)?;
            gathered.skills.extend(toolset.skills);
            let mut offered = Offered::default();
            offered.tools = toolset.tools;
            offered.resources = toolset.resources;
            offered.prompts = toolset.prompts;
            gathered.toolsets.push((name.clone(), offered));
        }
        gathered.sources = offered(&config.sources, &self.tokens, config.limits.memory_bytes)?;
        gathered.mounted = self.ask()?;
        Ok(gathered)
    }

    /// Asks those that were mounted what they offer, on a thread of its own, so that it can be waited for from anywhere.
    fn ask(&self) -> Result<Vec<(String, Offered)>, AppError> {
        if self.mounted.is_empty() {
            return Ok(Vec::new());
        }
        let each = self.mounted.iter().map(|(prefix, source)| async move {
            let name = source.name().to_owned();
            let offered = match tokio::time::timeout(PATIENCE, source.offer()).await {
                Ok(offered) => self.bound(&name, offered).prefixed(prefix),
                Err(_) => {
                    let problem = format!(
                        "it did not say what it offers within {} s",
                        PATIENCE.as_secs()
                    );
                    let mut nothing = Offered::default();
                    nothing.refused.push(Refused::new(&name, "offer", problem));
                    nothing
                }
            };
            (name, offered)
        });
        let asked = std::thread::scope(|scope| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let asking = scope.spawn(move || runtime.block_on(join_all(each)));
            asking.join().map_err(|_| {
                std::io::Error::other("a source panicked when it was asked what it offers")
            })
        });
        Ok(asked?)
    }

    /// What comes from code alone.
    pub(super) fn own_catalog(&self) -> Result<Catalog, AppError> {
        let mut catalog = Catalog::new(self.tools.clone())?
            .with_resources(self.resources.clone())?
            .with_prompts(self.prompts.clone())?
            .with_skills(self.skills.clone())?;
        for (source, offered) in self.ask()? {
            catalog = catalog.with_offered(&source, offered);
        }
        Ok(catalog.with_extensions(self.extensions.clone())?)
    }

    /// Takes over what others offer, with a prefix.
    pub(super) fn take(&mut self, prefix: &str, mut other: Self) {
        other.bind_own();
        let mut offered = Offered::default();
        offered.tools = other.tools;
        offered.prompts = other.prompts;
        let offered = offered.prefixed(prefix);
        self.tools.extend(offered.tools);
        self.prompts.extend(offered.prompts);
        self.resources.extend(other.resources);
        self.skills.extend(other.skills);
        self.extensions.extend(other.extensions);
        let mounted = other.mounted.into_iter();
        let mounted = mounted.inspect(|(_, source)| source.watch(self.changed.clone()));
        self.mounted
            .extend(mounted.map(|(inner, source)| (format!("{prefix}{inner}"), source)));
        // Its tools announce changes by what they were given.
        other.announcer.lead(&self.announcer);
    }

    /// All that is offered.
    pub(super) fn catalog(&self, gathered: Gathered) -> Result<Catalog, AppError> {
        let mut catalog = Catalog::new(gathered.tools)?
            .with_resources(gathered.resources)?
            .with_prompts(gathered.prompts)?;
        // Two toolsets, or a toolset and a source, that have something of one name do not keep each other from being served.
        for (name, offered) in gathered.toolsets {
            catalog = catalog.with_toolset(&name, offered);
        }
        let mut catalog = catalog.with_skills(gathered.skills)?;
        let around = |offered: Offered| match &self.artifacts {
            Some(artifacts) => artifacts.around(offered),
            None => offered,
        };
        if let Some(artifacts) = &self.artifacts {
            catalog = catalog.with_resources([artifacts.resource()])?;
        }
        for source in gathered.sources {
            catalog = catalog.with_offered(&source.name, around(source.offered));
        }
        for (source, offered) in gathered.mounted {
            catalog = catalog.with_offered(&source, offered);
        }
        if let Some(upstreams) = &self.upstreams {
            let offered = upstreams.offer(&catalog)?;
            catalog = catalog.with_offered("upstreams", around(offered));
        }
        Ok(catalog.with_extensions(self.extensions.clone())?)
    }
}

fn rules_for_upstreams(config: &Config, tokens: &Tokens, keys: Arc<KeyRing>) -> UpstreamRules {
    let seconds = |set: Option<u64>, default: Duration| set.map_or(default, Duration::from_secs);
    UpstreamRules {
        folder: config.upstreams_folder.clone(),
        patience: seconds(config.upstreams_wait_seconds, UPSTREAMS_WAIT),
        timeout_seconds: config.upstreams_timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
        reaping: seconds(config.upstreams_reap_seconds, UPSTREAMS_REAPING),
        naming: Naming {
            names: config.upstreams_names,
            separator: config
                .upstreams_separator
                .clone()
                .unwrap_or_else(|| SEPARATOR.to_owned()),
        },
        tokens: tokens.clone(),
        keys,
    }
}

fn unusable(error: ArtifactError) -> AppError {
    let finding = Conflict {
        problem: format!("artifacts.{} cannot be used", error.setting),
        advice: error.problem,
    };
    ConfigError::Conflicts(vec![finding]).into()
}

/// Says in the log what cannot be offered. Where that is all there is, nothing is served; unless there may be more soon.
pub(super) fn tell_of_refused(
    catalog: &Catalog,
    extent: Extent,
    places: &Places,
) -> Result<(), AppError> {
    tell(catalog.refused(), places);
    match catalog.refused().first() {
        Some(refused) if extent != Extent::Part && catalog.offers_nothing() => {
            Err(AppError::NothingOffered(refused.clone()))
        }
        _ => Ok(()),
    }
}

fn tell<'r>(refused: impl IntoIterator<Item = &'r Refused>, places: &Places) {
    for refused in refused {
        tracing::error!(
            source = refused.source,
            place = refused.place,
            at = places.of(&refused.place),
            "skipped: {}",
            refused.problem
        );
    }
}

/// What an application says of itself; its settings outdo it.
#[derive(Clone, Default)]
pub(super) struct Identity {
    pub(super) name: Option<(String, String)>,
    pub(super) instructions: Option<String>,
}

impl Identity {
    pub(super) fn apply(&self, config: &mut Config) {
        let defaults = Config::default().server;
        if let Some((name, version)) = &self.name {
            if config.server.name == defaults.name {
                config.server.name.clone_from(name);
            }
            if config.server.version == defaults.version {
                config.server.version.clone_from(version);
            }
        }
        if config.server.instructions.is_none() {
            config.server.instructions.clone_from(&self.instructions);
        }
    }
}

/// Summary of what a server offers, for its start-up message.
#[cfg(feature = "cli")]
#[derive(Debug, Default)]
pub struct Offering {
    /// Toolsets, sources and upstream servers of which something is offered.
    names: Vec<String>,
    /// How many sources and upstream servers offer nothing, in words.
    missing: Vec<String>,
}

#[cfg(feature = "cli")]
impl Offering {
    /// In a few words: `3 tools (demo, weather); 1 of 2 sources cannot be offered, see above`.
    pub fn in_words(&self, tools: usize) -> String {
        let mut text = match tools {
            1 => "1 tool".to_owned(),
            _ => format!("{tools} tools"),
        };
        if !self.names.is_empty() {
            text.push_str(&format!(" ({})", self.names.join(", ")));
        }
        if !self.missing.is_empty() {
            let joint = if self.names.is_empty() { ": " } else { "; " };
            let missing = self.missing.join(" and ");
            text.push_str(&format!("{joint}{missing} cannot be offered, see above"));
        }
        text
    }

    /// One that offers what these are the names of, and nothing is missing.
    #[cfg(all(any(test, feature = "testing"), feature = "cli"))]
    pub fn of(names: &[&str], missing: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            names: owned(names),
            missing: owned(missing),
        }
    }
}

/// Has a server serve what is offered now: after its settings have changed, and after an upstream server has.
pub(super) struct Composer {
    server: Arc<Server>,
    identity: Identity,
    offers: Offers,
    proved: bool,
    mounts: Vec<Mount>,
    current: Mutex<Current>,
}

struct Current {
    config: Config,
    gathered: Gathered,
    /// What is known not to be offered.
    refused: Vec<Refused>,
}

impl Composer {
    /// For a server that serves what was put together from these settings.
    pub(super) fn new(
        server: &Arc<Server>,
        identity: Identity,
        offers: Offers,
        proved: bool,
        served: (Config, Gathered),
        mounts: Vec<Mount>,
    ) -> Arc<Self> {
        let (config, gathered) = served;
        backends::watch_sources(&gathered.gauges(), &server.telemetry().metrics);
        if let Some(artifacts) = &offers.artifacts {
            backends::watch_artifacts(artifacts, &server.telemetry().metrics);
        }
        Arc::new(Self {
            server: Arc::clone(server),
            identity,
            offers,
            proved,
            mounts,
            current: Mutex::new(Current {
                config,
                gathered,
                refused: server.refusals(),
            }),
        })
    }

    /// Serves what a changed configuration names.
    pub(super) fn hook(self: &Arc<Self>) -> Hook {
        let composer = Arc::clone(self);
        Box::new(move |config| {
            let mut config = config.clone();
            composer.identity.apply(&mut config);
            let gathered = composer.offers.gather(&config)?;
            let gathered = gathered.or_stay(&config.sources, &composer.current());
            let catalog = composer.offers.catalog(gathered.clone())?;
            let extent = composer.offers.extent(&gathered);
            tell_of_refused(&catalog, extent, &composer.offers.places)?;
            check_verbs(&config.server, &catalog)?;
            // What is wrong is found out before anything is changed.
            let policy = policy_for(&config.policy, &catalog, extent)?;
            let rules = config.policy.rules.len();
            let refused = catalog.refused().to_vec();
            let prepared = composer.prepared(catalog, &config, policy)?;
            let composer = Arc::clone(&composer);
            Ok(Box::new(move || {
                let mut current = composer.current();
                backends::watch_sources(&gathered.gauges(), &composer.server.telemetry().metrics);
                *current = Current {
                    config,
                    gathered,
                    refused,
                };
                composer.install(prepared);
                drop(current);
                if let Some(audit) = &composer.server.audit {
                    audit.note(Entry::new(Event::Policy).saying("rules", rules));
                }
                // Upstream servers may have changed in between.
                composer.again();
            }))
        })
    }

    /// Has messages say where settings are by these.
    pub(super) fn places_are_in(&self, loaded: &Loaded) {
        self.offers.places.are_in(loaded);
    }

    /// Summarizes what is offered, and how much is missing.
    #[cfg(feature = "cli")]
    pub(super) fn offering(&self) -> Offering {
        let current = self.current();
        let toolsets = current.gathered.toolsets.iter();
        let mut names: Vec<String> = toolsets.map(|(name, _)| name.clone()).collect();
        let mut missing = Vec::new();
        let mut count = |what: &str, all: usize, offered: Vec<String>| {
            if offered.len() < all {
                missing.push(format!("{} of {all} {what}", all - offered.len()));
            }
            names.extend(offered);
        };
        let sources = &current.gathered.sources;
        let offered = sources
            .iter()
            .filter(|source| !source.offered.is_empty())
            .map(|source| source.name.clone());
        count("sources", sources.len(), offered.collect());
        if let Some(upstreams) = &self.offers.upstreams {
            let (offered, all) = upstreams.known_of_all();
            count("upstreams", all, offered);
        }
        Offering { names, missing }
    }

    /// Whether a source has to be asked for again.
    pub(super) fn awaits_some(&self) -> bool {
        self.current().gathered.awaits_some()
    }

    /// Asks for the sources again that were somewhere that was down, and serves those that are there by now. Not while a
    /// changed configuration is taken on.
    pub(super) fn ask_again(&self) {
        let current = self.current();
        let sources = current.config.sources.clone();
        let memory_bytes = current.config.limits.memory_bytes;
        let each = current.gathered.sources.iter().enumerate();
        let places: Vec<usize> = each
            .filter(|(_, source)| source.is_awaited)
            .map(|(place, _)| place)
            .collect();
        drop(current);
        // Without a thread it is tried the next time.
        let Ok(found) = offered_at(&sources, &places, &self.offers.tokens, memory_bytes) else {
            return;
        };
        let mut current = self.current();
        let mut came = false;
        for (place, source) in places.into_iter().zip(found) {
            if !source.is_awaited
                && let Some(known) = current.gathered.sources.get_mut(place)
            {
                tracing::info!(source = source.name, "a source that was down is there");
                *known = source.or_stay(known);
                came = true;
            }
        }
        if came {
            let gauges = current.gathered.gauges();
            backends::watch_sources(&gauges, &self.server.telemetry().metrics);
            drop(current);
            self.again();
        }
    }

    /// Asks those that were mounted again whenever they say that something has changed, for as long as it is polled.
    pub(super) async fn keep_up(self: Arc<Self>) -> Infallible {
        loop {
            self.offers.changed.heard().await;
            let composer = Arc::clone(&self);
            // Schemas take their time, and others wait for this thread.
            let asked = net::spawn_blocking(move || {
                match composer.offers.ask() {
                    Ok(mounted) => composer.current().gathered.mounted = mounted,
                    Err(error) => {
                        tracing::error!(%error, "what was offered before stays");
                        return;
                    }
                }
                composer.again();
            });
            let _ = asked.await;
        }
    }

    /// Who tells clients what has changed.
    pub(super) fn announcer(&self) -> Announcer {
        self.offers.announcer.clone()
    }

    /// Serves what upstream servers offer now, and the rest as it is.
    pub(super) fn again(&self) {
        let mut current = self.current();
        let composed = self.offers.catalog(current.gathered.clone());
        let composed = composed.and_then(|catalog| {
            check_verbs(&current.config.server, &catalog)?;
            let refused = catalog.refused().to_vec();
            // Whether each name in it is one of something was found out at start; upstream servers come and go.
            let policy = Policy::new(&current.config.policy)?;
            Ok((refused, self.prepared(catalog, &current.config, policy)?))
        });
        match composed {
            Ok((refused, prepared)) => {
                let news = refused.iter().filter(|r| !current.refused.contains(r));
                tell(news, &self.offers.places);
                current.refused = refused;
                self.install(prepared);
            }
            Err(error) => tracing::error!(
                %error,
                "what upstream servers offer now cannot be served; what they offered before stays"
            ),
        }
    }

    /// What each endpoint is to serve, that at `/mcp` first.
    fn prepared(
        &self,
        catalog: Catalog,
        config: &Config,
        policy: Option<Policy>,
    ) -> Result<Vec<PreparedSnapshot>, AppError> {
        let proved = self.proved;
        let mut others = Vec::new();
        for mount in &self.mounts {
            let admission = Admission {
                policy: Policy::new(&config.policy)?,
                proved,
            };
            let part = mount.offered(&catalog)?;
            let config = mount.config(config);
            others.push(mount.server.prepare(part, &config, admission));
        }
        let main = Admission { policy, proved };
        let mut all = vec![self.server.prepare(catalog, &config.server, main)];
        all.append(&mut others);
        Ok(all)
    }

    fn install(&self, prepared: Vec<PreparedSnapshot>) {
        let main = (&self.server, &self.offers.announcer);
        let others = self
            .mounts
            .iter()
            .map(|mount| (&mount.server, &mount.announcer));
        for ((server, announcer), prepared) in std::iter::once(main).chain(others).zip(prepared) {
            let changes = server.install(prepared);
            for (changed, notice) in [
                (changes.tools, Notice::Tools),
                (changes.resources, Notice::Resources),
                (changes.prompts, Notice::Prompts),
            ] {
                if changed {
                    announcer.announce_alone(notice);
                }
            }
        }
    }

    /// The lists' present state, held by whoever changes it.
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Composer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Composer").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_is_offered_and_how_much_is_not() {
        for (names, missing, tools, expected) in [
            (&["demo"][..], &[][..], 7, "7 tools (demo)"),
            (&["demo", "a"], &[], 1, "1 tool (demo, a)"),
            (&[], &[], 0, "0 tools"),
            (
                &[],
                &["3 of 3 upstreams"],
                0,
                "0 tools: 3 of 3 upstreams cannot be offered, see above",
            ),
            (
                &["a"],
                &["1 of 2 sources", "1 of 1 upstreams"],
                1,
                "1 tool (a); 1 of 2 sources and 1 of 1 upstreams cannot be offered, see above",
            ),
        ] {
            let offering = Offering::of(names, missing);
            assert_eq!(offering.in_words(tools), expected);
        }
    }
}
