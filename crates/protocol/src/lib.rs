//! The words of the specification, as data. No I/O, no clock, no runtime.
//!
//! `message` turns bytes into JSON-RPC messages, [`Revision`] is the only place that compares revisions, and
//! the other files hold what messages are made of.

mod canonical;
mod capabilities;
mod content;
mod error;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod interaction;
pub(crate) mod message;
mod method;
mod prompts;
mod resources;
mod revision;
pub(crate) mod scan;
mod tools;
mod uri_template;
mod write;

pub(crate) use canonical::canonical;
pub use capabilities::ClientAbility;
pub(crate) use capabilities::ClientCapabilities;
pub use content::{
    Annotations, Content, EmbeddedResource, MediaContent, ResourceBody, ResourceContents,
    ResourceLink, Role, TextContent,
};
pub use error::{ErrorCode, ErrorObject};
#[cfg(any(fuzzing, test))]
pub use fuzz::envelope_holds;
pub use interaction::{
    ContextInclusion, ModelPreferences, Root, SamplingContent, SamplingMessage, SamplingRequest,
    SamplingResult, SamplingTool, ToolChoice, ToolResult, ToolUse,
};
pub(crate) use method::Method;
pub use prompts::{PromptArgument, PromptMessage};
pub use resources::CacheScope;
pub use revision::Revision;
pub use tools::{Icon, Implementation, ToolAnnotations};
pub(crate) use uri_template::fault_of_uri;
#[cfg(any(fuzzing, test))]
pub use uri_template::template_holds;
pub use uri_template::{TemplateError, URI_MAX_BYTES, UriTemplate};
pub(crate) use write::{is_plain, push_escaped, push_string};
