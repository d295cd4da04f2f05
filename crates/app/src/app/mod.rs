//! The builder: tools, resources, prompts and settings in, a running server out.

#[cfg(all(feature = "oauth", feature = "sources"))]
mod accounts;
#[cfg(feature = "sources")]
mod assertions;
mod server_card;
mod admission;
#[cfg(feature = "oauth")]
mod authorization;
#[cfg_attr(not(feature = "sources"), path = "upstream_metrics/absent.rs")]
mod upstream_metrics;
mod build;
mod catalog_builder;
#[cfg_attr(not(feature = "sources"), path = "configured/absent.rs")]
mod configured;
#[cfg(all(feature = "oauth", feature = "sources"))]
mod connect;
mod dry_run;
mod endpoints;
mod error;
mod hooks;
mod items;
mod lifecycle;
mod memory;
mod methods;
mod mounted;
#[cfg(feature = "cli")]
mod offering;
mod origins;
mod policy;
mod provide;
mod reload;
mod responses;
mod run;
mod serve;
mod signals;
mod state;
mod supervisor;
mod warnings;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use serde_json::Value;
use tokio::sync::Notify;
use tower::{Layer, Service};

use crate::auth::AuthMethod;
use crate::catalog::{
    Announcer, IntoPrompt, IntoResource, IntoTool, ResourceTemplate, Skill, Source, Tool, Toolset,
};
use crate::config::{Config, Loaded};
use crate::net::{Body, BodyError};
use crate::server::MethodHandler;
#[cfg(feature = "sources")]
use crate::source::ArtifactStore;
use crate::state::State;
use crate::transport::http::{Layers, McpService, RouteHandler};
pub use error::{AppError, EndpointError, MainError, Result};
pub use hooks::Hook;
use items::AppItems;
use lifecycle::Lifecycle;
#[cfg(feature = "cli")]
pub use offering::Offering;
pub use policy::PolicyTester;
use provide::own;
pub use serve::BoundServer;
#[cfg(feature = "cli")]
pub use signals::{Signals, stop_signal, survive_hangups};
#[cfg(feature = "cli")]
pub use state::tokens;

/// Builder of a server.
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
/// # Log
///
/// The server logs through `tracing`: its address, settings that leave it open, invalid tools. To see the log, set a
/// subscriber before [`run`](Self::run), such as `tracing_subscriber::fmt::init()`. Without one, `run` prints the address
/// to standard error, and nothing else.
///
/// # Within a runtime
///
/// [`run`](Self::run) creates a runtime. In an existing one, as under `#[tokio::main]`, call [`serve`](Self::serve), or
/// bind the server and then serve it, which gives the address in between:
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
/// #[tokio::main]
/// async fn main() -> longshore::Result {
///     let server = App::new().tool(add).bind().await?;
///     println!("{:?}", server.address());
///     Ok(server.serve().await?)
/// }
/// ```
///
/// # Runtimes
///
/// - The **control runtime** is the one that [`run`](Self::run) creates, or the one in which [`serve`](Self::serve) and
///   [`bind`](Self::bind) are called. It accepts connections, and it runs the functions of [`on_start`](Self::on_start)
///   and [`on_stop`](Self::on_stop), the tasks of [`background`](Self::background), connections to upstream servers and
///   the telemetry export. Over standard input and output it also runs the calls.
/// - **Workers** are threads with a single-threaded runtime each, one for each core (`http.workers`). A call runs on the
///   worker of its connection. What a tool spawns with `tokio::spawn` runs there too, and ends with the server.
/// - A **pool** of connections can be created before the server, or in `on_start`, and be shared by
///   [`provide`](Self::provide). It works on all workers. Tasks that it spawns run where it spawns them: on the control
///   runtime for connections that it opens at once, on a worker for those that a call opens.
/// - **Blocking code** delays all other calls of its worker, and on the control runtime the accepting of connections. A tool
///   that blocks is a plain `fn` with `#[tool(blocking)]`, which runs on threads of its own (`http.blocking_threads`).
///   Elsewhere, use `tokio::task::spawn_blocking`.
///
/// # Defaults
///
/// It listens on `127.0.0.1:3000`; see [`Config`] for everything else. Unless [`config`](Self::config) was called,
/// settings come from the environment (`PORT`, `LONGSHORE_...`) and from the file that `LONGSHORE_CONFIG` names.
#[derive(Default)]
pub struct App {
    offers: AppItems,
    methods: Vec<methods::Added>,
    layers: Layers,
    proofs: Vec<Arc<dyn AuthMethod>>,
    /// Items of applications that are served at endpoints of their own, by name.
    beside: Vec<(String, AppItems)>,
    config: Option<Arc<Config>>,
    loaded: Option<Arc<Loaded>>,
    hooks: Vec<Hook>,
    restart: Option<Arc<Notify>>,
    lifecycle: Lifecycle,
}

impl App {
    /// Creates a server without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool: a function with `#[tool]`, or anything else that is a [`Tool`].
    #[must_use]
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.offers.tools.push(own(tool.into_tool()));
        self
    }

    /// Adds several tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.offers.tools.extend(tools.into_iter().map(own));
        self
    }

    /// Adds an object whose methods are tools, resources and prompts: one with `#[tools]` on its `impl`. Several objects can be
    /// added.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use longshore::{App, tools};
    ///
    /// struct Counter(AtomicU64);
    ///
    /// #[tools]
    /// impl Counter {
    ///     /// Adds one, and returns the sum.
    ///     #[tool]
    ///     async fn count(&self) -> u64 {
    ///         self.0.fetch_add(1, Ordering::Relaxed) + 1
    ///     }
    /// }
    ///
    /// let app = App::new().toolset(Counter(AtomicU64::new(0)));
    /// ```
    #[must_use]
    pub fn toolset(mut self, toolset: impl Toolset) -> Self {
        let offered = Arc::new(toolset).offered();
        self.offers.tools.extend(offered.tools.into_iter().map(own));
        self.offers
            .resources
            .extend(offered.resources.into_iter().map(own));
        self.offers
            .prompts
            .extend(offered.prompts.into_iter().map(own));
        self
    }

    /// Shares a value with the tools, resources and prompts of this application, as parameters `#[state] value: &T`. A later
    /// value of the same type replaces an earlier one, so that a test can replace it.
    ///
    /// A missing value is an error at start. Values are bound at start, so a call needs no lock and no lookup. For a shared
    /// pointer such as `Arc<dyn Store>`, write that type: `#[state] store: &Arc<dyn Store>`.
    ///
    /// ```
    /// use longshore::{App, tool};
    /// use serde_json::json;
    ///
    /// struct Prices(Vec<(&'static str, u32)>);
    ///
    /// /// Returns the price of an article, in cents.
    /// #[tool]
    /// async fn price(#[state] prices: &Prices, article: String) -> Result<u32, String> {
    ///     let found = prices.0.iter().find(|(name, _)| *name == article);
    ///     found.map(|(_, cents)| *cents).ok_or_else(|| format!("there is no {article}"))
    /// }
    ///
    /// fn app() -> App {
    ///     App::new().provide(Prices(vec![("lamp", 4900)])).tool(price)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let server = app().provide(Prices(vec![("lamp", 1)])).harness()?;
    /// let result = server.call("price", json!({"article": "lamp"})).await?;
    /// assert_eq!(result.text(), "1");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.offers.provided.insert(value);
        self
    }

    /// Adds a resource, or a template of resources: a function with `#[resource]`, or anything else that is a
    /// [`Resource`](crate::catalog::Resource).
    #[must_use]
    pub fn resource(mut self, resource: impl IntoResource) -> Self {
        self.offers.resources.push(own(resource.into_resource()));
        self
    }

    /// Adds a resource template that is not a function with `#[resource]`.
    #[must_use]
    pub fn resource_template(self, template: impl ResourceTemplate) -> Self {
        self.resource(Arc::new(template) as Arc<dyn ResourceTemplate>)
    }

    /// Adds a prompt: a function with `#[prompt]`, or anything else that is a [`Prompt`](crate::catalog::Prompt).
    #[must_use]
    pub fn prompt(mut self, prompt: impl IntoPrompt) -> Self {
        self.offers.prompts.push(own(prompt.into_prompt()));
        self
    }

    /// Adds a skill: instructions for a model, with the files that belong to them.
    #[must_use]
    pub fn skill(mut self, skill: Skill) -> Self {
        self.offers.skills.push(skill);
        self
    }

    /// Announces a protocol extension, such as `com.example/billing`, with its settings: an object, `{}` if there are none.
    /// Clients find it among the capabilities, in `initialize` and in `server/discover`. Implement it by
    /// [`method`](Self::method), or by tools and resources.
    ///
    /// Longshore announces its own extensions: MCP Apps if a tool has a [`View`](crate::catalog::View), skills if there is a
    /// [`skill`](Self::skill).
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

    /// Sets the name (for programs) and the version that clients see. `server.name` and `server.version` of the configuration
    /// override them.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.offers.identity.name = Some((name.into(), version.into()));
        self
    }

    /// Sets the instructions for the model, which it reads before it uses the tools. `server.instructions` of the configuration
    /// overrides them.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.offers.identity.instructions = Some(text.into());
        self
    }

    /// Adds a custom method, for every protocol version.
    ///
    /// Methods of the specification cannot be replaced, because that would bypass argument checks, access rules, limits, audit
    /// and tasks. Such a name, or a name that is used twice, is an error at start. Use a prefix of your own.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use longshore::protocol::ErrorObject;
    /// use longshore::{App, CallContext};
    /// use serde_json::{Value, json};
    ///
    /// async fn load(_context: Arc<CallContext>, _params: Value) -> Result<Value, ErrorObject> {
    ///     Ok(json!({"load": 0.25}))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let server = App::new().method("com.example/load", load).harness()?;
    /// assert_eq!(server.request("com.example/load", json!({})).await.expect("a result")["load"], 0.25);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn method(mut self, name: impl Into<String>, handler: impl MethodHandler) -> Self {
        self.methods.push((name.into(), Arc::new(handler)));
        self
    }

    /// Adds a `tower` layer around all HTTP requests. The first one added is the outermost. Layers run after the checks of
    /// `Host` and `Origin`, and before everything else.
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

    /// Adds the items of another application: tools and prompts under names with a prefix, resources under their own URIs,
    /// sources, skills and extensions, with its hooks and background tasks. They keep the values of its
    /// [`provide`](Self::provide); a value that it lacks is taken from this application. Its settings, stores, authentication
    /// methods, layers, routes, endpoints and methods are not added.
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
        self.offers.import(prefix.as_ref(), other.offers);
        self.lifecycle.append(other.lifecycle);
        self
    }

    /// Adds the items of a [`Source`], under names with a prefix. The source is loaded at start, and again whenever it reports
    /// a change; clients are notified.
    #[must_use]
    pub fn source(mut self, prefix: impl Into<String>, source: impl Source) -> Self {
        self.offers.mount(prefix.into(), source);
        self
    }

    /// Serves the items of another application at `/mcp/NAME`, an endpoint with separate sessions, lists and tasks. Its items,
    /// hooks, name and instructions are used; all else, such as settings, authentication methods, layers and methods, is that
    /// of this application. `endpoints` of the configuration does the same with a part of this application's items.
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
    /// let app = App::new().endpoint("arithmetic", App::new().tool(add));
    /// ```
    #[must_use]
    pub fn endpoint(mut self, name: impl Into<String>, other: Self) -> Self {
        self.lifecycle.append(other.lifecycle);
        self.beside.push((name.into(), other.offers));
        self
    }

    /// Returns the handle that notifies clients of changed resources and lists.
    pub fn announcer(&self) -> Announcer {
        self.offers.announcer.clone()
    }

    /// Adds an authentication method of the application. Methods run in the order in which they were added, before the configured
    /// ones. With at least one method, requests without credentials are rejected unless `auth.anonymous` is set.
    #[must_use]
    pub fn auth_method(mut self, proof: impl AuthMethod) -> Self {
        self.proofs.push(Arc::new(proof));
        self
    }

    /// Sets the store that replicas share, instead of memory: for streams of sessions, tasks and subscriptions.
    ///
    /// It is not for values of the application, such as a connection pool: use [`provide`](Self::provide) for those.
    ///
    /// Servers that share a store and `seal.keys` are replicas of one another.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn State>) -> Self {
        self.offers.store = Some(store);
        self
    }

    /// Sets the store for large results of sources and upstreams: those larger than `artifacts.above_bytes` (default 100,000
    /// bytes). Settings of another store (`artifacts.folder`, `artifacts.s3`) are an error then.
    #[cfg(feature = "sources")]
    #[must_use]
    pub fn artifact_store(mut self, store: impl ArtifactStore) -> Self {
        self.offers.configured.artifact_store = Some(Arc::new(store));
        self
    }

    /// Adds an HTTP path of the application, for every method. Requests have passed the same checks as at `/mcp`: `Host`,
    /// `Origin`, size and authentication. The caller is an `Arc<Principal>` in the request's extensions.
    ///
    /// Paths of the server cannot be replaced. A handler that panics or is slow does not affect other requests.
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
        self.layers.add_route(path.into(), Arc::new(handler));
        self
    }

    /// Uses these settings instead of those of the environment. They are not reloaded.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(Arc::new(config));
        self
    }

    /// Uses loaded settings, and reloads their files when they change. [`config`] overrides them.
    ///
    /// [`config`]: Self::config
    #[must_use]
    #[doc(hidden)]
    pub fn loaded(mut self, loaded: Arc<Loaded>) -> Self {
        self.loaded = Some(loaded);
        self
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools = self.offers.tools.iter();
        let tools: Vec<_> = tools.map(|(tool, _)| tool.definition().name()).collect();
        f.debug_struct("App")
            .field("tools", &tools)
            .finish_non_exhaustive()
    }
}
