//! Request steps on the MCP path, in order.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use tokio::time::{Instant, Sleep, sleep_until};

use super::config::{HttpConfig, HttpLimits};
use super::connection::{ConnectionState, Phase};
use super::error_response::{Rejection, respond, respond_in, respond_in_events};
use super::headers::Summary;
use super::router::Caller;
use crate::limit::Limit;
use crate::net::{Body, Reader};
use crate::server::{HttpHead, MaybeReady, Reply, Server, VersionHeader, WorkerState};
use crate::telemetry::Wire;

/// The MCP endpoint of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub server: Arc<Server>,
    pub config: HttpConfig,
}

/// Caller, worker and wire of a message.
pub(super) type Sender<'a> = (&'a Caller<'a>, &'a WorkerState, Wire);

const METHODS: &str = "GET, POST, DELETE";
const METHODS_WITHOUT_STREAMS: &str = "POST, DELETE";
const METHODS_STATELESS: &str = "POST";

impl Endpoint {
    /// Handles a message from head to response.
    pub(super) async fn post(
        &self,
        by: Sender<'_>,
        connection: Option<&Arc<ConnectionState>>,
        summary: &Summary,
        headers: &mut HeaderMap,
        body: &mut Body,
    ) -> Result<Response<Body>, Rejection> {
        let reading = self.begin_to_post(summary, body)?;
        self.read_on((reading, body), by, connection, summary, headers)
            .await
    }

    /// Begins to read a message, if its head allows for one.
    #[inline]
    pub(super) fn begin_to_post(
        &self,
        summary: &Summary,
        body: &Body,
    ) -> Result<Reading, Rejection> {
        summary.check_media(self.config.strict_accept)?;
        self.begin_to_read(body)
    }

    /// Reads the rest of a message and returns its response.
    pub(super) async fn read_on(
        &self,
        (mut reading, body): (Reading, &mut Body),
        by: Sender<'_>,
        connection: Option<&Arc<ConnectionState>>,
        summary: &Summary,
        headers: &mut HeaderMap,
    ) -> Result<Response<Body>, Rejection> {
        let body = poll_fn(|cx| reading.poll(cx, &self.config.limits, connection, body)).await?;
        let handled = poll_fn(|cx| Poll::Ready(self.handle(cx, by, summary, headers, &body)));
        let reply = handled.await.reply().await;
        Ok(answer(reply, connection, summary, headers))
    }

    /// Handles a message that was read.
    #[inline]
    pub(super) fn handle(
        &self,
        cx: &mut Context<'_>,
        (entered, local, wire): Sender<'_>,
        summary: &Summary,
        headers: &mut HeaderMap,
        body: &Bytes,
    ) -> MaybeReady {
        let mut head = HttpHead {
            principal: entered.principal,
            headers,
            mcp: &summary.mcp,
            extensions: summary.extensions.as_ref(),
            takes_streams: summary.takes_streams(),
            wire,
            peer: entered.client,
        };
        self.server.handle_http(cx, local, &mut head, body)
    }

    /// Handles other methods: opens a session stream (LH-03), ends a session (LH-09), or rejects the request.
    pub(super) async fn other(
        &self,
        entered: &Caller<'_>,
        method: &Method,
        local: &WorkerState,
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
            extensions: summary.extensions.as_ref(),
            takes_streams: summary.takes_streams(),
            wire: Wire::default(),
            peer: entered.client,
        };
        if opens {
            // The client does not follow the specification: a browser or a probe.
            if !summary.mcp.names_session() && !summary.names_streams() {
                return Err(Rejection::MethodNotAllowed(METHODS_STATELESS));
            }
            if !head.takes_streams {
                return Err(Rejection::NotAcceptable);
            }
            let reply = match self.server.open_stream(local, &head, version) {
                Ok(opening) => opening.await,
                Err(refusal) => refusal,
            };
            return Ok(respond(reply, connection));
        }
        Ok(match self.server.end_session(local, &head, version) {
            Ok(()) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Err(reply) => respond(reply, None),
        })
    }

    /// Reads the whole body within the limits of size and time.
    pub(super) async fn read(
        &self,
        connection: Option<&Arc<ConnectionState>>,
        body: &mut Body,
    ) -> Result<Bytes, Rejection> {
        let mut reading = self.begin_to_read(body)?;
        poll_fn(|cx| reading.poll(cx, &self.config.limits, connection, body)).await
    }

    #[inline]
    fn begin_to_read(&self, body: &Body) -> Result<Reading, Rejection> {
        let limits = &self.config.limits;
        Ok(Reading {
            reader: Reader::new(body, limits.body_bytes)?,
            watch: None,
        })
    }
}

/// Builds the response in a format that the client accepts.
#[inline]
pub(super) fn answer(
    reply: Reply,
    connection: Option<&Arc<ConnectionState>>,
    summary: &Summary,
    headers: &mut HeaderMap,
) -> Response<Body> {
    if summary.takes_nothing_but_streams() {
        return respond_in_events(reply, connection, headers);
    }
    respond_in(reply, connection, headers)
}

/// A body being read. On HTTP/1 the connection's timer limits it; on HTTP/2 each stream has a timer.
pub(super) struct Reading {
    reader: Reader,
    /// Allocated only on demand, since the body mostly arrives with the head.
    watch: Option<Box<StreamWatch>>,
}

/// Checks the arrival rate of a stream's body each second, as the sweep does for HTTP/1 connections.
struct StreamWatch {
    began: Instant,
    second: Pin<Box<Sleep>>,
}

impl StreamWatch {
    fn begin() -> Self {
        let began = Instant::now();
        Self {
            began,
            second: Box::pin(sleep_until(began + Duration::from_secs(1))),
        }
    }

    /// Completes with the limit that was exceeded; `received` is the number of bytes so far.
    fn poll(&mut self, cx: &mut Context<'_>, received: usize, limits: &HttpLimits) -> Poll<Limit> {
        loop {
            ready!(self.second.as_mut().poll(cx));
            let age = self.began.elapsed().as_secs();
            if u64::from(limits.body_seconds) <= age {
                return Poll::Ready(Limit::BodySeconds);
            }
            let least = age.saturating_sub(5) * u64::from(limits.body_bytes_per_second);
            if (received as u64) < least {
                return Poll::Ready(Limit::BodyRate);
            }
            let next = self.began + Duration::from_secs(age + 1);
            self.second.as_mut().reset(next);
        }
    }
}

impl Reading {
    #[inline]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        limits: &HttpLimits,
        connection: Option<&Arc<ConnectionState>>,
        body: &mut Body,
    ) -> Poll<Result<Bytes, Rejection>> {
        let read = self.reader.poll(cx, body);
        match (read, connection) {
            (Poll::Ready(body), connection) => {
                if let Some(connection) = connection {
                    connection.body_is_read();
                }
                Poll::Ready(body.map_err(Rejection::from))
            }
            (Poll::Pending, Some(connection)) if connection.phase() != Phase::Http2 => {
                if let Some(limit) = connection.body_overdue(cx) {
                    connection.body_is_read();
                    return Poll::Ready(Err(Rejection::BodyTooSlow(limit)));
                }
                Poll::Pending
            }
            (Poll::Pending, _) => {
                let watch = self
                    .watch
                    .get_or_insert_with(|| Box::new(StreamWatch::begin()));
                let limit = ready!(watch.poll(cx, self.reader.received(), limits));
                Poll::Ready(Err(Rejection::BodyTooSlow(limit)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// The second in which a body on a stream is given up, and why; `received` says how much has come by when.
    async fn given_up(received: impl Fn(u64) -> usize) -> (u64, Limit) {
        let limits = HttpLimits::default();
        let mut watch = StreamWatch::begin();
        let began = watch.began;
        let limit = poll_fn(|cx| watch.poll(cx, received(began.elapsed().as_secs()), &limits));
        let limit = limit.await;
        (began.elapsed().as_secs(), limit)
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_on_streams_have_five_seconds_and_then_a_least_speed() {
        assert_eq!(given_up(|_| 0).await, (6, Limit::BodyRate));
        assert_eq!(given_up(|_| 1023).await, (6, Limit::BodyRate));
        assert_eq!(given_up(|_| 1024).await, (7, Limit::BodyRate));
        // All the time that there is, and no more of it.
        let just_enough = |second: u64| 1024 * second.saturating_sub(5) as usize;
        assert_eq!(given_up(just_enough).await, (30, Limit::BodySeconds));
        assert_eq!(given_up(|_| 1 << 20).await, (30, Limit::BodySeconds));
    }
}
