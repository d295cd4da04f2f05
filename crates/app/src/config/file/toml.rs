//! TOML.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{LineIndex, SyntaxError};
use crate::config::value::{Content, Node, Origin};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let places = LineIndex::new(text);
    let table = DeTable::parse(text).map_err(|error| SyntaxError {
        place: error.span().map(|span| places.at(span.start)),
        message: error.message().trim_end().replace('\n', ", "),
    })?;
    let content = entries(table.into_inner(), &places)?;
    Ok(Node::new(places.origin(0), content))
}

fn entries(table: DeTable<'_>, places: &LineIndex<'_>) -> Result<Content, SyntaxError> {
    let entries = table.into_iter().map(|(name, value)| {
        let origin = places.origin(name.span().start);
        let start = value.span().start;
        let node = node(value.into_inner(), start, origin, places)?;
        Ok((name.into_inner().into_owned(), node))
    });
    Ok(Content::Table(entries.collect::<Result<_, _>>()?))
}

fn node(
    value: DeValue<'_>,
    start: usize,
    origin: Origin,
    places: &LineIndex<'_>,
) -> Result<Node, SyntaxError> {
    let failed = |message: &str| SyntaxError {
        place: Some(places.at(start)),
        message: message.to_owned(),
    };
    let content = match value {
        DeValue::String(text) => Content::Leaf(text.into_owned().into()),
        DeValue::Boolean(yes) => Content::Leaf(yes.into()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            let value = match i64::from_str_radix(digits, number.radix()) {
                Ok(number) => Value::from(number),
                Err(_) => u64::from_str_radix(digits, number.radix())
                    .map(Value::from)
                    .map_err(|_| failed("the number is too large"))?,
            };
            Content::Leaf(value)
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse::<f64>().ok();
            let number = number
                .and_then(serde_json::Number::from_f64)
                .ok_or_else(|| failed("a number must be finite"))?;
            Content::Leaf(number.into())
        }
        DeValue::Datetime(time) => Content::Leaf(time.to_string().into()),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| {
                let start = item.span().start;
                node(item.into_inner(), start, places.origin(start), places)
            });
            Content::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => entries(table, places)?,
    };
    Ok(Node::new(origin, content))
}
