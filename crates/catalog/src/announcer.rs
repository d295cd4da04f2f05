//! Announcements of changes to subscribed clients.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::Notify;

use super::{SubscriptionCounts, UrlElicitation};
use crate::net::Mutex;

/// Announces to clients that a resource or a list has changed, on every replica. Only subscribed clients are notified.
///
/// Get one from `App::announcer`, keep it, clone it, use it from any thread. It never blocks
/// and never fails. Until the server runs, announcements wait.
///
/// ```
/// use longshore::{App, ResourceDefinition, ToolError, resource_fn};
///
/// let app = App::new();
/// let announcer = app.announcer();
/// std::thread::spawn(move || {
///     // Whenever there is something new:
///     announcer.resource_changed("weather://oslo");
/// });
/// ```
///
/// Announcements of the same that come faster than they can be told become one. At most 32,768 different ones wait.
#[derive(Clone, Default)]
pub struct Announcer(Arc<Shared>);

/// Handle to an [`Announcer`] that does not keep its server alive.
#[derive(Debug)]
pub struct WeakAnnouncer(Weak<Shared>);

impl WeakAnnouncer {
    pub fn upgrade(&self) -> Option<Announcer> {
        self.0.upgrade().map(Announcer)
    }
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    news: Notify,
    /// Further announcers with the same announcements.
    followers: Mutex<Vec<Announcer>>,
    /// True if no server takes announcements from this one.
    is_forwarding: AtomicBool,
    /// Subscriptions to resources, counted over all announcers that follow the same leader.
    interest: Mutex<SubscriptionCounts>,
    /// Removes cached contents of a resource.
    invalidate: OnceLock<Invalidate>,
}

type Invalidate = Box<dyn Fn(&Arc<str>) + Send + Sync>;

#[derive(Default)]
struct Waiting {
    notices: VecDeque<ChangeEvent>,
    known: HashSet<ChangeEvent>,
    /// True if it was logged that some were dropped, until none waits.
    is_loss_logged: bool,
}

/// A change to announce.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeEvent {
    Tools,
    Prompts,
    Resources,
    /// The contents of one resource, by its URI.
    Resource(Arc<str>),
    /// A page that one session was asked to visit is done with.
    Visited(UrlElicitation),
}

/// Maximum number of announcements that wait. An upstream server that is connected again announces all subscribed resources
/// at once.
const WAITING_MAX: usize = 32_768;
/// Number of announcements whose memory is released when none waits any more.
const LARGE: usize = 1024;

impl Announcer {
    /// Announces new contents of a resource. Clients that have subscribed to exactly this URI are notified.
    pub fn resource_changed(&self, uri: impl AsRef<str>) {
        self.announce(ChangeEvent::Resource(uri.as_ref().into()));
    }

    /// The list of tools has changed.
    pub fn tools_changed(&self) {
        self.announce(ChangeEvent::Tools);
    }

    /// The list of resources, or of their templates, has changed.
    pub fn resources_changed(&self) {
        self.announce(ChangeEvent::Resources);
    }

    /// The list of prompts has changed.
    pub fn prompts_changed(&self) {
        self.announce(ChangeEvent::Prompts);
    }

    /// Announces that the user has finished with a page of a URL elicitation (ELI-11). Only the client that was asked
    /// is notified: on its open session stream, or when it next resumes that stream.
    pub fn elicitation_completed(&self, elicitation: &UrlElicitation) {
        self.announce(ChangeEvent::Visited(elicitation.clone()));
    }

    /// Adds another announcer that repeats every announcement of this one and shares its subscriptions. The follower
    /// must exist before the server that it notifies.
    #[doc(hidden)]
    pub fn lead(&self, follower: &Self) {
        *follower.0.interest.lock() = self.interest();
        self.0.followers.lock().push(follower.clone());
    }

    /// Passes every announcement to another announcer, and keeps none: its application has become a part of the other
    /// one's.
    #[doc(hidden)]
    pub fn forward_to(&self, other: &Self) {
        self.lead(other);
        self.0.is_forwarding.store(true, Ordering::Relaxed);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        for notice in waiting.notices {
            other.announce(notice);
        }
    }

    /// Sets the function that removes cached contents of a changed resource, before the change is announced: who reads after
    /// the change gets the new contents.
    #[doc(hidden)]
    pub fn on_resource_change(&self, invalidate: impl Fn(&Arc<str>) + Send + Sync + 'static) {
        // An announcer has one server.
        let _ = self.0.invalidate.set(Box::new(invalidate));
    }

    /// Subscribed resources.
    #[doc(hidden)]
    pub fn interest(&self) -> SubscriptionCounts {
        self.0.interest.lock().clone()
    }

    /// A list of this very server has changed, and those of its followers may not have.
    #[doc(hidden)]
    pub fn announce_alone(&self, notice: ChangeEvent) {
        if let ChangeEvent::Resource(uri) = &notice
            && let Some(invalidate) = self.0.invalidate.get()
        {
            invalidate(uri);
        }
        let mut waiting = self.0.waiting.lock();
        if self.0.is_forwarding.load(Ordering::Relaxed) || waiting.known.contains(&notice) {
            return;
        }
        if WAITING_MAX <= waiting.notices.len() {
            if !std::mem::replace(&mut waiting.is_loss_logged, true) {
                tracing::warn!(
                    ?notice,
                    "more than {WAITING_MAX} changes wait to be announced; this one and further ones are not announced"
                );
            }
            return;
        }
        waiting.known.insert(notice.clone());
        waiting.notices.push_back(notice);
        drop(waiting);
        self.0.news.notify_one();
    }

    /// Creates a handle that does not keep the server's announcer alive.
    #[doc(hidden)]
    pub fn downgrade(&self) -> WeakAnnouncer {
        WeakAnnouncer(Arc::downgrade(&self.0))
    }

    /// Queues a notice for subscribers, the only way from an application to them. Events (SEP-3415, a draft) would be
    /// further notices.
    fn announce(&self, notice: ChangeEvent) {
        for follower in &*self.0.followers.lock() {
            follower.announce(notice.clone());
        }
        self.announce_alone(notice);
    }

    /// The next announcement that waits.
    #[doc(hidden)]
    pub fn take(&self) -> Option<ChangeEvent> {
        let mut waiting = self.0.waiting.lock();
        let notice = waiting.notices.pop_front()?;
        waiting.known.remove(&notice);
        if waiting.notices.is_empty() && LARGE < waiting.notices.capacity() {
            *waiting = Waiting::default();
        }
        Some(notice)
    }

    /// Waits until announcements may be pending.
    #[doc(hidden)]
    pub async fn news(&self) {
        self.0.news.notified().await;
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcer")
            .field("waiting", &self.0.waiting.lock().notices.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_announce_what_their_leader_does_and_not_the_other_way() {
        let (leader, follower) = (Announcer::default(), Announcer::default());
        leader.lead(&follower);
        leader.prompts_changed();
        leader.announce_alone(ChangeEvent::Tools);
        follower.resources_changed();
        let all =
            |announcer: &Announcer| -> Vec<_> { std::iter::from_fn(|| announcer.take()).collect() };
        assert_eq!(all(&leader), [ChangeEvent::Prompts, ChangeEvent::Tools]);
        assert_eq!(
            all(&follower),
            [ChangeEvent::Prompts, ChangeEvent::Resources]
        );
    }

    #[test]
    fn an_announcer_that_forwards_keeps_nothing() {
        let (inner, outer) = (Announcer::default(), Announcer::default());
        inner.tools_changed();
        inner.forward_to(&outer);
        inner.prompts_changed();
        assert_eq!(outer.take(), Some(ChangeEvent::Tools));
        for n in 0..2 * WAITING_MAX {
            inner.resource_changed(format!("x://{n}"));
            outer.take().expect("forwarded");
        }
        assert_eq!(inner.take(), None);
    }

    #[test]
    fn a_changed_resource_is_invalid_at_once_and_also_if_the_announcement_waits_already() {
        let (leader, follower) = (Announcer::default(), Announcer::default());
        leader.lead(&follower);
        let invalid: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&invalid);
        follower.on_resource_change(move |uri| {
            seen.lock().push(uri.to_string());
        });
        leader.resource_changed("x://1");
        leader.resource_changed("x://1");
        leader.tools_changed();
        assert_eq!(*invalid.lock(), ["x://1", "x://1"]);
    }

    #[test]
    fn the_same_waits_once_and_all_together_are_bounded() {
        let announcer = Announcer::default();
        announcer.tools_changed();
        for n in 0..2 * WAITING_MAX {
            announcer.resource_changed(format!("x://{n}"));
            announcer.tools_changed();
        }
        assert_eq!(announcer.take(), Some(ChangeEvent::Tools));
        announcer.tools_changed();
        let rest: Vec<_> = std::iter::from_fn(|| announcer.take()).collect();
        assert_eq!(rest.len(), WAITING_MAX);
        assert_eq!(rest.last(), Some(&ChangeEvent::Tools));
        assert_eq!(announcer.take(), None);
    }
}
