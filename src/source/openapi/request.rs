//! From a call's arguments to the request that an operation describes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use url::Url;

use super::operation::BODY;
use crate::net::Outgoing;
use crate::source::http::assemble;
use crate::source::template::{path_segment, plain};

/// How an operation's arguments become a request.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Form,
}

/// One parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    /// What the API calls it.
    pub(super) name: String,
    /// What the tool calls it.
    pub(super) argument: String,
    pub(super) location: Location,
    pub(super) style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Path,
    Query,
    Header,
    Cookie,
}

impl Location {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

/// How lists and objects are written (OpenAPI, Style Values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Simple { explode: bool },
    Form { explode: bool },
    Delimited(char),
    DeepObject,
    Json,
}

/// How the body is written.
#[derive(Debug)]
pub(super) enum Form {
    None,
    Json(String),
    Urlencoded,
    Multipart(Vec<Field>),
    Text(String),
    Bytes(String),
}

/// A field of a multipart form.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) is_file: bool,
    pub(super) content_type: Option<String>,
}

impl Shape {
    /// The request for these arguments.
    ///
    /// # Errors
    ///
    /// A value that cannot be written where it has to be.
    pub(super) fn fill(
        &self,
        base: &Url,
        arguments: &Map<String, Value>,
    ) -> Result<Outgoing, String> {
        let given = |location| {
            self.parameters
                .iter()
                .filter(move |parameter| parameter.location == location)
                .filter_map(|parameter| Some((parameter, arguments.get(&parameter.argument)?)))
                .filter(|(_, value)| !value.is_null())
        };
        let mut path = self.path.clone();
        for (parameter, value) in given(Location::Path) {
            let text = in_path(parameter, value)
                .map_err(|problem| format!("{}: {problem}", parameter.argument))?;
            path = path.replace(&format!("{{{}}}", parameter.name), &text);
        }
        let mut url = assemble(base, &path, None)?;
        for (parameter, value) in given(Location::Query) {
            let pairs = in_query(parameter, value)
                .map_err(|problem| format!("{}: {problem}", parameter.argument))?;
            url.query_pairs_mut().extend_pairs(pairs);
        }
        if url.query() == Some("") {
            url.set_query(None);
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, */*;q=0.5"),
        );
        for (parameter, value) in given(Location::Header) {
            let name = HeaderName::try_from(&*parameter.name)
                .map_err(|_| format!("{} is no name of a header", parameter.name))?;
            headers.insert(name, header(&in_header(value, parameter.style)?)?);
        }
        let mut cookies = Vec::new();
        for (parameter, value) in given(Location::Cookie) {
            for (name, text) in in_query(parameter, value)? {
                let text = utf8_percent_encode(&text, NON_ALPHANUMERIC);
                cookies.push(format!("{name}={text}"));
            }
        }
        if !cookies.is_empty() {
            headers.insert(COOKIE, header(&cookies.join("; "))?);
        }
        let mut request = Outgoing::new(self.method.clone(), url);
        request.headers = headers;
        if let Some(value) = arguments.get(BODY)
            && let Some((kind, body)) = self.body.fill(value)?
        {
            request.headers.insert(CONTENT_TYPE, header(&kind)?);
            request.body = body;
        }
        Ok(request)
    }
}

fn header(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| "a value has characters that no header can hold".to_owned())
}

fn in_path(parameter: &Parameter, value: &Value) -> Result<String, String> {
    let segments: Vec<String> = match (value, parameter.style) {
        (Value::Array(items), _) => items.iter().map(text_of).collect::<Result<_, _>>()?,
        (Value::Object(members), Style::Simple { explode }) => {
            let between = if explode { "=" } else { "," };
            let mut parts = Vec::new();
            for (name, value) in members {
                let value = path_segment(&text_of(value)?)?;
                parts.push(format!("{}{between}{value}", path_segment(name)?));
            }
            return not_empty(parts.join(","));
        }
        (value, Style::Json) => return path_segment(&value.to_string()),
        (value, _) => vec![text_of(value)?],
    };
    let encoded = segments.iter().map(|text| path_segment(text));
    not_empty(encoded.collect::<Result<Vec<_>, _>>()?.join(","))
}

fn not_empty(text: String) -> Result<String, String> {
    if text.is_empty() {
        return Err("a value in a path is empty".to_owned());
    }
    Ok(text)
}

fn in_query(parameter: &Parameter, value: &Value) -> Result<Vec<(String, String)>, String> {
    let name = || parameter.name.clone();
    match (value, parameter.style) {
        (value, Style::Json) => Ok(vec![(name(), value.to_string())]),
        (Value::Array(items), Style::Form { explode: true }) => items
            .iter()
            .map(|item| Ok((name(), text_of(item)?)))
            .collect(),
        (Value::Array(items), Style::DeepObject) => items
            .iter()
            .map(|item| Ok((format!("{}[]", parameter.name), text_of(item)?)))
            .collect(),
        (Value::Array(items), style) => {
            let between = match style {
                Style::Delimited(c) => c.to_string(),
                _ => ",".to_owned(),
            };
            let texts = items.iter().map(text_of).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![(name(), texts.join(&between))])
        }
        (Value::Object(members), Style::DeepObject) => {
            let mut pairs = Vec::new();
            for (member, value) in members {
                deep(&format!("{}[{member}]", parameter.name), value, &mut pairs)?;
            }
            Ok(pairs)
        }
        (Value::Object(members), Style::Form { explode: true }) => members
            .iter()
            .map(|(member, value)| Ok((member.clone(), text_of(value)?)))
            .collect(),
        (Value::Object(members), _) => {
            let mut parts = Vec::new();
            for (member, value) in members {
                parts.push(member.clone());
                parts.push(text_of(value)?);
            }
            Ok(vec![(name(), parts.join(","))])
        }
        (value, _) => Ok(vec![(name(), text_of(value)?)]),
    }
}

/// Objects within objects, as forms of many frameworks have them: `a[b][c]=1`.
fn deep(name: &str, value: &Value, pairs: &mut Vec<(String, String)>) -> Result<(), String> {
    match value {
        Value::Object(members) => members
            .iter()
            .try_for_each(|(member, value)| deep(&format!("{name}[{member}]"), value, pairs)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(position, value)| deep(&format!("{name}[{position}]"), value, pairs)),
        value => {
            pairs.push((name.to_owned(), text_of(value)?));
            Ok(())
        }
    }
}

fn in_header(value: &Value, style: Style) -> Result<String, String> {
    match (value, style) {
        (value, Style::Json) => Ok(value.to_string()),
        (Value::Array(items), _) => Ok(items
            .iter()
            .map(text_of)
            .collect::<Result<Vec<_>, _>>()?
            .join(",")),
        (Value::Object(members), style) => {
            let between = if style == (Style::Simple { explode: true }) {
                "="
            } else {
                ","
            };
            let parts = members
                .iter()
                .map(|(name, value)| Ok(format!("{name}{between}{}", text_of(value)?)));
            Ok(parts.collect::<Result<Vec<_>, String>>()?.join(","))
        }
        (value, _) => text_of(value),
    }
}

fn text_of(value: &Value) -> Result<String, String> {
    plain(value)
}

impl Form {
    fn fill(&self, value: &Value) -> Result<Option<(String, Bytes)>, String> {
        match self {
            Self::None => Ok(None),
            Self::Json(kind) => Ok(Some((kind.clone(), value.to_string().into()))),
            Self::Urlencoded => {
                let mut pairs = Vec::new();
                for (name, value) in value.as_object().ok_or("the body has to be an object")? {
                    match value {
                        Value::Null => {}
                        Value::Array(items) => {
                            for (position, item) in items.iter().enumerate() {
                                match item {
                                    Value::Object(_) | Value::Array(_) => {
                                        deep(&format!("{name}[{position}]"), item, &mut pairs)?;
                                    }
                                    item => pairs.push((name.clone(), text_of(item)?)),
                                }
                            }
                        }
                        value => deep(name, value, &mut pairs)?,
                    }
                }
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                form.extend_pairs(pairs);
                Ok(Some((
                    "application/x-www-form-urlencoded".to_owned(),
                    form.finish().into(),
                )))
            }
            Self::Multipart(fields) => multipart(fields, value).map(Some),
            Self::Text(kind) => Ok(Some((kind.clone(), text_of(value)?.into()))),
            Self::Bytes(kind) => Ok(Some((kind.clone(), bytes(value)?.into()))),
        }
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().ok_or("bytes have to be a text in Base64")?;
    STANDARD
        .decode(text.trim())
        .map_err(|_| "bytes have to be a text in Base64, with its padding".to_owned())
}

/// A form whose parts have types (RFC 7578).
fn multipart(fields: &[Field], value: &Value) -> Result<(String, Bytes), String> {
    let members = value.as_object().ok_or("the body has to be an object")?;
    let random = getrandom::u64().map_err(|_| "there is no randomness to be had")?;
    let boundary = format!("longshore-{random:016x}");
    let mut body = Vec::new();
    for (name, value) in members {
        let field = fields.iter().find(|field| field.name == *name);
        let several = match value {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        for value in several {
            part(&mut body, &boundary, name, field, value)?;
        }
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((
        format!("multipart/form-data; boundary={boundary}"),
        body.into(),
    ))
}

fn part(
    body: &mut Vec<u8>,
    boundary: &str,
    name: &str,
    field: Option<&Field>,
    value: &Value,
) -> Result<(), String> {
    let is_file = field.is_some_and(|field| field.is_file);
    let own = field.and_then(|field| field.content_type.clone());
    let (content, default) = match value {
        value if is_file => (bytes(value)?, Some("application/octet-stream")),
        Value::Object(_) | Value::Array(_) => {
            (value.to_string().into_bytes(), Some("application/json"))
        }
        value => (text_of(value)?.into_bytes(), None),
    };
    let kind = own
        .or_else(|| default.map(str::to_owned))
        .filter(|kind| !kind.contains(['\r', '\n', '*']));
    // As browsers write names (RFC 7578, 4.2).
    let name = name
        .replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    let mut head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"");
    if is_file {
        head.push_str(&format!("; filename=\"{name}\""));
    }
    if let Some(kind) = kind {
        head.push_str(&format!("\r\nContent-Type: {kind}"));
    }
    head.push_str("\r\n\r\n");
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(&content);
    body.extend_from_slice(b"\r\n");
    Ok(())
}
