//! Parameters that clients mirror in HTTP headers: `x-mcp-header` in an input schema.

use http::HeaderName;
use serde_json::{Map, Value};

use super::{SchemaError, SchemaProblem, is_data, push};

/// An argument that a client also sends as a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParameter {
    /// `mcp-param-` and the annotated name, in lower case.
    pub header: HeaderName,
    /// The names of the properties that lead to the argument, from the root.
    pub path: Vec<String>,
    /// Comparison of the header's value with the argument.
    pub kind: ParameterKind,
}

/// The types that can be mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterKind {
    /// Compared as a number.
    Integer,
    /// Compared letter by letter.
    String,
    /// `true` or `false`.
    Boolean,
}

/// Finds the mirrored parameters of an input schema.
///
/// # Errors
///
/// Clients leave out a tool that breaks one of these rules, so it is refused instead: a name is a token of
/// RFC 9110, is given once, whatever its case, and stands on a property of type `integer`, `string` or
/// `boolean` that `properties` alone lead to, through no `items`, no `anyOf`, no `$ref`.
pub fn header_parameters(schema: &Value) -> Result<Vec<HeaderParameter>, SchemaError> {
    let mut search = Search::default();
    search.reachable(schema, true)?;
    Ok(search.found)
}

#[derive(Default)]
struct Search {
    found: Vec<HeaderParameter>,
    pointer: String,
    path: Vec<String>,
}

impl Search {
    /// Looks at a schema that `properties` alone lead to.
    fn reachable(&mut self, schema: &Value, is_root: bool) -> Result<(), SchemaError> {
        let Value::Object(members) = schema else {
            return Ok(());
        };
        if let Some(name) = members.get(KEYWORD) {
            if is_root {
                return Err(self.refuse("only a property can have it, not the root"));
            }
            self.take(name, members)?;
        }
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        let length = self.pointer.len();
                        push(&mut self.pointer, keyword);
                        push(&mut self.pointer, name);
                        self.path.push(name.clone());
                        self.reachable(property, false)?;
                        self.path.pop();
                        self.pointer.truncate(length);
                    }
                }
                (keyword, value) if !is_data(keyword) && keyword != KEYWORD => {
                    self.unreachable(keyword, value)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, name: &Value, schema: &Map<String, Value>) -> Result<(), SchemaError> {
        let name = name
            .as_str()
            .ok_or_else(|| self.refuse("its value is a string"))?;
        let is_token = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        let header = is_token
            .then(|| format!("mcp-param-{}", name.to_ascii_lowercase()))
            .and_then(|name| HeaderName::try_from(name).ok())
            .ok_or_else(|| {
                self.refuse(&format!(
                    "{name:?} is not a header name, which is one or more letters, digits or !#$%&'*+-.^_`|~"
                ))
            })?;
        let kind = match schema.get("type").and_then(Value::as_str) {
            Some("integer") => ParameterKind::Integer,
            Some("string") => ParameterKind::String,
            Some("boolean") => ParameterKind::Boolean,
            _ => {
                return Err(self.refuse(
                    "the property's `type` must be `integer`, `string` or `boolean`, and only that",
                ));
            }
        };
        if self.found.iter().any(|other| other.header == header) {
            return Err(self.refuse(&format!("{name:?} is given twice (case does not count)")));
        }
        self.found.push(HeaderParameter {
            header,
            path: self.path.clone(),
            kind,
        });
        Ok(())
    }

    /// Looks at what else a schema has in it, where the annotation must not be.
    fn unreachable(&mut self, step: &str, value: &Value) -> Result<(), SchemaError> {
        let length = self.pointer.len();
        push(&mut self.pointer, step);
        match value {
            Value::Object(members) => {
                if members.contains_key(KEYWORD) && !is_map_of_schemas(step) {
                    return Err(self.refuse(
                        "only a property that `properties` alone lead to from the root can have it",
                    ));
                }
                for (name, member) in members {
                    if is_map_of_schemas(step) || !is_data(name) && name != KEYWORD {
                        self.unreachable(name, member)?;
                    }
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.unreachable(&i.to_string(), item)?;
                }
            }
            _ => {}
        }
        self.pointer.truncate(length);
        Ok(())
    }

    fn refuse(&self, why: &str) -> SchemaError {
        SchemaError::at(&self.pointer, SchemaProblem::Header(why.to_owned()))
    }
}

const KEYWORD: &str = "x-mcp-header";

/// Returns true if a keyword's value maps names to schemas, where the annotation is a name.
fn is_map_of_schemas(keyword: &str) -> bool {
    matches!(
        keyword,
        "properties"
            | "patternProperties"
            | "$defs"
            | "definitions"
            | "dependentSchemas"
            | "dependencies"
    )
}

#[cfg(test)]
mod tests;
