//! Resource subscriptions of sessions, which all replicas share.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::Streams;
use super::bus::BusMessage;
use super::mailbox::Uris;
use crate::net::Mutex;
use crate::server::share::StateKind;
use crate::state::{StateError, VALUE_MAX_BYTES};

/// Time to live of subscriptions, the maximum age of a session.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Time to live after the last subscription was removed.
const EMPTY_TTL: Duration = Duration::from_secs(1);
/// Maximum number of attempts when another replica writes at the same time.
const ATTEMPTS_MAX: usize = 8;

/// Error of a change of subscriptions.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubscriptionError {
    #[error("at most {0} resources can be subscribed to (server.streams.subscriptions)")]
    TooMany(usize),
    #[error("the subscriptions of a session have at most 65536 bytes together")]
    TooLarge,
    #[error(transparent)]
    State(#[from] StateError),
}

/// Sessions with streams here whose subscriptions may have changed unnoticed.
#[derive(Debug, Default)]
pub(super) struct StaleSubscriptions {
    sessions: Mutex<HashSet<Arc<str>>>,
    pub(super) changed: Notify,
}

impl StaleSubscriptions {
    fn with<T>(&self, act: impl FnOnce(&mut HashSet<Arc<str>>) -> T) -> T {
        act(&mut self.sessions.lock())
    }

    /// Removes a session before its subscriptions are read, so that a later change is read too.
    fn take(&self) -> Option<Arc<str>> {
        self.with(|sessions| {
            let session = sessions.iter().next().cloned()?;
            sessions.remove(&session);
            Some(session)
        })
    }
}

impl Streams {
    /// Applies the subscriptions of a session to its streams here, now or when the state is available again.
    pub(super) async fn load_subscriptions(&self, session: &Arc<str>) {
        match self.subscriptions_of(session).await {
            Ok(uris) => self.set_subscriptions(session, &uris),
            Err(_) => self.load_subscriptions_later(session),
        }
    }

    /// Loads the subscriptions of a session as soon as the state is available.
    pub(super) fn load_subscriptions_later(&self, session: &Arc<str>) {
        self.stale
            .with(|sessions| sessions.insert(Arc::clone(session)));
        self.stale.changed.notify_one();
    }

    /// Loads the subscriptions of all sessions with streams here, since changes may have been missed.
    pub(super) fn recheck_subscriptions(&self) {
        let sessions: Vec<_> = self.registry.lock().sessions.keys().cloned().collect();
        for session in &sessions {
            self.load_subscriptions_later(session);
        }
    }

    /// Loads subscriptions that may have changed.
    pub(super) async fn load_stale_subscriptions(&self) -> Result<(), StateError> {
        while let Some(session) = self.stale.take() {
            if !self.is_here(&session) {
                continue;
            }
            match self.subscriptions_of(&session).await {
                Ok(uris) => self.set_subscriptions(&session, &uris),
                Err(error) => {
                    self.stale.with(|sessions| sessions.insert(session));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Subscriptions of a session.
    pub(super) async fn subscriptions_of(&self, session: &str) -> Result<Uris, StateError> {
        let found = self.state.get(&self.names.subscriptions(session)).await;
        self.track_health(&found);
        Ok(Arc::new(
            found?.map(|value| read(&value)).unwrap_or_default(),
        ))
    }

    pub(super) async fn update_subscription(
        &self,
        session: &Arc<str>,
        uri: &str,
        adds: bool,
        owner: Option<&str>,
    ) -> Result<(), SubscriptionError> {
        let state = StateKind::Subscription.of(&self.state, owner);
        let key = self.names.subscriptions(session);
        for _ in 0..ATTEMPTS_MAX {
            let found = state.get(&key).await?;
            let mut uris = found.as_ref().map(|value| read(value)).unwrap_or_default();
            let changed = if adds {
                uris.insert(uri.into())
            } else {
                uris.remove(uri)
            };
            if !changed {
                return Ok(());
            }
            if self.config.subscriptions < uris.len() {
                return Err(SubscriptionError::TooMany(self.config.subscriptions));
            }
            let value = write(&uris);
            if VALUE_MAX_BYTES < value.len() {
                return Err(SubscriptionError::TooLarge);
            }
            let written = match found {
                None => state.put_if_absent(&key, value, TTL).await?,
                Some(found) => {
                    let life = if uris.is_empty() { EMPTY_TTL } else { TTL };
                    state.compare_and_swap(&key, found, value, life).await?
                }
            };
            if written {
                self.set_subscriptions(session, &Arc::new(uris));
                // Concurrent changes may be applied in another order than they were written.
                if self.is_here(session) {
                    self.load_subscriptions_later(session);
                }
                let session = Arc::clone(session);
                self.broadcast(BusMessage::Subscribed { session });
                return Ok(());
            }
        }
        Err(SubscriptionError::State(StateError::Unreachable {
            reason: "a value changes faster than it can be changed".to_owned(),
        }))
    }
}

fn read(value: &[u8]) -> HashSet<Arc<str>> {
    serde_json::from_slice(value).unwrap_or_default()
}

fn write(uris: &HashSet<Arc<str>>) -> Bytes {
    serde_json::to_vec(uris).unwrap_or_default().into()
}
