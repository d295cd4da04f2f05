//! What ends with a session, a credential or the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Streams;
use super::bus::OutboxItem;
use super::mailbox::CloseReason;

impl Streams {
    /// Closes the streams of a session that has ended (LH-09). Later messages of its calls are not stored.
    pub fn end_session(&self, session: &str) {
        let mailboxes = self.registry.lock().sessions.get(session).cloned();
        for mailbox in mailboxes.unwrap_or_default() {
            mailbox.end(CloseReason::Gone);
        }
        for ((of, _), live) in self.live.lock().iter() {
            if **of == *session {
                live.abandon();
            }
        }
    }

    /// Schedules the removal of everything stored for a session that ended on this replica.
    pub(crate) fn remove_session_state(&self, session: &Arc<str>) {
        self.outbox.put(OutboxItem::Forget(Arc::clone(session)));
    }

    /// Removes everything stored for a session. Entries that cannot be removed now expire.
    pub(super) async fn delete_session_state(&self, session: &str) {
        let names = &self.names;
        let removed = async {
            self.state.remove(&names.subscriptions(session)).await?;
            self.state.remove(&names.openings(session)).await?;
            self.state.remove_all(&names.all_events(session)).await
        };
        self.track_health(&removed.await);
    }

    /// Closes streams whose credentials were revoked, as at shutdown. Their clients reconnect and are rejected.
    pub(super) fn close_revoked(&self) {
        for mailbox in self.registry.lock().mailboxes.values() {
            if mailbox.is_revoked() {
                mailbox.end(CloseReason::Stopping);
            }
        }
    }

    /// Closes all streams in the way that makes their clients reconnect elsewhere.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for mailbox in self.registry.lock().mailboxes.values() {
            mailbox.end(CloseReason::Stopping);
        }
    }
}
