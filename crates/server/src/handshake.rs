//! Lifecycle of revisions up to 2025-11-25: `initialize`, then a session.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::reply::{Refusal, Reply};
use super::streams::DurableEvent;
use super::worker_state::unix_seconds;
use super::{McpHeaders, Server, WorkerState, truncated};
use crate::auth::Principal;
use crate::catalog::strict;
use crate::limit::Limit;
use crate::net::ShareKey;
use crate::protocol::message::Request;
use crate::protocol::{ClientCapabilities, ErrorCode, ErrorObject, Revision};
use crate::seal::{Ended, Session, SessionIssue};

/// Parameters of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(default)]
    capabilities: ClientCapabilities,
    #[serde(borrow, default)]
    client_info: ClientInfo<'a>,
}

#[derive(Default, Deserialize)]
struct ClientInfo<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    version: Cow<'a, str>,
}

impl Server {
    /// Handles `initialize`. VER-01: a supported revision is confirmed; for any other, the newest one with sessions
    /// is offered.
    pub(super) fn initialize(
        &self,
        worker: &WorkerState,
        principal: &Principal,
        request: &Request<'_>,
    ) -> Result<(Session, Reply), Reply> {
        let params: InitializeParams<'_> = strict::from_str(request.params.object.unwrap_or("{}"))
            .map_err(|e| {
                let message = format!(
                    "Invalid params of initialize: {}",
                    truncated(&e.to_string())
                );
                Reply::error(
                    request.id,
                    &ErrorObject::new(ErrorCode::InvalidParams, message),
                )
            })?;
        let revision = Revision::parse(&params.protocol_version)
            .filter(|revision| revision.has_sessions())
            .unwrap_or(Revision::NEWEST_WITH_SESSIONS);
        let session = Session::begin(SessionIssue {
            revision,
            capabilities: params.capabilities,
            client_name: &params.client_info.name,
            client_version: &params.client_info.version,
            principal: principal.id(),
            replica: self.replica,
            now: worker.now(),
            life: self.config.session_seconds,
        });
        tracing::debug!(
            session = %session.log_name,
            %revision,
            client = %session.client_name,
            version = %session.client_version,
            "a session begins"
        );
        self.sessions_opened[revision as usize].add(1);
        let lists_tasks = self.lists_tasks(principal);
        let rest = self.snapshot.load().initialized(revision, lists_tasks);
        Ok((session, Reply::constant(request.id, &rest)))
    }

    /// Opens the session with the id in `headers`. It must be valid, unexpired, and owned by the caller (LH-07,
    /// LH-08).
    #[inline]
    pub(super) fn session(
        &self,
        worker: &WorkerState,
        principal: &Principal,
        (headers, id): (&McpHeaders, Option<&[u8]>),
        request: Option<&str>,
    ) -> Result<Arc<Session>, Reply> {
        let Some(id) = id else {
            return Err(Reply::refuse(
                Refusal::SessionMissing,
                request,
                ErrorCode::InvalidRequest,
                "Mcp-Session-Id is missing: send initialize first, then repeat its session id in each request",
            ));
        };
        headers
            .opened(|| worker.open(&self.keys, &self.mount, id))
            .filter(|session| {
                let lasts = worker.now() < session.expires;
                if !lasts {
                    self.limits.hits.count(Limit::SessionSeconds);
                }
                lasts && session.belongs_to(principal.id()) && !self.revoked.contains(session)
            })
            .ok_or_else(|| {
                Reply::refuse(
                    Refusal::SessionUnknown,
                    request,
                    ErrorCode::Http(404),
                    "Session not found: it has ended or is not known here; send initialize again",
                )
            })
    }

    /// Creates a session in place of one that is unknown or expired, for clients that do not reinitialize.
    ///
    /// It grants nothing that `initialize` would not grant to the same caller. The nonce is derived from the id. So
    /// state of the session is found again, and a session that was ended stays ended.
    #[cold]
    pub(super) fn substitute_session(
        &self,
        worker: &WorkerState,
        principal: &Principal,
        id: &[u8],
        said: Option<Revision>,
    ) -> Option<Arc<Session>> {
        let session = match Session::open(&self.keys, &self.mount, id) {
            Some(known) => known,
            None => Session::stand_in(
                &self.mount,
                id,
                SessionIssue {
                    revision: said
                        .filter(|revision| revision.has_sessions())
                        .unwrap_or(Revision::V2025_03_26),
                    capabilities: ClientCapabilities::default(),
                    client_name: "",
                    client_version: "",
                    principal: principal.id(),
                    replica: self.replica,
                    now: worker.now(),
                    life: self.config.session_seconds,
                },
            )?,
        };
        let may_be_theirs = session.belongs_to(principal.id()) && !self.revoked.contains(&session);
        may_be_theirs.then(|| Arc::new(session))
    }

    /// Ends a session at its client's request.
    pub(super) fn revoke(&self, worker: &WorkerState, session: &Session, caller: ShareKey) {
        let ended = Ended::by(session, caller);
        self.revoked.end(&ended, worker.now());
        self.close_session_work(&session.log_name);
        self.streams.remove_session_state(&session.log_name);
        self.streams.record_event(DurableEvent::Ended(ended));
        let life = worker.now().saturating_sub(session.issued);
        self.session_life.record(Duration::from_secs(life));
        tracing::debug!(session = %session.log_name, "a session was ended by its client");
    }

    /// Applies the end of a session, on whichever replica it was ended.
    pub(super) fn apply_ended_session(&self, ended: &Ended) {
        self.revoked.end(ended, unix_seconds());
        self.close_session_work(&ended.log_name());
    }

    /// Ends the client requests and notification streams of a session and drops its settings. Its calls run to
    /// completion.
    pub(super) fn close_session_work(&self, session: &str) {
        self.levels.forget(session);
        self.inflight.client_requests.end_session(session);
        self.streams.end_session(session);
    }
}
