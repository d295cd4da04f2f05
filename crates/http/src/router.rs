//! Dispatch from a request to the handler of its path.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CACHE_CONTROL, CONTENT_TYPE, ORIGIN, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};

use super::connection::ConnectionState;
use super::cors::Cors;
use super::custom_routes::{self, PublicPaths};
use super::endpoint::Endpoint;
use super::error_response::{NeededScopes, Rejection, RejectionRecord, deny};
use super::framing_guard::HeadMatch;
use super::headers::{AdmittedHead, Fields, Summary};
use super::host_guard::HostGuard;
use super::layers::{Layers, McpService};
use super::legacy::LegacyRequest;
use super::playground;
use super::rest::RestRequest;
use super::route::{Guarded, Open, Place, Route};
use super::tls::Tls;
use crate::audit::{Entry, Event, Outcome};
use crate::auth::{AuthError, Credentials, Gate, Principal, PrincipalKind, Seen};
use crate::limit::{Limit, Limits};
use crate::net::{Body, Peer};
use crate::server::{WorkerState, unix_seconds};
use crate::telemetry::{self, Reason, Refusals, Telemetry, Wire};

/// Everything that is served over HTTP, shared by all workers.
#[derive(Debug)]
pub(crate) struct Router {
    pub endpoint: Endpoint,
    /// Endpoints beside it, by their names.
    pub mounts: HashMap<Box<str>, Endpoint>,
    pub gate: Arc<Gate>,
    /// Server certificates; `None` for plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Path prefix of the public URL, accepted in front of each path.
    pub prefix: Box<str>,
    pub(crate) guard: HostGuard,
    pub(crate) cors: Cors,
    pub layers: Layers,
    pub telemetry: Telemetry,
    pub refusals: Refusals,
}

/// Entry point for requests on one worker: the router, inside any configured layers.
#[derive(Debug)]
pub(crate) struct WorkerService {
    pub(super) router: Arc<Router>,
    pub(super) local: Arc<WorkerState>,
    /// `tower` services are called by exclusive reference; this one is cloned for each request.
    pub(super) layered: Option<std::sync::Mutex<McpService>>,
}

impl WorkerService {
    pub fn new(router: Arc<Router>, local: Arc<WorkerState>) -> Self {
        let layered = router.layers.apply(&router, &local);
        Self {
            router,
            local,
            layered: layered.map(std::sync::Mutex::new),
        }
    }

    /// Rate and concurrency limits.
    pub fn limits(&self) -> &Limits {
        &self.router.endpoint.server.limits
    }

    /// The layers with everything inside of them, if there are any.
    pub(super) fn layers(&self) -> Option<McpService> {
        let layered = self.layered.as_ref()?.lock();
        Some(
            layered
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone(),
        )
    }
}

/// A connection with the service for its requests; each request future holds one.
#[derive(Debug)]
pub struct ConnService {
    pub(super) service: Arc<WorkerService>,
    pub(super) connection: Arc<ConnectionState>,
}

impl ConnService {
    pub fn new(service: Arc<WorkerService>, connection: Arc<ConnectionState>) -> Self {
        Self {
            service,
            connection,
        }
    }

    pub fn connection(&self) -> &Arc<ConnectionState> {
        &self.connection
    }
}

impl Router {
    /// The path of a request below the server's root, where clients may reach it with something in front.
    #[inline]
    pub(super) fn path<'u>(&self, uri: &'u Uri) -> &'u str {
        let path = uri.path();
        if self.prefix.is_empty() {
            return path;
        }
        match path.strip_prefix(&*self.prefix) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// Returns the summary of an admitted head. The summary of a repeated head is reused.
    #[inline]
    pub(super) fn said(
        &self,
        head_match: HeadMatch,
        connection: &ConnectionState,
        head: &Parts,
    ) -> Result<AdmittedHead, Rejection> {
        if head_match == HeadMatch::Unknown || !self.is_message(head) {
            return self.admit(head).map(AdmittedHead::Now);
        }
        if head_match == HeadMatch::Same
            && let Some(said) = connection.head_cache.recall()
            && said.count() == head.headers.len()
        {
            return Ok(AdmittedHead::Before(said));
        }
        let summary = self.admit(head)?;
        connection.head_cache.remember(summary.to_keep());
        Ok(AdmittedHead::Now(summary))
    }

    /// Checks that apply to every request, before any layer sees it.
    #[inline]
    fn admit(&self, head: &Parts) -> Result<Summary, Rejection> {
        let fields = Fields::read(&head.headers);
        fields.check_size(&head.uri, &self.endpoint.config.limits)?;
        fields.check_framing(head.version == Version::HTTP_10)?;
        fields.check_names()?;
        if head.version == Version::HTTP_2 {
            fields.check_authority(&head.uri)?;
        }
        let path = self.path(&head.uri);
        let is_for_everybody = || {
            let route = Route::of(path).is_some_and(|(route, _)| route.is_for_everybody());
            route || self.layers.public_at(path).is_some()
        };
        if path == "/mcp" || !is_for_everybody() {
            self.guard.check(&head.uri, &fields)?;
        } else {
            HostGuard::check_form(head, &fields)?;
        }
        if head.method == Method::OPTIONS && self.asks_in_vain(path, head) {
            return Err(Rejection::OriginForeign);
        }
        Ok(fields.summary())
    }

    /// Returns true if the origin may call but may not read the response: another port of this machine that is not
    /// configured. Layers may handle CORS themselves.
    #[cold]
    fn asks_in_vain(&self, path: &str, head: &Parts) -> bool {
        self.cors.is_preflight(head)
            && head.headers.contains_key(ORIGIN)
            && self.cors.origin(&head.headers).is_none()
            && self.layers.is_empty()
            && Route::of(path).is_some_and(|(route, _)| !route.has(&Method::OPTIONS))
    }

    /// Responds to a rejected request.
    #[cold]
    pub(super) fn refuse(&self, rejection: Rejection, head: &Parts) -> Response<Body> {
        if matches!(
            rejection,
            Rejection::HostForeign | Rejection::OriginForeign | Rejection::OriginUnnamed
        ) {
            self.guard.report(rejection.setting(), &head.headers);
        }
        let route = Route::of(self.path(&head.uri)).map(|(route, _)| route);
        rejection.into_response(route)
    }

    /// Counts a rejected request, and adds an audit entry if no message exists yet.
    #[cold]
    pub(super) fn turned_away(&self, turned: RejectionRecord, client: Peer) {
        let server = &self.endpoint.server;
        self.refusals.count(turned.reason);
        if let Some(limit) = turned.limit {
            server.limits.hits.count(limit);
        }
        if let Some(audit) = &server.audit
            && !turned.recorded
            && let Some(outcome) = decided(turned.reason)
        {
            let mut entry = Entry::new(Event::Refusal);
            entry.outcome = Some(outcome);
            entry.reason = Some(turned.reason.as_str().into());
            entry.client = Some(client.address);
            entry.principal = turned.principal;
            audit.note_stranger(entry);
        }
    }

    /// Client address of a request, taken from the headers of trusted proxies.
    #[inline]
    pub(super) fn client(&self, connection: &ConnectionState, headers: &HeaderMap) -> Peer {
        let trusted = &self.endpoint.config.trusted_proxies;
        let peer = connection.peer();
        if trusted.is_empty() {
            return peer;
        }
        let address = trusted.client(peer.address, headers);
        if address == peer.address {
            peer
        } else {
            address.into()
        }
    }

    /// Returns true if the request is a message for the endpoint, which is the common case.
    #[inline]
    pub(super) fn is_message(&self, head: &Parts) -> bool {
        head.method == Method::POST && self.path(&head.uri) == Route::MCP.path
    }

    /// Dispatches by path. The endpoint accepts a trailing slash, since a redirect would lose the body. Every rejection
    /// becomes a response here, so that hyper never drops a connection because of an error.
    #[inline]
    pub(super) async fn route(
        &self,
        local: &WorkerState,
        connection: Option<&Arc<ConnectionState>>,
        summary: &Summary,
        head: &mut Parts,
        body: &mut Body,
    ) -> Response<Body> {
        if let Some(public) = self.layers.public_at(self.path(&head.uri)) {
            let answer = self.public(&**public, connection, head, body);
            return Box::pin(answer)
                .await
                .unwrap_or_else(Rejection::into_problem);
        }
        let own = || {
            self.layers
                .routes
                .at(head.uri.path())
                .map(|_| (Route::CUSTOM, ""))
        };
        let known = Route::of(self.path(&head.uri));
        let known = known.filter(|(route, _)| !route.gives_way() || own().is_none());
        let Some((route, _)) = known.or_else(own) else {
            return Rejection::NotFound.into_problem();
        };
        let guarded = match route.place() {
            Place::Guarded(guarded) => guarded,
            Place::Open(Open::Playground) => {
                return match self.endpoint.config.has_playground() {
                    // The problem document names the endpoint for messages.
                    _ if !route.has(&head.method) => Rejection::NotFound.into_problem(),
                    true => playground::page(),
                    false => Rejection::NoPlayground.into_problem(),
                };
            }
            Place::Open(_) if !route.has(&head.method) => {
                return Rejection::MethodNotAllowed(route.methods).into_problem();
            }
            Place::Open(Open::Page(page)) => {
                let client = connection.map(|connection| self.client(connection, &head.headers));
                let near = client.is_some_and(|client| client.address.to_canonical().is_loopback());
                return page.answer(&self.endpoint.server, near);
            }
            Place::Open(Open::ResourceMetadata) => {
                return self.resource_metadata(connection, head);
            }
        };
        let limits = &self.endpoint.server.limits;
        let client = connection.map(|connection| self.client(connection, &head.headers));
        if let Some(client) = client
            && let Err(refused) = limits.arrive(client.address)
            && !(refused.limit == Limit::Memory && gives_back(guarded, &head.method))
        {
            return Rejection::Limited(refused).into_response(Some(route));
        }
        let proved;
        let principal = match self.gate.everybody() {
            Some(everybody) => everybody,
            None => {
                let entered = match self.recall(connection, route, head) {
                    Some(entered) => entered,
                    None => self.enter(connection, client, route, head).await,
                };
                match entered {
                    Ok(principal) => {
                        proved = principal;
                        &proved
                    }
                    Err(refused) => return refused,
                }
            }
        };
        let entered = Caller { principal, client };
        let Parts {
            method,
            uri,
            headers,
            version,
            ..
        } = head;
        let response = match guarded {
            Guarded::Mcp if *method == Method::POST => {
                let by = (&entered, local, Wire::of(*version));
                let answer = self.endpoint.post(by, connection, summary, headers, body);
                answer.await.unwrap_or_else(Rejection::into_rpc)
            }
            Guarded::Mcp => {
                let answer = self
                    .endpoint
                    .other(&entered, method, local, connection, summary, headers);
                Box::pin(answer).await.unwrap_or_else(Rejection::into_rpc)
            }
            Guarded::Mount => {
                let name = Route::of(self.path(uri)).map_or("", |(_, name)| name);
                let Some(endpoint) = self.mounts.get(name) else {
                    return Rejection::NotFound.into_problem();
                };
                let answer = async {
                    if *method == Method::POST {
                        let by = (&entered, local, Wire::of(*version));
                        endpoint.post(by, connection, summary, headers, body).await
                    } else {
                        endpoint
                            .other(&entered, method, local, connection, summary, headers)
                            .await
                    }
                };
                Box::pin(answer).await.unwrap_or_else(Rejection::into_rpc)
            }
            Guarded::Respond if !self.endpoint.config.respond_alias => {
                Rejection::NotFound.into_problem()
            }
            Guarded::Legacy if !self.endpoint.config.legacy_sse => {
                Rejection::NotFound.into_problem()
            }
            Guarded::Respond | Guarded::Legacy if !route.has(method) => {
                Rejection::MethodNotAllowed(route.methods).into_rpc()
            }
            Guarded::Respond => {
                let by = (&entered, local, Wire::of(*version));
                let answer = self.endpoint.post(by, connection, summary, headers, body);
                Box::pin(answer).await.unwrap_or_else(Rejection::into_rpc)
            }
            Guarded::Legacy => {
                let request = LegacyRequest {
                    method,
                    query: uri.query(),
                    local,
                    seen: telemetry::Seen {
                        wire: Wire::of(*version),
                        headers: None,
                        peer: client,
                    },
                    summary,
                    connection,
                };
                let answer = request.answer(&self.endpoint, &entered, body);
                Box::pin(answer).await.unwrap_or_else(Rejection::into_rpc)
            }
            Guarded::Rest(_) | Guarded::Page(_) if !route.has(method) => {
                Rejection::MethodNotAllowed(route.methods).into_problem()
            }
            Guarded::Page(_) if entered.principal.kind() == PrincipalKind::Anonymous => {
                Rejection::ForOperators.into_problem()
            }
            Guarded::Page(page) => page.answer(&self.endpoint.server, true),
            Guarded::Custom => {
                let mut request = Request::new(Bytes::new());
                *request.method_mut() = method.clone();
                *request.uri_mut() = uri.clone();
                *request.version_mut() = *version;
                *request.headers_mut() = std::mem::take(headers);
                if let Some(extensions) = &summary.extensions {
                    *request.extensions_mut() = (**extensions).clone();
                }
                request.extensions_mut().insert(Arc::clone(principal));
                let answer = self.own(request, connection, body);
                Box::pin(answer)
                    .await
                    .unwrap_or_else(Rejection::into_problem)
            }
            Guarded::Rest(rest) => {
                let name = Route::of(self.path(uri)).map_or("", |(_, name)| name);
                let request = RestRequest {
                    rest,
                    by: (
                        local,
                        telemetry::Seen {
                            wire: Wire::of(*version),
                            headers: None,
                            peer: client,
                        },
                    ),
                    name,
                    query: uri.query(),
                    summary,
                    headers,
                    connection,
                };
                Box::pin(request.answer(&self.endpoint, &entered, body)).await
            }
        };
        if response.status() == StatusCode::FORBIDDEN {
            return self.lacking(principal, connection, route, head, response);
        }
        response
    }

    /// Response to a caller that lacks a scope: the required scopes and the metadata URL (AUTH-09).
    pub(super) fn lacking(
        &self,
        principal: &Principal,
        connection: Option<&Arc<ConnectionState>>,
        route: &Route,
        head: &Parts,
        mut response: Response<Body>,
    ) -> Response<Body> {
        let Some(NeededScopes(scopes)) = response.extensions_mut().remove() else {
            return response;
        };
        let seen = Seen {
            headers: &head.headers,
            uri: &head.uri,
            peer: connection.map(|connection| connection.peer().address),
        };
        let (error, challenge) = self.gate.lacking(principal, seen, &scopes);
        match (error, challenge) {
            (error @ AuthError::Missing, challenge) => deny(&error, challenge, route),
            (_, Some(challenge)) => {
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                response
            }
            (_, None) => response,
        }
    }

    /// Serves a path without authentication. Its body is read within the limits.
    async fn public(
        &self,
        public: &dyn PublicPaths,
        connection: Option<&Arc<ConnectionState>>,
        head: &mut Parts,
        body: &mut Body,
    ) -> Result<Response<Body>, Rejection> {
        if let Some(connection) = connection {
            let client = self.client(connection, &head.headers);
            let limits = &self.endpoint.server.limits;
            limits.arrive(client.address).map_err(Rejection::Limited)?;
        }
        let body = self.endpoint.read(connection, body).await?;
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.headers_mut() = std::mem::take(&mut head.headers);
        Ok(public.respond(self.path(&head.uri), request).await)
    }

    /// A path of the application's own. Its handler gets a body that was read within the limits.
    async fn own(
        &self,
        request: Request<Bytes>,
        connection: Option<&Arc<ConnectionState>>,
        body: &mut Body,
    ) -> Result<Response<Body>, Rejection> {
        let Some(handler) = self.layers.routes.at(request.uri().path()) else {
            return Err(Rejection::NotFound);
        };
        let body = self.endpoint.read(connection, body).await?;
        Ok(custom_routes::answer(&**handler, request.map(|_| body)).await)
    }

    /// Authenticates and rate-limits a request on a path that is not open, before its body is read (AUTH-07). Headers
    /// that hold credentials are removed afterwards.
    pub(super) async fn enter(
        &self,
        connection: Option<&Arc<ConnectionState>>,
        client: Option<Peer>,
        route: &Route,
        head: &mut Parts,
    ) -> Result<Arc<Principal>, Response<Body>> {
        let peer = connection.map(|connection| connection.peer().address);
        let shown = connection.map(|connection| &connection.shown);
        // The worker's clock may lag by a second, so that a fresh token would appear to be issued in the future.
        let now = unix_seconds();
        let presented = Credentials::read(&head.headers, head.uri.query(), peer, now);
        let certificate = connection.and_then(|connection| connection.certificate());
        let presented = presented.map(|presented| presented.with_certificate(certificate));
        match self.gate.admit(presented, shown).await {
            Ok(principal) => {
                self.gate.strip(&mut head.headers);
                self.may_enter(principal, peer, route, head)
            }
            Err(error) => {
                tracing::debug!(%error, path = route.path, ?client, "a request was refused");
                if matches!(error, AuthError::Invalid(_) | AuthError::TooLong(_)) {
                    let failed = self
                        .endpoint
                        .server
                        .limits
                        .failed_proof(client.map(|client| client.address));
                    failed.map_err(|refused| {
                        Rejection::Limited(refused).into_response(Some(route))
                    })?;
                }
                let seen = Seen {
                    headers: &head.headers,
                    uri: &head.uri,
                    peer,
                };
                Err(deny(&error, self.gate.challenge(seen, &error), route))
            }
        }
    }

    /// Reuses the result of [`enter`](Self::enter) for a credential already seen on this connection. Returns `None` if
    /// authentication is required.
    #[inline]
    pub(super) fn recall(
        &self,
        connection: Option<&Arc<ConnectionState>>,
        route: &Route,
        head: &mut Parts,
    ) -> Option<Result<Arc<Principal>, Response<Body>>> {
        let connection = connection?;
        let (shown, query) = (&connection.shown, head.uri.query());
        let principal = self
            .gate
            .recall(shown, &mut head.headers, query, unix_seconds)?;
        Some(self.may_enter(principal, Some(connection.peer().address), route, head))
    }

    /// Checks the rate limit of an authenticated caller and its access to this endpoint.
    #[inline]
    #[expect(clippy::result_large_err, reason = "a refusal is an answer")]
    fn may_enter(
        &self,
        principal: Arc<Principal>,
        peer: Option<IpAddr>,
        route: &Route,
        head: &Parts,
    ) -> Result<Arc<Principal>, Response<Body>> {
        if let Err(refused) = self.endpoint.server.limits.admit(&principal) {
            let mut response = Rejection::Limited(refused).into_response(Some(route));
            if let Some(turned) = response.extensions_mut().get_mut::<RejectionRecord>() {
                turned.principal = Some(principal);
            }
            return Err(response);
        }
        let endpoint = match route.place() {
            Place::Guarded(Guarded::Mount) => {
                Route::of(self.path(&head.uri)).map_or("", |(_, name)| name)
            }
            _ => "",
        };
        if let Err(error) = self.gate.check_endpoint(&principal, endpoint) {
            tracing::debug!(%error, path = route.path, ?peer, "a request was refused");
            let seen = Seen {
                headers: &head.headers,
                uri: &head.uri,
                peer,
            };
            return Err(deny(&error, self.gate.challenge(seen, &error), route));
        }
        Ok(principal)
    }

    /// Protected resource metadata for OAuth clients without a credential (AUTH-01), for any of the metadata pages.
    fn resource_metadata(
        &self,
        connection: Option<&Arc<ConnectionState>>,
        head: &Parts,
    ) -> Response<Body> {
        let seen = Seen {
            headers: &head.headers,
            uri: &head.uri,
            peer: connection.map(|connection| connection.peer().address),
        };
        let Some(document) = self.gate.document(seen) else {
            return Rejection::NotFound.into_problem();
        };
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        if head.method == Method::OPTIONS {
            headers.insert(
                ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static(METADATA_METHODS),
            );
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
            *response.status_mut() = StatusCode::NO_CONTENT;
            return response;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
        *response.body_mut() = Body::from(Bytes::from(document));
        response
    }
}

/// Returns true if the request is served even under memory pressure: it frees memory or reports its use.
fn gives_back(guarded: Guarded, method: &Method) -> bool {
    *method == Method::DELETE || matches!(guarded, Guarded::Page(_))
}

/// Audit outcome of a rejection; `None` if it was not an authorization decision.
fn decided(reason: Reason) -> Option<Outcome> {
    match reason {
        Reason::Limit(_) => Some(Outcome::Limited),
        Reason::CredentialMissing
        | Reason::CredentialMalformed
        | Reason::CredentialInvalid
        | Reason::CredentialUnchecked
        | Reason::Scope
        | Reason::Host
        | Reason::HostForeign
        | Reason::Origin => Some(Outcome::Denied),
        _ => None,
    }
}

const METADATA_METHODS: &str = "GET, HEAD";

/// An admitted caller; constructed only by the router.
#[derive(Debug)]
pub(super) struct Caller<'r> {
    pub(super) principal: &'r Arc<Principal>,
    /// The client; `None` where no socket brought the request.
    pub(super) client: Option<Peer>,
}
