//! What one standing stream is told: notices of what it wants to know, each kept once until it is read.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::catalog::{Notice, RequestId};

/// The URIs of resources that somebody has subscribed to.
pub(super) type Uris = Arc<HashSet<Arc<str>>>;

/// Notices for one stream.
///
/// A reader that is slow costs no more than one notice for each thing that it wants to know: further ones of the same
/// are told together.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) number: u64,
    /// The session that it belongs to, by its name for logs.
    pub(super) session: Option<Arc<str>>,
    /// Whom it counts for, if it counts for anybody.
    pub(super) principal: Option<Box<str>>,
    /// The request that asked for it, where it can be cancelled by that.
    pub(super) request: Option<RequestId>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    wants: Wants,
    /// What is to be told, in order, with the place in the log of notices that each has.
    pending: VecDeque<(Notice, Option<u64>)>,
    /// What comes no later than this in the log of notices is known already.
    seen: u64,
    /// Another stream of the session is newer.
    muted: bool,
    end: Option<End>,
    waker: Option<Waker>,
}

/// What a stream wants to know.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    pub(super) uris: Uris,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server stops.
    Stopping,
    /// The session, or the request, was ended by its client. There is nothing to come back to.
    Gone,
}

/// What a stream is told next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Notice(Notice, Option<u64>),
    End(End),
}

impl Wants {
    pub(super) fn has(&self, notice: &Notice) -> bool {
        match notice {
            Notice::Tools => self.tools,
            Notice::Prompts => self.prompts,
            Notice::Resources => self.resources,
            Notice::Resource(uri) => self.uris.contains(uri),
        }
    }
}

impl Feed {
    pub(super) fn new(number: u64, owner: Owner, wants: Wants, seen: u64) -> Self {
        Self {
            number,
            session: owner.session,
            principal: owner.principal,
            request: owner.request,
            inner: Mutex::new(Inner {
                wants,
                seen,
                ..Inner::default()
            }),
        }
    }

    /// Tells of a notice, if it is wanted; `number` is its place in the log of notices.
    pub(super) fn tell(&self, notice: &Notice, number: Option<u64>) {
        let mut inner = self.inner();
        if inner.muted || !inner.wants.has(notice) {
            return;
        }
        if number.is_some_and(|number| number <= inner.seen) {
            return;
        }
        inner.put(notice.clone(), number);
        inner.wake();
    }

    /// Adds what was missed, up to a place in the log, to what is new.
    pub(super) fn catch_up(&self, missed: Vec<(Notice, u64)>, through: u64) {
        let mut inner = self.inner();
        let newer = std::mem::take(&mut inner.pending);
        for (notice, number) in missed {
            if inner.wants.has(&notice) {
                inner.put(notice, Some(number));
            }
        }
        for (notice, number) in newer {
            if number.is_none_or(|number| through < number) {
                inner.put(notice, number);
            }
        }
        inner.seen = inner.seen.max(through);
        inner.wake();
    }

    pub(super) fn subscribe(&self, uris: Uris) {
        self.inner().wants.uris = uris;
    }

    /// How many resources it has subscribed to.
    pub(super) fn subscriptions(&self) -> usize {
        self.inner().wants.uris.len()
    }

    pub(super) fn mute(&self, muted: bool) {
        self.inner().muted = muted;
    }

    pub(super) fn end(&self, end: End) {
        let mut inner = self.inner();
        inner.end.get_or_insert(end);
        inner.wake();
    }

    /// What is told next. Before the end comes what was known before it, unless nobody is to come back.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Told> {
        let mut inner = self.inner();
        if inner.end == Some(End::Gone) {
            return Poll::Ready(Told::End(End::Gone));
        }
        if let Some((notice, number)) = inner.pending.pop_front() {
            return Poll::Ready(Told::Notice(notice, number));
        }
        if let Some(end) = inner.end {
            return Poll::Ready(Told::End(end));
        }
        match &inner.waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => inner.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose a feed is.
#[derive(Debug, Default)]
pub(super) struct Owner {
    pub(super) session: Option<Arc<str>>,
    pub(super) principal: Option<Box<str>>,
    pub(super) request: Option<RequestId>,
}

impl Inner {
    /// One that waits already is told later, once for all.
    fn put(&mut self, notice: Notice, number: Option<u64>) {
        self.pending.retain(|(waiting, _)| *waiting != notice);
        self.pending.push_back((notice, number));
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(seen: u64) -> Feed {
        let wants = Wants {
            tools: true,
            uris: Arc::new(["x://a".into(), "x://b".into()].into()),
            ..Wants::default()
        };
        Feed::new(1, Owner::default(), wants, seen)
    }

    fn resource(uri: &str) -> Notice {
        Notice::Resource(uri.into())
    }

    fn told(feed: &Feed) -> Vec<Told> {
        let cx = Context::from_waker(Waker::noop());
        let mut told = Vec::new();
        while let Poll::Ready(next) = feed.poll_next(&cx) {
            let over = matches!(next, Told::End(_));
            told.push(next);
            if over {
                break;
            }
        }
        told
    }

    #[test]
    fn a_slow_reader_is_told_once_and_of_what_it_wants_only() {
        let feed = feed(0);
        for number in 1..=10_000 {
            feed.tell(&resource("x://a"), Some(4 * number));
            feed.tell(&resource("x://c"), Some(4 * number + 1));
            feed.tell(&Notice::Prompts, Some(4 * number + 2));
            feed.tell(&Notice::Tools, Some(4 * number + 3));
        }
        assert_eq!(
            told(&feed),
            [
                Told::Notice(resource("x://a"), Some(40_000)),
                Told::Notice(Notice::Tools, Some(40_003)),
            ]
        );
        assert_eq!(told(&feed), []);
    }

    #[test]
    fn what_was_missed_comes_first_and_nothing_twice() {
        let feed = feed(5);
        feed.tell(&Notice::Tools, Some(5));
        feed.tell(&resource("x://b"), Some(7));
        feed.tell(&Notice::Tools, Some(9));
        let missed = vec![
            (resource("x://a"), 6),
            (resource("x://b"), 7),
            (Notice::Prompts, 8),
        ];
        feed.catch_up(missed, 8);
        feed.tell(&resource("x://a"), Some(8));
        assert_eq!(
            told(&feed),
            [
                Told::Notice(resource("x://a"), Some(6)),
                Told::Notice(resource("x://b"), Some(7)),
                Told::Notice(Notice::Tools, Some(9)),
            ]
        );
    }

    #[test]
    fn the_end_comes_after_what_is_known_unless_nobody_comes_back() {
        let stopping = feed(0);
        stopping.tell(&Notice::Tools, Some(1));
        stopping.end(End::Stopping);
        assert_eq!(
            told(&stopping),
            [
                Told::Notice(Notice::Tools, Some(1)),
                Told::End(End::Stopping)
            ]
        );
        let gone = feed(0);
        gone.tell(&Notice::Tools, Some(1));
        gone.end(End::Gone);
        assert_eq!(told(&gone), [Told::End(End::Gone)]);
    }

    #[test]
    fn one_that_is_not_the_newest_is_told_nothing_new() {
        let feed = feed(0);
        feed.tell(&Notice::Tools, Some(1));
        feed.mute(true);
        feed.tell(&resource("x://a"), Some(2));
        assert_eq!(told(&feed), [Told::Notice(Notice::Tools, Some(1))]);
        feed.mute(false);
        feed.tell(&resource("x://a"), Some(3));
        assert_eq!(told(&feed), [Told::Notice(resource("x://a"), Some(3))]);
    }
}
