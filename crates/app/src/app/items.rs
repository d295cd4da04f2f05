//! Items of an application, from code and from its settings.

use std::sync::Arc;

use serde_json::Value;

use super::configured::ConfiguredParts;
use super::error::AppError;
use super::mounted::{Mounted, MountedItems};
use super::origins::SettingOrigins;
use super::provide::{OwnItem, items};
use crate::catalog::{
    Announcer, AnyResource, Catalog, ChangeHandle, Prompt, Provided, Skill, SourceItems, Tool,
};
use crate::config::Config;
use crate::net::{Background, MemoryBudget};
use crate::seal::KeyRing;
use crate::source::{Artifacts, BuiltSource, ClientStatsHandle, SourceConfig, Upstreams};
use crate::state::State;
use crate::telemetry::Metrics;

/// Identity and items of an application from code, and loader for the items of its settings.
#[derive(Clone, Default)]
pub(super) struct AppItems {
    pub(super) identity: Identity,
    pub(super) tools: Vec<OwnItem<Arc<dyn Tool>>>,
    pub(super) resources: Vec<OwnItem<AnyResource>>,
    pub(super) prompts: Vec<OwnItem<Arc<dyn Prompt>>>,
    pub(super) skills: Vec<Skill>,
    /// Values that tools, resources and prompts share.
    pub(super) provided: Provided,
    pub(super) extensions: Vec<(String, Value)>,
    pub(super) announcer: Announcer,
    /// Registry for the counters of limit hits in toolsets.
    pub(super) metrics: Metrics,
    /// Registry of background tasks. Connections of upstreams and toolsets live on its runtime.
    pub(super) background: Background,
    /// Sources that are asked for their items.
    pub(super) mounted: Vec<Mounted>,
    /// Notified when the items of a mounted source have changed.
    pub(super) changed: ChangeHandle,
    /// Shared store of the application, instead of the configured one.
    pub(super) store: Option<Arc<dyn State>>,
    /// Store of large results, if one is configured.
    pub(super) artifacts: Option<Arc<Artifacts>>,
    /// Parts of the server that configured items use.
    pub(super) configured: ConfiguredParts,
    /// Memory for large bodies that arrive.
    pub(super) memory: MemoryBudget,
    /// Upstream servers of the settings at startup.
    pub(super) upstreams: Option<Arc<Upstreams>>,
    /// True if configured items were left out, so that rules can name items which are not known.
    pub(super) leaves_out: bool,
    pub(super) origins: SettingOrigins,
}

/// Extent to which the items of a catalog are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    Whole,
    /// The items of an upstream server are unknown, and may stay so.
    WithoutSome,
    /// An upstream server or the server of a document is down or has not responded yet.
    Partial,
}

/// Items of settings and of mounted sources. Those of upstream servers are not among them, because they change.
#[derive(Clone, Default)]
pub(super) struct LoadedItems {
    /// Skills of toolsets.
    pub(super) skills: Vec<Skill>,
    /// Built-in toolsets, by name.
    pub(super) toolsets: Vec<(String, SourceItems)>,
    pub(super) sources: Vec<BuiltSource>,
    pub(super) mounted: Vec<MountedItems>,
    /// Items of the mounted sources of each endpoint, in the order of the endpoints.
    pub(super) mounted_beside: Vec<Vec<MountedItems>>,
}

impl LoadedItems {
    /// Returns true if a source has to be loaded again.
    pub(super) fn awaits_some(&self) -> bool {
        self.sources.iter().any(|source| source.is_awaited)
    }

    /// Keeps the previous items of sources that cannot be loaded now and whose settings are unchanged.
    pub(super) fn or_keep(
        mut self,
        sources: &[SourceConfig],
        before: &[SourceConfig],
        known: &Self,
    ) -> Self {
        // Settings are compared as values: serialized, all secrets are equal.
        let known = |config: &SourceConfig| {
            let position = before.iter().position(|known| known == config)?;
            known.sources.get(position)
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

    /// Returns the statistics of the sources.
    pub(super) fn gauges(&self) -> Vec<ClientStatsHandle> {
        let each = self.sources.iter().flat_map(|source| &source.gauges);
        each.cloned().collect()
    }
}

impl AppItems {
    /// Binds the items to the provided values, and creates what the settings need. Nothing is connected yet.
    pub(super) fn prepare(
        &mut self,
        config: &Config,
        keys: &Arc<KeyRing>,
        background: &Background,
    ) -> Result<(), AppError> {
        self.bind()?;
        self.background = background.clone();
        self.prepare_configured(config, keys)
    }

    /// Returns true if loading the items needs a runtime: for connections, documents or mounted sources.
    pub(super) fn need_runtime(&self, config: &Config) -> bool {
        !self.mounted.is_empty()
            || !config.sources.is_empty()
            || !config.upstreams.is_empty()
            || !config.toolsets.is_empty()
    }

    /// Returns how much of the items is known.
    pub(super) fn completeness(&self, loaded: &LoadedItems) -> Completeness {
        match &self.upstreams {
            _ if self.leaves_out || loaded.awaits_some() => Completeness::Partial,
            Some(upstreams) if upstreams.are_awaited() || upstreams.may_come() => {
                Completeness::Partial
            }
            Some(upstreams) if !upstreams.are_known() => Completeness::WithoutSome,
            _ => Completeness::Whole,
        }
    }

    /// Loads the items that the settings name, and the first listings of upstream servers. Documents that are `served` for the
    /// same settings are not fetched again.
    pub(super) async fn load(
        &self,
        config: &Config,
        served: Option<(&Config, &LoadedItems)>,
    ) -> Result<LoadedItems, AppError> {
        let mut loaded = LoadedItems::default();
        self.load_configured(config, served, &mut loaded).await?;
        let known = served.map(|(_, loaded)| loaded.mounted.as_slice());
        loaded.mounted = self.load_mounted(known.unwrap_or_default()).await?;
        if let Some(upstreams) = &self.upstreams {
            upstreams.discover().await?;
        }
        Ok(loaded)
    }

    /// Builds a catalog of the items from code, and of these of the mounted sources.
    pub(super) fn own_catalog(&self, mounted: &[MountedItems]) -> Result<Catalog, AppError> {
        let mut catalog = self.catalog_of_code()?.with_skills(self.skills.clone())?;
        for (source, offered) in mounted {
            catalog = catalog.with_offered(source, offered.clone());
        }
        Ok(catalog.with_extensions(self.extensions.clone())?)
    }

    /// Builds a catalog of the tools, resources and prompts from code.
    fn catalog_of_code(&self) -> Result<Catalog, AppError> {
        Ok(Catalog::new(items(&self.tools))?
            .with_resources(items(&self.resources))?
            .with_prompts(items(&self.prompts))?)
    }

    /// Adds the items of another application, with a prefix. They keep its values, and take those that it lacks from this one.
    pub(super) fn import(&mut self, prefix: &str, other: Self) {
        let (tools, of_tools): (Vec<_>, Vec<_>) = other.tools.into_iter().unzip();
        let (prompts, of_prompts): (Vec<_>, Vec<_>) = other.prompts.into_iter().unzip();
        let mut offered = SourceItems::default();
        (offered.tools, offered.prompts) = (tools, prompts);
        let offered = offered.prefixed(prefix);
        let with = |own: Provided| own.or(&other.provided);
        let of_tools = of_tools.into_iter().map(with);
        self.tools.extend(offered.tools.into_iter().zip(of_tools));
        let of_prompts = of_prompts.into_iter().map(with);
        self.prompts
            .extend(offered.prompts.into_iter().zip(of_prompts));
        let resources = other.resources.into_iter();
        self.resources
            .extend(resources.map(|(item, own)| (item, with(own))));
        self.skills.extend(other.skills);
        self.extensions.extend(other.extensions);
        for mounted in other.mounted {
            self.remount(prefix, mounted, &other.provided);
        }
        // Imported tools announce changes through the announcer that they were given.
        other.announcer.forward_to(&self.announcer);
    }

    /// Builds the catalog of all items.
    pub(super) fn catalog(&self, loaded: &LoadedItems) -> Result<Catalog, AppError> {
        let mut catalog = self.catalog_of_code()?;
        // Items with the same name in two toolsets, or in a toolset and a source, do not stop the start.
        for (name, offered) in &loaded.toolsets {
            catalog = catalog.with_toolset(name, offered.clone());
        }
        let skills = self.skills.iter().chain(&loaded.skills);
        let mut catalog = catalog.with_skills(skills.cloned())?;
        let around = |offered: SourceItems| match &self.artifacts {
            Some(artifacts) => artifacts.around(offered),
            None => offered,
        };
        if let Some(artifacts) = &self.artifacts {
            catalog = catalog.with_resources([artifacts.resource()])?;
        }
        for source in &loaded.sources {
            catalog = catalog.with_offered(&source.name, around(source.offered.clone()));
        }
        for (source, offered) in &loaded.mounted {
            catalog = catalog.with_offered(source, offered.clone());
        }
        if let Some(upstreams) = &self.upstreams {
            let offered = upstreams.offer(&catalog)?;
            catalog = catalog.with_offered("upstreams", around(offered));
        }
        Ok(catalog.with_extensions(self.extensions.clone())?)
    }
}

/// Endpoint of another application, and that application's identity.
pub(super) type NamedApp<'a> = (&'a str, &'a Identity);

/// Name, version and instructions of an application; settings override them.
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
