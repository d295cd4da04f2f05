//! Lists in environment variables.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};

/// Parses a list of strings, or one string with commas.
pub fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: From<String>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Texts(PhantomData))
}

struct Texts<T>(PhantomData<T>);

impl<'de, T: From<String>> Visitor<'de> for Texts<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let parts = text
            .split([',', '\n'])
            .map(str::trim)
            .filter(|part| !part.is_empty());
        Ok(parts.map(|part| T::from(part.to_owned())).collect())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(part) = parts.next_element::<String>()? {
            list.push(T::from(part));
        }
        Ok(list)
    }
}
