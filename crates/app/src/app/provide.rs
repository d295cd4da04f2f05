//! Binds tools, resources and prompts to the values that their application provides.

use std::sync::Arc;

use super::error::AppError;
use super::items::AppItems;
use crate::catalog::{AnyResource, Prompt, Provided, RejectedItem, SourceItems, Tool, Unprovided};

/// A tool, resource or prompt that can be bound to values.
trait Bind: Sized {
    /// Its kind and name, for messages.
    fn what(&self) -> String;

    /// The value that is served in its place; `None` to serve it unchanged.
    fn bind(&self, provided: &Provided) -> Result<Option<Self>, Unprovided>;
}

impl Bind for Arc<dyn Tool> {
    fn what(&self) -> String {
        format!("tool {}", self.definition().name())
    }

    fn bind(&self, provided: &Provided) -> Result<Option<Self>, Unprovided> {
        (**self).bind(provided)
    }
}

impl Bind for AnyResource {
    fn what(&self) -> String {
        format!("resource {}", self.definition().uri())
    }

    fn bind(&self, provided: &Provided) -> Result<Option<Self>, Unprovided> {
        self.bound(provided)
    }
}

impl Bind for Arc<dyn Prompt> {
    fn what(&self) -> String {
        format!("prompt {}", self.definition().name())
    }

    fn bind(&self, provided: &Provided) -> Result<Option<Self>, Unprovided> {
        (**self).bind(provided)
    }
}

/// An item from code, and the values of the imported application that it is from.
pub(super) type OwnItem<T> = (T, Provided);

/// Returns an item of the application itself.
pub(super) fn own<T>(item: T) -> OwnItem<T> {
    (item, Provided::default())
}

pub(super) fn items<T: Clone>(all: &[OwnItem<T>]) -> impl Iterator<Item = T> {
    all.iter().map(|(item, _)| item.clone())
}

/// Binds items, and adds to `missing` what they lack.
fn bind_all<T: Bind>(all: &mut [OwnItem<T>], provided: &Provided, missing: &mut Vec<String>) {
    for (item, own) in all {
        match item.bind(&own.clone().or(provided)) {
            Ok(Some(bound)) => *item = bound,
            Ok(None) => {}
            Err(unprovided) => {
                missing.push(format!(
                    "{} needs `{}`",
                    item.what(),
                    unprovided.type_name()
                ));
            }
        }
    }
}

impl AppItems {
    /// Binds the tools, resources and prompts that come from code.
    ///
    /// # Errors
    ///
    /// All values that are needed and were not provided.
    pub(super) fn bind(&mut self) -> Result<(), AppError> {
        let mut missing = Vec::new();
        bind_all(&mut self.tools, &self.provided, &mut missing);
        bind_all(&mut self.resources, &self.provided, &mut missing);
        bind_all(&mut self.prompts, &self.provided, &mut missing);
        match missing.is_empty() {
            true => Ok(()),
            false => Err(AppError::Unprovided(missing)),
        }
    }
}

/// Binds the offer of a source. Entries that lack a value are rejected.
pub(super) fn bound(provided: &Provided, source: &str, mut offered: SourceItems) -> SourceItems {
    let mut refused = Vec::new();
    retain_bound(&mut offered.tools, provided, source, &mut refused);
    retain_bound(&mut offered.resources, provided, source, &mut refused);
    retain_bound(&mut offered.prompts, provided, source, &mut refused);
    offered.refused.append(&mut refused);
    offered
}

fn retain_bound<T: Bind>(
    all: &mut Vec<T>,
    provided: &Provided,
    source: &str,
    refused: &mut Vec<RejectedItem>,
) {
    all.retain_mut(|one| match one.bind(provided) {
        Ok(Some(bound)) => {
            *one = bound;
            true
        }
        Ok(None) => true,
        Err(unprovided) => {
            refused.push(RejectedItem::new(
                source,
                one.what(),
                unprovided.to_string(),
            ));
            false
        }
    });
}
