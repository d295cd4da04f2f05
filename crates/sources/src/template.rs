//! String templates with placeholders for a call's arguments.
//!
//! The position of a placeholder decides the encoding of its value: percent-encoding in a path, JSON in a JSON body,
//! none elsewhere. A template that consists of one placeholder keeps the type of its value, and yields nothing if
//! there is no value.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use minijinja::value::{Enumerator, Object, Rest, Serde, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::identity::caller_value;
use crate::auth::Principal;
use crate::catalog::ToolError;

/// Reason why a template yields nothing for a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// The template uses a fact about the caller that its credentials do not contain.
    #[error("this tool uses your identity, and your credentials do not contain {0}")]
    MissingFact(String),
    #[error("{0}")]
    Invalid(String),
}

impl From<String> for TemplateError {
    fn from(problem: String) -> Self {
        Self::Invalid(problem)
    }
}

impl TemplateError {
    pub(super) fn into_tool_error(self) -> ToolError {
        match self {
            Self::MissingFact(_) => ToolError::forbidden(self.to_string()),
            Self::Invalid(problem) => ToolError::new(problem),
        }
    }
}

/// Context in which a template's values are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EscapeContext {
    /// A path. One value fills at most one segment.
    Path,
    /// A query string written as text.
    Query,
    /// JSON.
    Json,
    /// Text without a syntax, or one that is encoded later.
    Text,
}

impl EscapeContext {
    fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Json => "json",
            Self::Text => "text",
        }
    }
}

/// Characters that are not encoded: the unreserved ones of RFC 3986 without the dot, which could climb out of the
/// path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// Execution budget of one template.
const FUEL: u64 = 200_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(50);
    environment.set_debug(false);
    environment.set_auto_escape_callback(|name| match name {
        "json" => AutoEscape::Json,
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
const LENIENT: [&str; 26] = [
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
static STRICT: LazyLock<Environment<'static>> = LazyLock::new(|| {
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

/// A template that was parsed and checked when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    source: String,
    place: EscapeContext,
    /// The expression, if the template consists of one placeholder.
    only: Option<String>,
    is_literal: bool,
    has_blocks: bool,
    uses_caller: bool,
}

impl Template {
    /// Parses a template. `names` lists the allowed names; `None` allows any.
    ///
    /// # Errors
    ///
    /// Describes the problem and its position.
    pub(super) fn new(
        source: impl Into<String>,
        place: EscapeContext,
        names: Option<&[&str]>,
    ) -> Result<Self, String> {
        let source = source.into();
        let used = {
            let parsed = ENVIRONMENT
                .template_from_named_str(place.name(), &source)
                .map_err(|e| in_words(&e))?;
            parsed.undeclared_variables(false)
        };
        if let Some(names) = names {
            let mut unknown: Vec<_> = used
                .iter()
                .filter(|name| !names.contains(&name.as_str()) && !is_global(name))
                .collect();
            unknown.sort();
            if let Some(name) = unknown.first() {
                return Err(format!(
                    "{source:?} names {name:?}, which is not an argument; there {}",
                    match names {
                        [] => "are none".to_owned(),
                        [one] => format!("is {one}"),
                        many => format!("are {}", many.join(", ")),
                    }
                ));
            }
        }
        Ok(Self {
            only: only_expression(&source).map(str::to_owned),
            is_literal: !source.contains("{{") && !source.contains("{%") && !source.contains("{#"),
            has_blocks: source.contains("{%"),
            uses_caller: used.contains("caller"),
            place,
            source,
        })
    }

    pub(super) fn is_literal(&self) -> bool {
        self.is_literal
    }

    /// Returns true if a value can determine the first character: the template begins with a placeholder, or with a
    /// condition that can lead to one.
    pub(super) fn begins_with_value(&self) -> bool {
        // Space before a tag is not always rendered, and comments never are.
        let source = self.source.trim_start();
        let begins = ["{{", "{%", "{#"].iter().any(|tag| source.starts_with(tag));
        begins && source.contains("{{")
    }

    /// Returns true if a name that it uses has no value.
    pub(super) fn lacks_a_value(&self, context: &Value) -> bool {
        let Ok(parsed) = ENVIRONMENT.template_from_named_str(self.place.name(), &self.source)
        else {
            return false;
        };
        parsed.undeclared_variables(false).iter().any(|name| {
            let value = context.get_attr(name).unwrap_or_default();
            (value.is_undefined() || value.is_none()) && !is_global(name)
        })
    }

    fn environment(&self) -> &'static Environment<'static> {
        match self.uses_caller {
            true => &STRICT,
            false => &ENVIRONMENT,
        }
    }

    /// Renders the template.
    ///
    /// # Errors
    ///
    /// A value is missing, or is not valid in its position.
    pub(super) fn render(&self, context: &Value) -> Result<String, TemplateError> {
        if self.is_literal {
            return Ok(self.source.clone());
        }
        let render = |context: &Value| {
            self.environment()
                .template_from_named_str(self.place.name(), &self.source)
                .and_then(|template| template.render(context))
        };
        render(context).map_err(|error| {
            let is_missing = |error: &Error| error.kind() == ErrorKind::UndefinedError;
            let with_all = || render(&with_all_facts(context));
            match is_missing(&error)
                && self.uses_caller
                && !with_all().is_err_and(|e| is_missing(&e))
            {
                true => self.missing_fact(context),
                false => in_words(&error).into(),
            }
        })
    }

    /// Evaluates the template. The result keeps its type if the template consists of one placeholder; otherwise it is
    /// a string. Returns `None` if there is no value, or if the conditions leave nothing.
    ///
    /// # Errors
    ///
    /// A value is missing in the middle of a string.
    pub(super) fn value(
        &self,
        context: &Value,
    ) -> Result<Option<serde_json::Value>, TemplateError> {
        let Some(expression) = &self.only else {
            let text = self.render(context)?;
            let nothing = text.trim().is_empty() && self.has_blocks;
            return Ok((!nothing).then_some(serde_json::Value::String(text)));
        };
        let evaluate = |context: &Value| {
            self.environment()
                .compile_expression(expression)
                .and_then(|expression| expression.eval(context))
        };
        let is_missing = |outcome: &Result<Value, Error>| match outcome {
            Ok(value) => value.is_undefined() || value.is_none(),
            Err(error) => error.kind() == ErrorKind::UndefinedError,
        };
        let outcome = evaluate(context);
        if is_missing(&outcome)
            && self.uses_caller
            && !is_missing(&evaluate(&with_all_facts(context)))
        {
            return Err(self.missing_fact(context));
        }
        let value = outcome.map_err(|e| in_words(&e))?;
        if value.is_undefined() || value.is_none() {
            return Ok(None);
        }
        serde_json::to_value(&value)
            .map(Some)
            .map_err(|_| format!("{expression} cannot be sent").into())
    }

    /// Names the facts that are missing. The rest of the template is not for the caller to know.
    #[cold]
    fn missing_fact(&self, context: &Value) -> TemplateError {
        let parsed = ENVIRONMENT.template_from_named_str(self.place.name(), &self.source);
        let used = parsed.map(|parsed| parsed.undeclared_variables(true));
        let is_missing = |name: &String| {
            let known = |value: Value, part: &str| {
                let value = value.get_attr(part).ok()?;
                (!value.is_undefined() && !value.is_none()).then_some(value)
            };
            name.starts_with("caller.")
                && name.split('.').try_fold(context.clone(), known).is_none()
        };
        let used = used.unwrap_or_default().into_iter();
        let mut names: Vec<String> = used.filter(is_missing).collect();
        names.sort();
        TemplateError::MissingFact(match names.is_empty() {
            true => "a fact that it needs".to_owned(),
            false => names.join(", "),
        })
    }

    /// Returns the strings that the template yields: none without a value, several for a list.
    ///
    /// # Errors
    ///
    /// A value is missing, or is an object.
    pub(super) fn texts(&self, context: &Value) -> Result<Vec<String>, TemplateError> {
        match self.value(context)? {
            None => Ok(Vec::new()),
            Some(serde_json::Value::Array(items)) => {
                Ok(items.iter().map(plain).collect::<Result<_, _>>()?)
            }
            Some(value) => Ok(vec![plain(&value)?]),
        }
    }

    /// Returns the string that the template yields; `None` without a value.
    ///
    /// # Errors
    ///
    /// A value is missing, or is a list or an object.
    pub(super) fn text(&self, context: &Value) -> Result<Option<String>, TemplateError> {
        Ok(self.value(context)?.as_ref().map(plain).transpose()?)
    }
}

/// Returns true for names that are not arguments.
fn is_global(name: &str) -> bool {
    matches!(
        name,
        "arguments" | "caller" | "range" | "dict" | "namespace" | "debug"
    )
}

/// Builds the template context: each argument by its name, all of them as `arguments`, and the `caller`.
pub(super) fn context(
    arguments: &serde_json::Map<String, serde_json::Value>,
    caller: &Principal,
) -> Value {
    let each = arguments.iter();
    let mut all: BTreeMap<String, Value> = each
        .map(|(name, value)| (name.clone(), Value::from(Serde(value))))
        .collect();
    // Inserted last, so that an argument cannot override the caller.
    all.insert("arguments".to_owned(), Value::from(Serde(arguments)));
    all.insert("caller".to_owned(), caller_value(caller));
    Value::from_object(all)
}

/// Stands for the members of a missing fact.
const ANY: &str = "any";

/// The caller, or a part of it, as if its credentials contained every fact.
#[derive(Debug)]
struct Complete(Value);

impl Object for Complete {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        // The only one that is enumerated; it ends there.
        if key.as_str() == Some(ANY) {
            return Some(Value::from(ANY));
        }
        let value = self.0.get_item(key).unwrap_or_default();
        Some(match value.kind() {
            ValueKind::Undefined | ValueKind::None | ValueKind::Map => {
                Value::from_object(Self(value))
            }
            _ => value,
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&[ANY])
    }
}

/// Returns the template context as if no fact about the caller were missing. Only whether a template yields something
/// with it matters.
fn with_all_facts(context: &Value) -> Value {
    let caller = Complete(context.get_attr("caller").unwrap_or_default());
    minijinja::context! { caller => Value::from_object(caller), ..context.clone() }
}

/// Converts a scalar to a string.
pub(super) fn plain(value: &serde_json::Value) -> Result<String, String> {
    match value {
        serde_json::Value::String(text) => Ok(text.clone()),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        serde_json::Value::Bool(flag) => Ok(flag.to_string()),
        serde_json::Value::Null => Ok(String::new()),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            Err("a list or an object cannot be used where one string is needed".to_owned())
        }
    }
}

/// Percent-encodes and checks a value for a path.
pub(super) fn path_segment(text: &str) -> Result<String, String> {
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

/// Returns the expression of a template that consists of one placeholder.
fn only_expression(source: &str) -> Option<&str> {
    let inner = source.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.trim_matches('-').trim();
    let alone = !inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%");
    alone.then_some(inner)
}

fn in_words(error: &Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None if error.kind() == ErrorKind::UndefinedError => {
            "a value is missing; send the argument".to_owned()
        }
        None if error.kind() == ErrorKind::OutOfFuel => "it is too much work".to_owned(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(
        source: &str,
        place: EscapeContext,
        arguments: &serde_json::Value,
    ) -> Result<String, String> {
        let arguments = arguments.as_object().expect("an object");
        let template = Template::new(source, place, None)?;
        let rendered = template.render(&context(arguments, &Principal::new("ann")));
        rendered.map_err(|error| error.to_string())
    }

    #[test]
    fn values_in_paths_stay_within_their_segment() {
        let path = |value: serde_json::Value| {
            render(
                "/users/{{ id }}/x",
                EscapeContext::Path,
                &json!({"id": value}),
            )
        };
        for (value, expected) in [
            (json!("ann"), "/users/ann/x"),
            (json!(7), "/users/7/x"),
            (json!(true), "/users/true/x"),
            (json!("a b"), "/users/a%20b/x"),
            (json!("a/b"), "/users/a%2Fb/x"),
            (json!("a?b#c"), "/users/a%3Fb%23c/x"),
            (json!("a%2fb"), "/users/a%252fb/x"),
            (json!("a.b"), "/users/a%2Eb/x"),
            (json!("@:;=&+$,"), "/users/%40%3A%3B%3D%26%2B%24%2C/x"),
            (json!("{{ 7*7 }}"), "/users/%7B%7B%207%2A7%20%7D%7D/x"),
            (json!("é"), "/users/%C3%A9/x"),
            (json!("\\"), "/users/%5C/x"),
            (json!("..."), "/users/%2E%2E%2E/x"),
        ] {
            assert_eq!(path(value.clone()).as_deref(), Ok(expected), "{value}");
        }
        for value in [
            json!(""),
            json!("."),
            json!(".."),
            json!("../admin"),
            json!("a/../b"),
            json!("..\\b"),
            json!("a\\.."),
            json!("a\nb"),
            json!("\0"),
            json!(null),
            json!([1]),
            json!({"a": 1}),
        ] {
            assert!(path(value.clone()).is_err(), "{value}");
        }
        assert!(render("/users/{{ id }}", EscapeContext::Path, &json!({})).is_err());
        assert_eq!(
            render("/a?b={{ q }}", EscapeContext::Query, &json!({"q": "x&y=z"})).as_deref(),
            Ok("/a?b=x%26y%3Dz")
        );
    }

    #[test]
    fn values_in_json_are_json() {
        let arguments = json!({"text": "a\"b\n</script>", "list": [1, "x"], "caller": "eve"});
        let rendered = render(
            r#"{"a": {{ text }}, "b": {{ list }}}"#,
            EscapeContext::Json,
            &arguments,
        )
        .expect("renders");
        let parsed: serde_json::Value = serde_json::from_str(&rendered).expect("JSON");
        assert_eq!(parsed, json!({"a": "a\"b\n</script>", "b": [1, "x"]}));
    }

    #[test]
    fn a_lone_placeholder_keeps_its_type_and_may_stand_for_nothing() {
        let arguments = json!({"n": 7, "f": 1.5, "b": false, "l": [1, 2], "o": {"a": 1}, "s": "x", "null": null});
        let context = context(
            arguments.as_object().expect("an object"),
            &Principal::new("ann"),
        );
        let value = |source: &str| {
            Template::new(source, EscapeContext::Text, None)
                .expect(source)
                .value(&context)
        };
        for (source, expected) in [
            ("{{ n }}", Some(json!(7))),
            ("{{f}}", Some(json!(1.5))),
            (" {{ b }} ", Some(json!(false))),
            ("{{ l }}", Some(json!([1, 2]))),
            ("{{ o.a }}", Some(json!(1))),
            ("{{ s | upper }}", Some(json!("X"))),
            ("{{ none_such }}", None),
            ("{{ null }}", None),
            ("n={{ n }}", Some(json!("n=7"))),
            ("{% if none_such %}x{% endif %}", None),
            ("{% if s %}x{% endif %}", Some(json!("x"))),
            ("{{ caller.name }}", Some(json!("ann"))),
            ("", Some(json!(""))),
        ] {
            assert_eq!(value(source), Ok(expected), "{source}");
        }
        assert!(value("n={{ none_such }}").is_err());
        let texts = Template::new("{{ l }}", EscapeContext::Text, None)
            .expect("a template")
            .texts(&context);
        assert_eq!(texts, Ok(vec!["1".to_owned(), "2".to_owned()]));
        assert!(
            Template::new("{{ o }}", EscapeContext::Text, None)
                .expect("a template")
                .text(&context)
                .is_err()
        );
    }

    #[test]
    fn a_missing_fact_about_the_caller_is_an_error_and_is_named() {
        let arguments = json!({"n": 7, "none": null});
        let context = context(
            arguments.as_object().expect("an object"),
            &Principal::new("ann"),
        );
        let value = |source: &str| {
            Template::new(source, EscapeContext::Text, None)
                .expect(source)
                .value(&context)
        };
        let fact = |name: &str| Err(TemplateError::MissingFact(name.to_owned()));
        let unnamed = "a fact that it needs";
        for (source, name) in [
            ("{{ caller.subject }}", "caller.subject"),
            ("{{ caller.subject | upper }}", "caller.subject"),
            ("{{ caller.claims.tenant }}", "caller.claims.tenant"),
            ("{{ 'u-' ~ caller.subject }}", "caller.subject"),
            ("{{ caller.subject | join(',') }}", "caller.subject"),
            ("{{ caller.claims.a.b }}", "caller.claims.a.b"),
            ("{{ caller.claims['urn:tenant'] }}", unnamed),
            ("{{ owner | default(caller.subject) }}", "caller.subject"),
            ("u-{{ caller.subject }}", "caller.subject"),
            (
                "{{ caller.name }}/{{ caller.claims.tenant }}",
                "caller.claims.tenant",
            ),
            ("u-{{ owner | default(caller.subject) }}", "caller.subject"),
            (
                "{% if n %}{{ caller.subject }}{% endif %}",
                "caller.subject",
            ),
        ] {
            assert_eq!(value(source), fact(name), "{source}");
        }
        for filter in LENIENT {
            let arguments = match filter {
                "batch" | "slice" => "(2)",
                "map" => "(attribute='a')",
                _ => "",
            };
            let source = format!("{{{{ caller.subject | {filter}{arguments} }}}}");
            assert_eq!(value(&source), fact("caller.subject"), "{source}");
        }
        for (source, expected) in [
            ("{{ caller.groups | join(',') }}", Some(json!(""))),
            ("{{ [n, 8] | join(caller.name) }}", Some(json!("7ann8"))),
            (
                "{{ [n, 8] | map('string') | join('-') if caller.name }}",
                Some(json!("7-8")),
            ),
            ("{{ caller.subject | default(\"\") }}", Some(json!(""))),
            ("{{ caller.subject | default(n) }}", Some(json!(7))),
            (
                "{% if caller.subject %}{{ caller.subject }}{% endif %}",
                None,
            ),
            (
                "{{ n if caller.subject else caller.name }}",
                Some(json!("ann")),
            ),
            ("{{ owner if caller.name }}", None),
            ("{{ none if caller.name }}", None),
        ] {
            assert_eq!(value(source), Ok(expected), "{source}");
        }
        // It is the argument that is missing.
        assert!(matches!(
            value("{{ caller.name }}/{{ owner }}"),
            Err(TemplateError::Invalid(_))
        ));
    }

    #[test]
    fn mistakes_are_found_when_a_template_is_read() {
        let message = Template::new("/{{ citty }}", EscapeContext::Path, Some(&["city", "days"]))
            .expect_err("refused");
        assert!(
            message.contains("citty") && message.contains("city, days"),
            "{message}"
        );
        for broken in [
            "{{ a",
            "{% if a %}",
            "{% endfor %}",
            "{{ a | nonesuch }}x{{",
        ] {
            assert!(
                Template::new(broken, EscapeContext::Text, None).is_err(),
                "{broken}"
            );
        }
        assert!(
            Template::new(
                "{% for a in arguments %}{{ a }}{% endfor %}",
                EscapeContext::Text,
                Some(&[])
            )
            .is_ok()
        );
    }

    #[test]
    fn templates_end() {
        let endless =
            "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}";
        assert_eq!(
            render(endless, EscapeContext::Text, &json!({})).expect_err("too much"),
            "it is too much work"
        );
    }
}
