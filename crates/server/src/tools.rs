//! Handler of `tools/call`.

use std::sync::Arc;
use std::task::Context;

use super::call_stream::CallStream;
use super::content::{TEXT_BLOCK_BYTES, push_block, push_plain_text_block, push_text_block};
use super::dispatch::missing_name;
use super::execute::into_stream;
use super::inflight::{self, CallOptions, CallOutcome, CallProgress, OnDisconnect};
use super::reply::{Refusal, Reply, begin, end_len, finish};
use super::rounds::{missing_capability, visit_required};
use super::search::ResolvedCall;
use super::snapshot::Snapshot;
use super::tasks::TaskCall;
use super::{
    Caller, Headers, MaybeReady, RequestContext, Server, ValidationErrors, stateless, truncated,
};
use crate::auth::Shelf;
use crate::catalog::{
    Arguments, CallContext, CatalogTool, InvalidArguments, MissingScopes, Output, OutputContent,
    TaskSupport, ToolError, ToolErrorKind,
};
use crate::limit::{LARGE_BYTES, ToolLimits};
use crate::net::ShareKey;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision, is_plain};
use crate::telemetry::Verdict;

impl Server {
    /// Handles `tools/call`. In the stateless era the headers must agree with the body.
    #[inline]
    pub(super) fn call_tool(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        request_context: RequestContext<'_>,
    ) -> MaybeReady {
        let RequestContext {
            caller,
            mut headers,
            body,
            request,
        } = request_context;
        let snapshot = self.snapshot.load();
        let lent = RequestContext {
            caller,
            headers: headers.as_mut().map(Headers::reborrow),
            body,
            request,
        };
        match self.prepare_call(&snapshot, lent) {
            Err(refusal) if refusal.is_unknown_tool() => {
                let request_context = RequestContext {
                    caller,
                    headers,
                    body,
                    request,
                };
                self.wait_for_source(&snapshot, Method::ToolsCall, request_context, refusal)
            }
            Err(refusal) => MaybeReady::Ready(refusal),
            Ok(mut started) => {
                let support = started.entry.tool.definition().task;
                if support != TaskSupport::Forbidden || request.params.rare.is_some() {
                    match self.call_as_task(&snapshot, caller, request, started) {
                        Ok(ordinary) => started = ordinary,
                        Err(handled) => return handled,
                    }
                }
                let PreparedCall {
                    entry,
                    arguments,
                    mut context,
                    options,
                    limits,
                } = started;
                let writer = ResultWriter {
                    snapshot: &snapshot,
                    entry,
                    id: request.id,
                    revision: caller.revision,
                    server: self,
                    share: Some(context.share),
                };
                let start = |context| entry.tool.call(context, arguments);
                let limits = limits.as_deref();
                let has_room = self
                    .limits
                    .has_room(caller.principal, caller.address, limits);
                let begun = if has_room {
                    inflight::start(cx, start, &context, options)
                } else {
                    inflight::start_unpolled(start, &context)
                };
                if let Ok(CallProgress::Done(outcome)) = begun {
                    let handled = writer.conclude(outcome);
                    return_headers(&mut context, headers);
                    return handled;
                }
                let turn = self.limits.turn(caller.principal, caller.address, limits);
                let conclusion = ResultOwner {
                    name: writer.name().to_owned(),
                    id: request.id.to_owned(),
                    revision: caller.revision,
                    server: Arc::clone(self),
                    snapshot: Arc::clone(&snapshot),
                    share: Some(context.share),
                };
                let streams = self.resumable_streams(options);
                MaybeReady::Pending(Box::pin(async move {
                    let step = match begun {
                        Ok(step) => step,
                        Err(call) => {
                            let held = if has_room {
                                turn.take()
                            } else {
                                match turn.wait().await {
                                    Ok(held) => held,
                                    Err(refused) => {
                                        return Reply::limited(Some(&conclusion.id), refused);
                                    }
                                }
                            };
                            let inflight = &conclusion.server.inflight;
                            inflight::drive(call, &context, options, inflight, held).await
                        }
                    };
                    match step {
                        CallProgress::Done(outcome) => {
                            let handled = conclusion.writer(|writer| writer.conclude(outcome));
                            handled.reply().await
                        }
                        CallProgress::Streams(running) => {
                            let hold = conclusion.server.inflight.stream();
                            let conclude =
                                move |outcome| conclusion.writer(|writer| writer.conclude(outcome));
                            let stream = CallStream::new(running, context, conclude, hold);
                            into_stream(stream, streams, options)
                        }
                    }
                }))
            }
        }
    }

    /// Runs a call as a task, if the client or the tool asks for that.
    ///
    /// # Errors
    ///
    /// The response, if the call became a task or failed.
    #[cold]
    fn call_as_task<'g>(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        caller: Caller<'_>,
        request: &Request<'_>,
        started: PreparedCall<'g>,
    ) -> Result<PreparedCall<'g>, MaybeReady> {
        let definition = started.entry.tool.definition();
        let (support, context) = (definition.task, &started.context);
        let options = self
            .task_options(caller, support, context, request, started.options.timeout)
            .map_err(MaybeReady::Ready)?;
        let Some(options) = options else {
            return Ok(started);
        };
        let conclusion = ResultOwner {
            name: definition.name().to_owned(),
            id: request.id.to_owned(),
            revision: caller.revision,
            server: Arc::clone(self),
            snapshot: Arc::clone(snapshot),
            // The result of a task is stored, not sent.
            share: None,
        };
        let PreparedCall {
            entry,
            arguments,
            mut context,
            options: on_its_own,
            limits,
            ..
        } = started;
        if !definition.deferred_task
            && let Some(context) = Arc::get_mut(&mut context)
        {
            context.timeout = Some(options.lifetime());
        }
        let start = |context| entry.tool.call(context, arguments);
        let Some(call) = inflight::prepare(start, &context) else {
            return Err(conclusion.writer(|writer| writer.conclude(CallOutcome::Panicked)));
        };
        let task = TaskCall {
            audited: self.audit_task(caller, &conclusion.name, definition.deferred_task),
            call,
            tool: conclusion.name.clone(),
            later: definition.deferred_task,
            stream_after: on_its_own.stream_after,
            runs_on: on_its_own.on_disconnect == OnDisconnect::RunOn,
            context,
            options,
        };
        let turn = self
            .limits
            .turn(caller.principal, caller.address, limits.as_deref());
        Err(self.begin_task(request.id, task, turn, move |id, outcome| {
            let conclusion = ResultOwner {
                id: id.to_owned(),
                ..conclusion
            };
            conclusion.writer(|writer| writer.conclude(outcome))
        }))
    }

    /// Validates a call, up to the point where the tool can run.
    #[inline]
    fn prepare_call<'g>(
        self: &'g Arc<Self>,
        snapshot: &'g Snapshot,
        request_context: RequestContext<'_>,
    ) -> Result<PreparedCall<'g>, Reply> {
        let RequestContext {
            caller, request, ..
        } = request_context;
        let Some(name) = request.params.name.and_then(message::string) else {
            let problem = "name is required, a string: which tool to call";
            return Err(missing_name(&request_context, problem));
        };
        let log_level = self.check_named(&request_context, &name)?;
        let mut resolved = ResolvedCall {
            name,
            arguments: request.params.arguments,
            is_direct: true,
        };
        if let Some(search) = &snapshot.search {
            resolved = snapshot.resolve_call(
                search,
                caller,
                request.id,
                resolved.name,
                resolved.arguments,
            )?;
        }
        let name = resolved.name;
        let Some(entry) = snapshot.catalog.tool(&name) else {
            return Err(unknown_tool(snapshot, caller, request.id, &name));
        };
        // A hidden tool must look like one that does not exist.
        let tools = &snapshot.catalog.tools;
        if !snapshot.sees_key(caller.principal, Shelf::Tools, tools, &name) {
            return Err(unknown_tool(snapshot, caller, request.id, &name));
        }
        caller.names(entry.operation);
        let scopes = &entry.tool.definition().scopes;
        if !scopes.is_empty() {
            check_scopes(caller, request.id, scopes)?;
        }
        if let Some(required) = snapshot.required_scopes(caller.principal, &name) {
            let all: Vec<_> = scopes.iter().chain(&*required).cloned().collect();
            check_scopes(caller, request.id, &all)?;
        }
        let refused = |invalid: InvalidArguments| {
            let writer = ResultWriter {
                snapshot,
                entry,
                id: request.id,
                revision: caller.revision,
                server: self,
                share: None,
            };
            writer.failure(&invalid.into())
        };
        // Parsers disagree on which of two members with one name counts, so the call is rejected before any of them
        // reads it.
        if let Some(path) = request.params.repeated_argument(resolved.arguments) {
            return Err(refused(InvalidArguments::repeated(&path)));
        }
        if !caller.revision.has_sessions()
            && resolved.is_direct
            && let Some(headers) = &request_context.headers
            && headers.mcp.is_some()
        {
            stateless::check_parameters(request.id, entry, &request.params, headers.all)?;
        }
        let arguments = match resolved.arguments {
            None => Arguments::none(),
            Some(object) if message::is_object(object) => {
                Arguments::from_checked(request_context.body.slice_ref(object.as_bytes()))
            }
            Some(_) => return Err(invalid_params(request.id, "arguments is an object")),
        };
        let arguments = entry.check(arguments).map_err(refused)?;
        let limits = self
            .limits
            .call(&name)
            .map_err(|refused| Reply::limited(Some(request.id), refused))?;
        if entry.is_large() {
            // The tool must not run if its result could not be buffered.
            self.limits
                .check_response(caller.share())
                .map_err(|refused| Reply::limited(Some(request.id), refused))?;
        }
        let asking = self.asking(caller, request_context.body, request)?;
        let options = self.options(caller, entry.tool.definition().timeout);
        let timeout = options.timeout;
        Ok(PreparedCall {
            entry,
            arguments,
            options,
            context: caller.context(request_context.headers, request, log_level, asking, timeout),
            limits,
        })
    }
}

/// Returns the headers to the request, unless the tool kept the context. The map keeps its capacity for the next
/// request.
#[inline]
fn return_headers(context: &mut Arc<CallContext>, headers: Option<Headers<'_>>) {
    if let Some(headers) = headers
        && let Some(context) = Arc::get_mut(context)
        && let Some(taken) = context.headers.take()
    {
        *headers.all = taken;
    }
}

/// AUTH-09: the error lists all scopes that the call needs.
fn check_scopes(caller: Caller<'_>, id: &str, needed: &[String]) -> Result<(), Reply> {
    if needed.iter().all(|scope| caller.principal.has_scope(scope)) {
        return Ok(());
    }
    Err(missing_scopes(id, &MissingScopes(needed.into())))
}

/// The response to a caller that lacks scopes.
fn missing_scopes(id: &str, missing: &MissingScopes) -> Reply {
    let error = ErrorObject::new(ErrorCode::Http(403), missing.to_string());
    let error = error.with_data(serde_json::json!({ "requiredScopes": missing.0 }));
    Reply::refused(Refusal::Scope(Arc::clone(&missing.0)), Some(id), &error)
}

/// The response to a caller that a tool, a resource or a prompt has rejected. `source` may name scopes.
#[cold]
pub(super) fn forbidden(
    id: &str,
    message: &str,
    source: Option<&(dyn std::error::Error + Send + Sync + 'static)>,
) -> Reply {
    match source.and_then(|source| source.downcast_ref()) {
        Some(missing) => missing_scopes(id, missing),
        None => Reply::error(
            id,
            &ErrorObject::new(ErrorCode::Http(403), message.to_owned()),
        ),
    }
}

/// A validated call, ready to run.
struct PreparedCall<'g> {
    entry: &'g CatalogTool,
    arguments: Arguments,
    options: CallOptions,
    context: Arc<CallContext>,
    /// Limits of the tool; `None` if it has none.
    limits: Option<Arc<ToolLimits>>,
}

/// Owned data of a call, for a response that is written after the request is gone.
struct ResultOwner {
    snapshot: Arc<Snapshot>,
    name: String,
    id: String,
    revision: Revision,
    server: Arc<Server>,
    share: Option<ShareKey>,
}

impl ResultOwner {
    fn writer(&self, write: impl FnOnce(ResultWriter<'_>) -> MaybeReady) -> MaybeReady {
        match self.snapshot.catalog.tool(&self.name) {
            Some(entry) => write(ResultWriter {
                snapshot: &self.snapshot,
                entry,
                id: &self.id,
                revision: self.revision,
                server: &self.server,
                share: self.share,
            }),
            None => MaybeReady::Ready(internal_error(&self.id)),
        }
    }
}

/// Writes the result of a call for the caller's revision (TOOL-10).
struct ResultWriter<'a> {
    snapshot: &'a Snapshot,
    entry: &'a CatalogTool,
    id: &'a str,
    revision: Revision,
    server: &'a Arc<Server>,
    /// Share that the response memory is charged to; `None` if the result is not sent.
    share: Option<ShareKey>,
}

/// Replaces the message of an error that was not written for the model.
const MASKED: &str = "the tool failed; the reason is in the server's log";

impl ResultWriter<'_> {
    #[inline]
    fn conclude(&self, outcome: CallOutcome<Result<Output, ToolError>>) -> MaybeReady {
        MaybeReady::Ready(match outcome {
            CallOutcome::Done(Ok(output)) => match self.entry.check_output(&output) {
                Ok(()) => self.success(&output),
                Err(problem) => {
                    tracing::error!(tool = self.name(), %problem, "a result does not fit the tool's output schema");
                    internal_error(self.id)
                }
            },
            CallOutcome::Done(Err(error)) => self.failure(&error),
            CallOutcome::TimedOut(limit) => {
                let message = format!("the tool did not answer within {} s", limit.as_secs_f64());
                tracing::warn!(
                    tool = self.name(),
                    limit_s = limit.as_secs_f64(),
                    "a call ran out of time"
                );
                self.error_result(&message).with_reason(Refusal::TimedOut)
            }
            CallOutcome::Panicked => {
                tracing::error!(
                    tool = self.name(),
                    "a tool panicked; its call failed, nothing else is affected"
                );
                internal_error(self.id)
            }
            CallOutcome::Cancelled => Reply::Cancelled,
            CallOutcome::Stopped => stopped(self.id),
            CallOutcome::Suspended(interrupted) => {
                return self
                    .server
                    .interrupted(self.id, self.name(), self.snapshot, *interrupted);
            }
        })
    }

    fn name(&self) -> &str {
        self.entry.tool.definition().name()
    }

    fn success(&self, output: &Output) -> Reply {
        let weight = output.weight();
        if LARGE_BYTES <= weight
            && let Some(share) = self.share
        {
            return self.large_success(output, weight, share);
        }
        let reply = success(self.snapshot, self.revision, self.id, output);
        match self.share {
            Some(share) => reply.counted(&self.server.limits, share, self.id),
            None => reply,
        }
    }

    /// Reserves the memory of a large result before it is serialized, so that it is counted once.
    #[cold]
    fn large_success(&self, output: &Output, weight: usize, share: ShareKey) -> Reply {
        self.entry.has_large_results();
        match self.server.limits.reserve_response(share, weight) {
            Err(refused) => {
                tracing::warn!(
                    tool = self.name(),
                    bytes = weight,
                    setting = refused.limit.setting(),
                    "a result was dropped: too many large responses wait to be read"
                );
                Reply::limited(Some(self.id), refused)
            }
            Ok(reservation) => {
                success(self.snapshot, self.revision, self.id, output).with_reservation(reservation)
            }
        }
    }

    /// Response to a failed call: a result for the model, or a protocol error, depending on the kind and the
    /// revision.
    #[cold]
    fn failure(&self, error: &ToolError) -> Reply {
        let tool = self.name();
        match error.kind() {
            ToolErrorKind::Internal => {
                tracing::error!(%tool, error = error.message(), source = error.source().map(tracing::field::display), "a tool is at fault");
                internal_error(self.id)
            }
            ToolErrorKind::InvalidArguments => {
                let message = format!("Invalid arguments for tool {tool}: {}", error.message());
                let to_model = match self.server.config.validation_errors {
                    ValidationErrors::Auto => self.revision.shows_invalid_arguments_to_the_model(),
                    ValidationErrors::Protocol => false,
                    ValidationErrors::Tool => true,
                };
                if !to_model {
                    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
                    return Reply::refused(Refusal::Arguments, Some(self.id), &error);
                }
                self.error_result(&message).with_reason(Refusal::Arguments)
            }
            ToolErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                missing_capability(self.id, ability)
            }
            ToolErrorKind::VisitRequired => visit_required(self.id, error.source()),
            ToolErrorKind::Forbidden => {
                tracing::debug!(%tool, error = error.message(), "a call was forbidden by its tool");
                forbidden(self.id, error.message(), error.source())
            }
            ToolErrorKind::Failed if self.server.config.mask_errors && error.is_foreign() => {
                tracing::error!(%tool, error = error.message(), "a call failed, and its caller is not told why");
                self.error_result(MASKED)
            }
            // `Failed`, `MissingCapability`, and kinds that are added later.
            _ => {
                if let Some(source) = error.source() {
                    tracing::debug!(%tool, %source, "a call failed");
                }
                self.error_result(error.message())
            }
        }
    }

    fn error_result(&self, message: &str) -> Reply {
        error_result(self.snapshot, self.revision, self.id, message)
    }
}

/// Response to a successful call.
///
/// Every result of a tool is written here: of calls, of tasks and of plain HTTP. Variants of results that a client
/// negotiates (SEP-3279, a draft) would be chosen here.
#[inline]
pub(super) fn success(snapshot: &Snapshot, revision: Revision, id: &str, output: &Output) -> Reply {
    let structured = output.structured.as_deref();
    let mut plain = false;
    let content_len = match &output.content {
        OutputContent::Text(text) => {
            plain = is_plain(text);
            // Most strings need few escapes. The buffer grows if one needs more.
            let escapes = if plain { 0 } else { 16 + text.len() / 16 };
            TEXT_BLOCK_BYTES + text.len() + escapes
        }
        OutputContent::Structured | OutputContent::Blocks(_) => 256,
    };
    // The exact size for a plain string: a full buffer is sent without a copy.
    let capacity = CONTENT.len()
        + content_len
        + structured.map_or(0, |s| 2 * s.len())
        + 1
        + is_error(output).len()
        + end_len(snapshot, revision, output.meta.as_ref());
    let mut out = begin(id, capacity);
    out.extend_from_slice(CONTENT);
    match &output.content {
        OutputContent::Text(text) if plain => push_plain_text_block(&mut out, text),
        OutputContent::Text(text) => push_text_block(&mut out, text),
        OutputContent::Structured => push_text_block(&mut out, structured.unwrap_or_default()),
        OutputContent::Blocks(blocks) => {
            for (position, block) in blocks.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                push_block(&mut out, block, revision);
            }
        }
    }
    out.push(b']');
    if let Some(json) = structured
        && revision.has_structured_results()
        && (json.starts_with('{') || revision.has_structured_values_of_any_kind())
    {
        out.extend_from_slice(br#","structuredContent":"#);
        out.extend_from_slice(json.as_bytes());
    }
    out.extend_from_slice(is_error(output));
    finish(out, snapshot, revision, output.meta.as_ref())
}

const CONTENT: &[u8] = br#","result":{"content":["#;

#[inline]
fn is_error(output: &Output) -> &'static [u8] {
    if output.is_error {
        br#","isError":true"#
    } else {
        br#","isError":false"#
    }
}

/// Response to a failed call whose error the model reads.
pub(super) fn error_result(
    snapshot: &Snapshot,
    revision: Revision,
    id: &str,
    message: &str,
) -> Reply {
    let mut out = begin(id, 128 + message.len() + snapshot.result_tail.len());
    out.extend_from_slice(CONTENT);
    push_text_block(&mut out, message);
    out.extend_from_slice(br#"],"isError":true"#);
    finish(out, snapshot, revision, None).with_verdict(Verdict::ToolError)
}

fn unknown_tool(snapshot: &Snapshot, caller: Caller<'_>, id: &str, name: &str) -> Reply {
    let mut message = format!("Unknown tool: {}", truncated(name));
    if let Some(nearest) = snapshot.catalog.nearest(name, |place| {
        snapshot.sees(caller.principal, Shelf::Tools, place)
    }) {
        message.push_str("; did you mean ");
        message.push_str(nearest);
        message.push('?');
    }
    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
    Reply::refused(Refusal::Tool, Some(id), &error)
}

pub(super) fn invalid_params(id: &str, problem: &str) -> Reply {
    let message = format!("Invalid params: {}", truncated(problem));
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

/// Error for a call that was aborted because the server stops.
pub(super) fn stopped(id: &str) -> Reply {
    let message = "The server is stopping and ended the call; send it again";
    Reply::error(id, &ErrorObject::new(ErrorCode::Http(503), message))
}

pub(super) fn internal_error(id: &str) -> Reply {
    Reply::error(id, &ErrorObject::new(ErrorCode::Internal, "Internal error"))
}
