//! Sources that add items to a catalog at run time.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::{AnyResource, OfferedSkill, Prompt, StartingSource, Tool, Unlisted};

/// A provider of tools, resources or prompts that may change while the server runs: a database of queries, a folder of
/// scripts, another server. `App::source` adds one.
///
/// What is wrong with one of them does not keep the others from being offered.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use longshore::catalog::{SourceItems, Source};
/// use longshore::{App, IntoTool, tool};
///
/// /// Adds two numbers.
/// #[tool]
/// async fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// struct Sums;
///
/// impl Source for Sums {
///     fn name(&self) -> &str {
///         "sums"
///     }
///
///     fn offer(&self) -> BoxFuture<'_, SourceItems> {
///         Box::pin(async {
///             let mut offered = SourceItems::default();
///             offered.tools.push(add.into_tool());
///             offered
///         })
///     }
/// }
///
/// // Offered as `math_add`.
/// let app = App::new().source("math_", Sums);
/// ```
pub trait Source: Send + Sync + 'static {
    /// Returns the source's name in logs and in the server's health.
    fn name(&self) -> &str;

    /// Everything it has, and what it cannot offer. It is asked at start, when the configuration is read again, and
    /// whenever this or another source says that something has changed. It has 10 s. If it takes longer or panics while the
    /// server runs, its previous items stay.
    fn offer(&self) -> BoxFuture<'_, SourceItems>;

    /// Passes the handle with which a source reports changes, before the first [`offer`](Self::offer). If the
    /// application becomes a part of another, the method is called again, and the newer handle counts.
    fn watch(&self, changed: ChangeHandle) {
        drop(changed);
    }
}

/// Tells the server that what a [`Source`] offers has changed. It never blocks; several changes at once become one.
#[derive(Clone, Debug, Default)]
pub struct ChangeHandle(Arc<Notify>);

impl ChangeHandle {
    /// Reports that the items have changed. The server calls [`Source::offer`] again and notifies its clients.
    pub fn notify(&self) {
        self.0.notify_one();
    }

    /// Waits until something has changed.
    pub async fn notified(&self) {
        self.0.notified().await;
    }
}

/// Items of a source, each kind in listing order.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct SourceItems {
    /// Tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Resources, and templates of resources.
    pub resources: Vec<AnyResource>,
    /// Prompts.
    pub prompts: Vec<Arc<dyn Prompt>>,
    /// Items that cannot be served.
    pub refused: Vec<RejectedItem>,
    /// Skills of other servers, whose files are read from those.
    pub skills: Vec<OfferedSkill>,
    /// Readable resources that no list shows.
    pub unlisted: Option<Arc<dyn Unlisted>>,
    /// Parts of the source that have not said yet what they offer.
    pub starting: Vec<StartingSource>,
}

#[cfg(feature = "cli")]
impl SourceItems {
    /// Returns true if there is nothing to offer.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.resources.is_empty() && self.prompts.is_empty()
    }
}

impl fmt::Debug for SourceItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceItems")
            .field("tools", &self.tools.len())
            .field("resources", &self.resources)
            .field("prompts", &self.prompts.len())
            .field("refused", &self.refused)
            .finish()
    }
}

/// A configured item that cannot be served, while others can.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RejectedItem {
    /// The source's name.
    pub source: String,
    /// Position of the item: `sources[0].http.tools[2].url`, or `GET /pets` in a document.
    pub place: String,
    /// Description of the problem and of its solution.
    pub problem: String,
    /// True if the item is tried again by itself.
    pub is_retried: bool,
}

impl RejectedItem {
    /// Creates the record of a problem at a position.
    pub fn new(
        source: impl Into<String>,
        place: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self {
            source: source.into(),
            place: place.into(),
            problem: problem.into(),
            is_retried: false,
        }
    }

    /// Marks an item that is tried again by itself.
    #[must_use]
    pub fn retried(mut self) -> Self {
        self.is_retried = true;
        self
    }
}

impl fmt::Display for RejectedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "source {}, {}: {}",
            self.source, self.place, self.problem
        )
    }
}
