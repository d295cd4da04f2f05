//! Streams that stand until somebody ends them: a session's own, and those of `subscriptions/listen`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::ear::Ear;
use super::feed::{End, Told};
use super::part::{EventId, Part, Parts, StreamId};
use super::{Place, Streams, notice};
use crate::auth::Principal;
use crate::server::Answer;
use crate::server::local::unix_seconds;

/// One stream that stands.
pub(super) struct Standing {
    place: Place,
    ear: Ear,
    manner: Manner,
    /// What it says before anything else.
    first: Option<Part>,
    /// What it says at its end, once that has come.
    last: Option<VecDeque<Part>>,
    ends_at: Option<Instant>,
}

/// How notices are put, and how the stream ends.
pub(super) enum Manner {
    /// In a session, over HTTP: events have ids, and the client is told to come back.
    Session,
    /// In a session, over something that ends with it.
    Plain,
    /// For the request of the stateless era that asked for it.
    Listen(Listen),
}

/// What every message of a stream of `subscriptions/listen` says.
pub(super) struct Listen {
    /// The request's id as JSON.
    pub(super) id: Box<str>,
    /// The whole answer, which ends the stream (SUB-05).
    pub(super) result: Bytes,
    /// Whether the end is told by a notification too, as it has to be over standard input and output (SUB-06).
    pub(super) tells_end: bool,
}

impl Standing {
    pub(super) fn new(place: Place, ear: Ear, manner: Manner, first: Option<Part>) -> Self {
        Self {
            place,
            ear,
            manner,
            first,
            last: None,
            ends_at: None,
        }
    }

    /// Gives it an end.
    pub(super) fn for_life(mut self, life: Duration) -> Self {
        self.ends_at = Some(Instant::now() + life);
        self
    }

    fn end(&self, end: End) -> VecDeque<Part> {
        let mut last = VecDeque::new();
        match &self.manner {
            _ if end == End::Gone => {}
            Manner::Session => last.push_back(Part::retry(self.place.streams.retry_after())),
            Manner::Plain => {}
            Manner::Listen(listen) => {
                if listen.tells_end {
                    last.push_back(Part::message(listen.cancelled()));
                }
                last.push_back(Part::answer(Answer::of(listen.result.clone())));
            }
        }
        last
    }
}

impl Parts for Standing {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        while self.last.is_none() {
            if self.ear.is_looking() {
                match self.ear.poll_task(cx, &self.manner) {
                    Poll::Ready(Some(message)) => return Poll::Ready(Some(Part::message(message))),
                    Poll::Ready(None) => continue,
                    // The store answers in its time, or not at all.
                    Poll::Pending => return Poll::Pending,
                }
            }
            let end = match self.place.feed.poll_next(cx) {
                Poll::Ready(Told::Notice(notice, _)) if !self.ear.may_hear(&notice) => continue,
                Poll::Ready(Told::Task(task)) => {
                    self.ear.look_at(task, &self.manner);
                    continue;
                }
                Poll::Ready(Told::Notice(notice, number)) => {
                    let part = match &self.manner {
                        Manner::Listen(listen) => {
                            Part::message(notice::message(&notice, Some(&listen.id)))
                        }
                        Manner::Plain => Part::message(notice::message(&notice, None)),
                        Manner::Session => {
                            let id = number.map(|number| EventId {
                                stream: StreamId::Standing,
                                number,
                            });
                            Part::message(notice::message(&notice, None)).with_id(id)
                        }
                    };
                    return Poll::Ready(Some(part));
                }
                Poll::Ready(Told::End(end)) => end,
                Poll::Pending if self.ends_at.is_some_and(|end| end <= Instant::now()) => {
                    End::Stopping
                }
                Poll::Pending => return Poll::Pending,
            };
            self.last = Some(self.end(end));
        }
        Poll::Ready(self.last.as_mut().and_then(VecDeque::pop_front))
    }

    fn deadline(&self) -> Option<Instant> {
        self.ends_at
    }

    fn is_standing(&self) -> bool {
        true
    }
}

impl Listen {
    fn cancelled(&self) -> Bytes {
        let id = &self.id;
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"requestId":{id},"reason":"the server stops"}}}}"#
        )
        .into()
    }
}

impl Streams {
    /// How long a stream that begins now is to live: a tenth more or less than is set, so that streams that began
    /// together do not end together.
    pub(in crate::server) fn life(&self) -> Duration {
        let noise = u32::from(crate::seal::random_bytes::<1>()[0]);
        let life = Duration::from_secs(self.config.max_age_seconds);
        life * 9 / 10 + life * noise / 1275
    }

    /// How long a stream of a caller's that begins now is to live: no longer than what the caller has shown is good.
    pub(in crate::server) fn life_for(&self, principal: &Principal) -> Duration {
        let life = self.life();
        match principal.expires() {
            None => life,
            Some(end) => life.min(Duration::from_secs(end.saturating_sub(unix_seconds()))),
        }
    }

    /// How a standing stream of a session begins, for clients that take it (LH-14, LH-16).
    pub(super) fn priming(self: &Arc<Self>, id: EventId) -> Part {
        let retry = Duration::from_millis(u64::from(self.config.retry_ms));
        Part::retry(retry).with_id(Some(id))
    }
}
