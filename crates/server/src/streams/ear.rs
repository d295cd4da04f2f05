//! What the caller behind a standing stream may hear, and what it is told of tasks.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::standing::Manner;
use crate::auth::{Principal, Shelf};
use crate::catalog::Notice;
use crate::server::Server;
use crate::server::generation::Generation;

/// The caller's side of one standing stream.
pub(super) struct Ear {
    server: Arc<Server>,
    principal: Arc<Principal>,
    /// What the caller saw of each list when it was last looked at; empty where everybody sees everything.
    lists: [Option<Sight>; LISTS.len()],
    /// What was said of each task that the caller has asked for.
    told: HashMap<Arc<str>, u64>,
    looking: Option<Looking>,
}

/// A task, and what there is to say of it; `None` if it is none of the caller's.
type Looking = BoxFuture<'static, Option<(Arc<str>, Bytes)>>;

/// What a caller saw of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    generation: u64,
    digest: u64,
}

/// The lists that there are notices of, and what is in each.
const LISTS: [&[Shelf]; 3] = [
    &[Shelf::Tools],
    &[Shelf::Prompts],
    &[Shelf::Resources, Shelf::Templates],
];

impl Ear {
    pub(super) fn new(server: &Arc<Server>, principal: &Arc<Principal>) -> Self {
        let generation = server.generation.load();
        Self {
            lists: LISTS.map(|shelves| Sight::of(&generation, principal, shelves)),
            server: Arc::clone(server),
            principal: Arc::clone(principal),
            told: HashMap::new(),
            looking: None,
        }
    }

    /// Whether the caller is told of a notice: not of resources that it may not read, nor of changes to what it does
    /// not see.
    pub(super) fn may_hear(&mut self, notice: &Notice) -> bool {
        let list = match notice {
            Notice::Tools => 0,
            Notice::Prompts => 1,
            Notice::Resources => 2,
            Notice::Resource(uri) => {
                return self.server.generation.load().sees_uri(&self.principal, uri);
            }
            Notice::Visited(_) => return true,
        };
        let now = Sight::of(&self.server.generation.load(), &self.principal, LISTS[list]);
        let before = std::mem::replace(&mut self.lists[list], now);
        match (before, now) {
            // Another generation that looks the same to this caller: what has changed is hidden from it.
            (Some(before), Some(now)) => {
                before.generation == now.generation || before.digest != now.digest
            }
            _ => true,
        }
    }

    /// Begins to look at a task that has changed.
    pub(super) fn look_at(&mut self, task: Arc<str>, manner: &Manner) {
        let (server, principal) = (Arc::clone(&self.server), Arc::clone(&self.principal));
        let subscription = match manner {
            Manner::Listen(listen) => Some(listen.id.clone()),
            Manner::Session | Manner::Plain => None,
        };
        self.looking = Some(Box::pin(async move {
            let message = server
                .task_notice(&task, &principal, subscription.as_deref())
                .await?;
            Some((task, message))
        }));
    }

    /// What there is to say of the task that is being looked at; `Ready(None)` if nothing is, or there is nothing new.
    pub(super) fn poll_task(
        &mut self,
        cx: &mut Context<'_>,
        manner: &Manner,
    ) -> Poll<Option<Bytes>> {
        let Some(looking) = &mut self.looking else {
            return Poll::Ready(None);
        };
        let Poll::Ready(found) = looking.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.looking = None;
        let Some((task, message)) = found else {
            return Poll::Ready(None);
        };
        // Words between replicas may be repeated. A session's tasks are not remembered: there is no end of them.
        if matches!(manner, Manner::Listen(_)) {
            let mut hasher = DefaultHasher::new();
            message.hash(&mut hasher);
            let hash = hasher.finish();
            if self.told.insert(task, hash) == Some(hash) {
                return Poll::Ready(None);
            }
        }
        Poll::Ready(Some(message))
    }

    /// Whether a task is being looked at.
    pub(super) fn is_looking(&self) -> bool {
        self.looking.is_some()
    }
}

impl Sight {
    fn of(generation: &Generation, principal: &Principal, shelves: &[Shelf]) -> Option<Self> {
        Some(Self {
            generation: generation.number,
            digest: generation.digest_of(principal, shelves)?,
        })
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}
