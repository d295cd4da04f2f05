//! Handler of `tools/call`, and its responses.

use std::sync::Arc;
use std::task::Context;

use super::config::ValidationErrors;
use super::errors::{
    causes, check_scopes, forbidden, internal_error, invalid_params, protocol_error, timed_out,
};
use super::execute::{Call, PermitsNeeded, Respond};
use super::parts::Server;
use super::replay::{missing_capability, url_elicitation_required};
use super::reply::{HandlerError, HandlerResult, MaybeReady, RejectReason, Reply};
use super::request_context::{Caller, RequestContext};
use super::results::{add_object, error_result, large_success, success};
use super::running_call::{CallFailure, CallOptions, CallOutcome};
use super::snapshot::Snapshot;
use super::stateless::{check_named, missing_name};
use super::text::truncated;
use super::tool_search::{ResolvedCall, resolve_call};
use super::{context_pool, stateless, tasks};
use crate::auth::ItemKind;
use crate::catalog::{
    Arguments, CallContext, CatalogTool, InvalidArguments, Output, OutputProblem, TaskSupport,
    ToolError, ToolErrorKind,
};
use crate::limit::{LARGE_BYTES, ToolLimits};
use crate::net::ShareKey;
use crate::protocol::message;
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};

/// Handles `tools/call`. In the stateless lifecycle the headers must agree with the body.
#[inline]
pub(super) fn call(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    mut request_context: RequestContext<'_>,
) -> HandlerResult {
    let (caller, request) = (request_context.caller, request_context.request);
    let snapshot = server.snapshots.load();
    let mut prepared = prepare_call(server, &snapshot, request_context.reborrow())?;
    let support = prepared.writer.entry.tool.definition().task;
    if support != TaskSupport::Forbidden || request.params.rare.is_some() {
        match tasks::call_as_task(server, caller, request, prepared) {
            Ok(ordinary) => prepared = ordinary,
            Err(response) => return Ok(response),
        }
    }
    let PreparedCall {
        mut writer,
        arguments,
        context,
        options,
        limits,
    } = prepared;
    writer.share = Some(context.share);
    let entry = writer.entry;
    let call = Call {
        context: &context,
        options,
        permits: limits
            .as_deref()
            .map_or(PermitsNeeded::Common, PermitsNeeded::OfTool),
        start: |context| entry.tool.call(context, arguments),
    };
    let response = server.calls.execute(cx, call, writer);
    context_pool::put(context, request_context.headers);
    Ok(response)
}

/// Validates a call, up to the point where the tool can run.
#[inline]
fn prepare_call<'g>(
    server: &'g Arc<Server>,
    snapshot: &'g Arc<Snapshot>,
    request_context: RequestContext<'g>,
) -> Result<PreparedCall<'g>, HandlerError> {
    let RequestContext {
        caller, request, ..
    } = request_context;
    let Some(name) = request.params.name.and_then(message::string) else {
        let problem = "name is required, a string: which tool to call";
        return Err(missing_name(&request_context, problem).into());
    };
    let log_level = check_named(&server.sessions, &request_context, &name)?;
    let mut resolved = ResolvedCall {
        name,
        arguments: request.params.arguments,
        is_direct: true,
    };
    if let Some(search) = &snapshot.search {
        resolved = resolve_call(
            snapshot,
            search,
            caller,
            request.id,
            resolved.name,
            resolved.arguments,
        )?;
    }
    let name = resolved.name;
    let entry = permitted_tool(snapshot, caller, request.id, &name)?;
    let writer = ResultWriter {
        snapshot,
        entry,
        id: request.id,
        revision: caller.revision,
        parses_text: caller.parses_text,
        server,
        share: None,
    };
    let refused = |invalid: InvalidArguments| writer.failure(&invalid.into());
    // Parsers disagree on which of two members with one name counts, so the call is rejected before any of them
    // reads it.
    if let Some(path) = request.params.repeated_argument(resolved.arguments) {
        return Err(refused(InvalidArguments::repeated(&path)).into());
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
        Some(object) if message::is_object(object) => request_context.body.arguments(object),
        Some(_) => return Err(invalid_params(request.id, "arguments is an object").into()),
    };
    let arguments = entry.check(arguments).map_err(refused)?;
    let limits = server
        .limits
        .call(&name)
        .map_err(|refused| Reply::limited(Some(request.id), refused))?;
    if entry.is_large() {
        // The tool must not run if its result could not be buffered.
        server
            .limits
            .check_response(caller.share())
            .map_err(|refused| Reply::limited(Some(request.id), refused))?;
    }
    let (method, timeout) = (Method::ToolsCall, entry.tool.definition().timeout);
    let (context, options) = server.call_context(method, request_context, log_level, timeout)?;
    Ok(PreparedCall {
        arguments,
        options,
        context,
        limits,
        writer,
    })
}

/// Finds the tool, if the caller may see it and has the scopes that it needs.
#[inline]
fn permitted_tool<'g>(
    snapshot: &'g Arc<Snapshot>,
    caller: Caller<'_>,
    id: &str,
    name: &str,
) -> Result<&'g CatalogTool, HandlerError> {
    let Some(entry) = snapshot.catalog.tool(name) else {
        return Err(unknown_tool(snapshot, caller, id, name));
    };
    // A hidden tool must look like one that does not exist.
    let tools = &snapshot.catalog.tools;
    if !snapshot.sees_key(caller.principal, ItemKind::Tools, tools, name) {
        return Err(unknown_tool(snapshot, caller, id, name));
    }
    caller.names(entry.operation);
    let scopes = &entry.tool.definition().scopes;
    if !scopes.is_empty() {
        check_scopes(caller.principal, id, scopes)?;
    }
    if let Some(required) = snapshot.required_scopes(caller.principal, ItemKind::Tools, tools, name)
    {
        let all: Vec<_> = scopes.iter().chain(&*required).cloned().collect();
        check_scopes(caller.principal, id, &all)?;
    }
    Ok(entry)
}

/// A validated call, ready to run.
pub(super) struct PreparedCall<'g> {
    pub(super) arguments: Arguments,
    pub(super) options: CallOptions,
    pub(super) context: Arc<CallContext>,
    /// Limits of the tool; `None` if it has none.
    pub(super) limits: Option<Arc<ToolLimits>>,
    /// Writer of the result, which is not sent yet.
    pub(super) writer: ResultWriter<'g>,
}

fn unknown_tool(
    snapshot: &Arc<Snapshot>,
    caller: Caller<'_>,
    id: &str,
    name: &str,
) -> HandlerError {
    let mut message = format!("Unknown tool: {}", truncated(name));
    if let Some(nearest) = snapshot.catalog.nearest(name, |place| {
        snapshot.sees(caller.principal, ItemKind::Tools, place)
    }) {
        message.push_str("; did you mean ");
        message.push_str(nearest);
        message.push('?');
    }
    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
    let reply = Reply::refused(RejectReason::Tool, Some(id), &error);
    HandlerError::UnknownItem(reply, Arc::clone(snapshot))
}

/// Outcome of a call of a tool.
pub(super) type ToolOutcome = CallOutcome<Result<Output, ToolError>>;

/// Writes the result of a call for the caller's revision (TOOL-10).
pub(super) struct ResultWriter<'a> {
    snapshot: &'a Arc<Snapshot>,
    pub(super) entry: &'a CatalogTool,
    id: &'a str,
    revision: Revision,
    parses_text: bool,
    server: &'a Arc<Server>,
    /// Share that the response memory is charged to; `None` if the result is not sent.
    share: Option<ShareKey>,
}

impl Respond<Result<Output, ToolError>> for ResultWriter<'_> {
    type Owned = ResultOwner;

    #[inline]
    fn respond(self, outcome: ToolOutcome) -> MaybeReady {
        MaybeReady::Ready(match outcome {
            Ok(Ok(output)) => match self.entry.check_output(&output) {
                Ok(()) => self.success(output),
                Err(problem) => self.bad_output(&problem),
            },
            Ok(Err(error)) => self.failure(&error),
            Err(CallFailure::TimedOut(limit)) => self
                .error_result(&timed_out(("tool", self.name()), limit))
                .with_reason(RejectReason::TimedOut),
            Err(failure) => {
                let (server, what) = (self.server, ("tool", self.name()));
                return server.call_failed(self.id, what, self.snapshot, failure);
            }
        })
    }

    fn into_owned(self) -> ResultOwner {
        ResultOwner {
            name: self.name().to_owned(),
            id: self.id.to_owned(),
            revision: self.revision,
            parses_text: self.parses_text,
            server: Arc::clone(self.server),
            snapshot: Arc::clone(self.snapshot),
            share: self.share,
        }
    }
}

/// Owned data of a call, for a response that is written after the request is gone.
pub(super) struct ResultOwner {
    snapshot: Arc<Snapshot>,
    pub(super) name: String,
    pub(super) id: String,
    revision: Revision,
    parses_text: bool,
    server: Arc<Server>,
    share: Option<ShareKey>,
}

impl Respond<Result<Output, ToolError>> for ResultOwner {
    type Owned = Self;

    fn respond(self, outcome: ToolOutcome) -> MaybeReady {
        let Some(entry) = self.snapshot.catalog.tool(&self.name) else {
            return MaybeReady::Ready(internal_error(&self.id));
        };
        let writer = ResultWriter {
            snapshot: &self.snapshot,
            entry,
            id: &self.id,
            revision: self.revision,
            parses_text: self.parses_text,
            server: &self.server,
            share: self.share,
        };
        writer.respond(outcome)
    }

    fn into_owned(self) -> Self {
        self
    }
}

/// Replaces the message of an error that was not written for the model.
const MASKED: &str = "the tool failed; the reason is in the server's log";

impl ResultWriter<'_> {
    fn name(&self) -> &str {
        self.entry.tool.definition().name()
    }

    /// Response to a call whose result does not match the output schema.
    #[cold]
    fn bad_output(&self, problem: &OutputProblem) -> Reply {
        match problem {
            OutputProblem::NotFinite(path) => {
                let place = match path.is_empty() {
                    true => String::new(),
                    false => format!(" at `{path}`"),
                };
                let message = format!(
                    "the result has a number{place} that is NaN or infinite, which JSON cannot represent"
                );
                tracing::warn!(
                    name = self.name(),
                    "{message}; return an Option<f64> where there may be none"
                );
                self.error_result(&message)
            }
            OutputProblem::Misfit(problem) => {
                tracing::error!(name = self.name(), %problem, "a result does not fit the tool's output schema");
                internal_error(self.id)
            }
        }
    }

    fn success(&self, mut output: Output) -> Reply {
        if self.parses_text {
            add_object(&mut output);
        }
        let weight = output.weight();
        if LARGE_BYTES <= weight
            && let Some(share) = self.share
        {
            return self.large_success(output, weight, share);
        }
        let reply = success(self.snapshot, self.revision, self.id, &output);
        match self.share {
            Some(share) => reply.counted(&self.server.limits, share, self.id),
            None => reply,
        }
    }

    /// Reserves the memory of a large result before it is serialized, so that it is counted once.
    #[cold]
    fn large_success(&self, output: Output, weight: usize, share: ShareKey) -> Reply {
        self.entry.has_large_results();
        match self.server.limits.reserve_response(share, weight) {
            Err(refused) => {
                tracing::warn!(
                    name = self.name(),
                    bytes = weight,
                    setting = refused.limit.setting(),
                    "a result was dropped: too many large responses wait to be read"
                );
                Reply::limited(Some(self.id), refused)
            }
            Ok(reservation) => {
                large_success(self.snapshot, self.revision, self.id, output, reservation)
            }
        }
    }

    /// Response to a failed call: a result for the model, or a protocol error, depending on the kind and the
    /// revision.
    #[cold]
    fn failure(&self, error: &ToolError) -> Reply {
        let name = self.name();
        match error.kind() {
            ToolErrorKind::Internal => {
                tracing::error!(%name, error = error.message(), source = causes(error.source()), "a tool failed with an internal error");
                internal_error(self.id)
            }
            ToolErrorKind::InvalidArguments => {
                let message = format!("Invalid arguments for tool {name}: {}", error.message());
                if !self.shows_invalid_arguments() {
                    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
                    return Reply::refused(RejectReason::Arguments, Some(self.id), &error);
                }
                self.error_result(&message)
                    .with_reason(RejectReason::Arguments)
            }
            ToolErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                missing_capability(self.id, ability)
            }
            ToolErrorKind::UrlElicitationRequired => {
                url_elicitation_required(self.id, error.source())
            }
            ToolErrorKind::Forbidden => {
                tracing::debug!(%name, error = error.message(), "a call was forbidden by its tool");
                forbidden(self.id, error.message(), error.source())
            }
            ToolErrorKind::Protocol => {
                tracing::debug!(%name, source = causes(error.source()), "a call failed at another server");
                match error.protocol_error() {
                    Some(object)
                        if object.code == ErrorCode::InvalidParams
                            && self.shows_invalid_arguments() =>
                    {
                        self.error_result(&object.message)
                    }
                    object => protocol_error(self.id, object),
                }
            }
            ToolErrorKind::Failed if self.server.config.mask_errors && error.is_foreign() => {
                tracing::error!(%name, error = error.message(), source = causes(error.source()), "a call failed; its caller gets no details");
                self.error_result(MASKED)
            }
            // `Failed`, `MissingCapability`, and kinds that are added later.
            _ => {
                if error.source().is_some() {
                    tracing::debug!(%name, source = causes(error.source()), "a call failed");
                }
                self.error_result(error.message())
            }
        }
    }

    /// Returns true if the model is to correct invalid arguments, so that their error is a result.
    fn shows_invalid_arguments(&self) -> bool {
        match self.server.config.validation_errors {
            ValidationErrors::Auto => self.revision.shows_invalid_arguments_to_the_model(),
            ValidationErrors::Protocol => false,
            ValidationErrors::Tool => true,
        }
    }

    fn error_result(&self, message: &str) -> Reply {
        error_result(self.snapshot, self.revision, self.id, message)
    }
}
