//! Examples of tool results: text, images, audio, embedded resources, resource links, and errors.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::PNG;
use crate::catalog::ToolError;
use crate::protocol::{Annotations, Content, MediaContent, ResourceLink, Role, TextContent};
use crate::tool;

/// Audio without samples, as Base64.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// Returns a text.
#[tool(title = "Text", read_only, idempotent, open_world = false)]
pub(super) async fn test_simple_text() -> &'static str {
    "This is a simple text response for testing."
}

/// Returns an image.
#[tool(title = "Picture", read_only, idempotent, open_world = false)]
pub(super) async fn test_image_content() -> Content {
    picture()
}

/// Returns audio. Clients of 2024-11-05, which does not support audio, get a description.
#[tool(title = "Sound", read_only, idempotent, open_world = false)]
pub(super) async fn test_audio_content() -> Content {
    Content::Audio(MediaContent {
        data: WAV.to_owned(),
        mime_type: "audio/wav".to_owned(),
        ..MediaContent::default()
    })
}

/// Returns an embedded resource.
#[tool(title = "Embedded resource", read_only, idempotent, open_world = false)]
pub(super) async fn test_embedded_resource() -> Content {
    Content::embedded_text(
        "test://embedded-resource",
        "text/plain",
        "This is an embedded resource content.",
    )
}

/// Returns several kinds of content together.
#[tool(title = "Several contents", read_only, idempotent, open_world = false)]
pub(super) async fn test_multiple_content_types() -> Vec<Content> {
    vec![
        Content::text("Multiple content types test:"),
        picture(),
        Content::embedded_text(
            "test://mixed-content-resource",
            "application/json",
            json!({"test": "data", "value": 123}).to_string(),
        ),
    ]
}

/// Fails with an error that the model can read and react to.
#[tool(title = "Failure", read_only, idempotent, open_world = false)]
pub(super) async fn test_error_handling() -> Result<String, ToolError> {
    Err(ToolError::new(
        "This tool intentionally returns an error for testing",
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Success,
    Error,
    Debug,
}

/// Returns a message with annotations for its audience and priority.
#[tool(title = "Annotated message", read_only, idempotent, open_world = false)]
pub(super) async fn annotated_message(
    /// The kind of the message.
    kind: Kind,
    /// Include an image for the user only.
    #[arg(default)]
    with_picture: bool,
) -> Vec<Content> {
    let (text, priority, audience) = match kind {
        Kind::Error => (
            "The operation failed",
            1.0,
            vec![Role::User, Role::Assistant],
        ),
        Kind::Success => ("The operation succeeded", 0.7, vec![Role::User]),
        Kind::Debug => ("cache: 3 hits, 1 miss", 0.2, vec![Role::Assistant]),
    };
    let mut blocks = vec![Content::Text(TextContent {
        text: text.to_owned(),
        annotations: Some(annotations(audience, priority)),
        meta: None,
    })];
    if with_picture {
        blocks.push(Content::Image(MediaContent {
            data: PNG.to_owned(),
            mime_type: "image/png".to_owned(),
            annotations: Some(annotations(vec![Role::User], 0.5)),
            meta: None,
        }));
    }
    blocks
}

fn annotations(audience: Vec<Role>, priority: f64) -> Annotations {
    Annotations {
        audience,
        priority: Some(priority),
        last_modified: None,
    }
}

/// Returns resource links, which the client can read. Clients before 2025-06-18, which does not support links, get
/// them as text.
#[tool(title = "Resource links", read_only, idempotent, open_world = false)]
pub(super) async fn resource_links(
    /// Number of links, from 1 to 10.
    #[arg(default = 3)]
    #[schemars(range(min = 1, max = 10))]
    count: u8,
) -> Vec<Content> {
    (1..=count)
        .map(|number| {
            Content::ResourceLink(ResourceLink {
                uri: format!("test://template/{number}/data"),
                name: format!("data-{number}"),
                title: Some(format!("Data for {number}")),
                description: Some("Read it to see what a template makes of its URI.".to_owned()),
                mime_type: Some("application/json".to_owned()),
                ..ResourceLink::default()
            })
        })
        .collect()
}

pub(super) fn picture() -> Content {
    Content::Image(MediaContent {
        data: PNG.to_owned(),
        mime_type: "image/png".to_owned(),
        ..MediaContent::default()
    })
}
