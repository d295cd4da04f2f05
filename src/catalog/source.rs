//! What fills a catalog besides code.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{AnyResource, Prompt, Tool};

/// Something that has tools, resources or prompts to offer: a description of HTTP calls, a document, a command, another
/// server.
///
/// What is wrong with one of them does not keep the others from being offered.
pub trait Source: Send + Sync + 'static {
    /// What it is called in logs and in the server's health.
    fn name(&self) -> &str;

    /// Everything it has, and what it cannot offer.
    fn offer(&self) -> BoxFuture<'_, Offered>;
}

/// What a source has, each in the order in which it is listed.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Offered {
    /// Tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Resources, and templates of resources.
    pub resources: Vec<AnyResource>,
    /// Prompts.
    pub prompts: Vec<Arc<dyn Prompt>>,
    /// What cannot be offered.
    pub refused: Vec<Refused>,
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered")
            .field("tools", &self.tools.len())
            .field("resources", &self.resources)
            .field("prompts", &self.prompts.len())
            .field("refused", &self.refused)
            .finish()
    }
}

/// Something that is configured and cannot be offered, while the rest can.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The source's name.
    pub source: String,
    /// Where it stands: `sources[0].http.tools[2].url`, or `GET /pets` in a document.
    pub place: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl Refused {
    /// Something at a place that has a problem.
    pub fn new(
        source: impl Into<String>,
        place: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self {
            source: source.into(),
            place: place.into(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "source {}, {}: {}",
            self.source, self.place, self.problem
        )
    }
}
