//! The connections of a worker: those that are adopted, served and swept.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::super::admission::Admission;
use super::super::conn_driver::{Drain, until_retired};
use super::super::connection::{ConnectionState, Event};
use super::super::context::{ConnService, WorkerService};
use super::super::h1_conn;
use super::super::h2_conn::H2Conn;
use super::super::socket::{ConnPermits, Socket, Stream};
use super::super::tcp_conn::TcpConn;
use super::super::tls::Tls;
use crate::limit::Limit;

/// Time that a silent connection is still polled after shutdown begins.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Everything needed to serve one connection.
pub(super) struct ConnTask {
    pub(super) state: Rc<ConnectionState>,
    pub(super) service: Rc<WorkerService>,
    pub(super) drain: Arc<Drain>,
}

impl ConnTask {
    /// Serves the connection until it ends, with its polls scheduled by the admission.
    pub(super) async fn in_turn(
        self,
        stream: TcpConn,
        guards: ConnPermits,
        admission: Rc<Admission>,
    ) {
        let state = Rc::clone(&self.state);
        let mut serving = pin!(self.run(stream, guards));
        std::future::poll_fn(|cx| match admission.lets_pass(&state, cx) {
            true => serving.as_mut().poll(cx),
            false => Poll::Pending,
        })
        .await;
    }

    /// Serves the connection until it ends.
    async fn run(self, stream: TcpConn, guards: ConnPermits) {
        let begun = match &self.service.router.tls {
            None => {
                let begun = speaks_http2(stream.as_stream(), &self.state, &self.drain).await;
                begun.map(|speaks| speaks.map(|http2| (Stream::Plain(stream), http2)))
            }
            Some(tls) => self.shake_hands(tls, stream).await,
        };
        match begun {
            Ok(Some((stream, multiplexed))) => {
                serve(self, stream, multiplexed, guards).await;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection ended before its first request");
            }
        }
    }

    /// Performs the TLS handshake; returns true if HTTP/2 was negotiated. `None` on a timeout, or if the client disconnected or
    /// was silent until shutdown.
    async fn shake_hands(&self, tls: &Tls, stream: TcpConn) -> io::Result<Option<(Stream, bool)>> {
        // The handshake has a time limit of its own.
        self.state.apply(Event::TlsHandshake);
        let accepting = async {
            match first_bytes(stream.as_stream(), &self.drain, &mut [0]).await? {
                0 => Ok(None),
                _ => tls.accept(stream).await.map(Some),
            }
        };
        let accepted = tokio::select! {
            biased;
            accepted = accepting => accepted?,
            () = tls.handshake_timeout() => {
                let limits = &self.service.router.endpoint.server.limits;
                limits.hits.count(Limit::HandshakeSeconds);
                None
            }
        };
        let Some(accepted) = accepted else {
            return Ok(None);
        };
        if let Some(certificate) = accepted.certificate {
            self.state.shared().set_certificate(certificate);
        }
        Ok(Some((
            Stream::Tls(Box::new(accepted.stream)),
            accepted.multiplexed,
        )))
    }
}

/// Serves HTTP until the connection ends.
async fn serve(serving: ConnTask, stream: Stream, multiplexed: bool, guards: ConnPermits) {
    let ConnTask {
        state,
        service,
        drain,
    } = serving;
    let router = Arc::clone(&service.router);
    let limits = &router.endpoint.config.limits;
    state.apply(Event::Begins { http2: multiplexed });
    let resets = (
        limits.http2_resets_per_second,
        limits.http2_control_frames_per_second,
    );
    let socket = Socket::new(stream, Rc::clone(&state), guards, resets);
    let hits = &router.endpoint.server.limits.hits;
    let served = Rc::new(ConnService {
        service,
        connection: Rc::clone(&state),
    });
    if multiplexed {
        let connection = H2Conn::new(socket, served, limits);
        let Some(ended) = until_retired(connection, &drain, &state).await else {
            let limit = state.restless_for().unwrap_or(Limit::Http2ResetRate);
            hits.count(limit);
            tracing::debug!(
                limit = limit.setting(),
                "an HTTP/2 connection was closed, because its client cancels or resets too many requests"
            );
            return;
        };
        if let Err(error) = ended {
            if let Some(limit) = error.limit() {
                hits.count(limit);
            }
            tracing::trace!(%error, "a connection ended early");
        }
        return;
    }
    h1_conn::serve(socket, served, &drain).await;
}

/// Returns true if the client begins with the HTTP/2 preface. `None` if it disconnected, or must be closed, before it
/// sent anything.
async fn speaks_http2(
    stream: &TcpStream,
    state: &ConnectionState,
    drain: &Drain,
) -> io::Result<Option<bool>> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut beginning = [0; PREFACE.len()];
    loop {
        let seen = first_bytes(stream, drain, &mut beginning).await?;
        let seen = &beginning[..seen];
        match seen {
            [] => return Ok(None),
            _ if !PREFACE.starts_with(seen) => return Ok(Some(false)),
            _ if seen.len() == PREFACE.len() => return Ok(Some(true)),
            // The client has closed its sending side.
            _ if stream.ready(Interest::READABLE).await?.is_read_closed() => return Ok(None),
            // Nothing was asked for yet.
            _ if drain.has_begun() => return Ok(None),
            // Only part of the preface has arrived; waiting for more would require consuming it.
            _ => {
                state.apply(Event::PartOfHead);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Copies the first bytes of a client, without consuming them. Returns 0 if it disconnected, or sent nothing before shutdown
/// began.
async fn first_bytes(stream: &TcpStream, drain: &Drain, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        let news = drain.news();
        let peek = stream.peek(bytes);
        if drain.has_begun() {
            // Bytes sent before shutdown began are still served.
            return tokio::time::timeout(LAST_LOOK, peek).await.unwrap_or(Ok(0));
        }
        tokio::select! {
            seen = peek => return seen,
            () = news => {}
        }
    }
}
