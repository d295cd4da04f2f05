//! Fast deserialisation of arguments that consist mostly of strings.
//!
//! An object's members are found by the scanner that has checked the message, and strings are handed on as they stand there, or
//! with their escapes resolved. Everything else is read by `serde_json`, member by member. What
//! is not read here is not refused: whoever asks then asks `serde_json` about the whole, and that decides, also about
//! what the caller is told. So this may be narrow, but it must never take what `serde_json` would not, or otherwise.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::protocol::scan::{JsonString, ScanError, Scanner};

/// An object's text.
pub(super) struct Object<'de>(pub(super) &'de str);

/// The fast path does not apply; the general deserialiser decides.
#[derive(Debug)]
pub(super) struct UseFallback;

impl fmt::Display for UseFallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not read")
    }
}

impl std::error::Error for UseFallback {}

impl de::Error for UseFallback {
    #[cold]
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl From<ScanError> for UseFallback {
    fn from(_: ScanError) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Object<'de> {
    type Error = UseFallback;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UseFallback> {
        let mut members = Members {
            scanner: Scanner::new(self.0),
            begun: false,
            ended: false,
        };
        let value = visitor.visit_map(&mut members)?;
        // A visitor may stop early; `serde_json` then says that something is left.
        if members.next()?.is_some() {
            return Err(UseFallback);
        }
        members.scanner.end()?;
        Ok(value)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: V,
    ) -> Result<V::Value, UseFallback> {
        Err(UseFallback)
    }
}

struct Members<'de> {
    scanner: Scanner<'de>,
    begun: bool,
    ended: bool,
}

impl<'de> Members<'de> {
    /// The next key, its colon read.
    #[inline]
    fn next(&mut self) -> Result<Option<JsonString<'de>>, UseFallback> {
        if self.ended {
            return Ok(None);
        }
        let key = self.scanner.next_key(&mut self.begun)?;
        self.ended = key.is_none();
        Ok(key)
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = UseFallback;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, UseFallback> {
        match self.next()? {
            None => Ok(None),
            Some(key) => {
                let key = key.as_written().ok_or(UseFallback)?;
                seed.deserialize(BorrowedStrDeserializer::new(key))
                    .map(Some)
            }
        }
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, UseFallback> {
        if self.scanner.peek() == Some(b'"') {
            let text = self.scanner.scanned_string()?.text().ok_or(UseFallback)?;
            return seed.deserialize(Text(text));
        }
        let text = self.scanner.value()?;
        let mut json = serde_json::Deserializer::from_str(text);
        let value = seed.deserialize(&mut json).map_err(|_| UseFallback)?;
        json.end().map_err(|_| UseFallback)?;
        Ok(value)
    }
}

/// A string, whose escapes are resolved.
struct Text<'de>(Cow<'de, str>);

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = UseFallback;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UseFallback> {
        match self.0 {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UseFallback> {
        visitor.visit_some(self)
    }

    /// Types of `serde_json`'s own have names by which it knows them.
    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, UseFallback> {
        if name.starts_with('$') {
            return Err(UseFallback);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, _: V) -> Result<V::Value, UseFallback> {
        Err(UseFallback)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, _: V) -> Result<V::Value, UseFallback> {
        Err(UseFallback)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string unit unit_struct seq tuple tuple_struct map
        struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::super::strict;
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Keyword {
        One,
        Two,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Name(String);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Typed {
        text: String,
        maybe: Option<String>,
        word: Option<Keyword>,
        name: Option<Name>,
        number: Option<i64>,
        list: Option<Vec<Value>>,
        letter: Option<char>,
        any: Option<Value>,
    }

    fn quick<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
        strict::deserialize(Object(text)).ok()
    }

    fn whole<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
        let mut json = serde_json::Deserializer::from_str(text);
        let value = strict::deserialize(&mut json).ok()?;
        json.end().ok()?;
        Some(value)
    }

    #[test]
    fn what_is_read_here_is_read_as_serde_json_reads_it() {
        for text in [
            r#"{"text":"a"}"#,
            r#" { "text" : "a" , "maybe" : null } "#,
            r#"{"text":"a","maybe":"b","word":"two","name":"c","number":7,"list":[1,"x",{}],"letter":"z","any":"q"}"#,
            r#"{"text":"a","number":42.0,"any":{"b":[1.5e3,true]}}"#,
            r#"{"text":"a\n\u00e9","maybe":"\"","word":"o\u006ee","any":"\\"}"#,
        ] {
            let read = quick::<Typed>(text);
            assert!(read.is_some(), "{text}");
            assert_eq!(read, whole(text), "{text}");
        }
    }

    #[test]
    fn long_strings_with_escapes_are_read_as_serde_json_reads_them() {
        for part in [
            r"a line\n",
            r#"let a = \"b\\n\";\t"#,
            r"\\\\",
            r"caf\u00e9 \ud83d\ude00 ",
            "caf\u{e9}\\n",
        ] {
            let text = format!(r#"{{"text":"{0}","any":"{0}"}}"#, part.repeat(40));
            let read = quick::<Typed>(&text);
            assert!(read.is_some(), "{text}");
            assert_eq!(read, whole(&text), "{text}");
        }
        let text = format!(r#"{{"text":"{}\ud83d"}}"#, r"\n".repeat(100));
        assert_eq!(quick::<Typed>(&text), None);
    }

    #[test]
    fn what_serde_json_refuses_is_not_read() {
        for text in [
            "{}",
            r#"{"text":1}"#,
            r#"{"text":"a","text":"b"}"#,
            r#"{"text":"a","other":1}"#,
            r#"{"text":"a","number":"7"}"#,
            r#"{"text":"a","number":1e400}"#,
            r#"{"text":"a","word":"three"}"#,
            r#"{"text":"a","letter":"zz"}"#,
            r#"{"text":"a",}"#,
            r#"{"text":"a"} x"#,
            r#"{"text":"a"#,
            r#"["a"]"#,
            r#""a""#,
        ] {
            assert_eq!(whole::<Typed>(text), None, "{text}");
            assert_eq!(quick::<Typed>(text), None, "{text}");
        }
        // Escaped keys, and types that only serde_json knows, are left to it.
        assert_eq!(quick::<Typed>(r#"{"te\u0078t":"a"}"#), None);
        assert!(quick::<BTreeMap<String, Box<RawValue>>>(r#"{"a":"b"}"#).is_none());
    }

    proptest! {
        #[test]
        fn never_reads_what_serde_json_reads_otherwise(
            text in r#"\{("(text|maybe|word|any|a)":("[a-z\\n]{0,3}"|1|1\.0|null|\[\]|\{\}),?){0,4}\}? ?"#
        ) {
            if let Some(read) = quick::<Typed>(&text) {
                prop_assert_eq!(Some(read), whole::<Typed>(&text));
            }
            if let Some(read) = quick::<BTreeMap<String, Value>>(&text) {
                prop_assert_eq!(Some(read), whole::<BTreeMap<String, Value>>(&text));
            }
        }
    }
}
