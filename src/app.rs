//! The builder: tools, resources, prompts and settings in, a running server out.

#[cfg_attr(not(target_os = "linux"), path = "app/no_orphans.rs")]
mod orphans;
mod backends;
mod compose;
mod mounts;
mod policy;
mod reload;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use serde_json::Value;
use tokio::sync::Notify;
use tower::{Layer, Service};

use crate::audit::{Audit, AuditError};
use crate::auth::{
    ApiKeys, AuthSetupError, Authentication, Place, Policy, PolicyConfig, PolicyError, Proof,
};
use crate::catalog::{
    Announcer, Catalog, CatalogError, IntoPrompt, IntoResource, IntoTool, Refused,
    ResourceTemplate, Skill, Source, Tool,
};
use crate::config::{Config, ConfigError, Flags, Loaded, Transport};
use crate::environment::Probe;
use crate::harness::Harness;
use crate::limit::Limits;
use crate::net::{Body, BodyError};
use crate::seal::{KeyError, KeyRing, SealedState};
use crate::server::{Admission, MethodHandler, SEARCH_VERBS, Server, ServerConfig, Shared};
use crate::source::{ToolsetError, UpstreamError, Upstreams};
use crate::state::{OpenStateError, SharedState, State};
use crate::telemetry::{BUILD, CONNECTIONS, DRAINING, Export, GENERATION, Telemetry};
use crate::transport::drain::Budget;
use crate::transport::http::{
    AdminListener, HttpConfig, Layers, Listener, McpService, Mounts, RouteHandler, Tls, TlsError,
};
use crate::transport::stdio::{self, StdioConfig};
use compose::{Composer, Gathered, Identity, Offers, tell_of_refused};
pub use mounts::MountError;
use mounts::Parts;
pub(crate) use reload::Hook;
use reload::Reloader;

pub use policy::Rules;

/// A server in the making.
///
/// ```no_run
/// use longshore::{App, tool};
///
/// /// Adds two numbers.
/// #[tool]
/// async fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// fn main() -> longshore::Result {
///     App::new().tool(add).run()
/// }
/// ```
///
/// # Defaults
///
/// It listens on `127.0.0.1:3000`; see [`Config`] for everything else. Unless [`config`](Self::config) was called,
/// settings come from the environment (`PORT`, `LONGSHORE_...`) and from the file that `LONGSHORE_CONFIG` names.
#[derive(Default)]
pub struct App {
    offers: Offers,
    methods: HashMap<String, Arc<dyn MethodHandler>>,
    layers: Layers,
    proofs: Vec<Arc<dyn Proof>>,
    /// Whether there are, or were, proofs.
    proved: bool,
    state: Option<Arc<dyn State>>,
    identity: Identity,
    /// Other applications, by the names of their endpoints.
    beside: Vec<(String, App)>,
    config: Option<Config>,
    loaded: Option<Loaded>,
    hooks: Vec<Hook>,
    restart: Option<Arc<Notify>>,
}

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tool, a resource or a prompt cannot be offered.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Callers cannot be asked for a proof as it was configured.
    #[error(transparent)]
    Auth(#[from] AuthSetupError),
    /// The rules of who sees and uses what make no sense.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There can be no audit log as it was configured.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A sealing key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The shared state cannot be opened.
    #[error(transparent)]
    State(#[from] OpenStateError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no such toolset, or it cannot work with its settings.
    #[error(transparent)]
    Toolset(#[from] ToolsetError),
    /// An endpoint beside `/mcp` cannot be.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// An upstream server is not what its configuration says.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Another server did not do what it was asked to do.
    #[error("{server}: {problem}")]
    Remote {
        /// Its URL, or its name in the configuration.
        server: String,
        /// Why not.
        problem: String,
    },
    /// Arguments for a tool or a prompt are not what they should be.
    #[error("the arguments cannot be used: {0}")]
    Arguments(String),
    /// Other servers or descriptions are configured, and none of them has anything to offer.
    #[error("nothing can be offered: {0}")]
    NothingOffered(Refused),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The socket in the file system cannot be listened on.
    #[error("cannot listen on {}", path.display())]
    BindFile {
        /// Which one.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The system refused something.
    #[error("the system refused what the server needs")]
    Io(#[from] io::Error),
}

/// What `main` returns: an error is printed with all its causes, and the exit code is 1.
pub type Result<T = (), E = MainError> = std::result::Result<T, E>;

/// An error as `main` shows it to a person.
pub struct MainError(AppError);

impl From<AppError> for MainError {
    fn from(error: AppError) -> Self {
        Self(error)
    }
}

impl fmt::Debug for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = std::error::Error::source(&self.0);
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        match self.0.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl AppError {
    /// What to do about it, where the error's own words do not say so.
    fn advice(&self) -> Option<&'static str> {
        let source = match self {
            Self::Bind { source, .. } => source,
            Self::BindFile { .. } => {
                return Some(
                    "name another path with http.unix_socket (LONGSHORE_HTTP__UNIX_SOCKET), in a folder that this user may write",
                );
            }
            Self::Config(ConfigError::Read { .. }) => {
                return Some("name one that can be read with --config or LONGSHORE_CONFIG");
            }
            _ => return None,
        };
        match source.kind() {
            io::ErrorKind::AddrInUse => Some(
                "another program has this port: stop it, or choose another with --port or LONGSHORE_PORT (0 takes one that is free)",
            ),
            io::ErrorKind::AddrNotAvailable => Some(
                "this machine has no such address: choose another with --host or LONGSHORE_HOST (0.0.0.0 is all it has)",
            ),
            io::ErrorKind::PermissionDenied => Some(
                "ports below 1024 are for privileged processes: choose another with --port or LONGSHORE_PORT",
            ),
            _ => None,
        }
    }
}

impl App {
    /// A server without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool: a function with `#[tool]`, or anything else that is a [`Tool`].
    #[must_use]
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.offers.tools.push(tool.into_tool());
        self
    }

    /// Adds several tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.offers.tools.extend(tools);
        self
    }

    /// Adds a resource, or a template of resources: a function with `#[resource]`, or anything else that is a
    /// [`Resource`](crate::Resource).
    #[must_use]
    pub fn resource(mut self, resource: impl IntoResource) -> Self {
        self.offers.resources.push(resource.into_resource());
        self
    }

    /// Adds a template of resources that is no function with `#[resource]`.
    #[must_use]
    pub fn resource_template(self, template: impl ResourceTemplate) -> Self {
        self.resource(Arc::new(template) as Arc<dyn ResourceTemplate>)
    }

    /// Adds a prompt: a function with `#[prompt]`, or anything else that is a [`Prompt`](crate::catalog::Prompt).
    #[must_use]
    pub fn prompt(mut self, prompt: impl IntoPrompt) -> Self {
        self.offers.prompts.push(prompt.into_prompt());
        self
    }

    /// Adds a skill: instructions for a model, with the files that belong to them.
    #[must_use]
    pub fn skill(mut self, skill: Skill) -> Self {
        self.offers.skills.push(skill);
        self
    }

    /// Announces an extension of the protocol, such as `com.example/billing`, with its settings: an object, `{}` if
    /// there are none. Clients find it among the capabilities, in `initialize` and in `server/discover`. What it
    /// consists of is [`method`](Self::method)s, or tools and resources.
    ///
    /// Those that Longshore knows announce themselves: MCP Apps with the first tool that has a [`View`](crate::View),
    /// skills with the first [`skill`](Self::skill).
    ///
    /// ```
    /// use longshore::App;
    /// use serde_json::json;
    ///
    /// let app = App::new().extension("com.example/billing", json!({"currencies": ["EUR"]}));
    /// ```
    #[must_use]
    pub fn extension(mut self, name: impl Into<String>, settings: Value) -> Self {
        self.offers.extensions.push((name.into(), settings));
        self
    }

    /// Says who the server is to its clients: a name for programs, and a version. `server.name` and
    /// `server.version` in the configuration outdo it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.identity.name = Some((name.into(), version.into()));
        self
    }

    /// Says what the model should know before it uses the tools. `server.instructions` in the configuration
    /// outdoes it.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.identity.instructions = Some(text.into());
        self
    }

    /// Answers a further method, in every revision.
    ///
    /// The specification's own methods cannot be replaced.
    #[must_use]
    pub fn method(mut self, name: impl Into<String>, handler: impl MethodHandler) -> Self {
        self.methods.insert(name.into(), Arc::new(handler));
        self
    }

    /// Puts a `tower` layer around everything that is served over HTTP. The first one added is outermost; all are
    /// inside of the check of `Host` and `Origin`, and see requests before anything else does.
    ///
    /// ```
    /// use http::{HeaderName, HeaderValue};
    /// use longshore::App;
    /// use tower_http::set_header::SetResponseHeaderLayer;
    ///
    /// let name = HeaderName::from_static("x-served-by");
    /// let value = HeaderValue::from_static("longshore");
    /// let app = App::new().layer(SetResponseHeaderLayer::overriding(name, value));
    /// ```
    #[must_use]
    pub fn layer<L, B, E>(mut self, layer: L) -> Self
    where
        L: Layer<McpService> + Send + Sync + 'static,
        L::Service:
            Service<Request<Body>, Response = Response<B>, Error = E> + Clone + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
        E: Into<BodyError> + 'static,
    {
        self.layers.push(layer);
        self
    }

    /// Takes over what another application offers, once and for all: tools and prompts under names with a prefix,
    /// resources under their own URIs, skills and extensions. Its settings, proofs, layers and methods are not taken over.
    ///
    /// ```
    /// use longshore::{App, tool};
    ///
    /// /// Adds two numbers.
    /// #[tool]
    /// async fn add(a: i64, b: i64) -> i64 {
    ///     a + b
    /// }
    ///
    /// // Offered as `math_add`.
    /// let app = App::new().import("math_", App::new().tool(add));
    /// ```
    #[must_use]
    pub fn import(mut self, prefix: impl AsRef<str>, other: Self) -> Self {
        self.offers.take(prefix.as_ref(), other.offers);
        self
    }

    /// Offers what a [`Source`] offers, under names with a prefix. It is asked at start, and again whenever it says that
    /// something has changed; clients are told.
    #[must_use]
    pub fn mount(mut self, prefix: impl Into<String>, source: impl Source) -> Self {
        source.watch(self.offers.changed.clone());
        self.offers.mounted.push((prefix.into(), Arc::new(source)));
        self
    }

    /// Serves what another application offers at `/mcp/` and a name, beside `/mcp`: an endpoint with sessions, lists and
    /// tasks of its own. Of the other application only what it offers counts, its name and its instructions; settings,
    /// proofs and layers are this one's. `mounts` in the configuration does the same with parts of what this one offers.
    ///
    /// ```
    /// use longshore::{App, tool};
    ///
    /// /// Adds two numbers.
    /// #[tool]
    /// async fn add(a: i64, b: i64) -> i64 {
    ///     a + b
    /// }
    ///
    /// // At /mcp/arithmetic.
    /// let app = App::new().beside("arithmetic", App::new().tool(add));
    /// ```
    #[must_use]
    pub fn beside(mut self, name: impl Into<String>, other: Self) -> Self {
        self.beside.push((name.into(), other));
        self
    }

    /// What tells clients that a resource or a list has changed.
    pub fn announcer(&self) -> Announcer {
        self.offers.announcer.clone()
    }

    /// Asks callers for a proof of the application's own. Those added first are asked first, and all of them before
    /// those that are configured. Once there is one, who shows nothing is refused; unless `auth.anonymous` says who that
    /// is.
    #[must_use]
    pub fn authenticator(mut self, proof: impl Proof) -> Self {
        self.proofs.push(Arc::new(proof));
        self.proved = true;
        self
    }

    /// Keeps what replicas share in this store, instead of in memory.
    ///
    /// Servers that share a store and `seal.keys` are replicas of one another.
    #[must_use]
    pub fn state(mut self, state: Arc<dyn State>) -> Self {
        self.state = Some(state);
        self
    }

    /// Answers a further path over HTTP, with every method. Whoever asks has passed the same checks as at `/mcp`: `Host`,
    /// `Origin`, size, and the proof of who they are if one is asked for; who that is, is among the request's extensions as
    /// an `Arc<Principal>`.
    ///
    /// The server's own paths cannot be replaced. A handler that panics or is slow concerns its own request alone.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use longshore::App;
    /// use longshore::net::Body;
    ///
    /// let app = App::new().route("/hello", |request: Request<Bytes>| async move {
    ///     Response::new(Body::from(format!("hello, {}", request.method())))
    /// });
    /// ```
    #[must_use]
    pub fn route(mut self, path: impl Into<String>, handler: impl RouteHandler) -> Self {
        self.layers.answer(path.into(), Arc::new(handler));
        self
    }

    /// Uses these settings instead of those of the environment. They stay as they are.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Uses settings that were read, and takes on what changes in their files while the server runs. [`config`] outdoes
    /// them.
    ///
    /// [`config`]: Self::config
    #[must_use]
    pub fn loaded(mut self, loaded: Loaded) -> Self {
        self.loaded = Some(loaded);
        self
    }

    /// Adds somebody who takes on changed settings while the server runs.
    pub(crate) fn on_reload(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Tells when settings have changed that take a new start.
    pub(crate) fn restart_wanted(mut self, wanted: Arc<Notify>) -> Self {
        self.restart = Some(wanted);
        self
    }

    /// Serves until the process is told to stop. This is a whole `main`.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with tools or settings, or an address that is taken.
    pub fn run(self) -> Result {
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
            Box::pin(bound.serve_until(stop_signal(signals))).await
        });
        runtime.shutdown_background();
        Ok(served?)
    }

    /// Like [`bind`](Self::bind), which may have to wait for others, but not longer than until the process is told to
    /// stop; then there is nothing to serve.
    pub(crate) async fn bind_unless_stopped(
        self,
        mut signals: Signals,
    ) -> std::result::Result<(Signals, Option<Bound>), AppError> {
        // The first process of a container is not ended by a signal that it does not listen for.
        let binding = tokio::task::spawn_blocking(|| self.bind());
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
    pub fn bind(mut self) -> std::result::Result<Bound, AppError> {
        let (config, loaded) = self.take_config()?;
        let layers = std::mem::take(&mut self.layers);
        let proofs = std::mem::take(&mut self.proofs);
        let mut hooks = std::mem::take(&mut self.hooks);
        let restart = self.restart.take();
        let proved = self.proved || config.auth.proves_anything();
        let identity = self.identity.clone();
        self.offers.reach(&config)?;
        let offers = self.offers.clone();
        let upstreams = offers.upstreams.clone();
        let beside = std::mem::take(&mut self.beside);
        let mount_places = mounts::places(&config, &beside)?;
        let place = Place {
            mounts: &mount_places,
            name: config.server.title.as_ref().unwrap_or(&config.server.name),
            public_url: config.http.public_url.as_deref(),
            trusted: &config.http.trusted_proxies,
            asks_for_certificates: config.http.tls.client_authorities.is_some(),
        };
        let auth = Authentication::new(&config.auth, place, proofs)?;
        warn_of_nobody(&config.policy, &auth);
        let is_read = self.reads_metrics(&config);
        let probe = Probe::real();
        let service = (config.server.name.as_str(), config.server.version.as_str());
        let (telemetry, export) = Telemetry::start(&config.telemetry, is_read, &probe, service)?;
        let Built {
            server,
            gathered,
            parts,
        } = self.build(&config, telemetry)?;
        let whole = server.generation();
        let mounts = mounts::build(&config, &parts, &offers, &whole.catalog, beside)?;
        drop(whole);
        let endpoints = mounts::endpoints(&mounts);
        hooks.push(keys_hook(auth.keys()));
        let served = (config.clone(), gathered);
        let composer = Composer::new(&server, identity, offers, proved, served, mounts);
        hooks.push(composer.hook());
        hooks.push(limits_hook(&server));
        let reloader =
            loaded.map(|loaded| Reloader::new(loaded, hooks, restart, server.telemetry()));
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
        Ok(Bound {
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

    /// Goes as far as serving would, but for the address; returns how many tools there are.
    #[cfg(feature = "cli")]
    pub(crate) fn check(mut self) -> std::result::Result<usize, AppError> {
        let (config, _) = self.take_config()?;
        let mounts = mounts::places(&config, &self.beside)?;
        let place = Place {
            name: &config.server.name,
            public_url: config.http.public_url.as_deref(),
            trusted: &config.http.trusted_proxies,
            mounts: &mounts,
            asks_for_certificates: config.http.tls.client_authorities.is_some(),
        };
        let auth = Authentication::new(&config.auth, place, std::mem::take(&mut self.proofs))?;
        warn_of_nobody(&config.policy, &auth);
        Tls::load(&config.http.tls)?;
        Ok(self.config(config).server()?.tool_count())
    }

    pub(crate) fn server(mut self) -> std::result::Result<Arc<Server>, AppError> {
        let (config, _) = self.take_config()?;
        self.offers.reach(&config)?;
        let telemetry = Telemetry::of(&config.telemetry, self.reads_metrics(&config));
        Ok(self.build(&config, telemetry)?.server)
    }

    /// Whether somebody can look at what is counted.
    fn reads_metrics(&self, config: &Config) -> bool {
        config.http.admin.port.is_some() || self.proved || config.auth.proves_anything()
    }

    fn take_config(&mut self) -> std::result::Result<(Config, Option<Loaded>), AppError> {
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
        self.identity.apply(&mut config);
        Ok((config, loaded))
    }

    fn build(self, config: &Config, telemetry: Telemetry) -> std::result::Result<Built, AppError> {
        tell_state(&telemetry);
        let gathered = self.offers.gather(config)?;
        let catalog = self.offers.catalog(gathered.clone())?;
        tell_of_refused(&catalog)?;
        check_verbs(&config.server, &catalog)?;
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        let proved = self.proved || config.auth.proves_anything();
        if config.transport == Transport::Http
            && !config.http.host.is_loopback()
            && config.http.unix_socket.is_none()
        {
            warn_in_public(&config.http, proved, keys.is_shared());
        }
        let limits = Arc::new(Limits::new(&config.limits, &telemetry.metrics));
        let limited = config.limits.tools.keys();
        for tool in limited.filter(|tool| catalog.tool(tool).is_none()) {
            tracing::warn!(
                setting = %format_args!("limits.tools.{tool}"),
                "there is no such tool: the limit applies to nothing"
            );
        }
        let admission = Admission {
            policy: policy_for(&config.policy, &catalog)?,
            proved,
        };
        let is_shared = self.state.is_some() || config.state.is_shared();
        let store = match self.state {
            Some(store) => store,
            None => crate::state::open(&config.state)?,
        };
        // Others may write to a store that is shared. With a key that nobody else has, nobody else could read it.
        let store = if is_shared && keys.is_shared() {
            Arc::new(SealedState::new(store, Arc::clone(&keys)))
        } else {
            store
        };
        let within = Duration::from_millis(config.state.timeout_ms);
        let shared = Shared {
            state: SharedState::new(store, within),
            is_shared,
            announcer: self.offers.announcer,
            mount: None,
        };
        let audit = Audit::start(&config.audit, &telemetry)?;
        let parts = Parts {
            audit: audit.clone(),
            keys: Arc::clone(&keys),
            limits: Arc::clone(&limits),
            state: shared.state.clone(),
            is_shared,
            methods: self.methods.clone(),
            telemetry: telemetry.clone(),
            proved,
        };
        if let Some(upstreams) = &self.offers.upstreams {
            backends::watch(upstreams, &telemetry);
        }
        let server = Server::new(
            config.server.clone(),
            keys,
            shared,
            catalog,
            self.methods,
            telemetry,
            admission,
            limits,
            audit,
        );
        Ok(Built {
            server: Arc::new(server),
            gathered,
            parts,
        })
    }
}

/// A server, and what others beside it are built from.
struct Built {
    server: Arc<Server>,
    gathered: Gathered,
    parts: Parts,
}

/// Where tools are found by a search, no tool has the name of one that searches.
fn check_verbs(config: &ServerConfig, catalog: &Catalog) -> std::result::Result<(), CatalogError> {
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

/// Holds callers to changed limits.
fn limits_hook(server: &Arc<Server>) -> Hook {
    let server = Arc::clone(server);
    Box::new(move |config| {
        let (server, limits) = (Arc::clone(&server), config.limits.clone());
        Ok(Box::new(move || server.limits.take_on(&limits)))
    })
}

/// Lets in those whose keys a changed configuration has, and nobody else.
fn keys_hook(keys: Option<Arc<ApiKeys>>) -> Hook {
    Box::new(move |config| match keys.clone() {
        Some(keys) => {
            let changed = ApiKeys::new(&config.auth)?;
            Ok(Box::new(move || keys.take_on(changed)))
        }
        None => {
            let are_wanted = !config.auth.api_keys.is_empty();
            Ok(Box::new(move || {
                if are_wanted {
                    tracing::warn!(
                        setting = "auth.api_keys",
                        "callers are asked for keys from the next start on, since they were not asked until now"
                    );
                }
            }))
        }
    })
}

/// The policy, if there is any, with each name in it one of something.
fn policy_for(
    config: &PolicyConfig,
    catalog: &Catalog,
) -> std::result::Result<Option<Policy>, PolicyError> {
    let policy = Policy::new(config)?;
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
    metrics.read(&DRAINING, &[], {
        let life = Arc::clone(life);
        move || f64::from(u8::from(life.is_draining()))
    });
    metrics.read(&GENERATION, &[], {
        let life = Arc::clone(life);
        move || life.generation() as f64
    });
}

/// Says in the log which rules are for holders of keys that there are not: keys may come later, and mistakes look the same.
fn warn_of_nobody(policy: &PolicyConfig, auth: &Authentication) {
    for (at, rule) in policy.rules.iter().enumerate() {
        for principal in &rule.principals {
            let is_plain = !principal.contains(['*', '?', '[', '{']);
            if is_plain && principal.starts_with("key:") && auth.holder(principal).is_none() {
                tracing::warn!(
                    setting = %format_args!("policy.rules[{at}].principals"),
                    principal,
                    "nobody has a key of that name: the rule is for nobody, unless one is added to auth.api_keys"
                );
            }
        }
    }
}

/// Says what a server that others can reach does unless it is configured.
fn warn_in_public(http: &HttpConfig, proved: bool, keys_are_shared: bool) {
    if !proved {
        tracing::warn!(
            setting = "auth.api_keys",
            "nothing proves who calls: everybody who reaches this address may use the tools"
        );
    }
    if http.allowed_hosts.is_empty() && http.public_url.is_none() {
        tracing::warn!(
            setting = "http.allowed_hosts",
            "requests for any host are answered; pages of web origins may call only if http.allowed_origins has them"
        );
    }
    if !keys_are_shared {
        tracing::warn!(
            setting = "seal.keys",
            "sessions are sealed with a key made at start: other replicas, and this one after a restart, will not accept them"
        );
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self
            .offers
            .tools
            .iter()
            .map(|tool| tool.definition().name())
            .collect();
        f.debug_struct("App")
            .field("tools", &tools)
            .finish_non_exhaustive()
    }
}

/// A server that has its address and waits to serve.
#[derive(Debug)]
pub struct Bound {
    server: Arc<Server>,
    mounts: Mounts,
    composer: Arc<Composer>,
    upstreams: Option<Arc<Upstreams>>,
    listener: Option<Listener>,
    admin: Option<AdminListener>,
    reloader: Option<Reloader>,
    budget: Budget,
    export: Export,
    layers: Layers,
    auth: Authentication,
    http: HttpConfig,
    stdio: StdioConfig,
}

/// How long programs that were started have to end when the server does.
const CHILDREN: Duration = Duration::from_millis(1500);

impl Bound {
    /// Where it listens; `None` over standard input and output, and on a socket in the file system.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(Listener::address)
    }

    /// The socket in the file system that it listens on, if that is where.
    pub fn unix_socket(&self) -> Option<&Path> {
        let is_file = self.listener.is_some() && self.address().is_none();
        self.http.unix_socket.as_deref().filter(|_| is_file)
    }

    /// `https` if TLS is spoken, else `http`.
    pub(crate) fn scheme(&self) -> &'static str {
        self.listener.as_ref().map_or("http", Listener::scheme)
    }

    /// Where operators find `/metrics` and the health pages, if they have a port of their own.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminListener::address)
    }

    /// What is counted.
    #[cfg(feature = "cli")]
    pub(crate) fn metrics(&self) -> &crate::telemetry::Metrics {
        &self.server.telemetry().metrics
    }

    /// How many tools it serves.
    pub fn tool_count(&self) -> usize {
        self.server.tool_count()
    }

    /// Says in the log where the server is and what it serves.
    pub(crate) fn announce(&self) {
        let tools = self.tool_count();
        match self.address() {
            Some(address) => {
                let scheme = self.scheme();
                tracing::info!(url = %format_args!("{scheme}://{address}/mcp"), tools, "serving");
            }
            None => match self.unix_socket() {
                Some(path) => tracing::info!(path = %path.display(), tools, "serving"),
                None => tracing::info!(tools, "serving over standard input and output"),
            },
        }
    }

    /// Serves until the process is told to stop (SIGINT, SIGTERM) or its standard input ends. A second signal ends
    /// it at once.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or standard streams that cannot be used.
    pub async fn serve(self) -> std::result::Result<(), AppError> {
        Box::pin(self.serve_until(stop_signal(Signals::listen()))).await
    }

    /// Serves until a future is done; then lets calls that have begun come to their end, for as long as the settings
    /// under `drain` say.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or standard streams that cannot be used.
    pub async fn serve_until(
        self,
        stop: impl Future<Output = ()>,
    ) -> std::result::Result<(), AppError> {
        let server = Arc::clone(&self.server);
        let operators = async {
            match &self.admin {
                Some(admin) => admin.serve(server).await,
                None => std::future::pending().await,
            }
        };
        let reloading = async {
            match self.reloader {
                // It holds whole configurations, for the whole time.
                Some(reloader) => Box::pin(reloader.run()).await,
                None => std::future::pending().await,
            }
        };
        if let Some(upstreams) = &self.upstreams {
            let composer = Arc::downgrade(&self.composer);
            upstreams.keep_up(move || {
                if let Some(composer) = composer.upgrade() {
                    composer.again();
                }
            });
        }
        let sources = Arc::clone(&self.composer).keep_up();
        let audit = self.server.audit.clone();
        if let Some(audit) = &audit {
            audit.begin();
        }
        let reopening = async {
            match &audit {
                Some(audit) => audit.keep_reopening().await,
                None => std::future::pending().await,
            }
        };
        let awaited = self.auth.awaited(&self.server.telemetry().life);
        let clients = async {
            match self.listener {
                Some(listener) => {
                    let (http, layers) = (self.http, self.layers);
                    let gate = Arc::clone(&self.auth.gate);
                    let servers = (self.server, self.mounts);
                    let serving = listener.serve(servers, gate, http, layers, stop, self.budget);
                    tokio::select! {
                        served = serving => served,
                        never = self.auth.keep_up(awaited.as_deref()) => match never {},
                    }
                }
                None => stdio::serve(self.server, self.stdio, stop, self.budget.calls).await,
            }
        };
        let served = tokio::select! {
            served = clients => served,
            () = operators => Ok(()),
            () = orphans::reap() => Ok(()),
            never = reloading => match never {},
            never = sources => match never {},
            never = reopening => match never {},
        };
        tokio::join!(
            async {
                if let Some(upstreams) = &self.upstreams {
                    upstreams.stop(CHILDREN).await;
                }
            },
            async {
                let mut within = self.budget.flush;
                // Records may go to the collector too.
                if let Some(audit) = &audit {
                    within /= 2;
                    audit.flush(within).await;
                }
                self.export.flush(within).await;
            }
        );
        Ok(served?)
    }
}

/// Waits for the first signal to stop, and has the second one end the process.
pub(crate) async fn stop_signal(mut signals: Signals) {
    let name = signals.next().await;
    tracing::info!(
        signal = name,
        "stopping: calls that have begun are finished; a second signal stops at once"
    );
    tokio::spawn(async move {
        let name = signals.next().await;
        std::process::exit(if name == "SIGINT" { 130 } else { 143 });
    });
}

/// The signals to stop, listened for without a gap: one that comes while nobody waits is heard by the next who does.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self {
            terminate: signal(SignalKind::terminate()).ok(),
            interrupt: signal(SignalKind::interrupt()).ok(),
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Self {
        Self {}
    }

    #[cfg(unix)]
    async fn next(&mut self) -> &'static str {
        async fn heard(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = heard(&mut self.terminate) => "SIGTERM",
            () = heard(&mut self.interrupt) => "SIGINT",
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> &'static str {
        let _ = tokio::signal::ctrl_c().await;
        "SIGINT"
    }
}
