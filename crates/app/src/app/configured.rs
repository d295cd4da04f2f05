//! Items that the settings name: built-in toolsets, sources and upstream servers.

use std::sync::Arc;
use std::time::Duration;

use super::dry_run::without_new_folder;
use super::error::AppError;
use super::items::{AppItems, LoadedItems};
use crate::auth::{AuthMethodKind, PublicUrl};
use crate::catalog::SourceItems;
use crate::config::{Config, ConfigError, Conflict, is_public};
use crate::environment::Probe;
use crate::seal::KeyRing;
use crate::source::{
    Accounts, ArtifactError, ArtifactStore, Artifacts, AssertionSigner, BuiltSource, Naming,
    RecognizedUsers, Reuse, SEPARATOR, SourceParts, TIMEOUT_SECONDS, Tokens, ToolsetContext,
    UpstreamRules, Upstreams, builtin, offered_at,
};

/// Parts of the server that configured items use.
#[derive(Clone, Default)]
pub(super) struct ConfiguredParts {
    /// The application's own store of large results.
    pub(super) artifact_store: Option<Arc<dyn ArtifactStore>>,
    /// Store of tokens that this server obtains for itself.
    pub(super) tokens: Tokens,
    /// Signer of assertions about callers.
    pub(super) signer: Option<AssertionSigner>,
    /// Logins of users at the APIs of sources.
    pub(super) accounts: Accounts,
    /// State of the sources that a reload keeps.
    reuse: Reuse,
}

/// Default time that the startup waits for the listings of upstream servers.
const UPSTREAMS_WAIT: Duration = Duration::from_secs(10);
/// Default interval at which idle connections to upstream servers are closed.
const UPSTREAMS_REAPING: Duration = Duration::from_secs(30);

/// Returns which users can be recognized in a browser, to log in at the APIs of sources.
fn recognized_users(config: &Config, root: &str) -> RecognizedUsers {
    RecognizedUsers {
        issuer: config
            .auth
            .oauth
            .facade
            .is_configured()
            .then(|| root.to_owned()),
        keys: config.auth.has(AuthMethodKind::ApiKey),
        everybody: !config.auth.proves_anything() && !is_public(config),
    }
}

impl AppItems {
    /// Creates what the settings need: the token store, upstream servers and the store of large results.
    pub(super) fn prepare_configured(
        &mut self,
        config: &Config,
        keys: &Arc<KeyRing>,
    ) -> Result<(), AppError> {
        self.prepare_parts(config, keys)?;
        if !config.upstreams.is_empty() {
            let upstreams = Upstreams::new(&config.upstreams, self.upstream_rules(config, keys))?;
            // A check without the network needs the errors in their settings only.
            self.upstreams = (!self.leaves_out).then(|| Arc::new(upstreams));
        }
        self.artifacts = self.open_artifacts(config, keys)?.map(Arc::new);
        Ok(())
    }

    fn open_artifacts(
        &self,
        config: &Config,
        keys: &Arc<KeyRing>,
    ) -> Result<Option<Artifacts>, AppError> {
        let artifacts = Artifacts::new(
            &config.artifacts,
            self.configured.artifact_store.clone(),
            Arc::clone(keys),
            Probe::real(),
            config.limits.memory_bytes,
        );
        artifacts.map_err(unusable)
    }

    /// Checks the settings of the store of large results. Nothing is left behind.
    pub(super) fn check_artifacts(&self, config: &Config) -> Result<(), AppError> {
        let mut planned = config.clone();
        if self.configured.artifact_store.is_none() {
            without_new_folder(&mut planned.artifacts)?;
        }
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        self.open_artifacts(&planned, &keys).map(drop)
    }

    fn prepare_parts(&mut self, config: &Config, keys: &Arc<KeyRing>) -> Result<(), AppError> {
        self.configured.tokens = Tokens::new(&config.tokens, Probe::real())?;
        let issuer = config.http.public_url.as_deref().and_then(PublicUrl::parse);
        let root = issuer.map(|url| url.root());
        if let Some(root) = &root {
            let users = recognized_users(config, root);
            self.configured.accounts = Accounts::new(keys, root.clone(), users);
        }
        self.configured.signer = AssertionSigner::new(keys, root);
        Ok(())
    }

    fn upstream_rules(&self, config: &Config, keys: &Arc<KeyRing>) -> UpstreamRules {
        let seconds =
            |set: Option<u64>, default: Duration| set.map_or(default, Duration::from_secs);
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
            parts: self.source_parts(config),
            keys: Arc::clone(keys),
            background: self.background.clone(),
        }
    }

    /// Loads toolsets and sources. Documents that are `served` for the same settings are not fetched again.
    pub(super) async fn load_configured(
        &self,
        config: &Config,
        served: Option<(&Config, &LoadedItems)>,
        loaded: &mut LoadedItems,
    ) -> Result<(), AppError> {
        self.load_toolsets(config, loaded)?;
        loaded.sources = self.load_sources(config, served).await?;
        Ok(())
    }

    async fn load_sources(
        &self,
        config: &Config,
        served: Option<(&Config, &LoadedItems)>,
    ) -> Result<Vec<BuiltSource>, AppError> {
        let fetched = |position: usize| {
            let (known, loaded) = served?;
            loaded.fetched(position, known, config).cloned()
        };
        let all = (0..config.sources.len()).map(|position| (position, fetched(position)));
        let all: Vec<_> = all.collect();
        let others = all.iter().filter(|(_, fetched)| fetched.is_none());
        let others: Vec<usize> = others.map(|(position, _)| *position).collect();
        let parts = self.source_parts(config);
        let mut others = offered_at(&config.sources, &others, &parts)
            .await?
            .into_iter();
        let each = all.into_iter();
        Ok(each
            .filter_map(|(_, fetched)| fetched.or_else(|| others.next()))
            .collect())
    }

    /// Loads the sources at some positions again. After an error there are none; it is tried the next time.
    pub(super) fn load_again(
        &self,
        config: Arc<Config>,
        positions: Vec<usize>,
    ) -> impl Future<Output = Vec<(usize, BuiltSource)>> + Send + use<> {
        let parts = self.source_parts(&config);
        async move {
            let found = offered_at(&config.sources, &positions, &parts).await;
            let sources = positions.into_iter().zip(found.unwrap_or_default());
            sources.collect()
        }
    }

    /// Parts of the server that configured sources use.
    fn source_parts(&self, config: &Config) -> SourceParts {
        SourceParts {
            tokens: self.configured.tokens.clone(),
            signer: self.configured.signer.clone(),
            accounts: self.configured.accounts.clone(),
            metrics: self.metrics.clone(),
            memory_bytes: config.limits.memory_bytes,
            memory: self.memory.clone(),
            reuse: self.configured.reuse.clone(),
        }
    }

    fn load_toolsets(&self, config: &Config, loaded: &mut LoadedItems) -> Result<(), AppError> {
        let grounds = ToolsetContext {
            announcer: &self.announcer,
            settings: &config.builtin,
            metrics: &self.metrics,
            background: &self.background,
        };
        for toolset in config.builtin.unused(&config.toolsets) {
            tracing::warn!(
                setting = %format_args!("builtin.{toolset}"),
                "the toolset is off: add {toolset} to toolsets, or remove its settings"
            );
        }
        for name in &config.toolsets {
            let toolset = builtin(name, &grounds)?;
            loaded.skills.extend(toolset.skills);
            let mut offered = SourceItems::default();
            offered.tools = toolset.tools;
            offered.resources = toolset.resources;
            offered.prompts = toolset.prompts;
            loaded.toolsets.push((name.clone(), offered));
        }
        Ok(())
    }
}

impl LoadedItems {
    /// Returns the source at a position if its settings are the same, and its document is fetched from a server. A reload
    /// neither waits for that server nor depends on it.
    fn fetched(&self, position: usize, known: &Config, config: &Config) -> Option<&BuiltSource> {
        let settings = config.sources.get(position)?;
        let is_same = settings.is_a_remote_document()
            && known.sources.get(position) == Some(settings)
            && known.limits.memory_bytes == config.limits.memory_bytes;
        self.sources.get(position).filter(|_| is_same)
    }
}

/// Checks the settings of upstream servers, and what they need of other settings. No server is contacted, and nothing that is
/// served changes.
pub(super) fn check_upstreams(config: &Config) -> Result<(), AppError> {
    let keys = Arc::new(KeyRing::new(&config.seal)?);
    let mut items = AppItems::default();
    items.prepare_parts(config, &keys)?;
    let rules = UpstreamRules {
        // It would be created.
        folder: None,
        ..items.upstream_rules(config, &keys)
    };
    Upstreams::new(&config.upstreams, rules)?;
    Ok(())
}

/// Converts an error of the artifact store.
pub(super) fn unusable(error: ArtifactError) -> AppError {
    let conflict = Conflict {
        problem: format!("artifacts.{} cannot be used", error.setting),
        advice: error.problem,
    };
    ConfigError::Conflicts(vec![conflict]).into()
}
