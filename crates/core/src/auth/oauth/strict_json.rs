//! Strict JSON parser: bounded depth and no duplicate members.
//!
//! Two parsers may disagree about a duplicate member, such as an audience. Such a document is rejected.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum nesting depth.
const DEPTH_MAX: usize = 16;

/// Parses an object. Returns `None` if it is invalid, nested too deeply, or has a duplicate member.
pub(super) fn object(text: &[u8]) -> Option<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let depth = Cell::new(0);
    let value = Strict(&depth).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct Strict<'d>(&'d Cell<usize>);

impl Strict<'_> {
    fn enter<E: serde::de::Error>(self) -> Result<(), E> {
        self.0.set(self.0.get() + 1);
        if DEPTH_MAX < self.0.get() {
            return Err(E::custom("nested too deep"));
        }
        Ok(())
    }

    fn leave(self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("no number"))?;
        Ok(number.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            array.push(element);
        }
        self.leave();
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(self)?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member appears twice"));
            }
        }
        self.leave();
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_twice_is_not_said() {
        for (text, good) in [
            (r#"{"a":1,"b":[{"a":1},{"a":2}]}"#, true),
            (r#"{"a":1,"a":1}"#, false),
            (r#"{"a":1,"\u0061":2}"#, false),
            (r#"{"x":[{"a":1,"a":2}]}"#, false),
            (r#"{"a":NaN}"#, false),
            (r#"{"a":1} "#, true),
            (r#"{"a":1}{"#, false),
            (r#"[1]"#, false),
            ("null", false),
            ("", false),
            ("{\"a\":\"\u{0}\"}", false),
        ] {
            assert_eq!(object(text.as_bytes()).is_some(), good, "{text}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_none());
    }

    #[test]
    fn depth_has_an_end() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(nested(DEPTH_MAX - 1).as_bytes()).is_some());
        assert!(object(nested(DEPTH_MAX).as_bytes()).is_none());
        assert!(object(nested(20_000).as_bytes()).is_none());
        let wide = format!("{{\"a\":[{}1]}}", "[],".repeat(1_000));
        assert!(object(wide.as_bytes()).is_some());
    }
}
