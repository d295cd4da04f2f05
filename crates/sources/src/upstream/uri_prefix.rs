//! URIs of an upstream's resources, with the upstream's name in front.

use std::borrow::Cow;
use std::sync::Arc;

/// Prefix for an upstream's URI that another item already has: its name and a `+`.
///
/// Together with the scheme, the prefix is a valid scheme (RFC 3986, section 3.1). Schemes that clients recognize are
/// kept: `ui://a` becomes `ui://name+a`, and `skill://a` becomes `skill://name/a`, since the last name before
/// `SKILL.md` is the skill's.
#[derive(Clone, Debug, Default)]
pub(super) struct UriPrefix(Option<Arc<str>>);

/// Schemes that clients recognize, and the separator between the prefix and the rest.
const KEPT_SCHEMES: [(&str, char); 2] = [("ui://", '+'), ("skill://", '/')];

impl UriPrefix {
    /// Returns the prefix for an upstream of this name.
    pub(super) fn of(name: &str) -> Self {
        let scheme: String = name
            .chars()
            .map(|c| match c.to_ascii_lowercase() {
                c if c.is_ascii_alphanumeric() => c,
                _ => '-',
            })
            .collect();
        let letter = match scheme.starts_with(|c: char| c.is_ascii_lowercase()) {
            true => "",
            false => "x",
        };
        Self(Some(format!("{letter}{scheme}").into()))
    }

    /// Returns the prefix with a tag after the name.
    pub(super) fn tagged(&self, tag: &str) -> Self {
        let name = self.0.as_deref();
        Self(name.map(|name| format!("{name}.{tag}").into()))
    }

    /// Returns the tag after the name in a URI's prefix.
    pub(super) fn tag_of<'u>(&self, uri: &'u str) -> Option<&'u str> {
        let (rest, separator) = behind_scheme(uri);
        let (prefix, _) = rest.split_once(separator)?;
        prefix.strip_prefix(self.0.as_deref()?)?.strip_prefix('.')
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Converts an upstream's URI to the local one.
    pub(super) fn here(&self, uri: &str) -> String {
        let Some(prefix) = self.0.as_deref() else {
            return uri.to_owned();
        };
        let (rest, separator) = behind_scheme(uri);
        let scheme = &uri[..uri.len() - rest.len()];
        format!("{scheme}{prefix}{separator}{rest}")
    }

    /// Converts a local URI to the upstream's. Returns `None` if it does not belong to this upstream.
    pub(super) fn there<'u>(&self, uri: &'u str) -> Option<Cow<'u, str>> {
        let Some(prefix) = self.0.as_deref() else {
            return Some(uri.into());
        };
        let (rest, separator) = behind_scheme(uri);
        let there = rest.strip_prefix(prefix)?.strip_prefix(separator)?;
        let scheme = &uri[..uri.len() - rest.len()];
        Some(match scheme {
            "" => there.into(),
            scheme => format!("{scheme}{there}").into(),
        })
    }
}

/// Splits off the part of a URI that is prefixed, and returns it with the separator.
fn behind_scheme(uri: &str) -> (&str, char) {
    let mut kept = KEPT_SCHEMES.iter();
    let found = kept.find_map(|(scheme, separator)| Some((uri.strip_prefix(scheme)?, *separator)));
    found.unwrap_or((uri, '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefixed_uri_is_a_uri_and_leads_back() {
        for (name, uri) in [
            ("files", "files+file:///a"),
            ("My.Server 2", "my-server-2+file:///a"),
            ("7up", "x7up+file:///a"),
            ("", "x+file:///a"),
        ] {
            let prefix = UriPrefix::of(name);
            assert_eq!(prefix.here("file:///a"), uri);
            assert_eq!(prefix.there(uri).as_deref(), Some("file:///a"));
            assert_eq!(prefix.there("file:///a"), None);
            assert!(url::Url::parse(uri).is_ok(), "{uri}");
        }
        for (there, here) in [
            ("ui://weather/dial", "ui://files+weather/dial"),
            ("skill://a/SKILL.md", "skill://files/a/SKILL.md"),
        ] {
            let prefix = UriPrefix::of("files");
            assert_eq!(prefix.here(there), here);
            assert_eq!(prefix.there(here).as_deref(), Some(there));
            assert_eq!(prefix.there(there), None);
            assert!(url::Url::parse(here).is_ok(), "{here}");
        }
        let none = UriPrefix::default();
        assert_eq!(none.here("file:///a"), "file:///a");
        assert_eq!(none.there("file:///a").as_deref(), Some("file:///a"));
    }
}
