//! Arguments on the command line, typed by the input schema of the tool they are for.

use std::io;

use serde_json::{Map, Number, Value};

use super::{Failure, clean, of_arguments, shell_word};
use crate::protocol::scan::{repeated_member, rounded_integer};

/// Maximum depth of schemas, which may be recursive.
const DEPTH_MAX: usize = 32;
/// Values of an enumeration that an error lists.
const CHOICES_MAX: usize = 10;

/// Arguments as given.
pub(super) enum Written {
    /// One JSON object with all arguments.
    Object(Map<String, Value>),
    /// Pairs in the given order.
    Pairs(Vec<(String, Text)>),
}

/// The value of one `name=value` or `name:=json`.
pub(super) enum Text {
    Plain(String),
    Json(Value),
}

impl Written {
    /// # Errors
    ///
    /// A word that is neither a pair nor a JSON object.
    pub(super) fn read(words: &[String]) -> Result<Self, Failure> {
        let text = match words {
            [one] if one == "-" => io::read_to_string(io::stdin()).map_err(|error| {
                of_arguments(&format!("standard input cannot be read: {error}"))
            })?,
            [one] if one.trim_start().starts_with('{') => one.clone(),
            words => {
                let pairs = words.iter().map(|word| pair(word));
                return pairs
                    .collect::<Result<_, _>>()
                    .map(Self::Pairs)
                    .map_err(|problem| of_arguments(&problem));
            }
        };
        match serde_json::from_str(&text) {
            Ok(Value::Object(arguments)) => {
                check_exact(&text).map_err(|problem| of_arguments(&problem))?;
                Ok(Self::Object(arguments))
            }
            Ok(_) => Err(of_arguments(
                "this is JSON, but not an object; write {\"name\": value}, or name=value for each",
            )),
            Err(error) => Err(of_arguments(&format!("this is not valid JSON: {error}"))),
        }
    }

    /// Returns true if the types depend on the input schema.
    pub(super) fn needs_schema(&self) -> bool {
        match self {
            Self::Object(_) => false,
            Self::Pairs(pairs) => pairs.iter().any(|(_, text)| matches!(text, Text::Plain(_))),
        }
    }

    /// Returns the names of the arguments whose type is not written.
    pub(super) fn untyped(&self) -> Vec<String> {
        let Self::Pairs(pairs) = self else {
            return Vec::new();
        };
        let plain = pairs
            .iter()
            .filter(|(_, text)| matches!(text, Text::Plain(_)));
        plain.map(|(name, _)| name.clone()).collect()
    }

    /// Converts the arguments to a JSON object. Without a schema, valid JSON is JSON, and everything else a string.
    ///
    /// # Errors
    ///
    /// A value does not have the type of its argument.
    pub(super) fn typed(self, schema: &Value) -> Result<Map<String, Value>, Failure> {
        let pairs = match self {
            Self::Object(arguments) => return Ok(arguments),
            Self::Pairs(pairs) => pairs,
        };
        let mut grouped: Vec<(String, Vec<Text>)> = Vec::new();
        for (name, text) in pairs {
            match grouped.iter_mut().find(|(known, _)| *known == name) {
                Some((_, texts)) => texts.push(text),
                None => grouped.push((name, vec![text])),
            }
        }
        let reader = Reader { root: schema };
        grouped
            .into_iter()
            .map(|(name, texts)| {
                let value = reader
                    .argument(&name, &texts)
                    // The message contains text of the server.
                    .map_err(|problem| of_arguments(&clean(&problem)))?;
                Ok((name, value))
            })
            .collect()
    }
}

/// Splits `name=value`.
pub(super) fn split_pair(word: &str) -> Result<(&str, &str), String> {
    let pair = word.split_once('=');
    let pair = pair.filter(|(name, _)| !name.is_empty() && *name != ":");
    pair.ok_or_else(|| format!("{word:?} is not of the form name=value"))
}

fn pair(word: &str) -> Result<(String, Text), String> {
    let (name, value) = split_pair(word)?;
    match name.strip_suffix(':') {
        None => Ok((name.to_owned(), Text::Plain(value.to_owned()))),
        Some(name) => match serde_json::from_str(value) {
            Ok(parsed) => {
                check_exact(value).map_err(|problem| format!("{name}: {problem}"))?;
                Ok((name.to_owned(), Text::Json(parsed)))
            }
            Err(error) => Err(format!(
                "{name}: {value:?} is not valid JSON, which `:=` requires: {error}"
            )),
        },
    }
}

/// Checks that the value read from a JSON text says the same as the text.
fn check_exact(json: &str) -> Result<(), String> {
    if let Some(path) = repeated_member(json) {
        return Err(format!("{path} is given twice"));
    }
    match rounded_integer(json) {
        None => Ok(()),
        Some(number) => Err(format!(
            "{number} has more than 64 bits and would be rounded; write a smaller integer or a string"
        )),
    }
}

/// Parses values by a schema.
struct Reader<'s> {
    /// Base of references.
    root: &'s Value,
}

impl Reader<'_> {
    fn argument(&self, name: &str, texts: &[Text]) -> Result<Value, String> {
        if let [Text::Json(value)] = texts {
            return Ok(value.clone());
        }
        let plain: Option<Vec<&str>> = texts
            .iter()
            .map(|text| match text {
                Text::Plain(text) => Some(&**text),
                Text::Json(_) => None,
            })
            .collect();
        let Some(plain) = plain else {
            return Err(format!(
                "{name} is given {} times, and `:=` sets the whole value",
                texts.len()
            ));
        };
        let schema = self.property(name);
        if let Some(value) = self.read(schema, &plain, 0) {
            return Ok(value);
        }
        let expected = self.expected(schema, 0);
        let example = self.example(name, schema);
        Err(match plain[..] {
            [text] => format!("{name}: {text:?} is not {expected}; write for example {example}"),
            _ => format!(
                "{name} is given {} times, but these values do not fit: it is {expected}; write for example {example}",
                plain.len()
            ),
        })
    }

    /// Returns the schema of an argument, or `true`, which allows everything.
    fn property(&self, name: &str) -> &Value {
        let mut schema = self.root;
        for _ in 0..DEPTH_MAX {
            if let Some(property) = schema["properties"].get(name) {
                return property;
            }
            if let Some(additional @ Value::Object(_)) = schema.get("additionalProperties") {
                return additional;
            }
            match schema["$ref"].as_str().and_then(|to| self.resolve(to)) {
                Some(to) => schema = to,
                None => break,
            }
        }
        &Value::Bool(true)
    }

    fn resolve(&self, reference: &str) -> Option<&Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// Parses the texts by a schema. The first alternative that fits is used.
    fn read(&self, schema: &Value, texts: &[&str], depth: usize) -> Option<Value> {
        if DEPTH_MAX < depth {
            return guessed(texts);
        }
        let first = |members: &Value| {
            let mut members = members.as_array().into_iter().flatten();
            members.find_map(|member| self.read(member, texts, depth + 1))
        };
        match Form::of(schema) {
            Form::Reference(reference) => match self.resolve(reference) {
                Some(schema) => self.read(schema, texts, depth + 1),
                None => guessed(texts),
            },
            Form::Choice(choices) => {
                let [text] = texts else { return None };
                let parsed = serde_json::from_str::<Value>(text).ok();
                let is = |choice: &&Value| choice.as_str() == Some(*text);
                let found = choices.iter().find(is);
                found
                    .or_else(|| {
                        choices
                            .iter()
                            .find(|choice| Some(*choice) == parsed.as_ref())
                    })
                    .cloned()
            }
            Form::Types(types) => types
                .iter()
                .find_map(|kind| self.read_as(kind, schema, texts, depth)),
            Form::Union(members) => first(members),
            Form::All(members) => {
                let members = members.as_array()?;
                let described = members.iter().find(|m| !matches!(Form::of(m), Form::Any));
                described.map_or_else(|| guessed(texts), |m| self.read(m, texts, depth + 1))
            }
            Form::Any => guessed(texts),
        }
    }

    fn read_as(&self, kind: &str, schema: &Value, texts: &[&str], depth: usize) -> Option<Value> {
        if kind == "array" {
            if let [text] = texts
                && text.trim_start().starts_with('[')
                && let Some(list @ Value::Array(_)) = exact(text)
            {
                return Some(list);
            }
            let each = texts.iter().enumerate().map(|(at, text)| {
                let items = schema["prefixItems"].get(at).unwrap_or(&schema["items"]);
                self.read(items, &[*text], depth + 1)
            });
            return each.collect::<Option<Vec<Value>>>().map(Value::Array);
        }
        let [text] = texts else { return None };
        match kind {
            // A quoted JSON string is unquoted; other text is taken literally.
            "string" => Some(match serde_json::from_str(text) {
                Ok(quoted @ Value::String(_)) => quoted,
                _ => Value::from(*text),
            }),
            "integer" => integer(text).map(Value::Number),
            "number" => integer(text)
                .or_else(|| Number::from_f64(text.parse().ok()?))
                .map(Value::Number),
            "boolean" => text.parse().ok().map(Value::Bool),
            "null" => (*text == "null").then_some(Value::Null),
            "object" => exact(text).filter(Value::is_object),
            _ => guessed(texts),
        }
    }

    /// Describes the accepted values, for use after "is not".
    fn expected(&self, schema: &Value, depth: usize) -> String {
        if DEPTH_MAX < depth {
            return "any value".to_owned();
        }
        let joined = |words: Vec<String>| words.join(" or ");
        match Form::of(schema) {
            Form::Reference(to) => self
                .resolve(to)
                .map_or_else(|| "any value".to_owned(), |to| self.expected(to, depth + 1)),
            Form::Choice([only]) => only.to_string(),
            Form::Choice(choices) => {
                let mut named: Vec<String> = choices
                    .iter()
                    .take(CHOICES_MAX)
                    .map(Value::to_string)
                    .collect();
                if CHOICES_MAX < choices.len() {
                    named.push(format!("{} more", choices.len() - CHOICES_MAX));
                }
                format!("one of {}", named.join(", "))
            }
            Form::Types(types) => joined(
                types
                    .iter()
                    .map(|kind| match *kind {
                        "integer" => "an integer".to_owned(),
                        "number" => "a number".to_owned(),
                        "boolean" => "true or false".to_owned(),
                        "object" => "a JSON object".to_owned(),
                        "string" => "a string".to_owned(),
                        "array" => match Form::of(&schema["items"]) {
                            Form::Any => "an array".to_owned(),
                            _ => format!(
                                "an array (each element: {})",
                                self.expected(&schema["items"], depth + 1)
                            ),
                        },
                        other => other.to_owned(),
                    })
                    .collect(),
            ),
            Form::Union(members) => joined(
                members
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|member| self.expected(member, depth + 1))
                    .collect(),
            ),
            Form::All(members) => {
                let members = members.as_array().into_iter().flatten();
                let mut described = members.filter(|m| !matches!(Form::of(m), Form::Any));
                described
                    .next()
                    .map_or_else(|| "any value".to_owned(), |m| self.expected(m, depth + 1))
            }
            Form::Any => "any value".to_owned(),
        }
    }

    /// Returns an example of the argument on the command line.
    fn example(&self, name: &str, schema: &Value) -> String {
        let scalar = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Array(_) | Value::Object(_) => None,
            other => Some(other.to_string()),
        };
        let value = self.sample(schema, 0);
        let words = match &value {
            Value::Array(elements) if !elements.is_empty() => elements
                .iter()
                .map(|element| Some(shell_word(&format!("{name}={}", scalar(element)?))))
                .collect::<Option<Vec<_>>>(),
            value => scalar(value).map(|text| vec![shell_word(&format!("{name}={text}"))]),
        };
        words.map_or_else(
            || shell_word(&format!("{name}:={value}")),
            |words| words.join(" "),
        )
    }

    fn sample(&self, schema: &Value, depth: usize) -> Value {
        let given = [schema["examples"].get(0), schema.get("default")];
        if let Some(given) = given.into_iter().flatten().find(|value| !value.is_null()) {
            return given.clone();
        }
        if DEPTH_MAX < depth {
            return Value::Null;
        }
        match Form::of(schema) {
            Form::Reference(to) => self
                .resolve(to)
                .map_or(Value::Null, |to| self.sample(to, depth + 1)),
            Form::Choice(choices) => choices.first().cloned().unwrap_or_default(),
            Form::Types(types) => match types.first().copied().unwrap_or_default() {
                "integer" => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
                "number" => schema.get("minimum").cloned().unwrap_or_else(|| 1.5.into()),
                "boolean" => true.into(),
                "string" => "text".into(),
                "array" => {
                    let element = self.sample(&schema["items"], depth + 1);
                    let second = match element.as_i64() {
                        Some(number) => Value::from(number + 1),
                        None => element.clone(),
                    };
                    vec![element, second].into()
                }
                "object" => {
                    let required = schema["required"].as_array().into_iter().flatten();
                    let members = required.filter_map(Value::as_str).map(|name| {
                        let member = &schema["properties"][name];
                        (name.to_owned(), self.sample(member, depth + 1))
                    });
                    Value::Object(members.collect())
                }
                _ => Value::Null,
            },
            Form::Union(members) | Form::All(members) => self.sample(&members[0], depth + 1),
            Form::Any => "value".into(),
        }
    }
}

/// Kind of value that a schema accepts.
enum Form<'s> {
    Reference(&'s str),
    Choice(&'s [Value]),
    Types(Vec<&'s str>),
    Union(&'s Value),
    All(&'s Value),
    Any,
}

impl<'s> Form<'s> {
    fn of(schema: &'s Value) -> Self {
        if let Some(reference) = schema["$ref"].as_str() {
            return Self::Reference(reference);
        }
        if let Some(choices) = schema["enum"].as_array() {
            return Self::Choice(choices);
        }
        if let Some(only) = schema.get("const") {
            return Self::Choice(std::slice::from_ref(only));
        }
        match &schema["type"] {
            Value::String(kind) => return Self::Types(vec![kind]),
            Value::Array(kinds) => {
                return Self::Types(kinds.iter().filter_map(Value::as_str).collect());
            }
            _ => {}
        }
        for union in ["anyOf", "oneOf"] {
            if schema[union].is_array() {
                return Self::Union(&schema[union]);
            }
        }
        if schema["allOf"].is_array() {
            return Self::All(&schema["allOf"]);
        }
        match schema {
            Value::Object(members) if members.contains_key("properties") => {
                Self::Types(vec!["object"])
            }
            Value::Object(members) if members.contains_key("items") => Self::Types(vec!["array"]),
            _ => Self::Any,
        }
    }
}

/// Parses a 64-bit integer, also in the form 3.0 or 1e3.
fn integer(text: &str) -> Option<Number> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    let number: f64 = text.parse().ok()?;
    // Larger floating-point numbers are not exact integers.
    let is_exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    is_exact.then(|| (number as i64).into())
}

/// Reads JSON that says the same as its text.
fn exact(text: &str) -> Option<Value> {
    let value = serde_json::from_str(text).ok();
    value.filter(|_| check_exact(text).is_ok())
}

/// Guesses the type of an undescribed argument. What would be another text as a number, such as 1.10, is a string.
fn guessed(texts: &[&str]) -> Option<Value> {
    let is_same = |value: &Value, text: &str| {
        let number = value.as_number();
        number.is_none_or(|number| number.to_string() == text)
    };
    let one = |text: &str| {
        let value = exact(text).filter(|value| is_same(value, text));
        value.unwrap_or_else(|| Value::from(text))
    };
    Some(match texts {
        [text] => one(text),
        texts => texts.iter().map(|text| one(text)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn typed(words: &[&str], schema: &Value) -> Result<Value, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let written = Written::read(&words).map_err(|error| error.to_string())?;
        let typed = written.typed(schema).map_err(|error| error.to_string())?;
        Ok(Value::Object(typed))
    }

    fn of(schema: &Value) -> Value {
        json!({"type": "object", "properties": {"a": schema}, "$defs": {
            "Unit": {"enum": ["celsius", "fahrenheit"]},
            "Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}},
        }})
    }

    #[test]
    fn a_value_has_the_type_of_its_argument() {
        for (schema, words, value) in [
            (json!({"type": "string"}), &["a=1"][..], json!("1")),
            (json!({"type": "string"}), &["a=01234"], json!("01234")),
            (json!({"type": "string"}), &["a=true"], json!("true")),
            (json!({"type": "string"}), &["a={}"], json!("{}")),
            (json!({"type": "string"}), &["a=x=y"], json!("x=y")),
            (json!({"type": "string"}), &["a="], json!("")),
            (json!({"type": "string"}), &["a=\"1\""], json!("1")),
            (
                json!({"type": "string"}),
                &["a:=\"\\\"1\\\"\""],
                json!("\"1\""),
            ),
            (json!({"type": "integer"}), &["a=-3"], json!(-3)),
            (
                json!({"type": "integer"}),
                &["a=18446744073709551615"],
                json!(u64::MAX),
            ),
            (json!({"type": "integer"}), &["a=3.0"], json!(3)),
            (json!({"type": "number"}), &["a=.5"], json!(0.5)),
            (json!({"type": "number"}), &["a=2"], json!(2)),
            (json!({"type": "boolean"}), &["a=false"], json!(false)),
            (
                json!({"type": ["integer", "null"]}),
                &["a=null"],
                json!(null),
            ),
            (
                json!({"type": ["string", "null"]}),
                &["a=null"],
                json!("null"),
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                &["a=1", "a=2"],
                json!([1, 2]),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                &["a=1"],
                json!(["1"]),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                &["a=[\"x\"]"],
                json!(["x"]),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                &["a=[x"],
                json!(["[x"]),
            ),
            (json!({"type": "array"}), &["a:=[]"], json!([])),
            (
                json!({"type": "object"}),
                &["a={\"b\": 1}"],
                json!({"b": 1}),
            ),
            (
                json!({"$ref": "#/$defs/Unit"}),
                &["a=celsius"],
                json!("celsius"),
            ),
            (
                json!({"allOf": [{"$ref": "#/$defs/Unit"}], "default": "celsius"}),
                &["a=fahrenheit"],
                json!("fahrenheit"),
            ),
            (json!({"enum": [1, "1"]}), &["a=1"], json!("1")),
            (json!({"enum": [1, 2]}), &["a=2"], json!(2)),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
                &["a=5"],
                json!(5),
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
                &["a=five"],
                json!("five"),
            ),
            (
                json!({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "number"}}]}),
                &["a=1", "a=2"],
                json!([1, 2]),
            ),
            (
                json!({"type": "string", "anyOf": [{"format": "date"}, {"format": "time"}]}),
                &["a=1"],
                json!("1"),
            ),
            (json!({"$ref": "#/$defs/Tree"}), &["a={}"], json!({})),
            (
                json!({"$ref": "https://a.example/schema"}),
                &["a=1"],
                json!(1),
            ),
            (json!({"properties": {"b": {}}}), &["a={}"], json!({})),
            (json!(true), &["a=1"], json!(1)),
            (json!(true), &["a=1.5"], json!(1.5)),
            (json!(true), &["a=1.10"], json!("1.10")),
            (json!(true), &["a=1e3"], json!("1e3")),
            (
                json!(true),
                &["a=1234567890123456789012"],
                json!("1234567890123456789012"),
            ),
            (
                json!(true),
                &["a=[1234567890123456789012]"],
                json!("[1234567890123456789012]"),
            ),
            (
                json!({"description": "Anything."}),
                &["a=x", "a=2"],
                json!(["x", 2]),
            ),
        ] {
            let read = typed(words, &of(&schema));
            assert_eq!(read, Ok(json!({"a": value})), "{schema} {words:?}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_told_with_what_is_expected_and_an_example() {
        for (schema, words, reported) in [
            (
                json!({"type": "integer"}),
                &["a=three"][..],
                "a: \"three\" is not an integer; write for example a=1",
            ),
            (
                json!({"type": "integer", "examples": [7]}),
                &["a=1.5"],
                "a: \"1.5\" is not an integer; write for example a=7",
            ),
            (
                json!({"type": "boolean"}),
                &["a=yes"],
                "a: \"yes\" is not true or false; write for example a=true",
            ),
            (
                json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}}),
                &["a=b"],
                r#"a: "b" is not a JSON object; write for example 'a:={"b":1}'"#,
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                &["a=1", "a=x"],
                "a is given 2 times, but these values do not fit: it is an array (each element: an integer); write for example a=1 a=2",
            ),
            (
                json!({"type": "string"}),
                &["a=1", "a=2"],
                "a is given 2 times, but these values do not fit: it is a string; write for example a=text",
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
                &["a=x"],
                "a: \"x\" is not an integer or null; write for example a=1",
            ),
            (
                json!({"$ref": "#/$defs/Unit"}),
                &["a=kelvin"],
                "a: \"kelvin\" is not one of \"celsius\", \"fahrenheit\"; write for example a=celsius",
            ),
            (
                json!({}),
                &["a:=x"],
                "a: \"x\" is not valid JSON, which `:=` requires: expected value at line 1 column 1",
            ),
            (
                json!({}),
                &["a:=1", "a=2"],
                "a is given 2 times, and `:=` sets the whole value",
            ),
            (json!({}), &["a"], "\"a\" is not of the form name=value"),
        ] {
            let read = typed(words, &of(&schema));
            assert_eq!(
                read,
                Err(format!("the arguments cannot be used: {reported}")),
                "{schema}"
            );
        }
    }

    #[test]
    fn arguments_may_be_one_object() {
        let schema = json!({"properties": {"a": {"type": "string"}}});
        assert_eq!(typed(&[r#" {"a": 1}"#], &schema), Ok(json!({"a": 1})));
        assert_eq!(typed(&[], &schema), Ok(json!({})));
        for wrong in ["{", "{} x"] {
            let reported = typed(&[wrong], &schema).expect_err("no object");
            assert!(reported.contains("not valid JSON"), "{reported}");
        }
        for (wrong, problem) in [
            (r#"{"a": 1, "a": 2}"#, "a is given twice"),
            (r#"b:=[{"c": 1, "c": 1}]"#, "b: [0].c is given twice"),
            (
                r#"{"a": 18446744073709551617}"#,
                "18446744073709551617 has more than 64 bits",
            ),
            (
                "b:=18446744073709551617",
                "b: 18446744073709551617 has more than 64 bits",
            ),
        ] {
            let reported = typed(&[wrong], &schema).expect_err(wrong);
            assert!(reported.contains(problem), "{reported}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"$ref": "#", "properties": {"a": {"$ref": "#/properties/a"}}});
        assert_eq!(typed(&["a=1"], &schema), Ok(json!({"a": 1})));
        let schema = json!({"$ref": "#"});
        assert_eq!(typed(&["a=1"], &schema), Ok(json!({"a": 1})));
    }
}
