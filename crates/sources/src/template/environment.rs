//! How values are written and checked in the positions of a template.

use std::sync::LazyLock;

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, HtmlEscape, UndefinedBehavior, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::argument::digits_of_large;
use super::in_words;

/// Template name of [`EscapeContext::Response`].
pub(super) const RESPONSE: &str = "response";

/// Characters that are not encoded: the unreserved ones of RFC 3986 without the dot, which could climb out of the
/// path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// Execution budget of one template.
const FUEL: u64 = 200_000;

/// Environment of templates without facts about the caller.
pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(50);
    environment.set_debug(false);
    environment.set_auto_escape_callback(|name| match name {
        "json" => AutoEscape::Json,
        "xml" => AutoEscape::Html,
        "path" => AutoEscape::Custom("path".into()),
        "query" => AutoEscape::Custom("query".into()),
        _ => AutoEscape::None,
    });
    environment.set_formatter(|out, state, value| match state.auto_escape() {
        AutoEscape::Custom(place) => {
            let text = scalar(value)?;
            if place == "path" {
                check_segment(&text)?;
            }
            let encoded = utf8_percent_encode(&text, ENCODED);
            out.write_fmt(format_args!("{encoded}"))
                .map_err(|_| Error::from(ErrorKind::BadSerialization))
        }
        AutoEscape::Html => {
            let text = text_of(value)?;
            let written = match value.is_safe() {
                true => out.write_str(&text),
                false => out.write_fmt(format_args!("{}", HtmlEscape(&text))),
            };
            written.map_err(|_| Error::from(ErrorKind::BadSerialization))
        }
        AutoEscape::None if value.is_none() && state.name() == RESPONSE => Ok(()),
        AutoEscape::None => {
            let text = text_of(value)?;
            out.write_str(&text)
                .map_err(|_| Error::from(ErrorKind::BadSerialization))
        }
        _ => minijinja::escape_formatter(out, state, value),
    });
    environment
});

/// Filters that make something of a missing value.
pub(super) const LENIENT: [&str; 26] = [
    "batch",
    "bool",
    "count",
    "dictsort",
    "first",
    "float",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "reverse",
    "select",
    "slice",
    "sort",
    "string",
    "sum",
    "tojson",
    "unique",
    "urlencode",
];

/// Environment of templates with facts about the caller, in which these filters fail for a missing value.
pub(super) static STRICT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = ENVIRONMENT.clone();
    for name in LENIENT {
        environment.add_filter(name, move |values: Rest<ValueOrKwargs>| {
            let values = values.into_values();
            match values.first() {
                Some(value) if value.is_undefined() || value.is_none() => {
                    Err(Error::from(ErrorKind::UndefinedError))
                }
                _ => ENVIRONMENT.empty_state().apply_filter(name, &values),
            }
        });
    }
    environment
});

/// Percent-encodes and checks a value for a path.
pub(in super::super) fn path_segment(text: &str) -> Result<String, String> {
    check_segment(text).map_err(|e| in_words(&e))?;
    Ok(utf8_percent_encode(text, ENCODED).to_string())
}

fn scalar(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool | ValueKind::None => text_of(value),
        ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            "only a text, a number or a boolean can stand in a URL",
        )),
    }
}

/// Converts a value to a string; null counts as missing.
fn text_of(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Undefined | ValueKind::None => Err(ErrorKind::UndefinedError.into()),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            serde_json::to_string(value).map_err(|_| Error::from(ErrorKind::BadSerialization))
        }
        ValueKind::Number if !value.is_integer() => {
            let digits = f64::try_from(value.clone()).ok().and_then(digits_of_large);
            Ok(digits.unwrap_or_else(|| value.to_string()))
        }
        _ => Ok(value.to_string()),
    }
}

/// Rejects an empty segment, which would change the path, and dot segments, which climb if the value is decoded
/// twice.
fn check_segment(text: &str) -> Result<(), Error> {
    let fault = |problem| Err(Error::new(ErrorKind::InvalidOperation, problem));
    if text.is_empty() {
        return fault("a value in a path is empty");
    }
    if text.chars().any(char::is_control) {
        return fault("a value in a path has control characters");
    }
    if text
        .split(['/', '\\'])
        .any(|part| matches!(part, "." | ".."))
    {
        return fault("a value in a path must not have . or .. as a part");
    }
    Ok(())
}
