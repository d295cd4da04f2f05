//! Checks of the policy and of the search tools against the catalog.

use super::items::Completeness;
use crate::auth::{Policy, PolicyConfig, PolicyError};
use crate::catalog::{Catalog, CatalogError};
use crate::limit::LimitConfig;
use crate::server::{SEARCH_VERBS, ServerConfig};

/// Rejects tools with the name of a search tool, if tools are found by search.
pub(super) fn check_search_names(
    config: &ServerConfig,
    catalog: &Catalog,
) -> Result<(), CatalogError> {
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

/// Warns of limits of tools that do not exist, if the catalog is complete.
pub(super) fn warn_of_limits(limits: &LimitConfig, catalog: &Catalog, completeness: Completeness) {
    if completeness != Completeness::Whole {
        return;
    }
    let is_missing = |tool: &&String| catalog.tool(tool).is_none();
    for tool in limits.tools.keys().filter(is_missing) {
        tracing::warn!(
            setting = %format_args!("limits.tools.{tool}"),
            "no such tool exists, so the limit has no effect"
        );
    }
}

/// Returns the policy, if one is configured. Each name in its rules must exist, if the catalog is complete.
pub(super) fn checked_policy(
    config: &PolicyConfig,
    catalog: &Catalog,
    completeness: Completeness,
) -> Result<Option<Policy>, PolicyError> {
    let policy = Policy::new(config)?;
    for (at, rule) in config.rules.iter().enumerate() {
        let is_template =
            |uri: &&String| uri.contains('{') && catalog.templates.get(uri.as_str()).is_some();
        if let Some(uri) = rule.resources.iter().find(is_template) {
            return Err(PolicyError::Template {
                setting: format!("policy.rules[{at}].resources"),
                pattern: uri.clone(),
            });
        }
    }
    if completeness != Completeness::Whole {
        // A rule may name an item that is not known yet.
        return Ok(policy);
    }
    let tools: Vec<_> = catalog.names().collect();
    Policy::check_names(config, &tools, &catalog.prompt_names().collect::<Vec<_>>())?;
    Ok(policy)
}
