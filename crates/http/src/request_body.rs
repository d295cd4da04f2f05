//! The body of a request: read within its limits, or dropped if nothing reads it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Response, Version};
use http_body::Body as _;

use super::config::HttpLimits;
use super::connection::Event;
use super::context::Origin;
use super::rejection::HttpError;
use super::router::Endpoint;
use super::timer::RunningSeconds;
use crate::limit::{LARGE_BYTES, Limit, LimitExceeded};
use crate::net::{Body, ReadError, Reader};
use crate::telemetry::memory_bytes;

/// The body of a request, for the handler that needs it.
pub(super) struct RequestBody<'b> {
    pub(super) body: &'b mut Body,
    /// The reader, while it waits.
    pub(super) reader: &'b mut Option<BodyReader>,
}

impl RequestBody<'_> {
    /// Reads the body within the limits of an endpoint. A handler whose body has not arrived is called again.
    #[inline]
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        origin: &Origin<'_>,
        endpoint: &Endpoint,
    ) -> Poll<Result<Bytes, HttpError>> {
        let reader = match self.reader {
            Some(reader) => reader,
            None => {
                let limits = &endpoint.config.limits;
                self.reader.insert(BodyReader::new(self.body, limits)?)
            }
        };
        let read = ready!(reader.poll(cx, origin, self.body));
        *self.reader = None;
        Poll::Ready(read)
    }
}

/// A body being read. On HTTP/1 the sweep of the connection limits its time; on HTTP/2, and inside the layers of the
/// application, it has a timer.
pub(super) struct BodyReader {
    reader: Reader,
    /// Bytes that were counted as memory.
    counted: usize,
    /// The timer, which begins only on demand, since the body mostly arrives with the head.
    seconds: Option<RunningSeconds>,
}

/// Checks the arrival rate of a body each second, as the sweep does for HTTP/1 connections. Completes with the limit that was
/// exceeded; `received` is the number of bytes so far.
fn poll_overdue(
    seconds: &mut RunningSeconds,
    cx: &mut Context<'_>,
    received: usize,
    limits: &HttpLimits,
) -> Poll<Limit> {
    loop {
        let age = ready!(seconds.poll_next(cx));
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

impl BodyReader {
    #[inline]
    fn new(body: &Body, limits: &HttpLimits) -> Result<Self, HttpError> {
        Ok(Self {
            reader: Reader::new(body, limits.body_bytes)?,
            counted: 0,
            seconds: None,
        })
    }

    #[inline]
    fn poll(
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
        if read.is_ok() {
            // Nothing of it is left to be dropped.
            *body = Body::empty();
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
        let received = self.reader.received();
        match origin.connection.local() {
            Some(connection) if !connection.is_http2() => connection
                .body_overdue(cx, received)
                .map_or(Poll::Pending, Poll::Ready),
            _ => {
                let seconds = self.seconds.get_or_insert_with(RunningSeconds::begin);
                let limits = &origin.router.endpoint.config.limits;
                poll_overdue(seconds, cx, received, limits)
            }
        }
    }
}

/// Maximum number of bytes of a body that are dropped so that its connection stays open.
const DROPPED_MAX: usize = 64 * 1024;

/// The response to a request whose body nothing reads. What has arrived of the body is dropped, so that its HTTP/1 connection
/// stays open, or the window of its HTTP/2 connection.
pub(super) struct UnreadBody {
    /// The response, until the chunks that have arrived are dropped.
    response: Option<Box<Response<Body>>>,
    /// Number of bytes that were dropped.
    dropped: usize,
}

impl UnreadBody {
    pub(super) fn new(response: Response<Body>) -> Self {
        Self {
            response: Some(Box::new(response)),
            dropped: 0,
        }
    }

    /// Completes with the response. If more of the body is to come, the response announces the end of its connection (RFC 9112
    /// section 9.6): hyper closes it, and clients would send their next request on it.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        version: Version,
        body: &mut Body,
    ) -> Poll<Response<Body>> {
        let Some(mut response) = self.response.take() else {
            return Poll::Pending;
        };
        if Version::HTTP_2 <= version {
            *body = Body::empty();
            return Poll::Ready(*response);
        }
        if !response.headers().contains_key(CONNECTION)
            && let Some(length) = drop_arrived(cx, body)
        {
            self.dropped += length;
            // hyper gives a chunk at each poll, so more of them may have arrived.
            if 0 < length && self.dropped <= DROPPED_MAX {
                cx.waker().wake_by_ref();
                self.response = Some(response);
                return Poll::Pending;
            }
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Poll::Ready(*response)
    }
}

/// Drops what has arrived of a body. Returns its length if more is to come.
fn drop_arrived(cx: &mut Context<'_>, body: &mut Body) -> Option<usize> {
    let mut length = 0;
    while !body.is_end_stream() {
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => length += frame.data_ref().map_or(0, Bytes::len),
            Poll::Ready(None) => return None,
            Poll::Ready(Some(Err(_))) => return Some(0),
            Poll::Pending => return Some(length),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// The second in which a body on a stream is given up, and why; `received` says how much has come by when.
    async fn given_up(received: impl Fn(u64) -> usize) -> (u64, Limit) {
        let limits = HttpLimits::default();
        let began = tokio::time::Instant::now();
        let mut seconds = RunningSeconds::begin();
        let limit = poll_fn(|cx| {
            let received = received(began.elapsed().as_secs());
            poll_overdue(&mut seconds, cx, received, &limits)
        })
        .await;
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
