//! Enums: a string is a variant without data, an object with one member a variant with data.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, EnumAccess, Error as _, Unexpected, VariantAccess, Visitor,
};
use serde_json::{Error, Value};

use super::PathDeserializer;
use super::path::{PathSegment, PathTracker};

pub(super) struct Variant<'de, 't> {
    name: &'de str,
    data: Option<&'de Value>,
    track: &'t PathTracker,
}

impl<'de, 't> PathDeserializer<'de, 't> {
    pub(super) fn variant(self) -> Result<Variant<'de, 't>, Error> {
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
        read: impl FnOnce(PathDeserializer<'de, 't>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let read = match self.data {
            Some(data) => read(PathDeserializer::new(data, self.track)),
            None => Err(Error::invalid_type(Unexpected::UnitVariant, &expected)),
        };
        read.inspect_err(|_| self.track.note(PathSegment::Variant(self.name.to_owned())))
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
