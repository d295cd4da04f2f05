//! The words of the specification, as data. No I/O, no clock, no runtime.

mod content;
mod tools;

pub use content::{
    Annotations, Content, EmbeddedResource, MediaContent, ResourceBody, ResourceContents,
    ResourceLink, Role, TextContent,
};
pub use tools::{Icon, Implementation, ToolAnnotations};
