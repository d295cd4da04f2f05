//! Dispatch from a request to the handler of its path.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use http::header::ORIGIN;
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri, Version};

use super::config::HttpConfig;
use super::connection::ConnectionState;
use super::headers::{AdmittedHead, Fields, Summary};
use super::host_guard::HostGuard;
use super::layers::{Layers, RouteHandler};
use super::rejection::{HttpError, Rejection};
use super::route::{Open, Protected, Route, RouteTarget};
use super::tls::Tls;
use crate::audit::{Entry, Event, Outcome};
use crate::auth::{Authenticator, PrincipalKind};
use crate::net::{Body, ForwardedHeadersSeen, Peer};
use crate::server::Server;
use crate::telemetry::{
    CountedTransport, HttpKey, HttpWatch, Reason, Refusals, Telemetry, WorkerCounters,
};

/// The MCP endpoint of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub server: Arc<Server>,
    pub config: HttpConfig,
}

/// Everything that is served over HTTP, shared by all workers.
#[derive(Debug)]
pub(crate) struct Router {
    pub endpoint: Endpoint,
    /// Endpoints beside it, by their names.
    pub endpoints: HashMap<Box<str>, Endpoint>,
    pub authenticator: Arc<Authenticator>,
    /// Server certificates; `None` for plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Path prefix of the public URL, accepted in front of each path.
    pub prefix: Box<str>,
    pub(crate) guard: HostGuard,
    /// Which headers with client addresses the trusted proxies write.
    pub(super) forwarded: ForwardedHeadersSeen,
    pub layers: Layers,
    pub telemetry: Telemetry,
    pub refusals: Refusals,
}

impl Router {
    /// The path of a request below the server's root, without the path of the public URL. A proxy may have removed that, so a
    /// path that begins like it and is not served without it is kept: `/tools/NAME` behind a public URL that ends with `/tools`.
    #[inline]
    pub(super) fn path<'u>(&self, uri: &'u Uri) -> &'u str {
        let path = uri.path();
        if self.prefix.is_empty() {
            return path;
        }
        match path.strip_prefix(&*self.prefix) {
            Some(rest)
                if rest.starts_with('/') && (self.serves(rest) || self.layers.has_route(path)) =>
            {
                rest
            }
            _ => path,
        }
    }

    fn serves(&self, path: &str) -> bool {
        let layers = &self.layers;
        Route::of(path).is_some() || layers.has_route(path) || layers.public_at(path).is_some()
    }

    /// Begins to count a request, if requests are counted.
    #[inline]
    pub(super) fn watch(
        &self,
        counters: &Arc<WorkerCounters>,
        head: &Parts,
        route: Option<&Route>,
    ) -> Option<HttpWatch> {
        self.telemetry.counts().then(|| {
            let route = route.map(Route::counted).unwrap_or_default();
            let transport = CountedTransport::of(head.version);
            let key = HttpKey::new(route, &head.method, transport, 0);
            HttpWatch::begin(Arc::clone(counters), key)
        })
    }

    /// Returns the summary of an admitted head. The summary of a repeated head is reused.
    #[inline]
    pub(super) fn admit_head(
        &self,
        connection: &ConnectionState,
        head: &Parts,
        route: Option<&Route>,
    ) -> Result<AdmittedHead, HttpError> {
        if connection.is_ambiguous() {
            return Err(HttpError::Framing);
        }
        let summaries = connection.summaries();
        let Some(repeated) = summaries.repeated_by(connection.request_number()) else {
            return self.admit(head, route).map(AdmittedHead::Now);
        };
        if let Some(known) = summaries.recall(repeated)
            && known.count() == head.headers.len()
        {
            return Ok(AdmittedHead::Before(known));
        }
        let summary = self.admit(head, route)?;
        if head.method != Method::POST || route != Some(Route::MCP) {
            return Ok(AdmittedHead::Now(summary));
        }
        let kept = Rc::new(summary.to_keep());
        summaries.remember(repeated, Rc::clone(&kept));
        Ok(AdmittedHead::Before(kept))
    }

    /// Checks that apply to every request, before any layer sees it.
    #[inline]
    fn admit(&self, head: &Parts, route: Option<&Route>) -> Result<Summary, HttpError> {
        let fields = Fields::read(&head.headers);
        // Before checks whose rejections leave the connection open.
        fields.check_framing(head.version == Version::HTTP_10)?;
        fields.check_size(&head.uri, &self.endpoint.config.limits)?;
        fields.check_names()?;
        if head.version == Version::HTTP_2 {
            fields.check_authority(&head.uri)?;
        } else if head.version == Version::HTTP_11 && head.uri.authority().is_some() {
            // HTTP/1.1 requires Host beside a full URL too (RFC 9112 section 3.2.2).
            fields.host.value()?.ok_or(HttpError::HostMissing)?;
        }
        if route.is_some_and(Route::is_for_everybody) {
            HostGuard::check_form(head, &fields)?;
        } else {
            self.guard.check(&head.uri, &fields)?;
        }
        if head.method == Method::OPTIONS && self.asks_in_vain(head, route) {
            return Err(HttpError::OriginForeign);
        }
        Ok(fields.summary())
    }

    /// Returns true if the origin may call but may not read the response: another port of this machine that is not
    /// configured. Layers may handle CORS themselves.
    #[cold]
    fn asks_in_vain(&self, head: &Parts, route: Option<&Route>) -> bool {
        HostGuard::is_preflight(head)
            && head.headers.contains_key(ORIGIN)
            && self.guard.reader(&head.headers).is_none()
            && self.layers.is_empty()
            && route.is_some_and(|route| !route.has(&Method::OPTIONS))
    }

    /// Builds the response to a rejected request, counts the rejection, and adds an audit entry unless the server did.
    #[cold]
    pub(super) fn reject(
        &self,
        rejection: Rejection,
        (route, uri): (Option<&Route>, &Uri),
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
                entry.endpoint = route.and_then(|route| self.endpoint_name(route, uri));
                entry.principal = rejection.principal().cloned();
                // Callers over a rate limit have no bound of their own.
                let is_known = outcome == Outcome::Denied
                    && entry
                        .principal
                        .as_ref()
                        .is_some_and(|principal| principal.kind() != PrincipalKind::Anonymous);
                match is_known {
                    true => audit.note(entry),
                    false => audit.note_stranger(entry),
                }
            }
        }
        if let Some(limit) = row.hit {
            server.limits.hits.count(limit);
        }
        let rpc = rejection.speaks_rpc(route);
        rejection.into_response(rpc)
    }

    /// Returns the name of the endpoint that a request is for, if it is for one.
    #[cold]
    fn endpoint_name(&self, route: &Route, uri: &Uri) -> Option<Box<str>> {
        match route.place {
            RouteTarget::Guarded(Protected::NamedEndpoint) => {
                let known = self.endpoints.get_key_value(self.name_in(uri));
                known.map(|(name, _)| name.clone())
            }
            RouteTarget::Guarded(
                Protected::Mcp | Protected::Respond | Protected::Legacy | Protected::Rest(_),
            ) => Some("mcp".into()),
            _ => None,
        }
    }

    /// Rejects a request for its head. Logs a forbidden `Host` or `Origin`, which operators have to configure.
    #[cold]
    pub(super) fn reject_head(
        &self,
        error: HttpError,
        (route, head): (Option<&Route>, &Parts),
        client: Peer,
    ) -> Response<Body> {
        if matches!(
            error,
            HttpError::HostForeign | HttpError::OriginForeign | HttpError::OriginUnnamed
        ) {
            self.guard.report(error.setting(), head);
        }
        self.reject(error.into(), (route, &head.uri), Some(client))
    }

    /// Counts a head that hyper has rejected. One that can be framed in two ways is also recorded.
    #[cold]
    pub(super) fn note_invalid_head(&self, connection: &ConnectionState) {
        let shared = connection.shared();
        let is_reported = shared.is_ambiguous(connection.request_number());
        if shared.is_ambiguous(u32::MAX) && !is_reported {
            let rejection = HttpError::Framing.into();
            drop(self.reject(rejection, (None, &Uri::default()), Some(shared.peer())));
        } else {
            self.refusals.count(Reason::Head);
        }
    }

    /// Client address of a request, taken from the headers of trusted proxies.
    #[inline]
    pub(super) fn client(&self, peer: Peer, headers: &HeaderMap) -> Peer {
        let trusted = &self.endpoint.config.trusted_proxies;
        if trusted.is_empty() {
            return peer;
        }
        let address = trusted.client_by(peer.address, headers, &self.forwarded);
        if address == peer.address {
            peer
        } else {
            address.into()
        }
    }

    /// Finds the route of a path. The endpoint accepts a trailing slash, since a redirect would lose the body.
    #[inline]
    pub(super) fn find(&self, uri: &Uri) -> Option<&'static Route> {
        let path = self.path(uri);
        // Nearly all requests are for this one, over which nothing takes precedence.
        if path == Route::MCP.path {
            return Some(Route::MCP);
        }
        if self.layers.public_at(path).is_some() {
            return Some(Route::PUBLIC);
        }
        match Route::of(path) {
            Some((route, _)) if route.place != RouteTarget::Open(Open::Playground) => Some(route),
            // A route of the application takes precedence.
            known => match self.custom_route(uri) {
                Some(_) => Some(Route::CUSTOM),
                None => known.map(|(route, _)| route),
            },
        }
    }

    /// The application's handler of a path, which the application may have added with the prefix or without it.
    pub(super) fn custom_route(&self, uri: &Uri) -> Option<&Arc<dyn RouteHandler>> {
        let routes = &self.layers.routes;
        let handler = routes.get(self.path(uri));
        handler.or_else(|| routes.get(uri.path()))
    }

    /// The part of a path that its route names: a tool or an endpoint.
    pub(super) fn name_in<'u>(&self, uri: &'u Uri) -> &'u str {
        Route::of(self.path(uri)).map_or("", |(_, name)| name)
    }
}
