//! One request on the MCP path: the steps, in order.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use super::config::HttpConfig;
use super::connection::{ConnectionState, Phase};
use super::headers::Summary;
use super::status::{Rejection, respond};
use crate::auth::Principal;
use crate::net::{Body, read_capped};
use crate::server::{self, HttpHead, Local, Server, VersionHeader};

/// The MCP endpoint of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) server: Arc<Server>,
    pub(crate) config: HttpConfig,
    pub(crate) principal: Arc<Principal>,
}

const METHODS: &str = "POST, DELETE";
const METHODS_STATELESS: &str = "POST";

impl Endpoint {
    /// Any request from head to answer. Every refusal becomes an answer here, so that hyper never sees an error
    /// and never drops a connection on our account.
    #[inline]
    pub(crate) async fn handle(
        &self,
        local: &Local,
        connection: Option<&Arc<ConnectionState>>,
        summary: Summary,
        request: Request<Body>,
    ) -> Response<Body> {
        let result = match *request.method() {
            Method::POST => self.post(local, connection, summary, request).await,
            Method::DELETE => self.delete(local, summary, request.headers()),
            // Nothing is streamed outside of answers, so there is no stream to open (LH-03, MH-01).
            _ => Err(not_allowed(summary)),
        };
        result.unwrap_or_else(Rejection::into_rpc)
    }

    #[inline]
    async fn post(
        &self,
        local: &Local,
        connection: Option<&Arc<ConnectionState>>,
        summary: Summary,
        request: Request<Body>,
    ) -> Result<Response<Body>, Rejection> {
        summary.check_media(self.config.strict_accept)?;
        let (head, body) = request.into_parts();
        let body = self.read(connection, body).await?;
        let head = HttpHead {
            principal: Arc::clone(&self.principal),
            headers: head.headers,
            version: summary.version,
            takes_streams: summary.takes_streams(),
        };
        let reply = self.server.handle_http(local, head, body).await;
        Ok(respond(reply, connection))
    }

    /// Ends a session (LH-09).
    fn delete(
        &self,
        local: &Local,
        summary: Summary,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Rejection> {
        if summary.version == VersionHeader::Stateless {
            return Err(not_allowed(summary));
        }
        let ended = server::session_id(headers, None)
            .and_then(|id| self.server.end_session(local, &self.principal, id));
        Ok(match ended {
            Ok(()) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Err(reply) => respond(reply, None),
        })
    }

    /// The whole body, if it is not too large and comes in time. On HTTP/1 the connection's own clock decides
    /// that, on HTTP/2 a timer for each stream.
    #[inline]
    async fn read(
        &self,
        connection: Option<&Arc<ConnectionState>>,
        body: Body,
    ) -> Result<Bytes, Rejection> {
        let limits = &self.config.limits;
        let read = read_capped(body, limits.body_bytes);
        match connection {
            Some(connection) if connection.phase() != Phase::Multiplexed => {
                let mut read = pin!(read);
                let body = poll_fn(|cx| match read.as_mut().poll(cx) {
                    Poll::Ready(body) => Poll::Ready(body.map_err(Rejection::from)),
                    Poll::Pending if connection.body_overdue(cx) => {
                        Poll::Ready(Err(Rejection::BodyTooSlow))
                    }
                    Poll::Pending => Poll::Pending,
                });
                let body = body.await;
                connection.body_is_read();
                body
            }
            _ => {
                let limit = Duration::from_secs(u64::from(limits.body_seconds));
                match tokio::time::timeout(limit, read).await {
                    Ok(body) => Ok(body?),
                    Err(_) => Err(Rejection::BodyTooSlow),
                }
            }
        }
    }
}

fn not_allowed(summary: Summary) -> Rejection {
    Rejection::MethodNotAllowed(if summary.version == VersionHeader::Stateless {
        METHODS_STATELESS
    } else {
        METHODS
    })
}
