//! Members that other implementations write in a form of their own.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// Reads null as the default value.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads an object, or the empty list that PHP writes for an empty map.
///
/// # Errors
///
/// Another type than an object, an empty list, and null.
pub fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Default + Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(members)).map(Some)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<T>, A::Error> {
            match items.next_element::<IgnoredAny>()? {
                None => Ok(Some(T::default())),
                Some(_) => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
            }
        }

        fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(Object(PhantomData))
}

/// Reads a list of words, which drafts of the specification had as one string.
pub(crate) fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Words::List(words)) => words,
        Some(Words::Text(text)) => text.split_whitespace().map(str::to_owned).collect(),
    })
}

/// Reads a size, which is left out if it is not a whole number.
pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<Number>::deserialize(deserializer)?;
    Ok(number.and_then(|number| whole(&number.to_string())))
}

/// Parses a whole number, which may be written with a fraction of zero.
pub fn whole(text: &str) -> Option<u64> {
    let is_zero = |fraction: &str| !fraction.is_empty() && fraction.bytes().all(|b| b == b'0');
    match text.split_once('.') {
        Some((digits, fraction)) if is_zero(fraction) => digits.parse().ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::whole;
    use crate::{Content, Icon, PromptArgument, ResourceContents};

    fn read<T: serde::de::DeserializeOwned + serde::Serialize>(value: Value) -> Value {
        let read: T = serde_json::from_value(value).expect("it is accepted");
        serde_json::to_value(read).expect("JSON")
    }

    #[test]
    fn members_that_are_null_are_absent() {
        let annotations = json!({"audience": null, "priority": null, "lastModified": null});
        let text = json!({"type": "text", "text": "a", "annotations": annotations, "_meta": null});
        let expected = json!({"type": "text", "text": "a", "annotations": {}});
        assert_eq!(read::<Content>(text), expected);
        for (body, other) in [("text", "blob"), ("blob", "text")] {
            let contents = json!({"uri": "a:b", "mimeType": null, body: "AAAA", other: null});
            let expected = json!({"uri": "a:b", body: "AAAA"});
            assert_eq!(read::<ResourceContents>(contents), expected);
        }
        let neither = json!({"uri": "a:b", "text": null});
        assert!(serde_json::from_value::<ResourceContents>(neither).is_err());
        let argument = json!({"name": "a", "required": null, "description": null});
        assert_eq!(read::<PromptArgument>(argument), json!({"name": "a"}));
    }

    #[test]
    fn the_sizes_of_an_icon_may_be_one_string() {
        for (sizes, expected) in [
            (
                json!("48x48 any"),
                json!({"src": "a", "sizes": ["48x48", "any"]}),
            ),
            (json!(["48x48"]), json!({"src": "a", "sizes": ["48x48"]})),
            (Value::Null, json!({"src": "a"})),
        ] {
            assert_eq!(read::<Icon>(json!({"src": "a", "sizes": sizes})), expected);
        }
    }

    #[test]
    fn a_whole_number_may_have_a_fraction() {
        for (text, number) in [
            ("12", Some(12)),
            ("12.0", Some(12)),
            ("12.5", None),
            ("12.", None),
            ("-1.0", None),
            ("x", None),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
        let link = |size| json!({"type": "resource_link", "uri": "a:b", "name": "a", "size": size});
        assert_eq!(read::<Content>(link(json!(12.0)))["size"], 12);
        assert_eq!(read::<Content>(link(json!(0.5))).get("size"), None);
    }
}
