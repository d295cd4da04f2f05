//! From a call's arguments to the request that an operation describes.

use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use url::Url;

use super::form::{Form, deep, text_of};
use super::operation::BODY;
use crate::net::Outgoing;
use crate::source::http::assemble;
use crate::source::template::path_segment;

/// How an operation's arguments become a request.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Form,
}

impl Style {
    fn explodes(self) -> bool {
        matches!(
            self,
            Self::Simple { explode: true }
                | Self::Label { explode: true }
                | Self::Matrix { explode: true }
                | Self::Form { explode: true }
        )
    }
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
    Simple {
        explode: bool,
    },
    /// `.a.b`
    Label {
        explode: bool,
    },
    /// `;name=a`
    Matrix {
        explode: bool,
    },
    Form {
        explode: bool,
    },
    Delimited(char),
    DeepObject,
    Json,
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
        let in_the_path = |parameter: &&Parameter| parameter.location == Location::Path;
        for parameter in self.parameters.iter().filter(in_the_path) {
            // There is no path without it, so one that may be `null` has to be something all the same.
            let value = arguments.get(&parameter.argument).unwrap_or(&Value::Null);
            let text = in_path(parameter, value)
                .map_err(|problem| format!("{}: {problem}", parameter.argument))?;
            path = path.replace(&format!("{{{}}}", parameter.name), &text);
        }
        // Values are encoded, so this one is the document's.
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*path, None),
        };
        let mut url = assemble(base, path, query)?;
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
                // One that the document has is sent as it is; one of an argument's could be anything.
                if name == parameter.name {
                    cookies.push(format!("{name}={text}"));
                } else {
                    let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
                    cookies.push(format!("{name}={text}"));
                }
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
    if value.is_null() {
        return Err("a value in a path is empty".to_owned());
    }
    if parameter.style == Style::Json {
        return path_segment(&value.to_string());
    }
    let segment = |value: &Value| path_segment(&text_of(value)?);
    let (parts, explode) = match value {
        Value::Array(items) => {
            let parts: Result<Vec<String>, String> = items.iter().map(segment).collect();
            (parts?, parameter.style.explodes())
        }
        Value::Object(members) => {
            let mut parts = Vec::new();
            for (name, value) in members {
                let (name, value) = (path_segment(name)?, segment(value)?);
                if parameter.style.explodes() {
                    parts.push(format!("{name}={value}"));
                } else {
                    parts.extend([name, value]);
                }
            }
            (parts, parameter.style.explodes())
        }
        value => (vec![segment(value)?], false),
    };
    if parts.is_empty() {
        return Err("a value in a path is empty".to_owned());
    }
    let name = utf8_percent_encode(&parameter.name, NON_ALPHANUMERIC);
    Ok(match parameter.style {
        Style::Label { .. } => format!(".{}", parts.join(if explode { "." } else { "," })),
        Style::Matrix { .. } if explode && value.is_object() => format!(";{}", parts.join(";")),
        Style::Matrix { .. } if explode => {
            parts.iter().map(|part| format!(";{name}={part}")).collect()
        }
        Style::Matrix { .. } => format!(";{name}={}", parts.join(",")),
        _ => parts.join(","),
    })
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
