//! Selection of a request body's media type, and the argument for it.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::form::{self, Form, is_bytes};
use super::gathered::flattened;
use super::schema::SchemaInliner;
use super::text::text;
use crate::source::media_type::{essence, is_json, is_text};

/// Returns the media type whose schema describes the body best.
pub(super) fn best_kind(content: &Map<String, Value>) -> Option<(&String, &Value)> {
    let rank = |kind: &str| match &*essence(kind) {
        "application/json" => 0,
        // Its bodies are objects. Kubernetes describes those of JSON Patch, which are arrays, by the same schema.
        "application/merge-patch+json" => 1,
        "application/json-patch+json" => 3,
        essence if is_json(essence) => 2,
        "application/x-www-form-urlencoded" => 4,
        essence if essence.starts_with("multipart/") => 5,
        "" | "*/*" | "application/*" => 6,
        essence if is_characters(essence) => 7,
        _ => 8,
    };
    content.iter().min_by_key(|(kind, _)| rank(kind))
}

fn is_characters(essence: &str) -> bool {
    is_text(essence) || essence.ends_with("xml")
}

/// Returns the schema of a body of this media type, and its encoding.
///
/// # Errors
///
/// A reference cannot be resolved, or the body cannot be described.
pub(super) fn body(
    document: &Document,
    copier: &mut SchemaInliner<'_>,
    kind: &str,
    media: &Value,
) -> Result<(Value, Form), String> {
    form::media_type(kind).map_err(|problem| format!("its body: {problem}"))?;
    let schema = media.get("schema").unwrap_or(&Value::Bool(true));
    let essence = essence(kind);
    let is_any = matches!(&*essence, "" | "*/*" | "application/*");
    if is_json(&essence) || is_any && !is_bytes(document.resolve(schema)?) {
        let kind = if is_any { "application/json" } else { kind };
        return Ok((copier.copy(schema)?, Form::Json(kind.to_owned())));
    }
    if essence == "application/x-www-form-urlencoded" {
        let schema = flattened(document, schema)?;
        let fields = form::fields(document, media, &schema)?;
        return Ok((copier.copy(&schema)?, Form::Urlencoded(fields)));
    }
    if essence.starts_with("multipart/") {
        let schema = flattened(document, schema)?;
        if !matches!(text(&schema, "type"), "" | "object") {
            return Err(format!(
                "its body is {essence} but not an object, so its parts have no names"
            ));
        }
        let fields = form::fields(document, media, &schema)?;
        let copied = copier.copy(&schema)?;
        let described = form::with_files(document, &schema, copied, &fields)?;
        let kind = match essence.contains('*') {
            true => "multipart/form-data".to_owned(),
            false => essence,
        };
        return Ok((described, Form::Multipart(kind, fields)));
    }
    if !is_any && is_characters(&essence) {
        let kind = if essence == "text/*" {
            "text/plain"
        } else {
            kind
        };
        let target = document.resolve(schema)?;
        let schema = match text(target, "type") == "string" && !is_bytes(target) {
            true => copier.copy(schema)?,
            false => json!({"type": "string"}),
        };
        return Ok((schema, Form::Text(kind.to_owned())));
    }
    if is_any || essence.contains('*') {
        return Ok((bytes_with_type(&essence), Form::TypedBytes));
    }
    let target = document.resolve(schema)?;
    // The body itself is Base64 then, as that of images at Spotify. Documents that say so of plain bytes, such as those of
    // Xero, mean the bytes.
    let is_encoded = essence != "application/octet-stream"
        && (text(target, "format") == "byte" || text(target, "contentEncoding") == "base64");
    let form = match is_encoded {
        true => Form::Base64(kind.to_owned()),
        false => Form::Bytes(kind.to_owned()),
    };
    Ok((json!({"type": "string", "contentEncoding": "base64"}), form))
}

/// Returns the schema of a body of any media type in a range such as `image/*`, which is not a type itself.
fn bytes_with_type(range: &str) -> Value {
    let mut media_type = json!({"type": "string"});
    if range.contains('/') {
        media_type["description"] = format!("Media type of the data, of {range}.").into();
    }
    json!({
        "type": "object",
        "properties": {
            "data": {"type": "string", "contentEncoding": "base64"},
            "media_type": media_type,
        },
        "required": ["data", "media_type"],
        "additionalProperties": false,
    })
}

impl Form {
    /// Returns what a description has to say about the argument of a body that is not JSON.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::Text(kind) => Some(format!("Text of type {}.", essence(kind))),
            Self::Bytes(kind) | Self::Base64(kind) => {
                Some(format!("Bytes of type {}, as Base64.", essence(kind)))
            }
            Self::TypedBytes => Some("Bytes as Base64, with their media type.".to_owned()),
            _ => None,
        }
    }
}
