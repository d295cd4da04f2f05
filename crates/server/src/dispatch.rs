//! From a request whose lifecycle is known to the method that answers it.

use std::sync::Arc;
use std::task::Context;

use super::reply::{Answer, Refusal, Reply};
use super::tools::invalid_params;
use super::{Handled, Incoming, Server, audited, stateless, truncated};
use crate::catalog::LogLevel;
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, ErrorObject, Method};

impl Server {
    /// A request within a session.
    #[inline]
    pub(super) fn session_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Handled {
        let (request, revision) = (incoming.request, incoming.caller.revision);
        match Method::parse(&request.method).filter(|method| method.is_in(revision)) {
            Some(method) => self.dispatch(cx, method, incoming),
            None => self
                .other_method(cx, incoming)
                .unwrap_or_else(|| Handled::Now(method_not_found(request))),
        }
    }

    /// A request that stands alone.
    #[inline]
    pub(super) fn stateless_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Handled {
        let request = incoming.request;
        match stateless::check_envelope(request, incoming.mcp()) {
            // A call's level is looked at after its name.
            Ok(method) if method != Method::ToolsCall => match stateless::log_level(request) {
                Ok(_) => self.dispatch(cx, method, incoming),
                Err(refusal) => Handled::Now(refusal),
            },
            Ok(method) => self.dispatch(cx, method, incoming),
            Err(refusal) if is_unknown_method(&refusal) => self
                .other_method(cx, incoming)
                .unwrap_or(Handled::Now(refusal)),
            Err(refusal) => Handled::Now(refusal),
        }
    }

    /// What both lifecycles end in.
    #[inline]
    pub(super) fn dispatch(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        method: Method,
        incoming: Incoming<'_>,
    ) -> Handled {
        let Incoming {
            caller, request, ..
        } = incoming;
        caller.names(self.operations.of(method));
        if caller.is_barred() {
            return Handled::Now(audited::unrecorded(request.id));
        }
        Handled::Now(match method {
            Method::ToolsCall => return self.call_tool(cx, incoming),
            Method::ToolsList => self.list_tools(caller, request),
            Method::Ping => Reply::fixed(request.id, br#","result":{}}"#),
            Method::Discover => Reply::fixed(request.id, &self.generation.load().discovered),
            Method::SetLogLevel => self.set_log_level(caller, request),
            // A session has begun already, and over HTTP each handshake begins one of its own.
            Method::Initialize => Reply::error(
                request.id,
                &ErrorObject::new(ErrorCode::InvalidRequest, "initialize was answered already"),
            ),
            other => return self.dispatch_further(cx, other, incoming),
        })
    }

    /// The methods of what need not be there.
    pub(super) fn dispatch_further(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        method: Method,
        incoming: Incoming<'_>,
    ) -> Handled {
        let Incoming {
            caller, request, ..
        } = incoming;
        if method == Method::Listen {
            let over_http = incoming.headers.is_some();
            let listening = self.listen(caller, over_http, request);
            return listening.unwrap_or_else(Handled::Now);
        }
        let generation = self.generation.load();
        if !generation.offers(method) {
            let unknown = if caller.revision.has_sessions() {
                method_not_found(request)
            } else {
                stateless::unknown_method(request)
            };
            return self.unless_starting(&generation, method, incoming, unknown);
        }
        drop(generation);
        let handled = match method {
            Method::ResourcesList => Ok(Handled::Now(self.list_resources(caller, request))),
            Method::TemplatesList => Ok(Handled::Now(self.list_templates(caller, request))),
            Method::ResourcesRead => self.read_resource(cx, incoming),
            Method::ResourcesSubscribe => self.change_subscription(caller, request, true),
            Method::ResourcesUnsubscribe => self.change_subscription(caller, request, false),
            Method::PromptsList => Ok(Handled::Now(self.list_prompts(caller, request))),
            Method::PromptsGet => self.get_prompt(cx, incoming),
            Method::Complete => self.complete(cx, incoming),
            Method::TasksList => self.list_tasks(caller, request),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
                self.task_method(cx, method, incoming)
            }
            Method::SkillsList => Ok(Handled::Now(self.list_skills(caller, request))),
            Method::SkillsGet => Ok(Handled::Now(self.get_skill(caller, request))),
            Method::DirectoryRead => Ok(Handled::Now(self.read_directory(caller, request))),
            Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::SetLogLevel
            | Method::Listen
            | Method::ToolsList
            | Method::ToolsCall => unreachable!("dispatched before"),
        };
        handled.unwrap_or_else(Handled::Now)
    }

    /// Checks a request that names something, as far as headers and `_meta` go (MH-05, LOG-03), before the name is
    /// looked up. Returns from which level on the caller wants to be sent log messages.
    #[inline]
    pub(super) fn check_named(
        &self,
        incoming: &Incoming<'_>,
        name: &str,
    ) -> Result<Option<LogLevel>, Reply> {
        let caller = incoming.caller;
        if caller.revision.has_sessions() {
            return Ok(caller.session.map(|session| self.levels.get(session)));
        }
        if let Some(mcp) = incoming.mcp() {
            stateless::check_name(incoming.request, name, mcp)?;
        }
        stateless::log_level(incoming.request)
    }
}

/// What is said to a request that has to name something, and does not.
#[cold]
pub(super) fn unnamed(incoming: &Incoming<'_>, problem: &str) -> Reply {
    let request = incoming.request;
    if !incoming.caller.revision.has_sessions()
        && let Some(mcp) = incoming.mcp()
        && let Err(mismatch) = stateless::check_unnamed(request, mcp)
    {
        return mismatch;
    }
    invalid_params(request.id, problem)
}

pub(super) fn is_unknown_method(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Answer(Answer {
            refusal: Some(Refusal::Method),
            ..
        })
    )
}

/// A method that does not exist, within a session.
pub(super) fn method_not_found(request: &Request<'_>) -> Reply {
    let message = format!("Method not found: {}", truncated(&request.method));
    Reply::error(
        request.id,
        &ErrorObject::new(ErrorCode::MethodNotFound, message),
    )
}
