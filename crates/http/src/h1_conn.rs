//! An HTTP/1 connection: hyper parses its requests and writes its responses. The bodies of responses tell the connection
//! while the server has nothing to send.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::config::HEADER_BYTES_MAX;
use super::conn_driver::{Drain, until_drained};
use super::connection::{ConnectionState, Event};
use super::context::ConnService;
use super::framing::READ_MAX;
use super::pipeline::RequestFuture;
use super::socket::Socket;
use crate::limit::Limit;
use crate::net::{Body, BodyError};

/// Serves requests until the connection ends.
pub(super) async fn serve(socket: Socket, served: Rc<ConnService>, drain: &Drain) {
    let ConnService {
        service,
        connection: state,
    } = &*Rc::clone(&served);
    let respond = move |request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let connection = Rc::clone(&served.connection);
        let response = RequestFuture::new(Rc::clone(&served), head, body);
        response.map_ok(|response| response.map(|body| H1ResponseBody::new(body, connection)))
    };
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(HEADER_BYTES_MAX)
        .max_buf_size(READ_MAX)
        .serve_connection(TokioIo::new(socket), service_fn(respond));
    let end = |connection: Pin<&mut _>| http1::Connection::graceful_shutdown(connection);
    let Err(error) = until_drained(connection, drain, end).await else {
        return;
    };
    // hyper responds to both in the same way and does not report the difference.
    if error.is_parse_too_large() {
        let endpoint = &service.router.endpoint;
        let limit = match state.received() {
            received if received <= endpoint.config.limits.header_bytes as u64 => {
                Limit::HeaderFields
            }
            _ => Limit::HeaderBytes,
        };
        endpoint.server.limits.hits.count(limit);
    } else if error.is_parse() {
        service.router.note_invalid_head(state);
    }
    tracing::trace!(%error, "a connection ended early");
}

/// Body of a response. While the server has nothing to send, the connection is not idle, and may be silent for any time.
struct H1ResponseBody {
    body: Body,
    connection: Rc<ConnectionState>,
    /// True once the server had nothing to send.
    is_stream: bool,
}

impl H1ResponseBody {
    #[inline]
    fn new(body: Body, connection: Rc<ConnectionState>) -> Self {
        Self {
            body,
            connection,
            is_stream: false,
        }
    }
}

impl HttpBody for H1ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending() && !self.is_stream {
            self.is_stream = true;
            self.connection.apply(Event::StreamBegins);
        }
        polled
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for H1ResponseBody {
    #[inline]
    fn drop(&mut self) {
        if self.is_stream {
            self.connection.apply(Event::StreamEnds);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;
    use crate::transport::http::connection::Phase;
    use crate::transport::http::connection::WorkerClock;

    /// Gives these pieces; nothing where there is `None`.
    struct Pieces(VecDeque<Option<&'static str>>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            match self.0.pop_front() {
                Some(Some(piece)) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                Some(None) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    /// A response that has begun, and the connection that it is sent on.
    fn begun(pieces: &[Option<&'static str>]) -> (H1ResponseBody, Rc<ConnectionState>) {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let connection = ConnectionState::new(Arc::<WorkerClock>::default(), peer.into(), 1_000);
        connection.apply(Event::Request);
        connection.response_is_ready();
        let connection = Rc::new(connection);
        let body = Body::new(Pieces(pieces.iter().copied().collect()));
        let body = H1ResponseBody::new(body, Rc::clone(&connection));
        (body, connection)
    }

    fn poll(body: &mut H1ResponseBody) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(body).poll_frame(cx).is_ready()
    }

    #[test]
    fn a_connection_is_a_stream_while_the_server_has_nothing_to_send() {
        let (mut body, connection) = begun(&[Some("one"), None, Some("two"), None]);
        assert!(poll(&mut body));
        assert_eq!(connection.phase(), Phase::Writing);
        connection.has_written(true, false);
        assert_eq!(connection.phase(), Phase::Idle);
        assert!(!poll(&mut body));
        assert_eq!(connection.phase(), Phase::Stream);
        // What is written of a stream does not make the connection idle.
        assert!(poll(&mut body));
        connection.has_written(true, false);
        assert!(!poll(&mut body));
        assert_eq!(connection.phase(), Phase::Stream);
        drop(body);
        assert_eq!(connection.phase(), Phase::Writing);
    }

    #[test]
    fn a_response_that_is_complete_is_no_stream() {
        let (mut body, connection) = begun(&[Some("all")]);
        assert!(poll(&mut body) && poll(&mut body));
        drop(body);
        connection.has_written(true, false);
        assert_eq!(connection.phase(), Phase::Idle);
    }
}
