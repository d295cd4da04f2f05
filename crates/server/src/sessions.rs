//! Sessions of revisions up to 2025-11-25. A session is sealed into its id, so the server keeps only exceptions.

use std::sync::Arc;
use std::time::Duration;

use super::log_levels::SessionLogLevels;
use super::param_headers::McpHeaders;
use super::reply::{RejectReason, Reply};
use super::sse_sessions::SseSessions;
use super::worker_state::WorkerState;
use crate::auth::Principal;
use crate::environment::unix_seconds;
use crate::limit::{Limit, LimitCounters};
use crate::protocol::{ClientCapabilities, ErrorCode, Revision};
use crate::seal::{KeyRing, Revoked, RevokedSession, Session, SessionIssue};
use crate::telemetry::{Counter, Metrics, SESSION_DURATION, SESSIONS_OPENED, Timing};

/// Sessions of one server.
pub(super) struct Sessions {
    keys: Arc<KeyRing>,
    /// Name of the endpoint, sealed into the ids.
    endpoint: Box<str>,
    replica: u64,
    /// Maximum age of a session in seconds.
    max_age: u64,
    hits: Arc<LimitCounters>,
    /// Sessions that ended before their expiry.
    revoked: Revoked,
    pub(super) levels: SessionLogLevels,
    /// Sessions of the HTTP+SSE transport.
    pub(super) sse: SseSessions,
    /// Number of sessions opened, by revision.
    opened: [Counter; Revision::ALL.len()],
    duration: Timing,
}

/// Properties that a client declares in `initialize`.
pub(super) struct ClientDeclaration<'a> {
    pub(super) revision: Revision,
    pub(super) capabilities: ClientCapabilities,
    pub(super) name: &'a str,
    pub(super) version: &'a str,
}

impl Sessions {
    pub(super) fn new(
        (keys, endpoint, replica): (&Arc<KeyRing>, &str, u64),
        max_age: u64,
        hits: Arc<LimitCounters>,
        metrics: &Metrics,
    ) -> Self {
        let opened = Revision::ALL.map(|revision| {
            let labels = [("mcp.protocol.version", revision.as_str())];
            match revision.has_sessions() {
                true => metrics.counter(&SESSIONS_OPENED, &labels),
                false => Counter::default(),
            }
        });
        Self {
            keys: Arc::clone(keys),
            endpoint: endpoint.into(),
            replica,
            max_age,
            hits,
            revoked: Revoked::default(),
            levels: SessionLogLevels::default(),
            sse: SseSessions::default(),
            opened,
            duration: metrics.timing(&SESSION_DURATION, &[("network.protocol.name", "http")]),
        }
    }

    /// Begins a session.
    pub(super) fn begin(
        &self,
        client: &ClientDeclaration<'_>,
        principal: &Principal,
        now: u64,
    ) -> Session {
        let session = Session::begin(self.issue(client, principal, now));
        tracing::debug!(
            session = %session.log_name,
            revision = %session.revision,
            client = %session.client_name,
            version = %session.client_version,
            "a session begins"
        );
        self.opened[session.revision as usize].add(1);
        session
    }

    fn issue<'a>(
        &self,
        client: &ClientDeclaration<'a>,
        principal: &'a Principal,
        now: u64,
    ) -> SessionIssue<'a> {
        SessionIssue {
            revision: client.revision,
            capabilities: client.capabilities,
            client_name: client.name,
            client_version: client.version,
            principal: principal.id(),
            replica: self.replica,
            now,
            life: self.max_age,
        }
    }

    /// Opens the session with the id in `headers`. It must be valid, unexpired, and owned by the caller (LH-07, LH-08).
    #[inline]
    pub(super) fn open(
        &self,
        worker: &WorkerState,
        principal: &Principal,
        (headers, id): (&McpHeaders, Option<&[u8]>),
        request: Option<&str>,
    ) -> Result<Arc<Session>, Reply> {
        let Some(id) = id else {
            return Err(Reply::refuse(
                RejectReason::SessionMissing,
                request,
                ErrorCode::InvalidRequest,
                "Mcp-Session-Id is missing: send initialize first, then repeat its session id in each request",
            ));
        };
        headers
            .opened(|| worker.open(&self.keys, &self.endpoint, id))
            .filter(|session| {
                let is_valid = worker.now() < session.expires;
                if !is_valid {
                    self.hits.count(Limit::SessionSeconds);
                }
                is_valid && session.belongs_to(principal.id()) && !self.revoked.contains(session)
            })
            .ok_or_else(|| {
                // Without an id: the Go SDK takes an error with one for the result of the call, and keeps the session.
                Reply::refuse(
                    RejectReason::SessionUnknown,
                    None,
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
    pub(super) fn substitute(
        &self,
        worker: &WorkerState,
        principal: &Principal,
        id: &[u8],
        requested: Option<Revision>,
    ) -> Option<Arc<Session>> {
        let session = match Session::open(&self.keys, &self.endpoint, id) {
            Some(known) => known,
            None => {
                let client = ClientDeclaration {
                    revision: requested
                        .filter(|revision| revision.has_sessions())
                        .unwrap_or(Revision::V2025_03_26),
                    capabilities: ClientCapabilities::default(),
                    name: "",
                    version: "",
                };
                let issue = self.issue(&client, principal, worker.now());
                Session::stand_in(&self.endpoint, id, issue)?
            }
        };
        let is_allowed = session.belongs_to(principal.id()) && !self.revoked.contains(&session);
        is_allowed.then(|| Arc::new(session))
    }

    /// Begins a session for a client of HTTP+SSE that does not send `initialize` again after it has reconnected. Servers of the
    /// TypeScript SDK serve these too.
    pub(super) fn begin_without_initialize(
        &self,
        revision: Revision,
        principal: &Principal,
        now: u64,
    ) -> Session {
        let client = ClientDeclaration {
            revision,
            capabilities: ClientCapabilities::default(),
            name: "",
            version: "",
        };
        self.begin(&client, principal, now)
    }

    /// Seals a session into the id that its client sends.
    pub(super) fn seal(&self, session: &Session) -> String {
        session.seal(&self.keys, &self.endpoint)
    }

    /// Revokes a session at its client's request.
    pub(super) fn revoke(&self, session: &Session, ended: &RevokedSession, now: u64) {
        self.revoked.end(ended, now);
        let duration = now.saturating_sub(session.issued);
        self.duration.record(Duration::from_secs(duration));
        tracing::debug!(session = %session.log_name, "a session was ended by its client");
    }

    /// Revokes a session that ended on another replica.
    pub(super) fn apply_revocation(&self, ended: &RevokedSession) {
        self.revoked.end(ended, unix_seconds());
    }
}
