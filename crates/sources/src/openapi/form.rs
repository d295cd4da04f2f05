//! Request bodies: the media types of a document, and the encoding of values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::document::Document;
use super::request::{COMMA, Delimiter, PIPE, Pair, SPACE};
use super::schema::TEXT_CHARACTERS;
use super::text::text;
use crate::source::media_type::{essence, is_json};
use crate::source::template::plain;

/// Encoding of the body.
#[derive(Debug)]
pub(super) enum Form {
    None,
    Json(String),
    Urlencoded(Vec<Field>),
    /// Subtypes of `multipart` have the same parts.
    Multipart(String, Vec<Field>),
    Text(String),
    Bytes(String),
    /// Bytes that the API receives as Base64.
    Base64(String),
    /// Bytes with a media type that the caller chooses.
    TypedBytes,
}

/// A field of a form.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    is_file: bool,
    content_type: Option<String>,
    /// True if a part says that it is Base64 (OpenAPI 3.1.1, Encoding Object).
    names_base64: bool,
    lists: Lists,
}

/// Encoding of a list in a form with text fields (OpenAPI, Encoding Object).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    /// `a=1&a=2`
    Repeated,
    /// `a[0]=1&a[1]=2`
    Numbered,
    /// `a=1,2`
    Joined(Delimiter),
}

/// Maximum number of schemas and properties that a form is composed of, and of its fields.
pub(super) const STEPS_MAX: usize = 5_000;

pub(super) fn properties_of<'d>(
    document: &'d Document,
    schema: &'d Value,
) -> Option<&'d Map<String, Value>> {
    let properties = document.resolve(schema.get("properties")?).ok()?;
    properties.as_object()
}

/// Returns the schemas of a list, such as `allOf`.
pub(super) fn parts<'s>(schema: &'s Value, keyword: &str) -> impl Iterator<Item = &'s Value> {
    let parts = schema.get(keyword).and_then(Value::as_array);
    parts.into_iter().flatten()
}

pub(super) fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

/// Returns the fields of a form, in the order in which they are sent.
///
/// # Errors
///
/// A reference cannot be resolved, or a content type cannot be sent.
pub(super) fn fields(
    document: &Document,
    media: &Value,
    schema: &Value,
) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    let properties = properties_of(document, schema);
    if STEPS_MAX < properties.map_or(0, Map::len) {
        return Err("its form has too many fields".to_owned());
    }
    for (name, property) in properties.into_iter().flatten() {
        let is_file = is_file(document, property)?;
        let nothing = Value::Null;
        let encoding = media
            .get("encoding")
            .and_then(|encoding| encoding.get(name))
            .unwrap_or(&nothing);
        let content_type = text(encoding, "contentType").split(',').next();
        let content_type = content_type.unwrap_or_default().trim();
        media_type(content_type)
            .map_err(|problem| format!("its form field {name:?}: {problem}"))?;
        let (schema, _) = without_null(document, property)?;
        let schema = document.resolve(schema.get("items").unwrap_or(schema))?;
        let names_base64 = !is_file && text(schema, "contentEncoding") == "base64";
        let content_type = match content_type {
            "" if names_base64 => Some(BYTES),
            "" => None,
            content_type => Some(content_type),
        };
        fields.push(Field {
            name: name.clone(),
            is_file,
            content_type: content_type.map(str::to_owned),
            names_base64,
            lists: match (text(encoding, "style"), encoding.get("explode")) {
                ("deepObject", _) => Lists::Numbered,
                ("spaceDelimited", explode) if explode != Some(&Value::Bool(true)) => {
                    Lists::Joined(SPACE)
                }
                ("pipeDelimited", explode) if explode != Some(&Value::Bool(true)) => {
                    Lists::Joined(PIPE)
                }
                (_, Some(Value::Bool(false))) => Lists::Joined(COMMA),
                _ => Lists::Repeated,
            },
        });
    }
    Ok(fields)
}

/// Returns the value of a header with a media type.
pub(super) fn media_type(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| format!("the media type {text:?} has characters that no header can hold"))
}

pub(super) fn is_bytes(schema: &Value) -> bool {
    text(schema, "format") == "binary"
        || schema.get("contentMediaType").is_some() && text(schema, "contentEncoding").is_empty()
}

/// Returns a property's schema without the alternative null, and true if it can be null.
fn without_null<'d>(
    document: &'d Document,
    property: &'d Value,
) -> Result<(&'d Value, bool), String> {
    let property = document.resolve(property)?;
    let kinds = property.get("type").and_then(Value::as_array);
    let mut is_nullable = property.get("nullable") == Some(&Value::Bool(true))
        || kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut others = parts(property, keyword).filter(|part| !is_null(part));
        if let (Some(only), None) = (others.next(), others.next()) {
            is_nullable |= parts(property, keyword).any(is_null);
            return Ok((document.resolve(only)?, is_nullable));
        }
    }
    Ok((property, is_nullable))
}

/// Returns true if the values of a property are files, or lists of files.
fn is_file(document: &Document, property: &Value) -> Result<bool, String> {
    let (property, _) = without_null(document, property)?;
    let is_one = |schema: &Value| {
        let schema = document.resolve(schema)?;
        let items = schema.get("items").map(|items| document.resolve(items));
        Ok(is_bytes(schema) || items.transpose()?.is_some_and(is_bytes))
    };
    let alternatives: Vec<bool> = parts(property, "anyOf")
        .map(is_one)
        .collect::<Result<_, String>>()?;
    Ok(is_one(property)? || !alternatives.is_empty() && alternatives.iter().all(|is| *is))
}

/// Media type of bytes of which no other is known.
const BYTES: &str = "application/octet-stream";
/// How a file is passed.
const FILE: &str =
    "The file's bytes, as Base64; or these as `data`, with the file's name and type.";

/// Describes in the copy of a form's schema how to pass its files.
pub(super) fn with_files(
    document: &Document,
    schema: &Value,
    mut copied: Value,
    fields: &[Field],
) -> Result<Value, String> {
    let own = properties_of(document, schema);
    let Some(Value::Object(properties)) = copied.get_mut("properties") else {
        return Ok(copied);
    };
    for field in fields.iter().filter(|field| field.is_file) {
        let written = own.and_then(|own| own.get(&field.name));
        let Some(written) = written.filter(|_| properties.contains_key(&field.name)) else {
            continue;
        };
        properties.insert(field.name.clone(), file_schema(document, written)?);
    }
    Ok(copied)
}

/// Returns the schema of a file, or of a list of files.
fn file_schema(document: &Document, written: &Value) -> Result<Value, String> {
    let (property, is_nullable) = without_null(document, written)?;
    let kind = property.get("type");
    let is_list = kind.is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        kind => kind == "array",
    });
    let mut file = json!({
        "anyOf": [
            {"type": "string", "contentEncoding": "base64"},
            {
                "type": "object",
                "properties": {
                    "data": {"type": "string", "contentEncoding": "base64"},
                    "filename": {"type": "string"},
                    "media_type": {"type": "string"},
                },
                "required": ["data"],
                "additionalProperties": false,
            },
        ],
    });
    if is_list {
        let kind = match is_nullable {
            true => json!(["array", "null"]),
            false => json!("array"),
        };
        file = json!({"type": kind, "items": file});
        for keyword in ["minItems", "maxItems"] {
            if let Some(count) = property.get(keyword) {
                file[keyword] = count.clone();
            }
        }
    } else if is_nullable && let Some(Value::Array(alternatives)) = file.get_mut("anyOf") {
        alternatives.push(json!({"type": "null"}));
    }
    let described = [written, document.resolve(written)?, property];
    let described = described.map(|schema| text(schema, "description"));
    file["description"] = match described.into_iter().find(|text| !text.is_empty()) {
        Some(own) => {
            let own: String = own.chars().take(TEXT_CHARACTERS).collect();
            format!("{own}\n{FILE}").into()
        }
        None => FILE.into(),
    };
    Ok(file)
}

impl Form {
    /// Encodes a value as a body, and returns it with its media type.
    ///
    /// # Errors
    ///
    /// The value cannot be encoded in this form.
    pub(super) fn fill(&self, value: &Value) -> Result<Option<(HeaderValue, Bytes)>, String> {
        let (kind, body) = match self {
            Self::None => return Ok(None),
            Self::Json(kind) => (kind.clone(), value.to_string().into()),
            Self::Urlencoded(fields) => urlencoded(fields, value)?,
            Self::Multipart(kind, fields) => multipart(kind, fields, value)?,
            Self::Text(kind) | Self::Base64(kind) => (kind.clone(), text_of(value).into()),
            Self::Bytes(kind) => (kind.clone(), bytes(value)?.into()),
            Self::TypedBytes => {
                let data = value.get("data").unwrap_or(&Value::Null);
                (text(value, "media_type").to_owned(), bytes(data)?.into())
            }
        };
        Ok(Some((media_type(&kind)?, body)))
    }
}

/// Converts a value to a string. A list or an object, for which no style says how it is nested, is written as JSON.
pub(super) fn text_of(value: &Value) -> String {
    plain(value).unwrap_or_else(|_| value.to_string())
}

/// Encodes nested objects in the common bracket notation: `a[b][c]=1`.
pub(super) fn deep(name: &str, value: &Value, pairs: &mut Vec<Pair>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                deep(&format!("{name}[{member}]"), value, pairs);
            }
        }
        Value::Array(items) => {
            for (position, value) in items.iter().enumerate() {
                deep(&format!("{name}[{position}]"), value, pairs);
            }
        }
        value => pairs.push(Pair::new(name, text_of(value))),
    }
}

fn urlencoded(fields: &[Field], value: &Value) -> Result<(String, Bytes), String> {
    let mut pairs = Vec::new();
    for (name, value) in value.as_object().ok_or("the body must be an object")? {
        let field = fields.iter().find(|field| field.name == *name);
        let is_json = field
            .and_then(|field| field.content_type.as_deref())
            .is_some_and(|kind| is_json(&essence(kind)));
        match (value, field.map_or(Lists::Repeated, |field| field.lists)) {
            (Value::Null, _) => {}
            (value, _) if is_json => pairs.push(Pair::new(name, value.to_string())),
            (Value::Array(items), Lists::Repeated) => {
                for (position, item) in items.iter().enumerate() {
                    match item {
                        Value::Object(_) | Value::Array(_) => {
                            deep(&format!("{name}[{position}]"), item, &mut pairs);
                        }
                        item => pairs.push(Pair::new(name, text_of(item))),
                    }
                }
            }
            (Value::Array(items), Lists::Joined(delimiter)) => pairs.push(Pair {
                name: name.clone(),
                parts: items.iter().map(text_of).collect(),
                delimiter,
            }),
            (value, _) => deep(name, value, &mut pairs),
        }
    }
    let mut form = String::new();
    for pair in pairs {
        pair.write(false, &mut form);
    }
    let kind = "application/x-www-form-urlencoded".to_owned();
    Ok((kind, form.into()))
}

fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().ok_or("bytes have to be a text in Base64")?;
    STANDARD
        .decode(text.trim())
        .map_err(|_| "bytes have to be a text in Base64, with its padding".to_owned())
}

/// Encodes a form as multipart (RFC 7578). The parts keep the document's order, since some APIs accept a file only
/// after its metadata.
fn multipart(kind: &str, fields: &[Field], value: &Value) -> Result<(String, Bytes), String> {
    let members = value.as_object().ok_or("the body must be an object")?;
    let random = getrandom::u64().map_err(|_| "the system has no randomness")?;
    let boundary = format!("longshore-{random:016x}");
    let mut body = Vec::new();
    let place = |name: &str| {
        let known = fields.iter().position(|field| field.name == name);
        known.unwrap_or(fields.len())
    };
    let mut ordered: Vec<_> = members.iter().collect();
    ordered.sort_by_key(|(name, _)| place(name));
    for (name, value) in ordered {
        let field = fields.iter().find(|field| field.name == *name);
        let several = match value {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        for value in several {
            part(&mut body, &boundary, name, field, value)
                .map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("{kind}; boundary={boundary}"), body.into()))
}

fn part(
    body: &mut Vec<u8>,
    boundary: &str,
    name: &str,
    field: Option<&Field>,
    value: &Value,
) -> Result<(), String> {
    let is_file = field.is_some_and(|field| field.is_file);
    let mut kind = field.and_then(|field| field.content_type.clone());
    let mut file_name = name.to_owned();
    let (content, default) = match value {
        Value::Object(file) if is_file => {
            if let Some(name) = file.get("filename").and_then(Value::as_str) {
                file_name = name.to_owned();
            }
            if let Some(own) = file.get("media_type").and_then(Value::as_str) {
                media_type(own)?;
                kind = Some(own.to_owned());
            }
            let data = file.get("data").unwrap_or(&Value::Null);
            (bytes(data)?, Some(BYTES))
        }
        value if is_file => (bytes(value)?, Some(BYTES)),
        Value::Object(_) | Value::Array(_) => {
            (value.to_string().into_bytes(), Some("application/json"))
        }
        value => (text_of(value).into_bytes(), None),
    };
    let kind = kind
        .filter(|kind| !kind.contains('*'))
        .or_else(|| default.map(str::to_owned));
    let name = in_quotes(name);
    let mut head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"");
    if is_file {
        head.push_str(&format!("; filename=\"{}\"", in_quotes(&file_name)));
    }
    if let Some(kind) = kind {
        head.push_str(&format!("\r\nContent-Type: {kind}"));
    }
    if field.is_some_and(|field| field.names_base64) {
        head.push_str("\r\nContent-Transfer-Encoding: base64");
    }
    head.push_str("\r\n\r\n");
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(&content);
    body.extend_from_slice(b"\r\n");
    Ok(())
}

/// Quotes a name as browsers do (RFC 7578, 4.2).
fn in_quotes(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}
