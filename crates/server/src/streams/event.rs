//! Events of streams.

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::server::reply::JsonResponse;
use crate::telemetry::{DeferredScope, OperationOutcome};

/// A source of events. The transport polls it and drops it when the client disconnects.
pub trait EventSource: Send {
    /// Returns the next event, or `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>>;

    /// Reports the end of the stream to the hooks. A stream without a response completes when it opens.
    fn watch(&mut self, watch: DeferredScope) {
        watch.end(OperationOutcome::Done, None, || None);
    }

    /// Time of the next required poll.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Returns true if the stream stays open until it is closed and has no response.
    fn is_standing(&self) -> bool {
        false
    }
}

/// An event of a stream.
#[derive(Debug)]
pub struct StreamEvent {
    /// Id that the client sends to resume after this event.
    pub id: Option<EventId>,
    /// Reconnect delay.
    pub retry: Option<Duration>,
    /// Event type, if it is sent.
    pub event: Option<&'static str>,
    pub data: EventData,
}

#[derive(Debug)]
pub enum EventData {
    /// An event without data.
    Empty,
    /// A notification or a client request.
    Message(Bytes),
    /// The response, which is the last event.
    Response(JsonResponse),
}

impl StreamEvent {
    pub fn message(message: Bytes) -> Self {
        Self::of(EventData::Message(message))
    }

    pub fn response(answer: JsonResponse) -> Self {
        Self::of(EventData::Response(answer))
    }

    pub(super) fn retry(after: Duration) -> Self {
        Self {
            retry: Some(after),
            ..Self::of(EventData::Empty)
        }
    }

    /// An event with a type.
    pub fn event(event: &'static str, data: Bytes) -> Self {
        Self {
            event: Some(event),
            ..Self::message(data)
        }
    }

    pub(super) fn of(data: EventData) -> Self {
        Self {
            id: None,
            retry: None,
            event: None,
            data,
        }
    }

    pub(super) fn with_id(self, id: Option<EventId>) -> Self {
        Self { id, ..self }
    }
}

/// Id of an event: its stream and its position (LH-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: StreamId,
    pub number: u64,
    /// True for the second id of the same position.
    is_alternate: bool,
}

/// A stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamId {
    /// The notification stream. Several connections can read it.
    Standing,
    /// The stream of one call.
    Call(u64),
}

impl EventId {
    pub const fn new(stream: StreamId, number: u64) -> Self {
        Self {
            stream,
            number,
            is_alternate: false,
        }
    }

    /// Returns the other id of the same position. A resumed stream begins with it, because the Go SDK closes its session
    /// after six streams that end without a new id.
    pub(super) const fn alternate(self) -> Self {
        Self {
            is_alternate: !self.is_alternate,
            ..self
        }
    }

    /// Parses an id. Returns `None` if it is not canonical.
    pub fn read(text: &str) -> Option<Self> {
        let (stream, number) = text.split_once('-')?;
        let stream = match stream {
            "s" => StreamId::Standing,
            call if call.len() == 16
                && call.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) =>
            {
                StreamId::Call(u64::from_str_radix(call, 16).ok()?)
            }
            _ => return None,
        };
        let (number, is_alternate) = match number.strip_suffix('a') {
            Some(number) => (number, true),
            None => (number, false),
        };
        // Rejects leading zeros and signs.
        let canonical = number == "0" || !number.starts_with(['0', '+']);
        let number = number.parse().ok().filter(|_| canonical)?;
        Some(Self {
            stream,
            number,
            is_alternate,
        })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream {
            StreamId::Standing => write!(f, "s-{}", self.number)?,
            StreamId::Call(call) => write!(f, "{call:016x}-{}", self.number)?,
        }
        f.write_str(if self.is_alternate { "a" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lh_12_event_ids_read_back_and_nothing_else_does() {
        for stream in [
            StreamId::Standing,
            StreamId::Call(0),
            StreamId::Call(u64::MAX),
        ] {
            for number in [0, 1, 1_700_000_000_000_000] {
                let id = EventId::new(stream, number);
                let alternate = id.alternate();
                assert_ne!(id.to_string(), alternate.to_string());
                assert_eq!(alternate.alternate(), id);
                for id in [id, alternate] {
                    assert_eq!(EventId::read(&id.to_string()), Some(id));
                }
            }
        }
        for junk in [
            "",
            "s",
            "s-",
            "s--1",
            "s-+1",
            "s-01",
            "s-1 ",
            "s-a",
            "s-1aa",
            "s-1A",
            "S-1",
            "x-1",
            "12345-1",
            "00000000000000AB-1",
            "+000000000000001-1",
            "s-99999999999999999999",
        ] {
            assert_eq!(EventId::read(junk), None, "{junk}");
        }
    }
}
