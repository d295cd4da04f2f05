//! Rewrites the URIs in an upstream's results.
//!
//! A listed resource gets the URI of its list entry. A resource that the upstream only links to is in no list here
//! either. Its URI is prefixed with the upstream's name and a MAC, which is valid for the caller that received the
//! link. Every replica can thus determine the upstream to read from, without stored state.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, OnceLock};

use data_encoding::{BASE32_NOPAD, Encoding};
use serde_json::{Map, Value};

use super::uri_prefix::UriPrefix;
use crate::auth::Principal;
use crate::protocol::{Content, UriTemplate, encoded_uri, fault_of_uri};
use crate::seal::{KeyRing, Purpose};

const PURPOSE: Purpose<'static> = Purpose {
    kind: "upstream link 1",
    endpoint: "",
};

/// URIs in use here, of all sources.
#[derive(Debug, Default)]
pub(super) struct Given {
    uris: HashSet<String>,
    templates: Vec<UriTemplate>,
}

impl Given {
    pub(super) fn new(uris: &HashSet<String>) -> Self {
        let templates = uris.iter().filter(|uri| uri.contains('{'));
        Self {
            templates: templates
                .filter_map(|uri| UriTemplate::parse(uri).ok())
                .collect(),
            uris: uris.clone(),
        }
    }

    fn has(&self, uri: &str) -> bool {
        self.uris.contains(uri)
            || self
                .templates
                .iter()
                .any(|template| template.matches(uri).is_some())
    }
}

/// Mapping between an upstream's URIs and the local ones.
#[derive(Debug)]
pub(super) struct Links {
    /// Name of the upstream.
    name: String,
    prefix: UriPrefix,
    keys: Arc<KeyRing>,
    /// URIs that it lists, with the local form of those that have another one here.
    own: HashMap<String, Option<String>>,
    templates: Vec<(UriTemplate, bool)>,
    /// True if it has resources that can be read.
    reads: bool,
    given: Arc<OnceLock<Given>>,
}

/// Context in which a URI is mentioned, which decides whether clients read it from this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mention {
    /// A link, whose target is readable.
    Link,
    /// Contents that are included already.
    Contents,
}

impl Links {
    pub(super) fn new(
        name: &str,
        keys: &Arc<KeyRing>,
        reads: bool,
        given: &Arc<OnceLock<Given>>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            prefix: UriPrefix::of(name),
            keys: Arc::clone(keys),
            own: HashMap::new(),
            templates: Vec::new(),
            reads,
            given: Arc::clone(given),
        }
    }

    /// Adds a URI that the upstream lists, with its local form. The upstream may also use it with characters encoded.
    pub(super) fn add(&mut self, uri: &str, here: &str) {
        for uri in [Cow::Borrowed(uri), encoded_uri(uri)] {
            let renamed = (here != uri).then(|| here.to_owned());
            self.own.insert(uri.into_owned(), renamed);
        }
    }

    /// Adds a template that the upstream lists, with its local prefix, if any.
    pub(super) fn add_template(&mut self, template: &str, prefix: &UriPrefix) {
        if let Ok(template) = UriTemplate::parse(template) {
            self.templates.push((template, prefix.is_some()));
        }
    }

    /// Returns true for a URI or a template that has been added.
    pub(super) fn lists(&self, uri: &str) -> bool {
        let mut templates = self.templates.iter();
        self.own.contains_key(uri) || templates.any(|(template, _)| template.as_str() == uri)
    }

    /// Returns true for a URI that the upstream lists, or that matches one of its templates.
    pub(super) fn knows(&self, uri: &str) -> bool {
        self.listed(uri).is_some()
    }

    /// Returns the local form of a listed URI; `None` if it is unchanged.
    pub(super) fn own(&self, uri: &str) -> Option<String> {
        self.listed(uri)?
    }

    /// Returns the local form of a listed URI, if it has another one here; `None` if it is not listed.
    fn listed(&self, uri: &str) -> Option<Option<String>> {
        let listed = self.own.get(uri).cloned();
        listed.or_else(|| {
            let mut templates = self.templates.iter();
            let found = templates.find(|(template, _)| template.matches(uri).is_some());
            found.map(|(_, is_prefixed)| is_prefixed.then(|| self.prefix.here(uri)))
        })
    }

    /// Returns the local form of a URI in a result for a caller; `None` if it is unchanged.
    pub(super) fn here(
        &self,
        uri: &str,
        mention: Mention,
        principal: &Principal,
    ) -> Option<String> {
        if let Some(here) = self.listed(uri) {
            return here;
        }
        // Clients load these directly from the web.
        let is_web = ["http://", "https://", "data:"]
            .iter()
            .any(|scheme| uri.starts_with(scheme));
        if is_web || !self.reads || fault_of_uri(uri).is_some() {
            return None;
        }
        let is_anothers = || self.given.get().is_some_and(|given| given.has(uri));
        if mention == Mention::Contents && !is_anothers() {
            return None;
        }
        let tag = self.keys.tag(PURPOSE, &self.sealed(uri, principal));
        let here = self.prefix.tagged(&LOWER.encode(&tag)).here(uri);
        fault_of_uri(&here).is_none().then_some(here)
    }

    /// Returns the upstream's form of a URI that it linked to for this caller.
    pub(super) fn linked<'u>(&self, uri: &'u str, principal: &Principal) -> Option<Cow<'u, str>> {
        let tag = self.prefix.tag_of(uri)?;
        let there = self.prefix.tagged(tag).there(uri)?;
        let tag = LOWER.decode(tag.as_bytes()).ok()?;
        let text = self.sealed(&there, principal);
        self.keys.is_tag(PURPOSE, &text, &tag).then_some(there)
    }

    /// Returns the URIs by which policy rules can name a linked resource.
    pub(super) fn names(&self, there: &str) -> Vec<String> {
        vec![there.to_owned(), self.prefix.here(there)]
    }

    fn sealed(&self, uri: &str, principal: &Principal) -> Vec<u8> {
        [
            self.name.as_bytes(),
            principal.id().as_bytes(),
            uri.as_bytes(),
        ]
        .join(&0)
    }

    /// Rewrites the URIs of a content block.
    pub(super) fn rename(&self, content: &mut Content, principal: &Principal) {
        let change = |uri: &mut String, mention| {
            if let Some(here) = self.here(uri, mention, principal) {
                *uri = here;
            }
        };
        let meta = match content {
            Content::ResourceLink(link) => {
                change(&mut link.uri, Mention::Link);
                &mut link.meta
            }
            Content::Resource(embedded) => {
                change(&mut embedded.resource.uri, Mention::Contents);
                if let Some(meta) = &mut embedded.resource.meta {
                    self.rename_view(meta);
                }
                &mut embedded.meta
            }
            Content::Text(text) => &mut text.meta,
            Content::Image(media) | Content::Audio(media) => &mut media.meta,
            _ => return,
        };
        if let Some(meta) = meta {
            self.rename_view(meta);
        }
    }

    /// Rewrites the view that the `_meta` of a tool, a result or a block names (`io.modelcontextprotocol/ui`).
    pub(super) fn rename_view(&self, meta: &mut Map<String, Value>) {
        let rename = |uri: &mut Value| {
            if let Some(here) = uri.as_str().and_then(|uri| self.own(uri)) {
                *uri = here.into();
            }
        };
        if let Some(uri) = meta.get_mut("ui/resourceUri") {
            rename(uri);
        }
        if let Some(uri) = meta.get_mut("ui").and_then(|ui| ui.get_mut("resourceUri")) {
            rename(uri);
        }
    }
}

/// Returns the URI of the view that the `_meta` of a tool names.
pub(super) fn view_of(meta: &Value) -> Option<&str> {
    let named = meta["ui"]["resourceUri"].as_str();
    named.or_else(|| meta["ui/resourceUri"].as_str())
}

/// Base32 encoding that is valid in URI schemes: lower-case letters and digits.
static LOWER: LazyLock<Encoding> = LazyLock::new(|| {
    let mut lower = BASE32_NOPAD.specification();
    lower.symbols = lower.symbols.to_ascii_lowercase();
    lower.encoding().unwrap_or(BASE32_NOPAD)
});

#[cfg(test)]
mod tests {
    use super::*;

    fn links(name: &str, keys: &Arc<KeyRing>) -> Links {
        let given = Arc::new(OnceLock::new());
        let uris = ["test://taken", "test://any/{x}"].map(str::to_owned);
        given.set(Given::new(&uris.into())).expect("not set");
        let mut links = Links::new(name, keys, true, &given);
        links.add("test://kept", "test://kept");
        links.add(
            "test://renamed",
            &UriPrefix::of(name).here("test://renamed"),
        );
        links.add_template("test://t/{x}", &UriPrefix::of(name));
        links
    }

    #[test]
    fn listed_resources_are_called_what_their_list_entries_are() {
        let keys = Arc::new(KeyRing::random());
        let links = links("b", &keys);
        let ada = Principal::new("ada");
        let here = |uri| links.here(uri, Mention::Link, &ada);
        assert_eq!(here("test://kept"), None);
        assert_eq!(here("test://renamed").as_deref(), Some("b+test://renamed"));
        assert_eq!(here("test://t/1").as_deref(), Some("b+test://t/1"));
        assert_eq!(here("https://example.com/a"), None);
        assert_eq!(here("no uri"), None);
    }

    #[test]
    fn what_is_linked_is_read_by_whom_it_was_linked_for_alone() {
        let keys = Arc::new(KeyRing::random());
        let (links, others) = (links("my.b", &keys), links("my-b", &keys));
        let (ada, bob) = (Principal::new("ada"), Principal::new("bob"));
        for uri in ["test://linked/a?b=c+d", "ui://view/a", "skill://a/SKILL.md"] {
            let here = links.here(uri, Mention::Link, &ada).expect("renamed");
            assert!(fault_of_uri(&here).is_none(), "{here}");
            assert_eq!(links.linked(&here, &ada).as_deref(), Some(uri), "{here}");
            assert_eq!(links.linked(&here, &bob), None);
            assert_eq!(others.linked(&here, &ada), None, "names that look alike");
            let another = format!("{here}x");
            assert_eq!(links.linked(&another, &ada), None);
            assert_eq!(links.linked(uri, &ada), None);
        }
        let view = links.here("ui://view/a", Mention::Link, &ada);
        assert!(view.is_some_and(|view| view.starts_with("ui://my-b.")));
        let other_keys = Arc::new(KeyRing::random());
        let here = links
            .here("test://x", Mention::Link, &ada)
            .expect("renamed");
        let forged = super::tests::links("my.b", &other_keys);
        assert_eq!(forged.linked(&here, &ada), None);
    }

    #[test]
    fn contents_that_are_there_keep_their_uri_unless_another_has_it() {
        let keys = Arc::new(KeyRing::random());
        let links = links("b", &keys);
        let ada = Principal::new("ada");
        let here = |uri| links.here(uri, Mention::Contents, &ada);
        assert_eq!(here("test://nobodys"), None);
        assert!(here("test://taken").is_some());
        assert!(here("test://any/1").is_some());
    }
}
