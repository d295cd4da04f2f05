//! Stages of a request after its head was admitted: authenticate, read the body, dispatch, wait for the reply.
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Route
//!     Route --> Authenticate: unknown credentials
//!     Route --> ReadBody
//!     Route --> Done: page without authentication
//!     Authenticate --> ReadBody
//!     Authenticate --> Reply: no body
//!     ReadBody --> Reply: the server waits
//!     ReadBody --> Respond: another handler
//!     ReadBody --> Done
//!     Reply --> Done
//!     Respond --> Done
//! ```
//!
//! [`Progress`] lives on the stack of the request's first poll, in which nearly all requests complete. It is boxed only
//! when a stage has to wait.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::authentication::{Authentication, Caller};
use super::context::{Dispatched, Origin, Outcome, RequestContext, Waiting};
use super::headers::Summary;
use super::rejection::{HttpError, Rejection};
use super::request_body::{BodyReader, UnreadBody};
use super::route::{Open, Route, RouteTarget};
use crate::limit::Limit;
use crate::net::Body;
use crate::server::Reply;
use crate::telemetry::CountedTransport;

/// Progress of one request.
pub(super) struct Progress {
    /// `None` if the path does not exist.
    route: Option<&'static Route>,
    caller: Caller,
    stage: Stage,
    /// True once the whole body was read.
    is_read: bool,
    unread: UnreadBody,
}

enum Stage {
    /// Find the route, check the limits and find the caller.
    Route,
    Authenticate(Authentication),
    /// The caller is known.
    Admitted,
    ReadBody(BodyReader),
    /// The server works on its reply.
    Reply(Waiting<Reply>),
    /// Another handler works on its response.
    Respond(Waiting<Outcome>),
}

/// What the last stage leaves. A response is large and is moved as a whole, so it is built from the reply last.
enum Finished {
    Reply(Reply),
    Response(Box<Response<Body>>),
}

impl Progress {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            route: None,
            caller: Caller::Everybody,
            stage: Stage::Route,
            is_read: false,
            unread: UnreadBody::default(),
        }
    }

    /// Returns true if the request waits for its body.
    pub(super) fn reads_body(&self) -> bool {
        matches!(self.stage, Stage::ReadBody(_))
    }

    /// Continues with the request. A rejection becomes a response here, and is counted and recorded.
    #[inline]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (origin, summary): (&Origin<'_>, &Summary),
        head: &mut Parts,
        body: &mut Body,
    ) -> Poll<Response<Body>> {
        if let Some(polled) = self.unread.poll_held(cx, head.version, body) {
            return polled;
        }
        let finished = ready!(self.advance(cx, (origin, summary), head, body));
        let outcome = match finished {
            Ok(Finished::Reply(reply)) => self.respond(reply, (origin, summary), head),
            Ok(Finished::Response(response)) => Ok(*response),
            Err(rejection) => Err(rejection),
        };
        let response = match outcome {
            Ok(response) => response,
            Err(rejection) => self.reject(rejection, origin, head),
        };
        match self.is_read {
            true => Poll::Ready(response),
            false => self.unread.poll_drop(cx, head.version, body, response),
        }
    }

    #[cold]
    fn reject(&self, rejection: Rejection, origin: &Origin<'_>, head: &Parts) -> Response<Body> {
        let rejection = match self.caller.principal(origin) {
            Some(principal) => origin.with_needed_scopes(rejection, principal, head),
            None => rejection,
        };
        origin
            .router
            .reject(rejection, (self.route, &head.uri), origin.client)
    }

    /// Runs stage after stage until one has to wait.
    #[inline]
    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        (origin, summary): (&Origin<'_>, &Summary),
        head: &mut Parts,
        body: &mut Body,
    ) -> Poll<Result<Finished, Rejection>> {
        loop {
            let dispatched = match &mut self.stage {
                Stage::Route => match self.find(origin, head) {
                    Ok(None) => continue,
                    Ok(Some(response)) => return Poll::Ready(Ok(Finished::Response(response))),
                    Err(rejection) => return Poll::Ready(Err(rejection)),
                },
                Stage::Authenticate(found) => {
                    let found = ready!(found.as_mut().poll(cx));
                    let route = self.route.unwrap_or(Route::MCP);
                    self.caller = origin.authenticated(found, route, head)?;
                    self.stage = Stage::Admitted;
                    continue;
                }
                Stage::Admitted => {
                    let route = self.route.unwrap_or(Route::MCP);
                    let bytes = match origin.begin_body(route, summary, head, body)? {
                        None => None,
                        Some(mut reader) => match reader.poll(cx, origin, body) {
                            Poll::Ready(read) => {
                                let bytes = read?;
                                self.is_read = true;
                                Some(bytes)
                            }
                            // The reader is stored only if it has to wait: it is large.
                            Poll::Pending => {
                                self.stage = Stage::ReadBody(reader);
                                return Poll::Pending;
                            }
                        },
                    };
                    self.dispatch(cx, (origin, summary), head, bytes)?
                }
                Stage::ReadBody(reader) => {
                    let bytes = ready!(reader.poll(cx, origin, body))?;
                    self.is_read = true;
                    self.dispatch(cx, (origin, summary), head, Some(bytes))?
                }
                Stage::Reply(reply) => Dispatched::Ready(ready!(reply.as_mut().poll(cx))),
                Stage::Respond(response) => Dispatched::done(ready!(response.as_mut().poll(cx))?),
            };
            match dispatched {
                Dispatched::Ready(reply) => return Poll::Ready(Ok(Finished::Reply(reply))),
                Dispatched::Done(response) => return Poll::Ready(Ok(Finished::Response(response))),
                Dispatched::Reply(reply) => self.stage = Stage::Reply(reply),
                Dispatched::Respond(response) => self.stage = Stage::Respond(response),
            }
        }
    }

    /// Finds the route, checks the limits of the client's address, and finds the caller. Returns the response of a page
    /// that needs no authentication.
    #[inline]
    fn find(
        &mut self,
        origin: &Origin<'_>,
        head: &mut Parts,
    ) -> Result<Option<Box<Response<Body>>>, Rejection> {
        let router = origin.router;
        let Some(route) = router.find(head) else {
            return Err(HttpError::NotFound.into());
        };
        self.route = Some(route);
        let open = match route.place {
            RouteTarget::Guarded(_) => None,
            RouteTarget::Open(open) => Some(open),
        };
        if let Some(open) = open
            && open != Open::Public
        {
            let page = origin.open_page(open, route, head)?;
            return Ok(Some(Box::new(page)));
        }
        if let Some(client) = origin.client
            && let Err(refused) = router.endpoint.server.limits.arrive(client.address)
            && !(refused.limit == Limit::Memory && route.frees_memory(&head.method))
        {
            return Err(HttpError::Limited(refused).into());
        }
        self.stage = match open {
            Some(_) => Stage::Admitted,
            None => match origin.known_caller(route, head)? {
                Some(caller) => {
                    self.caller = caller;
                    Stage::Admitted
                }
                None => Stage::Authenticate(origin.authenticate(head)),
            },
        };
        Ok(None)
    }

    #[inline]
    fn dispatch(
        &self,
        cx: &mut Context<'_>,
        from: (&Origin<'_>, &Summary),
        head: &mut Parts,
        body: Option<Bytes>,
    ) -> Result<Dispatched, Rejection> {
        if self.route == Some(Route::PUBLIC) {
            return Ok(from.0.dispatch_public(head, body.unwrap_or_default()));
        }
        let (route, request) = self.request(from, head)?;
        request.dispatch(cx, route, head, body)
    }

    /// Builds the response to a reply of the server.
    #[inline]
    fn respond(&self, reply: Reply, from: (&Origin<'_>, &Summary), head: &mut Parts) -> Outcome {
        let (route, request) = self.request(from, head)?;
        request.respond(reply, route, head)
    }

    #[inline]
    fn request<'r>(
        &'r self,
        (origin, summary): (&'r Origin<'r>, &'r Summary),
        head: &Parts,
    ) -> Result<(&'static Route, RequestContext<'r>), Rejection> {
        let (Some(route), Some(principal)) = (self.route, self.caller.principal(origin)) else {
            return Err(HttpError::Internal.into());
        };
        let request = RequestContext {
            origin,
            principal,
            summary,
            wire: CountedTransport::of(head.version),
        };
        Ok((route, request))
    }
}
