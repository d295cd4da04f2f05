//! Proxies for an upstream's tools, resources and prompts.

mod named_resources;
mod rejected;
mod required_page;
mod proxied;
mod shown;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value, json};

use super::call_error::CallError;
use super::connection::Upstream;
use super::instrumented::Operation;
use super::links::{Given, Links};
use super::names::{NamedUpstream, Names};
use super::passed_error::{for_caller, missing_ability, rpc_error};
use super::uri_prefix::UriPrefix;
use crate::auth::Principal;
use crate::catalog::schema::header_parameters;
use crate::catalog::{
    AnyResource, CallContext, Definition, OfferedSkill, PromptDefinition, PromptError, Resource,
    ResourceDefinition, ResourceError, SourceItems, TaskSupport, ToolError, Unlisted,
    UnlistedResource, path_deserializer,
};
use crate::protocol::{Content, whole};
use crate::seal::KeyRing;
use named_resources::{NamedResources, reads};
use proxied::{OwnTool, UpstreamTool, message_of};
use rejected::RejectedEntries;
use shown::{all_shown, schema_shown, shown};

/// Time by which the server's timeout exceeds the upstream's, so that the error shows which one expired.
const GRACE: Duration = Duration::from_secs(5);

/// Unlisted readable resources of an upstream: the files of its skills, its views, and the targets of links in its
/// results.
pub(super) struct Readable {
    upstream: Arc<Upstream>,
    links: Arc<Links>,
    /// Resources by local URI.
    known: HashMap<String, Arc<UpstreamResource>>,
}

/// Unlisted readable resources of all upstreams.
pub(super) struct AllReadable(pub(super) Vec<Readable>);

impl Unlisted for AllReadable {
    fn find(&self, principal: &Principal, uri: &str) -> Option<UnlistedResource> {
        self.0.iter().find_map(|of| of.find(principal, uri))
    }
}

impl Readable {
    fn find(&self, principal: &Principal, uri: &str) -> Option<UnlistedResource> {
        if let Some(known) = self.known.get(uri) {
            return Some(UnlistedResource {
                resource: Arc::clone(known) as Arc<dyn Resource>,
                names: vec![uri.to_owned()],
            });
        }
        let there = self.links.linked(uri, principal)?;
        let resource = UpstreamResource {
            upstream: Arc::clone(&self.upstream),
            definition: ResourceDefinition::new(uri, &*there),
            own: (*there).into(),
            links: Arc::clone(&self.links),
        };
        Some(UnlistedResource {
            names: self.links.names(&there),
            resource: Arc::new(resource),
        })
    }
}

/// Adds the items of an upstream. `given` receives all URIs in use.
pub(super) fn add(
    found: &NamedUpstream,
    names: &mut Names<'_>,
    all: &mut SourceItems,
    keys: &Arc<KeyRing>,
    given: &Arc<OnceLock<Given>>,
) -> Readable {
    let (upstream, listing) = (&found.upstream, &found.listing);
    let mut rejected = RejectedEntries::new(upstream);
    let NamedResources {
        links,
        resources,
        templates,
        unlisted,
        offered,
    } = NamedResources::new(found, names, (keys, given), &mut rejected);
    let reads = reads(listing);
    let links = Arc::new(links);
    let of = |(definition, own): (ResourceDefinition, String)| {
        Arc::new(UpstreamResource {
            upstream: Arc::clone(upstream),
            definition,
            own: own.into(),
            links: Arc::clone(&links),
        })
    };
    let mut known: HashMap<_, _> = unlisted
        .into_iter()
        .map(|unlisted| (unlisted.0.uri.clone(), of(unlisted)))
        .collect();
    for resource in resources.into_iter().map(of) {
        // A list would reject a view of another media type, but hosts that know it can still read it.
        if resource.own.starts_with("ui://") {
            known.insert(resource.definition.uri.clone(), Arc::clone(&resource));
        }
        all.resources.push(AnyResource::Fixed(resource));
    }
    for (definition, own, prefix) in templates {
        let template = UpstreamTemplate {
            upstream: Arc::clone(upstream),
            definition,
            own,
            prefix,
            links: Arc::clone(&links),
            completes: listing.completes,
        };
        all.resources
            .push(AnyResource::Template(Arc::new(template)));
    }
    for entry in offered {
        match tool(upstream, names, &links, entry) {
            Ok(tool) => all.tools.push(Arc::new(tool)),
            Err(problem) => rejected.add("tool", entry, problem),
        }
    }
    for entry in &listing.prompts {
        match prompt(upstream, names, &links, entry, listing.completes) {
            Ok(prompt) => all.prompts.push(Arc::new(prompt)),
            Err(problem) => rejected.add("prompt", entry, problem),
        }
    }
    for entry in listing.skills.iter().filter(|_| reads) {
        match skill(&links, entry) {
            Ok(skill) => all.skills.push(skill),
            Err(problem) => rejected.add("skill", entry, problem),
        }
    }
    all.refused.extend(rejected.into_items());
    Readable {
        upstream: Arc::clone(upstream),
        links,
        known,
    }
}

/// Takes the URIs of an upstream that is hidden while it is down, as [`add`] does. Otherwise they would lead to another
/// upstream meanwhile.
pub(super) fn reserve(found: &NamedUpstream, names: &mut Names<'_>, keys: &Arc<KeyRing>) {
    let mut rejected = RejectedEntries::new(&found.upstream);
    NamedResources::new(found, names, (keys, &Arc::default()), &mut rejected);
}

/// Returns a skill's entry with the local URIs of its files.
fn skill(links: &Links, entry: &Value) -> Result<OfferedSkill, &'static str> {
    if !entry.is_object() {
        return Err("it is not an object");
    }
    let mut entry = entry.clone();
    let rename = |uri: &mut Value| {
        if let Some(here) = uri.as_str().and_then(|uri| links.own(uri)) {
            *uri = here.into();
        }
    };
    rename(&mut entry["uri"]);
    let files = entry["resources"].as_array_mut().into_iter().flatten();
    for file in files.filter(|file| file.is_object()) {
        rename(&mut file["uri"]);
    }
    all_shown(&mut entry["frontmatter"]);
    OfferedSkill::new(entry)
}

fn part<T: Default + DeserializeOwned>(entry: &Value, member: &str) -> Result<T, String> {
    match entry.get(member) {
        None | Some(Value::Null) => Ok(T::default()),
        // PHP writes an empty map as an empty list, or an empty list as an empty map.
        Some(Value::Array(items)) if items.is_empty() => Ok(T::default()),
        Some(Value::Object(members)) if members.is_empty() => Ok(T::default()),
        Some(value) => path_deserializer::read(value)
            .map_err(|misfit| format!("its {member}: {}", misfit.cause)),
    }
}

/// Reads a text for people or models.
fn text_of(entry: &Value, member: &str) -> Result<Option<String>, String> {
    let text: Option<String> = part(entry, member)?;
    Ok(text.as_deref().map(shown))
}

fn name_of(entry: &Value) -> Result<String, String> {
    let name: String = part(entry, "name")?;
    match name.is_empty() {
        true => Err("its name is missing".to_owned()),
        false => Ok(name),
    }
}

fn tool(
    upstream: &Arc<Upstream>,
    names: &Names<'_>,
    links: &Arc<Links>,
    entry: &Value,
) -> Result<UpstreamTool, String> {
    let name = name_of(entry)?;
    let schema = |member| entry.get(member).filter(|schema| !schema.is_null());
    let mut definition = Definition::new(names.tool(upstream, &name));
    definition.timeout = Some(upstream.config.timeout() + GRACE);
    definition.annotations = part(entry, "annotations")?;
    definition.input_schema = match schema("inputSchema") {
        Some(schema) => schema_shown(schema),
        // The upstream does not say which arguments it takes.
        None => json!({"type": "object"}),
    };
    definition.output_schema = schema("outputSchema").map(schema_shown);
    definition.title = text_of(entry, "title")?;
    definition.description = text_of(entry, "description")?;
    definition.icons = part(entry, "icons")?;
    definition.meta = part(entry, "_meta")?;
    links.rename_view(&mut definition.meta);
    let support = entry["execution"]["taskSupport"].as_str();
    // Callers without task support are served too, because the call here waits for the upstream's task.
    if let Some("optional" | "required") = support {
        definition.task = TaskSupport::Optional;
    }
    // If the mirrored parameters are not valid, the catalog rejects the tool.
    let mirrored = header_parameters(&definition.input_schema).unwrap_or_default();
    let hints = &definition.annotations;
    let repeatable = hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true);
    let own = OwnTool {
        upstream: Arc::clone(upstream),
        operation: Operation::tool(&name),
        name: Value::String(name).to_string().into(),
        repeatable,
        mirrored,
        links: Arc::clone(links),
        task_only: AtomicBool::new(support == Some("required")),
    };
    Ok(UpstreamTool {
        definition,
        own: Arc::new(own),
    })
}

fn resource(entry: &Value, uri: &str) -> Result<ResourceDefinition, String> {
    let name: String = part(entry, "name")?;
    let mut definition = ResourceDefinition::new(part::<String>(entry, uri)?, name);
    definition.annotations = part(entry, "annotations")?;
    definition.title = text_of(entry, "title")?;
    definition.description = text_of(entry, "description")?;
    definition.mime_type = part(entry, "mimeType")?;
    let size: Option<Number> = part(entry, "size")?;
    definition.size = size.and_then(|size| whole(&size.to_string()));
    definition.icons = part(entry, "icons")?;
    definition.meta = part(entry, "_meta")?;
    Ok(definition)
}

fn prompt(
    upstream: &Arc<Upstream>,
    names: &Names<'_>,
    links: &Arc<Links>,
    entry: &Value,
    completes: bool,
) -> Result<UpstreamPrompt, String> {
    let name = name_of(entry)?;
    let mut definition = PromptDefinition::new(names.prompt(upstream, &name));
    definition.title = text_of(entry, "title")?;
    definition.description = text_of(entry, "description")?;
    definition.arguments = part(entry, "arguments")?;
    for argument in &mut definition.arguments {
        for text in [&mut argument.title, &mut argument.description] {
            *text = text.as_deref().map(shown);
        }
    }
    definition.icons = part(entry, "icons")?;
    definition.meta = part(entry, "_meta")?;
    Ok(UpstreamPrompt {
        upstream: Arc::clone(upstream),
        definition,
        name,
        links: Arc::clone(links),
        completes,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Called<'a> {
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
    #[serde(rename = "_meta", borrow)]
    meta: Option<&'a RawValue>,
}

/// Converts a content block. Blocks of an unknown type are kept as they are.
fn block_of(block: &RawValue) -> Content {
    if let Some(text) = plain_text(block) {
        return Content::text(text);
    }
    let read = serde_json::from_str(block.get()).or_else(|_| without_annotations(block));
    read.unwrap_or_else(|_| Content::text(block.get()))
}

/// Reads a content block without its annotations. These are hints, and may not be valid.
fn without_annotations(block: &RawValue) -> Result<Content, serde_json::Error> {
    let mut members: Map<String, Value> = serde_json::from_str(block.get())?;
    members.remove("annotations");
    serde_json::from_value(Value::Object(members))
}

/// Returns the text of a block that consists only of text, as most do.
fn plain_text(block: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Plain<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
        text: String,
    }
    let plain: Plain<'_> = serde_json::from_str(block.get()).ok()?;
    (plain.kind == "text").then_some(plain.text)
}

/// Defines the conversion of an error of a request. JSON-RPC errors of the upstream are passed on. Of others, the
/// upstream's address and the reason for the failure only go to the log.
macro_rules! converts_errors {
    ($name:ident, $error:ident) => {
        fn $name(upstream: &str, error: CallError, context: &CallContext) -> $error {
            match rpc_error(&error) {
                Some(error) => match missing_ability(error, context) {
                    Some(missing) => missing.into(),
                    None => $error::protocol(for_caller(upstream, error)),
                },
                None => $error::new(message_of(upstream, &error)).caused_by(error),
            }
        }
    };
}

converts_errors!(tool_error, ToolError);
converts_errors!(resource_error, ResourceError);
converts_errors!(prompt_error, PromptError);

struct UpstreamResource {
    upstream: Arc<Upstream>,
    definition: ResourceDefinition,
    /// URI at the upstream.
    own: Arc<str>,
    links: Arc<Links>,
}

struct UpstreamTemplate {
    upstream: Arc<Upstream>,
    definition: ResourceDefinition,
    /// Template at the upstream.
    own: String,
    prefix: UriPrefix,
    links: Arc<Links>,
    completes: bool,
}

struct UpstreamPrompt {
    upstream: Arc<Upstream>,
    definition: PromptDefinition,
    name: String,
    links: Arc<Links>,
    completes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_or_map_is_empty_whatever_is_expected() {
        let entry = json!({"arguments": {}, "_meta": [], "icons": {"a": 1}});
        assert_eq!(part::<Vec<Value>>(&entry, "arguments"), Ok(Vec::new()));
        assert_eq!(part::<Map<String, Value>>(&entry, "_meta"), Ok(Map::new()));
        assert!(part::<Vec<Value>>(&entry, "icons").is_err());
    }
}
