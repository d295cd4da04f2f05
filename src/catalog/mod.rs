//! What a server offers: the contract between those who write tools and the server that runs them.

mod arguments;
mod context;
mod output;
mod tool;

pub use arguments::{Arguments, InvalidArguments, SIMD_THRESHOLD_BYTES};
pub use context::{CallContext, LogLevel, RequestId};
pub(crate) use output::OutputContent;
pub use output::{Output, ToolError, ToolErrorKind};
pub use tool::{CallFuture, Definition, Tool};
