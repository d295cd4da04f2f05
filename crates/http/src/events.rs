//! Server-sent event streams: one event for each part, with keep-alive comments in between.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use crate::net::{BodyError, SharedBytes};
use crate::server::{EventData, EventSource, StreamEvent, next_heartbeat};

/// Beginning of an event that has a message and nothing else. Official servers name the type, which is the default, and the
/// Java SDK up to 2.0.0 ignores events without it.
const MESSAGE_BEGINS: &[u8] = b"event: message\ndata: ";

/// Keep-alive comment. An empty line after it would end an event without data. The Java SDK stops to read a stream after
/// 256 of those.
const KEEP_ALIVE: &[u8] = b":\n";

/// Body of a streamed response.
pub(crate) struct EventStream {
    stream: Option<Box<dyn EventSource>>,
    /// Pending output, in pieces that are not copied together.
    pieces: VecDeque<Bytes>,
    /// Timer for the next keep-alive or the next poll that the stream requests.
    timer: Pin<Box<Sleep>>,
    heartbeat: Instant,
}

impl EventStream {
    pub fn new(stream: Box<dyn EventSource>) -> Self {
        Self::begin(Some(stream))
    }

    fn begin(stream: Option<Box<dyn EventSource>>) -> Self {
        let heartbeat = next_heartbeat();
        let deadline = stream.as_ref().and_then(|stream| stream.deadline());
        let until = earlier(heartbeat, deadline);
        Self {
            stream,
            pieces: VecDeque::new(),
            timer: Box::pin(tokio::time::sleep_until(until)),
            heartbeat,
        }
    }

    /// Creates a stream that ends after a single event.
    pub fn of(head: Bytes, rest: &SharedBytes) -> Self {
        let mut stream = Self::begin(None);
        stream.push_event(Bytes::from_static(MESSAGE_BEGINS), head, rest);
        stream
    }

    fn push_event(&mut self, begin: Bytes, head: Bytes, rest: &SharedBytes) {
        self.pieces.push_back(begin);
        let pieces = std::iter::once(head);
        let pieces = pieces.chain(rest.pieces().iter().cloned());
        let pieces = pieces.map(on_one_line);
        let pieces = pieces.chain([Bytes::from_static(b"\n\n")]);
        self.pieces.extend(pieces.filter(|piece| !piece.is_empty()));
    }

    fn push(&mut self, part: StreamEvent) {
        let has_data = !matches!(part.data, EventData::Empty);
        let mut fields = String::new();
        // Writing into a text cannot fail.
        if let Some(event) = part.event {
            let _ = writeln!(fields, "event: {event}");
        } else if has_data && (part.id.is_some() || part.retry.is_some()) {
            fields.push_str("event: message\n");
        }
        if let Some(id) = &part.id {
            let _ = writeln!(fields, "id: {id}");
        }
        if let Some(retry) = part.retry {
            let _ = writeln!(fields, "retry: {}", retry.as_millis());
        }
        let (head, rest) = match part.data {
            EventData::Message(message) => (message, SharedBytes::default()),
            EventData::Response(answer) => {
                self.stream = None;
                (answer.head, answer.rest)
            }
            // Only with an id is it an event, and has data, if none that says anything.
            EventData::Empty => {
                fields.push_str(if part.id.is_some() {
                    "data: \n\n"
                } else {
                    "\n"
                });
                self.pieces.push_back(fields.into());
                return;
            }
        };
        let begin = if fields.is_empty() {
            Bytes::from_static(MESSAGE_BEGINS)
        } else {
            fields.push_str("data: ");
            fields.into()
        };
        self.push_event(begin, head, &rest);
    }

    /// Returns true if there is nothing to send yet. In that case `cx` is woken later.
    fn waits(&mut self, cx: &mut Context<'_>) -> bool {
        if self.timer.as_mut().poll(cx).is_pending() {
            return true;
        }
        let now = Instant::now();
        if self.heartbeat <= now {
            self.heartbeat = next_heartbeat();
            self.pieces.push_back(Bytes::from_static(KEEP_ALIVE));
        }
        let deadline = self.stream.as_ref().and_then(|stream| stream.deadline());
        // A deadline that passed without change is not waited for again.
        let deadline = deadline.filter(|deadline| now < *deadline);
        self.timer.as_mut().reset(earlier(self.heartbeat, deadline));
        false
    }
}

/// Escapes the characters of JSON strings that some clients take for the end of a line: the Java SDK, and Python programs
/// with httpx-sse before 0.4.2.
fn on_one_line(json: Bytes) -> Bytes {
    let mut found = line_ends(&json).peekable();
    if found.peek().is_none() {
        drop(found);
        return json;
    }
    let mut escaped = Vec::with_capacity(json.len() + 64);
    let mut copied = 0;
    for (at, length, escape) in found {
        escaped.extend_from_slice(&json[copied..at]);
        escaped.extend_from_slice(escape);
        copied = at + length;
    }
    escaped.extend_from_slice(&json[copied..]);
    Bytes::from_owner(Escaped {
        text: escaped,
        _original: json,
    })
}

/// An escaped text, with the original, which counts towards the memory of responses.
struct Escaped {
    text: Vec<u8>,
    _original: Bytes,
}

impl AsRef<[u8]> for Escaped {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Positions of these characters, with their lengths and escapes.
fn line_ends(json: &[u8]) -> impl Iterator<Item = (usize, usize, &'static [u8])> {
    memchr::memchr2_iter(0xC2, 0xE2, json).filter_map(|at| match &json[at..] {
        [0xC2, 0x85, ..] => Some((at, 2, &br"\u0085"[..])),
        [0xE2, 0x80, 0xA8, ..] => Some((at, 3, &br"\u2028"[..])),
        [0xE2, 0x80, 0xA9, ..] => Some((at, 3, &br"\u2029"[..])),
        _ => None,
    })
}

fn earlier(heartbeat: Instant, deadline: Option<Instant>) -> Instant {
    deadline.map_or(heartbeat, |deadline| deadline.min(heartbeat))
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
                Poll::Ready(Some(part)) => self.push(part),
                Poll::Ready(None) => self.stream = None,
                Poll::Pending if self.waits(cx) => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body::Body as _;

    use super::*;

    fn sent(stream: EventStream) -> String {
        let mut stream = std::pin::pin!(stream);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut sent = Vec::new();
        while let Poll::Ready(Some(frame)) = stream.as_mut().poll_frame(&mut cx) {
            sent.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        String::from_utf8(sent).unwrap()
    }

    struct Silent;

    impl EventSource for Silent {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_on_one_line_for_every_reader() {
        let head = Bytes::from_static("{\"a\":\"“x”\u{2028}y\u{2029}".as_bytes());
        let rest = SharedBytes::One(Bytes::from_static("é\u{85}\"}".as_bytes()));
        assert_eq!(
            sent(EventStream::of(head, &rest)),
            "event: message\ndata: {\"a\":\"“x”\\u2028y\\u2029é\\u0085\"}\n\n"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alive_comments_end_no_event() {
        let stream = EventStream::new(Box::new(Silent));
        tokio::time::advance(Duration::from_secs(26)).await;
        assert_eq!(sent(stream), ":\n");
    }
}
