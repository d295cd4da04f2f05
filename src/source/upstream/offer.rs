//! An upstream's tools, resources and prompts as ones of our own.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::connection::{CallError, Upstream};
use super::names::{Found, Names, UriPrefix};
use super::watched::{End, Operation};
use crate::catalog::schema::header_parameters;
use crate::catalog::{
    AnyResource, ArgumentFuture, Arguments, CallContext, CallFuture, CompletionRequest,
    Completions, Definition, HeaderParameter, Offered, Output, Parameters, Prompt,
    PromptDefinition, PromptError, PromptFuture, PromptOutput, ReadFuture, Refused, Resource,
    ResourceDefinition, ResourceError, ResourceTemplate, Tool, ToolError, VariableFuture, located,
};
use crate::client::{ClientError, Params};
use crate::protocol::{
    Annotations, Content, Icon, PromptArgument, PromptMessage, ResourceContents, ToolAnnotations,
};

/// How much later than an upstream's own limit the server's is, so that the error says which of them it was.
const GRACE: Duration = Duration::from_secs(5);

/// Adds what one upstream offers.
pub(super) fn add(found: &Found, names: &mut Names<'_>, all: &mut Offered) {
    let Found { upstream, listing } = found;
    let mut refused = Vec::new();
    let mut refuse = |kind: &str, entry: &Value, problem: String| {
        let name = entry["name"]
            .as_str()
            .or(entry["uri"].as_str())
            .unwrap_or("without a name");
        let place = format!("upstreams.{}, {kind} {name:?}", upstream.name);
        refused.push(Refused::new(&upstream.name, place, problem));
    };
    for entry in &listing.tools {
        let Some(name) = entry["name"].as_str() else {
            refuse("tool", entry, "it has no name".to_owned());
            continue;
        };
        if !upstream.config.chooses(name) {
            continue;
        }
        if listing
            .quarantined
            .iter()
            .any(|quarantined| quarantined == name)
        {
            refuse(
                "tool",
                entry,
                "it is described otherwise than before (on_change is quarantine)".to_owned(),
            );
            continue;
        }
        match tool(upstream, names, entry) {
            Ok(tool) => all.tools.push(Arc::new(tool)),
            Err(problem) => refuse("tool", entry, problem),
        }
    }
    for entry in &listing.resources {
        match resource(entry, "uri") {
            Ok(mut definition) => {
                let prefix = names.uri(upstream, definition.uri());
                definition.uri = prefix.here(&definition.uri);
                let resource = UpstreamResource {
                    upstream: Arc::clone(upstream),
                    definition,
                    prefix,
                };
                all.resources.push(AnyResource::Fixed(Arc::new(resource)));
            }
            Err(problem) => refuse("resource", entry, problem),
        }
    }
    for entry in &listing.templates {
        match resource(entry, "uriTemplate") {
            Ok(mut definition) => {
                let own = definition.uri.clone();
                let prefix = names.uri(upstream, &own);
                definition.uri = prefix.here(&own);
                let template = UpstreamTemplate {
                    upstream: Arc::clone(upstream),
                    definition,
                    own,
                    prefix,
                    completes: listing.completes,
                };
                all.resources
                    .push(AnyResource::Template(Arc::new(template)));
            }
            Err(problem) => refuse("resource template", entry, problem),
        }
    }
    for entry in &listing.prompts {
        match prompt(upstream, names, entry, listing.completes) {
            Ok(prompt) => all.prompts.push(Arc::new(prompt)),
            Err(problem) => refuse("prompt", entry, problem),
        }
    }
    all.refused.extend(refused);
}

fn part<T: Default + DeserializeOwned>(entry: &Value, member: &str) -> Result<T, String> {
    match entry.get(member) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => {
            located::read(value).map_err(|misfit| format!("its {member}: {}", misfit.cause))
        }
    }
}

fn tool(
    upstream: &Arc<Upstream>,
    names: &Names<'_>,
    entry: &Value,
) -> Result<UpstreamTool, String> {
    let name: String = part(entry, "name")?;
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let mut definition = Definition::new(names.tool(upstream, &name))
        .annotations(part::<ToolAnnotations>(entry, "annotations")?)
        .timeout(upstream.timeout() + GRACE);
    if let Some(schema) = entry.get("inputSchema") {
        definition = definition.input_schema(schema.clone());
    }
    if let Some(schema) = entry.get("outputSchema") {
        definition = definition.output_schema(schema.clone());
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
    for (key, value) in part::<Map<String, Value>>(entry, "_meta")? {
        definition = definition.meta(key, value);
    }
    // Where they make no sense, the catalog refuses the tool.
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
    })
}

/// What strangers wrote, without characters that hide or reorder text.
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
    entry: &Value,
    completes: bool,
) -> Result<UpstreamPrompt, String> {
    let name: String = part(entry, "name")?;
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let mut definition = PromptDefinition::new(names.prompt(upstream, &name));
    if let Some(title) = part::<Option<String>>(entry, "title")? {
        definition = definition.title(shown(&title));
    }
    if let Some(description) = part::<Option<String>>(entry, "description")? {
        definition = definition.description(shown(&description));
    }
    for argument in part::<Vec<PromptArgument>>(entry, "arguments")? {
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
        completes,
    })
}

struct UpstreamTool {
    upstream: Arc<Upstream>,
    definition: Definition,
    /// What the upstream calls it, as JSON text.
    name: Arc<str>,
    operation: Arc<Operation>,
    repeatable: bool,
    /// Arguments that headers repeat, for upstreams that want that.
    mirrored: Arc<[HeaderParameter]>,
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

    /// The upstream does, and knows best. Its results are passed on as they are, too.
    fn checks_arguments(&self) -> bool {
        true
    }

    fn checks_output(&self) -> bool {
        true
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        let (upstream, name, repeatable) = (
            Arc::clone(&self.upstream),
            Arc::clone(&self.name),
            self.repeatable,
        );
        let mirrored = Arc::clone(&self.mirrored);
        let operation = Arc::clone(&self.operation);
        Box::pin(async move {
            let arguments = arguments.to_json();
            let mut params = Params::new().shared("name", name);
            if !mirrored.is_empty() {
                params = with_mirrored(params, &mirrored, &arguments)?;
            }
            let watched = upstream.watch(&operation, &context, None);
            let params = watched.placed(params.checked("arguments", arguments));
            let relay = Arc::clone(&watched.relay);
            let answered = upstream
                .request(operation.method, &params, Some(relay), repeatable)
                .await;
            let result = match answered {
                Ok(result) => result,
                Err(error) => {
                    watched.ends(&End::Failed(&error), || upstream.revision());
                    return Err(tool_error(&upstream.name, error));
                }
            };
            let called: Result<Called<'_>, _> = serde_json::from_str(result.get());
            let end = match &called {
                Ok(called) if called.is_error => End::ToolError,
                Ok(_) => End::Well,
                Err(_) => End::Misread,
            };
            watched.ends(&end, || upstream.revision());
            called.map(output).map_err(|error| {
                ToolError::new(format!(
                    "the upstream server {} answered what is no result",
                    upstream.name
                ))
                .caused_by(error)
            })
        })
    }
}

/// Repeats arguments in headers as a tool's schema asks for it. What is not there is not repeated (MH-11).
fn with_mirrored(
    mut params: Params,
    mirrored: &[HeaderParameter],
    arguments: &str,
) -> Result<Params, ToolError> {
    let arguments: Value = serde_json::from_str(arguments)?;
    for parameter in mirrored {
        let mut found = Some(&arguments);
        for step in &parameter.path {
            found = found.and_then(|found| found.get(step));
        }
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => continue,
        };
        params = params.mirror(parameter.header.clone(), text);
    }
    Ok(params)
}

fn output(called: Called<'_>) -> Output {
    let mut output = match called.content[..] {
        [only] if let Some(text) = plain_text(only) => Output::text(text),
        _ => {
            let blocks = called.content.iter().map(|block| block_of(block));
            Output::blocks(blocks.collect::<Vec<_>>())
        }
    };
    output.structured = called.structured_content.map(|json| json.get().to_owned());
    output.is_error = called.is_error;
    output.meta = called.meta.map(|mut meta| {
        meta.remove("io.modelcontextprotocol/serverInfo");
        meta
    });
    output.meta = output.meta.filter(|meta| !meta.is_empty());
    output
}

/// A block of content; of a kind that is not known, as it is written.
fn block_of(block: &RawValue) -> Content {
    match plain_text(block) {
        Some(text) => Content::text(text),
        None => serde_json::from_str(block.get()).unwrap_or_else(|_| Content::text(block.get())),
    }
}

/// The text of a block that is text and nothing else, as most are.
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

/// In words for the model. Where the upstream is, and why it cannot be reached, is for the log.
fn tool_error(upstream: &str, error: CallError) -> ToolError {
    match error {
        CallError::Client(ClientError::Rpc(error)) => {
            ToolError::new(format!("{upstream}: {}", error.message))
        }
        other => ToolError::new(told(upstream, &other)).caused_by(other),
    }
}

fn told(upstream: &str, error: &CallError) -> String {
    match error {
        CallError::Turned(turned) => turned.to_string(),
        CallError::Apart(ClientError::Timeout(limit))
        | CallError::Client(ClientError::Timeout(limit)) => {
            format!(
                "the upstream server {upstream} did not answer within {} s",
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
                "the upstream server {upstream} does not accept the credentials that there are for it; whoever runs this \
                 server has to see to that"
            )
        }
        CallError::Client(ClientError::Status { status, .. }) => {
            format!("the upstream server {upstream} answered with the HTTP status {status}")
        }
        CallError::Client(ClientError::Protocol(_)) => {
            format!(
                "the upstream server {upstream} answered what cannot be read, or more than may be; it may have done what it was \
                 asked for"
            )
        }
        CallError::Client(error) if error.may_have_happened() => {
            format!(
                "the upstream server {upstream} went away before it answered; it may have done what it was asked for"
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
    prefix: UriPrefix,
}

struct UpstreamTemplate {
    upstream: Arc<Upstream>,
    definition: ResourceDefinition,
    /// The template as the upstream has it.
    own: String,
    prefix: UriPrefix,
    completes: bool,
}

/// Reads what has a URI here.
async fn read(
    upstream: Arc<Upstream>,
    prefix: UriPrefix,
    context: Arc<CallContext>,
    uri: String,
) -> Result<Vec<ResourceContents>, ResourceError> {
    #[derive(Deserialize)]
    struct Contents {
        contents: Vec<ResourceContents>,
    }
    let uri = prefix.there(&uri).ok_or_else(ResourceError::not_found)?;
    let params = Params::new().with("uri", uri);
    let operation = Operation::new("resources/read");
    let answered = upstream.read(&operation, params, &context, Some(uri)).await;
    let result = answered.map_err(|error| match error {
        // Of revisions up to 2025-11-25, and of the one after.
        CallError::Client(ClientError::Rpc(error)) if matches!(error.code, -32002 | -32602) => {
            ResourceError::not_found()
        }
        CallError::Client(ClientError::Rpc(error)) => {
            ResourceError::new(format!("{}: {}", upstream.name, error.message))
        }
        other => ResourceError::new(told(&upstream.name, &other)).caused_by(other),
    })?;
    let mut contents: Contents = serde_json::from_str(result.get()).map_err(|error| {
        ResourceError::new(format!(
            "the upstream server {} answered what is no contents",
            upstream.name
        ))
        .caused_by(error)
    })?;
    for part in contents
        .contents
        .iter_mut()
        .filter(|part| !part.uri.is_empty())
    {
        part.uri = prefix.here(&part.uri);
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
            self.prefix.clone(),
            context,
            self.definition.uri().to_owned(),
        ))
    }
}

impl ResourceTemplate for UpstreamTemplate {
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, context: Arc<CallContext>, uri: &str, _: Parameters) -> ReadFuture {
        let prefix = self.prefix.clone();
        Box::pin(read(
            Arc::clone(&self.upstream),
            prefix,
            context,
            uri.to_owned(),
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
                .map_err(|error| ResourceError::new(told(&upstream.name, &error)))
        })
    }
}

struct UpstreamPrompt {
    upstream: Arc<Upstream>,
    definition: PromptDefinition,
    name: String,
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
                other => PromptError::new(told(&upstream.name, &other)).caused_by(other),
            })?;
            let got: Got = serde_json::from_str(result.get()).map_err(|error| {
                PromptError::new(format!(
                    "the upstream server {} answered what is no prompt",
                    upstream.name
                ))
                .caused_by(error)
            })?;
            let mut output = PromptOutput::new(got.messages);
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
                .map_err(|error| PromptError::new(told(&upstream.name, &error)))
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
        ClientError::Protocol(format!("its answer to completion/complete: {error}"))
    })?;
    let completions = Completions::new(completed.completion.values);
    Ok(match completed.completion.total {
        Some(total) => completions.of_total(total),
        None => completions,
    })
}
