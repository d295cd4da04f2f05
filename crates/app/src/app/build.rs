//! Builds the server from an application and its configuration, and binds its listeners.

#[cfg(feature = "cli")]
mod check;
mod listeners;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::admission::checked_catalog;
#[cfg(feature = "sources")]
use super::assertions::AssertionKeys;
use super::catalog_builder::CatalogBuilder;
#[cfg(all(feature = "oauth", feature = "sources"))]
use super::connect;
use super::endpoints::{self, SharedParts};
use super::error::AppError;
#[cfg(feature = "sources")]
use super::hooks::keep_exchanged_tokens;
use super::hooks::{Hook, implied_scopes_hook, keys_hook, limits_hook, name_hook};
use super::items::{LoadedItems, NamedApp};
use super::reload::{ReloadTriggers, Reloader};
use super::serve::BoundServer;
use super::server_card::ServerCards;
use super::state::{self, OpenState};
use super::supervisor::Supervisor;
use super::warnings::{warn_of_nobody, warn_of_open_secrets};
use super::{App, methods, upstream_metrics};
use crate::audit::Audit;
use crate::auth::{Authentication, Authenticator, EndpointScopes};
#[cfg(feature = "egress")]
use crate::config::trust_ca_file;
use crate::config::{Config, Flags, Loaded, validate_features};
use crate::environment::Probe;
use crate::harness::Harness;
use crate::limit::{Limits, RateSync};
use crate::net::{Background, MemoryBudget};
use crate::seal::{KeyRing, random_bytes};
use crate::server::Server;
use crate::source::Upstreams;
use crate::state::SharedState;
use crate::telemetry::Telemetry;
use crate::transport::http::{Layers, NamedEndpoints};
pub(super) use listeners::load_tls;
use listeners::{bind_listeners, check_listener};

impl App {
    /// Checks everything and binds the address, so that the caller knows it before serving. It may wait for upstream
    /// servers and documents, within the time of the settings.
    ///
    /// The current runtime becomes the control runtime of the server: see [`App`](App#runtimes).
    ///
    /// # Errors
    ///
    /// Invalid tools or settings, or an address that is in use.
    pub fn bind(self) -> impl Future<Output = Result<BoundServer, AppError>> {
        // Boxed: the application and what it becomes are large.
        Box::pin(self.bind_located())
    }

    async fn bind_located(mut self) -> Result<BoundServer, AppError> {
        let (config, loaded) = self.take_config()?;
        let reloads = loaded.map(|loaded| (ReloadTriggers::new(&loaded), loaded));
        let origins = self.offers.origins.clone();
        let written = Arc::clone(&config);
        Box::pin(self.bind_with(config, reloads))
            .await
            .map_err(|error| error.located(&origins, &written))
    }

    async fn bind_with(
        mut self,
        config: Arc<Config>,
        reloads: Option<(ReloadTriggers, Arc<Loaded>)>,
    ) -> Result<BoundServer, AppError> {
        let restart = self.restart.take();
        let lifecycle = std::mem::take(&mut self.lifecycle);
        let proved = self.authenticates(&config);
        let supervisor = Supervisor::new();
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        let has_shared_keys = keys.is_shared();
        let auth = self.authentication(&config)?;
        warn_of_nobody(&config, &auth, self.has_own_methods());
        warn_of_open_secrets(&config);
        let is_read = self.reads_metrics(&config);
        let probe = Probe::real();
        let service = (config.server.name.as_str(), config.server.version.as_str());
        let background = supervisor.background();
        let (telemetry, export) =
            Telemetry::start(&config.telemetry, is_read, probe, service, background);
        supervisor.report_to(&telemetry);
        let Assembled {
            server,
            endpoints,
            catalogs,
            upstreams,
            layers,
            hooks,
        } = Box::pin(self.assemble(&config, &auth, telemetry, keys, background)).await?;
        let telemetry = server.telemetry();
        let reloader = reloads.map(|(triggers, loaded)| {
            Reloader::new(loaded, hooks, &catalogs, restart, telemetry, triggers)
        });
        let (listener, admin) = bind_listeners(&config)?;
        let http = match &listener {
            Some(listener) => check_listener(listener, &config, probe, proved, has_shared_keys)?,
            None => config.http.clone(),
        };
        Ok(BoundServer {
            server,
            endpoints,
            catalogs,
            upstreams,
            listener,
            admin,
            reloader,
            budget: config.drain.budget(probe),
            export,
            layers,
            auth: Arc::new(auth),
            http,
            stdio: config.stdio.clone(),
            lifecycle,
            supervisor,
        })
    }

    /// Builds the server and everything that is served beside it. It binds no address.
    async fn assemble(
        mut self,
        config: &Arc<Config>,
        auth: &Authentication,
        telemetry: Telemetry,
        keys: Arc<KeyRing>,
        background: &Background,
    ) -> Result<Assembled, AppError> {
        let mut layers = std::mem::take(&mut self.layers);
        let mut hooks = std::mem::take(&mut self.hooks);
        #[cfg(feature = "sources")]
        hooks.push(keep_exchanged_tokens(config, auth));
        #[cfg(feature = "oauth")]
        let requirements = self.endpoint_requirements(config)?;
        self.offers.metrics = telemetry.metrics.clone();
        self.offers.prepare(config, &keys, background)?;
        hooks.extend(self.serve_documents(config, &mut layers)?);
        let apps = std::mem::take(&mut self.beside);
        let upstreams = self.offers.upstreams.clone();
        let items = self.offers.clone();
        let (server, mut loaded, parts) = Box::pin(self.build(config, telemetry, keys)).await?;
        #[cfg(feature = "oauth")]
        let authorization = {
            use super::authorization::{scopes_hook, serve, verify_proofs};
            let dpop = verify_proofs(config, auth, &parts);
            let server = serve(&mut layers, config, auth, &parts, &requirements, dpop)?;
            hooks.extend(
                server
                    .as_ref()
                    .map(|it| scopes_hook(it, config, requirements)),
            );
            server
        };
        #[cfg(all(feature = "oauth", feature = "sources"))]
        {
            let recognizers = (authorization, auth.keys());
            let shown = auth.display_name();
            connect::serve(&mut layers, config, &items, shown, recognizers);
        }
        #[cfg(all(feature = "oauth", not(feature = "sources")))]
        drop(authorization);
        let whole = &server.snapshot().catalog;
        let (endpoints, mounted) = endpoints::build(config, &parts, &items, whole, apps).await?;
        loaded.mounted_beside = mounted;
        let servers = endpoints::servers(&endpoints);
        hooks.extend([
            keys_hook(auth.keys()),
            implied_scopes_hook(auth.tokens()),
            limits_hook(&server),
            name_hook(auth.display_name()),
        ]);
        let served = (Arc::clone(config), loaded);
        let catalogs = CatalogBuilder::new(&server, items, parts.proved, served, endpoints);
        Ok(Assembled {
            server,
            endpoints: servers,
            catalogs,
            upstreams,
            layers,
            hooks,
        })
    }

    /// Serves the keys of signed assertions and the server cards to everybody. Returns the hook that updates the cards.
    fn serve_documents(
        &self,
        config: &Arc<Config>,
        layers: &mut Layers,
    ) -> Result<Option<Hook>, AppError> {
        #[cfg(feature = "sources")]
        if let Some(signer) = self
            .offers
            .configured
            .signer
            .clone()
            .filter(|_| !config.sources.is_empty() || !config.upstreams.is_empty())
        {
            layers.serve_publicly(Arc::new(AssertionKeys(signer)));
        }
        let cards = ServerCards::new(config, self.apps())?;
        Ok(cards.map(|cards| {
            let hook = cards.hook(config);
            layers.serve_publicly(Arc::new(cards));
            hook
        }))
    }

    /// Builds the server without a transport, for tests of tools.
    ///
    /// It needs no runtime. With sources, upstream servers or toolsets it starts a thread for their connections, which
    /// ends with the harness. The functions of [`on_start`](Self::on_start) and [`on_stop`](Self::on_stop) and the tasks
    /// of [`background`](Self::background) do not run, later changes of a [`Source`](crate::catalog::Source) are not offered,
    /// and layers, routes, authentication methods and endpoints are left out.
    ///
    /// # Errors
    ///
    /// Invalid tools or settings.
    pub fn harness(self) -> Result<Harness, AppError> {
        Ok(Harness::new(self.server()?))
    }

    /// Builds the server without a transport. Loading that has to wait is driven by a control runtime on a thread of its
    /// own, which connections keep.
    #[doc(hidden)]
    pub fn server(mut self) -> Result<Arc<Server>, AppError> {
        let (config, _) = self.take_config()?;
        let needs_runtime = self.offers.need_runtime(&config);
        complete(needs_runtime, |background| async move {
            let keys = Arc::new(KeyRing::new(&config.seal)?);
            let telemetry = Telemetry::of(&config.telemetry, self.reads_metrics(&config));
            self.offers.metrics = telemetry.metrics.clone();
            self.offers.prepare(&config, &keys, &background)?;
            let (server, ..) = Box::pin(self.build(&config, telemetry, keys)).await?;
            Ok(server)
        })
    }

    /// Builds the server with its authentication, for benchmarks. `keys` are those of the first issuer, which is not
    /// contacted.
    #[doc(hidden)]
    pub fn guarded_server(
        mut self,
        keys: Option<&str>,
    ) -> Result<(Arc<Server>, Arc<Authenticator>), AppError> {
        let (config, _) = self.take_config()?;
        let auth = self.authentication(&config)?;
        if let Some(keys) = keys {
            auth.hold(keys);
        }
        self.config = Some(config);
        Ok((self.server()?, auth.gate))
    }

    /// Creates the authentication of callers, at `/mcp` and at the endpoints beside it.
    pub(super) fn authentication(&self, config: &Config) -> Result<Authentication, AppError> {
        let endpoints = self.endpoint_requirements(config)?;
        let facts = endpoints::server_facts(config, &endpoints);
        Ok(Authentication::new(
            &config.auth,
            facts,
            self.proofs.clone(),
        )?)
    }

    fn endpoint_requirements(&self, config: &Config) -> Result<Vec<EndpointScopes>, AppError> {
        endpoints::requirements(config, self.apps())
    }

    /// Returns the applications that are served at endpoints of their own.
    fn apps(&self) -> impl Iterator<Item = NamedApp<'_>> {
        let each = self.beside.iter();
        each.map(|(name, items)| (name.as_str(), &items.identity))
    }

    /// Returns true if a reader of the metrics is possible: with an admin port, or with authentication.
    fn reads_metrics(&self, config: &Config) -> bool {
        config.http.admin.port.is_some() || self.authenticates(config)
    }

    /// Returns true if there is an authentication method, of the application or of the settings.
    fn authenticates(&self, config: &Config) -> bool {
        self.has_own_methods() || config.auth.proves_anything()
    }

    /// Returns true if the application has authentication methods of its own.
    fn has_own_methods(&self) -> bool {
        !self.proofs.is_empty()
    }

    pub(super) fn take_config(&mut self) -> Result<(Arc<Config>, Option<Arc<Loaded>>), AppError> {
        let (mut config, loaded) = match (self.config.take(), self.loaded.take()) {
            (Some(config), _) => (config, None),
            (None, loaded) => {
                let loaded = match loaded {
                    Some(loaded) => loaded,
                    None => {
                        let flags = Flags {
                            proved: self.has_own_methods(),
                            ..Flags::default()
                        };
                        Loaded::read(&flags, Probe::real())?
                    }
                };
                (Arc::new(loaded.config.clone()), Some(loaded))
            }
        };
        validate_features(&config)?;
        // Before any client is built: each reads the trusted certificates once.
        #[cfg(feature = "egress")]
        trust_ca_file(config.ca_file.as_deref())?;
        if let Some(loaded) = &loaded {
            self.offers.origins.update(loaded);
        }
        self.offers.identity.apply(Arc::make_mut(&mut config));
        Ok((config, loaded))
    }

    /// Builds the server at `/mcp`. Returns it with its items, and the parts that it shares with the endpoints beside it.
    async fn build(
        self,
        config: &Config,
        telemetry: Telemetry,
        keys: Arc<KeyRing>,
    ) -> Result<(Arc<Server>, LoadedItems, SharedParts), AppError> {
        state::export_lifecycle(&telemetry);
        let within = Duration::from_millis(config.state.timeout_ms);
        let OpenState { state, is_shared } =
            state::open(config, self.offers.store.clone(), &keys, within)?;
        // A state in memory does not fail.
        let state = match is_shared {
            true => state.counted(&telemetry.metrics),
            false => state,
        };
        state::export_usage(&state, &telemetry.metrics);
        #[cfg(feature = "sources")]
        {
            let tokens = &self.offers.configured.tokens;
            tokens.are_in(state.clone(), is_shared, keys.is_shared())?;
        }
        let loaded = self.offers.load(config, None).await?;
        let (catalog, policy) = checked_catalog(&self.offers, &loaded, config)?;
        let proved = self.authenticates(config);
        let shared = is_shared.then_some(&state);
        let parts = SharedParts {
            limits: limits(config, &telemetry, shared, &keys, self.offers.memory),
            audit: Audit::start(&config.audit, &telemetry)?,
            methods: methods::by_name(self.methods)?,
            keys,
            state,
            is_shared,
            telemetry,
            proved,
        };
        if let Some(upstreams) = &self.offers.upstreams {
            upstream_metrics::watch(upstreams, &parts.telemetry);
        }
        let (settings, announcer) = (config.server.clone(), self.offers.announcer);
        let server = parts.server(None, settings, announcer, catalog, policy);
        Ok((server, loaded, parts))
    }
}

/// Completes a build for a caller that has no runtime. If it has to wait, a control runtime on a thread of its own drives
/// it, which its connections keep.
pub(super) fn complete<T, F>(
    needs_runtime: bool,
    build: impl FnOnce(Background) -> F,
) -> Result<T, AppError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, AppError>> + Send + 'static,
{
    if needs_runtime {
        let background = Background::on_thread()?;
        return background.block_on(build(background.clone()))?;
    }
    // Without anything to wait for, the first poll completes it.
    build(Background::new()).now_or_never().unwrap_or_else(|| {
        let problem = "building the server must wait, which only App::bind can do";
        Err(std::io::Error::other(problem).into())
    })
}

/// Creates the limits. Replicas with the same keys and a `shared` state share their counts.
fn limits(
    config: &Config,
    telemetry: &Telemetry,
    shared: Option<&SharedState>,
    keys: &KeyRing,
    memory: MemoryBudget,
) -> Arc<Limits> {
    let limits = Limits::new(&config.limits, &telemetry.metrics).sharing(memory);
    // Messages identify callers by a hash with these keys.
    let limits = Arc::new(match shared {
        Some(state) if keys.is_shared() => limits.reaching(RateSync {
            state: state.clone(),
            seed: keys.number("limits"),
            replica: u64::from_ne_bytes(random_bytes()),
        }),
        _ => limits,
    });
    limits.warn_if_alone();
    limits
}

/// A server with everything that is served beside it, before its addresses are bound.
struct Assembled {
    server: Arc<Server>,
    endpoints: NamedEndpoints,
    catalogs: Arc<CatalogBuilder>,
    upstreams: Option<Arc<Upstreams>>,
    layers: Layers,
    hooks: Vec<Hook>,
}
