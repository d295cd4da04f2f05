//! Headers that repeat parts of the body for whoever stands in between (2026-07-28, transports).

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::truncated;
use crate::catalog::{HeaderParameter, ParameterKind};
use crate::protocol::{Method, Revision};
use crate::seal::Session;

/// The headers that the protocol gives a meaning to, found in one pass over all of them.
#[derive(Debug, Default)]
pub(crate) struct McpHeaders {
    pub(super) version: Once,
    pub(super) session: Once,
    pub(super) method: Once,
    pub(super) name: Once,
    /// The session that is named, once it was opened; `None` if the headers are those of one request alone.
    opened: Option<OnceLock<Arc<Session>>>,
}

/// A header that may stand there once.
#[derive(Debug, Default)]
pub(super) enum Once {
    #[default]
    Absent,
    /// A word of the specification's own.
    Known(&'static str),
    /// It shares the bytes that came in.
    One(HeaderValue),
    Repeated,
}

impl McpHeaders {
    /// Takes note of a header, if it is one of ours; says whether it is. `name` is in lower case.
    #[inline]
    pub(crate) fn add(&mut self, name: &str, value: &HeaderValue) -> bool {
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

    /// The same for later requests that have the same headers and go to the same endpoint. It shares no bytes with this
    /// one, and remembers the session that is named.
    pub(crate) fn to_keep(&self) -> Self {
        Self {
            version: self.version.to_keep(),
            session: self.session.to_keep(),
            method: self.method.to_keep(),
            name: self.name.to_keep(),
            opened: Some(OnceLock::new()),
        }
    }

    /// The session that is named: what `open` says, or what it said when these headers came before.
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

    /// Whether a session is named, be it one or not.
    pub(crate) fn names_session(&self) -> bool {
        !matches!(self.session, Once::Absent)
    }

    /// What `MCP-Protocol-Version` says, as far as lifecycles are concerned.
    #[inline]
    pub(crate) fn version(&self) -> VersionHeader {
        match self.version.read() {
            Mirrored::Absent => VersionHeader::Absent,
            Mirrored::Text(text) => match Revision::parse(&text) {
                Some(revision) if revision.has_sessions() => VersionHeader::WithSessions,
                Some(_) => VersionHeader::Stateless,
                None => VersionHeader::Unknown,
            },
            Mirrored::Repeated | Mirrored::Invalid(_) => VersionHeader::Unknown,
        }
    }
}

impl Once {
    #[inline]
    fn add(&mut self, value: &HeaderValue) {
        *self = match self {
            Self::Absent => Self::One(value.clone()),
            _ => Self::Repeated,
        };
    }

    /// Adds a header that nearly always says a word of the specification's: no reference to that has to be counted.
    #[inline]
    fn add_word(&mut self, value: &HeaderValue, known: impl FnOnce(&str) -> Option<&'static str>) {
        let word = std::str::from_utf8(value.as_bytes()).ok().and_then(known);
        match (&self, word) {
            (Self::Absent, Some(word)) => *self = Self::Known(word),
            _ => self.add(value),
        }
    }

    /// Bytes that came in keep the whole buffer that they came in.
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

    /// What it says, blanks around it trimmed (HTTP-09).
    #[inline]
    pub(super) fn read(&self) -> Mirrored<'_> {
        match self {
            Self::Absent => Mirrored::Absent,
            Self::Repeated => Mirrored::Repeated,
            Self::Known(word) => Mirrored::Text(Cow::Borrowed(word)),
            Self::One(value) => read_value(value),
        }
    }
}

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mirrored<'a> {
    Absent,
    Text(Cow<'a, str>),
    /// MH-22: there is more than one, and no telling which one was read elsewhere.
    Repeated,
    Invalid(&'static str),
}

/// What `MCP-Protocol-Version` says, as far as lifecycles are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionHeader {
    Absent,
    /// A revision with sessions. Which one does not matter: the session's own counts.
    WithSessions,
    /// The revision without.
    Stateless,
    /// No revision that is known here, or several at once.
    Unknown,
}

/// Reads a header.
pub(crate) fn read<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Mirrored<'h> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Mirrored::Absent,
        (Some(value), None) => read_value(value),
        (Some(_), Some(_)) => Mirrored::Repeated,
    }
}

#[inline]
fn read_value(value: &HeaderValue) -> Mirrored<'_> {
    match value.to_str() {
        Ok(text) => Mirrored::Text(Cow::Borrowed(text.trim_matches([' ', '\t']))),
        Err(_) => Mirrored::Invalid("has characters other than visible ASCII"),
    }
}

impl<'a> Mirrored<'a> {
    /// Undoes the Base64 form that values beyond visible ASCII take: `=?base64?...?=`, with both markers
    /// (MH-07 to MH-09). What has only one of them is meant literally.
    pub(crate) fn decoded(self) -> Self {
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

/// Compares the arguments of a call with the headers that mirror them; says what differs.
pub(super) fn check_parameters(
    parameters: &[HeaderParameter],
    arguments: &str,
    headers: &HeaderMap,
) -> Result<(), String> {
    // Arguments that are no object are refused later, by the schema.
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    for parameter in parameters {
        let argument = parameter
            .path
            .iter()
            .try_fold(&arguments, |value, key| value.get(key))
            .filter(|value| !value.is_null());
        let header = read(headers, &parameter.header).decoded();
        let problem = match (argument, header) {
            (None, Mirrored::Absent) => continue,
            (Some(argument), Mirrored::Text(text)) if says(&text, argument, parameter.kind) => {
                continue;
            }
            (Some(_), Mirrored::Text(text)) => {
                format!("is '{}', but the argument is different", truncated(&text))
            }
            (None, Mirrored::Text(_)) => "is there, but the argument is not".to_owned(),
            (Some(_), Mirrored::Absent) => "is missing, but the argument is there".to_owned(),
            (_, Mirrored::Repeated) => "appears more than once".to_owned(),
            (_, Mirrored::Invalid(reason)) => reason.to_owned(),
        };
        let argument = parameter.path.join(".");
        return Err(format!(
            "Header mismatch: {} for argument '{argument}' {problem}",
            parameter.header
        ));
    }
    Ok(())
}

/// Whether a header's text says the same as an argument. Integers are compared by value: `42.0` is 42 (MH-12).
fn says(text: &str, argument: &Value, kind: ParameterKind) -> bool {
    match (kind, argument) {
        (_, Value::String(argument)) => text == argument,
        (_, Value::Bool(argument)) => text == if *argument { "true" } else { "false" },
        (ParameterKind::Integer, Value::Number(argument)) => {
            let by_value = || Some(text.parse::<f64>().ok()? == argument.as_f64()?);
            // Beyond 2^53 two integers can be one f64; such are compared by their digits.
            text == argument.to_string()
                || text.contains('.') && by_value().unwrap_or(false)
                || argument.is_f64() && by_value().unwrap_or(false)
        }
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

    fn name(value: &str) -> Mirrored<'static> {
        let headers = headers(&[("mcp-name", value)]);
        match once(&headers).read().decoded() {
            Mirrored::Text(text) => Mirrored::Text(Cow::Owned(text.into_owned())),
            Mirrored::Absent => Mirrored::Absent,
            Mirrored::Repeated => Mirrored::Repeated,
            Mirrored::Invalid(reason) => Mirrored::Invalid(reason),
        }
    }

    fn once(headers: &HeaderMap) -> Once {
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
            assert_eq!(name(value), Mirrored::Text(text.into()), "{value}");
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
            assert!(matches!(name(value), Mirrored::Invalid(_)), "{value}");
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
            assert_eq!(name(value), Mirrored::Text(value.into()));
        }
    }

    #[test]
    fn mh_22_repeated_headers_are_refused() {
        let headers = headers(&[("mcp-name", "a"), ("mcp-name", "a")]);
        assert_eq!(once(&headers).read(), Mirrored::Repeated);
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
        assert!(check_parameters(&[parameter(String)], "{}", &HeaderMap::new()).is_ok());
    }
}
