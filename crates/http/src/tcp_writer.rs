//! The sending half of a TCP socket, shared by its connection and the send queue.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite as _;
use tokio::net::tcp::OwnedWriteHalf;

/// The sending half of a socket.
#[derive(Debug)]
pub(super) struct TcpWriter {
    /// Wakes the task of the connection.
    task: OnceCell<Waker>,
    /// True if `output` has unsent bytes or an error.
    has_unsent: Cell<bool>,
    output: RefCell<Output>,
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) half: OwnedWriteHalf,
    /// Bytes that count as written, and that the socket did not accept.
    pub(super) unsent: Vec<u8>,
    /// Error of a write that counts as done, for the connection.
    error: Option<io::Error>,
}

impl TcpWriter {
    pub(super) fn new(half: OwnedWriteHalf) -> Self {
        let output = Output {
            half,
            unsent: Vec::new(),
            error: None,
        };
        Self {
            task: OnceCell::new(),
            has_unsent: Cell::new(false),
            output: RefCell::new(output),
        }
    }

    /// Sets the task that is woken if a queued write is not sent completely.
    #[inline]
    pub(super) fn set_task(&self, cx: &Context<'_>) {
        self.task.get_or_init(|| cx.waker().clone());
    }

    /// Sends queued bytes. If the socket does not accept all of them, the task of the connection is woken to send the rest.
    pub(super) fn send(&self, bytes: &[u8]) {
        let mut output = self.output();
        let sent = match self.has_unsent.get() {
            true => 0,
            false => match output.half.try_write(bytes) {
                Ok(sent) if sent == bytes.len() => return,
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => {
                    output.error = Some(error);
                    bytes.len()
                }
            },
        };
        output.unsent.extend_from_slice(&bytes[sent..]);
        self.has_unsent.set(true);
        drop(output);
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// Completes a queued write that was sent in part. Returns the error of one that failed.
    #[inline]
    pub(super) fn poll_unsent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.has_unsent.get() {
            true => self.send_unsent(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    #[cold]
    fn send_unsent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut output = self.output();
        let Output {
            half,
            unsent,
            error,
        } = &mut *output;
        while error.is_none() && !unsent.is_empty() {
            match ready!(Pin::new(&mut *half).poll_write(cx, unsent)) {
                Ok(0) => *error = Some(io::ErrorKind::WriteZero.into()),
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(failed) => *error = Some(failed),
            }
        }
        *unsent = Vec::new();
        self.has_unsent.set(false);
        Poll::Ready(error.take().map_or(Ok(()), Err))
    }

    pub(super) fn output(&self) -> RefMut<'_, Output> {
        self.output.borrow_mut()
    }
}
