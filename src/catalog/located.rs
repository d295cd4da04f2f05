//! A JSON tree read as a type, and where in it something was refused.
//!
//! serde says what is wrong and not where. [`Located`] reads a tree as `serde_json` does, in the same words, and notes on
//! the way out of a refusal which members and items it was in. Nothing is noted while all is well, so this is also how a
//! tree is read that is right. It reads every type that comes out of a tree, arguments, answers and settings, and so each
//! of them is compiled for trees once.

use std::cell::RefCell;
use std::fmt;
use std::slice;

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected,
    IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde_json::{Error, Map, Value};

/// Reads a tree as a `T`.
///
/// # Errors
///
/// It is none; with what is wrong and where.
pub(crate) fn read<T: DeserializeOwned>(tree: &Value) -> Result<T, Misfit> {
    let track = Track::default();
    T::deserialize(Located::new(tree, &track)).map_err(|cause| track.ended_by(cause))
}

/// What does not fit a type, and where it stands.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) path: Path,
    pub(crate) cause: Error,
}

/// From the outside inwards. Shown as `servers[0].url`, and as `.` if it is the whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Member(String),
    Item(usize),
    /// The data of an enum's variant.
    Variant(String),
}

impl Path {
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.0.iter()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for (place, piece) in self.0.iter().enumerate() {
            match piece {
                Piece::Item(index) => write!(f, "[{index}]")?,
                Piece::Member(name) | Piece::Variant(name) if place == 0 => f.write_str(name)?,
                Piece::Member(name) | Piece::Variant(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

/// What a refusal was in, noted from the inside outwards.
#[derive(Debug, Default)]
pub(crate) struct Track(RefCell<Vec<Piece>>);

impl Track {
    pub(crate) fn ended_by(self, cause: Error) -> Misfit {
        let mut pieces = self.0.into_inner();
        pieces.reverse();
        Misfit {
            path: Path(pieces),
            cause,
        }
    }

    #[cold]
    fn note(&self, piece: Piece) {
        self.0.borrow_mut().push(piece);
    }
}

/// A tree as a deserializer.
#[derive(Clone, Copy)]
pub(crate) struct Located<'de, 't> {
    value: &'de Value,
    track: &'t Track,
}

impl<'de, 't> Located<'de, 't> {
    pub(crate) fn new(value: &'de Value, track: &'t Track) -> Self {
        Self { value, track }
    }

    fn items<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut rest = Items {
            rest: items.iter(),
            next: 0,
            track: self.track,
        };
        let read = visitor.visit_seq(&mut rest)?;
        match rest.rest.as_slice() {
            [] => Ok(read),
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

macro_rules! numbers {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_f64(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Located<'de, '_> {
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

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Number(number) => number.deserialize_any(visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.items(items, visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
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

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
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

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(members) => self.members(members, visitor),
            _ => Err(self.is_no(&visitor)),
        }
    }

    /// Not from an array of the members' values in their order: nobody means that, and it is half the code of a type.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
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
    track: &'t Track,
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
        match seed.deserialize(Located::new(value, self.track)) {
            Ok(read) => Ok(Some(read)),
            Err(cause) => {
                self.track.note(Piece::Item(index));
                Err(cause)
            }
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

// === Objects ===

struct Members<'de, 't> {
    rest: serde_json::map::Iter<'de>,
    at: Option<(&'de str, &'de Value)>,
    track: &'t Track,
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
        match seed.deserialize(Key(key)) {
            Ok(read) => Ok(Some(read)),
            Err(cause) => {
                self.track.note(Piece::Member(key.clone()));
                Err(cause)
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((key, value)) = self.at.take() else {
            return Err(Error::custom("value is missing"));
        };
        match seed.deserialize(Located::new(value, self.track)) {
            Ok(read) => Ok(read),
            Err(cause) => {
                self.track.note(Piece::Member(key.to_owned()));
                Err(cause)
            }
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A member's name, which may be read as a number or a truth value too.
struct Key<'de>(&'de str);

impl<'de> Key<'de> {
    fn number<T>(
        &self,
        read: impl FnOnce(
            &mut serde_json::Deserializer<serde_json::de::StrRead<'de>>,
        ) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let is_number = self.0.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let mut text = serde_json::Deserializer::from_str(self.0);
        if is_number {
            let number = read(&mut text)?;
            if text.end().is_ok() && !self.0.ends_with(|c: char| c.is_ascii_whitespace()) {
                return Ok(number);
            }
        }
        Err(Error::custom(
            "invalid value: expected key to be a number in quotes",
        ))
    }
}

macro_rules! numeric_keys {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.number(|text| text.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }

    numeric_keys! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(Error::invalid_type(Unexpected::Str(other), &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        BorrowedStrDeserializer::new(self.0).deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
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

// === Enums: a string is a variant without data, an object with one member a variant with data ===

struct Variant<'de, 't> {
    name: &'de str,
    data: Option<&'de Value>,
    track: &'t Track,
}

impl<'de, 't> Located<'de, 't> {
    fn variant(self) -> Result<Variant<'de, 't>, Error> {
        match self.value {
            Value::String(name) => Ok(Variant {
                name,
                data: None,
                track: self.track,
            }),
            Value::Object(members) => {
                let mut members = members.iter();
                match (members.next(), members.next()) {
                    (Some((name, data)), None) => Ok(Variant {
                        name,
                        data: Some(data),
                        track: self.track,
                    }),
                    _ => Err(Error::invalid_value(
                        Unexpected::Map,
                        &"map with a single key",
                    )),
                }
            }
            _ => Err(self.is_no(&"string or map")),
        }
    }
}

impl<'de, 't> Variant<'de, 't> {
    /// Reads the data, and notes whose it was.
    fn data<T>(
        self,
        expected: &str,
        read: impl FnOnce(Located<'de, 't>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let read = match self.data {
            Some(data) => read(Located::new(data, self.track)),
            None => Err(Error::invalid_type(Unexpected::UnitVariant, &expected)),
        };
        read.inspect_err(|_| self.track.note(Piece::Variant(self.name.to_owned())))
    }
}

impl<'de> EnumAccess<'de> for Variant<'de, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let name = seed.deserialize(BorrowedStrDeserializer::<Error>::new(self.name));
        name.map(|name| (name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.data {
            None => Ok(()),
            Some(_) => self.data("", <()>::deserialize),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        self.data("newtype variant", |data| seed.deserialize(data))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.data("tuple variant", |data| match data.value {
            Value::Array(items) if items.is_empty() => visitor.visit_unit(),
            Value::Array(items) => data.items(items, visitor),
            _ => Err(data.is_no(&"tuple variant")),
        })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.data("struct variant", |data| match data.value {
            Value::Object(members) => data.members(members, visitor),
            _ => Err(data.is_no(&"struct variant")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::{Deserialize, de};
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole {
        number: Option<u8>,
        float: Option<f64>,
        text: Option<String>,
        is: Option<bool>,
        letter: Option<char>,
        bytes: Option<Vec<u8>>,
        unit: Option<()>,
        name: Option<Name>,
        pair: Option<(i64, String)>,
        shapes: Option<Vec<Shape>>,
        tagged: Option<Tagged>,
        either: Option<Either>,
        by_number: Option<BTreeMap<i16, Value>>,
        by_truth: Option<BTreeMap<bool, u8>>,
        by_name: Option<BTreeMap<Word, Name>>,
        inner: Option<Box<Whole>>,
        any: Option<Value>,
    }

    #[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Deserialize)]
    struct Name(String);

    #[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        A,
        B,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Shape {
        Point,
        Name(String),
        Pair(u8, u8),
        Place { x: u8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
    enum Tagged {
        Plain,
        Full { a: u8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Words(Vec<Word>),
    }

    /// What was read, or what is wrong and where.
    fn here<T: DeserializeOwned>(tree: &Value) -> Result<T, (String, String)> {
        read(tree).map_err(|misfit| (misfit.path.to_string(), misfit.cause.to_string()))
    }

    fn there<T: DeserializeOwned>(tree: &Value) -> Result<T, (String, String)> {
        serde_path_to_error::deserialize(tree)
            .map_err(|error| (error.path().to_string(), error.inner().to_string()))
    }

    #[test]
    fn it_reads_and_refuses_as_serde_json_does_except_for_arrays_as_structs_and_says_where() {
        let mut refused = 0;
        let members = [
            "number",
            "float",
            "text",
            "is",
            "letter",
            "bytes",
            "unit",
            "name",
            "pair",
            "shapes",
            "tagged",
            "either",
            "by_number",
            "by_truth",
            "by_name",
            "inner",
            "any",
            "unknown",
        ];
        let values = [
            json!(null),
            json!(true),
            json!(7),
            json!(-7),
            json!(700),
            json!(0.5),
            json!(1e300),
            json!(u64::MAX),
            json!("a"),
            json!("long"),
            json!([]),
            json!([1]),
            json!([1, "two"]),
            json!([1, "two", 3]),
            json!(["a", "b"]),
            json!(["point", {"name": "n"}, {"pair": [1, 2]}, {"place": {"x": 1}}]),
            json!(["point", {"name": 1}]),
            json!([{"pair": [1]}]),
            json!([{"pair": []}]),
            json!([{"pair": [1, 2, 3]}]),
            json!([{"pair": 7}]),
            json!([{"place": {"x": 700}}]),
            json!([{"place": {"y": 1}}]),
            json!([{"place": [1]}]),
            json!([{"point": null}, {"point": 1}]),
            json!(["name", "pair"]),
            json!(["pair"]),
            json!(["place"]),
            json!(["circle"]),
            json!([{}]),
            json!([{"point": null, "name": "n"}]),
            json!({}),
            json!({"kind": "plain"}),
            json!({"kind": "full", "a": 1}),
            json!({"kind": "full", "a": "1"}),
            json!({"kind": "full", "b": 1}),
            json!({"kind": 1}),
            json!({"1": 2, "-1": [3]}),
            json!({"100000": 1}),
            json!({"x": 1}),
            json!({"": 1}),
            json!({"true": 1, "false": 2}),
            json!({"true": "x"}),
            json!({"a": "x", "b": "y"}),
            json!({"a": 1}),
            json!({"number": 700}),
            json!({"number": 1, "inner": {"inner": {"shapes": ["point", {"name": []}]}}}),
            json!({"inner": {"other": 1}}),
        ];
        for value in &values {
            for member in members {
                let tree = json!({ member: value });
                let read = here::<Whole>(&tree);
                refused += usize::from(read.is_err());
                if member == "inner" && value.is_array() {
                    let (path, why) = read.expect_err("an array");
                    let refusal = "invalid type: sequence, expected struct Whole";
                    assert_eq!((&*path, &*why), ("inner", refusal));
                } else if member.starts_with("by_") {
                    // There keys that are no strings have no names, or others than what is written.
                    let why = |refused: (String, String)| refused.1;
                    let there = there::<Whole>(&tree).map_err(why);
                    assert_eq!(read.map_err(why), there, "{tree}");
                } else {
                    assert_eq!(read, there::<Whole>(&tree), "{tree}");
                }
            }
            if !value.is_array() {
                assert_eq!(here::<Whole>(value), there::<Whole>(value), "{value}");
            }
            assert_eq!(here::<Shape>(value), there::<Shape>(value), "{value}");
            assert_eq!(here::<Value>(value), there::<Value>(value), "{value}");
        }
        assert!(300 < refused, "{refused}");
    }

    #[test]
    fn a_key_is_named_as_it_is_written() {
        let tree = json!({"by_number": {"1 ": 1}});
        let (path, _) = here::<Whole>(&tree).expect_err("a blank in a number");
        assert_eq!(path, "by_number.1 ");
    }

    #[test]
    fn a_raw_value_is_the_json_of_what_stands_there() {
        let tree = json!({"a": {"b": [1, null]}, "c": "d"});
        let raw: BTreeMap<String, Box<RawValue>> = read(&tree).expect("raw values");
        assert_eq!(raw["a"].get(), r#"{"b":[1,null]}"#);
        assert_eq!(raw["c"].get(), r#""d""#);
    }

    proptest! {
        #[test]
        fn a_path_leads_to_what_was_refused(path in prop::collection::vec(prop_oneof![
            "[a-c]{1,3}".prop_map(Piece::Member),
            (0_usize..4).prop_map(Piece::Item),
        ], 0..6)) {
            /// Anything but `true`, however deep.
            #[derive(Debug)]
            struct Untrue;
            impl<'de> Deserialize<'de> for Untrue {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_any(Self)
                }
            }
            impl<'de> Visitor<'de> for Untrue {
                type Value = Self;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("anything else")
                }
                fn visit_unit<E: de::Error>(self) -> Result<Self, E> {
                    Ok(self)
                }
                fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
                    while items.next_element::<Self>()?.is_some() {}
                    Ok(self)
                }
                fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
                    while members.next_entry::<String, Self>()?.is_some() {}
                    Ok(self)
                }
            }
            let tree = path.iter().rev().fold(json!(true), |inner, piece| match piece {
                Piece::Item(index) => {
                    let mut items = vec![Value::Null; *index];
                    items.push(inner);
                    Value::Array(items)
                }
                Piece::Member(name) | Piece::Variant(name) => json!({"z": null, name: inner}),
            });
            let misfit = read::<Untrue>(&tree).expect_err("true");
            prop_assert_eq!(misfit.path, Path(path));
        }
    }
}
