//! Endpoints beside `/mcp`.

use std::collections::HashMap;
use std::sync::Arc;

use super::admission::check_search_names;
use super::error::{AppError, EndpointError};
use super::items::{AppItems, NamedApp};
use super::mounted::MountedItems;
use crate::audit::Audit;
use crate::auth::{EndpointScopes, Policy, ServerFacts};
use crate::catalog::{Announcer, Catalog};
use crate::config::Config;
use crate::environment::{Probe, instance_name};
use crate::limit::Limits;
use crate::seal::KeyRing;
use crate::server::{
    Admission, EndpointConfig, EndpointFilter, MethodHandler, Server, ServerConfig, ServerContext,
    ServerParts, endpoint_name_problem,
};
use crate::source::Artifacts;
use crate::state::SharedState;
use crate::telemetry::Telemetry;
use crate::transport::http::NamedEndpoints;

/// Parts that all endpoints of a process share.
pub(super) struct SharedParts {
    pub(super) keys: Arc<KeyRing>,
    pub(super) limits: Arc<Limits>,
    pub(super) state: SharedState,
    pub(super) is_shared: bool,
    pub(super) methods: HashMap<String, Arc<dyn MethodHandler>>,
    pub(super) telemetry: Telemetry,
    pub(super) proved: bool,
    pub(super) audit: Option<Arc<Audit>>,
}

impl SharedParts {
    /// Creates the server of an endpoint; the one at `/mcp` has no name.
    pub(super) fn server(
        &self,
        endpoint: Option<&str>,
        config: ServerConfig,
        announcer: Announcer,
        catalog: Catalog,
        policy: Option<Policy>,
    ) -> Arc<Server> {
        let shared = ServerContext {
            state: self.state.clone(),
            is_shared: self.is_shared,
            announcer,
            name: match endpoint {
                None => instance_name(Probe::real()).map(Into::into),
                Some(_) => None,
            },
            endpoint: endpoint.map(Into::into),
        };
        Arc::new(Server::new(ServerParts {
            config,
            keys: Arc::clone(&self.keys),
            shared,
            catalog,
            methods: self.methods.clone(),
            telemetry: self.telemetry.clone(),
            admission: Admission {
                policy,
                proved: self.proved,
            },
            limits: Arc::clone(&self.limits),
            audit: self.audit.clone(),
        }))
    }
}

/// An endpoint beside `/mcp`.
pub(super) struct Endpoint {
    name: Box<str>,
    pub(super) server: Arc<Server>,
    pub(super) announcer: Announcer,
    pub(super) content: Content,
}

/// Items of an endpoint.
pub(super) enum Content {
    Selection(Box<Selection>),
    /// Those of another application.
    App(Box<AppItems>),
}

/// A selection of the items at `/mcp`.
pub(super) struct Selection {
    /// Settings at startup.
    settings: EndpointConfig,
    filter: EndpointFilter,
    /// Store for large results, whose links are readable where there are tools.
    artifacts: Option<Arc<Artifacts>>,
}

fn invalid(name: &str, problem: impl Into<String>) -> AppError {
    AppError::Endpoint(EndpointError::new(name, problem))
}

/// Returns the requirements for callers of each endpoint. `apps` are the endpoints with items of other applications.
pub(super) fn requirements<'a>(
    config: &Config,
    apps: impl IntoIterator<Item = NamedApp<'a>>,
) -> Result<Vec<EndpointScopes>, AppError> {
    let configured = config
        .endpoints
        .iter()
        .map(|(name, endpoint)| EndpointScopes {
            name: name.as_str().into(),
            audience: endpoint.audience.clone(),
            scopes: endpoint.scopes.clone(),
        });
    let own = apps.into_iter().map(|(name, _)| EndpointScopes {
        name: name.into(),
        audience: Vec::new(),
        scopes: Vec::new(),
    });
    let all: Vec<_> = configured.chain(own).collect();
    for (position, place) in all.iter().enumerate() {
        if let Some(problem) = endpoint_name_problem(&place.name) {
            return Err(invalid(&place.name, problem));
        }
        if all[..position].iter().any(|other| other.name == place.name) {
            return Err(invalid(
                &place.name,
                "two endpoints have this name; rename one",
            ));
        }
    }
    Ok(all)
}

/// Returns the properties of the server that its authentication depends on.
pub(super) fn server_facts<'a>(
    config: &'a Config,
    endpoints: &'a [EndpointScopes],
) -> ServerFacts<'a> {
    let http = &config.http;
    ServerFacts {
        endpoints,
        name: config.server.title.as_ref().unwrap_or(&config.server.name),
        public_url: http.public_url.as_deref(),
        trusted: &http.trusted_proxies,
        serves_tls: http.tls.certificate.is_some(),
        asks_for_certificates: http.tls.client_ca.is_some(),
    }
}

/// Builds all endpoints. Returns them, and the items of the mounted sources of each.
pub(super) async fn build(
    config: &Config,
    parts: &SharedParts,
    items: &AppItems,
    whole: &Catalog,
    apps: Vec<(String, AppItems)>,
) -> Result<(Vec<Endpoint>, Vec<Vec<MountedItems>>), AppError> {
    let (mut all, mut all_mounted) = (Vec::new(), Vec::new());
    for (name, settings) in &config.endpoints {
        let content = Content::selection(name, settings, items)?;
        let announcer = Announcer::default();
        // Subscribers at this endpoint also receive what a tool announces about a resource.
        items.announcer.lead(&announcer);
        all.push((name.clone(), announcer, content));
        all_mounted.push(Vec::new());
    }
    for (name, mut other) in apps {
        other.bind()?;
        let announcer = other.announcer.clone();
        for mounted in &other.mounted {
            mounted.source.watch(items.changed.clone());
        }
        all_mounted.push(other.load_mounted(&[]).await?);
        all.push((name, announcer, Content::App(Box::new(other))));
    }
    let each = all.into_iter().zip(&all_mounted);
    let endpoints: Vec<_> = each
        .map(|((name, announcer, content), mounted)| {
            let catalog = content.catalog(whole, mounted)?;
            Endpoint::new(name, announcer, content, config, parts, catalog)
        })
        .collect::<Result<_, _>>()?;
    if !items.leaves_out {
        let catalogs = endpoints.iter().map(|it| (&*it.name, it.server.snapshot()));
        catalogs.for_each(|(name, served)| warn_of_missing(name, &served.catalog, config, whole));
    }
    Ok((endpoints, all_mounted))
}

/// Checks the configured endpoints with their present settings. A running server still has those of its start, and the items of
/// other upstream servers than at the next start if `waits_for_upstreams`.
pub(super) fn check_selections(
    config: &Config,
    items: &AppItems,
    whole: &Catalog,
    waits_for_upstreams: bool,
) -> Result<(), AppError> {
    for (name, settings) in &config.endpoints {
        let content = Content::selection(name, settings, items)?;
        if !waits_for_upstreams {
            check_search_names(&content.config(config), &content.catalog(whole, &[])?)?;
        }
    }
    Ok(())
}

/// Returns the server of each endpoint, by name.
pub(super) fn servers(endpoints: &[Endpoint]) -> NamedEndpoints {
    let each = endpoints.iter();
    each.map(|endpoint| (endpoint.name.clone(), Arc::clone(&endpoint.server)))
        .collect()
}

impl Endpoint {
    fn new(
        name: String,
        announcer: Announcer,
        content: Content,
        config: &Config,
        parts: &SharedParts,
        catalog: Catalog,
    ) -> Result<Self, AppError> {
        let settings = content.config(config);
        check_search_names(&settings, &catalog)?;
        let policy = Policy::new(&config.policy)?;
        let server = parts.server(Some(&name), settings, announcer.clone(), catalog, policy);
        Ok(Self {
            name: name.into(),
            server,
            announcer,
            content,
        })
    }

    /// Asks its mounted sources for their items, of which some are `known`.
    pub(super) async fn load_mounted(
        &self,
        known: &[MountedItems],
    ) -> Result<Vec<MountedItems>, AppError> {
        match &self.content {
            Content::App(items) => items.load_mounted(known).await,
            Content::Selection(_) => Ok(Vec::new()),
        }
    }

    /// Returns its name and identity, if it has the items of another application.
    pub(super) fn app(&self) -> Option<NamedApp<'_>> {
        match &self.content {
            Content::App(items) => Some((&*self.name, &items.identity)),
            Content::Selection(_) => None,
        }
    }
}

/// Warns of an empty endpoint, and of names in its settings that no tool has.
fn warn_of_missing(name: &str, catalog: &Catalog, config: &Config, whole: &Catalog) {
    if catalog.offers_nothing() {
        tracing::warn!(
            setting = %format_args!("endpoints.{name}"),
            "no item matches, so the endpoint is empty"
        );
    } else if let Some(endpoint) = config.endpoints.get(name) {
        let is_plain = |tool: &&String| !tool.contains(['*', '?', '[', '{']);
        let absent = endpoint
            .tools
            .iter()
            .filter(is_plain)
            .filter(|tool| whole.tool(tool).is_none());
        for tool in absent {
            tracing::warn!(
                setting = %format_args!("endpoints.{name}.tools"),
                tool,
                "no tool of that name is offered, unless an upstream server does later"
            );
        }
    }
}

impl Selection {
    fn catalog(&self, whole: &Catalog) -> Result<Catalog, AppError> {
        let resources = self.filter.clone();
        let part = whole.part(
            |name| self.filter.has_tool(name),
            move |uri| resources.has_resource(uri),
            |name| self.filter.has_prompt(name),
        )?;
        let is_there = |artifacts: &Artifacts| {
            let template = artifacts.template();
            part.uris().any(|uri| uri == template)
        };
        Ok(match &self.artifacts {
            Some(artifacts) if !part.is_empty() && !is_there(artifacts) => {
                part.with_resources([artifacts.resource()])?
            }
            _ => part,
        })
    }
}

impl Content {
    fn selection(
        name: &str,
        settings: &EndpointConfig,
        items: &AppItems,
    ) -> Result<Self, AppError> {
        let filter = settings.filter().map_err(|(setting, problem)| {
            let colon = if setting.is_empty() { "" } else { ": " };
            invalid(name, format!("{setting}{colon}{problem}"))
        })?;
        Ok(Self::Selection(Box::new(Selection {
            settings: settings.clone(),
            filter,
            artifacts: items.artifacts.clone(),
        })))
    }

    /// Returns the catalog. `whole` is the one at `/mcp`, `mounted` are the items of the endpoint's own mounted sources.
    pub(super) fn catalog(
        &self,
        whole: &Catalog,
        mounted: &[MountedItems],
    ) -> Result<Catalog, AppError> {
        match self {
            Self::Selection(selection) => selection.catalog(whole),
            Self::App(items) => items.own_catalog(mounted),
        }
    }

    /// Returns the settings of the endpoint's server.
    pub(super) fn config(&self, config: &Config) -> ServerConfig {
        let mut server = config.server.clone();
        match self {
            Self::Selection(selection) => {
                let settings = &selection.settings;
                server.title = settings.title.clone().or(server.title);
                server.search.above = settings.search_above.or(server.search.above);
                server.instructions = settings.instructions.clone().or(server.instructions);
            }
            Self::App(items) => {
                let identity = &items.identity;
                if let Some((name, version)) = &identity.name {
                    // Clients show the title, which is that of the other application, instead of a name.
                    server.title = None;
                    server.name.clone_from(name);
                    server.version.clone_from(version);
                }
                server.instructions.clone_from(&identity.instructions);
            }
        }
        server
    }
}
