//! What streams consist of, whatever they are about.

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::server::Answer;
use crate::telemetry::{Verdict, WatchedLater};

/// Something that is said in parts. What carries it polls it, and drops it when its reader is gone.
pub(crate) trait Parts: Send {
    /// The next part; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>>;

    /// Has it watched to its end. One that answers nothing is done as soon as it stands.
    fn watch(&mut self, watch: WatchedLater) {
        watch.end(Verdict::Done, None, || None);
    }

    /// When it wants to be polled at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether it stands until somebody ends it, and answers nothing.
    fn is_standing(&self) -> bool {
        false
    }
}

/// One part of a stream.
#[derive(Debug)]
pub(crate) struct Part {
    /// What the client names if it comes back for what follows.
    pub(crate) id: Option<EventId>,
    /// After which time it should come back.
    pub(crate) retry: Option<Duration>,
    /// What kind of event it is, where that is said.
    pub(crate) event: Option<&'static str>,
    pub(crate) said: Said,
}

#[derive(Debug)]
pub(crate) enum Said {
    /// Only what is around it.
    Nothing,
    /// A notification, or a question.
    Message(Bytes),
    /// The answer, after which nothing comes.
    Answer(Answer),
}

impl Part {
    pub(crate) fn message(message: Bytes) -> Self {
        Self::of(Said::Message(message))
    }

    pub(crate) fn answer(answer: Answer) -> Self {
        Self::of(Said::Answer(answer))
    }

    pub(super) fn retry(after: Duration) -> Self {
        Self {
            retry: Some(after),
            ..Self::of(Said::Nothing)
        }
    }

    /// One whose kind is said.
    pub(crate) fn event(event: &'static str, data: Bytes) -> Self {
        Self {
            event: Some(event),
            ..Self::message(data)
        }
    }

    pub(super) fn of(said: Said) -> Self {
        Self {
            id: None,
            retry: None,
            event: None,
            said,
        }
    }

    pub(super) fn with_id(self, id: Option<EventId>) -> Self {
        Self { id, ..self }
    }
}

/// The id of an event: its stream, and its place in it (LH-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) stream: StreamId,
    pub(crate) number: u64,
}

/// A stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamId {
    /// What the session is told outside of answers. There is one, however many connections it is read on.
    Standing,
    /// One call's.
    Call(u64),
}

impl EventId {
    /// Reads an id. `None` if it is none of ours.
    pub(crate) fn read(text: &str) -> Option<Self> {
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
        // Only in the form in which it was given.
        let canonical = number == "0" || !number.starts_with(['0', '+']);
        let number = number.parse().ok().filter(|_| canonical)?;
        Some(Self { stream, number })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream {
            StreamId::Standing => write!(f, "s-{}", self.number),
            StreamId::Call(call) => write!(f, "{call:016x}-{}", self.number),
        }
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
                let id = EventId { stream, number };
                assert_eq!(EventId::read(&id.to_string()), Some(id));
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
