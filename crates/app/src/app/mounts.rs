//! Endpoints beside `/mcp`.

use std::collections::HashMap;
use std::sync::Arc;

use super::binding::check_verbs;
use super::compose::{Identity, Offers};
use super::{App, AppError};
use crate::audit::Audit;
use crate::auth::{MountPlace, Policy};
use crate::catalog::{Announcer, Catalog};
use crate::config::Config;
use crate::limit::Limits;
use crate::seal::KeyRing;
use crate::server::{
    Admission, EndpointFilter, MethodHandler, Server, ServerConfig, ServerContext, ServerParts,
    endpoint_name_problem,
};
use crate::state::SharedState;
use crate::telemetry::Telemetry;
use crate::transport::http::Mounts;

/// Why there cannot be an endpoint beside `/mcp`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint /mcp/{name} cannot be: {problem}")]
pub struct EndpointError {
    name: String,
    problem: String,
}

/// What all endpoints of a process have in common.
pub(super) struct Parts {
    pub(super) keys: Arc<KeyRing>,
    pub(super) limits: Arc<Limits>,
    pub(super) state: SharedState,
    pub(super) is_shared: bool,
    pub(super) methods: HashMap<String, Arc<dyn MethodHandler>>,
    pub(super) telemetry: Telemetry,
    pub(super) proved: bool,
    pub(super) audit: Option<Arc<Audit>>,
}

/// An endpoint beside `/mcp`.
pub(super) struct Mount {
    name: Box<str>,
    pub(super) server: Arc<Server>,
    pub(super) announcer: Announcer,
    has: Has,
}

/// What it has to offer.
enum Has {
    /// A part of what is at `/mcp`.
    Part(Box<EndpointFilter>),
    /// What another application offers.
    Own(Box<(Offers, Identity)>),
}

fn refused(name: &str, problem: impl Into<String>) -> AppError {
    AppError::Mount(EndpointError {
        name: name.to_owned(),
        problem: problem.into(),
    })
}

/// What callers have to show at each of them.
pub(super) fn places(
    config: &Config,
    beside: &[(String, App)],
) -> Result<Vec<MountPlace>, AppError> {
    let configured = config.endpoints.iter().map(|(name, mount)| MountPlace {
        name: name.as_str().into(),
        audience: mount.audience.clone(),
        scopes: mount.scopes.clone(),
    });
    let own = beside.iter().map(|(name, _)| MountPlace {
        name: name.as_str().into(),
        audience: Vec::new(),
        scopes: Vec::new(),
    });
    let all: Vec<_> = configured.chain(own).collect();
    for (position, place) in all.iter().enumerate() {
        if let Some(problem) = endpoint_name_problem(&place.name) {
            return Err(refused(&place.name, problem));
        }
        if all[..position].iter().any(|other| other.name == place.name) {
            return Err(refused(
                &place.name,
                "there are two of this name; rename one",
            ));
        }
    }
    Ok(all)
}

/// Builds all of them.
pub(super) fn build(
    config: &Config,
    parts: &Parts,
    offers: &Offers,
    whole: &Catalog,
    beside: Vec<(String, App)>,
) -> Result<Vec<Mount>, AppError> {
    let mut all = Vec::new();
    for (name, mount) in &config.endpoints {
        let chosen = mount.filter().map_err(|(setting, problem)| {
            let colon = if setting.is_empty() { "" } else { ": " };
            refused(name, format!("{setting}{colon}{problem}"))
        })?;
        let announcer = Announcer::default();
        // What a tool says of a resource is for those who see it elsewhere, too.
        offers.announcer.lead(&announcer);
        all.push((name.clone(), announcer, Has::Part(Box::new(chosen))));
    }
    for (name, mut other) in beside {
        other.offers.bind()?;
        let announcer = other.offers.announcer.clone();
        for (_, source) in &other.offers.mounted {
            source.watch(offers.changed.clone());
        }
        let own = Has::Own(Box::new((other.offers, other.identity)));
        all.push((name, announcer, own));
    }
    let mut mounts = Vec::new();
    for (name, announcer, has) in all {
        let catalog = has.offered(whole)?;
        if catalog.offers_nothing() {
            tracing::warn!(
                setting = %format_args!("endpoints.{name}"),
                "nothing that is offered fits: the endpoint is empty"
            );
        } else if let Some(mount) = config.endpoints.get(&name) {
            let is_plain = |tool: &&String| !tool.contains(['*', '?', '[', '{']);
            let absent = mount
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
        let settings = has.config(&name, config);
        check_verbs(&settings, &catalog)?;
        let shared = ServerContext {
            state: parts.state.clone(),
            is_shared: parts.is_shared,
            announcer: announcer.clone(),
            mount: Some(name.as_str().into()),
        };
        let admission = Admission {
            policy: Policy::new(&config.policy)?,
            proved: parts.proved,
        };
        let server = Server::new(ServerParts {
            config: settings,
            keys: Arc::clone(&parts.keys),
            shared,
            catalog,
            methods: parts.methods.clone(),
            telemetry: parts.telemetry.clone(),
            admission,
            limits: Arc::clone(&parts.limits),
            audit: parts.audit.clone(),
        });
        mounts.push(Mount {
            name: name.into(),
            server: Arc::new(server),
            announcer,
            has,
        });
    }
    Ok(mounts)
}

/// Where each of them is served.
pub(super) fn endpoints(mounts: &[Mount]) -> Mounts {
    let each = mounts.iter();
    each.map(|mount| (mount.name.clone(), Arc::clone(&mount.server)))
        .collect()
}

impl Mount {
    /// What it offers, while this is all that is offered at `/mcp`.
    pub(super) fn offered(&self, whole: &Catalog) -> Result<Catalog, AppError> {
        self.has.offered(whole)
    }

    /// Its settings.
    pub(super) fn config(&self, config: &Config) -> ServerConfig {
        self.has.config(&self.name, config)
    }
}

impl Has {
    fn offered(&self, whole: &Catalog) -> Result<Catalog, AppError> {
        match self {
            Self::Part(chosen) => {
                let resources = chosen.clone();
                Ok(whole.part(
                    |name| chosen.has_tool(name),
                    move |uri| resources.has_resource(uri),
                    |name| chosen.has_prompt(name),
                )?)
            }
            Self::Own(own) => own.0.own_catalog(),
        }
    }

    fn config(&self, name: &str, config: &Config) -> ServerConfig {
        let mut server = config.server.clone();
        match self {
            Self::Part(_) => {
                if let Some(mount) = config.endpoints.get(name) {
                    server.title = mount.title.clone().or(server.title);
                    server.search.above = mount.search_above.or(server.search.above);
                    server.instructions = mount.instructions.clone().or(server.instructions);
                }
            }
            Self::Own(own) => {
                if let Some((name, version)) = &own.1.name {
                    server.name.clone_from(name);
                    server.version.clone_from(version);
                }
                server.instructions.clone_from(&own.1.instructions);
            }
        }
        server
    }
}
