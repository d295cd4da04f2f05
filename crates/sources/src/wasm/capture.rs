//! Captures the beginning of a component's standard output and error for the log.

use std::future::{Future, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::net::Mutex;

/// Keeps the beginning of the output and discards the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture(Arc<Mutex<Vec<u8>>>);

const KEPT_BYTES: usize = 16 * 1024;
/// Maximum number of bytes accepted by one write.
const WRITE_BYTES: usize = 64 * 1024;

impl Capture {
    /// Returns the captured text.
    pub(super) fn text(&self) -> String {
        let kept = self.0.lock();
        String::from_utf8_lossy(&kept).trim().to_owned()
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock();
        let room = KEPT_BYTES.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Capture {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.keep(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES)
    }
}

// Hand-written equivalent of the trait's attribute macro.
impl Pollable for Capture {
    fn ready<'s, 'f>(&'s mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(ready(()))
    }
}
