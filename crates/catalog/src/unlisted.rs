//! Readable resources that no list shows, such as links in the results of other servers.

use std::fmt;
use std::sync::Arc;

use super::Resource;
use crate::auth::Principal;

/// Finds resources that are in no list.
pub trait Unlisted: Send + Sync {
    /// The resource at a URI, as far as a principal may know of it.
    fn find(&self, principal: &Principal, uri: &str) -> Option<UnlistedResource>;
}

/// A resource that is in no list.
#[derive(Clone)]
pub struct UnlistedResource {
    pub resource: Arc<dyn Resource>,
    /// The URIs by which rules and endpoints name it.
    pub names: Vec<String>,
}

type Takes = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Everything of a catalog that is in no list.
#[derive(Clone, Default)]
pub struct UnlistedResources {
    finders: Vec<Arc<dyn Unlisted>>,
    /// URIs of the source; `None` for all URIs.
    takes: Option<Takes>,
}

impl UnlistedResources {
    pub(super) fn add(&mut self, finder: Arc<dyn Unlisted>) {
        self.finders.push(finder);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finders.is_empty()
    }

    /// Returns a view of the resources whose names `takes` selects.
    pub(super) fn part(&self, takes: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self {
            finders: self.finders.clone(),
            takes: Some(Arc::new(takes)),
        }
    }

    /// Returns true if a resource with this URI is selected.
    pub(super) fn selects(&self, uri: &str) -> bool {
        self.takes.as_ref().is_none_or(|takes| takes(uri))
    }

    /// The resource at a URI, as far as a principal may know of it.
    pub fn find(&self, principal: &Principal, uri: &str) -> Option<UnlistedResource> {
        let mut finders = self.finders.iter();
        let found = finders.find_map(|finder| finder.find(principal, uri))?;
        let belongs = match &self.takes {
            None => true,
            Some(takes) => found.names.iter().any(|name| takes(name)),
        };
        belongs.then_some(found)
    }
}

impl fmt::Debug for UnlistedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnlistedResources")
            .field(&self.finders.len())
            .finish()
    }
}
