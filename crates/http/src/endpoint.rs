//! Messages on the MCP path.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use super::config::{HttpConfig, HttpLimits};
use super::connection::Event;
use super::context::{Origin, RequestContext};
use super::headers::Summary;
use super::rejection::HttpError;
use super::timer::RunningSeconds;
use crate::limit::{LARGE_BYTES, Limit, LimitExceeded};
use crate::net::{Body, ReadError, Reader};
use crate::server::{MaybeReady, Server, VersionHeader};
use crate::telemetry::{CountedTransport, memory_bytes};

/// The MCP endpoint of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub server: Arc<Server>,
    pub config: HttpConfig,
}

/// Outcome of a request other than POST.
pub(super) enum OtherMethod {
    Reply(MaybeReady),
    Response(Response<Body>),
}

const METHODS: &str = "GET, POST, DELETE";
pub(super) const METHODS_WITHOUT_STREAMS: &str = "POST, DELETE";
const METHODS_STATELESS: &str = "POST";

impl Endpoint {
    /// Begins to read a message, if its head allows for one.
    #[inline]
    pub(super) fn begin_message(
        &self,
        summary: &Summary,
        body: &Body,
    ) -> Result<BodyReader, HttpError> {
        summary.check_media(self.config.strict_accept)?;
        self.begin_body(body)
    }

    /// Begins to read a body within the limits of size and time.
    #[inline]
    pub(super) fn begin_body(&self, body: &Body) -> Result<BodyReader, HttpError> {
        Ok(BodyReader {
            reader: Reader::new(body, self.config.limits.body_bytes)?,
            counted: 0,
            watch: None,
        })
    }

    /// Handles a message that was read.
    #[inline]
    pub(super) fn handle(
        &self,
        cx: &mut Context<'_>,
        request: &RequestContext<'_>,
        headers: &mut HeaderMap,
        body: &Bytes,
    ) -> MaybeReady {
        let mut head = request.head(headers);
        self.server
            .handle_http(cx, request.origin.worker, &mut head, body)
    }

    /// Handles other methods: opens a session stream (LH-03), ends a session (LH-09), or rejects the request.
    pub(super) fn handle_other(
        &self,
        method: &Method,
        request: &RequestContext<'_>,
        headers: &mut HeaderMap,
    ) -> Result<OtherMethod, HttpError> {
        let summary = request.summary;
        let version = summary.mcp.version();
        // Streams of calls can be resumed where sessions have no notification streams (LH-13).
        let has_streams =
            self.server.has_standing_streams() || headers.contains_key("last-event-id");
        let opens = method == Method::GET && has_streams;
        if version == VersionHeader::Stateless || !opens && method != Method::DELETE {
            // MH-01
            return Err(HttpError::MethodNotAllowed(match version {
                VersionHeader::Stateless => METHODS_STATELESS,
                _ if self.server.has_standing_streams() => METHODS,
                _ => METHODS_WITHOUT_STREAMS,
            }));
        }
        let mut head = request.head(headers);
        head.wire = CountedTransport::default();
        let worker = request.origin.worker;
        if opens {
            // The client does not follow the specification: a browser or a probe.
            if !summary.mcp.names_session() && !summary.names_streams() {
                return Err(HttpError::MethodNotAllowed(METHODS_STATELESS));
            }
            if !head.takes_streams {
                return Err(HttpError::StreamNotAcceptable);
            }
            return Ok(OtherMethod::Reply(
                match self.server.open_stream(worker, &head, version) {
                    Ok(opening) => MaybeReady::Pending(opening),
                    Err(refusal) => MaybeReady::Ready(refusal),
                },
            ));
        }
        Ok(match self.server.end_session(worker, &head, version) {
            Ok(()) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                OtherMethod::Response(response)
            }
            Err(reply) => OtherMethod::Reply(MaybeReady::Ready(reply)),
        })
    }
}

/// A body being read. On HTTP/1 the sweep of the connection limits its time; on HTTP/2, and inside the layers of the
/// application, it has a timer.
pub(super) struct BodyReader {
    reader: Reader,
    /// Bytes that were counted as memory.
    counted: usize,
    /// Allocated only on demand, since the body mostly arrives with the head.
    watch: Option<Box<StreamWatch>>,
}

/// Checks the arrival rate of a stream's body each second, as the sweep does for HTTP/1 connections.
struct StreamWatch(RunningSeconds);

impl StreamWatch {
    /// Completes with the limit that was exceeded; `received` is the number of bytes so far.
    fn poll(&mut self, cx: &mut Context<'_>, received: usize, limits: &HttpLimits) -> Poll<Limit> {
        loop {
            let age = ready!(self.0.poll_next(cx));
            if limits.body_seconds <= age {
                return Poll::Ready(Limit::BodySeconds);
            }
            let rate = u64::from(limits.body_bytes_per_second);
            let least = u64::from(age.saturating_sub(5)) * rate;
            if (received as u64) < least {
                return Poll::Ready(Limit::BodyRate);
            }
        }
    }
}

impl BodyReader {
    #[inline]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        origin: &Origin<'_>,
        body: &mut Body,
    ) -> Poll<Result<Bytes, HttpError>> {
        let read = self.reader.poll(cx, body);
        let read = match origin.connection.is_ambiguous() {
            true => Err(HttpError::Framing),
            false => match (self.count(&read, origin), read) {
                (Err(refused), _) => Err(HttpError::Limited(refused)),
                (Ok(()), Poll::Ready(body)) => body.map_err(HttpError::from),
                (Ok(()), Poll::Pending) => {
                    Err(HttpError::BodyTooSlow(ready!(self.overdue(cx, origin))))
                }
            },
        };
        if let Some(connection) = origin.connection.local() {
            connection.apply(Event::BodyRead);
        }
        Poll::Ready(read)
    }

    /// Counts what has been read of a large body, which needs memory.
    #[inline]
    fn count(
        &mut self,
        read: &Poll<Result<Bytes, ReadError>>,
        origin: &Origin<'_>,
    ) -> Result<(), LimitExceeded> {
        let received = match read {
            Poll::Ready(Ok(body)) => body.len(),
            _ => self.reader.received(),
        };
        let new = received.saturating_sub(self.counted);
        if new < LARGE_BYTES {
            return Ok(());
        }
        self.counted = received;
        let limits = &origin.router.endpoint.server.limits;
        limits.receive(new, memory_bytes)
    }

    /// Completes with the limit of time that the body has exceeded.
    fn overdue(&mut self, cx: &mut Context<'_>, origin: &Origin<'_>) -> Poll<Limit> {
        match origin.connection.local() {
            Some(connection) if !connection.is_http2() => connection
                .body_overdue(cx)
                .map_or(Poll::Pending, Poll::Ready),
            _ => {
                let watch = self
                    .watch
                    .get_or_insert_with(|| Box::new(StreamWatch(RunningSeconds::begin())));
                let limits = &origin.router.endpoint.config.limits;
                watch.poll(cx, self.reader.received(), limits)
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
        let began = tokio::time::Instant::now();
        let mut watch = StreamWatch(RunningSeconds::begin());
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
