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

/// Binds all of them. What lacks a value stays as it is, and is handed to `missing`.
fn bind_all<T: Bind>(all: &mut [T], provided: &Provided, mut missing: impl FnMut(&T, Unprovided)) {
    for one in all {
        match one.bind(provided) {
            Ok(Some(bound)) => *one = bound,
            Ok(None) => {}
            Err(unprovided) => missing(one, unprovided),
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
        match self.bind_own() {
            missing if missing.is_empty() => Ok(()),
            missing => Err(AppError::Unprovided(missing)),
        }
    }

    /// Binds as far as values are provided. Returns what is missing; an application that imports this one may provide
    /// it.
    pub(super) fn bind_own(&mut self) -> Vec<String> {
        fn note<T: Bind>(missing: &mut Vec<String>) -> impl FnMut(&T, Unprovided) {
            |one, unprovided| {
                missing.push(format!("{} needs `{}`", one.what(), unprovided.type_name()));
            }
        }
        let mut missing = Vec::new();
        bind_all(&mut self.tools, &self.provided, note(&mut missing));
        bind_all(&mut self.resources, &self.provided, note(&mut missing));
        bind_all(&mut self.prompts, &self.provided, note(&mut missing));
        missing
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
