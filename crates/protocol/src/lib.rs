//! The words of the specification, as data. No I/O, no clock, no runtime.
//!
//! `message` turns bytes into JSON-RPC messages, [`Revision`] is the only place that compares revisions, and
//! the other files hold what messages are made of.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]

mod canonical;
mod capabilities;
mod content;
mod error;
#[cfg(any(fuzzing, test, feature = "testing"))]
mod fuzz;
mod interaction;
mod lenient;
pub mod message;
mod method;
mod named_enum;
mod prompts;
mod resources;
mod revision;
pub mod scan;
mod tools;
mod uri_template;
mod write;

pub use canonical::canonical;
pub use capabilities::{ClientAbility, ClientCapabilities};
pub use content::{
    Annotations, Content, EmbeddedResource, MediaContent, ResourceBody, ResourceContents,
    ResourceLink, Role, TextContent,
};
pub use error::{ErrorCode, ErrorObject};
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use fuzz::envelope_holds;
pub use interaction::{
    ContextInclusion, ModelPreferences, Root, SamplingContent, SamplingMessage, SamplingRequest,
    SamplingResult, SamplingTool, ToolChoice, ToolResult, ToolUse,
};
pub use lenient::{object as object_or_empty_list, whole};
pub use method::Method;
pub use prompts::{PromptArgument, PromptMessage};
pub use resources::CacheScope;
pub use revision::Revision;
pub use tools::{Icon, Implementation, ToolAnnotations};
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use uri_template::template_holds;
pub use uri_template::{
    TemplateError, URI_MAX_BYTES, UriTemplate, encoded_uri, fault_of_uri, percent_decoded,
};
pub use write::{is_plain, push_escaped, push_json, push_string};

/// Returns a number with its noun: `1 tool`, `2 tools`.
pub fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// Returns the longest beginning of a text that has at most so many bytes.
pub fn prefix(text: &str, max_bytes: usize) -> &str {
    &text[..floor_char_boundary(text, max_bytes)]
}

/// Returns the largest index of a character boundary that is not after `index`. `str` has this method since Rust 1.91.
pub fn floor_char_boundary(text: &str, index: usize) -> usize {
    if text.len() <= index {
        return text.len();
    }
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    (0..=index).rev().find(is_boundary).unwrap_or(0)
}
