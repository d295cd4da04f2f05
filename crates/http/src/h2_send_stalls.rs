//! HTTP/2 responses that a client reads slowly.
//!
//! On HTTP/1 a client that does not read stalls its socket, which the sweep detects. Over HTTP/2 it may read the socket
//! but withhold the flow-control window of a stream; the response then waits here. Each large or streamed response
//! records its last progress.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::connection::ConnectionState;
use crate::net::{Body, BodyError};

/// Minimum size of a watched response, in bytes; the smaller ones of a connection use little memory in total.
const WATCHED_BYTES: u64 = 16 * 1024;
/// Maximum part size in bytes, so that progress is visible.
const PART_BYTES: usize = 64 * 1024;

/// Responses of one connection in progress.
#[derive(Debug, Default)]
pub(crate) struct SendStalls(Mutex<Vec<Sending>>);

#[derive(Clone, Copy, Debug)]
enum Sending {
    Free,
    /// The handler must produce more data.
    Waiting,
    /// The client has to make room; since which second.
    Since(u32),
}

impl SendStalls {
    pub(super) fn enter(&self, now: u32) -> usize {
        let mut all = self.all();
        let sending = Sending::Since(now);
        match all.iter().position(|s| matches!(s, Sending::Free)) {
            Some(free) => {
                all[free] = sending;
                free
            }
            None => {
                all.push(sending);
                all.len() - 1
            }
        }
    }

    /// Records the side to wait for: the client since a given second, or the handler.
    pub(super) fn progress(&self, place: usize, since: Option<u32>) {
        if let Some(sending) = self.all().get_mut(place) {
            *sending = since.map_or(Sending::Waiting, Sending::Since);
        }
    }

    pub(super) fn leave(&self, place: usize) {
        let mut all = self.all();
        if let Some(sending) = all.get_mut(place) {
            *sending = Sending::Free;
        }
        while matches!(all.last(), Some(Sending::Free)) {
            all.pop();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Returns true if a client has read nothing of a response for more than `seconds`.
    pub(super) fn stall_since(&self, now: u32, seconds: u32) -> bool {
        self.all()
            .iter()
            .any(|s| matches!(s, Sending::Since(since) if seconds < now.saturating_sub(*since)))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Sending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches an HTTP/2 body if it is large or streamed.
pub(super) fn watch(connection: &Arc<ConnectionState>, body: Body) -> Body {
    match body.size_hint().exact() {
        Some(size) if size < WATCHED_BYTES => body,
        _ => Body::new(TrackedBody {
            place: connection.h2.send_stalls.enter(connection.now()),
            connection: Arc::clone(connection),
            body,
            rest: Bytes::new(),
        }),
    }
}

struct TrackedBody {
    connection: Arc<ConnectionState>,
    place: usize,
    body: Body,
    /// Rest of a part that was too large.
    rest: Bytes,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let watched = &mut *self;
        let now = watched.connection.now();
        if watched.rest.is_empty() {
            match Pin::new(&mut watched.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => watched.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Pending => {
                    watched
                        .connection
                        .h2
                        .send_stalls
                        .progress(watched.place, None);
                    return Poll::Pending;
                }
                end => return end,
            }
        }
        watched
            .connection
            .h2
            .send_stalls
            .progress(watched.place, Some(now));
        let part = watched.rest.len().min(PART_BYTES);
        let part = watched.rest.split_to(part);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        match hint.exact() {
            Some(exact) => hint.set_exact(exact + rest),
            None => hint.set_lower(hint.lower() + rest),
        }
        hint
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.connection.h2.send_stalls.leave(self.place);
    }
}
