//! The socket of a connection, which notes what happens on it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{ConnectionState, Phase};
use super::stream::Stream;
use super::watch::{At, HeadWatch};

/// A socket that notes what happens on it.
pub(crate) struct Socket {
    stream: Stream,
    state: Arc<ConnectionState>,
    /// What is given back when the socket is closed.
    guards: Option<Guards>,
    /// More may have come than was read.
    unread: bool,
    watch: HeadWatch,
    /// HTTP/2 has frames, and no heads that could be read in two ways.
    watched: bool,
    /// Something was written since a request was last read.
    answered: bool,
}

/// Places that a connection has for as long as its socket is open.
pub(crate) type Guards = Box<dyn Send + Sync>;

impl Socket {
    pub(crate) fn new(stream: Stream, state: Arc<ConnectionState>, guards: Guards) -> Self {
        Self {
            stream,
            guards: Some(guards),
            unread: false,
            watch: HeadWatch::default(),
            watched: state.phase() != Phase::Multiplexed,
            state,
            answered: false,
        }
    }

    #[inline]
    fn has_written(&mut self, progress: bool) {
        self.answered |= progress;
        self.state.has_written(progress, self.watch.has_more());
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let socket = &mut *self;
        socket.unread = read.is_ready() && before < buffer.filled().len();
        if read.is_pending() {
            let more = socket.watch.has_more();
            socket.state.waits_for_more(socket.answered, more);
            return read;
        }
        let answered = std::mem::take(&mut socket.answered);
        if socket.watched {
            let familiar = &socket.state.familiar;
            let at = match socket.state.phase() {
                Phase::Idle if !familiar.waits() => At::Beginning,
                Phase::Idle | Phase::Head => At::Head,
                _ => At::Body,
            };
            let came = socket.watch.look(&mut buffer.filled_mut()[before..], at);
            if at == At::Beginning {
                familiar.note(came);
            }
        }
        socket
            .state
            .has_read(buffer.filled().len() - before, answered);
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
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.has_written(written.is_ready());
        written
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.has_written(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.unread || self.state.is_cut() {
            return;
        }
        // The answer was sent before everything was read: the client is given the time to see it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let stream = std::mem::replace(&mut self.stream, Stream::Gone);
            let guards = self.guards.take();
            runtime.spawn(async move {
                stream.linger().await;
                drop(guards);
            });
        }
    }
}
