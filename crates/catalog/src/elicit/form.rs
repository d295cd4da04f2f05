//! Forms: the few schemas that a person can be shown.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::secret::names_a_secret;
use crate::catalog::schema::{self, Compiled};
use crate::protocol::Revision;

/// A form that a person fills in: fields of text, numbers, yes or no, and choices (ELI-04).
///
/// Most forms are Rust types, and this is not needed: see [`CallContext::elicit`](crate::CallContext::elicit).
///
/// ```
/// use longshore::Form;
/// use serde_json::json;
///
/// let form = Form::from_schema(json!({
///     "type": "object",
///     "properties": {
///         "colour": {"type": "string", "oneOf": [
///             {"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
///         "count": {"type": "integer", "minimum": 1, "default": 1},
///     },
///     "required": ["colour"],
/// }))?;
///
/// let nested = json!({"type": "object", "properties": {"place": {"type": "object"}}});
/// assert!(Form::from_schema(nested).is_err());
/// # let _ = form;
/// # Ok::<_, longshore::FormError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    fields: Map<String, Value>,
    required: Vec<String>,
}

/// Reason for which a schema cannot be a form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} {problem}")]
pub struct FormError {
    place: String,
    problem: String,
}

/// Keywords that fields of a type may have, besides type, title, description and default.
const STRING: &[&str] = &[
    "minLength",
    "maxLength",
    "format",
    "enum",
    "enumNames",
    "oneOf",
];
const NUMBER: &[&str] = &["minimum", "maximum"];
const ARRAY: &[&str] = &["minItems", "maxItems", "items"];
const ALWAYS: &[&str] = &["type", "title", "description", "default"];
/// Keywords without a visible effect in a form, which are removed.
const IGNORED: &[&str] = &[
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "uniqueItems",
    "$comment",
];
const FORMATS: &[&str] = &["email", "uri", "date", "date-time"];

impl Form {
    /// The form of a type: a struct of strings, numbers, booleans, unit enums, `Vec`s or sets of unit enums, and
    /// `Option`s of these.
    ///
    /// A field's doc comment is its description, `#[serde(default = "...")]` its default, and what
    /// `#[schemars(range(...), length(...), title = "...")]` says is said to the person too. Variants of an enum have
    /// the title that `#[schemars(title = "...")]` gives them, or else their doc comment.
    ///
    /// # Errors
    ///
    /// The type has something that no form has, such as a struct within a struct, or asks for a secret.
    pub fn of<T: JsonSchema + DeserializeOwned>() -> Result<Self, FormError> {
        let mut schema = schema::of_arguments::<T>();
        let is_checked_by_type = schema::says_no_more_than_type(&schema);
        inline_fields(&mut schema, |field, definitions| {
            if let Some(Value::Object(items)) = field.get_mut("items") {
                schema::inline(items, definitions);
            }
        });
        Self::new(schema, is_checked_by_type)
    }

    /// A form from a JSON Schema of the kind that forms have: an object whose properties are strings, numbers,
    /// booleans, or one or several choices.
    ///
    /// # Errors
    ///
    /// It is of another kind, or asks for a secret: by a field that is called `password`, `api_key` or the like. Always in
    /// builds without the feature `validation`, where only forms of types are possible.
    pub fn from_schema(schema: Value) -> Result<Self, FormError> {
        Self::new(schema, false)
    }

    /// A form that another server requests. Its fields may be nullable. Constraints that forms do not have are left out,
    /// because that server validates the values.
    ///
    /// # Errors
    ///
    /// As [`from_schema`](Self::from_schema).
    #[doc(hidden)]
    pub fn from_foreign_schema(mut schema: Value) -> Result<Self, FormError> {
        const CONSTRAINTS: [&str; 4] = [
            "pattern",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ];
        inline_fields(&mut schema, |field, _| {
            field.retain(|keyword, _| !CONSTRAINTS.contains(&&**keyword));
        });
        Self::new(schema, false)
    }

    /// `is_checked_by_type` is true if deserialising submitted values checks all that the schema says.
    fn new(mut schema: Value, is_checked_by_type: bool) -> Result<Self, FormError> {
        let whole = |problem: &str| FormError::new("the form", problem);
        if cfg!(not(feature = "validation")) && !is_checked_by_type {
            return Err(whole(
                "requires the feature `validation`, which this build does not have; enable the feature, or remove \
                 ranges and lengths and check them in the tool",
            ));
        }
        if schema["type"] != "object" {
            return Err(whole("is a schema of an object"));
        }
        let Some(properties) = schema["properties"].as_object_mut() else {
            return Err(whole("has properties"));
        };
        let mut fields = Map::new();
        for (name, field) in properties {
            let fault = |problem: String| FormError::new(&format!("the field `{name}`"), problem);
            let field = tidied(field.take()).map_err(fault)?;
            // ELI-02
            let title = field["title"].as_str().unwrap_or_default();
            if names_a_secret(name) || names_a_secret(title) {
                let problem = "asks for a secret, which forms must not, because clients see the values; use elicit_url to show a page instead";
                return Err(fault(problem.to_owned()));
            }
            fields.insert(name.clone(), field);
        }
        let required = match schema["required"].take() {
            Value::Null => Vec::new(),
            names => serde_json::from_value(names)
                .map_err(|_| whole("has names of fields in `required`"))?,
        };
        Ok(Self { fields, required })
    }

    /// As clients of a revision are shown it.
    ///
    /// # Errors
    ///
    /// It needs something that the revision does not have.
    pub(super) fn schema_for(&self, revision: Revision) -> Result<Value, String> {
        let mut fields = Map::new();
        for (name, field) in &self.fields {
            let field = match revision.has_rich_forms() {
                true => Some(field.clone()),
                false => plain(field.clone()),
            };
            match field {
                Some(field) => drop(fields.insert(name.clone(), field)),
                None if self.required.contains(name) => {
                    return Err(format!(
                        "its protocol version has no multiple choice, which `{name}` is"
                    ));
                }
                // Optional fields without input are omitted.
                None => {}
            }
        }
        let mut shown = json!({"type": "object", "properties": fields});
        if !self.required.is_empty() {
            shown["required"] = self.required.clone().into();
        }
        Ok(shown)
    }

    /// Validates the submitted values. Optional fields that are null are removed.
    pub(super) fn check(&self, content: &mut Value) -> Result<(), String> {
        // Without a validator there are only forms whose type checks the values.
        if cfg!(not(feature = "validation")) {
            return Ok(());
        }
        let schema = json!({
            "type": "object", "properties": self.fields, "required": self.required,
        });
        let compiled = Compiled::output(&schema).map_err(|e| e.to_string())?;
        let checked = compiled.check_and_omit_nulls(content);
        checked.map(drop).map_err(|e| e.to_string())
    }
}

impl FormError {
    fn new(place: &str, problem: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Puts the definitions of fields in the places of their references, and removes null from the fields. `adapt` is given each
/// field then, and the definitions.
fn inline_fields(schema: &mut Value, adapt: impl Fn(&mut Map<String, Value>, &Value)) {
    let definitions = schema.get_mut("$defs").map(Value::take);
    let definitions = definitions.unwrap_or_default();
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    let fields = fields.into_iter().flat_map(Map::values_mut);
    for field in fields.filter_map(Value::as_object_mut) {
        schema::without_null(field);
        schema::inline(field, &definitions);
        adapt(field, &definitions);
    }
}

/// Reduces a field to the keywords that forms have.
fn tidied(field: Value) -> Result<Value, String> {
    let Value::Object(mut field) = field else {
        return Err("is a schema".to_owned());
    };
    settle_choices(&mut field);
    let allowed = match field.get("type").and_then(Value::as_str) {
        Some("string") => STRING,
        Some("number" | "integer") => NUMBER,
        Some("boolean") => &[],
        Some("array") => ARRAY,
        _ => {
            return Err(
                "is not a string, a number, a boolean or a choice; forms support nothing else"
                    .to_owned(),
            );
        }
    };
    let format = field.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| !FORMATS.contains(&format)) {
        // Removes formats such as `uint8`, which describe the Rust type only.
        field.shift_remove("format");
    }
    field.retain(|keyword, _| !IGNORED.contains(&&**keyword));
    let known = |keyword: &str| ALWAYS.contains(&keyword) || allowed.contains(&keyword);
    if let Some((unknown, _)) = field.iter().find(|(keyword, _)| !known(keyword)) {
        return Err(format!("has `{unknown}`, which forms do not have"));
    }
    if let Some(items) = field.get_mut("items") {
        *items = tidied_items(items.take())?;
    } else if field["type"] == "array" {
        return Err("has no list of choices in `items`".to_owned());
    }
    Ok(field.into())
}

/// The choices of several.
fn tidied_items(items: Value) -> Result<Value, String> {
    let Value::Object(mut items) = items else {
        return Err("has choices in `items`".to_owned());
    };
    settle_choices(&mut items);
    if let Some(choices) = items
        .shift_remove("oneOf")
        .or_else(|| items.shift_remove("anyOf"))
    {
        return Ok(json!({ "anyOf": choices }));
    }
    match items.shift_remove("enum") {
        Some(choices) if items.get("type").is_some_and(|t| t == "string") => {
            Ok(json!({"type": "string", "enum": choices}))
        }
        _ => Err("has choices of text in `items`, as an enum or with titles".to_owned()),
    }
}

/// Choices as types have them, each with a schema of its own, become choices as forms have them: with titles.
fn settle_choices(field: &mut Map<String, Value>) {
    if let Some(only) = field.shift_remove("const") {
        field.insert("enum".to_owned(), json!([only]));
    }
    let choices = ["oneOf", "anyOf"].into_iter().find_map(|keyword| {
        let choices = field.get(keyword)?.as_array()?;
        choices.iter().map(choice).collect::<Option<Vec<_>>>()
    });
    let Some(choices) = choices else {
        return;
    };
    let is_array_item = field.contains_key("anyOf");
    field.shift_remove("oneOf");
    field.shift_remove("anyOf");
    let choices: Vec<_> = choices.into_iter().flatten().collect();
    let titled = choices.iter().any(|(_, title)| title.is_some());
    let values = choices.iter().map(|(value, title)| match title {
        Some(title) => json!({"const": value, "title": title}),
        None => json!({"const": value, "title": value}),
    });
    if titled {
        let keyword = if is_array_item { "anyOf" } else { "oneOf" };
        field.insert(keyword.to_owned(), values.collect());
    } else {
        let values = choices.iter().map(|(value, _)| value.clone());
        field.insert("enum".to_owned(), values.collect());
    }
    field.insert("type".to_owned(), "string".into());
}

/// The values of one choice, and the title that each has. `None` if it is no choice of text.
fn choice(schema: &Value) -> Option<Vec<(Value, Option<String>)>> {
    let title = schema.get("title").or_else(|| schema.get("description"));
    let title = title.and_then(Value::as_str).map(str::to_owned);
    if let Some(value) = schema.get("const") {
        return value.is_string().then(|| vec![(value.clone(), title)]);
    }
    let values = schema.get("enum")?.as_array()?;
    let texts = values.iter().all(Value::is_string);
    texts.then(|| values.iter().map(|value| (value.clone(), None)).collect())
}

/// A field for clients of revisions that have plain forms only; `None` if those have nothing like it.
fn plain(field: Value) -> Option<Value> {
    let Value::Object(mut field) = field else {
        return None;
    };
    match field.get("type").and_then(Value::as_str)? {
        "array" => return None,
        "boolean" => {}
        _ => drop(field.shift_remove("default")),
    }
    if let Some(Value::Array(choices)) = field.shift_remove("oneOf") {
        let each = |member: &str| {
            choices
                .iter()
                .map(|choice| choice[member].clone())
                .collect()
        };
        field.insert("enum".to_owned(), each("const"));
        field.insert("enumNames".to_owned(), each("title"));
    }
    Some(field.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(crate = "serde", rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    enum Size {
        /// Small enough
        S,
        #[schemars(title = "Larger")]
        L,
    }

    fn thirty() -> u8 {
        30
    }

    fn red() -> Colour {
        Colour::Red
    }

    /// Never shown.
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Everything {
        /// Who it is for.
        #[schemars(length(min = 1, max = 50))]
        name: String,
        #[schemars(email)]
        mail: Option<String>,
        #[serde(default = "thirty")]
        age: u8,
        score: f64,
        #[serde(default)]
        verified: bool,
        #[serde(default = "red")]
        colour: Colour,
        size: Size,
        wish: Option<Size>,
        colours: Vec<Colour>,
        sizes: std::collections::BTreeSet<Size2>,
    }

    #[derive(Serialize, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
    enum Size2 {
        #[schemars(title = "Small")]
        S,
        #[schemars(title = "Large")]
        L,
    }

    #[test]
    fn a_type_of_any_value_is_no_form() {
        let error = Form::of::<Value>().expect_err("no object");
        assert_eq!(error.to_string(), "the form is a schema of an object");
    }

    #[test]
    fn eli_04_a_type_becomes_a_flat_form() {
        let form = Form::of::<Everything>().expect("a form");
        let shown = form.schema_for(Revision::V2026_07_28).expect("all of it");
        assert_eq!(
            shown,
            json!({
                "type": "object",
                "properties": {
                    "name": {"description": "Who it is for.", "type": "string", "minLength": 1, "maxLength": 50},
                    "mail": {"type": "string", "format": "email"},
                    "age": {"type": "integer", "minimum": 0, "maximum": 255, "default": 30},
                    "score": {"type": "number"},
                    "verified": {"type": "boolean", "default": false},
                    "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
                    "size": {"type": "string", "oneOf": [
                        {"const": "S", "title": "Small enough"}, {"const": "L", "title": "Larger"}]},
                    "wish": {"type": "string", "oneOf": [
                        {"const": "S", "title": "Small enough"}, {"const": "L", "title": "Larger"}]},
                    "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "green"]}},
                    "sizes": {"type": "array", "items": {"anyOf": [
                        {"const": "S", "title": "Small"}, {"const": "L", "title": "Large"}]}},
                },
                "required": ["name", "score", "size", "colours", "sizes"],
            })
        );
    }

    #[test]
    fn clients_of_2025_06_18_are_shown_what_they_know() {
        let form = Form::from_schema(json!({
            "type": "object",
            "properties": {
                "age": {"type": "integer", "default": 30},
                "yes": {"type": "boolean", "default": true},
                "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}], "default": "s"},
                "sizes": {"type": "array", "items": {"type": "string", "enum": ["s"]}},
            },
        }));
        let mut form = form.expect("a form");
        assert_eq!(
            form.schema_for(Revision::V2025_06_18).expect("most of it"),
            json!({
                "type": "object",
                "properties": {
                    "age": {"type": "integer"},
                    "yes": {"type": "boolean", "default": true},
                    "size": {"type": "string", "enum": ["s"], "enumNames": ["Small"]},
                },
            })
        );
        form.required.push("sizes".to_owned());
        let refused = form.schema_for(Revision::V2025_06_18).expect_err("needed");
        assert!(refused.contains("`sizes`"), "{refused}");
    }

    #[test]
    fn schemas_of_all_the_kinds_of_choices_stay_what_they_are() {
        let schema = json!({
            "type": "object",
            "properties": {
                "untitledSingle": {"type": "string", "enum": ["option1", "option2"]},
                "titledSingle": {"type": "string", "oneOf": [{"const": "value1", "title": "First Option"}]},
                "legacyEnum": {"type": "string", "enum": ["opt1"], "enumNames": ["Option One"]},
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1"]}, "minItems": 1},
                "titledMulti": {"type": "array", "items": {"anyOf": [{"const": "value1", "title": "First Choice"}]}},
            },
        });
        let form = Form::from_schema(schema.clone()).expect("a form");
        assert_eq!(form.schema_for(Revision::V2025_11_25).expect("all"), schema);
    }

    #[test]
    fn what_no_form_has_is_refused_by_name() {
        for (field, word) in [
            (json!({"type": "object"}), "nothing else"),
            (json!({"type": ["string", "null"]}), "nothing else"),
            (json!({"type": "string", "pattern": "a"}), "`pattern`"),
            (json!({"type": "integer", "multipleOf": 2}), "`multipleOf`"),
            (json!({"type": "array"}), "`items`"),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                "choices",
            ),
            (
                json!({"type": "array", "items": {"type": "integer", "enum": [1]}}),
                "choices",
            ),
        ] {
            let schema = json!({"type": "object", "properties": {"x": field}});
            let error = Form::from_schema(schema).expect_err("no form").to_string();
            assert!(error.contains("`x`") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_form_of_another_server_may_constrain_values_in_ways_that_forms_do_not_have() {
        let form = Form::from_foreign_schema(json!({
            "type": "object",
            "properties": {
                "a": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "default": null},
                "b": {"type": "string", "pattern": "^(?!x)"},
                "c": {"$ref": "#/$defs/C"},
                "d": {"type": "integer", "multipleOf": 2, "exclusiveMinimum": 0},
            },
            "$defs": {"C": {"type": "string", "enum": ["x"]}},
        }));
        assert_eq!(
            form.expect("a form").schema_for(Revision::V2025_11_25),
            Ok(json!({
                "type": "object",
                "properties": {
                    "a": {"type": "string", "minLength": 1},
                    "b": {"type": "string"},
                    "c": {"type": "string", "enum": ["x"]},
                    "d": {"type": "integer"},
                },
            }))
        );
        for other in [json!([]), json!(null), json!({"type": "object"})] {
            assert!(Form::from_foreign_schema(other).is_err());
        }
    }

    #[test]
    fn eli_02_a_form_does_not_ask_for_secrets() {
        let of = |name: &str, title: &str| {
            let field = json!({"type": "string", "title": title});
            Form::from_schema(json!({"type": "object", "properties": {name: field}}))
        };
        assert!(of("name", "Your name").is_ok());
        for (name, title) in [("password", ""), ("x", "API key")] {
            let error = of(name, title).expect_err("refused").to_string();
            assert!(
                error.contains(name) && error.contains("elicit_url"),
                "{error}"
            );
        }
    }

    #[test]
    fn eli_09_what_is_filled_in_is_checked() {
        let form = Form::of::<Everything>().expect("a form");
        let mut good =
            json!({"name": "a", "score": 1.5, "size": "S", "colours": ["red"], "sizes": []});
        let filled_in = good.clone();
        good["age"] = Value::Null;
        good["wish"] = Value::Null;
        assert_eq!(form.check(&mut good), Ok(()));
        assert_eq!(good, filled_in);
        for (field, bad) in [
            ("name", json!("")),
            ("score", json!("much")),
            ("size", json!("XL")),
            ("colours", json!(["blue"])),
            ("age", json!(256)),
        ] {
            let mut content = good.clone();
            content[field] = bad;
            let problem = form.check(&mut content).expect_err("bad");
            assert!(problem.contains(field), "{problem}");
        }
        assert!(form.check(&mut json!({})).is_err());
    }
}
