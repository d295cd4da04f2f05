//! HTTP headers that repeat parts of the body for intermediaries (2026-07-28, transports).

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::text::truncated;
use crate::catalog::{HeaderParameter, ParameterKind};
use crate::protocol::{Method, Revision};
use crate::seal::Session;

/// Headers that MCP defines, collected in one pass.
#[derive(Debug, Default)]
pub struct McpHeaders {
    pub(super) version: SingleHeader,
    pub(super) session: SingleHeader,
    pub(super) method: SingleHeader,
    pub(super) name: SingleHeader,
    /// The session named by the headers, after it was opened. `None` if the headers belong to one request only.
    opened: Option<OnceLock<Arc<Session>>>,
}

/// A header that may occur once.
#[derive(Debug, Default)]
pub(super) enum SingleHeader {
    #[default]
    Absent,
    /// A value that the specification defines.
    Known(&'static str),
    /// Another value; it shares the received bytes.
    One(HeaderValue),
    Repeated,
}

impl McpHeaders {
    /// Adds a header. Returns false if MCP does not define it. `name` is lower-case.
    #[inline]
    pub fn add(&mut self, name: &str, value: &HeaderValue) -> bool {
        match name {
            "mcp-protocol-version" => self
                .version
                .add_word(value, |word| Revision::parse(word).map(Revision::as_str)),
            "mcp-session-id" => self.session.add(value),
            "mcp-method" => self
                .method
                .add_word(value, |word| Method::parse(word).map(Method::as_str)),
            "mcp-name" => self.name.add(value),
            _ => return false,
        }
        true
    }

    /// Copies the headers for later requests with an equal head to the same endpoint. The copy shares no received
    /// bytes and caches the session.
    pub fn to_keep(&self) -> Self {
        Self {
            version: self.version.to_keep(),
            session: self.session.to_keep(),
            method: self.method.to_keep(),
            name: self.name.to_keep(),
            opened: Some(OnceLock::new()),
        }
    }

    /// Returns the session: the cached one, or the result of `open`.
    #[inline]
    pub(super) fn opened(
        &self,
        open: impl FnOnce() -> Option<Arc<Session>>,
    ) -> Option<Arc<Session>> {
        let Some(opened) = &self.opened else {
            return open();
        };
        if let Some(session) = opened.get() {
            return Some(Arc::clone(session));
        }
        let session = open()?;
        Some(Arc::clone(opened.get_or_init(|| session)))
    }

    /// Returns true if a session header is present, valid or not.
    pub fn names_session(&self) -> bool {
        !matches!(self.session, SingleHeader::Absent)
    }

    /// Classifies `MCP-Protocol-Version` by lifecycle.
    #[inline]
    pub fn version(&self) -> VersionHeader {
        match self.version.read() {
            HeaderValueState::Absent => VersionHeader::Absent,
            HeaderValueState::Text(text) => match Revision::parse(&text) {
                Some(revision) if revision.has_sessions() => VersionHeader::WithSessions,
                Some(_) => VersionHeader::Stateless,
                None => VersionHeader::Unknown,
            },
            HeaderValueState::Repeated | HeaderValueState::Invalid(_) => VersionHeader::Unknown,
        }
    }
}

impl SingleHeader {
    #[inline]
    fn add(&mut self, value: &HeaderValue) {
        *self = match self {
            Self::Absent => Self::One(value.clone()),
            _ => Self::Repeated,
        };
    }

    /// Adds a header that usually has a value defined by the specification; such values need no reference count.
    #[inline]
    fn add_word(&mut self, value: &HeaderValue, known: impl FnOnce(&str) -> Option<&'static str>) {
        let word = std::str::from_utf8(value.as_bytes()).ok().and_then(known);
        match (&self, word) {
            (Self::Absent, Some(word)) => *self = Self::Known(word),
            _ => self.add(value),
        }
    }

    /// Received bytes keep their whole read buffer alive, so they are copied.
    fn to_keep(&self) -> Self {
        match self {
            Self::Absent => Self::Absent,
            Self::Known(word) => Self::Known(word),
            Self::Repeated => Self::Repeated,
            Self::One(value) => {
                let copied = HeaderValue::from_bytes(value.as_bytes());
                Self::One(copied.unwrap_or_else(|_| value.clone()))
            }
        }
    }

    /// Value with surrounding blanks removed (HTTP-09).
    #[inline]
    pub(super) fn read(&self) -> HeaderValueState<'_> {
        match self {
            Self::Absent => HeaderValueState::Absent,
            Self::Repeated => HeaderValueState::Repeated,
            Self::Known(word) => HeaderValueState::Text(Cow::Borrowed(word)),
            Self::One(value) => read_value(value),
        }
    }
}

/// Value of a header.
#[derive(Debug, PartialEq, Eq)]
pub enum HeaderValueState<'a> {
    Absent,
    Text(Cow<'a, str>),
    /// MH-22: the header occurs more than once. Intermediaries may have read either value.
    Repeated,
    Invalid(&'static str),
}

/// Lifecycle that `MCP-Protocol-Version` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionHeader {
    Absent,
    /// A revision with sessions. The session determines which one.
    WithSessions,
    /// The stateless revision.
    Stateless,
    /// An unknown revision, or several headers.
    Unknown,
}

/// Reads a header.
pub fn read<'h>(headers: &'h HeaderMap, name: &HeaderName) -> HeaderValueState<'h> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => HeaderValueState::Absent,
        (Some(value), None) => read_value(value),
        (Some(_), Some(_)) => HeaderValueState::Repeated,
    }
}

#[inline]
fn read_value(value: &HeaderValue) -> HeaderValueState<'_> {
    match value.to_str() {
        Ok(text) => HeaderValueState::Text(Cow::Borrowed(text.trim_matches([' ', '\t']))),
        Err(_) => HeaderValueState::Invalid("has characters other than visible ASCII"),
    }
}

impl<'a> HeaderValueState<'a> {
    /// Decodes the Base64 form of values beyond visible ASCII: `=?base64?...?=` (MH-07 to MH-09). A value with only
    /// one of the two markers is literal.
    pub fn decoded(self) -> Self {
        let Self::Text(text) = &self else {
            return self;
        };
        let encoded = text
            .strip_prefix("=?base64?")
            .and_then(|t| t.strip_suffix("?="));
        let Some(encoded) = encoded else {
            return self;
        };
        let decoded = STANDARD
            .decode(encoded)
            .ok()
            .and_then(|b| String::from_utf8(b).ok());
        match decoded {
            Some(text) => Self::Text(Cow::Owned(text)),
            None => Self::Invalid("is not valid Base64 of UTF-8 between =?base64? and ?="),
        }
    }
}

/// Compares the arguments of a call with their headers. Returns a description of the first difference.
pub(super) fn check_parameters(
    parameters: &[HeaderParameter],
    arguments: &str,
    headers: &HeaderMap,
) -> Result<(), String> {
    // Arguments that are not an object fail validation later.
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    for parameter in parameters {
        let argument = parameter
            .path
            .iter()
            .try_fold(&arguments, |value, key| value.get(key))
            .filter(|value| !value.is_null());
        let header = read(headers, &parameter.header).decoded();
        let problem = match (argument, header) {
            (None, HeaderValueState::Absent) => continue,
            (Some(argument), HeaderValueState::Text(text))
                if is_text_of(&text, argument, parameter.kind) =>
            {
                continue;
            }
            (Some(_), HeaderValueState::Text(text)) => {
                format!("is '{}', but the argument is different", truncated(&text))
            }
            (None, HeaderValueState::Text(_)) => "is set, but the argument is absent".to_owned(),
            (Some(_), HeaderValueState::Absent) => "is missing, but the argument is set".to_owned(),
            (_, HeaderValueState::Repeated) => "appears more than once".to_owned(),
            (_, HeaderValueState::Invalid(reason)) => reason.to_owned(),
        };
        let argument = parameter.path.join(".");
        return Err(format!(
            "Header mismatch: {} for argument '{argument}' {problem}",
            parameter.header
        ));
    }
    Ok(())
}

/// Returns true if the header equals the argument. Integers are compared by value: `42.0` is 42 (MH-12).
///
/// The argument may have another type than the parameter. It is rejected later, by an error that the model can read.
fn is_text_of(text: &str, argument: &Value, kind: ParameterKind) -> bool {
    match (kind, argument) {
        (_, Value::String(argument)) => text == argument,
        (_, Value::Bool(argument)) => text == if *argument { "true" } else { "false" },
        (ParameterKind::Integer, Value::Number(argument)) => {
            let by_value = || Some(text.parse::<f64>().ok()? == argument.as_f64()?);
            // Different integers beyond 2^53 can have the same f64, so they are compared by digits.
            text == argument.to_string()
                || text.contains('.') && by_value().unwrap_or(false)
                || argument.is_f64() && by_value().unwrap_or(false)
        }
        (_, Value::Number(argument)) => text == argument.to_string(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                *name,
                HeaderValue::from_bytes(value.as_bytes()).expect("a header value"),
            );
        }
        headers
    }

    fn name(value: &str) -> HeaderValueState<'static> {
        let headers = headers(&[("mcp-name", value)]);
        match once(&headers).read().decoded() {
            HeaderValueState::Text(text) => HeaderValueState::Text(Cow::Owned(text.into_owned())),
            HeaderValueState::Absent => HeaderValueState::Absent,
            HeaderValueState::Repeated => HeaderValueState::Repeated,
            HeaderValueState::Invalid(reason) => HeaderValueState::Invalid(reason),
        }
    }

    fn once(headers: &HeaderMap) -> SingleHeader {
        let mut found = McpHeaders::default();
        for (name, value) in headers {
            found.add(name.as_str(), value);
        }
        found.name
    }

    #[test]
    fn mh_07_base64_is_undone_where_both_markers_are_there() {
        for (value, text) in [
            ("us-west1", "us-west1"),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, \u{4e16}\u{754c}"),
            ("=?base64?IHBhZGRlZCA=?=", " padded "),
            ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
            ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
            ("  test_simple_text\t ", "test_simple_text"),
            ("", ""),
        ] {
            assert_eq!(name(value), HeaderValueState::Text(text.into()), "{value}");
        }
    }

    #[test]
    fn mh_08_bad_base64_and_characters_are_refused() {
        for value in [
            "=?base64?SGVsbG8?=",
            "=?base64?SGVs!!!bG8=?=",
            "=?base64?/w==?=",
            "caf\u{e9}",
        ] {
            assert!(
                matches!(name(value), HeaderValueState::Invalid(_)),
                "{value}"
            );
        }
    }

    #[test]
    fn mh_09_values_with_one_marker_are_literal() {
        for value in [
            "SGVsbG8=",
            "=?base64?SGVsbG8=",
            "SGVsbG8=?=",
            "=?BASE64?SGVsbG8=?=",
        ] {
            assert_eq!(name(value), HeaderValueState::Text(value.into()));
        }
    }

    #[test]
    fn mh_22_repeated_headers_are_refused() {
        let headers = headers(&[("mcp-name", "a"), ("mcp-name", "a")]);
        assert_eq!(once(&headers).read(), HeaderValueState::Repeated);
    }

    fn parameter(kind: ParameterKind) -> HeaderParameter {
        HeaderParameter {
            header: HeaderName::from_static("mcp-param-v"),
            path: vec!["a".to_owned(), "v".to_owned()],
            kind,
        }
    }

    #[test]
    fn mh_10_to_12_arguments_and_headers_agree() {
        use ParameterKind::{Boolean, Integer, String};
        let check = |kind, argument: Value, header: Option<&str>| {
            let arguments = json!({"a": {"v": argument}}).to_string();
            let pairs: Vec<_> = header.map(|h| ("mcp-param-v", h)).into_iter().collect();
            check_parameters(&[parameter(kind)], &arguments, &headers(&pairs)).is_ok()
        };
        assert!(check(String, json!("x"), Some("x")));
        assert!(check(String, json!(""), Some("")));
        assert!(!check(String, json!("x"), Some("X")));
        assert!(!check(String, json!("x"), None));
        assert!(check(String, json!(null), None));
        assert!(!check(String, json!(null), Some("x")));
        assert!(check(Integer, json!(42), Some("42")));
        assert!(check(Integer, json!(42), Some("42.0")));
        assert!(check(Integer, json!(42.0), Some("42")));
        assert!(!check(Integer, json!(42), Some("43")));
        assert!(!check(
            Integer,
            json!(9_007_199_254_740_993_u64),
            Some("9007199254740992")
        ));
        assert!(check(Boolean, json!(true), Some("true")));
        assert!(!check(Boolean, json!(true), Some("1")));
        for kind in [String, Integer, Boolean] {
            assert!(check(kind, json!(5), Some("5")) && check(kind, json!(true), Some("true")));
            assert!(!check(kind, json!(5), Some("6")) && !check(kind, json!({}), Some("{}")));
        }
        assert!(check_parameters(&[parameter(String)], "{}", &HeaderMap::new()).is_ok());
    }
}
