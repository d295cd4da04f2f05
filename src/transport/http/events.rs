//! A call's messages as server-sent events: one message to an event, and signs of life in between.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::time::Sleep;

use super::connection::{ConnectionState, Phase};
use crate::net::BodyError;
use crate::server::{CallStream, Part, next_heartbeat};

/// The body of an answer in parts.
pub(crate) struct EventStream {
    stream: Option<Box<CallStream>>,
    /// What is to be sent next, in pieces that are not copied together.
    pieces: VecDeque<Bytes>,
    heartbeat: Pin<Box<Sleep>>,
    /// On HTTP/1 the connection is told that silence is nothing to worry about.
    connection: Option<Arc<ConnectionState>>,
}

impl EventStream {
    pub(crate) fn new(stream: Box<CallStream>, connection: Option<&Arc<ConnectionState>>) -> Self {
        let connection = connection
            .filter(|c| c.phase() != Phase::Multiplexed)
            .cloned();
        if let Some(connection) = &connection {
            connection.enter(Phase::Stream);
        }
        Self {
            stream: Some(stream),
            pieces: VecDeque::new(),
            heartbeat: Box::pin(tokio::time::sleep_until(next_heartbeat())),
            connection,
        }
    }

    fn push_event(&mut self, head: Bytes, rest: Bytes) {
        let end = Bytes::from_static(b"\n\n");
        let pieces = [Bytes::from_static(b"data: "), head, rest, end];
        self.pieces
            .extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
    }
}

impl http_body::Body for EventStream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(None);
            };
            match stream.poll_next(cx) {
                Poll::Ready(Some(Part::Message(message))) => self.push_event(message, Bytes::new()),
                Poll::Ready(Some(Part::Answer(answer))) => {
                    self.stream = None;
                    self.push_event(answer.head, answer.rest);
                }
                Poll::Ready(None) => self.stream = None,
                Poll::Pending => {
                    if self.heartbeat.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.heartbeat.as_mut().reset(next_heartbeat());
                    self.pieces.push_back(Bytes::from_static(b":\n\n"));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.pieces.is_empty()
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.enter(Phase::Sending);
        }
    }
}
