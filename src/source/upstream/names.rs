//! What upstream servers offer, by names of which no two are alike here.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::connection::Upstream;
use super::listing::Listing;
use crate::catalog::Catalog;
use crate::source::name::{NAME_CHARACTERS_MAX, shortened};

/// Which tools and prompts of upstream servers have a prefix before their names. It does not matter to an upstream that
/// sets a `prefix`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum UpstreamNames {
    /// All of them.
    #[default]
    Always,
    /// Those whose name something else has too that is offered here.
    Collision,
    /// None. Of two with one name, the second is not offered.
    Never,
}

/// How names are made.
#[derive(Clone, Debug)]
pub(crate) struct Naming {
    pub(crate) names: UpstreamNames,
    /// What stands between an upstream's name and that of what it offers.
    pub(crate) separator: String,
}

impl Naming {
    /// What all names of an upstream's tools and prompts begin with, whatever else is offered. Empty if that is nothing.
    pub(super) fn prefix<'u>(&self, upstream: &'u Upstream) -> Cow<'u, str> {
        match self.names {
            UpstreamNames::Always => self.long_prefix(upstream),
            UpstreamNames::Collision | UpstreamNames::Never => {
                upstream.config.prefix.as_deref().unwrap_or_default().into()
            }
        }
    }

    /// The prefix that an upstream sets, or else its name.
    fn long_prefix<'u>(&self, upstream: &'u Upstream) -> Cow<'u, str> {
        match &upstream.config.prefix {
            Some(prefix) => Cow::Borrowed(&**prefix),
            None => format!("{}{}", plain(&upstream.name), self.separator).into(),
        }
    }
}

/// What stands between the two parts of a name, unless something else is to.
pub(crate) const SEPARATOR: &str = "__";

/// An upstream, and what of its is to be listed.
pub(super) struct Found {
    pub(super) upstream: Arc<Upstream>,
    pub(super) listing: Arc<Listing>,
}

impl Found {
    fn tools(&self) -> impl Iterator<Item = &str> {
        let names = names_of(&self.listing.tools);
        names.filter(|name| self.upstream.config.chooses(name))
    }
}

fn names_of(entries: &[Value]) -> impl Iterator<Item = &str> {
    entries.iter().filter_map(|entry| entry["name"].as_str())
}

/// The names that are given to what was found.
#[derive(Debug)]
pub(super) struct Names<'n> {
    naming: &'n Naming,
    /// Names that more than one thing would have.
    shared_tools: HashSet<String>,
    shared_prompts: HashSet<String>,
    /// Of resources and templates: URIs that are given already.
    uris: HashSet<String>,
}

impl<'n> Names<'n> {
    /// For what was found, beside what is offered by others.
    pub(super) fn new(naming: &'n Naming, found: &[Found], others: &Catalog) -> Self {
        let mut names = Self {
            naming,
            shared_tools: HashSet::new(),
            shared_prompts: HashSet::new(),
            uris: others.uris().map(str::to_owned).collect(),
        };
        if naming.names == UpstreamNames::Collision {
            names.shared_tools = shared(found, others.names(), Found::tools);
            names.shared_prompts = shared(found, others.prompt_names(), |found| {
                names_of(&found.listing.prompts)
            });
        }
        names
    }

    pub(super) fn tool(&self, upstream: &Upstream, name: &str) -> String {
        self.of(upstream, name, &self.shared_tools)
    }

    pub(super) fn prompt(&self, upstream: &Upstream, name: &str) -> String {
        self.of(upstream, name, &self.shared_prompts)
    }

    fn of(&self, upstream: &Upstream, name: &str, shared: &HashSet<String>) -> String {
        let prefix = match self.naming.names {
            UpstreamNames::Collision if shared.contains(name) => self.naming.long_prefix(upstream),
            _ => self.naming.prefix(upstream),
        };
        match &*prefix {
            "" => name.to_owned(),
            prefix => shortened(&format!("{prefix}{name}"), NAME_CHARACTERS_MAX),
        }
    }

    /// All URIs and templates of URIs that are given.
    pub(super) fn uris(&self) -> &HashSet<String> {
        &self.uris
    }

    /// How a URI or a template of URIs is called here: as there, unless something else is.
    pub(super) fn uri(&mut self, upstream: &Upstream, uri: &str) -> UriPrefix {
        if self.uris.insert(uri.to_owned()) {
            return UriPrefix::default();
        }
        let prefix = UriPrefix::of(&upstream.name);
        self.uris.insert(prefix.here(uri));
        prefix
    }
}

/// Names that are given more than once, where no prefix tells them apart.
fn shared<'a, I: Iterator<Item = &'a str>>(
    found: &'a [Found],
    others: impl Iterator<Item = &'a str>,
    names: impl Fn(&'a Found) -> I,
) -> HashSet<String> {
    let mut given: HashMap<Cow<'a, str>, usize> = HashMap::new();
    for name in others {
        *given.entry(name.into()).or_default() += 1;
    }
    for found in found {
        for name in names(found) {
            let name = match found.upstream.config.prefix.as_deref() {
                None => Cow::Borrowed(name),
                Some(prefix) => format!("{prefix}{name}").into(),
            };
            *given.entry(name).or_default() += 1;
        }
    }
    let shared = given.into_iter().filter(|(_, count)| 1 < *count);
    shared.map(|(name, _)| name.into_owned()).collect()
}

/// A name as part of one that all providers of models take; keys of a configuration may have other characters.
fn plain(name: &str) -> String {
    let plain = |c: char| match c {
        '-' | '_' => c,
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    name.chars().map(plain).collect()
}

/// What stands before the URIs of an upstream's whose own ones something else here has: its name and a `+`, which
/// together with the scheme are a scheme again (RFC 3986, section 3.1). URIs of schemes that clients go by keep those:
/// `ui://a` becomes `ui://name+a`, and `skill://a` becomes `skill://name/a`, since the last name before `SKILL.md` is
/// the skill's.
#[derive(Clone, Debug, Default)]
pub(super) struct UriPrefix(Option<Arc<str>>);

/// Schemes that clients go by, and what separates a prefix from the rest behind them.
const KEPT_SCHEMES: [(&str, char); 2] = [("ui://", '+'), ("skill://", '/')];

impl UriPrefix {
    /// Of an upstream of this name.
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

    /// The same with something else behind the name.
    pub(super) fn tagged(&self, tag: &str) -> Self {
        let name = self.0.as_deref();
        Self(name.map(|name| format!("{name}.{tag}").into()))
    }

    /// What stands behind the name in the prefix of a URI.
    pub(super) fn tag_of<'u>(&self, uri: &'u str) -> Option<&'u str> {
        let (rest, separator) = behind_scheme(uri);
        let (prefix, _) = rest.split_once(separator)?;
        prefix.strip_prefix(self.0.as_deref()?)?.strip_prefix('.')
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// What is called `uri` there, as it is called here.
    pub(super) fn here(&self, uri: &str) -> String {
        let Some(prefix) = self.0.as_deref() else {
            return uri.to_owned();
        };
        let (rest, separator) = behind_scheme(uri);
        let scheme = &uri[..uri.len() - rest.len()];
        format!("{scheme}{prefix}{separator}{rest}")
    }

    /// What is called `uri` here, as it is called there. `None` if it is not one of its.
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

/// The part of a URI that a prefix stands before, and what separates the two.
fn behind_scheme(uri: &str) -> (&str, char) {
    let mut kept = KEPT_SCHEMES.iter();
    let found = kept.find_map(|(scheme, separator)| Some((uri.strip_prefix(scheme)?, *separator)));
    found.unwrap_or((uri, '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_only_what_every_provider_takes() {
        assert_eq!(plain("my.server/2 é"), "my_server_2__");
        assert_eq!(plain("a-b_C9"), "a-b_C9");
    }

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
