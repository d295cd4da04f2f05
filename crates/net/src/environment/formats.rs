//! Settings as people write them: lists and addresses.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};

/// Returns the text of a URL for messages, without a user name and a password. The URL need not be valid.
pub fn without_user(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    match url[start..].rsplit_once('@') {
        Some((user, host)) if user.contains(':') || !user.contains('/') => {
            format!("{}{host}", &url[..start])
        }
        _ => url.to_owned(),
    }
}

/// Parses a list of strings, or one string with commas, as in environment variables.
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

/// Parses an IP address. `localhost` is 127.0.0.1; other names are not resolved.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    text.parse().map_err(|_| {
        D::Error::custom(format_args!(
            "invalid value: {text:?}, expected an IP address: 127.0.0.1 for this machine only, 0.0.0.0 or :: for all interfaces"
        ))
    })
}
