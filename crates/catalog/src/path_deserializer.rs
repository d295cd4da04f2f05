//! Deserialisation of a JSON tree, with the path of an error.
//!
//! serde says what is wrong and not where. [`PathDeserializer`] reads a tree as `serde_json` does, in the same words, and notes on
//! the way out of a refusal which members and items it was in. Nothing is noted while all is well, so this is also how a
//! tree is read that is right. It reads every type that comes out of a tree, arguments, answers and settings, and so each
//! of them is compiled for trees once.

mod key;
mod path;
#[cfg(test)]
mod tests;
mod variant;

use std::slice;

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::{Error, Map, Value};

use key::Key;
pub use path::{PathSegment, PathTracker, TypeMismatch};

/// Deserialises a tree as a `T`.
///
/// # Errors
///
/// It is none; with what is wrong and where.
pub fn read<T: DeserializeOwned>(tree: &Value) -> Result<T, TypeMismatch> {
    let track = PathTracker::default();
    T::deserialize(PathDeserializer::new(tree, &track)).map_err(|cause| track.ended_by(cause))
}

/// A tree as a deserializer.
#[derive(Clone, Copy)]
pub(crate) struct PathDeserializer<'de, 't> {
    value: &'de Value,
    track: &'t PathTracker,
}

impl<'de, 't> PathDeserializer<'de, 't> {
    pub fn new(value: &'de Value, track: &'t PathTracker) -> Self {
        Self { value, track }
    }

    fn items<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut rest = Items {
            rest: items.iter(),
            next: 0,
            track: self.track,
        };
        let read = visitor.visit_seq(&mut rest)?;
        match rest.rest.len() {
            0 => Ok(read),
            _ => Err(left_over(items.len(), &"fewer elements in array")),
        }
    }

    fn members<V: Visitor<'de>>(
        self,
        members: &'de Map<String, Value>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut rest = Members {
            rest: members.iter(),
            at: None,
            track: self.track,
        };
        let read = visitor.visit_map(&mut rest)?;
        match rest.rest.len() {
            0 => Ok(read),
            _ => Err(left_over(members.len(), &"fewer elements in map")),
        }
    }

    #[cold]
    fn is_no(self, expected: &dyn Expected) -> Error {
        Error::invalid_type(unexpected(self.value), expected)
    }
}

#[cold]
fn left_over(len: usize, expected: &dyn Expected) -> Error {
    Error::invalid_length(len, expected)
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(is) => Unexpected::Bool(*is),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Unexpected::Unsigned(number),
            (None, Some(number)) => Unexpected::Signed(number),
            (None, None) => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

/// Methods that delegate to another method.
macro_rules! read_as {
    ($other:ident: $($method:ident($($ignored:ty),*))*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, $(_: $ignored,)* visitor: V) -> Result<V::Value, Error> {
            self.$other(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for PathDeserializer<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(is) => visitor.visit_bool(*is),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.items(items, visitor),
            Value::Object(members) => self.members(members, visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bool(is) => visitor.visit_bool(*is),
            _ => Err(self.is_no(&visitor)),
        }
    }

    read_as! { deserialize_f64:
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32()
    }
    read_as! { deserialize_str: deserialize_char() deserialize_string() deserialize_identifier() }
    read_as! { deserialize_bytes: deserialize_byte_buf() }
    read_as! { deserialize_unit: deserialize_unit_struct(&'static str) }
    read_as! { deserialize_seq:
        deserialize_tuple(usize) deserialize_tuple_struct(&'static str, usize)
    }
    // Structs are not read from arrays of their members' values. No client sends that, and it would double the code of
    // each type.
    read_as! { deserialize_map: deserialize_struct(&'static str, &'static [&'static str]) }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Number(number) => number.deserialize_any(visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.items(items, visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // `serde_json`'s `RawValue` says who it is by such a name, and reads a map of that name and a text.
        if name.starts_with('$') {
            let text = self.value.to_string();
            return visitor.visit_map(Raw {
                name: Some(name),
                text,
            });
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => self.items(items, visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(members) => self.members(members, visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.variant()?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

// === Arrays ===

struct Items<'de, 't> {
    rest: slice::Iter<'de, Value>,
    next: usize,
    track: &'t PathTracker,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(value) = self.rest.next() else {
            return Ok(None);
        };
        let index = self.next;
        self.next += 1;
        let read = seed.deserialize(PathDeserializer::new(value, self.track));
        read.map(Some)
            .inspect_err(|_| self.track.note(PathSegment::Item(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

// === Objects ===

struct Members<'de, 't> {
    rest: serde_json::map::Iter<'de>,
    at: Option<(&'de str, &'de Value)>,
    track: &'t PathTracker,
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.at = Some((key, value));
        let read = seed.deserialize(Key(key));
        read.map(Some)
            .inspect_err(|_| self.track.note(PathSegment::Member(key.clone())))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((key, value)) = self.at.take() else {
            return Err(Error::custom("value is missing"));
        };
        seed.deserialize(PathDeserializer::new(value, self.track))
            .inspect_err(|_| self.track.note(PathSegment::Member(key.to_owned())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A value as its JSON.
struct Raw {
    name: Option<&'static str>,
    text: String,
}

impl<'de> MapAccess<'de> for Raw {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let name = self.name.take();
        name.map(|name| seed.deserialize(BorrowedStrDeserializer::new(name)))
            .transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let text: StringDeserializer<Error> = std::mem::take(&mut self.text).into_deserializer();
        seed.deserialize(text)
    }
}
