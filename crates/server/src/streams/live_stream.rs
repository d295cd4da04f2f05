//! State of call streams on this replica, shared by the running call and its followers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use super::Streams;

/// State of a call stream on this replica, for the running call and its followers.
#[derive(Debug, Default)]
pub(super) struct LiveStream {
    /// Number of users: the call and its followers. Changed only while the map is locked.
    users: AtomicUsize,
    /// Number of times the stream was resumed. Only the last reader may send events (LH-05).
    pub(super) holder: AtomicU64,
    /// The call runs on this replica.
    pub(super) is_here: AtomicBool,
    /// A reader on another replica follows the log.
    pub(super) is_followed_elsewhere: AtomicBool,
    /// The session has ended, so the stream cannot be resumed.
    pub(super) is_abandoned: AtomicBool,
    /// Wakes the current reader when it is replaced.
    pub(super) waker: AtomicWaker,
    /// Notified of new log entries.
    pub(super) news: Notify,
}

impl LiveStream {
    /// Makes the caller the current reader. Returns its number.
    pub(super) fn take(&self) -> u64 {
        let mine = self.holder.fetch_add(1, Ordering::AcqRel) + 1;
        self.waker.wake();
        self.news.notify_waiters();
        mine
    }

    pub(super) fn is_held_by(&self, holder: u64) -> bool {
        self.holder.load(Ordering::Acquire) == holder
    }

    /// Stops logging, because the session has ended.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Returns true if the call runs on this replica.
    pub(super) fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Acquire)
    }
}

impl Streams {
    /// Returns the state of a call stream, which its first user creates. Each user leaves it once.
    pub(super) fn enter_call(&self, session: &Arc<str>, stream: u64) -> Arc<LiveStream> {
        let mut all = self.live.lock();
        let live = all.entry((Arc::clone(session), stream)).or_default();
        live.users.fetch_add(1, Ordering::Relaxed);
        Arc::clone(live)
    }

    /// Removes the state of a call stream with its last user.
    pub(super) fn leave_call(&self, session: &Arc<str>, stream: u64) {
        let mut all = self.live.lock();
        let key = (Arc::clone(session), stream);
        if let Some(live) = all.get(&key)
            && live.users.fetch_sub(1, Ordering::Relaxed) <= 1
        {
            all.remove(&key);
        }
    }

    pub(super) fn live_call(&self, session: &Arc<str>, stream: u64) -> Option<Arc<LiveStream>> {
        let key = (Arc::clone(session), stream);
        self.live.lock().get(&key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::replica_of;
    use crate::state::SharedState;

    #[tokio::test]
    async fn the_state_of_a_call_stream_lasts_until_its_last_user_leaves() {
        let server = replica_of(SharedState::default());
        let (streams, session) = (&server.streams, Arc::from("session"));
        let call = streams.enter_call(&session, 1);
        let follower = streams.enter_call(&session, 1);
        assert!(Arc::ptr_eq(&call, &follower));
        // Both references still exist when both have left.
        streams.leave_call(&session, 1);
        assert_eq!(streams.counts().calls, 1);
        streams.leave_call(&session, 1);
        assert_eq!(streams.counts().calls, 0);
        drop((call, follower));
    }
}
