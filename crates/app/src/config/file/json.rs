//! JSON, with comments and commas at the end.

use jsonc_parser::ast::Value as Ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

use super::{LineIndex, SyntaxError};
use crate::config::value::{Content, Node, Origin};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let places = LineIndex::new(text);
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed =
        parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| SyntaxError {
            place: Some(places.at(error.range().start)),
            message: in_one_line(&error.kind().to_string()),
        })?;
    match parsed.value {
        Some(value) => node(value, None, &places),
        None => Ok(Node::new(places.origin(0), Content::Leaf(Value::Null))),
    }
}

fn in_one_line(message: &str) -> String {
    message.replace('\n', " ")
}

fn node(
    value: Ast<'_>,
    origin: Option<Origin>,
    places: &LineIndex<'_>,
) -> Result<Node, SyntaxError> {
    let start = value.range().start;
    let origin = origin.unwrap_or_else(|| places.origin(start));
    let content = match value {
        Ast::StringLit(text) => Content::Leaf(text.value.into_owned().into()),
        Ast::BooleanLit(yes) => Content::Leaf(yes.value.into()),
        Ast::NullKeyword(_) => Content::Leaf(Value::Null),
        Ast::NumberLit(number) => {
            let number = serde_json::from_str(number.value).map_err(|_| SyntaxError {
                place: Some(places.at(start)),
                message: "it is not a number".to_owned(),
            })?;
            Content::Leaf(number)
        }
        Ast::Array(array) => {
            let items = array
                .elements
                .into_iter()
                .map(|item| node(item, None, places));
            Content::List(items.collect::<Result<_, _>>()?)
        }
        Ast::Object(object) => {
            let mut entries = Vec::<(String, Node)>::with_capacity(object.properties.len());
            for property in object.properties {
                let start = property.range.start;
                let name = property.name.into_string();
                if entries.iter().any(|(known, _)| *known == name) {
                    return Err(SyntaxError {
                        place: Some(places.at(start)),
                        message: format!("{name:?} appears twice"),
                    });
                }
                entries.push((
                    name,
                    node(property.value, Some(places.origin(start)), places)?,
                ));
            }
            Content::Table(entries)
        }
    };
    Ok(Node::new(origin, content))
}
