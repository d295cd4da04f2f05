//! Elicitation at the terminal: a form is filled in field by field, and a page is shown as a link.

use std::io;

use serde_json::{Map, Number, Value, json};

use super::text::clean;

/// Maximum number of attempts for one field.
const ATTEMPTS_MAX: usize = 5;

/// A user who sees prompts and writes lines.
pub(crate) trait Person {
    /// Shows a line.
    fn print(&mut self, text: &str) -> io::Result<()>;

    /// Shows a prompt and reads a line. `None` at the end of the input.
    fn ask(&mut self, prompt: &str) -> io::Result<Option<String>>;
}

/// A field of a form.
struct Field<'s> {
    name: &'s str,
    schema: &'s Value,
    is_required: bool,
    kind: Kind,
}

/// Type of a field.
enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    Choice(Vec<Choice>),
    Choices(Vec<Choice>),
}

/// A value of an enumeration, with its title.
struct Choice {
    value: String,
    title: String,
}

/// Answers an elicitation request: returns its result.
///
/// # Errors
///
/// The terminal cannot be read or written.
pub(super) fn fill_in(params: &Value, person: &mut impl Person) -> io::Result<Value> {
    let message = clean(params["message"].as_str().unwrap_or_default());
    person.print(&format!("\nThe server asks: {message}"))?;
    if params["mode"] == "url" {
        return visit(params, person);
    }
    let schema = &params["requestedSchema"];
    let fields = fields(schema);
    let begin = match fields.len() {
        0 => "Accept? [Y/n] ",
        _ => "Fill in the form? [Y/n] ",
    };
    match person.ask(begin)?.as_deref().map(str::trim) {
        None => return Ok(json!({"action": "cancel"})),
        Some("" | "y" | "Y" | "yes") => {}
        Some(_) => return Ok(json!({"action": "decline"})),
    }
    let mut content = Map::new();
    for field in &fields {
        match field.read(person)? {
            Read::Value(value) => {
                content.insert(field.name.to_owned(), value);
            }
            Read::Nothing => {}
            Read::Cancelled => return Ok(json!({"action": "cancel"})),
        }
    }
    Ok(json!({"action": "accept", "content": content}))
}

/// Shows the page that the server wants the user to visit. It is not opened without the user.
fn visit(params: &Value, person: &mut impl Person) -> io::Result<Value> {
    let url = clean(params["url"].as_str().unwrap_or_default());
    person.print(&format!(
        "Open this page in a browser, if you trust the server:\n  {url}"
    ))?;
    let action = match person.ask("Press Enter when you are done there, or write n to decline: ")? {
        None => "cancel",
        Some(line) if line.trim().is_empty() => "accept",
        Some(_) => "decline",
    };
    Ok(json!({"action": action}))
}

fn fields(schema: &Value) -> Vec<Field<'_>> {
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| Field {
            name,
            schema,
            is_required: required.contains(&name.as_str()),
            kind: Kind::of(schema),
        })
        .collect()
}

impl Kind {
    fn of(schema: &Value) -> Self {
        let choices = choices(schema);
        if !choices.is_empty() {
            return Self::Choice(choices);
        }
        match schema["type"].as_str() {
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("boolean") => Self::Boolean,
            Some("array") => Self::Choices(self::choices(&schema["items"])),
            _ => Self::Text,
        }
    }

    /// Describes the expected input.
    fn hint(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "whole number",
            Self::Number => "number",
            Self::Boolean => "y or n",
            Self::Choice(_) => "one number of the list",
            Self::Choices(_) => "numbers of the list, separated by commas",
        }
    }
}

/// Returns the values of an enumeration, as each protocol version writes them.
fn choices(schema: &Value) -> Vec<Choice> {
    let titled = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(titled) = titled {
        let choice = |one: &Value| {
            let value = one["const"].as_str()?.to_owned();
            let title = one["title"].as_str().unwrap_or(&value).to_owned();
            Some(Choice { value, title })
        };
        return titled.iter().filter_map(choice).collect();
    }
    let values = schema["enum"].as_array().into_iter().flatten();
    values
        .enumerate()
        .filter_map(|(at, value)| {
            let value = value.as_str()?.to_owned();
            let title = schema["enumNames"][at].as_str().unwrap_or(&value);
            let title = title.to_owned();
            Some(Choice { value, title })
        })
        .collect()
}

/// Result of one field.
enum Read {
    Value(Value),
    /// An optional field without input.
    Nothing,
    /// The end of the input, or too many invalid attempts.
    Cancelled,
}

impl Field<'_> {
    fn read(&self, person: &mut impl Person) -> io::Result<Read> {
        let title = self.schema["title"].as_str().unwrap_or(self.name);
        if let Some(description) = self.schema["description"].as_str() {
            person.print(&format!("  {}", clean(description)))?;
        }
        if let Kind::Choice(choices) | Kind::Choices(choices) = &self.kind {
            for (at, choice) in choices.iter().enumerate() {
                person.print(&format!("  {}) {}", at + 1, clean(&choice.title)))?;
            }
        }
        let default = self.schema.get("default");
        let rest = match (default, self.is_required) {
            (Some(default), _) => format!(" [{}]", clean(&shown(default))),
            (None, true) => String::new(),
            (None, false) => " [none]".to_owned(),
        };
        let prompt = format!("{} ({}){rest}: ", clean(title), self.kind.hint());
        for _ in 0..ATTEMPTS_MAX {
            let Some(line) = person.ask(&prompt)? else {
                return Ok(Read::Cancelled);
            };
            let line = line.trim();
            match (line.is_empty(), default, self.is_required) {
                (true, Some(default), _) => return Ok(Read::Value(default.clone())),
                (true, None, false) => return Ok(Read::Nothing),
                (true, None, true) => {
                    person.print("  a value is required; Ctrl-D cancels")?;
                    continue;
                }
                (false, ..) => {}
            }
            match self.parse(line) {
                Ok(value) => return Ok(Read::Value(value)),
                Err(problem) => person.print(&format!("  {problem}"))?,
            }
        }
        Ok(Read::Cancelled)
    }

    fn parse(&self, line: &str) -> Result<Value, String> {
        match &self.kind {
            Kind::Text => self.text(line),
            Kind::Boolean => match &*line.to_ascii_lowercase() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("write y or n".to_owned()),
            },
            Kind::Integer => {
                let number: i64 = line
                    .parse()
                    .map_err(|_| "write a whole number".to_owned())?;
                #[expect(clippy::cast_precision_loss, reason = "only compared with bounds")]
                self.bounded(number as f64)?;
                Ok(number.into())
            }
            Kind::Number => {
                let number: f64 = line.parse().map_err(|_| "write a number".to_owned())?;
                self.bounded(number)?;
                let number = Number::from_f64(number).ok_or("write a finite number")?;
                Ok(number.into())
            }
            Kind::Choice(choices) => chosen(choices, line).map(Value::from),
            Kind::Choices(choices) => {
                let parts = line
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty());
                let values: Result<Vec<_>, _> = parts.map(|part| chosen(choices, part)).collect();
                let values = values?;
                let bound = |name: &str| self.schema[name].as_u64();
                if bound("minItems").is_some_and(|least| (values.len() as u64) < least) {
                    return Err(format!(
                        "choose at least {}",
                        shown(&self.schema["minItems"])
                    ));
                }
                if bound("maxItems").is_some_and(|most| most < values.len() as u64) {
                    return Err(format!(
                        "choose at most {}",
                        shown(&self.schema["maxItems"])
                    ));
                }
                Ok(values.into())
            }
        }
    }

    fn text(&self, line: &str) -> Result<Value, String> {
        let length = line.chars().count() as u64;
        let bound = |name: &str| self.schema[name].as_u64();
        if let Some(least) = bound("minLength").filter(|least| length < *least) {
            return Err(format!("write at least {least} characters"));
        }
        if let Some(most) = bound("maxLength").filter(|most| *most < length) {
            return Err(format!("write at most {most} characters"));
        }
        Ok(line.into())
    }

    fn bounded(&self, number: f64) -> Result<(), String> {
        let bound = |name: &str| self.schema[name].as_f64();
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            return Err(format!("it must be at least {least}"));
        }
        if let Some(most) = bound("maximum").filter(|most| *most < number) {
            return Err(format!("it must be at most {most}"));
        }
        Ok(())
    }
}

/// Returns the value of a choice, by its number in the list, its value or its title.
fn chosen(choices: &[Choice], text: &str) -> Result<String, String> {
    let by_number = || choices.get(text.parse::<usize>().ok()?.checked_sub(1)?);
    let named = choices
        .iter()
        .find(|choice| choice.value == text || choice.title == text);
    named
        .or_else(by_number)
        .map(|choice| choice.value.clone())
        .ok_or_else(|| format!("write a number from 1 to {}", choices.len()))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Lines that are typed; after them, the input ends.
    struct Typed {
        lines: VecDeque<&'static str>,
        seen: String,
    }

    impl Person for Typed {
        fn print(&mut self, text: &str) -> io::Result<()> {
            self.seen.push_str(text);
            self.seen.push('\n');
            Ok(())
        }

        fn ask(&mut self, prompt: &str) -> io::Result<Option<String>> {
            self.seen.push_str(prompt);
            Ok(self.lines.pop_front().map(str::to_owned))
        }
    }

    fn filled(params: &Value, lines: &[&'static str]) -> (Value, String) {
        let mut person = Typed {
            lines: lines.iter().copied().collect(),
            seen: String::new(),
        };
        let result = fill_in(params, &mut person).expect("no terminal fails");
        (result, person.seen)
    }

    fn trip() -> Value {
        json!({
            "message": "Where to?\u{1b}[2J",
            "requestedSchema": {"type": "object", "required": ["town", "by"], "properties": {
                "town": {"type": "string", "title": "Town", "minLength": 2},
                "days": {"type": "integer", "minimum": 1, "maximum": 30, "default": 3},
                "price": {"type": "number"},
                "meals": {"type": "boolean"},
                "by": {"type": "string", "oneOf": [
                    {"const": "train", "title": "By train"}, {"const": "ship", "title": "By ship"},
                ]},
                "extras": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}},
            }},
        })
    }

    #[test]
    fn a_form_is_filled_in_field_by_field() {
        let lines = ["", "x", "Rome", "40", "5", "", "y", "2", "1,c"];
        let (result, seen) = filled(&trip(), &lines);
        let content =
            json!({"town": "Rome", "days": 5, "meals": true, "by": "ship", "extras": ["a", "c"]});
        assert_eq!(result, json!({"action": "accept", "content": content}));
        for part in [
            "Town (text): ",
            "write at least 2 characters",
            "days (whole number) [3]: ",
            "it must be at most 30",
            "  2) By ship",
        ] {
            assert!(seen.contains(part), "{part}: {seen}");
        }
        assert!(!seen.contains('\u{1b}'), "control characters are removed");
    }

    #[test]
    fn defaults_are_kept_and_required_fields_are_asked_again() {
        let lines = ["y", "", "Rome", "", "", "", "By train", ""];
        let (result, seen) = filled(&trip(), &lines);
        let content = json!({"town": "Rome", "days": 3, "by": "train"});
        assert_eq!(result, json!({"action": "accept", "content": content}));
        assert!(seen.contains("a value is required"));
    }

    #[test]
    fn a_user_can_decline_and_cancel() {
        assert_eq!(filled(&trip(), &["n"]).0, json!({"action": "decline"}));
        assert_eq!(filled(&trip(), &[]).0, json!({"action": "cancel"}));
        assert_eq!(
            filled(&trip(), &["", "Rome"]).0,
            json!({"action": "cancel"})
        );
        let wrong = ["", "x", "x", "x", "x", "x", "Rome"];
        assert_eq!(filled(&trip(), &wrong).0, json!({"action": "cancel"}));
        let bare =
            json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
        assert_eq!(
            filled(&bare, &[""]).0,
            json!({"action": "accept", "content": {}})
        );
    }

    #[test]
    fn a_page_is_shown_and_not_opened() {
        let params = json!({"mode": "url", "message": "Log in", "url": "https://id.example/x"});
        let (result, seen) = filled(&params, &[""]);
        assert_eq!(result, json!({"action": "accept"}));
        assert!(seen.contains("https://id.example/x"));
        assert_eq!(filled(&params, &["n"]).0, json!({"action": "decline"}));
        assert_eq!(filled(&params, &[]).0, json!({"action": "cancel"}));
    }
}
