//! Local URIs of an upstream's resources, templates, views and skill files.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::super::cache::Listing;
use super::super::links::{Given, Links, view_of};
use super::super::names::{NamedUpstream, Names};
use super::super::uri_prefix::UriPrefix;
use super::rejected::RejectedEntries;
use super::resource;
use crate::catalog::{OfferedSkill, ResourceDefinition};
use crate::protocol::{encoded_uri, fault_of_uri};
use crate::seal::KeyRing;

/// Returns true if resources of an upstream can be read.
pub(super) fn reads(listing: &Listing) -> bool {
    listing.reads || !listing.resources.is_empty() || !listing.templates.is_empty()
}

/// The resources of an upstream under their local URIs, each with its URI at the upstream.
pub(super) struct NamedResources<'l> {
    pub(super) links: Links,
    pub(super) resources: Vec<(ResourceDefinition, String)>,
    pub(super) templates: Vec<(ResourceDefinition, String, UriPrefix)>,
    /// Views and files of skills that the upstream does not list.
    pub(super) unlisted: Vec<(ResourceDefinition, String)>,
    /// Entries of the offered tools.
    pub(super) offered: Vec<&'l Value>,
}

impl<'l> NamedResources<'l> {
    /// Takes the URIs from `names`. Entries that cannot be offered are added to `rejected`, and take none.
    pub(super) fn new(
        found: &'l NamedUpstream,
        names: &mut Names<'_>,
        (keys, given): (&Arc<KeyRing>, &Arc<OnceLock<Given>>),
        rejected: &mut RejectedEntries<'_>,
    ) -> Self {
        let (upstream, listing) = (&found.upstream, &found.listing);
        let reads = reads(listing);
        let mut links = Links::new(&upstream.name, keys, reads, given);
        let mut resources = Vec::new();
        for entry in &listing.resources {
            match listed(entry, "uri", &links) {
                Ok(mut definition) => {
                    let own = definition.uri;
                    // Many servers put a path behind `file://` as it is. They are asked by their own spelling.
                    let valid = encoded_uri(&own);
                    definition.uri = names.uri(upstream, &valid).here(&valid);
                    links.add(&own, &definition.uri);
                    resources.push((definition, own));
                }
                Err(problem) => rejected.add("resource", entry, problem),
            }
        }
        let mut templates = Vec::new();
        for entry in &listing.templates {
            match listed(entry, "uriTemplate", &links) {
                Ok(mut definition) => {
                    let own = definition.uri.clone();
                    let prefix = names.uri(upstream, &own);
                    definition.uri = prefix.here(&own);
                    links.add_template(&own, &prefix);
                    templates.push((definition, own, prefix));
                }
                Err(problem) => rejected.add("resource template", entry, problem),
            }
        }
        let offered = offered_tools(found, rejected);
        let unlisted = match reads {
            true => unlisted(found, &offered, names, &mut links),
            false => Vec::new(),
        };
        Self {
            links,
            resources,
            templates,
            unlisted,
            offered,
        }
    }
}

/// Reads the entry of a resource or a template, unless an earlier one has its URI.
fn listed(entry: &Value, uri: &str, links: &Links) -> Result<ResourceDefinition, String> {
    let definition = resource(entry, uri)?;
    match links.lists(&definition.uri) || links.lists(&encoded_uri(&definition.uri)) {
        true => Err("it is listed twice".to_owned()),
        false => Ok(definition),
    }
}

/// Returns the entries of the tools that the configuration selects, without quarantined ones.
fn offered_tools<'l>(
    found: &'l NamedUpstream,
    rejected: &mut RejectedEntries<'_>,
) -> Vec<&'l Value> {
    let (upstream, listing) = (&found.upstream, &found.listing);
    let quarantined: HashSet<&str> = listing.quarantined.iter().map(String::as_str).collect();
    let is_offered = |entry: &&Value| {
        let Some(name) = entry["name"].as_str() else {
            rejected.add("tool", entry, "its name is missing");
            return false;
        };
        let quarantined = quarantined.contains(name);
        let chosen = upstream.config.chooses(name);
        if quarantined && chosen {
            let problem = "it is described otherwise than before (on_change is quarantine)";
            rejected.add("tool", entry, problem);
        }
        chosen && !quarantined
    };
    listing.tools.iter().filter(is_offered).collect()
}

/// Returns views of tools and files of skills that the upstream does not list, each with its URI there.
fn unlisted(
    found: &NamedUpstream,
    offered: &[&Value],
    names: &mut Names<'_>,
    links: &mut Links,
) -> Vec<(ResourceDefinition, String)> {
    let views = offered.iter().filter_map(|entry| view_of(&entry["_meta"]));
    let files = found.listing.skills.iter().flat_map(OfferedSkill::files);
    let mut unlisted = Vec::new();
    for uri in views.chain(files) {
        if links.knows(uri) || fault_of_uri(uri).is_some() {
            continue;
        }
        let definition = ResourceDefinition::new(names.uri(&found.upstream, uri).here(uri), uri);
        links.add(uri, &definition.uri);
        unlisted.push((definition, uri.to_owned()));
    }
    unlisted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{add, reserve};
    use super::*;
    use crate::catalog::{Catalog, SourceItems};
    use crate::net::Background;
    use crate::source::parts::SourceParts;
    use crate::source::upstream::UpstreamConfig;
    use crate::source::upstream::connection::Upstream;
    use crate::source::upstream::names::{Naming, SEPARATOR, UpstreamNames};

    fn upstream(name: &str, listing: &Listing) -> NamedUpstream {
        let config = UpstreamConfig {
            command: Some("x".to_owned()),
            exclude_tools: vec!["excluded".to_owned()],
            ..UpstreamConfig::default()
        };
        let upstream = Upstream::new(name, config, Background::new(), &SourceParts::default());
        NamedUpstream {
            upstream: Arc::new(upstream.expect("valid")),
            listing: Arc::new(listing.clone()),
            is_hidden: false,
        }
    }

    fn listing() -> Listing {
        let tool =
            |name: &str, view: &str| json!({"name": name, "_meta": {"ui": {"resourceUri": view}}});
        Listing {
            tools: vec![
                tool("act", "ui://view"),
                tool("excluded", "ui://excluded"),
                json!({"name": "old", "_meta": {"ui/resourceUri": "ui://old"}}),
            ],
            resources: vec![
                json!({"uri": "a://listed", "name": "listed"}),
                json!({"uri": "a://listed", "name": "again"}),
                json!({"uri": "a://rejected", "name": 1}),
            ],
            templates: vec![json!({"uriTemplate": "b://{x}", "name": "template"})],
            skills: vec![json!({
                "uri": "skill://a/SKILL.md",
                "resources": [{"uri": "skill://a/more.md"}, {"uri": "a://listed"}],
            })],
            ..Listing::default()
        }
    }

    #[test]
    fn a_hidden_upstream_keeps_the_uris_that_it_has_while_it_is_listed() {
        let naming = Naming {
            names: UpstreamNames::Always,
            separator: SEPARATOR.to_owned(),
        };
        let found = [upstream("one", &listing()), upstream("two", &listing())];
        let upstreams = [&found[0], &found[1]].map(|found| Arc::clone(&found.upstream));
        let others = Catalog::default();
        let keys = Arc::new(KeyRing::random());
        let uris = |is_hidden: bool| {
            let mut names = Names::new(&naming, &upstreams, &found, &others);
            let mut all = SourceItems::default();
            match is_hidden {
                true => reserve(&found[0], &mut names, &keys),
                false => {
                    add(&found[0], &mut names, &mut all, &keys, &Arc::default());
                }
            }
            let first = names.uris().clone();
            add(&found[1], &mut names, &mut all, &keys, &Arc::default());
            (first, names.uris().clone())
        };
        let hidden = uris(true);
        assert_eq!(hidden, uris(false));
        let expected = [
            "a://listed",
            "b://{x}",
            "ui://view",
            "ui://old",
            "skill://a/SKILL.md",
            "skill://a/more.md",
        ];
        let expected: HashSet<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(hidden.0, expected);
    }
}
