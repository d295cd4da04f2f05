//! What a server offers: the contract between those who write tools and the server that runs them.

mod arguments;
mod context;
mod listing;
mod output;
mod registry;
mod tool;

pub use arguments::{Arguments, InvalidArguments, SIMD_THRESHOLD_BYTES};
pub use context::{CallContext, LogLevel, RequestId};
pub(crate) use output::OutputContent;
pub(crate) use listing::{Listing, ListingFrame};
pub use output::{Output, ToolError, ToolErrorKind};
pub(crate) use registry::CatalogTool;
pub use registry::{Catalog, CatalogError};
pub use tool::{CallFuture, Definition, Tool};
