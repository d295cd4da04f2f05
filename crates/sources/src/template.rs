//! String templates with placeholders for a call's arguments.
//!
//! The position of a placeholder decides the encoding of its value: percent-encoding in a path, JSON in a JSON body,
//! none elsewhere. A template that consists of one placeholder keeps the type of its value, and yields nothing if
//! there is no value.

mod environment;

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::value::RawValue;

use super::argument::{digits_of_large, with_integers};
use super::identity::caller_value;
use crate::auth::Principal;
use crate::catalog::ToolError;
use crate::protocol::scan::has_long_number;
pub(super) use environment::path_segment;
use environment::{ENVIRONMENT, RESPONSE, STRICT};

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
    /// XML.
    Xml,
    /// Text without a syntax, or one that is encoded later.
    Text,
    /// Text for the caller about a response, in which null is empty.
    Response,
}

impl EscapeContext {
    fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Json => "json",
            Self::Xml => "xml",
            Self::Text => "text",
            Self::Response => RESPONSE,
        }
    }
}

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
        source: &str,
        place: EscapeContext,
        names: Option<&[&str]>,
    ) -> Result<Self, String> {
        let used = {
            let parsed = ENVIRONMENT
                .template_from_named_str(place.name(), source)
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
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let meant = names.iter().find(|known| {
                    let is_name = known.chars().all(plain);
                    !is_name && known.contains(name.as_str()) && source.contains(**known)
                });
                if let Some(known) = meant {
                    return Err(format!(
                        "{source:?} names {name:?}, which is not an argument; for {known}, write arguments[{known:?}]"
                    ));
                }
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
            only: only_expression(source).map(str::to_owned),
            is_literal: !source.contains("{{") && !source.contains("{%") && !source.contains("{#"),
            has_blocks: source.contains("{%"),
            uses_caller: used.contains("caller"),
            place,
            source: source.to_owned(),
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
        let mut names = self.names(false).into_iter();
        names.any(|name| self.lacks(&name, context) && !is_global(&name))
    }

    /// Returns true if a name, or a member as in `caller.name`, has no value.
    fn lacks(&self, path: &str, context: &Value) -> bool {
        let mut parts = path.split('.');
        let value = parts.try_fold(context.clone(), |value, part| value.get_attr(part).ok());
        value.is_none_or(|value| {
            value.is_undefined() || value.is_none() && self.place != EscapeContext::Response
        })
    }

    /// Returns the sorted names that it uses; with `nested`, those of members in whole, as `caller.name`.
    fn names(&self, nested: bool) -> Vec<String> {
        let parsed = ENVIRONMENT.template_from_named_str(self.place.name(), &self.source);
        let names = parsed.map(|parsed| parsed.undeclared_variables(nested));
        let mut names: Vec<String> = names.unwrap_or_default().into_iter().collect();
        names.sort_unstable();
        names
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
            let with_all = || render(&with_all_facts(context));
            match self.needs_caller()
                && is_missing(&error)
                && !with_all().is_err_and(|e| is_missing(&e))
            {
                true => self.missing_fact(context),
                false => self.problem(&error, context).into(),
            }
        })
    }

    /// Returns true if a missing fact about the caller rejects the call. When a response is written, the call has been made.
    fn needs_caller(&self) -> bool {
        self.uses_caller && self.place != EscapeContext::Response
    }

    /// Describes why the template cannot be rendered, with the name of the missing value if there is one.
    fn problem(&self, error: &Error, context: &Value) -> String {
        if !is_missing(error) || error.detail().is_some() {
            return in_words(error);
        }
        match self.missing(context) {
            None => "a value is missing".to_owned(),
            Some(name) if self.place == EscapeContext::Response || name.starts_with("caller.") => {
                format!("{name} has no value")
            }
            Some(name) => format!("{name} has no value; send the argument"),
        }
    }

    /// Returns the name of a value that the template uses and that does not exist.
    fn missing(&self, context: &Value) -> Option<String> {
        let mut names = self.names(true).into_iter();
        names.find(|path| self.lacks(path, context) && !is_global(path))
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
        let yields_nothing = |outcome: &Result<Value, Error>| match outcome {
            Ok(value) => value.is_undefined() || value.is_none(),
            Err(error) => is_missing(error),
        };
        let outcome = evaluate(context);
        if self.needs_caller()
            && yields_nothing(&outcome)
            && !yields_nothing(&evaluate(&with_all_facts(context)))
        {
            return Err(self.missing_fact(context));
        }
        let value = outcome.map_err(|e| self.problem(&e, context))?;
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
        let is_missing = |name: &String| name.starts_with("caller.") && self.lacks(name, context);
        let names: Vec<String> = self.names(true).into_iter().filter(is_missing).collect();
        TemplateError::MissingFact(match names.is_empty() {
            true => "a fact that it needs".to_owned(),
            false => names.join(", "),
        })
    }

    /// Returns the strings that the template yields: none without a value, one for each item of a list that is not null.
    ///
    /// # Errors
    ///
    /// A value is missing, or is an object.
    pub(super) fn texts(&self, context: &Value) -> Result<Vec<String>, TemplateError> {
        match self.value(context)? {
            None => Ok(Vec::new()),
            Some(serde_json::Value::Array(items)) => {
                let items = items.iter().filter(|item| !item.is_null());
                Ok(items.map(plain).collect::<Result<_, _>>()?)
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

/// Rejects `{name}` of an argument, the placeholder of OpenAPI, which would be sent as it is.
///
/// # Errors
///
/// An argument is in single braces.
pub(super) fn check_braces(text: &str, names: &[&str]) -> Result<(), String> {
    let is_single = |name: &&&str| {
        let braces = format!("{{{name}}}");
        text.match_indices(&braces)
            .any(|(at, _)| !text[..at].ends_with('{'))
    };
    match names.iter().find(is_single) {
        Some(name) => Err(format!(
            "{{{name}}} is not a placeholder; write {{{{ {name} }}}}"
        )),
        None => Ok(()),
    }
}

/// Builds the template context: each argument by its name, all of them as `arguments`, and the `caller`.
pub(super) fn context(
    arguments: &serde_json::Map<String, serde_json::Value>,
    caller: &Principal,
) -> Value {
    context_with(arguments, [], caller)
}

/// Builds the template context as [`context`] does, with further values. They hide arguments of the same names, except
/// inside `arguments`.
pub(super) fn context_with<'n>(
    arguments: &serde_json::Map<String, serde_json::Value>,
    further: impl IntoIterator<Item = (&'n str, Value)>,
    caller: &Principal,
) -> Value {
    let arguments: BTreeMap<&String, _> = arguments
        .iter()
        .map(|(name, value)| (name, with_integers(value)))
        .collect();
    let each = arguments.iter();
    let mut all: BTreeMap<String, Value> = each
        .map(|(name, value)| ((*name).clone(), Value::from(Serde(value))))
        .collect();
    let further = further.into_iter();
    all.extend(further.map(|(name, value)| (name.to_owned(), value)));
    // Inserted last, so that an argument cannot override the caller.
    all.insert("arguments".to_owned(), Value::from(Serde(&arguments)));
    all.insert("caller".to_owned(), caller_value(caller));
    Value::from_object(all)
}

/// Converts a JSON document to a value in which integers keep up to 128 bits. Returns `None` if it is not JSON.
pub(super) fn exact_value(json: &str) -> Option<Value> {
    if !has_long_number(json.as_bytes()) {
        let value: serde_json::Value = serde_json::from_str(json).ok()?;
        return Some(Value::from(Serde(value)));
    }
    match json.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            let members = members.into_iter();
            let members = members.map(|(name, member)| Some((name, exact_value(member.get())?)));
            let members: Option<BTreeMap<String, Value>> = members.collect();
            members.map(Value::from_object)
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            let items = items.into_iter().map(|item| exact_value(item.get()));
            items.collect::<Option<Vec<Value>>>().map(Value::from)
        }
        _ => match json.parse::<i128>() {
            Ok(integer) => Some(Value::from(integer)),
            Err(_) => {
                let value: serde_json::Value = serde_json::from_str(json).ok()?;
                Some(Value::from(Serde(value)))
            }
        },
    }
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
        serde_json::Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            let digits = float.and_then(digits_of_large);
            Ok(digits.unwrap_or_else(|| with_integers(value).to_string()))
        }
        serde_json::Value::Bool(flag) => Ok(flag.to_string()),
        serde_json::Value::Null => Ok(String::new()),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            Err("a list or an object cannot be used where one string is needed".to_owned())
        }
    }
}

/// Returns the expression of a template that consists of one placeholder.
fn only_expression(source: &str) -> Option<&str> {
    let inner = source.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.trim_matches('-').trim();
    let alone = !inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%");
    alone.then_some(inner)
}

fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::UndefinedError
}

fn in_words(error: &Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None if error.kind() == ErrorKind::OutOfFuel => "it is too much work".to_owned(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests;
