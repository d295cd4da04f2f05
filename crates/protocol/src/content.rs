//! Content blocks: what tool results and prompt messages are made of.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Icon, lenient};

/// One block of content, as a tool result or a prompt message carries it.
///
/// ```
/// use longshore::Content;
///
/// let blocks = vec![
///     Content::text("The chart you asked for:"),
///     Content::image(b"not really a picture", "image/png"),
/// ];
/// assert_eq!(blocks.len(), 2);
/// ```
///
/// Kinds that a revision does not know (audio in 2024-11-05, resource links before
/// 2025-06-18) are shown to its clients as text; a tool need not care.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Plain text for the model.
    Text(TextContent),
    /// A picture.
    Image(MediaContent),
    /// A sound; known from 2025-03-26 on.
    Audio(MediaContent),
    /// A pointer to a resource that the client may read; known from 2025-06-18 on.
    ResourceLink(ResourceLink),
    /// A resource's contents, in place.
    Resource(EmbeddedResource),
}

/// Text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextContent {
    /// The text itself.
    pub text: String,
    /// Audience and priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// `_meta` of the block.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A picture or a sound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaContent {
    /// The bytes, in standard Base64 with padding.
    pub data: String,
    /// Media type, for example `image/png`.
    pub mime_type: String,
    /// Audience and priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// `_meta` of the block.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A pointer to a resource, which need not appear in `resources/list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// URI of the resource.
    pub uri: String,
    /// Name for programs, and for people where there is no title.
    pub name: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Media type, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Size in bytes before any encoding, if known.
    #[serde(
        default,
        deserialize_with = "lenient::size",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<u64>,
    /// Icons; since 2025-11-25.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub icons: Vec<Icon>,
    /// Audience and priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// `_meta` of the block.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A resource's contents inside another message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddedResource {
    /// The contents.
    pub resource: ResourceContents,
    /// Audience and priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// `_meta` of the block.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// Contents of a resource: text, or bytes as Base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "ReceivedContents")]
pub struct ResourceContents {
    /// URI of the resource. If it is empty, the server fills in the requested URI.
    pub uri: String,
    /// Media type, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text or bytes.
    #[serde(flatten)]
    pub body: ResourceBody,
    /// `_meta` of the contents.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// Contents as other implementations write them, some with null for the form that they do not have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceivedContents {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta")]
    meta: Option<Map<String, Value>>,
}

impl TryFrom<ReceivedContents> for ResourceContents {
    type Error = &'static str;

    fn try_from(received: ReceivedContents) -> Result<Self, Self::Error> {
        let body = match (received.text, received.blob) {
            (Some(text), _) => ResourceBody::Text(text),
            (None, Some(blob)) => ResourceBody::Blob(blob),
            (None, None) => return Err("contents have `text` or `blob`"),
        };
        Ok(Self {
            uri: received.uri,
            mime_type: received.mime_type,
            body,
            meta: received.meta,
        })
    }
}

/// The two forms of a resource's contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceBody {
    /// Text in UTF-8.
    Text(String),
    /// Bytes in standard Base64 with padding.
    Blob(String),
}

/// Hints on whom content is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// `user`, `assistant`, or both.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub audience: Vec<Role>,
    /// From 0 (optional) to 1 (required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// ISO 8601 time of the last change; known from 2025-06-18 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// Sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Content {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent {
            text: text.into(),
            ..TextContent::default()
        })
    }

    /// A picture from its bytes; encodes them.
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::Image(MediaContent::new(bytes, mime_type))
    }

    /// A sound from its bytes; encodes them.
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::Audio(MediaContent::new(bytes, mime_type))
    }

    /// A pointer to a resource.
    pub fn resource_link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ResourceLink(ResourceLink {
            uri: uri.into(),
            name: name.into(),
            ..ResourceLink::default()
        })
    }

    /// A text resource, embedded.
    pub fn embedded_text(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::embedded(uri, mime_type, ResourceBody::Text(text.into()))
    }

    /// A binary resource, embedded; encodes the bytes.
    pub fn embedded_blob(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        bytes: impl AsRef<[u8]>,
    ) -> Self {
        Self::embedded(uri, mime_type, ResourceBody::Blob(STANDARD.encode(bytes)))
    }

    fn embedded(uri: impl Into<String>, mime_type: impl Into<String>, body: ResourceBody) -> Self {
        Self::Resource(EmbeddedResource {
            resource: ResourceContents::of(body)
                .with_uri(uri)
                .with_mime_type(mime_type),
            annotations: None,
            meta: None,
        })
    }
}

impl ResourceContents {
    /// Text. The server fills in the URI that was asked for, and the media type of the resource's definition.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(ResourceBody::Text(text.into()))
    }

    /// Bytes; encodes them. The server fills in the URI that was asked for, and the media type of the resource's
    /// definition.
    pub fn blob(bytes: impl AsRef<[u8]>) -> Self {
        Self::of(ResourceBody::Blob(STANDARD.encode(bytes)))
    }

    fn of(body: ResourceBody) -> Self {
        Self {
            uri: String::new(),
            mime_type: None,
            body,
            meta: None,
        }
    }

    /// Says which resource this is, where it is not the one that was asked for.
    #[must_use]
    pub fn with_uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = uri.into();
        self
    }

    /// Says what kind of contents this is, where the resource's definition does not.
    #[must_use]
    pub fn with_mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }
}

impl MediaContent {
    fn new(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self {
            data: STANDARD.encode(bytes),
            mime_type: mime_type.into(),
            ..Self::default()
        }
    }
}

/// Names the shape of a content block without repeating the specification, which has it.
impl JsonSchema for Content {
    fn schema_name() -> Cow<'static, str> {
        "Content".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A content block of the Model Context Protocol.",
            "type": "object",
            "properties": {
                "type": { "enum": ["text", "image", "audio", "resource_link", "resource"] }
            },
            "required": ["type"]
        })
    }
}
