//! Builds the catalogs of a running server again: after its settings have changed, and after the items of an upstream
//! server or a mounted source have.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::runtime::Handle;

use super::admission::{check_search_names, checked_catalog, log_rejected};
use super::endpoints::{self, Endpoint};
use super::error::AppError;
use super::hooks::Commit;
use super::items::{AppItems, LoadedItems, NamedApp};
use super::mounted::MountedItems;
#[cfg(feature = "cli")]
use super::offering::Offering;
use super::upstream_metrics;
use crate::audit::{Entry, Event};
use crate::auth::Policy;
use crate::catalog::{Catalog, ChangeEvent, RejectedItem};
use crate::config::Config;
use crate::net::{self, Mutex};
use crate::server::{Admission, PreparedSnapshot, Server};
use crate::source::BuiltSource;

/// Builder of a server's catalogs, at `/mcp` and at each endpoint. Clients are notified of changed lists.
pub(super) struct CatalogBuilder {
    server: Arc<Server>,
    pub(super) items: AppItems,
    proved: bool,
    endpoints: Vec<Endpoint>,
    /// Held while mounted sources are asked for their items, until these are served. Otherwise an older response could
    /// replace a newer one.
    asking: Arc<tokio::sync::Mutex<()>>,
    current: Mutex<Current>,
}

/// Sources to load again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refresh {
    /// Sources that are unavailable.
    Unavailable,
    /// Sources that are unavailable, and those whose documents are fetched from servers.
    Documents,
}

/// Sources that were loaded again, by position, and the settings that they belong to.
pub(super) struct RefreshedSources {
    config: Arc<Config>,
    sources: Vec<(usize, BuiltSource)>,
}

/// Settings and items that are served now.
struct Current {
    config: Arc<Config>,
    loaded: LoadedItems,
    /// Rejected items, which were logged already.
    rejected: Vec<RejectedItem>,
}

impl CatalogBuilder {
    /// Creates a builder for a server with these settings and items.
    pub(super) fn new(
        server: &Arc<Server>,
        items: AppItems,
        proved: bool,
        served: (Arc<Config>, LoadedItems),
        endpoints: Vec<Endpoint>,
    ) -> Arc<Self> {
        let (config, loaded) = served;
        upstream_metrics::watch_sources(&loaded.gauges(), &server.telemetry().metrics);
        if let Some(artifacts) = &items.artifacts {
            upstream_metrics::watch_artifacts(artifacts, &server.telemetry().metrics);
        }
        Arc::new(Self {
            server: Arc::clone(server),
            items,
            proved,
            endpoints,
            asking: Arc::default(),
            current: Mutex::new(Current {
                config,
                loaded,
                rejected: server.refusals(),
            }),
        })
    }

    /// Prepares the catalogs of a changed configuration, whose upstream servers may differ from those that are connected. It
    /// changes nothing before the commit.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        config: Arc<Config>,
        waits_for_upstreams: bool,
    ) -> Result<Commit, AppError> {
        let asking = Arc::clone(&self.asking).lock_owned().await;
        let served = {
            let current = self.current.lock();
            (Arc::clone(&current.config), current.loaded.clone())
        };
        let mut loaded = self
            .items
            .load(&config, Some((&served.0, &served.1)))
            .await?;
        loaded.mounted_beside = self.load_mounted_beside(&served.1.mounted_beside).await?;
        {
            let current = self.current.lock();
            loaded = loaded.or_keep(&config.sources, &current.config.sources, &current.loaded);
        }
        let (catalog, policy) = checked_catalog(&self.items, &loaded, &config)?;
        endpoints::check_selections(&config, &self.items, &catalog, waits_for_upstreams)?;
        let rules = config.policy.rules.len();
        let rejected = catalog.refused().to_vec();
        let prepared = self.prepared(catalog, &config, policy, &loaded.mounted_beside)?;
        let builder = Arc::clone(self);
        Ok(Box::new(move || {
            let mut current = builder.current.lock();
            let are_rules_new = current.config.policy != config.policy;
            upstream_metrics::watch_sources(&loaded.gauges(), &builder.server.telemetry().metrics);
            *current = Current {
                config,
                loaded,
                rejected,
            };
            builder.install(prepared);
            drop(current);
            drop(asking);
            if let Some(audit) = &builder.server.audit
                && are_rules_new
            {
                audit.note(Entry::new(Event::Policy).saying("rules", rules));
            }
            // Upstream servers and mounted sources may have changed in between.
            builder.rebuild();
        }))
    }

    /// Returns the endpoints of other applications.
    pub(super) fn apps(&self) -> impl Iterator<Item = NamedApp<'_>> + Clone {
        self.endpoints.iter().filter_map(Endpoint::app)
    }

    /// Summarizes the served items, and the number of those that are missing.
    #[cfg(feature = "cli")]
    pub(super) fn offering(&self) -> Offering {
        let current = self.current.lock();
        let toolsets = current.loaded.toolsets.iter();
        let mut names: Vec<String> = toolsets.map(|(name, _)| name.clone()).collect();
        let mut missing = Vec::new();
        let mut count = |what: &str, all: usize, offered: Vec<String>| {
            if offered.len() < all {
                missing.push(format!("{} of {all} {what}", all - offered.len()));
            }
            names.extend(offered);
        };
        let sources = &current.loaded.sources;
        let offered = sources
            .iter()
            .filter(|source| !source.offered.is_empty())
            .map(|source| source.name.clone());
        count("sources", sources.len(), offered.collect());
        if let Some(upstreams) = &self.items.upstreams {
            let (offered, all) = upstreams.known_of_all();
            count("upstreams", all, offered);
        }
        Offering { names, missing }
    }

    /// Returns the files that the documents of the served sources refer to.
    pub(super) fn referenced_files(&self) -> Vec<PathBuf> {
        let current = self.current.lock();
        let each = current.loaded.sources.iter();
        each.flat_map(|source| source.files.clone()).collect()
    }

    /// Returns true if a source has to be loaded again.
    pub(super) fn awaits_some(&self) -> bool {
        self.current.lock().loaded.awaits_some()
    }

    /// Loads some of the sources again. Nothing is served before [`serve_refreshed`](Self::serve_refreshed).
    pub(super) fn refresh(
        &self,
        which: Refresh,
    ) -> impl Future<Output = RefreshedSources> + Send + use<> {
        let current = self.current.lock();
        let config = Arc::clone(&current.config);
        let each = current.loaded.sources.iter().zip(&config.sources);
        let positions: Vec<usize> = each
            .enumerate()
            .filter(|(_, (source, settings))| {
                source.is_awaited || which == Refresh::Documents && settings.is_a_remote_document()
            })
            .map(|(position, _)| position)
            .collect();
        drop(current);
        let loading = self.items.load_again(Arc::clone(&config), positions);
        async move {
            RefreshedSources {
                sources: loading.await,
                config,
            }
        }
    }

    /// Serves sources that were loaded again, unless the configuration was reloaded meanwhile. Documents that could not be
    /// loaded remove nothing.
    pub(super) fn serve_refreshed(&self, refreshed: RefreshedSources) {
        let RefreshedSources { config, sources } = refreshed;
        let mut current = self.current.lock();
        if !Arc::ptr_eq(&current.config, &config) {
            return;
        }
        let mut is_changed = false;
        for (position, source) in sources {
            let Some(known) = current.loaded.sources.get_mut(position) else {
                continue;
            };
            if known.is_awaited && source.is_awaited {
                continue;
            }
            if known.is_awaited {
                tracing::info!(
                    source = source.name,
                    "a source that was unavailable is loaded"
                );
            }
            *known = source.or_stay(known);
            is_changed = true;
        }
        if is_changed {
            let gauges = current.loaded.gauges();
            upstream_metrics::watch_sources(&gauges, &self.server.telemetry().metrics);
            drop(current);
            self.rebuild();
        }
    }

    /// Loads the items of mounted sources again whenever one of them reports a change.
    pub(super) async fn follow_sources(self: Arc<Self>) -> Infallible {
        loop {
            self.items.changed.notified().await;
            let builder = Arc::clone(&self);
            // Schemas and catalogs take time, and other tasks wait for this thread.
            let reloaded = net::spawn_blocking(move || {
                Handle::current().block_on(builder.reload_mounted())?;
                builder.rebuild();
                Ok::<_, AppError>(())
            });
            if let Ok(Err(error)) = reloaded.await {
                tracing::error!(%error, "the previous tools stay listed");
            }
        }
    }

    async fn reload_mounted(&self) -> Result<(), AppError> {
        let _asking = self.asking.lock().await;
        let (known, known_beside) = {
            let loaded = &self.current.lock().loaded;
            (loaded.mounted.clone(), loaded.mounted_beside.clone())
        };
        let mounted = self.items.load_mounted(&known).await?;
        let mounted_beside = self.load_mounted_beside(&known_beside).await?;
        let loaded = &mut self.current.lock().loaded;
        (loaded.mounted, loaded.mounted_beside) = (mounted, mounted_beside);
        Ok(())
    }

    /// Asks the mounted sources of each endpoint for their items.
    async fn load_mounted_beside(
        &self,
        known: &[Vec<MountedItems>],
    ) -> Result<Vec<Vec<MountedItems>>, AppError> {
        let each = self.endpoints.iter().zip(known);
        try_join_all(each.map(|(endpoint, known)| endpoint.load_mounted(known))).await
    }

    /// Builds the catalogs again, with the present items of upstream servers.
    pub(super) fn rebuild(&self) {
        let mut current = self.current.lock();
        let composed = self.items.catalog(&current.loaded);
        let composed = composed.and_then(|catalog| {
            check_search_names(&current.config.server, &catalog)?;
            let rejected = catalog.refused().to_vec();
            // The names in the policy were checked at start; upstream servers come and go.
            let policy = Policy::new(&current.config.policy)?;
            let mounted = &current.loaded.mounted_beside;
            let prepared = self.prepared(catalog, &current.config, policy, mounted)?;
            Ok((rejected, prepared))
        });
        match composed {
            Ok((rejected, prepared)) => {
                let known: HashSet<_> = current.rejected.iter().map(facts_of).collect();
                let news = rejected.iter().filter(|r| !known.contains(&facts_of(r)));
                log_rejected(news, &self.items.origins);
                current.rejected = rejected;
                self.install(prepared);
            }
            Err(error) => tracing::error!(
                %error,
                "the new lists of upstream servers cannot be served; the previous ones stay in use"
            ),
        }
    }

    /// Prepares a snapshot for each server, the one at `/mcp` first.
    fn prepared(
        &self,
        catalog: Catalog,
        config: &Config,
        policy: Option<Policy>,
        mounted_beside: &[Vec<MountedItems>],
    ) -> Result<Vec<PreparedSnapshot>, AppError> {
        let proved = self.proved;
        let mut others = Vec::new();
        for (endpoint, mounted) in self.endpoints.iter().zip(mounted_beside) {
            let admission = Admission {
                policy: Policy::new(&config.policy)?,
                proved,
            };
            let part = endpoint.content.catalog(&catalog, mounted)?;
            let config = endpoint.content.config(config);
            check_search_names(&config, &part)?;
            others.push(endpoint.server.prepare(part, &config, admission));
        }
        let main = Admission { policy, proved };
        let mut all = vec![self.server.prepare(catalog, &config.server, main)];
        all.append(&mut others);
        Ok(all)
    }

    fn install(&self, prepared: Vec<PreparedSnapshot>) {
        let main = (&self.server, &self.items.announcer);
        let others = self
            .endpoints
            .iter()
            .map(|endpoint| (&endpoint.server, &endpoint.announcer));
        for ((server, announcer), prepared) in std::iter::once(main).chain(others).zip(prepared) {
            let changes = server.install(prepared);
            for (changed, notice) in [
                (changes.tools, ChangeEvent::Tools),
                (changes.resources, ChangeEvent::Resources),
                (changes.prompts, ChangeEvent::Prompts),
            ] {
                if changed {
                    announcer.announce_alone(notice);
                }
            }
        }
    }
}

/// Returns all that distinguishes a rejected item.
fn facts_of(item: &RejectedItem) -> (&str, &str, &str, bool) {
    (&item.source, &item.place, &item.problem, item.is_retried)
}
