//! Tools, resources, templates and prompts that an upstream serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value, json};

use super::super::call_error::CallError;
use super::super::connection::Upstream;
use super::super::instrumented::{Operation, RequestOutcome};
use super::super::links::{Links, Mention};
use super::super::passed_error::{is_not_found, rpc_error};
use super::super::tasks;
use super::required_page::RequiredPage;
use super::{
    Called, UpstreamPrompt, UpstreamResource, UpstreamTemplate, block_of, plain_text, prompt_error,
    resource_error, tool_error,
};
use crate::auth::Principal;
use crate::catalog::{
    ArgumentFuture, Arguments, CallContext, CallFuture, CompletionRequest, Completions, Definition,
    HeaderParameter, Output, Parameters, Prompt, PromptDefinition, PromptError, PromptFuture,
    PromptOutput, ReadFuture, Resource, ResourceDefinition, ResourceError, ResourceTemplate, Tool,
    ToolError, UpstreamIdentity, VariableFuture,
};
use crate::client::{ClientError, Listener, METHOD_NOT_FOUND, Params};
use crate::net::FetchError;
use crate::protocol::scan::has_long_number;
use crate::protocol::{PromptMessage, ResourceContents, Role, whole};

pub(super) struct UpstreamTool {
    pub(super) definition: Definition,
    pub(super) own: Arc<OwnTool>,
}

/// A tool as its upstream has it.
pub(super) struct OwnTool {
    pub(super) upstream: Arc<Upstream>,
    /// Name at the upstream, as JSON text.
    pub(super) name: Arc<str>,
    pub(super) operation: Operation,
    pub(super) repeatable: bool,
    /// Arguments to mirror in headers, for upstreams that require it.
    pub(super) mirrored: Vec<HeaderParameter>,
    pub(super) links: Arc<Links>,
    /// True if the upstream runs the tool only as a task.
    pub(super) task_only: AtomicBool,
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
            name: &self.own.upstream.name,
            identity: self.own.upstream.identity,
        })
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        let own = Arc::clone(&self.own);
        Box::pin(async move {
            let OwnTool {
                upstream,
                operation,
                repeatable,
                ..
            } = &*own;
            if let Some(logins) = &upstream.user_logins {
                Box::pin(logins.ensure(&context)).await?;
            }
            let arguments = arguments.to_json();
            let mut params = Params::new().shared("name", Arc::clone(&own.name));
            if !own.mirrored.is_empty() {
                params = params.mirror_all(&own.mirrored, &serde_json::from_str(&arguments)?);
            }
            let watched = upstream.watch(operation, &context, None);
            let params = watched.placed(params.checked("arguments", arguments));
            let line = match upstream.line(&context.principal) {
                Ok(line) => line,
                Err(error) => {
                    watched.ends(&RequestOutcome::Failed(&error), || None);
                    return Err(tool_error(&upstream.name, error, &context));
                }
            };
            let ask = async || {
                let relay = &watched.relay;
                if !own.task_only.load(Ordering::Relaxed) {
                    let listener = Some(Arc::clone(relay) as Arc<dyn Listener>);
                    let answered = upstream
                        .request(&line, operation.method, &params, listener, *repeatable)
                        .await;
                    match answered {
                        Err(error) if tasks::is_task_only(&error) => {
                            own.task_only.store(true, Ordering::Relaxed);
                        }
                        answered => return answered,
                    }
                }
                Box::pin(tasks::call(upstream, &line, &params, relay, *repeatable)).await
            };
            let mut answered = ask().await;
            if let Some(page) = answered.as_ref().err().and_then(RequiredPage::of) {
                if let Err(error) = Box::pin(page.visit(&context, upstream)).await {
                    let failed = answered.as_ref().err().map(RequestOutcome::Failed);
                    watched.ends(&failed.unwrap_or(RequestOutcome::Well), || line.revision());
                    return Err(error);
                }
                answered = Box::pin(ask()).await;
            }
            let result = match answered {
                Ok(result) => result,
                Err(error) => {
                    watched.ends(&RequestOutcome::Failed(&error), || line.revision());
                    return Err(tool_error(&upstream.name, error, &context));
                }
            };
            let called: Result<Called<'_>, _> = serde_json::from_str(result.get());
            let end = match &called {
                Ok(called) if called.is_error == Some(true) => RequestOutcome::ToolError,
                Ok(_) => RequestOutcome::Well,
                Err(_) => RequestOutcome::Misread,
            };
            watched.ends(&end, || line.revision());
            let output = |called| output(called, &own.links, &context.principal);
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
    let content = called.content.unwrap_or_default();
    let mut output = match content[..] {
        [only] if let Some(text) = plain_text(only) => Output::text(text),
        _ => {
            let blocks = content.iter().map(|block| {
                let mut block = block_of(block);
                links.rename(&mut block, principal);
                block
            });
            Output::blocks(blocks.collect::<Vec<_>>())
        }
    };
    output.structured = called.structured_content.map(|json| json.get().to_owned());
    output.is_error = called.is_error == Some(true);
    let own = called.meta.and_then(|meta| {
        let mut own = own_meta(serde_json::from_str(meta.get()).ok()?)?;
        links.rename_view(&mut own);
        Some((own, meta.get()))
    });
    if let Some((own, text)) = own {
        match has_long_number(text.as_bytes()).then(|| exact_meta(&own, text)) {
            Some(Some(exact)) => output.exact_meta = Some(exact),
            _ => output.meta = Some(Box::new(own)),
        }
    }
    output
}

/// Returns `_meta` as JSON text with all digits of its numbers. `own` has its members as they are passed on, `text` as they
/// were received.
fn exact_meta(own: &Map<String, Value>, text: &str) -> Option<Box<str>> {
    let received: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let members = own.iter().map(|(name, value)| {
        let received = received.get(name).map(|received| received.get());
        let is_same =
            |text: &&str| serde_json::from_str::<Value>(text).is_ok_and(|same| same == *value);
        let value = received
            .filter(is_same)
            .map_or_else(|| value.to_string(), str::to_owned);
        format!("{}:{value}", Value::from(name.as_str()))
    });
    Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")).into())
}

/// Returns the `_meta` of a result without the members about the connection to the upstream; `None` if nothing is left.
fn own_meta(mut meta: Map<String, Value>) -> Option<Map<String, Value>> {
    meta.remove("io.modelcontextprotocol/serverInfo");
    // Tasks of the upstream are not visible here.
    meta.remove("io.modelcontextprotocol/related-task");
    (!meta.is_empty()).then_some(meta)
}

pub(super) fn message_of(upstream: &str, error: &CallError) -> String {
    let (error, was_sent) = match error {
        CallError::BulkheadError(turned) => return turned.to_string(),
        CallError::TooManyCallers => return format!("the upstream server {upstream}: {error}"),
        CallError::Apart(error) => (error, false),
        CallError::Client(error) => (error, true),
    };
    match error {
        _ if error.concerns_caller() => format!("the upstream server {upstream}: {error}"),
        ClientError::Rpc(error) => format!("{upstream}: {}", error.message),
        ClientError::Timeout(limit) => format!(
            "the upstream server {upstream} did not respond within {} s",
            limit.as_secs()
        ),
        ClientError::Credentials(_)
        | ClientError::Unauthorized { .. }
        | ClientError::InsufficientScope { .. } => format!(
            "the upstream server {upstream} rejects the configured credentials; the operator of this server must correct them"
        ),
        _ if !was_sent || !error.may_have_happened() => {
            format!("the upstream server {upstream} cannot be reached; try again later")
        }
        ClientError::Status { status, .. } => {
            format!("the upstream server {upstream} responded with HTTP status {status}")
        }
        ClientError::Protocol(_)
        | ClientError::TooLarge { .. }
        | ClientError::Http(FetchError::TooLarge { .. } | FetchError::Encoding { .. }) => format!(
            "the response of the upstream server {upstream} is not readable or too large; the call may have been executed"
        ),
        ClientError::Http(FetchError::Memory { .. }) => format!(
            "there is no memory for the response of the upstream server {upstream} at the moment; the call may have been executed"
        ),
        _ => format!(
            "the upstream server {upstream} disconnected before it responded; the call may have been executed"
        ),
    }
}

/// Reads the resource with the local URI `here`, which is `there` at the upstream.
pub(super) async fn read(
    upstream: Arc<Upstream>,
    links: Arc<Links>,
    context: Arc<CallContext>,
    here: String,
    there: String,
) -> Result<Vec<ResourceContents>, ResourceError> {
    #[derive(Deserialize)]
    struct Contents {
        contents: Vec<ResourceContents>,
        #[serde(rename = "_meta")]
        meta: Option<Map<String, Value>>,
    }
    let params = Params::new().with("uri", &*there);
    let operation = Operation::new("resources/read");
    let answered = upstream
        .read(&operation, params, &context, Some(&there))
        .await;
    let result = answered.map_err(|error| match rpc_error(&error) {
        Some(error) if is_not_found(error) => ResourceError::not_found(),
        _ => resource_error(&upstream.name, error, &context),
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
    if let Some(meta) = contents.meta.and_then(own_meta) {
        let _ = context.read_meta.set(Box::new(meta));
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
            let completed = complete(&upstream, &context, reference, request).await;
            completed.map_err(|error| resource_error(&upstream.name, error, &context))
        })
    }
}

impl Prompt for UpstreamPrompt {
    fn definition(&self) -> &PromptDefinition {
        &self.definition
    }

    fn get(&self, context: Arc<CallContext>, arguments: Parameters) -> PromptFuture {
        #[derive(Deserialize)]
        struct Got<'a> {
            description: Option<String>,
            #[serde(borrow)]
            messages: Vec<Message<'a>>,
            #[serde(rename = "_meta")]
            meta: Option<Map<String, Value>>,
        }
        #[derive(Deserialize)]
        struct Message<'a> {
            role: Role,
            #[serde(borrow)]
            content: &'a RawValue,
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
            let result = answered.map_err(|error| prompt_error(&upstream.name, error, &context))?;
            let got: Got<'_> = serde_json::from_str(result.get()).map_err(|error| {
                PromptError::new(format!(
                    "the response of the upstream server {} is not a prompt",
                    upstream.name
                ))
                .caused_by(error)
            })?;
            let messages = got.messages.into_iter().map(|message| {
                let mut content = block_of(message.content);
                links.rename(&mut content, &context.principal);
                PromptMessage {
                    role: message.role,
                    content,
                }
            });
            let mut output = PromptOutput::new(messages.collect::<Vec<_>>());
            output.meta = got.meta.and_then(own_meta);
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
            let completed = complete(&upstream, &context, reference, request).await;
            completed.map_err(|error| prompt_error(&upstream.name, error, &context))
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
    #[serde(rename_all = "camelCase")]
    struct Completion {
        #[serde(default)]
        values: Vec<String>,
        total: Option<Number>,
        has_more: Option<bool>,
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
    let result = match upstream.read(&operation, params, context, None).await {
        // Servers of 2024-11-05 do not declare whether they complete.
        Err(CallError::Client(ClientError::Rpc(error))) if error.code == METHOD_NOT_FOUND => {
            return Ok(Completions::new(Vec::<String>::new()));
        }
        result => result?,
    };
    let completed: Completed = serde_json::from_str(result.get()).map_err(|error| {
        ClientError::Protocol(format!("invalid response to completion/complete: {error}"))
    })?;
    let Completion {
        values,
        total,
        has_more,
    } = completed.completion;
    let mut completions = Completions::new(values);
    let total = total.and_then(|total| whole(&total.to_string()));
    completions.total = total.and_then(|total| total.try_into().ok());
    completions.has_more = has_more == Some(true);
    Ok(completions)
}
