//! One request on the MCP path: the steps, in order.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use super::config::HttpConfig;
use super::connection::{ConnectionState, Phase};
use super::headers::Summary;
use super::service::Entered;
use super::status::{Rejection, respond};
use crate::limit::Limit;
use crate::net::{Body, read_capped};
use crate::server::{HttpHead, Local, Server, VersionHeader};
use crate::telemetry::Wire;

/// The MCP endpoint of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) server: Arc<Server>,
    pub(crate) config: HttpConfig,
}

const METHODS: &str = "GET, POST, DELETE";
const METHODS_WITHOUT_STREAMS: &str = "POST, DELETE";
const METHODS_STATELESS: &str = "POST";

impl Endpoint {
    /// A message from head to answer.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "each comes from another place, and none is kept"
    )]
    pub(super) async fn post(
        &self,
        entered: &Entered<'_>,
        local: &Local,
        connection: Option<&Arc<ConnectionState>>,
        summary: &Summary,
        wire: Wire,
        headers: &mut HeaderMap,
        body: &mut Body,
    ) -> Result<Response<Body>, Rejection> {
        summary.check_media(self.config.strict_accept)?;
        let body = self.read(connection, body).await?;
        let handled = poll_fn(|cx| {
            let mut head = HttpHead {
                principal: entered.principal,
                headers,
                mcp: &summary.mcp,
                takes_streams: summary.takes_streams(),
                wire,
                peer: entered.client,
            };
            Poll::Ready(self.server.handle_http(cx, local, &mut head, &body))
        });
        let reply = handled.await.reply().await;
        Ok(respond(reply, connection))
    }

    /// Anything else: a stream of a session (LH-03), its end (LH-09), or a refusal.
    pub(super) async fn other(
        &self,
        entered: &Entered<'_>,
        method: &Method,
        local: &Local,
        connection: Option<&Arc<ConnectionState>>,
        summary: &Summary,
        headers: &mut HeaderMap,
    ) -> Result<Response<Body>, Rejection> {
        let version = summary.mcp.version();
        let opens = method == Method::GET && self.server.has_standing_streams();
        if version == VersionHeader::Stateless || !opens && method != Method::DELETE {
            // MH-01
            return Err(Rejection::MethodNotAllowed(match version {
                VersionHeader::Stateless => METHODS_STATELESS,
                _ if self.server.has_standing_streams() => METHODS,
                _ => METHODS_WITHOUT_STREAMS,
            }));
        }
        let head = HttpHead {
            principal: entered.principal,
            headers,
            mcp: &summary.mcp,
            takes_streams: summary.takes_streams(),
            wire: Wire::default(),
            peer: entered.client,
        };
        if opens {
            if !head.takes_streams {
                return Err(Rejection::NotAcceptable);
            }
            let reply = match self.server.open_stream(local, &head, version) {
                Ok(opening) => opening.await,
                Err(refusal) => refusal,
            };
            return Ok(respond(reply, connection));
        }
        Ok(match self.server.end_session(local, &head) {
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
    pub(super) async fn read(
        &self,
        connection: Option<&Arc<ConnectionState>>,
        body: &mut Body,
    ) -> Result<Bytes, Rejection> {
        let limits = &self.config.limits;
        let read = read_capped(body, limits.body_bytes);
        match connection {
            Some(connection) if connection.phase() != Phase::Multiplexed => {
                let mut read = pin!(read);
                let body = poll_fn(|cx| match read.as_mut().poll(cx) {
                    Poll::Ready(body) => Poll::Ready(body.map_err(Rejection::from)),
                    Poll::Pending => match connection.body_overdue(cx) {
                        Some(limit) => Poll::Ready(Err(Rejection::BodyTooSlow(limit))),
                        None => Poll::Pending,
                    },
                });
                let body = body.await;
                connection.body_is_read();
                body
            }
            _ => {
                let mut read = pin!(read);
                // Mostly the body has come with the head, and no timer is needed.
                let first = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                if let Poll::Ready(body) = first {
                    return Ok(body?);
                }
                let limit = Duration::from_secs(u64::from(limits.body_seconds));
                match tokio::time::timeout(limit, read).await {
                    Ok(body) => Ok(body?),
                    Err(_) => Err(Rejection::BodyTooSlow(Limit::BodySeconds)),
                }
            }
        }
    }
}
