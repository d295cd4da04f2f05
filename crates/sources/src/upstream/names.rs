//! Unique local names for the items of upstream servers.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cache::Listing;
use super::connection::Upstream;
use super::uri_prefix::UriPrefix;
use crate::catalog::Catalog;
use crate::protocol::UriTemplate;
use crate::source::name::{NAME_CHARACTERS_MAX, shortened, tool_name};

/// Rule for prefixing the names of upstream tools and prompts. It does not apply to an upstream that sets a `prefix`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum UpstreamNames {
    /// Prefix all names.
    #[default]
    Always,
    /// Prefix the names that another item has too, or that begin with the prefix of another upstream.
    Collision,
    /// Prefix no name. Of two items with one name, the second is not offered.
    Never,
}

/// Naming settings.
#[derive(Clone, Debug)]
pub struct Naming {
    pub names: UpstreamNames,
    /// Separator between the upstream's name and the name of the item.
    pub separator: String,
}

impl Naming {
    /// Common prefix of the names of an upstream's tools and prompts, whatever else is offered. Empty if there is none.
    pub(super) fn prefix<'u>(&self, upstream: &'u Upstream) -> Cow<'u, str> {
        match self.names {
            UpstreamNames::Always => self.long_prefix(upstream),
            UpstreamNames::Collision | UpstreamNames::Never => {
                upstream.config.prefix.as_deref().unwrap_or_default().into()
            }
        }
    }

    /// Prefix that an upstream sets, or its name otherwise.
    fn long_prefix<'u>(&self, upstream: &'u Upstream) -> Cow<'u, str> {
        match &upstream.config.prefix {
            Some(prefix) => Cow::Borrowed(&**prefix),
            None => format!("{}{}", plain(&upstream.name), self.separator).into(),
        }
    }
}

/// Default separator.
pub const SEPARATOR: &str = "__";

/// An upstream with its items.
pub(super) struct NamedUpstream {
    pub(super) upstream: Arc<Upstream>,
    pub(super) listing: Arc<Listing>,
    /// True if its items are not listed, because it is down. They keep their names.
    pub(super) is_hidden: bool,
}

impl NamedUpstream {
    fn tools(&self) -> impl Iterator<Item = &str> {
        let names = names_of(&self.listing.tools);
        names.filter(|name| self.upstream.config.chooses(name))
    }
}

fn names_of(entries: &[Value]) -> impl Iterator<Item = &str> {
    entries.iter().filter_map(|entry| entry["name"].as_str())
}

/// Names assigned to the listed items.
#[derive(Debug)]
pub(super) struct Names<'n> {
    naming: &'n Naming,
    /// Upstreams with the prefixes of their names.
    prefixes: Vec<(&'n str, Cow<'n, str>)>,
    /// Names that more than one item would have.
    shared_tools: HashSet<String>,
    shared_prompts: HashSet<String>,
    /// URIs of resources and templates that are taken.
    uris: HashSet<String>,
    /// Upstreams with the prefixes of their URIs.
    uri_prefixes: Vec<(&'n str, UriPrefix)>,
    overlaps: Overlaps,
}

/// URIs and templates by what they can match. A beginning is the text of a template before its first variable. Of two
/// templates of which one begins with the beginning of the other, both could match a URI.
#[derive(Debug, Default)]
struct Overlaps {
    /// Templates of all items but the present upstream's, by their beginning.
    templates: BTreeMap<String, Vec<UriTemplate>>,
    lengths: BTreeSet<usize>,
    /// URIs of all items but the present upstream's.
    uris: BTreeSet<String>,
    /// The present upstream.
    owner: String,
    /// Its URIs and templates.
    own: Vec<String>,
}

impl Overlaps {
    /// Returns true if a URI or a template could match the same URIs as an item of another owner.
    fn are_any(&mut self, owner: &str, uri: &str) -> bool {
        if self.owner != owner {
            owner.clone_into(&mut self.owner);
            for own in std::mem::take(&mut self.own) {
                self.add_of_another(&own);
            }
        }
        match beginning_of(uri) {
            Some(beginning) => self.of_template(uri, beginning),
            None => self
                .shorter(uri)
                .flatten()
                .any(|template| template.matches(uri).is_some()),
        }
    }

    fn of_template(&self, template: &str, beginning: &str) -> bool {
        let from = (Bound::Included(beginning), Bound::Unbounded);
        let mut longer = self.templates.range::<str, _>(from);
        let begins = |(other, _): (&String, _)| other.starts_with(beginning);
        if longer.next().is_some_and(begins) || self.shorter(beginning).next().is_some() {
            return true;
        }
        let Ok(template) = UriTemplate::parse(template) else {
            return false;
        };
        let uris = self.uris.range::<str, _>(from);
        let mut uris = uris.take_while(|uri| uri.starts_with(beginning));
        uris.any(|uri| template.matches(uri).is_some())
    }

    /// Returns the templates whose beginning is one of the text.
    fn shorter(&self, text: &str) -> impl Iterator<Item = &Vec<UriTemplate>> {
        let lengths = self.lengths.range(..=text.len());
        lengths.filter_map(move |length| self.templates.get(text.get(..*length)?))
    }

    fn add_of_another(&mut self, uri: &str) {
        let Some(beginning) = beginning_of(uri) else {
            self.uris.insert(uri.to_owned());
            return;
        };
        // Without a scheme, it could match everything.
        if let Ok(template) = UriTemplate::parse(uri)
            && has_scheme(beginning)
        {
            self.lengths.insert(beginning.len());
            self.templates
                .entry(beginning.to_owned())
                .or_default()
                .push(template);
        }
    }
}

/// Returns the beginning of a URI template; `None` for a URI.
fn beginning_of(uri: &str) -> Option<&str> {
    uri.split_once('{').map(|(beginning, _)| beginning)
}

/// Returns true if a template has a scheme, and cannot match the URIs of all others.
fn has_scheme(beginning: &str) -> bool {
    beginning.contains(':')
}

impl<'n> Names<'n> {
    /// Prepares names for the listed items that do not collide with those of `others`.
    pub(super) fn new(
        naming: &'n Naming,
        upstreams: &'n [Arc<Upstream>],
        found: &[NamedUpstream],
        others: &Catalog,
    ) -> Self {
        let prefixes = upstreams.iter().map(|upstream| {
            let prefix = naming.long_prefix(upstream);
            (&*upstream.name, prefix)
        });
        let mut names = Self {
            naming,
            prefixes: prefixes.filter(|(_, prefix)| !prefix.is_empty()).collect(),
            shared_tools: HashSet::new(),
            shared_prompts: HashSet::new(),
            uris: others.uris().map(str::to_owned).collect(),
            uri_prefixes: upstreams
                .iter()
                .map(|upstream| (&*upstream.name, UriPrefix::of(&upstream.name)))
                .collect(),
            overlaps: Overlaps::default(),
        };
        for uri in others.uris() {
            names.overlaps.add_of_another(uri);
        }
        if naming.names == UpstreamNames::Collision {
            names.shared_tools = shared(found, others.names(), NamedUpstream::tools);
            names.shared_prompts = shared(found, others.prompt_names(), |found| {
                names_of(&found.listing.prompts)
            });
        }
        names
    }

    pub(super) fn tool(&self, upstream: &Upstream, name: &str) -> String {
        tool_name(self.of(upstream, name, &self.shared_tools))
    }

    pub(super) fn prompt(&self, upstream: &Upstream, name: &str) -> String {
        self.of(upstream, name, &self.shared_prompts)
    }

    fn of(&self, upstream: &Upstream, name: &str, shared: &HashSet<String>) -> String {
        let is_taken = || shared.contains(name) || self.is_of_another(upstream, name);
        let prefix = match self.naming.names {
            UpstreamNames::Collision if is_taken() => self.naming.long_prefix(upstream),
            _ => self.naming.prefix(upstream),
        };
        match &*prefix {
            "" => name.to_owned(),
            prefix => shortened(&format!("{prefix}{name}"), NAME_CHARACTERS_MAX),
        }
    }

    /// Returns true if a name begins with the prefix of another upstream, which could need it for an item of its own.
    fn is_of_another(&self, upstream: &Upstream, name: &str) -> bool {
        let mut others = self.prefixes.iter();
        others.any(|(owner, prefix)| **owner != *upstream.name && name.starts_with(&**prefix))
    }

    /// Returns all URIs and URI templates that are taken.
    pub(super) fn uris(&self) -> &HashSet<String> {
        &self.uris
    }

    /// Returns the prefix for a URI or a URI template: none, unless it is taken, or could match URIs of other items.
    pub(super) fn uri(&mut self, upstream: &Upstream, uri: &str) -> UriPrefix {
        let owner = &*upstream.name;
        let mut others = self.uri_prefixes.iter().filter(|(name, _)| *name != owner);
        let is_of_another = others.any(|(_, prefix)| prefix.there(uri).is_some())
            || beginning_of(uri).is_some_and(|beginning| !has_scheme(beginning))
            || self.overlaps.are_any(owner, uri);
        if !is_of_another && self.uris.insert(uri.to_owned()) {
            self.overlaps.own.push(uri.to_owned());
            return UriPrefix::default();
        }
        let prefix = UriPrefix::of(&upstream.name);
        self.uris.insert(prefix.here(uri));
        prefix
    }
}

/// Returns names that occur more than once where no prefix distinguishes them.
fn shared<'a, I: Iterator<Item = &'a str>>(
    found: &'a [NamedUpstream],
    others: impl Iterator<Item = &'a str>,
    names: impl Fn(&'a NamedUpstream) -> I,
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

/// Converts a configuration key to characters that all model providers accept in names.
fn plain(name: &str) -> String {
    let plain = |c: char| match c {
        '-' | '_' => c,
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_others_that_could_match_the_same_uris_are_found() {
        let mut overlaps = Overlaps::default();
        for uri in ["db://orders/{id}", "notes://today", "{+uri}"] {
            overlaps.add_of_another(uri);
        }
        for (uri, overlap) in [
            ("db://{x}", true),
            ("db://orders/{x}", true),
            ("db://orders/x/{y}", true),
            ("db://users/{x}", false),
            ("file:///{+path}", false),
            ("db://orders/1", true),
            ("db://orders/1/items", false),
            ("db://users/1", false),
            ("notes://{day}", true),
            ("notes://to{rest}", true),
            ("notes://tomorrow/{x}", false),
            ("notes://yesterday", false),
        ] {
            assert_eq!(overlaps.are_any("a", uri), overlap, "{uri}");
        }
        overlaps.own.push("file:///{+path}".to_owned());
        assert!(
            !overlaps.are_any("a", "file:///x/{y}"),
            "of the same upstream"
        );
        assert!(!overlaps.are_any("a", "file:///x"), "of the same upstream");
        assert!(overlaps.are_any("b", "file:///x/{y}"));
        assert!(overlaps.are_any("b", "file:///x"));
        assert_eq!(beginning_of("file:///{+path}"), Some("file:///"));
        assert_eq!(beginning_of("file:///a"), None);
        assert!(!has_scheme("") && has_scheme("a:"));
    }

    #[test]
    fn names_have_only_what_every_provider_takes() {
        assert_eq!(plain("my.server/2 é"), "my_server_2__");
        assert_eq!(plain("a-b_C9"), "a-b_C9");
    }
}
