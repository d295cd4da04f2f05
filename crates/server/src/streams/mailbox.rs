//! Mailbox of a notification stream: coalesces notices until they are read.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::auth::Principal;
use crate::catalog::{ChangeEvent, RequestId};
use crate::net::Mutex;

/// URIs of subscribed resources, or ids of tasks.
pub(super) type Uris = Arc<HashSet<Arc<str>>>;

/// Pending notices of one stream.
///
/// A slow reader costs at most one entry for each subject, because repeated notices are merged.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) number: u64,
    pub(super) owner: Owner,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    wants: Filter,
    /// Pending items in order, with their positions in the log of notices.
    pending: VecDeque<(PendingItem, Option<u64>)>,
    /// Position in the log up to which notices were delivered.
    delivered_through: u64,
    /// Number of the stream within its session, if the session has several.
    opening: Option<u64>,
    /// Newer open streams of the session.
    newer: Vec<NewerStream>,
    end: Option<CloseReason>,
    waker: Option<Waker>,
    /// True if the subscribed URIs are still to be loaded, and their resources count as changed.
    lacks_uris: bool,
}

/// A pending item.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PendingItem {
    Notice(ChangeEvent),
    /// Id of a task that has changed. Its state is loaded on delivery.
    Task(Arc<str>),
}

/// Subjects that a stream subscribes to.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    pub(super) uris: Uris,
    /// Ids of tasks.
    pub(super) tasks: Uris,
}

/// Maximum number of pending items; the oldest is dropped. Only callers with many tasks who do not read reach it.
const PENDING_MAX: usize = 4096;

/// Maximum number of newer streams to remember. There are more only after replicas have died.
const NEWER_MAX: usize = 16;
/// Number of questions without response after which a newer stream of another replica counts as closed.
const UNCONFIRMED_MAX: u8 = 3;

/// A newer stream of the session.
#[derive(Debug)]
struct NewerStream {
    opening: u64,
    /// Number of questions for it since it was last heard of.
    unconfirmed: u8,
}

/// Reason for closing a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The server stops; the client should reconnect.
    Stopping,
    /// The client ended the session or the request.
    Gone,
}

/// Next item of a mailbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MailboxItem {
    Notice(ChangeEvent, Option<u64>),
    /// Id of a task that has changed.
    Task(Arc<str>),
    CloseReason(CloseReason),
}

impl Filter {
    pub(super) fn matches(&self, notice: &ChangeEvent) -> bool {
        match notice {
            ChangeEvent::Tools => self.tools,
            ChangeEvent::Prompts => self.prompts,
            ChangeEvent::Resources => self.resources,
            ChangeEvent::Resource(uri) => self.uris.contains(uri),
            // Matched by session, in `accepts`.
            ChangeEvent::Visited(_) => false,
        }
    }
}

impl Mailbox {
    pub(super) fn new(number: u64, owner: Owner, wants: Filter, delivered_through: u64) -> Self {
        Self {
            number,
            owner,
            inner: Mutex::new(Inner {
                wants,
                delivered_through,
                ..Inner::default()
            }),
        }
    }

    /// Returns true if the credential of the caller was revoked.
    pub(super) fn is_revoked(&self) -> bool {
        self.owner
            .caller
            .as_ref()
            .is_some_and(|caller| caller.is_withdrawn())
    }

    /// Returns true if the stream subscribes to the notice.
    fn accepts(&self, wants: &Filter, notice: &ChangeEvent) -> bool {
        match notice {
            // ELI-11: only the client that was asked is notified.
            ChangeEvent::Visited(visit) => self.owner.session.as_ref() == Some(visit.session()),
            other => wants.matches(other),
        }
    }

    /// Adds a changed task, if the stream subscribes to it or its session started it.
    pub(super) fn deliver_task(&self, task: &Arc<str>, session: Option<&str>) {
        let mut inner = self.inner.lock();
        let is_own =
            session.is_some() && self.owner.session.as_deref() == session && !inner.is_superseded();
        if is_own || inner.wants.tasks.contains(task) {
            inner.put(PendingItem::Task(Arc::clone(task)), None);
            inner.wake();
        }
    }

    /// Adds a task that could not be loaded, behind all other items. A stream that is to end does not wait for it.
    pub(super) fn put_back(&self, task: Arc<str>) {
        let mut inner = self.inner.lock();
        if inner.end.is_none() {
            inner.put(PendingItem::Task(task), None);
        }
    }

    /// Adds all subscribed tasks, since changes may have been missed.
    pub(super) fn recheck_tasks(&self) {
        let mut inner = self.inner.lock();
        let tasks = Arc::clone(&inner.wants.tasks);
        for task in tasks.iter() {
            inner.put(PendingItem::Task(Arc::clone(task)), None);
        }
        inner.wake();
    }

    /// Replaces the subscribed tasks.
    pub(super) fn set_tasks(&self, tasks: Uris) {
        self.inner.lock().wants.tasks = tasks;
    }

    /// Adds a notice, if the stream subscribes to it. `number` is its position in the log.
    pub(super) fn deliver(&self, notice: &ChangeEvent, number: Option<u64>) {
        let mut inner = self.inner.lock();
        if inner.is_superseded() || !self.accepts(&inner.wants, notice) {
            return;
        }
        if number.is_some_and(|number| number <= inner.delivered_through) {
            return;
        }
        inner.put(PendingItem::Notice(notice.clone()), number);
        inner.wake();
    }

    /// Inserts missed notices, up to a position, before newer ones.
    pub(super) fn catch_up(&self, missed: Vec<(ChangeEvent, u64)>, through: u64) {
        let mut inner = self.inner.lock();
        let newer = std::mem::take(&mut inner.pending);
        for (notice, number) in missed {
            if self.accepts(&inner.wants, &notice) {
                inner.put(PendingItem::Notice(notice), Some(number));
            }
        }
        for (notice, number) in newer {
            if number.is_none_or(|number| through < number) {
                inner.put(notice, number);
            }
        }
        inner.delivered_through = inner.delivered_through.max(through);
        inner.wake();
    }

    /// Adds a notice for everything that the stream subscribes to, since any of it may have changed. `lacks_uris`: true if the
    /// subscribed URIs are still to be loaded.
    pub(super) fn report_all(&self, lacks_uris: bool) {
        let mut inner = self.inner.lock();
        inner.lacks_uris = lacks_uris;
        let lists = [
            ChangeEvent::Tools,
            ChangeEvent::Prompts,
            ChangeEvent::Resources,
        ];
        let uris = Arc::clone(&inner.wants.uris);
        let resources = uris.iter().cloned().map(ChangeEvent::Resource);
        for notice in lists.into_iter().chain(resources) {
            if self.accepts(&inner.wants, &notice) {
                inner.put(PendingItem::Notice(notice), None);
            }
        }
        inner.wake();
    }

    /// Replaces the subscribed URIs. Returns the previous ones.
    pub(super) fn subscribe(&self, uris: Uris) -> Uris {
        let mut inner = self.inner.lock();
        if std::mem::take(&mut inner.lacks_uris) {
            for uri in uris.iter().cloned() {
                inner.put(PendingItem::Notice(ChangeEvent::Resource(uri)), None);
            }
            inner.wake();
        }
        std::mem::replace(&mut inner.wants.uris, uris)
    }

    /// Subscribed URIs.
    pub(super) fn uris(&self) -> Uris {
        Arc::clone(&self.inner.lock().wants.uris)
    }

    /// Number of subscribed resources and tasks.
    pub(super) fn subscription_count(&self) -> usize {
        let inner = self.inner.lock();
        inner.wants.uris.len() + inner.wants.tasks.len()
    }

    /// Number of the stream within its session.
    pub(super) fn opening(&self) -> Option<u64> {
        self.inner.lock().opening
    }

    /// Returns the greatest number of a stream of its session that is known: its own, or that of a newer one.
    pub(super) fn newest_opening(&self) -> Option<u64> {
        let inner = self.inner.lock();
        let newer = inner.newer.iter().map(|newer| newer.opening);
        newer.chain(inner.opening).max()
    }

    /// Sets the number of the stream within its session.
    pub(super) fn set_opening(&self, opening: u64) {
        let mut inner = self.inner.lock();
        inner.opening = Some(opening);
        inner.newer.retain(|newer| opening < newer.opening);
    }

    /// Applies the opening of another stream of the session. A newer one suspends this stream until it is closed.
    pub(super) fn superseded_by(&self, opening: u64) {
        let mut inner = self.inner.lock();
        if inner.opening.is_some_and(|own| opening <= own) {
            return;
        }
        let mut newer = inner.newer.iter_mut();
        if let Some(known) = newer.find(|newer| newer.opening == opening) {
            known.unconfirmed = 0;
            return;
        }
        if NEWER_MAX <= inner.newer.len() {
            inner.newer.remove(0);
        }
        inner.newer.push(NewerStream {
            opening,
            unconfirmed: 0,
        });
    }

    /// Applies the closing of another stream of the session.
    pub(super) fn newer_closed(&self, opening: u64) {
        self.inner
            .lock()
            .newer
            .retain(|newer| newer.opening != opening);
    }

    /// Returns true if a newer stream of the session is open, as far as is known.
    pub(super) fn is_superseded(&self) -> bool {
        self.inner.lock().is_superseded()
    }

    /// Drops newer streams that nobody has confirmed: their closing was not heard, or their replica is gone. `here` are the
    /// streams of this replica. Returns true if other replicas must be asked for the remaining ones.
    pub(super) fn drop_unconfirmed(&self, here: &[u64]) -> bool {
        let mut asks = false;
        self.inner.lock().newer.retain_mut(|newer| {
            if here.contains(&newer.opening) {
                return true;
            }
            let stays = newer.unconfirmed < UNCONFIRMED_MAX;
            newer.unconfirmed += 1;
            asks |= stays;
            stays
        });
        asks
    }

    pub(super) fn end(&self, end: CloseReason) {
        let mut inner = self.inner.lock();
        inner.end.get_or_insert(end);
        inner.wake();
    }

    /// Polls for the next item. Pending items precede the end, except after `Gone`.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<MailboxItem> {
        let mut inner = self.inner.lock();
        if inner.end == Some(CloseReason::Gone) {
            return Poll::Ready(MailboxItem::CloseReason(CloseReason::Gone));
        }
        if let Some((news, number)) = inner.pending.pop_front() {
            return Poll::Ready(match news {
                PendingItem::Notice(notice) => MailboxItem::Notice(notice, number),
                PendingItem::Task(task) => MailboxItem::Task(task),
            });
        }
        if let Some(end) = inner.end {
            return Poll::Ready(MailboxItem::CloseReason(end));
        }
        match &inner.waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => inner.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// Owner of a stream.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Principal whose credential opened the stream.
    pub(super) caller: Option<Arc<Principal>>,
    /// Network that the stream is counted for, if the caller is anonymous.
    pub(super) network: Option<u128>,
    /// Session of the stream, by its name in logs.
    pub(super) session: Option<Arc<str>>,
    /// Principal that the stream is counted for; `None` for anonymous callers.
    pub(super) principal: Option<Box<str>>,
    /// Request that opened the stream, if it can be cancelled by id.
    pub(super) request: Option<RequestId>,
    /// The stream resumes that of a call, and is not a notification stream of its session.
    pub(super) resumes_call: bool,
}

impl Inner {
    /// Adds an item. An equal pending item is removed, so that the reader gets it once.
    fn put(&mut self, news: PendingItem, number: Option<u64>) {
        self.pending.retain(|(waiting, _)| *waiting != news);
        if PENDING_MAX <= self.pending.len() {
            self.pending.pop_front();
        }
        self.pending.push_back((news, number));
    }

    /// Returns true if a newer stream of the session is open.
    fn is_superseded(&self) -> bool {
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

    fn mailbox(delivered_through: u64) -> Mailbox {
        let wants = Filter {
            tools: true,
            uris: Arc::new(["x://a".into(), "x://b".into()].into()),
            ..Filter::default()
        };
        Mailbox::new(1, Owner::default(), wants, delivered_through)
    }

    fn resource(uri: &str) -> ChangeEvent {
        ChangeEvent::Resource(uri.into())
    }

    fn reported(mailbox: &Mailbox) -> Vec<MailboxItem> {
        let cx = Context::from_waker(Waker::noop());
        let mut reported = Vec::new();
        while let Poll::Ready(next) = mailbox.poll_next(&cx) {
            let over = matches!(next, MailboxItem::CloseReason(_));
            reported.push(next);
            if over {
                break;
            }
        }
        reported
    }

    #[test]
    fn a_slow_reader_is_told_once_and_of_what_it_wants_only() {
        let mailbox = mailbox(0);
        for number in 1..=10_000 {
            mailbox.deliver(&resource("x://a"), Some(4 * number));
            mailbox.deliver(&resource("x://c"), Some(4 * number + 1));
            mailbox.deliver(&ChangeEvent::Prompts, Some(4 * number + 2));
            mailbox.deliver(&ChangeEvent::Tools, Some(4 * number + 3));
        }
        assert_eq!(
            reported(&mailbox),
            [
                MailboxItem::Notice(resource("x://a"), Some(40_000)),
                MailboxItem::Notice(ChangeEvent::Tools, Some(40_003)),
            ]
        );
        assert_eq!(reported(&mailbox), []);
    }

    #[test]
    fn what_was_missed_comes_first_and_nothing_twice() {
        let mailbox = mailbox(5);
        mailbox.deliver(&ChangeEvent::Tools, Some(5));
        mailbox.deliver(&resource("x://b"), Some(7));
        mailbox.deliver(&ChangeEvent::Tools, Some(9));
        let missed = vec![
            (resource("x://a"), 6),
            (resource("x://b"), 7),
            (ChangeEvent::Prompts, 8),
        ];
        mailbox.catch_up(missed, 8);
        mailbox.deliver(&resource("x://a"), Some(8));
        assert_eq!(
            reported(&mailbox),
            [
                MailboxItem::Notice(resource("x://a"), Some(6)),
                MailboxItem::Notice(resource("x://b"), Some(7)),
                MailboxItem::Notice(ChangeEvent::Tools, Some(9)),
            ]
        );
    }

    #[test]
    fn what_may_have_changed_is_all_that_the_stream_wants() {
        let mailbox = mailbox(5);
        mailbox.report_all(false);
        let mut notices = reported(&mailbox);
        assert_eq!(
            notices.remove(0),
            MailboxItem::Notice(ChangeEvent::Tools, None)
        );
        assert_eq!(notices.len(), 2);
        for uri in ["x://a", "x://b"] {
            let notice = MailboxItem::Notice(resource(uri), None);
            assert!(notices.contains(&notice), "{uri}");
        }
    }

    #[test]
    fn resources_whose_subscriptions_are_loaded_late_may_have_changed_too() {
        let mailbox = mailbox(5);
        mailbox.report_all(true);
        reported(&mailbox);
        for expected in [1, 0] {
            mailbox.subscribe(Arc::new(["x://late".into()].into()));
            assert_eq!(reported(&mailbox).len(), expected);
        }
    }

    #[test]
    fn the_end_comes_after_what_is_known_unless_nobody_comes_back() {
        let stopping = mailbox(0);
        stopping.deliver(&ChangeEvent::Tools, Some(1));
        stopping.end(CloseReason::Stopping);
        assert_eq!(
            reported(&stopping),
            [
                MailboxItem::Notice(ChangeEvent::Tools, Some(1)),
                MailboxItem::CloseReason(CloseReason::Stopping)
            ]
        );
        let gone = mailbox(0);
        gone.deliver(&ChangeEvent::Tools, Some(1));
        gone.end(CloseReason::Gone);
        assert_eq!(
            reported(&gone),
            [MailboxItem::CloseReason(CloseReason::Gone)]
        );
    }

    #[test]
    fn eli_11_that_a_visit_is_over_is_told_to_the_session_that_was_asked() {
        let of = |session: &str| {
            let owner = Owner {
                session: Some(session.into()),
                ..Owner::default()
            };
            Mailbox::new(1, owner, Filter::default(), 0)
        };
        let visited = ChangeEvent::Visited(UrlElicitation::new("ada's", "id"));
        let (hers, his) = (of("ada's"), of("bob's"));
        for mailbox in [&hers, &his] {
            mailbox.deliver(&visited, Some(1));
        }
        assert_eq!(
            reported(&hers),
            [MailboxItem::Notice(visited.clone(), Some(1))]
        );
        assert_eq!(reported(&his), []);
        his.catch_up(vec![(visited.clone(), 1)], 1);
        assert_eq!(reported(&his), []);
        let nobodys = mailbox(0);
        nobodys.deliver(&visited, Some(1));
        assert_eq!(reported(&nobodys), []);
    }

    #[test]
    fn tasks_are_told_to_who_asked_for_them_and_once_however_often_they_change() {
        let wants = Filter {
            tasks: Arc::new(["a".into()].into()),
            ..Filter::default()
        };
        let mailbox = Mailbox::new(1, Owner::default(), wants, 0);
        for _ in 0..3 {
            for task in ["a", "b"] {
                mailbox.deliver_task(&task.into(), Some("a session"));
            }
        }
        assert_eq!(reported(&mailbox), [MailboxItem::Task("a".into())]);
        for task in 0..2 * PENDING_MAX {
            let task: Arc<str> = task.to_string().into();
            mailbox.set_tasks(Arc::new([Arc::clone(&task)].into()));
            mailbox.deliver_task(&task, None);
        }
        assert_eq!(reported(&mailbox).len(), PENDING_MAX);
    }

    #[test]
    fn lh_05_one_that_is_not_the_newest_is_told_nothing_new() {
        let mailbox = mailbox(0);
        mailbox.set_opening(5);
        mailbox.deliver(&ChangeEvent::Tools, Some(1));
        mailbox.superseded_by(6);
        mailbox.superseded_by(8);
        mailbox.newer_closed(8);
        mailbox.deliver(&resource("x://a"), Some(2));
        assert_eq!(
            reported(&mailbox),
            [MailboxItem::Notice(ChangeEvent::Tools, Some(1))]
        );
        mailbox.newer_closed(6);
        mailbox.deliver(&resource("x://a"), Some(3));
        assert_eq!(
            reported(&mailbox),
            [MailboxItem::Notice(resource("x://a"), Some(3))]
        );
    }

    #[test]
    fn lh_05_the_newest_number_that_is_known_is_its_own_or_that_of_a_newer_one() {
        let mailbox = mailbox(0);
        assert_eq!(mailbox.newest_opening(), None);
        mailbox.set_opening(5);
        assert_eq!(mailbox.newest_opening(), Some(5));
        mailbox.superseded_by(7);
        mailbox.superseded_by(6);
        assert_eq!(mailbox.newest_opening(), Some(7));
    }

    #[test]
    fn lh_05_late_word_of_an_older_one_changes_nothing() {
        let mailbox = mailbox(0);
        // Heard of before it has its own number.
        mailbox.superseded_by(4);
        mailbox.superseded_by(7);
        mailbox.set_opening(5);
        mailbox.newer_closed(7);
        mailbox.superseded_by(3);
        mailbox.deliver(&ChangeEvent::Tools, Some(1));
        assert_eq!(
            reported(&mailbox),
            [MailboxItem::Notice(ChangeEvent::Tools, Some(1))]
        );
    }

    #[test]
    fn lh_05_a_newer_one_whose_end_was_not_heard_is_forgotten_when_nobody_confirms_it() {
        let mailbox = mailbox(0);
        mailbox.set_opening(5);
        mailbox.superseded_by(6);
        mailbox.superseded_by(7);
        for _ in 0..2 * UNCONFIRMED_MAX {
            assert!(mailbox.drop_unconfirmed(&[5, 7]));
            mailbox.superseded_by(6);
        }
        for _ in 0..UNCONFIRMED_MAX {
            assert!(mailbox.drop_unconfirmed(&[5, 7]) && mailbox.is_superseded());
        }
        assert!(!mailbox.drop_unconfirmed(&[5, 7]));
        assert!(mailbox.is_superseded(), "one is open on this replica");
        mailbox.newer_closed(7);
        mailbox.deliver(&ChangeEvent::Tools, Some(1));
        assert_eq!(
            reported(&mailbox),
            [MailboxItem::Notice(ChangeEvent::Tools, Some(1))]
        );
    }

    #[test]
    fn newer_ones_are_remembered_up_to_a_bound() {
        let mailbox = mailbox(0);
        mailbox.set_opening(0);
        for opening in 1..=100 * NEWER_MAX as u64 {
            mailbox.superseded_by(opening);
        }
        assert_eq!(mailbox.inner.lock().newer.len(), NEWER_MAX);
    }
}
