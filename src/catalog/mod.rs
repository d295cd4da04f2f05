//! What a server offers: the contract between those who write tools and the server that runs them.

mod arguments;
#[doc(hidden)]
pub mod attribute;
mod collected;
mod context;
mod listing;
mod outlet;
mod output;
mod registry;
pub mod schema;
mod strict;
mod tool;
mod typed;

pub(crate) use arguments::tree_by_simd_json;
pub use arguments::{Arguments, InvalidArguments, SIMD_THRESHOLD_BYTES};
pub use collected::collected_tools;
pub use context::{CallContext, LogLevel, RequestId};
pub(crate) use listing::{Listing, ListingFrame};
pub(crate) use outlet::{Outlet, Wanted};
pub(crate) use output::OutputContent;
pub use output::{Output, ToolError, ToolErrorKind};
pub(crate) use registry::CatalogTool;
pub use registry::{Catalog, CatalogError};
pub(crate) use schema::{HeaderParameter, ParameterKind};
pub use tool::{CallFuture, Definition, Tool};
pub use typed::{IntoOutput, IntoTool, TypedTool, tool_fn};
