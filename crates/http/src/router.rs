//! Dispatch from a request to the handler of its path.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CACHE_CONTROL, CONTENT_TYPE, ORIGIN,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};

use super::connection::ConnectionState;
use super::context::Origin;
use super::cors::Cors;
use super::endpoint::Endpoint;
use super::framing_guard::HeadMatch;
use super::headers::{AdmittedHead, Fields, Summary};
use super::host_guard::HostGuard;
use super::layers::{Layers, McpService};
use super::playground;
use super::rejection::{HttpError, Rejection};
use super::route::{Open, Route};
use super::tls::Tls;
use crate::audit::{Entry, Event};
use crate::auth::Authenticator;
use crate::limit::Limits;
use crate::net::{Body, Peer};
use crate::server::WorkerState;
use crate::telemetry::{Refusals, Telemetry};

/// Everything that is served over HTTP, shared by all workers.
#[derive(Debug)]
pub(crate) struct Router {
    pub endpoint: Endpoint,
    /// Endpoints beside it, by their names.
    pub mounts: HashMap<Box<str>, Endpoint>,
    pub gate: Arc<Authenticator>,
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
    pub(super) fn admit_head(
        &self,
        head_match: HeadMatch,
        connection: &ConnectionState,
        head: &Parts,
    ) -> Result<AdmittedHead, HttpError> {
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
    fn admit(&self, head: &Parts) -> Result<Summary, HttpError> {
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
            return Err(HttpError::OriginForeign);
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

    /// Builds the response to a rejected request, counts the rejection, and adds an audit entry unless the server did.
    #[cold]
    pub(super) fn reject(
        &self,
        rejection: Rejection,
        route: Option<&Route>,
        client: Option<Peer>,
    ) -> Response<Body> {
        let row = rejection.row();
        let server = &self.endpoint.server;
        if let Some(reason) = row.reason {
            self.refusals.count(reason);
            if let (Some(audit), Some(outcome)) = (&server.audit, row.audit) {
                let mut entry = Entry::new(Event::Refusal);
                entry.outcome = Some(outcome);
                entry.reason = Some(reason.as_str().into());
                entry.client = client.map(|client| client.address);
                entry.principal = rejection.principal().cloned();
                audit.note_stranger(entry);
            }
        }
        if let Some(limit) = row.hit {
            server.limits.hits.count(limit);
        }
        let rpc = rejection.speaks_rpc(route);
        rejection.into_response(rpc)
    }

    /// Rejects a request for its head. Logs a forbidden `Host` or `Origin`, which operators have to configure.
    #[cold]
    pub(super) fn reject_head(
        &self,
        error: HttpError,
        head: &Parts,
        client: Option<Peer>,
    ) -> Response<Body> {
        if matches!(
            error,
            HttpError::HostForeign | HttpError::OriginForeign | HttpError::OriginUnnamed
        ) {
            self.guard.report(error.setting(), &head.headers);
        }
        let route = Route::of(self.path(&head.uri)).map(|(route, _)| route);
        self.reject(error.into(), route, client)
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

    /// Finds the route of a path. The endpoint accepts a trailing slash, since a redirect would lose the body.
    #[inline]
    pub(super) fn find(&self, head: &Parts) -> Option<&'static Route> {
        let path = self.path(&head.uri);
        if self.layers.public_at(path).is_some() {
            return Some(Route::PUBLIC);
        }
        match Route::of(path) {
            Some((route, _)) if !route.gives_way() => Some(route),
            known => match self.layers.routes.at(head.uri.path()) {
                Some(_) => Some(Route::CUSTOM),
                None => known.map(|(route, _)| route),
            },
        }
    }

    /// The part of a path that its route names: a tool or an endpoint.
    pub(super) fn name_in<'u>(&self, uri: &'u Uri) -> &'u str {
        Route::of(self.path(uri)).map_or("", |(_, name)| name)
    }

    /// Responds to a request for a page that needs no authentication.
    pub(super) fn open_page(
        &self,
        page: Open,
        route: &Route,
        origin: &Origin<'_>,
        head: &Parts,
    ) -> Result<Response<Body>, Rejection> {
        let has_method = route.has(&head.method);
        match page {
            // The problem document names the endpoint for messages.
            Open::Playground if !has_method => Err(HttpError::NotFound.into()),
            Open::Playground if self.endpoint.config.has_playground() => {
                Ok(playground::page(self.gate.issuers()))
            }
            Open::Playground => Err(HttpError::NoPlayground.into()),
            _ if !has_method => Err(HttpError::MethodNotAllowed(route.methods).into()),
            Open::Page(page) => {
                let is_local = |client: Peer| client.address.to_canonical().is_loopback();
                let near = origin.client.is_some_and(is_local);
                Ok(page.answer(&self.endpoint.server, near))
            }
            Open::ResourceMetadata => self.resource_metadata(origin, head),
            Open::Public => Err(HttpError::NotFound.into()),
        }
    }

    /// Protected resource metadata for OAuth clients without a credential (AUTH-01), for any of the metadata pages.
    fn resource_metadata(
        &self,
        origin: &Origin<'_>,
        head: &Parts,
    ) -> Result<Response<Body>, Rejection> {
        let seen = origin.seen(&head.headers, &head.uri);
        let document = self.gate.document(seen).ok_or(HttpError::NotFound)?;
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
            return Ok(response);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
        *response.body_mut() = Body::from(Bytes::from(document));
        Ok(response)
    }
}

const METADATA_METHODS: &str = "GET, HEAD";
