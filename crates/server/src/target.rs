//! Checks of requests that name a target: a tool, a resource, a prompt or a task.

use super::errors::{invalid_params, missing_scopes};
use super::reply::Reply;
use super::request_context::RequestContext;
use super::sessions::Sessions;
use super::stateless;
use crate::auth::Principal;
use crate::catalog::{LogLevel, MissingScopes};

/// Checks headers and `_meta` of a request that names a target, before the lookup (MH-05, LOG-03).
///
/// Returns the minimum level of log messages that the caller wants.
#[inline]
pub(super) fn check_named(
    sessions: &Sessions,
    request_context: &RequestContext<'_>,
    name: &str,
) -> Result<Option<LogLevel>, Reply> {
    let caller = request_context.caller;
    if caller.revision.has_sessions() {
        return Ok(caller.session.map(|session| sessions.levels.get(session)));
    }
    if let Some(mcp) = request_context.mcp() {
        stateless::check_name(request_context.request, name, mcp)?;
    }
    stateless::log_level(request_context.request)
}

/// AUTH-09: checks that the caller has all scopes that its target needs. The error lists them.
pub(super) fn check_scopes(
    principal: &Principal,
    id: &str,
    needed: &[String],
) -> Result<(), Reply> {
    if needed.iter().all(|scope| principal.has_scope(scope)) {
        return Ok(());
    }
    Err(missing_scopes(id, &MissingScopes(needed.into())))
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
