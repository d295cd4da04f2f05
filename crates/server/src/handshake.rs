//! Lifecycle of revisions up to 2025-11-25: `initialize`, then a session.

use std::sync::Arc;

use super::config::StaleSessions;
use super::errors::without_position;
use super::initialize_params::InitializeParams;
use super::param_headers::{HeaderValueState, McpHeaders, SingleHeader, VersionHeader};
use super::parts::Server;
use super::reply::{RejectReason, Reply};
use super::request_context::HttpHead;
use super::sessions::ClientDeclaration;
use super::streams::DurableEvent;
use super::text::truncated;
use super::worker_state::WorkerState;
use super::{stateless, tasks};
use crate::auth::Principal;
use crate::net::ShareKey;
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, Revision};
use crate::seal::{RevokedSession, Session};

/// Handles `initialize`. VER-01: a supported revision is confirmed; for any other, the newest one with sessions is
/// offered.
pub(super) fn initialize(
    server: &Server,
    worker: &WorkerState,
    principal: &Principal,
    request: &Request<'_>,
) -> Result<(Session, Reply), Reply> {
    let params = InitializeParams::read(request.params.object.unwrap_or("{}")).map_err(|e| {
        let problem = without_position(&e);
        let message = format!("Invalid params of initialize: {}", truncated(&problem));
        Reply::fail(request.id, ErrorCode::InvalidParams, message)
    })?;
    let revision = Revision::parse(&params.protocol_version)
        .filter(|revision| revision.has_sessions())
        .unwrap_or(Revision::NEWEST_WITH_SESSIONS);
    let client = ClientDeclaration {
        revision,
        capabilities: params.capabilities,
        name: &params.client_info.name,
        version: &params.client_info.version,
    };
    let session = server.sessions.begin(&client, principal, worker.now());
    let lists_tasks = tasks::lists_tasks(server, principal);
    let snapshot = server.snapshots.load();
    let rest = snapshot.initialized(revision, lists_tasks);
    Ok((session, Reply::constant(request.id, &rest)))
}

/// Looks up the session named by a request. `request` is the JSON-RPC id, for the error.
#[inline]
pub(super) fn session_of(
    server: &Server,
    worker: &WorkerState,
    head: &HttpHead<'_>,
    version: VersionHeader,
    request: Option<&str>,
) -> Result<Arc<Session>, Reply> {
    if version == VersionHeader::Unknown {
        return Err(unknown_version(request, head.mcp));
    }
    let id = match &head.mcp.session {
        SingleHeader::Absent => None,
        SingleHeader::Known(word) => Some(word.as_bytes()),
        SingleHeader::One(value) => Some(value.as_bytes().trim_ascii()),
        SingleHeader::Repeated => {
            return Err(Reply::refuse(
                RejectReason::Malformed,
                request,
                ErrorCode::InvalidRequest,
                "Mcp-Session-Id appears more than once",
            ));
        }
    };
    let named = (head.mcp, id);
    let sessions = &server.sessions;
    match (sessions.open(worker, head.principal, named, request), id) {
        (Err(refused), Some(id)) if server.config.stale_sessions == StaleSessions::Accept => {
            let requested = match head.mcp.version.read() {
                HeaderValueState::Text(text) => Revision::parse(&text),
                _ => None,
            };
            sessions
                .substitute(worker, head.principal, id, requested)
                .ok_or(refused)
        }
        (found, _) => found,
    }
}

/// LH-10: the version header names a revision that is not served.
#[cold]
fn unknown_version(id: Option<&str>, mcp: &McpHeaders) -> Reply {
    match mcp.version.read() {
        HeaderValueState::Text(text) => stateless::unsupported_version(id, &text),
        HeaderValueState::Repeated => stateless::unsupported_version(id, "several values"),
        HeaderValueState::Invalid(_) | HeaderValueState::Absent => {
            stateless::unsupported_version(id, "not ASCII")
        }
    }
}

/// Ends a session at its client's request, on all replicas.
pub(super) fn revoke(server: &Server, worker: &WorkerState, session: &Session, caller: ShareKey) {
    let ended = RevokedSession::by(session, caller);
    server.sessions.revoke(session, &ended, worker.now());
    close_work(server, &session.log_name);
    server.streams.remove_session_state(&session.log_name);
    server.streams.record_event(DurableEvent::Ended(ended));
}

/// Applies the end of a session on another replica.
pub(super) fn apply_revocation(server: &Server, ended: &RevokedSession) {
    server.sessions.apply_revocation(ended);
    close_work(server, &ended.log_name());
}

/// Cancels the calls of a session, whose results no client can receive, ends its client requests and notification streams, and
/// drops its settings. Tasks continue.
pub(super) fn close_work(server: &Server, session: &str) {
    server.sessions.levels.forget(session);
    server.streams.end_session(session);
    server.calls.inflight.cancel_all(session);
    server.calls.inflight.client_requests.end_session(session);
}
