//! The caller of a notification stream: which notices and tasks it may see.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::notification_stream::StreamKind;
use crate::auth::{ItemKind, Principal};
use crate::catalog::ChangeEvent;
use crate::server::parts::Server;
use crate::server::snapshot::Snapshot;
use crate::server::tasks;
use crate::server::tool_search::search_for;

/// The caller of one notification stream.
pub(super) struct Subscriber {
    server: Arc<Server>,
    principal: Arc<Principal>,
    /// Visible part of each list at the last check; `None` without a policy.
    lists: [Option<VisibleList>; LISTS.len()],
    /// Hash of the last notification of each requested task.
    last_sent: HashMap<Arc<str>, u64>,
    /// The task that is being loaded.
    pub(super) lookup: Option<TaskLookup>,
}

/// A task with its notification; `None` if it does not belong to the caller. An error is a task that could not be loaded.
type TaskLookup = BoxFuture<'static, Result<Option<(Arc<str>, Bytes)>, Arc<str>>>;

/// Delay after a failed lookup.
const RETRY: Duration = Duration::from_secs(1);

/// Digest of the visible part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VisibleList {
    snapshot: u64,
    digest: u64,
}

/// Lists with change notifications, and the kinds of items in each.
const LISTS: [&[ItemKind]; 3] = [
    &[ItemKind::Tools],
    &[ItemKind::Prompts],
    &[ItemKind::Resources, ItemKind::Templates],
];

impl Subscriber {
    pub(super) fn new(server: &Arc<Server>, principal: &Arc<Principal>) -> Self {
        let snapshot = server.snapshots.load();
        Self {
            lists: LISTS.map(|shelves| VisibleList::of(&snapshot, principal, shelves)),
            server: Arc::clone(server),
            principal: Arc::clone(principal),
            last_sent: HashMap::new(),
            lookup: None,
        }
    }

    /// Returns true if the caller may see the notice: the resource is readable, or the visible part of the list has
    /// changed.
    pub(super) fn wants_notice(&mut self, notice: &ChangeEvent) -> bool {
        let list = match notice {
            ChangeEvent::Tools => 0,
            ChangeEvent::Prompts => 1,
            ChangeEvent::Resources => 2,
            ChangeEvent::Resource(uri) => {
                return self.server.snapshots.load().may_watch(&self.principal, uri);
            }
            ChangeEvent::Visited(_) => return true,
        };
        let now = VisibleList::of(&self.server.snapshots.load(), &self.principal, LISTS[list]);
        let before = std::mem::replace(&mut self.lists[list], now);
        match (before, now) {
            // The visible part is equal, so only hidden items have changed.
            (Some(before), Some(now)) => {
                before.snapshot == now.snapshot || before.digest != now.digest
            }
            _ => true,
        }
    }

    /// Starts to load a task that has changed.
    pub(super) fn load_task(&mut self, task: Arc<str>, kind: &StreamKind) {
        let (server, principal) = (Arc::clone(&self.server), Arc::clone(&self.principal));
        let subscription = match kind {
            StreamKind::Listen(listen) => Some(listen.id.clone()),
            StreamKind::Session(_) | StreamKind::Plain => None,
        };
        self.lookup = Some(Box::pin(async move {
            let subscription = subscription.as_deref();
            let notice = tasks::task_notice(&server, &task, &principal, subscription).await;
            match notice {
                Ok(message) => Ok(message.map(|message| (task, message))),
                Err(_) => {
                    tokio::time::sleep(RETRY).await;
                    Err(task)
                }
            }
        }));
    }

    /// Polls for the task's notification. Returns `None` without one, or for a duplicate.
    ///
    /// # Errors
    ///
    /// The task, if the state failed. It is to be loaded again.
    pub(super) fn poll_task(
        &mut self,
        cx: &mut Context<'_>,
        kind: &StreamKind,
    ) -> Poll<Result<Option<Bytes>, Arc<str>>> {
        let Some(lookup) = &mut self.lookup else {
            return Poll::Ready(Ok(None));
        };
        let Poll::Ready(found) = lookup.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.lookup = None;
        let (task, message) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Poll::Ready(Ok(None)),
            Err(task) => return Poll::Ready(Err(task)),
        };
        // The bus may duplicate messages. Session streams are not checked, because their tasks are unbounded.
        if matches!(kind, StreamKind::Listen(_)) {
            let mut hasher = DefaultHasher::new();
            message.hash(&mut hasher);
            let hash = hasher.finish();
            if self.last_sent.insert(task, hash) == Some(hash) {
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(Some(message)))
    }
}

impl VisibleList {
    fn of(snapshot: &Snapshot, principal: &Principal, shelves: &[ItemKind]) -> Option<Self> {
        let mut hasher = DefaultHasher::new();
        snapshot.digest_of(principal, shelves)?.hash(&mut hasher);
        if shelves.contains(&ItemKind::Tools) {
            // The tools of the search are listed instead.
            let search = search_for(snapshot, principal);
            search.map(|search| search.config.results).hash(&mut hasher);
        }
        Some(Self {
            snapshot: snapshot.number,
            digest: hasher.finish(),
        })
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::protocol::Revision;
    use crate::server::tests::replica_of;
    use crate::state::testing::{Asked, Fronted, StandIn};
    use crate::state::{Memory, SharedState, StateError, StateFuture};

    /// A state that can be down.
    #[derive(Debug)]
    struct Shaky(Memory, AtomicBool);

    impl StandIn for Shaky {
        fn store(&self) -> &Memory {
            &self.0
        }

        fn instead<'a, T: Send + 'a>(&'a self, _: Asked) -> Option<StateFuture<'a, T>> {
            let reason = "down".to_owned();
            let failed = Err(StateError::Unreachable { reason });
            let is_down = self.1.load(Ordering::Relaxed);
            is_down.then(|| -> StateFuture<'a, T> { Box::pin(std::future::ready(failed)) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_cannot_be_loaded_is_named_for_another_attempt() {
        let store = Arc::new(Fronted(Shaky(Memory::new(1 << 20), AtomicBool::default())));
        let server = replica_of(SharedState::new(
            Arc::<Fronted<Shaky>>::clone(&store),
            Duration::from_secs(1),
        ));
        let mut subscriber = Subscriber::new(&server, &Arc::new(Principal::new("ada")));
        let task: Arc<str> = "0".repeat(32).into();
        let kind = StreamKind::Session(Revision::NEWEST_WITH_SESSIONS);
        for (is_down, expected) in [(true, Err(Arc::clone(&task))), (false, Ok(None))] {
            store.0.1.store(is_down, Ordering::Relaxed);
            subscriber.load_task(Arc::clone(&task), &kind);
            let found = poll_fn(|cx| subscriber.poll_task(cx, &kind)).await;
            assert_eq!(found, expected);
        }
    }
}
