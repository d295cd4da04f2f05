//! Order of the notification streams of a session: notices go to the newest one only (LH-05).
//!
//! The word of a stream's end can be lost, with its replica or while the shared state is unavailable. So a replica with an
//! older stream keeps asking whether the newer one is still open.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Streams;
use super::bus::BusMessage;
use super::mailbox::Mailbox;
use crate::state::{Retention, unix_micros};

/// A log of one entry, used as a sequence. A new log continues above all earlier numbers.
const OPENINGS: Retention = Retention {
    entries: 1,
    bytes: 1,
    life: Duration::from_secs(60),
    may_go: false,
};

impl Streams {
    /// Makes a stream the newest of its session on all replicas: notices go to it and to no older one (LH-05).
    ///
    /// The shared state orders the streams by number, because bus messages may arrive late.
    pub(super) async fn make_standing(&self, mailbox: &Arc<Mailbox>) {
        let Some(session) = &mailbox.owner.session else {
            return;
        };
        let opening = self.next_opening(session).await;
        {
            let registry = self.registry.lock();
            mailbox.set_opening(opening);
            for other in registry.sessions.get(session).into_iter().flatten() {
                match other.opening() {
                    Some(newer) if opening < newer => mailbox.superseded_by(newer),
                    _ => other.superseded_by(opening),
                }
            }
        }
        let session = Arc::clone(session);
        self.broadcast(BusMessage::Opened { session, opening });
    }

    /// A number greater than those of all earlier streams of the session.
    async fn next_opening(&self, session: &str) -> u64 {
        let log = self.names.openings(session);
        let number = self.state.append(&log, Bytes::new(), OPENINGS).await;
        self.track_health(&number);
        // New logs are numbered by the time in microseconds, so this fallback stays in order. The clock of this replica can be
        // behind that of the shared state.
        number.unwrap_or_else(|_| unix_micros().max(self.newest_opening(session) + 1))
    }

    /// Returns the greatest number of the session's streams that is known here; 0 for none.
    pub(super) fn newest_opening(&self, session: &str) -> u64 {
        let registry = self.registry.lock();
        let mailboxes = registry.sessions.get(session).into_iter().flatten();
        let known = mailboxes.filter_map(|mailbox| mailbox.newest_opening());
        known.max().unwrap_or(0)
    }

    /// Applies the opening of a session's stream on another replica.
    pub(super) fn peer_opened(&self, session: &str, opening: u64) {
        let registry = self.registry.lock();
        for mailbox in registry.sessions.get(session).into_iter().flatten() {
            mailbox.superseded_by(opening);
        }
    }

    /// Applies the closing of a session's stream.
    pub(super) fn peer_closed(&self, session: &str, opening: u64) {
        let registry = self.registry.lock();
        for mailbox in registry.sessions.get(session).into_iter().flatten() {
            mailbox.newer_closed(opening);
        }
    }

    /// Asks other replicas whether the newer streams of superseded ones are open, and drops those that nobody confirms.
    /// During an outage of the state there are no responses, so nothing is dropped.
    pub(super) fn check_superseded(&self) {
        if self.health.is_failing() {
            return;
        }
        let mut asked = Vec::new();
        for (session, mailboxes) in &self.registry.lock().sessions {
            for mailbox in mailboxes.iter().filter(|mailbox| mailbox.is_superseded()) {
                let here: Vec<_> = mailboxes.iter().filter_map(|one| one.opening()).collect();
                if mailbox.drop_unconfirmed(&here) {
                    asked.push(Arc::clone(session));
                }
            }
        }
        for session in asked {
            self.broadcast(BusMessage::AskOpened { session });
        }
    }

    /// Repeats to other replicas which streams of a session are open here.
    pub(super) fn repeat_openings(&self, session: &Arc<str>) {
        let openings: Vec<_> = {
            let registry = self.registry.lock();
            let mailboxes = registry.sessions.get(session).into_iter().flatten();
            mailboxes.filter_map(|mailbox| mailbox.opening()).collect()
        };
        for opening in openings {
            let session = Arc::clone(session);
            self.broadcast(BusMessage::Opened { session, opening });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mailbox::{Filter, Owner};
    use super::super::registration::Registration;
    use super::*;
    use crate::server::Server;
    use crate::server::tests::replica_of;
    use crate::state::SharedState;

    async fn open(server: &Arc<Server>) -> Registration {
        let owner = Owner {
            session: Some("session".into()),
            ..Owner::default()
        };
        let place = server.streams.enter(owner, Filter::all_lists());
        let place = place.expect("room");
        server.streams.make_standing(&place.mailbox).await;
        place
    }

    #[tokio::test(start_paused = true)]
    async fn lh_05_an_older_stream_goes_on_if_the_replica_of_the_newer_one_is_gone() {
        let state = SharedState::default();
        let [stays, other, gone] = [(); 3].map(|()| replica_of(state.clone()));
        let run = |server: &Arc<Server>| {
            let server = Arc::clone(server);
            tokio::spawn(server.run_notifications())
        };
        let running = [&stays, &other, &gone].map(run);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let older = open(&stays).await;
        let _newer = open(&other).await;
        let newest = open(&gone).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(older.mailbox.is_superseded(), "both newer ones are open");
        running[2].abort();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(older.mailbox.is_superseded(), "one newer stream is open");
        running[1].abort();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!older.mailbox.is_superseded());
        drop(newest);
    }
}
