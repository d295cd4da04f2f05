//! Proxies for an upstream's tools, resources and prompts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::call_error::CallError;
use super::connection::Upstream;
use super::instrumented::{Operation, RequestOutcome};
use super::links::{Given, Links, Mention, view_of};
use super::names::{NamedUpstream, Names};
use super::tasks;
use super::uri_prefix::UriPrefix;
use crate::auth::Principal;
use crate::catalog::schema::header_parameters;
use crate::catalog::{
    AnyResource, ArgumentFuture, Arguments, CallContext, CallFuture, CompletionRequest,
    Completions, Definition, HeaderParameter, OfferedSkill, Output, Parameters, Prompt,
    PromptDefinition, PromptError, PromptFuture, PromptOutput, ReadFuture, RejectedItem, Resource,
    ResourceDefinition, ResourceError, ResourceTemplate, SourceItems, TaskSupport, Tool, ToolError,
    Unlisted, UnlistedResource, UpstreamIdentity, VariableFuture, path_deserializer,
};
use crate::client::{ClientError, Params};
use crate::protocol::{
    Annotations, Content, Icon, PromptArgument, PromptMessage, ResourceContents, ToolAnnotations,
    fault_of_uri,
};
use crate::seal::KeyRing;

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
    let NamedUpstream { upstream, listing } = found;
    let mut rejected = RejectedEntries::new(upstream);
    let reads = listing.reads || !listing.resources.is_empty() || !listing.templates.is_empty();
    let mut links = Links::new(&upstream.name, keys, reads, given);
    let mut resources = Vec::new();
    for entry in &listing.resources {
        match resource(entry, "uri") {
            Ok(mut definition) => {
                let own = definition.uri.clone();
                let prefix = names.uri(upstream, &own);
                definition.uri = prefix.here(&own);
                links.add(&own, &prefix);
                resources.push((definition, own));
            }
            Err(problem) => rejected.add("resource", entry, problem),
        }
    }
    let mut templates = Vec::new();
    for entry in &listing.templates {
        match resource(entry, "uriTemplate") {
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
    let offered = offered_tools(found, &mut rejected);
    let unlisted = match reads {
        true => unlisted(found, &offered, names, &mut links),
        false => Vec::new(),
    };
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
    all.refused.extend(rejected.items);
    Readable {
        upstream: Arc::clone(upstream),
        links,
        known,
    }
}

/// The entries of an upstream's lists that cannot be offered.
struct RejectedEntries<'u> {
    upstream: &'u str,
    items: Vec<RejectedItem>,
}

impl<'u> RejectedEntries<'u> {
    fn new(upstream: &'u Upstream) -> Self {
        Self {
            upstream: &upstream.name,
            items: Vec::new(),
        }
    }

    fn add(&mut self, kind: &str, entry: &Value, problem: impl Into<String>) {
        let name = entry["name"]
            .as_str()
            .or(entry["uri"].as_str())
            .unwrap_or("without a name");
        let place = format!("upstreams.{}, {kind} {name:?}", self.upstream);
        let item = RejectedItem::new(self.upstream, place, problem.into());
        self.items.push(item);
    }
}

/// Returns the entries of the tools that the configuration selects, without quarantined ones.
fn offered_tools<'l>(
    found: &'l NamedUpstream,
    rejected: &mut RejectedEntries<'_>,
) -> Vec<&'l Value> {
    let NamedUpstream { upstream, listing } = found;
    let is_offered = |entry: &&Value| {
        let Some(name) = entry["name"].as_str() else {
            rejected.add("tool", entry, "its name is missing");
            return false;
        };
        let quarantined = listing.quarantined.iter().any(|known| known == name);
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
        let prefix = names.uri(&found.upstream, uri);
        links.add(uri, &prefix);
        let definition = ResourceDefinition::new(prefix.here(uri), uri);
        unlisted.push((definition, uri.to_owned()));
    }
    unlisted
}

/// Returns a skill's entry with the local URIs of its files.
fn skill(links: &Links, entry: &Value) -> Result<OfferedSkill, &'static str> {
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

/// Removes characters that hide or reorder text from every string in a document.
fn all_shown(document: &mut Value) {
    match document {
        Value::String(text) => *text = shown(text),
        Value::Array(items) => items.iter_mut().for_each(all_shown),
        Value::Object(members) => members.values_mut().for_each(all_shown),
        _ => {}
    }
}

fn part<T: Default + DeserializeOwned>(entry: &Value, member: &str) -> Result<T, String> {
    match entry.get(member) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => path_deserializer::read(value)
            .map_err(|misfit| format!("its {member}: {}", misfit.cause)),
    }
}

fn tool(
    upstream: &Arc<Upstream>,
    names: &Names<'_>,
    links: &Arc<Links>,
    entry: &Value,
) -> Result<UpstreamTool, String> {
    let name: String = part(entry, "name")?;
    if name.is_empty() {
        return Err("its name is missing".to_owned());
    }
    let mut definition = Definition::new(names.tool(upstream, &name))
        .annotations(part::<ToolAnnotations>(entry, "annotations")?)
        .timeout(upstream.timeout() + GRACE);
    if let Some(schema) = entry.get("inputSchema") {
        definition = definition.input_schema(schema_shown(schema));
    }
    if let Some(schema) = entry.get("outputSchema") {
        definition = definition.output_schema(schema_shown(schema));
    }
    if let Some(title) = part::<Option<String>>(entry, "title")? {
        definition = definition.title(shown(&title));
    }
    if let Some(description) = part::<Option<String>>(entry, "description")? {
        definition = definition.description(shown(&description));
    }
    for icon in part::<Vec<Icon>>(entry, "icons")? {
        definition = definition.icon(icon);
    }
    let mut meta: Map<String, Value> = part(entry, "_meta")?;
    links.rename_view(&mut meta);
    for (key, value) in meta {
        definition = definition.meta(key, value);
    }
    let support = entry["execution"]["taskSupport"].as_str();
    // Callers without task support are served too, because the call here waits for the upstream's task.
    if let Some("optional" | "required") = support {
        definition.task = TaskSupport::Optional;
    }
    // If the mirrored parameters are not valid, the catalog rejects the tool.
    let mirrored = header_parameters(&definition.input_schema).unwrap_or_default();
    let hints = &definition.annotations;
    let repeatable = hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true);
    Ok(UpstreamTool {
        upstream: Arc::clone(upstream),
        definition,
        operation: Arc::new(Operation::tool(&name)),
        name: Value::String(name).to_string().into(),
        repeatable,
        mirrored: mirrored.into(),
        links: Arc::clone(links),
        task_only: Arc::new(AtomicBool::new(support == Some("required"))),
    })
}

/// Removes characters that hide or reorder text from the titles and descriptions of a schema.
fn schema_shown(schema: &Value) -> Value {
    let mut schema = schema.clone();
    show_schema(&mut schema);
    schema
}

fn show_schema(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(show_schema),
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), &mut *value) {
                    ("title" | "description" | "$comment", Value::String(text)) => {
                        *text = shown(text);
                    }
                    // These are values, which are compared exactly.
                    ("default" | "const" | "enum" | "examples", value) if !is_schema(value) => {}
                    (_, value) => show_schema(value),
                }
            }
        }
        _ => {}
    }
}

/// Returns true for the schema of a property that has the name of a keyword.
fn is_schema(value: &Value) -> bool {
    value.get("type").is_some() || value.get("description").is_some()
}

/// Removes characters that hide or reorder text from untrusted text.
fn shown(text: &str) -> String {
    let hides = |c: &char| {
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
            || c.is_control() && !matches!(c, '\n' | '\t')
    };
    text.chars().filter(|c| !hides(c)).collect()
}

fn resource(entry: &Value, uri: &str) -> Result<ResourceDefinition, String> {
    let name: String = part(entry, "name")?;
    let mut definition = ResourceDefinition::new(part::<String>(entry, uri)?, name)
        .annotations(part::<Annotations>(entry, "annotations")?);
    if let Some(title) = part::<Option<String>>(entry, "title")? {
        definition = definition.title(shown(&title));
    }
    if let Some(description) = part::<Option<String>>(entry, "description")? {
        definition = definition.description(shown(&description));
    }
    if let Some(mime_type) = part::<Option<String>>(entry, "mimeType")? {
        definition = definition.mime_type(mime_type);
    }
    if let Some(size) = part::<Option<u64>>(entry, "size")? {
        definition = definition.size(size);
    }
    for icon in part::<Vec<Icon>>(entry, "icons")? {
        definition = definition.icon(icon);
    }
    for (key, value) in part::<Map<String, Value>>(entry, "_meta")? {
        definition = definition.meta(key, value);
    }
    Ok(definition)
}

fn prompt(
    upstream: &Arc<Upstream>,
    names: &Names<'_>,
    links: &Arc<Links>,
    entry: &Value,
    completes: bool,
) -> Result<UpstreamPrompt, String> {
    let name: String = part(entry, "name")?;
    if name.is_empty() {
        return Err("its name is missing".to_owned());
    }
    let mut definition = PromptDefinition::new(names.prompt(upstream, &name));
    if let Some(title) = part::<Option<String>>(entry, "title")? {
        definition = definition.title(shown(&title));
    }
    if let Some(description) = part::<Option<String>>(entry, "description")? {
        definition = definition.description(shown(&description));
    }
    for mut argument in part::<Vec<PromptArgument>>(entry, "arguments")? {
        for text in [&mut argument.title, &mut argument.description] {
            *text = text.as_deref().map(shown);
        }
        definition = definition.argument(argument);
    }
    for icon in part::<Vec<Icon>>(entry, "icons")? {
        definition = definition.icon(icon);
    }
    for (key, value) in part::<Map<String, Value>>(entry, "_meta")? {
        definition = definition.meta(key, value);
    }
    Ok(UpstreamPrompt {
        upstream: Arc::clone(upstream),
        definition,
        name,
        links: Arc::clone(links),
        completes,
    })
}

struct UpstreamTool {
    upstream: Arc<Upstream>,
    definition: Definition,
    /// Name at the upstream, as JSON text.
    name: Arc<str>,
    operation: Arc<Operation>,
    repeatable: bool,
    /// Arguments to mirror in headers, for upstreams that require it.
    mirrored: Arc<[HeaderParameter]>,
    links: Arc<Links>,
    /// True if the upstream runs the tool only as a task.
    task_only: Arc<AtomicBool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Called<'a> {
    #[serde(default, borrow)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
    #[serde(rename = "_meta")]
    meta: Option<Map<String, Value>>,
}

impl Tool for UpstreamTool {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The upstream validates arguments itself. Its results are passed on unchanged, too.
    fn validates_arguments(&self) -> bool {
        true
    }

    fn checks_output(&self) -> bool {
        true
    }

    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        Some(UpstreamIdentity {
            name: &self.upstream.name,
            identity: self.upstream.identity,
        })
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        let (upstream, name, repeatable) = (
            Arc::clone(&self.upstream),
            Arc::clone(&self.name),
            self.repeatable,
        );
        let mirrored = Arc::clone(&self.mirrored);
        let operation = Arc::clone(&self.operation);
        let links = Arc::clone(&self.links);
        let task_only = Arc::clone(&self.task_only);
        Box::pin(async move {
            if let Some(logins) = &upstream.user_logins {
                Box::pin(logins.ensure(&context)).await?;
            }
            let arguments = arguments.to_json();
            let mut params = Params::new().shared("name", name);
            if !mirrored.is_empty() {
                params = params.mirror_all(&mirrored, &serde_json::from_str(&arguments)?);
            }
            let watched = upstream.watch(&operation, &context, None);
            let params = watched.placed(params.checked("arguments", arguments));
            let relay = Arc::clone(&watched.relay);
            let line = match upstream.line(&context.principal) {
                Ok(line) => line,
                Err(error) => {
                    watched.ends(&RequestOutcome::Failed(&error), || None);
                    return Err(tool_error(&upstream.name, error));
                }
            };
            let answered = if task_only.load(Ordering::Relaxed) {
                Box::pin(tasks::call(&upstream, &line, &params, &relay, repeatable)).await
            } else {
                let answered = upstream
                    .request(&line, operation.method, &params, Some(relay), repeatable)
                    .await;
                match answered {
                    Err(error) if tasks::is_task_only(&error) => {
                        task_only.store(true, Ordering::Relaxed);
                        let relay = &watched.relay;
                        Box::pin(tasks::call(&upstream, &line, &params, relay, repeatable)).await
                    }
                    answered => answered,
                }
            };
            let result = match answered {
                Ok(result) => result,
                Err(error) => {
                    watched.ends(&RequestOutcome::Failed(&error), || line.revision());
                    return Err(tool_error(&upstream.name, error));
                }
            };
            let called: Result<Called<'_>, _> = serde_json::from_str(result.get());
            let end = match &called {
                Ok(called) if called.is_error => RequestOutcome::ToolError,
                Ok(_) => RequestOutcome::Well,
                Err(_) => RequestOutcome::Misread,
            };
            watched.ends(&end, || line.revision());
            let output = |called| output(called, &links, &context.principal);
            called.map(output).map_err(|error| {
                ToolError::new(format!(
                    "the response of the upstream server {} is not a tool result",
                    upstream.name
                ))
                .caused_by(error)
            })
        })
    }
}

fn output(called: Called<'_>, links: &Links, principal: &Principal) -> Output {
    let mut output = match called.content[..] {
        [only] if let Some(text) = plain_text(only) => Output::text(text),
        _ => {
            let blocks = called.content.iter().map(|block| {
                let mut block = block_of(block);
                links.rename(&mut block, principal);
                block
            });
            Output::blocks(blocks.collect::<Vec<_>>())
        }
    };
    output.structured = called.structured_content.map(|json| json.get().to_owned());
    output.is_error = called.is_error;
    output.meta = called.meta.map(|mut meta| {
        meta.remove("io.modelcontextprotocol/serverInfo");
        // Tasks of the upstream are not visible here.
        meta.remove("io.modelcontextprotocol/related-task");
        links.rename_view(&mut meta);
        meta
    });
    output.meta = output.meta.filter(|meta| !meta.is_empty());
    output
}

/// Converts a content block. Blocks of an unknown type are kept as they are.
fn block_of(block: &RawValue) -> Content {
    match plain_text(block) {
        Some(text) => Content::text(text),
        None => serde_json::from_str(block.get()).unwrap_or_else(|_| Content::text(block.get())),
    }
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

/// Converts an error to a message for the model. The upstream's address and the reason for a failure only go to the
/// log.
fn tool_error(upstream: &str, error: CallError) -> ToolError {
    match error {
        CallError::Client(ClientError::Rpc(error)) => {
            ToolError::new(format!("{upstream}: {}", error.message))
        }
        other => ToolError::new(message_of(upstream, &other)).caused_by(other),
    }
}

fn message_of(upstream: &str, error: &CallError) -> String {
    match error {
        CallError::BulkheadError(turned) => turned.to_string(),
        CallError::Client(error) | CallError::Apart(error) if error.concerns_caller() => {
            format!("the upstream server {upstream}: {error}")
        }
        CallError::TooManyCallers => format!("the upstream server {upstream}: {error}"),
        CallError::Apart(ClientError::Timeout(limit))
        | CallError::Client(ClientError::Timeout(limit)) => {
            format!(
                "the upstream server {upstream} did not respond within {} s",
                limit.as_secs()
            )
        }
        CallError::Apart(
            ClientError::Credentials(_)
            | ClientError::Unauthorized { .. }
            | ClientError::InsufficientScope { .. },
        )
        | CallError::Client(
            ClientError::Credentials(_)
            | ClientError::Unauthorized { .. }
            | ClientError::InsufficientScope { .. },
        ) => {
            format!(
                "the upstream server {upstream} rejects the configured credentials; the operator of this server must correct them"
            )
        }
        CallError::Client(ClientError::Status { status, .. }) => {
            format!("the upstream server {upstream} responded with HTTP status {status}")
        }
        CallError::Client(ClientError::Protocol(_) | ClientError::TooLarge { .. }) => {
            format!(
                "the response of the upstream server {upstream} is not readable or too large; the call may have been executed"
            )
        }
        CallError::Client(error) if error.may_have_happened() => {
            format!(
                "the upstream server {upstream} disconnected before it responded; the call may have been executed"
            )
        }
        CallError::Apart(_) | CallError::Client(_) => {
            format!("the upstream server {upstream} cannot be reached; try again later")
        }
    }
}

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

/// Reads the resource with the local URI `here`, which is `there` at the upstream.
async fn read(
    upstream: Arc<Upstream>,
    links: Arc<Links>,
    context: Arc<CallContext>,
    here: String,
    there: String,
) -> Result<Vec<ResourceContents>, ResourceError> {
    #[derive(Deserialize)]
    struct Contents {
        contents: Vec<ResourceContents>,
    }
    let params = Params::new().with("uri", &*there);
    let operation = Operation::new("resources/read");
    let answered = upstream
        .read(&operation, params, &context, Some(&there))
        .await;
    let result = answered.map_err(|error| match error {
        // Error codes of versions up to 2025-11-25, and of the next one.
        CallError::Client(ClientError::Rpc(error)) if matches!(error.code, -32002 | -32602) => {
            ResourceError::not_found()
        }
        CallError::Client(ClientError::Rpc(error)) => {
            ResourceError::new(format!("{}: {}", upstream.name, error.message))
        }
        other => ResourceError::new(message_of(&upstream.name, &other)).caused_by(other),
    })?;
    let mut contents: Contents = serde_json::from_str(result.get()).map_err(|error| {
        ResourceError::new(format!(
            "the response of the upstream server {} is not a resource",
            upstream.name
        ))
        .caused_by(error)
    })?;
    for part in contents
        .contents
        .iter_mut()
        .filter(|part| !part.uri.is_empty())
    {
        if part.uri == there {
            part.uri.clone_from(&here);
        } else if let Some(uri) = links.here(&part.uri, Mention::Contents, &context.principal) {
            part.uri = uri;
        }
    }
    Ok(contents.contents)
}

impl Resource for UpstreamResource {
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, context: Arc<CallContext>) -> ReadFuture {
        Box::pin(read(
            Arc::clone(&self.upstream),
            Arc::clone(&self.links),
            context,
            self.definition.uri().to_owned(),
            (*self.own).to_owned(),
        ))
    }
}

impl ResourceTemplate for UpstreamTemplate {
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, context: Arc<CallContext>, uri: &str, _: Parameters) -> ReadFuture {
        let Some(there) = self.prefix.there(uri) else {
            return Box::pin(std::future::ready(Err(ResourceError::not_found())));
        };
        Box::pin(read(
            Arc::clone(&self.upstream),
            Arc::clone(&self.links),
            context,
            uri.to_owned(),
            there.into_owned(),
        ))
    }

    fn completes(&self, _: &str) -> bool {
        self.completes
    }

    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> VariableFuture {
        let reference = json!({"type": "ref/resource", "uri": self.own});
        let upstream = Arc::clone(&self.upstream);
        Box::pin(async move {
            complete(&upstream, &context, reference, request)
                .await
                .map_err(|error| ResourceError::new(message_of(&upstream.name, &error)))
        })
    }
}

struct UpstreamPrompt {
    upstream: Arc<Upstream>,
    definition: PromptDefinition,
    name: String,
    links: Arc<Links>,
    completes: bool,
}

impl Prompt for UpstreamPrompt {
    fn definition(&self) -> &PromptDefinition {
        &self.definition
    }

    fn get(&self, context: Arc<CallContext>, arguments: Parameters) -> PromptFuture {
        #[derive(Deserialize)]
        struct Got {
            description: Option<String>,
            messages: Vec<PromptMessage>,
        }
        let (upstream, name) = (Arc::clone(&self.upstream), self.name.clone());
        let links = Arc::clone(&self.links);
        Box::pin(async move {
            let arguments: Map<String, Value> = arguments
                .iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            let params = Params::new()
                .with("name", &*name)
                .with("arguments", arguments);
            let operation = Operation::prompt(&name);
            let answered = upstream.read(&operation, params, &context, None).await;
            let result = answered.map_err(|error| match error {
                CallError::Client(ClientError::Rpc(error)) if error.code == -32602 => {
                    PromptError::invalid(error.message)
                }
                CallError::Client(ClientError::Rpc(error)) => {
                    PromptError::new(format!("{}: {}", upstream.name, error.message))
                }
                other => PromptError::new(message_of(&upstream.name, &other)).caused_by(other),
            })?;
            let got: Got = serde_json::from_str(result.get()).map_err(|error| {
                PromptError::new(format!(
                    "the response of the upstream server {} is not a prompt",
                    upstream.name
                ))
                .caused_by(error)
            })?;
            let mut messages = got.messages;
            for message in &mut messages {
                links.rename(&mut message.content, &context.principal);
            }
            let mut output = PromptOutput::new(messages);
            if let Some(description) = got.description {
                output = output.with_description(description);
            }
            Ok(output)
        })
    }

    fn completes(&self, _: &str) -> bool {
        self.completes
    }

    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> ArgumentFuture {
        let reference = json!({"type": "ref/prompt", "name": self.name});
        let upstream = Arc::clone(&self.upstream);
        Box::pin(async move {
            complete(&upstream, &context, reference, request)
                .await
                .map_err(|error| PromptError::new(message_of(&upstream.name, &error)))
        })
    }
}

async fn complete(
    upstream: &Upstream,
    context: &Arc<CallContext>,
    reference: Value,
    request: CompletionRequest,
) -> Result<Completions, CallError> {
    #[derive(Deserialize)]
    struct Completed {
        completion: Completion,
    }
    #[derive(Deserialize)]
    struct Completion {
        #[serde(default)]
        values: Vec<String>,
        total: Option<usize>,
    }
    let mut params = Params::new().with("ref", reference).with(
        "argument",
        json!({"name": request.argument, "value": request.value}),
    );
    if !request.arguments.is_empty() {
        let known: Map<String, Value> = request
            .arguments
            .iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        params = params.with("context", json!({ "arguments": known }));
    }
    let operation = Operation::new("completion/complete");
    let result = upstream.read(&operation, params, context, None).await?;
    let completed: Completed = serde_json::from_str(result.get()).map_err(|error| {
        ClientError::Protocol(format!("invalid response to completion/complete: {error}"))
    })?;
    let completions = Completions::new(completed.completion.values);
    Ok(match completed.completion.total {
        Some(total) => completions.of_total(total),
        None => completions,
    })
}
