//! Edits of a client's file that keep its comments and its order.

use std::fmt::Write as _;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use super::clients::Syntax;

/// A change of one entry in a table of servers.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    /// The key of the table.
    pub(super) table: &'a str,
    /// The name of the server.
    pub(super) name: &'a str,
    /// The entry, or `None` to remove it.
    pub(super) entry: Option<&'a Value>,
}

impl Edit<'_> {
    /// Returns the text with the change, or `None` when it has the entry already.
    ///
    /// # Errors
    ///
    /// When the text cannot be read, or the change cannot be made without touching other parts.
    pub(super) fn apply(&self, syntax: Syntax, text: &str) -> Result<Option<String>, String> {
        // Editors of Windows begin files with a byte order mark, which is kept.
        match text.strip_prefix('\u{feff}') {
            None => self.change(syntax, text),
            Some(text) => {
                let changed = self.change(syntax, text)?;
                Ok(changed.map(|changed| format!("\u{feff}{changed}")))
            }
        }
    }

    fn change(&self, syntax: Syntax, text: &str) -> Result<Option<String>, String> {
        let before = parse(syntax, text)?;
        let expected = self.expected(&before)?;
        if expected == before {
            return Ok(None);
        }
        let changed = match syntax {
            Syntax::Json => self.json(text)?,
            Syntax::Toml => self.toml(text)?,
        };
        // The text is edited, not written anew: this proves that all else in it is as it was.
        let after = parse(syntax, &changed).ok();
        if after.map(|after| self.without_empty_table(after))
            != Some(self.without_empty_table(expected))
        {
            return Err(
                "the entry is written in a form that cannot be edited safely; change it by hand"
                    .to_owned(),
            );
        }
        Ok(Some(changed))
    }

    /// The value of the whole file after the change.
    fn expected(&self, before: &Value) -> Result<Value, String> {
        let mut expected = before.clone();
        let root = expected
            .as_object_mut()
            .ok_or("the file's value is not an object")?;
        match self.entry {
            Some(entry) => {
                root.entry(self.table)
                    .or_insert_with(|| Value::Object(serde_json::Map::new()))
                    .as_object_mut()
                    .ok_or_else(|| format!("\"{}\" is not an object", self.table))?
                    .insert(self.name.to_owned(), entry.clone());
            }
            None => {
                if let Some(table) = root.get_mut(self.table).and_then(Value::as_object_mut) {
                    table.remove(self.name);
                }
            }
        }
        Ok(expected)
    }

    /// The value without the table of servers, if that is empty: in TOML it goes with its last entry.
    fn without_empty_table(&self, mut file: Value) -> Value {
        if let Some(root) = file.as_object_mut()
            && root
                .get(self.table)
                .and_then(Value::as_object)
                .is_some_and(serde_json::Map::is_empty)
        {
            root.remove(self.table);
        }
        file
    }

    fn json(&self, text: &str) -> Result<String, String> {
        let root = CstRootNode::parse(text, &json_options()).map_err(|error| error.to_string())?;
        let object = match root.value() {
            None => root.object_value_or_set(),
            Some(_) => root
                .object_value()
                .ok_or("the file's value is not an object")?,
        };
        match self.entry {
            Some(entry) => {
                let table: CstObject = object
                    .object_value_or_create(self.table)
                    .ok_or_else(|| format!("\"{}\" is not an object", self.table))?;
                match table.get(self.name) {
                    Some(property) => property.set_value(input(entry)),
                    None => {
                        table.append(self.name, input(entry));
                    }
                }
            }
            None => {
                let property = object
                    .object_value(self.table)
                    .and_then(|table| table.get(self.name));
                if let Some(property) = property {
                    property.remove();
                }
            }
        }
        let mut changed = root.to_string();
        if !changed.ends_with('\n') {
            changed.push('\n');
        }
        Ok(changed)
    }

    /// Replaces the lines from the entry's header to the next header of another table.
    fn toml(&self, text: &str) -> Result<String, String> {
        let own = [self.table, self.name];
        let mut kept = String::with_capacity(text.len());
        let mut inside = false;
        for line in text.split_inclusive('\n') {
            if let Some(path) = header(line) {
                inside = path.iter().map(String::as_str).take(2).eq(own);
            }
            if !inside {
                kept.push_str(line);
            }
        }
        let Some(entry) = self.entry.and_then(Value::as_object) else {
            return Ok(kept);
        };
        if !kept.is_empty() {
            kept.truncate(kept.trim_end().len());
            kept.push_str("\n\n");
        }
        // Writing to a string cannot fail.
        let _ = writeln!(kept, "[{}.{}]", self.table, toml_key(self.name));
        for (key, value) in entry {
            let value = toml::Value::try_from(value).map_err(|error| error.to_string())?;
            let _ = writeln!(kept, "{} = {value}", toml_key(key));
        }
        Ok(kept)
    }
}

/// The path of a table's header: `[mcp_servers.shop]`.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start();
    if !line.starts_with('[') {
        return None;
    }
    // A line that is a header parses as a document of its own, and a line within an array does not.
    let mut table = toml::from_str::<toml::Table>(line).ok()?;
    let mut path = Vec::new();
    while let Some((key, value)) = table.into_iter().next() {
        path.push(key);
        table = match value {
            toml::Value::Table(table) => table,
            _ => break,
        };
    }
    Some(path)
}

fn toml_key(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(is_bare) {
        key.to_owned()
    } else {
        toml::Value::from(key).to_string()
    }
}

fn parse(syntax: Syntax, text: &str) -> Result<Value, String> {
    match syntax {
        Syntax::Json => {
            let value = jsonc_parser::parse_to_serde_value::<Option<Value>>(text, &json_options())
                .map_err(|error| error.to_string())?;
            Ok(value.unwrap_or_else(|| Value::Object(serde_json::Map::new())))
        }
        Syntax::Toml => {
            let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
            serde_json::to_value(table).map_err(|error| error.to_string())
        }
    }
}

/// JSON with comments and trailing commas, as editors write it.
fn json_options() -> ParseOptions {
    ParseOptions {
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
        ..ParseOptions::default()
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(values) => {
            let properties = values
                .iter()
                .map(|(name, value)| (name.clone(), input(value)));
            CstInputValue::Object(properties.collect())
        }
    }
}
