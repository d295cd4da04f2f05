//! Construction of an operation's request from a call's arguments.

use std::convert::Infallible;

use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use url::Url;

use super::form::{Form, deep, text_of};
use crate::net::OutgoingRequest;
use crate::source::http::assemble;
use crate::source::template::path_segment;

/// Mapping from an operation's arguments to a request.
#[derive(Debug)]
pub(super) struct RequestMapping {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Form,
}

/// Name of the argument for the body.
pub(super) const BODY: &str = "body";

/// A parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Name in the API.
    pub(super) name: String,
    /// Name of the tool's argument.
    pub(super) argument: String,
    pub(super) location: Location,
    pub(super) style: Style,
    /// Writes each element of a list, and each member of an object, as a value of its own.
    pub(super) explode: bool,
    /// Sends reserved URL characters in its values without encoding (`allowReserved`).
    pub(super) reserved: bool,
}

/// Characters that are encoded in a query: all but the unreserved ones of RFC 3986.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Characters that are encoded in a query with `allowReserved` (OpenAPI 3.1.1, Parameter Object and appendix E). They
/// include those that would end a value (`&`, `#`), that are read as another one (`+`), or that are invalid in a
/// query (`[`, `]`).
const RESERVED: &AsciiSet = &QUERY
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

/// A name in a query, a form or a cookie with its values. The delimiter between the values is not part of them.
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) parts: Vec<String>,
    pub(super) delimiter: Delimiter,
}

/// Delimiter between list elements: unencoded, and as encoded in a query.
pub(super) type Delimiter = (&'static str, &'static str);

pub(super) const COMMA: Delimiter = (",", ",");
pub(super) const SPACE: Delimiter = (" ", "%20");
pub(super) const PIPE: Delimiter = ("|", "%7C");

impl Pair {
    pub(super) fn new(name: impl Into<String>, value: String) -> Self {
        Self {
            name: name.into(),
            parts: vec![value],
            delimiter: COMMA,
        }
    }

    /// Returns the value as text. The delimiter can also occur in an element.
    fn text(&self) -> String {
        self.parts.join(self.delimiter.0)
    }

    /// Appends the pair to a query or a form. The values are encoded, the delimiter is not.
    pub(super) fn write(&self, reserved: bool, query: &mut String) {
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(&in_url(&self.name, false));
        query.push('=');
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| in_url(part, reserved))
            .collect();
        query.push_str(&parts.join(self.delimiter.1));
    }
}

/// Encodes a text for a query or a form.
fn in_url(text: &str, reserved: bool) -> String {
    let set = if reserved { RESERVED } else { QUERY };
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    // With `allowReserved`, existing percent escapes are kept.
    while let Some(at) = rest.find('%').filter(|_| reserved) {
        let (before, after) = rest.split_at(at);
        written.extend(utf8_percent_encode(before, set));
        let is_triplet = after
            .get(1..3)
            .is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        written.push_str(if is_triplet { "%" } else { "%25" });
        rest = &after[1..];
    }
    written.extend(utf8_percent_encode(rest, set));
    written
}

longshore_protocol::named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Location {
        Path = "path",
        Query = "query",
        Header = "header",
        Cookie = "cookie",
    }
    pub(super) fn as_str;
    pub(super) fn parse;
    pub(super) const ALL;
}

/// Serialization of lists and objects (OpenAPI, Style Values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    /// `.a.b`
    Label,
    /// `;name=a`
    Matrix,
    Form,
    Delimited(Delimiter),
    DeepObject,
    Json,
}

impl RequestMapping {
    /// Builds the request for these arguments.
    ///
    /// # Errors
    ///
    /// A value cannot be encoded in its position.
    pub(super) fn fill(
        &self,
        base: &Url,
        arguments: &Map<String, Value>,
    ) -> Result<OutgoingRequest, String> {
        let given = |location| {
            self.parameters
                .iter()
                .filter(move |parameter| parameter.location == location)
                .filter_map(|parameter| Some((parameter, arguments.get(&parameter.argument)?)))
                .filter(|(parameter, value)| !is_undefined(value, parameter.style))
        };
        let mut path = self.path.clone();
        let in_the_path = |parameter: &&Parameter| parameter.location == Location::Path;
        for parameter in self.parameters.iter().filter(in_the_path) {
            // A path needs a value here, even if the parameter can be `null`.
            let value = arguments.get(&parameter.argument).unwrap_or(&Value::Null);
            let text = in_path(parameter, value)
                .map_err(|problem| format!("{}: {problem}", parameter.argument))?;
            path = path.replace(&format!("{{{}}}", parameter.name), &text);
        }
        // Values are encoded, so this question mark is the document's.
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*path, None),
        };
        let mut url = assemble(base, path, query)?;
        let mut query = url.query().unwrap_or_default().to_owned();
        for (parameter, value) in given(Location::Query) {
            for pair in pairs_of(parameter, value) {
                pair.write(parameter.reserved, &mut query);
            }
        }
        url.set_query(Some(&*query).filter(|query| !query.is_empty()));
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, */*;q=0.5"),
        );
        for (parameter, value) in given(Location::Header) {
            let name = HeaderName::try_from(&*parameter.name)
                .map_err(|_| format!("{} is not a valid header name", parameter.name))?;
            let value = header(&in_header(parameter, value))
                .map_err(|problem| format!("{}: {problem}", parameter.argument))?;
            headers.insert(name, value);
        }
        let mut cookies = Vec::new();
        for (parameter, value) in given(Location::Cookie) {
            for pair in pairs_of(parameter, value) {
                let name = &pair.name;
                // Commas are not valid in a cookie value (RFC 6265, 4.1.1).
                let text = in_url(&pair.text(), false);
                // A cookie name from the document is sent unchanged; one from an argument could contain anything.
                if *name == parameter.name {
                    cookies.push(format!("{name}={text}"));
                } else {
                    cookies.push(format!("{}={text}", in_url(name, false)));
                }
            }
        }
        if !cookies.is_empty() {
            headers.insert(COOKIE, header(&cookies.join("; "))?);
        }
        let mut request = OutgoingRequest::new(self.method.clone(), url);
        request.headers = headers;
        let body = arguments
            .get(BODY)
            .map_or(Ok(None), |value| self.body.fill(value));
        if let Some((kind, bytes)) = body.map_err(|problem| format!("{BODY}: {problem}"))? {
            request.headers.insert(CONTENT_TYPE, kind);
            request.body = bytes;
        }
        Ok(request)
    }
}

/// Returns true if a value leaves its parameter out: null, and a list or object without values (RFC 6570, 2.3).
fn is_undefined(value: &Value, style: Style) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && style != Style::Json,
        Value::Object(members) => members.is_empty() && style != Style::Json,
        _ => false,
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
    let explode = parameter.explode;
    let parts = parts_of(value, explode, |text| path_segment(&text))?;
    if parts.is_empty() {
        return Err("a value in a path is empty".to_owned());
    }
    let name = in_url(&parameter.name, false);
    Ok(match parameter.style {
        Style::Label => format!(".{}", parts.join(if explode { "." } else { "," })),
        Style::Matrix if explode && value.is_object() => format!(";{}", parts.join(";")),
        Style::Matrix if explode => parts.iter().map(|part| format!(";{name}={part}")).collect(),
        Style::Matrix => format!(";{name}={}", parts.join(",")),
        _ => parts.join(","),
    })
}

/// Returns the pairs of a parameter in a query or a cookie.
fn pairs_of(parameter: &Parameter, value: &Value) -> Vec<Pair> {
    let name = &parameter.name;
    match (value, parameter.style) {
        (value, Style::Json) => vec![Pair::new(name, value.to_string())],
        (Value::Array(items), Style::Form) if parameter.explode => items
            .iter()
            .map(|item| Pair::new(name, text_of(item)))
            .collect(),
        (Value::Array(items), Style::DeepObject) => items
            .iter()
            .map(|item| Pair::new(format!("{name}[]"), text_of(item)))
            .collect(),
        (Value::Object(_), Style::DeepObject) => {
            let mut pairs = Vec::new();
            deep(name, value, &mut pairs);
            pairs
        }
        (Value::Object(members), Style::Form) if parameter.explode => members
            .iter()
            .map(|(member, value)| Pair::new(member, text_of(value)))
            .collect(),
        (Value::Array(_) | Value::Object(_), style) => vec![Pair {
            name: name.clone(),
            parts: plain_parts_of(value, false),
            delimiter: match style {
                Style::Delimited(delimiter) => delimiter,
                _ => COMMA,
            },
        }],
        (value, _) => vec![Pair::new(name, text_of(value))],
    }
}

fn in_header(parameter: &Parameter, value: &Value) -> String {
    match parameter.style {
        Style::Json => value.to_string(),
        _ => plain_parts_of(value, parameter.explode).join(","),
    }
}

fn plain_parts_of(value: &Value, explode: bool) -> Vec<String> {
    let Ok(parts) = parts_of(value, explode, Ok::<_, Infallible>);
    parts
}

/// Returns the encoded elements of a list, names and values of an object, or the only value. With `explode`, each name is
/// joined with its value.
fn parts_of<E>(
    value: &Value,
    explode: bool,
    encode: impl Fn(String) -> Result<String, E>,
) -> Result<Vec<String>, E> {
    let encoded = |value: &Value| encode(text_of(value));
    match value {
        Value::Array(items) => items.iter().map(encoded).collect(),
        Value::Object(members) => {
            let mut parts = Vec::new();
            for (name, value) in members {
                let (name, value) = (encode(name.clone())?, encoded(value)?);
                match explode {
                    true => parts.push(format!("{name}={value}")),
                    false => parts.extend([name, value]),
                }
            }
            Ok(parts)
        }
        value => Ok(vec![encoded(value)?]),
    }
}
