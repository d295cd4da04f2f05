//! Settings as people write them: lists and addresses.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};

/// Returns the text of a URL for messages, without a user name and a password. The URL need not be valid.
pub fn without_user(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let rest = &url[start..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    // A password with one of these characters is not valid, but may be meant.
    let is_cut = || {
        let port = authority.rsplit_once(':');
        port.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let user = authority
        .rfind('@')
        .or_else(|| rest.rfind('@').filter(|_| is_cut()));
    match user {
        Some(at) => format!("{}{}", &url[..start], &rest[at + 1..]),
        None => url.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_user() {
        for (url, shown) in [
            ("https://me:pw@h/a", "https://h/a"),
            ("https://TOKEN@h/path@v1", "https://h/path@v1"),
            ("https://me:p/w@h/a", "https://h/a"),
            ("https://h:8443/a@b", "https://h:8443/a@b"),
            ("https://h/a@b", "https://h/a@b"),
            ("me:pw@h", "h"),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }
}
