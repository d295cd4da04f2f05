//! Dispatch of an authenticated request to the handler of its path.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};

use super::context::{Origin, RequestContext};
use super::custom_routes;
use super::dispatched::{Dispatched, Outcome};
use super::endpoint::{BodyReader, Endpoint, OtherMethod};
use super::headers::Summary;
use super::legacy;
use super::rejection::{HttpError, Rejection};
use super::reply;
use super::rest;
use super::route::{Protected, Rest, Route, RouteTarget};
use crate::auth::PrincipalKind;
use crate::limit::ClientLimits;
use crate::net::Body;
use crate::server::Reply;

impl Origin<'_> {
    /// The endpoint of a guarded route.
    #[inline]
    fn endpoint(&self, guarded: Protected, head: &Parts) -> Result<&Endpoint, HttpError> {
        if guarded != Protected::NamedEndpoint {
            return Ok(&self.router.endpoint);
        }
        let name = self.router.name_in(&head.uri);
        self.router.endpoints.get(name).ok_or(HttpError::NotFound)
    }

    /// Checks that a route is served with this method, and begins to read the body if the handler needs one.
    #[inline]
    pub(super) fn begin_body(
        &self,
        route: &Route,
        summary: &Summary,
        head: &Parts,
        body: &Body,
    ) -> Result<Option<BodyReader>, Rejection> {
        let main = &self.router.endpoint;
        let RouteTarget::Guarded(guarded) = route.place() else {
            return Ok(Some(main.begin_body(body)?));
        };
        let is_served = match guarded {
            Protected::Respond => main.config.respond_alias,
            Protected::Legacy => main.config.legacy_sse,
            Protected::Rest(Rest::Tools | Rest::Tool | Rest::OpenApi) => {
                main.config.rest || !route.has(&head.method)
            }
            _ => true,
        };
        if !is_served {
            return Err(HttpError::NotFound.into());
        }
        let names_methods = !matches!(
            guarded,
            Protected::Mcp | Protected::NamedEndpoint | Protected::Custom
        );
        if names_methods && !route.has(&head.method) {
            return Err(HttpError::MethodNotAllowed(route.methods).into());
        }
        let is_post = head.method == Method::POST;
        Ok(match guarded {
            Protected::Mcp | Protected::NamedEndpoint | Protected::Respond if is_post => {
                let endpoint = self.endpoint(guarded, head)?;
                Some(endpoint.begin_message(summary, body)?)
            }
            Protected::Legacy if is_post => {
                summary.check_body()?;
                legacy::session_id(head.uri.query()).ok_or(HttpError::SessionIdMissing)?;
                Some(main.begin_body(body)?)
            }
            Protected::Rest(Rest::Tool) | Protected::Custom => Some(main.begin_body(body)?),
            Protected::Mcp
            | Protected::NamedEndpoint
            | Protected::Respond
            | Protected::Legacy
            | Protected::Rest(_)
            | Protected::Page(_) => None,
        })
    }

    /// Hands a request on a path without authentication to the part of the program that serves it.
    pub(super) fn dispatch_public(&self, head: &mut Parts, body: Bytes) -> Dispatched {
        let path = self.router.path(&head.uri);
        let Some(public) = self.router.layers.public_at(path).cloned() else {
            return Dispatched::done(HttpError::NotFound.into_problem());
        };
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.headers_mut() = std::mem::take(&mut head.headers);
        request.extensions_mut().insert(ClientLimits {
            limits: Arc::clone(&self.router.endpoint.server.limits),
            address: self.client.map(|client| client.address),
        });
        let response = public.respond(path, request);
        Dispatched::Respond(Box::pin(async move { Ok(response.await) }))
    }
}

impl RequestContext<'_> {
    /// Hands a request to the handler of its route. `body` is `None` if the handler needs none.
    #[inline]
    pub(super) fn dispatch(
        &self,
        cx: &mut Context<'_>,
        route: &Route,
        head: &mut Parts,
        body: Option<Bytes>,
    ) -> Result<Dispatched, Rejection> {
        let guarded = match route.place() {
            RouteTarget::Guarded(guarded) => guarded,
            RouteTarget::Open(_) => return Err(HttpError::NotFound.into()),
        };
        match (guarded, body) {
            (Protected::Mcp | Protected::NamedEndpoint | Protected::Respond, Some(body)) => {
                let endpoint = self.origin.endpoint(guarded, head)?;
                Ok(endpoint.handle(cx, self, &mut head.headers, &body).into())
            }
            (guarded, body) => self.dispatch_other(cx, guarded, head, body),
        }
    }

    /// Handles everything other than a posted message.
    fn dispatch_other(
        &self,
        cx: &mut Context<'_>,
        guarded: Protected,
        head: &mut Parts,
        body: Option<Bytes>,
    ) -> Result<Dispatched, Rejection> {
        let router = self.origin.router;
        match guarded {
            Protected::Mcp | Protected::NamedEndpoint | Protected::Respond => {
                let endpoint = self.origin.endpoint(guarded, head)?;
                let method = head.method.clone();
                let handled = endpoint.handle_other(&method, self, &mut head.headers)?;
                Ok(match handled {
                    OtherMethod::Reply(reply) => reply.into(),
                    OtherMethod::Response(response) => Dispatched::done(response),
                })
            }
            Protected::Legacy => {
                let seen = self.origin.seen(&head.headers, &head.uri);
                legacy::dispatch(self, cx, seen, body)
            }
            Protected::Rest(rest) => {
                let name = router.name_in(&head.uri);
                let call = rest::RestCall {
                    rest,
                    name,
                    query: head.uri.query(),
                };
                call.dispatch(self, cx, &mut head.headers, body)
            }
            Protected::Page(_) if self.principal.kind() == PrincipalKind::Anonymous => {
                Err(HttpError::ForOperators.into())
            }
            Protected::Page(page) => Ok(Dispatched::done(
                page.respond(&router.endpoint.server, true),
            )),
            Protected::Custom => self.dispatch_custom(head, body.unwrap_or_default()),
        }
    }

    /// Hands a request to a handler of the application.
    fn dispatch_custom(&self, head: &mut Parts, body: Bytes) -> Result<Dispatched, Rejection> {
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        *request.headers_mut() = std::mem::take(&mut head.headers);
        if let Some(extensions) = &self.summary.extensions {
            *request.extensions_mut() = (**extensions).clone();
        }
        request.extensions_mut().insert(Arc::clone(self.principal));
        let handler = self.origin.router.custom_route(&head.uri);
        let handler = Arc::clone(handler.ok_or(HttpError::NotFound)?);
        Ok(Dispatched::Respond(Box::pin(async move {
            Ok(custom_routes::respond(&*handler, request).await)
        })))
    }

    /// Builds the response to a reply of the server, in the format of the route.
    #[inline]
    pub(super) fn respond(&self, reply: Reply, route: &Route, head: &mut Parts) -> Outcome {
        match route.place() {
            RouteTarget::Guarded(Protected::Rest(rest)) => {
                rest::respond(rest, reply, self, &head.headers)
            }
            _ => reply::respond(reply, self.summary, &mut head.headers),
        }
    }
}
