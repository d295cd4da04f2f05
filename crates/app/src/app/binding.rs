//! From what an application says and what is configured to a server that has its address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::compose::{Composer, Extent, Gathered, Offers, tell_of_refused};
use super::methods;
use super::mounts::{self, Parts};
use super::reload::{Reloader, keys_hook, limits_hook};
use super::serving::BoundServer;
use super::signals::{Signals, stop_signal};
use super::warnings::{warn_in_public, warn_of_nobody, warn_of_open_secrets};
use super::{App, AppError, Result, backends};
use crate::audit::Audit;
use crate::auth::{Authentication, Gate, Place, Policy, PolicyConfig, PolicyError};
use crate::catalog::{Catalog, CatalogError};
use crate::config::{
    Config, Flags, Loaded, Transport, is_public, validate_bound, validate_features,
};
use crate::environment::Probe;
use crate::harness::Harness;
use crate::limit::{Limits, Reach};
use crate::net;
use crate::seal::{KeyRing, SealedState, random_bytes};
use crate::server::{
    Admission, SEARCH_VERBS, STATE_KINDS, Server, ServerConfig, ServerContext, ServerParts,
};
#[cfg(feature = "cli")]
use crate::source::Tokens;
use crate::state::{OpenStateError, SharedState, State, Usage};
use crate::telemetry::{
    BUILD, CONNECTIONS, DRAINING, GENERATION, Metrics, READY, STATE_ENTRIES, STATE_MEMORY,
    Telemetry,
};
use crate::transport::http::{AdminListener, Listener, Tls};

impl App {
    /// Serves until the process is told to stop. This is a whole `main`, without a runtime around it; within one, see
    /// [`bind`](Self::bind).
    ///
    /// # Errors
    ///
    /// Whatever is wrong with tools or settings, an address that is taken, or a runtime that runs already.
    pub fn run(self) -> Result {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(AppError::WithinRuntime.into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AppError::Io)?;
        let served = runtime.block_on(async {
            let signals = Signals::listen();
            let (signals, Some(bound)) = self.bind_unless_stopped(signals).await? else {
                return Ok(());
            };
            bound.announce();
            bound.say_without_log();
            Box::pin(bound.serve_until(stop_signal(signals))).await
        });
        runtime.shutdown_background();
        Ok(served?)
    }

    /// Like [`bind`](Self::bind), which may have to wait for others, but not longer than until the process is told to
    /// stop; then there is nothing to serve.
    pub async fn bind_unless_stopped(
        self,
        mut signals: Signals,
    ) -> std::result::Result<(Signals, Option<BoundServer>), AppError> {
        // The first process of a container is not ended by a signal that it does not listen for.
        let binding = net::spawn_blocking(|| self.bind());
        let bound = tokio::select! {
            bound = binding => bound,
            name = signals.next() => {
                tracing::info!(signal = name, "stopping before anything was served");
                return Ok((signals, None));
            }
        };
        match bound {
            Ok(bound) => Ok((signals, Some(bound?))),
            Err(panicked) => match panicked.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(AppError::Io(io::Error::other(error))),
            },
        }
    }

    /// Checks everything and takes the address, so that the caller knows it before serving.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with tools or settings, or an address that is taken.
    pub fn bind(mut self) -> std::result::Result<BoundServer, AppError> {
        let (config, loaded) = self.take_config()?;
        let places = self.offers.places.clone();
        let said = config.clone();
        self.bind_with(config, loaded)
            .map_err(|error| error.located(&places, &said))
    }

    fn bind_with(
        mut self,
        mut config: Config,
        loaded: Option<Loaded>,
    ) -> std::result::Result<BoundServer, AppError> {
        #[cfg_attr(
            not(feature = "oauth"),
            expect(unused_mut, reason = "the feature adds paths")
        )]
        let mut layers = std::mem::take(&mut self.layers);
        let proofs = std::mem::take(&mut self.proofs);
        let mut hooks = std::mem::take(&mut self.hooks);
        let restart = self.restart.take();
        let proved = self.proved || config.auth.proves_anything();
        let identity = self.identity.clone();
        self.offers.reach(&config)?;
        let upstreams = self.offers.upstreams.clone();
        let beside = std::mem::take(&mut self.beside);
        let mount_places = mounts::places(&config, &beside)?;
        let place = Place {
            mounts: &mount_places,
            name: config.server.title.as_ref().unwrap_or(&config.server.name),
            public_url: config.http.public_url.as_deref(),
            trusted: &config.http.trusted_proxies,
            asks_for_certificates: config.http.tls.client_ca.is_some(),
        };
        let auth = Authentication::new(&config.auth, place, proofs)?;
        warn_of_nobody(&config.policy, &auth);
        warn_of_open_secrets(&config);
        let is_read = self.reads_metrics(&config);
        let probe = Probe::real();
        let service = (config.server.name.as_str(), config.server.version.as_str());
        let (telemetry, export) = Telemetry::start(&config.telemetry, is_read, &probe, service)?;
        let offers = Offers {
            metrics: telemetry.metrics.clone(),
            ..self.offers.clone()
        };
        let Built {
            server,
            gathered,
            parts,
        } = self.build(&config, telemetry)?;
        #[cfg(feature = "oauth")]
        super::authorization::serve(&mut layers, &config, &auth, &parts, &mount_places)?;
        let whole = server.snapshot();
        let mounts = mounts::build(&config, &parts, &offers, &whole.catalog, beside)?;
        drop(whole);
        let endpoints = mounts::endpoints(&mounts);
        hooks.push(keys_hook(auth.keys()));
        let served = (config.clone(), gathered);
        let composer = Composer::new(&server, identity, offers, proved, served, mounts);
        hooks.push(composer.hook());
        hooks.push(limits_hook(&server));
        let reloader = loaded
            .map(|loaded| Reloader::new(loaded, hooks, &composer, restart, server.telemetry()));
        let listener = match config.transport {
            Transport::Stdio => None,
            Transport::Http => {
                let tls = Tls::load(&config.http.tls)?;
                Some(Listener::bind(&config.http, tls).map_err(|source| {
                    match config.http.unix_socket.clone() {
                        Some(path) => AppError::BindFile { path, source },
                        None => {
                            let address = SocketAddr::new(config.http.host, config.http.port);
                            AppError::Bind { address, source }
                        }
                    }
                })?)
            }
        };
        let admin = AdminListener::bind(&config.http).map_err(|source| {
            let http = &config.http;
            let address = http.admin.address(http.host);
            AppError::Bind {
                address: address.unwrap_or_else(|| SocketAddr::new(http.host, 0)),
                source,
            }
        })?;
        if let Some(listener) = &listener {
            if let Some(address) = listener.address() {
                validate_bound(&config, address, &probe, proved)?;
            }
            listener.settle(&mut config.http);
            if is_public(&config) {
                warn_in_public(&config.http, proved, parts.keys.is_shared());
            }
        }
        Ok(BoundServer {
            server,
            mounts: endpoints,
            composer,
            upstreams,
            listener,
            admin,
            reloader,
            budget: config.drain.budget(&probe),
            export,
            layers,
            auth,
            http: config.http,
            stdio: config.stdio,
        })
    }

    /// The server without any transport, for tests of tools.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with tools or settings.
    pub fn harness(self) -> std::result::Result<Harness, AppError> {
        Ok(Harness::new(self.server()?))
    }

    /// Goes as far as serving would, but for the address. With `offline`, upstream servers and documents at URLs are left out.
    #[cfg(feature = "cli")]
    pub fn check(mut self, offline: bool) -> std::result::Result<Checked, AppError> {
        let (config, _) = self.take_config()?;
        let places = self.offers.places.clone();
        let said = config.clone();
        self.check_with(config, offline)
            .map_err(|error| error.located(&places, &said))
    }

    #[cfg(feature = "cli")]
    fn check_with(
        mut self,
        mut config: Config,
        offline: bool,
    ) -> std::result::Result<Checked, AppError> {
        let mounts = mounts::places(&config, &self.beside)?;
        let place = Place {
            name: &config.server.name,
            public_url: config.http.public_url.as_deref(),
            trusted: &config.http.trusted_proxies,
            mounts: &mounts,
            asks_for_certificates: config.http.tls.client_ca.is_some(),
        };
        let auth = Authentication::new(&config.auth, place, std::mem::take(&mut self.proofs))?;
        warn_of_nobody(&config.policy, &auth);
        Tls::load(&config.http.tls)?;
        if is_public(&config) {
            let proved = self.proved || config.auth.proves_anything();
            warn_in_public(&config.http, proved, !config.seal.keys.is_empty());
        }
        let mut left_out = Vec::new();
        if offline {
            left_out.extend(std::mem::take(&mut config.upstreams).into_keys());
            config.sources.retain(|source| {
                let is_far = source
                    .openapi
                    .as_ref()
                    .is_some_and(|openapi| openapi.document.contains("://"));
                if is_far {
                    left_out.push(source.name.clone());
                }
                !is_far
            });
            self.offers.leaves_out = !left_out.is_empty();
        }
        // Whoever does not wait for them at start does so here, where nobody is waiting to call.
        if config.upstreams_wait_seconds == Some(0) {
            config.upstreams_wait_seconds = None;
        }
        self.offers.reach(&config)?;
        let upstreams = self.offers.upstreams.clone();
        let telemetry = Telemetry::of(&config.telemetry, self.reads_metrics(&config));
        let server = self.build(&config, telemetry)?.server;
        let refused = server.refusals().into_iter().map(|refused| refused.place);
        let awaited = upstreams.map(|upstreams| upstreams.awaited());
        let awaited = awaited.into_iter().flatten();
        let generation = server.snapshot();
        Ok(Checked {
            tools: server.tool_count(),
            offers_nothing: generation.catalog.offers_nothing(),
            missing: refused
                .chain(awaited.map(|name| format!("upstreams.{name}")))
                .collect(),
            left_out,
        })
    }

    pub fn server(mut self) -> std::result::Result<Arc<Server>, AppError> {
        let (config, _) = self.take_config()?;
        self.offers.reach(&config)?;
        let telemetry = Telemetry::of(&config.telemetry, self.reads_metrics(&config));
        Ok(self.build(&config, telemetry)?.server)
    }

    /// The same with who is let in, for benchmarks. `keys` are those of the first issuer, whom nobody asks.
    pub(crate) fn guarded_server(
        mut self,
        keys: Option<&str>,
    ) -> std::result::Result<(Arc<Server>, Arc<Gate>), AppError> {
        let (config, _) = self.take_config()?;
        let place = Place {
            name: &config.server.name,
            public_url: config.http.public_url.as_deref(),
            trusted: &config.http.trusted_proxies,
            mounts: &[],
            asks_for_certificates: false,
        };
        let auth = Authentication::new(&config.auth, place, std::mem::take(&mut self.proofs))?;
        if let Some(keys) = keys {
            auth.hold(keys);
        }
        Ok((self.config(config).server()?, auth.gate))
    }

    /// Whether somebody can look at what is counted.
    fn reads_metrics(&self, config: &Config) -> bool {
        config.http.admin.port.is_some() || self.proved || config.auth.proves_anything()
    }

    pub(super) fn take_config(
        &mut self,
    ) -> std::result::Result<(Config, Option<Loaded>), AppError> {
        let (mut config, loaded) = match (self.config.take(), self.loaded.take()) {
            (Some(config), _) => (config, None),
            (None, Some(loaded)) => (loaded.config.clone(), Some(loaded)),
            (None, None) => {
                let flags = Flags {
                    proved: self.proved,
                    ..Flags::default()
                };
                let loaded = Loaded::read(&flags, &Probe::real())?;
                (loaded.config.clone(), Some(loaded))
            }
        };
        validate_features(&config)?;
        if let Some(loaded) = &loaded {
            self.offers.places.are_in(loaded);
        }
        self.identity.apply(&mut config);
        Ok((config, loaded))
    }

    fn build(
        mut self,
        config: &Config,
        telemetry: Telemetry,
    ) -> std::result::Result<Built, AppError> {
        self.offers.metrics = telemetry.metrics.clone();
        tell_state(&telemetry);
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        let within = Duration::from_millis(config.state.timeout_ms);
        let Opened { state, is_shared } = open_state(config, self.store, &keys, within)?;
        // In memory it always answers.
        let state = match is_shared {
            true => state.counted(&telemetry.metrics),
            false => state,
        };
        show_state(&state, &telemetry.metrics);
        let tokens = &self.offers.tokens;
        tokens.are_in(state.clone(), is_shared, keys.is_shared())?;
        let gathered = self.offers.gather(config)?;
        let catalog = self.offers.catalog(gathered.clone())?;
        let extent = self.offers.extent(&gathered);
        tell_of_refused(&catalog, extent, &self.offers.places)?;
        check_verbs(&config.server, &catalog)?;
        let proved = self.proved || config.auth.proves_anything();
        let limited = config.limits.tools.keys();
        let is_missing = |tool: &str| extent == Extent::Whole && catalog.tool(tool).is_none();
        for tool in limited.filter(|tool| is_missing(tool)) {
            tracing::warn!(
                setting = %format_args!("limits.tools.{tool}"),
                "there is no such tool: the limit applies to nothing"
            );
        }
        let admission = Admission {
            policy: policy_for(&config.policy, &catalog, extent)?,
            proved,
        };
        let shared = ServerContext {
            state,
            is_shared,
            announcer: self.offers.announcer,
            mount: None,
        };
        let limits = Limits::new(&config.limits, &telemetry.metrics);
        // Who is meant is told to those alone who have the same keys.
        let limits = Arc::new(if is_shared && keys.is_shared() {
            limits.reaching(Reach {
                state: shared.state.clone(),
                seed: keys.number("limits"),
                replica: u64::from_ne_bytes(random_bytes()),
            })
        } else {
            limits
        });
        limits.warn_if_alone();
        let audit = Audit::start(&config.audit, &telemetry)?;
        let methods = methods::by_name(self.methods)?;
        let parts = Parts {
            audit: audit.clone(),
            keys: Arc::clone(&keys),
            limits: Arc::clone(&limits),
            state: shared.state.clone(),
            is_shared,
            methods: methods.clone(),
            telemetry: telemetry.clone(),
            proved,
        };
        if let Some(upstreams) = &self.offers.upstreams {
            backends::watch(upstreams, &telemetry);
        }
        let server = Server::new(ServerParts {
            config: config.server.clone(),
            keys,
            shared,
            catalog,
            methods,
            telemetry,
            admission,
            limits,
            audit,
        });
        Ok(Built {
            server: Arc::new(server),
            gathered,
            parts,
        })
    }
}

/// What a server with a configuration would offer.
#[cfg(feature = "cli")]
#[derive(Debug)]
pub struct Checked {
    pub tools: usize,
    /// There is no tool, no resource and no prompt.
    pub offers_nothing: bool,
    /// What is configured and cannot be offered, by where it is configured.
    pub missing: Vec<String>,
    /// What was not looked at.
    pub left_out: Vec<String>,
}

/// The state, and whether others have it too.
struct Opened {
    state: SharedState,
    is_shared: bool,
}

/// Opens the state that is configured, unless there is one already. Nothing is connected yet.
fn open_state(
    config: &Config,
    own: Option<Arc<dyn State>>,
    keys: &Arc<KeyRing>,
    within: Duration,
) -> std::result::Result<Opened, OpenStateError> {
    let is_shared = own.is_some() || config.state.is_shared();
    let store = match own {
        Some(store) => store,
        None => crate::state::open(&config.state)?,
    };
    // Others may write to a store that is shared. With a key that nobody else has, nobody else could read it.
    let store = if is_shared && keys.is_shared() {
        Arc::new(SealedState::new(store, Arc::clone(keys)))
    } else {
        store
    };
    let state = SharedState::new(store, within);
    Ok(Opened { state, is_shared })
}

/// Has operators see what a state in memory takes.
fn show_state(state: &SharedState, metrics: &Metrics) {
    // What is elsewhere takes nothing here.
    if state.usage().is_empty() {
        return;
    }
    for kind in STATE_KINDS {
        let read = |of: fn(&Usage) -> usize| {
            let state = state.clone();
            move || {
                let usage = state.usage();
                let known = usage.iter().find(|usage| usage.kind == kind);
                known.map_or(0.0, |usage| of(usage) as f64)
            }
        };
        let labels = [("kind", kind)];
        metrics.read(&STATE_MEMORY, &labels, read(|usage| usage.bytes));
        metrics.read(&STATE_ENTRIES, &labels, read(|usage| usage.entries));
    }
}

/// Where a server with this configuration keeps tokens, for a command that looks after them.
///
/// # Errors
///
/// There is no such place, or the state cannot be opened.
#[cfg(feature = "cli")]
pub fn tokens(config: &Config) -> std::result::Result<Tokens, AppError> {
    /// Whoever waits for a command has more patience than whoever waits for a call.
    const PATIENCE: Duration = Duration::from_secs(5);
    let tokens = Tokens::new(&config.tokens, &Probe::real())?;
    if tokens.are_shared() {
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        let within = PATIENCE.max(Duration::from_millis(config.state.timeout_ms));
        let Opened { state, is_shared } = open_state(config, None, &keys, within)?;
        tokens.are_in(state, is_shared, keys.is_shared())?;
    }
    Ok(tokens)
}

/// A server, and what others beside it are built from.
struct Built {
    server: Arc<Server>,
    gathered: Gathered,
    parts: Parts,
}

/// Where tools are found by a search, no tool has the name of one that searches.
pub(super) fn check_verbs(
    config: &ServerConfig,
    catalog: &Catalog,
) -> std::result::Result<(), CatalogError> {
    if config.search.above.is_none() {
        return Ok(());
    }
    let taken = SEARCH_VERBS
        .iter()
        .find(|name| catalog.tool(name).is_some());
    match taken {
        Some(name) => Err(CatalogError::Duplicate {
            name: (*name).to_owned(),
        }),
        None => Ok(()),
    }
}

/// The policy, if there is any, with each name in it one of something.
pub(super) fn policy_for(
    config: &PolicyConfig,
    catalog: &Catalog,
    extent: Extent,
) -> std::result::Result<Option<Policy>, PolicyError> {
    let policy = Policy::new(config)?;
    if extent != Extent::Whole {
        // A rule may be for what is not known yet.
        return Ok(policy);
    }
    let tools: Vec<_> = catalog.names().collect();
    Policy::check_names(config, &tools, &catalog.prompt_names().collect::<Vec<_>>())?;
    Ok(policy)
}

/// Has the server's state read whenever somebody looks.
fn tell_state(telemetry: &Telemetry) {
    let metrics = &telemetry.metrics;
    let life = &telemetry.life;
    metrics.read(&BUILD, &[("version", env!("CARGO_PKG_VERSION"))], || 1.0);
    metrics.read(&CONNECTIONS, &[], {
        let life = Arc::clone(life);
        move || life.clients() as f64
    });
    metrics.read(&READY, &[], {
        let life = Arc::clone(life);
        move || f64::from(u8::from(life.is_ready()))
    });
    metrics.read(&DRAINING, &[], {
        let life = Arc::clone(life);
        move || f64::from(u8::from(life.is_draining()))
    });
    metrics.read(&GENERATION, &[], {
        let life = Arc::clone(life);
        move || life.generation() as f64
    });
}
