//! Checks of a catalog, and of the settings that name its items.

use super::error::AppError;
use super::items::{AppItems, Completeness, LoadedItems};
use super::origins::SettingOrigins;
use crate::auth::{Policy, PolicyConfig, PolicyError};
use crate::catalog::{Catalog, CatalogError, RejectedItem};
use crate::config::Config;
use crate::limit::LimitConfig;
use crate::server::{SEARCH_VERBS, ServerConfig};

/// Builds the catalog of loaded items, and the policy. Logs what cannot be offered, and limits without effect.
pub(super) fn checked_catalog(
    items: &AppItems,
    loaded: &LoadedItems,
    config: &Config,
) -> Result<(Catalog, Option<Policy>), AppError> {
    let catalog = items.catalog(loaded)?;
    let completeness = items.completeness(loaded);
    report_rejected(&catalog, completeness, &items.origins)?;
    check_search_names(&config.server, &catalog)?;
    warn_of_limits(&config.limits, &catalog, completeness);
    let policy = checked_policy(&config.policy, &catalog, completeness)?;
    Ok((catalog, policy))
}

/// Logs the rejected items of a catalog.
///
/// # Errors
///
/// There are no others, and none can become available later.
pub(super) fn report_rejected(
    catalog: &Catalog,
    completeness: Completeness,
    origins: &SettingOrigins,
) -> Result<(), AppError> {
    log_rejected(catalog.refused(), origins);
    match catalog.refused().first() {
        Some(rejected) if completeness != Completeness::Partial && catalog.offers_nothing() => {
            Err(AppError::NothingOffered(rejected.clone()))
        }
        _ => Ok(()),
    }
}

/// Logs rejected items.
pub(super) fn log_rejected<'r>(
    rejected: impl IntoIterator<Item = &'r RejectedItem>,
    origins: &SettingOrigins,
) {
    for item in rejected {
        let (source, place) = (&*item.source, &*item.place);
        let at = origins.of(place);
        match item.is_retried {
            true => {
                tracing::warn!(
                    source,
                    place,
                    at,
                    "not available yet, and retried: {}",
                    item.problem
                );
            }
            false => tracing::error!(source, place, at, "skipped: {}", item.problem),
        }
    }
}

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
fn warn_of_limits(limits: &LimitConfig, catalog: &Catalog, completeness: Completeness) {
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
