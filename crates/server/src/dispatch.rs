//! Selects the handler of a method, after the lifecycle is known.

use std::sync::Arc;
use std::task::Context;

use super::reply::{JsonResponse, Refusal, Reply};
use super::tools::invalid_params;
use super::{MaybeReady, RequestContext, Server, audit_record, stateless, truncated};
use crate::catalog::LogLevel;
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, ErrorObject, Method};

impl Server {
    /// Handles a request within a session.
    #[inline]
    pub(super) fn session_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        request_context: RequestContext<'_>,
    ) -> MaybeReady {
        let (request, revision) = (request_context.request, request_context.caller.revision);
        match Method::parse(&request.method).filter(|method| method.is_in(revision)) {
            Some(method) => self.dispatch(cx, method, request_context),
            None => self
                .custom_method(cx, request_context)
                .unwrap_or_else(|| MaybeReady::Ready(method_not_found(request))),
        }
    }

    /// Handles a request of the stateless era.
    #[inline]
    pub(super) fn stateless_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        request_context: RequestContext<'_>,
    ) -> MaybeReady {
        let request = request_context.request;
        match stateless::check_envelope(request, request_context.mcp()) {
            // The log level of `tools/call` is checked after the tool's name.
            Ok(method) if method != Method::ToolsCall => match stateless::log_level(request) {
                Ok(_) => self.dispatch(cx, method, request_context),
                Err(refusal) => MaybeReady::Ready(refusal),
            },
            Ok(method) => self.dispatch(cx, method, request_context),
            Err(refusal) if is_unknown_method(&refusal) => self
                .custom_method(cx, request_context)
                .unwrap_or(MaybeReady::Ready(refusal)),
            Err(refusal) => MaybeReady::Ready(refusal),
        }
    }

    /// Calls the handler of a method; both lifecycles end here.
    #[inline]
    pub(super) fn dispatch(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        method: Method,
        request_context: RequestContext<'_>,
    ) -> MaybeReady {
        let RequestContext {
            caller, request, ..
        } = request_context;
        caller.names(self.operations.of(method));
        if caller.is_barred() {
            return MaybeReady::Ready(audit_record::audit_unavailable(request.id));
        }
        MaybeReady::Ready(match method {
            Method::ToolsCall => return self.call_tool(cx, request_context),
            Method::ToolsList => self.list_tools(caller, request),
            Method::Ping => Reply::constant(request.id, br#","result":{}}"#),
            Method::Discover => Reply::constant(request.id, &self.snapshot.load().discovered),
            Method::SetLogLevel => self.set_log_level(caller, request),
            // A session exists already. Over HTTP, each `initialize` starts a new one elsewhere.
            Method::Initialize => Reply::error(
                request.id,
                &ErrorObject::new(ErrorCode::InvalidRequest, "initialize was answered already"),
            ),
            other => return self.dispatch_optional(cx, other, request_context),
        })
    }

    /// Calls the handler of a method that depends on optional capabilities.
    pub(super) fn dispatch_optional(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        method: Method,
        request_context: RequestContext<'_>,
    ) -> MaybeReady {
        let RequestContext {
            caller, request, ..
        } = request_context;
        if method == Method::Listen {
            let over_http = request_context.headers.is_some();
            let listening = self.listen(caller, over_http, request);
            return listening.unwrap_or_else(MaybeReady::Ready);
        }
        let snapshot = self.snapshot.load();
        if !snapshot.offers(method) {
            let unknown = if caller.revision.has_sessions() {
                method_not_found(request)
            } else {
                stateless::unknown_method(request)
            };
            return self.wait_for_source(&snapshot, method, request_context, unknown);
        }
        drop(snapshot);
        let handled = match method {
            Method::ResourcesList => Ok(MaybeReady::Ready(self.list_resources(caller, request))),
            Method::TemplatesList => Ok(MaybeReady::Ready(self.list_templates(caller, request))),
            Method::ResourcesRead => self.read_resource(cx, request_context),
            Method::ResourcesSubscribe => self.change_subscription(caller, request, true),
            Method::ResourcesUnsubscribe => self.change_subscription(caller, request, false),
            Method::PromptsList => Ok(MaybeReady::Ready(self.list_prompts(caller, request))),
            Method::PromptsGet => self.get_prompt(cx, request_context),
            Method::Complete => self.complete(cx, request_context),
            Method::TasksList => self.list_tasks(caller, request),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
                self.task_method(cx, method, request_context)
            }
            Method::SkillsList => Ok(MaybeReady::Ready(self.list_skills(caller, request))),
            Method::SkillsGet => Ok(MaybeReady::Ready(self.get_skill(caller, request))),
            Method::DirectoryRead => Ok(MaybeReady::Ready(self.read_directory(caller, request))),
            Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::SetLogLevel
            | Method::Listen
            | Method::ToolsList
            | Method::ToolsCall => unreachable!("dispatched before"),
        };
        handled.unwrap_or_else(MaybeReady::Ready)
    }

    /// Checks headers and `_meta` of a request that names a target, before the lookup (MH-05, LOG-03).
    ///
    /// Returns the minimum level of log messages that the caller wants.
    #[inline]
    pub(super) fn check_named(
        &self,
        request_context: &RequestContext<'_>,
        name: &str,
    ) -> Result<Option<LogLevel>, Reply> {
        let caller = request_context.caller;
        if caller.revision.has_sessions() {
            return Ok(caller.session.map(|session| self.levels.get(session)));
        }
        if let Some(mcp) = request_context.mcp() {
            stateless::check_name(request_context.request, name, mcp)?;
        }
        stateless::log_level(request_context.request)
    }
}

/// Error for a request without the name of its target.
#[cold]
pub(super) fn missing_name(request_context: &RequestContext<'_>, problem: &str) -> Reply {
    let request = request_context.request;
    if !request_context.caller.revision.has_sessions()
        && let Some(mcp) = request_context.mcp()
        && let Err(mismatch) = stateless::check_unnamed(request, mcp)
    {
        return mismatch;
    }
    invalid_params(request.id, problem)
}

pub(super) fn is_unknown_method(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Response(JsonResponse {
            refusal: Some(Refusal::Method),
            ..
        })
    )
}

/// Error for a method that does not exist, within a session.
pub(super) fn method_not_found(request: &Request<'_>) -> Reply {
    let message = format!("Method not found: {}", truncated(&request.method));
    Reply::error(
        request.id,
        &ErrorObject::new(ErrorCode::MethodNotFound, message),
    )
}
