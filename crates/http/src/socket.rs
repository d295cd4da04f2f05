//! The socket of a connection, plain or with TLS, which notes what happens on it.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::connection::{ConnectionState, Event, Phase};
use super::framing::FramingCheck;
use super::rapid_reset::ResetGuard;
use super::tcp_conn::TcpConn;
use super::tls::{self, TlsStream};
use crate::limit::Limit;
use crate::net;

/// A socket that notes what happens on it.
pub struct Socket {
    stream: Stream,
    state: Rc<ConnectionState>,
    /// Guards released when the socket closes.
    guards: Option<ConnPermits>,
    /// True unless all available data was read.
    unread: bool,
    /// True if the client sends nothing any more.
    ended: bool,
    framing: FramingCheck,
    /// Rate of stream resets. HTTP/2 has frames, whose heads are not ambiguous.
    resets: Option<Box<ResetGuard>>,
    /// True unless the last write was complete.
    unfinished: bool,
    /// True if the last flush was incomplete.
    unflushed: bool,
    /// Number of the last HTTP/1 request that was served before the end of the input was reported.
    served_at_end: u32,
    /// True if the end of the input is reported once the client has taken what was written.
    end_waits: bool,
}

/// Places that a connection has for as long as its socket is open.
pub(crate) type ConnPermits = Box<dyn Send + Sync>;

impl Socket {
    /// Creates the socket. `resets` and `frames` apply to HTTP/2: permitted stream resets and frames without payload
    /// per second.
    pub fn new(
        stream: Stream,
        state: Rc<ConnectionState>,
        guards: ConnPermits,
        (resets, frames): (u32, u32),
    ) -> Self {
        let multiplexed = state.is_http2();
        Self {
            stream,
            guards: Some(guards),
            unread: false,
            ended: false,
            framing: FramingCheck::default(),
            resets: multiplexed.then(|| Box::new(ResetGuard::new(resets, frames))),
            unfinished: false,
            unflushed: false,
            served_at_end: 0,
            end_waits: false,
            state,
        }
    }

    /// Reads no more than `room` bytes.
    fn read_some(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        room: usize,
    ) -> Poll<io::Result<()>> {
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let bytes = part.filled().len();
        buffer.advance(bytes);
        Poll::Ready(Ok(()))
    }

    /// Returns true if the end of the input of an HTTP/1 connection must not be reported yet. hyper ends the connection there,
    /// even if the request before it was not polled or its response is not completely sent. Clients that close only their
    /// sending side, such as `nc -N`, wait for that response. A request that is still pending after that is abandoned.
    #[cold]
    fn defers_end(&mut self, cx: &Context<'_>) -> bool {
        if self.state.is_http2() || self.framing.is_in_body() {
            return false;
        }
        if self.state.is_stalled() {
            self.end_waits = true;
            return true;
        }
        let request = self.state.request_number();
        let is_unserved = std::mem::replace(&mut self.served_at_end, request) != request
            && matches!(self.state.phase(), Phase::Body | Phase::Working);
        if is_unserved {
            cx.waker().wake_by_ref();
        }
        is_unserved
    }

    #[inline]
    fn has_written(&mut self, written: &Poll<io::Result<usize>>, wanted: impl FnOnce() -> usize) {
        let progress = written.is_ready();
        if self.resets.is_some() {
            self.unfinished = !matches!(written, Poll::Ready(Ok(bytes)) if *bytes == wanted());
        }
        self.state.has_written(progress, self.framing.is_in_head());
    }

    /// Sends GOAWAY with ENHANCE_YOUR_CALM to an HTTP/2 client (RFC 9113 sections 6.8 and 7), which hyper sends only
    /// for its own reasons. Sends nothing if the client does not read or the last write is incomplete.
    #[cold]
    fn tell_to_calm_down(&mut self) {
        const GOAWAY: [u8; 17] = [
            0, 0, 8, 7, 0, 0, 0, 0, 0, // eight bytes of a frame of this type
            0x7f, 0xff, 0xff, 0xff, // any stream may have been looked at
            0, 0, 0, 11, // ENHANCE_YOUR_CALM
        ];
        if self.unfinished {
            return;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(_)) = Pin::new(&mut self.stream).poll_write(cx, &GOAWAY) {
            let _: Poll<io::Result<()>> = Pin::new(&mut self.stream).poll_flush(cx);
        }
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.shared().holds_back() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let mut room = usize::MAX;
        if let Some(watch) = &self.resets {
            let left = self.state.room();
            if left == 0 {
                // Other connections must run before more is read.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            room = left as usize + watch.rest_of_frame();
        }
        let read = match room < buffer.remaining() {
            true => self.read_some(cx, buffer, room),
            false => Pin::new(&mut self.stream).poll_read(cx, buffer),
        };
        let socket = &mut *self;
        let has_bytes = before < buffer.filled().len();
        socket.unread = read.is_ready() && has_bytes;
        socket.ended |= read.is_ready() && !has_bytes;
        if !has_bytes && matches!(read, Poll::Ready(Ok(()))) && socket.defers_end(cx) {
            return Poll::Pending;
        }
        if read.is_pending() {
            socket.state.apply(Event::WaitsForBytes {
                in_head: socket.framing.is_in_head(),
            });
            return read;
        }
        match &mut socket.resets {
            None => {
                let findings = socket.framing.read(&buffer.filled()[before..]);
                socket.state.notes(findings);
            }
            Some(watch) => {
                let read = &buffer.filled()[before..];
                socket.state.takes_room(read.len());
                let resets = watch.inspect(read, socket.state.now());
                if 0 < resets.count {
                    socket.state.takes_back(resets.count);
                }
                if resets.too_many || resets.too_idle {
                    socket.state.is_too_restless(match resets.too_many {
                        true => Limit::Http2ResetRate,
                        false => Limit::Http2Frames,
                    });
                    // The data is discarded: the task that drives the connection ends it.
                    buffer.set_filled(before);
                    return Poll::Pending;
                }
            }
        }
        socket.state.has_read(buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.state.shared().holds_back() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.has_written(&written, || bytes.len());
        written
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state.shared().holds_back() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.has_written(&written, || pieces.iter().map(|piece| piece.len()).sum());
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_pending() || self.unflushed || self.end_waits {
            self.unflushed = flushed.is_pending();
            let in_head = self.framing.is_in_head();
            self.state.has_written(flushed.is_ready(), in_head);
            if self.end_waits && flushed.is_ready() {
                self.end_waits = false;
                cx.waker().wake_by_ref();
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.state.shared().is_cut() && self.state.is_stalled() {
            self.stream.discard_unsent();
        }
        let restless = self.state.is_restless();
        if restless {
            self.tell_to_calm_down();
        }
        // A client of HTTP/2 may open streams until it has read GOAWAY. They would reset the connection, and the client would
        // not learn which of its requests were served (RFC 9113, section 6.8).
        let may_open_streams = self.state.has_preface() && !self.ended;
        let more_comes = self.unread || self.framing.is_in_body() || may_open_streams;
        if !more_comes || self.state.shared().is_cut() {
            return;
        }
        // The last response was sent before everything was read. The client gets time to receive it.
        if tokio::runtime::Handle::try_current().is_ok() {
            let stream = std::mem::replace(&mut self.stream, Stream::Gone);
            let guards = self.guards.take();
            net::spawn_local(async move {
                match restless {
                    true => stream.hold().await,
                    false => stream.linger().await,
                }
                drop(guards);
            });
        }
    }
}

/// Bytes from and to a client, in clear: a socket, plain or with TLS.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpConn),
    Tls(Box<TlsStream>),
    /// The socket was handed over.
    Gone,
}

impl Stream {
    /// Shuts down writing, then reads and discards input for a while. Closing a socket with unread bytes resets it, and
    /// the client may lose the last response.
    async fn linger(mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        const BYTES_MAX: u64 = 64 << 20;
        let lingering = async {
            self.shutdown().await?;
            let mut rest = self.take(BYTES_MAX);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        let _ = tokio::time::timeout(PATIENCE, lingering).await;
    }

    /// Makes the end of the socket discard what the client has not read. The system would keep it for minutes.
    fn discard_unsent(&self) {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => tls::socket_of(stream),
            Self::Gone => return,
        };
        let socket = SockRef::from(stream.as_stream());
        if let Err(error) = socket.set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "SO_LINGER cannot be set");
        }
    }

    /// Shuts down writing and stops reading, for clients that would keep sending. Keeping them waiting costs nothing.
    async fn hold(mut self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let _ = tokio::time::timeout(PATIENCE, self.shutdown()).await;
        tokio::time::sleep(PATIENCE).await;
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
            Self::Gone => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, pieces),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Gone => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            Self::Gone => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::http::config::HttpLimits;
    use crate::transport::http::connection::TimeoutKind;
    use crate::transport::http::connection::WorkerClock;

    /// A connection of HTTP/2, and its client.
    async fn connected() -> (Socket, Rc<ConnectionState>, TcpStream) {
        connected_by(&Arc::default()).await
    }

    async fn connected_by(clock: &Arc<WorkerClock>) -> (Socket, Rc<ConnectionState>, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("a client");
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let state = ConnectionState::new(Arc::clone(clock), peer.into(), 1_000);
        state.apply(Event::Begins { http2: true });
        state.preface_is_complete();
        let state = Rc::new(state);
        let socket = Socket::new(
            Stream::Plain(TcpConn::new(stream, Rc::default())),
            Rc::clone(&state),
            Box::new(()),
            (10, 10_000),
        );
        (socket, state, client)
    }

    /// Every byte that is there has been read, and hyper has looked once more: so it is where a body is refused by the
    /// length that its head says.
    #[tokio::test(flavor = "local")]
    async fn who_is_refused_in_the_middle_of_a_body_sees_the_answer_before_the_end() {
        let (mut socket, state, mut client) = connected().await;
        socket.resets = None;
        state.apply(Event::Begins { http2: false });
        let head = b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n";
        client.write_all(head).await.expect("sent");
        let mut space = [0; 1024];
        poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut ReadBuf::new(&mut space)))
            .await
            .expect("a head");
        let cx = &mut Context::from_waker(Waker::noop());
        let again = Pin::new(&mut socket).poll_read(cx, &mut ReadBuf::new(&mut space));
        assert!(again.is_pending());
        socket
            .write_all(b"HTTP/1.1 413\r\n\r\n")
            .await
            .expect("sent");
        drop(socket);
        client.write_all(&vec![0; 1_000_000]).await.expect("taken");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("no reset");
        assert_eq!(answer, "HTTP/1.1 413\r\n\r\n");
    }

    /// A queued write counts as written, so a client that reads nothing is only noticed by what the socket did not accept.
    #[tokio::test(flavor = "local")]
    async fn a_client_that_does_not_read_small_responses_stalls_its_connection() {
        let clock = Arc::new(WorkerClock::default());
        let (mut socket, state, mut client) = connected_by(&clock).await;
        socket.resets = None;
        state.apply(Event::Begins { http2: false });
        let hits = crate::limit::LimitCounters::new(&crate::telemetry::Metrics::default());
        let limits = HttpLimits::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let mut written = 0;
        while let Poll::Ready(bytes) = Pin::new(&mut socket).poll_write(cx, &[b'x'; 1024]) {
            written += bytes.expect("an open socket");
            tokio::task::yield_now().await;
            if Pin::new(&mut socket).poll_flush(cx).is_pending() {
                break;
            }
        }
        let overdue = |seconds: u32| {
            for _ in 0..seconds {
                clock.tick();
            }
            state.overdue(&limits, &hits)
        };
        assert_eq!(overdue(limits.write_stall_seconds), None);
        assert_eq!(overdue(1), Some(TimeoutKind::Write));
        let mut read = vec![0; written];
        let flush = poll_fn(|cx| Pin::new(&mut socket).poll_flush(cx));
        let (flushed, _) = tokio::join!(flush, client.read_exact(&mut read));
        flushed.expect("an open socket");
        assert_eq!(overdue(limits.write_stall_seconds), None);
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_client_does_not_read_is_discarded_with_its_connection() {
        let (mut socket, state, mut client) = connected().await;
        socket.resets = None;
        state.apply(Event::Begins { http2: false });
        let bytes = vec![b'x'; 64 * 1024];
        socket.write_all(&bytes).await.expect("sent");
        let cx = &mut Context::from_waker(Waker::noop());
        while let Poll::Ready(written) = Pin::new(&mut socket).poll_write(cx, &bytes) {
            written.expect("an open socket");
        }
        assert!(state.is_stalled());
        state.shared().cut();
        drop(socket);
        let end = client.read_to_end(&mut Vec::new()).await;
        let error = end.expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test(flavor = "local")]
    async fn who_opens_streams_before_it_has_read_goaway_reads_it() {
        let (mut socket, _, mut client) = connected().await;
        socket.write_all(b"GOAWAY").await.expect("sent");
        drop(socket);
        for _ in 0..3 {
            client.write_all(&[0; 20_000]).await.expect("no reset");
            tokio::task::yield_now().await;
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("no reset");
        assert_eq!(answer, "GOAWAY");
    }

    #[tokio::test(flavor = "local")]
    async fn nobody_waits_for_a_client_that_has_closed_its_side() {
        let (mut socket, state, mut client) = connected().await;
        client.shutdown().await.expect("closed");
        state.begin_look();
        let mut space = [0; 32];
        poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut ReadBuf::new(&mut space)))
            .await
            .expect("the end");
        assert!(socket.ended && !socket.unread);
    }

    /// What is read until others have their turn.
    async fn poll_once(socket: &mut Socket, state: &ConnectionState) -> usize {
        state.begin_look();
        let mut read = 0;
        poll_fn(|cx| {
            let mut space = vec![0; 8192];
            let mut buffer = ReadBuf::new(&mut space);
            while Pin::new(&mut *socket).poll_read(cx, &mut buffer).is_ready() {
                read += buffer.filled().len();
                buffer.clear();
            }
            // Nothing comes any more that it would be woken for; whoever is to look again wakes it at once.
            match read {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
        read
    }

    #[tokio::test(flavor = "local")]
    async fn little_is_read_at_a_time_of_who_is_not_trusted() {
        let (mut socket, state, mut client) = connected().await;
        // The preface, a frame of 10,000 bytes, and many of none.
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend([0, 0x27, 0x10, 0x55, 0, 0, 0, 0, 0]);
        sent.resize(sent.len() + 10_000, 0);
        let whole = sent.len();
        sent.extend(vec![0; 9 * 3_900]);
        client.write_all(&sent).await.expect("sent");
        assert_eq!(poll_once(&mut socket, &state).await, 24 + 512);
        // The rest of a frame, as much as is asked for.
        assert_eq!(poll_once(&mut socket, &state).await, 8192);
        let rest = whole - (24 + 512 + 8192);
        assert_eq!(poll_once(&mut socket, &state).await, rest + 512);
        assert_eq!(poll_once(&mut socket, &state).await, 512);
        state.has_answered();
        assert_eq!(poll_once(&mut socket, &state).await, 32 * 1024);
        drop(client);
    }

    #[tokio::test(flavor = "local")]
    async fn nothing_is_read_or_written_while_streams_begin() {
        fn write(socket: &mut Socket, bytes: &[u8]) -> [Option<usize>; 2] {
            let cx = &mut Context::from_waker(Waker::noop());
            let pieces = [io::IoSlice::new(bytes)];
            let one = Pin::new(&mut *socket).poll_write(cx, bytes);
            let other = Pin::new(&mut *socket).poll_write_vectored(cx, &pieces);
            [one, other].map(|written| match written {
                Poll::Ready(written) => Some(written.expect("an open socket")),
                Poll::Pending => None,
            })
        }
        let (mut socket, state, mut client) = connected().await;
        client.write_all(b"PRI * HTTP/2.0").await.expect("sent");
        if let Stream::Plain(stream) = &socket.stream {
            stream.as_stream().readable().await.expect("an open socket");
        }
        let hits = crate::limit::LimitCounters::new(&crate::telemetry::Metrics::default());
        state.shared().hold_back();
        let mut space = [0; 32];
        let mut buffer = ReadBuf::new(&mut space);
        let cx = &mut Context::from_waker(Waker::noop());
        state.begin_look();
        let read = Pin::new(&mut socket).poll_read(cx, &mut buffer);
        assert!(read.is_pending() && buffer.filled().is_empty());
        assert_eq!(write(&mut socket, b"x"), [None, None]);
        // Nobody takes that for a client that does not read.
        assert_eq!(state.overdue(&HttpLimits::default(), &hits), None);
        assert!(state.shared().take_begun() && !state.shared().take_begun());
        assert_eq!(poll_once(&mut socket, &state).await, 14);
        assert_eq!(write(&mut socket, b"ab"), [Some(2), Some(2)]);
        let mut seen = [0; 4];
        client.read_exact(&mut seen).await.expect("it was sent");
        assert_eq!(&seen, b"abab");
    }
}
