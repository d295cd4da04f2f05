//! Tool arguments as described in the configuration.

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::catalog::path_deserializer::{self, TypeMismatch};
use crate::catalog::{Arguments, InvalidArguments};
use crate::protocol::scan::rounded_integer;

/// An argument of a tool.
///
/// ```yaml
/// arguments:
///   city: { description: "Name of a city, in English" }
///   days: { type: integer, minimum: 1, maximum: 7, optional: true }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArgumentConfig {
    /// Type of the value.
    pub r#type: ArgumentType,
    /// Description of the argument, for the model.
    pub description: Option<String>,
    /// Makes the argument optional.
    #[serde(deserialize_with = "truth")]
    pub optional: bool,
    /// Value used when the argument is omitted. Setting it makes the argument optional.
    pub default: Option<Value>,
    /// Allowed values.
    pub r#enum: Vec<Value>,
    /// Regular expression that a string must match.
    pub pattern: Option<String>,
    /// Minimum length of a string, in characters.
    pub min_length: Option<u64>,
    /// Maximum length of a string, in characters.
    pub max_length: Option<u64>,
    /// Minimum value of a number.
    pub minimum: Option<f64>,
    /// Maximum value of a number.
    pub maximum: Option<f64>,
    /// Type of the elements of an array. Default: `string`.
    #[serde(deserialize_with = "type_of_items")]
    pub items: Option<ArgumentType>,
}

/// Type of an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ArgumentType {
    /// A string.
    #[default]
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An array.
    Array,
    /// An object of any shape.
    Object,
}

impl ArgumentType {
    pub(super) fn has(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

impl ArgumentConfig {
    /// Checks that some value can satisfy the description: it fails if the allowed values all have another type, or if
    /// a minimum is larger than its maximum.
    fn check(&self) -> Result<(), String> {
        let bounds = self.minimum.zip(self.maximum);
        if bounds.is_some_and(|(minimum, maximum)| maximum < minimum) {
            return Err("minimum is larger than maximum; correct one of them".to_owned());
        }
        let lengths = self.min_length.zip(self.max_length);
        if lengths.is_some_and(|(minimum, maximum)| maximum < minimum) {
            return Err("min_length is larger than max_length; correct one of them".to_owned());
        }
        let kind = self.r#type;
        let of = |value: &Value, what: &str| match kind.has(value) {
            true => Ok(()),
            false => Err(format!(
                "{what} has {value}, and the type is {}; {}",
                kind.as_str(),
                match kind {
                    ArgumentType::String => "put it in quotes, or set the type",
                    ArgumentType::Boolean => "write true or false",
                    _ => "correct one of them",
                }
            )),
        };
        self.r#enum.iter().try_for_each(|value| of(value, "enum"))?;
        let default = self.default.as_ref();
        default.map_or(Ok(()), |value| of(value, "default"))
    }

    fn schema(&self) -> Value {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), self.r#type.as_str().into());
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                schema.insert(name.to_owned(), value);
            }
        };
        set("description", self.description.clone().map(Value::from));
        set("default", self.default.clone());
        set(
            "enum",
            (!self.r#enum.is_empty()).then(|| self.r#enum.clone().into()),
        );
        set("pattern", self.pattern.clone().map(Value::from));
        set("minLength", self.min_length.map(Value::from));
        set("maxLength", self.max_length.map(Value::from));
        set("minimum", self.minimum.map(whole));
        set("maximum", self.maximum.map(whole));
        if self.r#type == ArgumentType::Array {
            let items = self.items.unwrap_or_default().as_str();
            set("items", Some(json!({ "type": items })));
        }
        Value::Object(schema)
    }
}

/// Reads a boolean, or one of the words that YAML 1.1 accepts for it.
fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(truth) => Ok(truth),
        Value::String(word) if matches!(&*word, "yes" | "on") => Ok(true),
        Value::String(word) if matches!(&*word, "no" | "off") => Ok(false),
        other => Err(D::Error::custom(format_args!(
            "{other} is neither true nor false"
        ))),
    }
}

/// Reads a type, and says what to write instead of a JSON Schema.
fn type_of_items<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ArgumentType>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Object(_) => Err(D::Error::custom(
            "it must be a type, as in `items: string`; to describe items further, set input_schema instead of arguments",
        )),
        kind => Option::deserialize(kind).map_err(D::Error::custom),
    }
}

/// Converts a number to JSON, with integral values of up to 64 bits written as integers (1, not 1.0 or 1e0).
fn whole(number: f64) -> Value {
    const I64_END: f64 = 9_223_372_036_854_775_808.0;
    const U64_END: f64 = 2.0 * I64_END;
    if number.fract() != 0.0 {
        Value::from(number)
    } else if number.abs() < I64_END {
        Value::from(number as i64)
    } else if (I64_END..U64_END).contains(&number) {
        Value::from(number as u64)
    } else {
        Value::from(number)
    }
}

/// Returns the digits of a large integral number, which is otherwise written with an exponent or a fraction.
pub fn digits_of_large(number: f64) -> Option<String> {
    let is_large = 1e15 <= number.abs();
    (is_large && number.fract() == 0.0).then(|| number.to_string())
}

/// Returns a value whose integral numbers are integers (1, not 1.0). JSON Schema does not distinguish them, but other
/// servers do.
pub fn with_integers(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(|| value.clone(), whole)
        }
        Value::Array(items) => items.iter().map(with_integers).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), with_integers(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Returns the arguments as a tree.
///
/// # Errors
///
/// An integer that the tree does not hold, and would round.
pub fn tree(arguments: &Arguments) -> Result<Map<String, Value>, InvalidArguments> {
    let tree = arguments.to_map()?;
    if tree.values().any(may_be_rounded)
        && let Some(number) = rounded_integer(&arguments.to_json())
    {
        let number = longshore_protocol::prefix(number, 50);
        return Err(InvalidArguments::new(format!(
            "{number} has more than 64 bits and would be rounded; send a smaller integer, or a string where the schema allows it"
        )));
    }
    Ok(tree)
}

/// Returns true for floats that can come from integers of more than 64 bits, at any depth.
fn may_be_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|float| 9.2e18 < float.abs())
        }
        Value::Array(items) => items.iter().any(may_be_rounded),
        Value::Object(members) => members.values().any(may_be_rounded),
        _ => false,
    }
}

/// Returns the input schema: the configured one, or the one derived from the described arguments.
pub fn input_schema(
    arguments: &Map<String, Value>,
    written: Option<&Value>,
) -> Result<Value, String> {
    if let Some(schema) = written {
        if !arguments.is_empty() {
            return Err("arguments and input_schema are both set; remove one of them".to_owned());
        }
        return Ok(schema.clone());
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, value) in arguments {
        let argument: ArgumentConfig =
            path_deserializer::read(value).map_err(|misfit| mismatch(name, &misfit))?;
        argument
            .check()
            .map_err(|problem| format!("arguments.{name}: {problem}"))?;
        if !argument.optional && argument.default.is_none() {
            required.push(Value::from(name.as_str()));
        }
        properties.insert(name.clone(), argument.schema());
    }
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema["additionalProperties"] = false.into();
    Ok(schema)
}

/// Describes why a value is not the description of the argument `name`.
fn mismatch(name: &str, misfit: &TypeMismatch) -> String {
    let cause = misfit.cause.to_string();
    if cause.contains("expected struct ") {
        return format!(
            "arguments.{name}: it must be a table of settings, such as {{ type: integer }}"
        );
    }
    if cause.starts_with("unknown field ") {
        return format!(
            "arguments.{name}: {cause}; for other keywords of JSON Schema, set input_schema instead of arguments"
        );
    }
    match misfit.path.pieces().next() {
        Some(_) => format!("arguments.{name}.{}: {cause}", misfit.path),
        None => format!("arguments.{name}: {cause}"),
    }
}

/// Inserts the schema's default for each omitted argument.
pub fn fill_in(arguments: &mut Map<String, Value>, schema: &Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !arguments.contains_key(name)
        {
            arguments.insert(name.clone(), default.clone());
        }
    }
}

/// Returns the names that a template may use: the properties of the schema, or `None` if any name is allowed.
pub(super) fn names(schema: &Value) -> Option<Vec<&str>> {
    if ["allOf", "anyOf", "oneOf", "$ref", "patternProperties"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some())
    {
        return None;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    Some(
        properties
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_an_argument_can_have_are_of_its_type() {
        let schema = |argument: Value| {
            let arguments = json!({ "state": argument });
            let arguments = arguments.as_object().expect("an object").clone();
            input_schema(&arguments, None)
        };
        for fine in [
            json!({"enum": ["on", "off"], "default": "on"}),
            json!({"type": "integer", "enum": [1, 2.0]}),
            json!({"type": "boolean", "default": false}),
            json!({"type": "array", "default": []}),
        ] {
            assert!(schema(fine.clone()).is_ok(), "{fine}");
        }
        for (wrong, named) in [
            (json!({"enum": [true, "off"]}), "enum has true"),
            (json!({"default": 3}), "default has 3"),
            (
                json!({"type": "integer", "default": 1.5}),
                "default has 1.5",
            ),
        ] {
            let problem = schema(wrong).expect_err("no value could be right");
            assert!(problem.contains("arguments.state"), "{problem}");
            assert!(problem.contains(named), "{problem}");
        }
    }

    #[test]
    fn mistakes_in_a_description_are_named_with_their_place() {
        for (argument, named) in [
            (
                json!("string"),
                "arguments.a: it must be a table of settings",
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                "arguments.a.items: it must be a type",
            ),
            (
                json!({"format": "date"}),
                "set input_schema instead of arguments",
            ),
            (
                json!({"minimum": 5, "maximum": 1, "type": "integer"}),
                "arguments.a: minimum is larger",
            ),
            (
                json!({"min_length": 5, "max_length": 1}),
                "arguments.a: min_length is larger",
            ),
        ] {
            let arguments = Map::from_iter([("a".to_owned(), argument)]);
            let problem = input_schema(&arguments, None).expect_err("refused");
            assert!(problem.contains(named), "{problem}");
        }
    }

    #[test]
    fn integers_are_passed_on_as_they_are_or_not_at_all() {
        let read = |json: &'static str| {
            let arguments = Arguments::from_checked(bytes::Bytes::from_static(json.as_bytes()));
            tree(&arguments).map_err(|invalid| invalid.to_string())
        };
        let kept = r#"{"a":18446744073709551615,"b":[1e300,100000000000000000000]}"#;
        assert!(read(kept).is_ok());
        let rounded = read(r#"{"a":[{"b":18446744073709551617}]}"#).expect_err("too long");
        assert!(
            rounded.starts_with("18446744073709551617 has more than 64 bits"),
            "{rounded}"
        );
    }

    #[test]
    fn large_integers_have_all_of_their_digits() {
        for (number, digits) in [
            (1e14, None),
            (1e15, Some("1000000000000000".to_owned())),
            (-1e22, Some("-10000000000000000000000".to_owned())),
            (1e300, Some(format!("1{}", "0".repeat(300)))),
            (1e15 + 0.5, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(digits_of_large(number), digits, "{number}");
        }
    }

    #[test]
    fn arguments_become_a_schema() {
        let arguments = json!({
            "city": {"description": "A city", "max_length": 50},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
            "tags": {"type": "array", "items": "integer", "optional": true},
        });
        let schema = input_schema(arguments.as_object().expect("an object"), None).expect("sound");
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A city", "maxLength": 50},
                    "days": {"type": "integer", "default": 3, "minimum": 1, "maximum": 7},
                    "tags": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["city"],
                "additionalProperties": false,
            })
        );
        let mut given = Map::new();
        fill_in(&mut given, &schema);
        assert_eq!(given.get("days"), Some(&json!(3)));
        let wrong = json!({"city": {"tpye": "string"}});
        let message =
            input_schema(wrong.as_object().expect("an object"), None).expect_err("refused");
        assert!(
            message.contains("arguments.city") && message.contains("tpye"),
            "{message}"
        );
    }
}
