//! Dispatch: selects the lifecycle's checks and the handler of a method.

use std::sync::Arc;
use std::task::Context;

use super::audit_record::audit_unavailable;
use super::errors::method_not_found;
use super::parts::Server;
use super::reply::{HandlerError, HandlerResult, MaybeReady, Reply};
use super::request_context::RequestContext;
use super::source_startup::wait_for_source;
use super::streams::{change_subscription, listen};
use super::{
    completion, custom, lists, logging, prompts, resources, skills, stateless, tasks, tools,
};
use crate::auth::ItemKind;
use crate::protocol::{ErrorCode, Method};

/// Handles a request within a session.
#[inline]
pub(super) fn session_request(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    request_context: RequestContext<'_>,
) -> MaybeReady {
    let (request, revision) = (request_context.request, request_context.caller.revision);
    match Method::parse(&request.method).filter(|method| method.is_in(revision)) {
        Some(method) => dispatch(server, cx, method, request_context),
        None => custom::call(server, cx, request_context)
            .unwrap_or_else(|| MaybeReady::Ready(method_not_found(request))),
    }
}

/// Handles a request of the stateless lifecycle.
#[inline]
pub(super) fn stateless_request(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    request_context: RequestContext<'_>,
) -> MaybeReady {
    let request = request_context.request;
    match stateless::check_envelope(request, request_context.mcp()) {
        // The log level of `tools/call` is checked after the tool's name.
        Ok(method) if method != Method::ToolsCall => match stateless::log_level(request) {
            Ok(_) => dispatch(server, cx, method, request_context),
            Err(refusal) => MaybeReady::Ready(refusal),
        },
        Ok(method) => dispatch(server, cx, method, request_context),
        Err(refusal) if refusal.is_unknown_method() => {
            custom::call(server, cx, request_context).unwrap_or(MaybeReady::Ready(refusal))
        }
        Err(refusal) => MaybeReady::Ready(refusal),
    }
}

/// Calls the handler of a method; both lifecycles end here.
#[inline]
pub(super) fn dispatch(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    method: Method,
    mut request_context: RequestContext<'_>,
) -> MaybeReady {
    let (caller, request) = (request_context.caller, request_context.request);
    caller.names(server.observability.operations.of(method));
    if caller.is_barred() {
        return MaybeReady::Ready(audit_unavailable(request.id));
    }
    let result = match method {
        Method::ToolsCall => tools::call(server, cx, request_context.reborrow()),
        Method::ToolsList => ready(lists::list(server, ItemKind::Tools, caller, request)),
        Method::Ping => ready(Reply::constant(request.id, br#","result":{}}"#)),
        Method::Discover => {
            let snapshot = server.snapshots.load();
            ready(Reply::constant(request.id, &snapshot.discovered))
        }
        Method::SetLogLevel => ready(logging::set_level(server, caller, request)),
        // Each `initialize` begins a session elsewhere.
        Method::Initialize => ready(Reply::fail(
            request.id,
            ErrorCode::InvalidRequest,
            "initialize is not accepted here",
        )),
        other => optional_method(server, cx, other, request_context.reborrow()),
    };
    match result {
        Ok(response) => response,
        Err(HandlerError::Rejected(reply)) => MaybeReady::Ready(reply),
        Err(HandlerError::UnknownItem(unknown, snapshot)) => {
            wait_for_source(server, &snapshot, method, request_context, unknown)
        }
    }
}

/// Calls the handler of a method that depends on optional capabilities.
fn optional_method(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    method: Method,
    request_context: RequestContext<'_>,
) -> HandlerResult {
    let (caller, request) = (request_context.caller, request_context.request);
    if method == Method::Listen {
        let over_http = request_context.headers.is_some();
        return Ok(listen(server, caller, over_http, request)?);
    }
    let snapshot = server.snapshots.load();
    // Tasks outlive their tools: a reload can remove the last one that has any.
    let is_offered = snapshot.offers(method) || method.is_about_tasks() && server.tasks.has_begun();
    if !is_offered {
        let unknown = if caller.revision.has_sessions() {
            method_not_found(request)
        } else {
            stateless::unknown_method(request)
        };
        return Err(HandlerError::UnknownItem(unknown, Arc::clone(&snapshot)));
    }
    drop(snapshot);
    match method {
        Method::ResourcesList => ready(lists::list(server, ItemKind::Resources, caller, request)),
        Method::TemplatesList => ready(lists::list(server, ItemKind::Templates, caller, request)),
        Method::ResourcesRead => resources::read(server, cx, request_context),
        Method::ResourcesSubscribe => Ok(change_subscription(server, caller, request, true)?),
        Method::ResourcesUnsubscribe => Ok(change_subscription(server, caller, request, false)?),
        Method::PromptsList => ready(lists::list(server, ItemKind::Prompts, caller, request)),
        Method::PromptsGet => prompts::get(server, cx, request_context),
        Method::Complete => Ok(completion::complete(server, cx, request_context)?),
        Method::TasksList => Ok(tasks::list_tasks(server, caller, request)?),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
            Ok(tasks::handle(server, cx, method, request_context)?)
        }
        Method::SkillsList => ready(skills::list(server, caller, request)),
        Method::SkillsGet => ready(skills::get(server, caller, request)),
        Method::DirectoryRead => ready(skills::read_directory(server, caller, request)),
        Method::Initialize
        | Method::Ping
        | Method::Discover
        | Method::SetLogLevel
        | Method::Listen
        | Method::ToolsList
        | Method::ToolsCall => unreachable!("dispatched before"),
    }
}

#[inline]
fn ready(reply: Reply) -> HandlerResult {
    Ok(MaybeReady::Ready(reply))
}
