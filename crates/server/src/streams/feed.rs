//! What one standing stream is told: notices of what it wants to know, each kept once until it is read.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::auth::Principal;
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
    caller: Option<Arc<Principal>>,
    /// The network that it counts for, where its caller has no name.
    pub(super) network: Option<u128>,
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
    pending: VecDeque<(News, Option<u64>)>,
    /// What comes no later than this in the log of notices is known already.
    seen: u64,
    /// Its number among the standing streams of its session, if it is one.
    opening: Option<u64>,
    /// The numbers of newer ones that are open.
    newer: Vec<u64>,
    end: Option<End>,
    waker: Option<Waker>,
}

/// What there is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum News {
    Notice(Notice),
    /// A task has changed, by its id. What it is now is looked up when that is told.
    Task(Arc<str>),
}

/// What a stream wants to know.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    pub(super) uris: Uris,
    /// Tasks, by their ids.
    pub(super) tasks: Uris,
}

/// So many things may wait to be told of one stream; older ones are forgotten then. Only somebody who lets a lot of
/// tasks run and does not read comes here.
const PENDING_MAX: usize = 4096;

/// So many newer streams are remembered of a session. More are open at once only where replicas have died.
const NEWER_MAX: usize = 16;

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
    /// A task has changed.
    Task(Arc<str>),
    End(End),
}

impl Wants {
    pub(super) fn has(&self, notice: &Notice) -> bool {
        match notice {
            Notice::Tools => self.tools,
            Notice::Prompts => self.prompts,
            Notice::Resources => self.resources,
            Notice::Resource(uri) => self.uris.contains(uri),
            // A matter of whose stream it is.
            Notice::Visited(_) => false,
        }
    }
}

impl Feed {
    pub(super) fn new(number: u64, owner: Owner, wants: Wants, seen: u64) -> Self {
        Self {
            number,
            caller: owner.caller,
            network: owner.network,
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

    /// Returns true if the credential that it was opened with was taken away.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.caller
            .as_ref()
            .is_some_and(|caller| caller.is_withdrawn())
    }

    /// Whether somebody who wants something wants a notice.
    fn hears(&self, wants: &Wants, notice: &Notice) -> bool {
        match notice {
            // ELI-11: only the client that was asked.
            Notice::Visited(visit) => self.session.as_ref() == Some(visit.session()),
            other => wants.has(other),
        }
    }

    /// Tells that a task has changed, if that is wanted: it was asked for, or the session's own calls made it.
    pub(super) fn tell_task(&self, task: &Arc<str>, session: Option<&str>) {
        let mut inner = self.inner();
        let is_own =
            session.is_some() && self.session.as_deref() == session && !inner.is_overtaken();
        if is_own || inner.wants.tasks.contains(task) {
            inner.put(News::Task(Arc::clone(task)), None);
            inner.wake();
        }
    }

    /// Has all tasks looked at that it was asked to tell of: something may have been missed.
    pub(super) fn look_at_tasks(&self) {
        let mut inner = self.inner();
        let tasks = Arc::clone(&inner.wants.tasks);
        for task in tasks.iter() {
            inner.put(News::Task(Arc::clone(task)), None);
        }
        inner.wake();
    }

    /// The tasks that it tells of are these from now on.
    pub(super) fn follow_tasks(&self, tasks: Uris) {
        self.inner().wants.tasks = tasks;
    }

    /// Tells of a notice, if it is wanted; `number` is its place in the log of notices.
    pub(super) fn tell(&self, notice: &Notice, number: Option<u64>) {
        let mut inner = self.inner();
        if inner.is_overtaken() || !self.hears(&inner.wants, notice) {
            return;
        }
        if number.is_some_and(|number| number <= inner.seen) {
            return;
        }
        inner.put(News::Notice(notice.clone()), number);
        inner.wake();
    }

    /// Adds what was missed, up to a place in the log, to what is new.
    pub(super) fn catch_up(&self, missed: Vec<(Notice, u64)>, through: u64) {
        let mut inner = self.inner();
        let newer = std::mem::take(&mut inner.pending);
        for (notice, number) in missed {
            if self.hears(&inner.wants, &notice) {
                inner.put(News::Notice(notice), Some(number));
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

    /// Gives back what it had subscribed to before.
    pub(super) fn subscribe(&self, uris: Uris) -> Uris {
        std::mem::replace(&mut self.inner().wants.uris, uris)
    }

    /// The resources that it has subscribed to.
    pub(super) fn uris(&self) -> Uris {
        Arc::clone(&self.inner().wants.uris)
    }

    /// How many resources and tasks it has subscribed to.
    pub(super) fn subscriptions(&self) -> usize {
        let inner = self.inner();
        inner.wants.uris.len() + inner.wants.tasks.len()
    }

    /// Its number among the standing streams of its session, if it is one.
    pub(super) fn opening(&self) -> Option<u64> {
        self.inner().opening
    }

    /// It is one, with this number.
    pub(super) fn stand(&self, opening: u64) {
        let mut inner = self.inner();
        inner.opening = Some(opening);
        inner.newer.retain(|newer| opening < *newer);
    }

    /// The session has a standing stream of this number. If that is newer, this one is told nothing until it is closed.
    pub(super) fn overtaken(&self, opening: u64) {
        let mut inner = self.inner();
        if inner.opening.is_some_and(|own| opening <= own) || inner.newer.contains(&opening) {
            return;
        }
        if NEWER_MAX <= inner.newer.len() {
            inner.newer.remove(0);
        }
        inner.newer.push(opening);
    }

    /// The session has the standing stream of this number no longer.
    pub(super) fn outlived(&self, opening: u64) {
        self.inner().newer.retain(|newer| *newer != opening);
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
        if let Some((news, number)) = inner.pending.pop_front() {
            return Poll::Ready(match news {
                News::Notice(notice) => Told::Notice(notice, number),
                News::Task(task) => Told::Task(task),
            });
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
    /// Whose credential the stream was opened with.
    pub(super) caller: Option<Arc<Principal>>,
    /// The network that it counts for, where its caller has no name.
    pub(super) network: Option<u128>,
    pub(super) session: Option<Arc<str>>,
    pub(super) principal: Option<Box<str>>,
    pub(super) request: Option<RequestId>,
}

impl Inner {
    /// One that waits already is told later, once for all.
    fn put(&mut self, news: News, number: Option<u64>) {
        self.pending.retain(|(waiting, _)| *waiting != news);
        if PENDING_MAX <= self.pending.len() {
            self.pending.pop_front();
        }
        self.pending.push_back((news, number));
    }

    /// Whether there is a newer one to be told things.
    fn is_overtaken(&self) -> bool {
        self.opening.is_some() && !self.newer.is_empty()
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
    use crate::catalog::UrlElicitation;

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
    fn eli_11_that_a_visit_is_over_is_told_to_the_session_that_was_asked() {
        let of = |session: &str| {
            let owner = Owner {
                session: Some(session.into()),
                ..Owner::default()
            };
            Feed::new(1, owner, Wants::default(), 0)
        };
        let visited = Notice::Visited(UrlElicitation::new("ada's", "id"));
        let (hers, his) = (of("ada's"), of("bob's"));
        for feed in [&hers, &his] {
            feed.tell(&visited, Some(1));
        }
        assert_eq!(told(&hers), [Told::Notice(visited.clone(), Some(1))]);
        assert_eq!(told(&his), []);
        his.catch_up(vec![(visited.clone(), 1)], 1);
        assert_eq!(told(&his), []);
        let nobodys = feed(0);
        nobodys.tell(&visited, Some(1));
        assert_eq!(told(&nobodys), []);
    }

    #[test]
    fn tasks_are_told_to_who_asked_for_them_and_once_however_often_they_change() {
        let wants = Wants {
            tasks: Arc::new(["a".into()].into()),
            ..Wants::default()
        };
        let feed = Feed::new(1, Owner::default(), wants, 0);
        for _ in 0..3 {
            for task in ["a", "b"] {
                feed.tell_task(&task.into(), Some("a session"));
            }
        }
        assert_eq!(told(&feed), [Told::Task("a".into())]);
        for task in 0..2 * PENDING_MAX {
            let task: Arc<str> = task.to_string().into();
            feed.follow_tasks(Arc::new([Arc::clone(&task)].into()));
            feed.tell_task(&task, None);
        }
        assert_eq!(told(&feed).len(), PENDING_MAX);
    }

    #[test]
    fn lh_05_one_that_is_not_the_newest_is_told_nothing_new() {
        let feed = feed(0);
        feed.stand(5);
        feed.tell(&Notice::Tools, Some(1));
        feed.overtaken(6);
        feed.overtaken(8);
        feed.outlived(8);
        feed.tell(&resource("x://a"), Some(2));
        assert_eq!(told(&feed), [Told::Notice(Notice::Tools, Some(1))]);
        feed.outlived(6);
        feed.tell(&resource("x://a"), Some(3));
        assert_eq!(told(&feed), [Told::Notice(resource("x://a"), Some(3))]);
    }

    #[test]
    fn lh_05_late_word_of_an_older_one_changes_nothing() {
        let feed = feed(0);
        // Heard of before it has its own number.
        feed.overtaken(4);
        feed.overtaken(7);
        feed.stand(5);
        feed.outlived(7);
        feed.overtaken(3);
        feed.tell(&Notice::Tools, Some(1));
        assert_eq!(told(&feed), [Told::Notice(Notice::Tools, Some(1))]);
    }

    #[test]
    fn newer_ones_are_remembered_up_to_a_bound() {
        let feed = feed(0);
        feed.stand(0);
        for opening in 1..=100 * NEWER_MAX as u64 {
            feed.overtaken(opening);
        }
        assert_eq!(feed.inner().newer.len(), NEWER_MAX);
    }
}
