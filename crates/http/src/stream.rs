//! A socket, plain or with TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::tcp_conn::TcpConn;
use super::tls::{self, TlsStream};

/// Bytes from and to a client, in clear.
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
    pub(crate) async fn linger(mut self) {
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
    pub(crate) fn discard_unsent(&self) {
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
    pub async fn hold(mut self) {
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
