//! Checks of the policy and of the search tools against the catalog.

use super::items::Completeness;
use crate::auth::{Policy, PolicyConfig, PolicyError};
use crate::catalog::{Catalog, CatalogError};
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

/// Returns the policy, if one is configured. Each name in its rules must exist, if the catalog is complete.
pub(super) fn checked_policy(
    config: &PolicyConfig,
    catalog: &Catalog,
    completeness: Completeness,
) -> Result<Option<Policy>, PolicyError> {
    let policy = Policy::new(config)?;
    if completeness != Completeness::Whole {
        // A rule may name an item that is not known yet.
        return Ok(policy);
    }
    let tools: Vec<_> = catalog.names().collect();
    Policy::check_names(config, &tools, &catalog.prompt_names().collect::<Vec<_>>())?;
    Ok(policy)
}
