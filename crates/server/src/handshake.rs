//! The lifecycle of revisions up to 2025-11-25: `initialize`, then a session.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::local::unix_seconds;
use super::reply::{Refusal, Reply};
use super::streams::Fact;
use super::{Local, McpHeaders, Server, truncated};
use crate::auth::Principal;
use crate::catalog::strict;
use crate::limit::Limit;
use crate::net::ShareKey;
use crate::protocol::message::Request;
use crate::protocol::{ClientCapabilities, ErrorCode, ErrorObject, Revision};
use crate::seal::{Ended, Session, SessionIssue};

/// What a client says of itself when it begins.
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
    /// Answers `initialize`. VER-01: a revision that is served is confirmed, for any other the newest one with
    /// sessions is offered.
    pub(super) fn initialize(
        &self,
        local: &Local,
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
            now: local.now(),
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
        let rest = self.generation.load().initialized(revision, lists_tasks);
        Ok((session, Reply::fixed(request.id, &rest)))
    }

    /// The session of an id that headers name, if it is one of ours, still lasts, and belongs to the caller (LH-07, LH-08).
    #[inline]
    pub(super) fn session(
        &self,
        local: &Local,
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
            .opened(|| local.open(&self.keys, &self.mount, id))
            .filter(|session| {
                let lasts = local.now() < session.expires;
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

    /// A session in place of one that is not known or has grown too old, if it may be the caller's: for clients that do
    /// not begin another one. It confers nothing that the caller would not get by `initialize`. Its nonce follows from the
    /// id, so that what changes in it is found again, and one that is ended stays so.
    #[cold]
    pub(super) fn stand_in(
        &self,
        local: &Local,
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
                    now: local.now(),
                    life: self.config.session_seconds,
                },
            )?,
        };
        let may_be_theirs = session.belongs_to(principal.id()) && !self.revoked.contains(&session);
        may_be_theirs.then(|| Arc::new(session))
    }

    /// Ends a session.
    pub(super) fn revoke(&self, local: &Local, session: &Session, caller: ShareKey) {
        let ended = Ended::by(session, caller);
        self.revoked.end(&ended, local.now());
        self.end_work_of(&session.log_name);
        self.streams.forget_session(&session.log_name);
        self.streams.state_fact(Fact::Ended(ended));
        let life = local.now().saturating_sub(session.issued);
        self.session_life.record(Duration::from_secs(life));
        tracing::debug!(session = %session.log_name, "a session was ended by its client");
    }

    /// A session was ended, on whichever replica.
    pub(super) fn end_here(&self, ended: &Ended) {
        self.revoked.end(ended, unix_seconds());
        self.end_work_of(&ended.log_name());
    }

    /// Ends the questions and standing streams of a session, and forgets what it has set. Its calls come to their own end.
    pub(super) fn end_work_of(&self, session: &str) {
        self.levels.forget(session);
        self.inflight.questions.end_session(session);
        self.streams.end_session(session);
    }
}
