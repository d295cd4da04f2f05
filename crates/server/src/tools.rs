//! Handler of `tools/call`.

use std::sync::Arc;
use std::task::Context;

use super::errors::invalid_params;
use super::execute::Call;
use super::parts::Server;
use super::reply::{HandlerError, HandlerResult, MaybeReady, RejectReason, Reply};
use super::request_context::{Caller, RequestContext};
use super::running_call;
use super::running_call::{CallOptions, CallOutcome, OnDisconnect};
use super::snapshot::Snapshot;
use super::target::{check_named, check_scopes, missing_name};
use super::tasks::TaskCall;
use super::text::truncated;
use super::tool_response::{ResultOwner, ResultWriter};
use super::tool_search::{ResolvedCall, resolve_call};
use super::{audit_record, context_pool, stateless, tasks};
use crate::auth::ItemKind;
use crate::catalog::{Arguments, CallContext, CatalogTool, InvalidArguments, TaskSupport};
use crate::limit::ToolLimits;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method};

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
    let support = prepared.entry.tool.definition().task;
    if support != TaskSupport::Forbidden || request.params.rare.is_some() {
        match call_as_task(server, &snapshot, caller, request, prepared) {
            Ok(ordinary) => prepared = ordinary,
            Err(response) => return Ok(response),
        }
    }
    let PreparedCall {
        entry,
        arguments,
        context,
        options,
        limits,
    } = prepared;
    let writer = ResultWriter {
        snapshot: &snapshot,
        entry,
        id: request.id,
        revision: caller.revision,
        parses_text: caller.parses_text,
        server,
        share: Some(context.share),
    };
    let call = Call {
        context: &context,
        options,
        limits: limits.as_deref(),
        start: |context| entry.tool.call(context, arguments),
    };
    let response = server.calls.execute(cx, call, writer);
    context_pool::put(context, request_context.headers);
    Ok(response)
}

/// Runs a call as a task, if the client or the tool asks for that.
///
/// # Errors
///
/// The response, if the call became a task or failed.
#[cold]
fn call_as_task<'g>(
    server: &Arc<Server>,
    snapshot: &Arc<Snapshot>,
    caller: Caller<'_>,
    request: &Request<'_>,
    started: PreparedCall<'g>,
) -> Result<PreparedCall<'g>, MaybeReady> {
    let definition = started.entry.tool.definition();
    let (support, context) = (definition.task, &started.context);
    let options = tasks::task_options(
        server,
        caller,
        support,
        context,
        request,
        started.options.timeout,
    )
    .map_err(MaybeReady::Ready)?;
    let Some(options) = options else {
        return Ok(started);
    };
    let conclusion = ResultOwner {
        name: definition.name().to_owned(),
        id: request.id.to_owned(),
        revision: caller.revision,
        parses_text: caller.parses_text,
        server: Arc::clone(server),
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
    let audited =
        audit_record::audit_task(server, caller, &conclusion.name, definition.deferred_task)
            .map_err(|_| MaybeReady::Ready(audit_record::audit_unavailable(request.id)))?;
    let start = |context| entry.tool.call(context, arguments);
    let Some(call) = running_call::prepare(start, &context) else {
        return Err(conclusion.writer(|writer| writer.conclude(CallOutcome::Panicked)));
    };
    let task = TaskCall {
        audited,
        call,
        tool: conclusion.name.clone(),
        scopes: definition.scopes.clone(),
        later: definition.deferred_task,
        stream_after: on_its_own.stream_after,
        runs_on: on_its_own.on_disconnect == OnDisconnect::RunOn,
        context,
        options,
    };
    let turn = server
        .limits
        .turn(caller.principal, caller.address, limits.as_deref());
    Err(tasks::begin_task(
        server,
        request.id,
        task,
        turn,
        move |id, outcome| {
            let conclusion = ResultOwner {
                id: id.to_owned(),
                ..conclusion
            };
            conclusion.writer(|writer| writer.conclude(outcome))
        },
    ))
}

/// Validates a call, up to the point where the tool can run.
#[inline]
fn prepare_call<'g>(
    server: &'g Arc<Server>,
    snapshot: &'g Arc<Snapshot>,
    request_context: RequestContext<'_>,
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
    let refused = |invalid: InvalidArguments| {
        let writer = ResultWriter {
            snapshot,
            entry,
            id: request.id,
            revision: caller.revision,
            parses_text: caller.parses_text,
            server,
            share: None,
        };
        writer.failure(&invalid.into())
    };
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
    let method = Method::ToolsCall.as_str();
    let replay = server.replay_session(caller, method, request_context.body.bytes, request)?;
    let options = server
        .calls
        .options(caller, entry.tool.definition().timeout);
    let timeout = options.timeout;
    Ok(PreparedCall {
        entry,
        arguments,
        options,
        context: caller.context(request_context.headers, request, log_level, replay, timeout),
        limits,
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
struct PreparedCall<'g> {
    entry: &'g CatalogTool,
    arguments: Arguments,
    options: CallOptions,
    context: Arc<CallContext>,
    /// Limits of the tool; `None` if it has none.
    limits: Option<Arc<ToolLimits>>,
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
