//! Encryption of shared state, for stores that others may be able to write to.
//!
//! Each entry is encrypted and bound to its key in the store; only matching entries are decrypted. Without a key of
//! the ring, someone with write access can delete entries and restore old ones in place, but not forge, change or
//! move them; read access reveals no content. Counters stay plain, because the store increments them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::KeyRing;
use crate::state::{
    Claim, LogPage, Retention, State, StateFuture, Subscription, SubscriptionEvent, Usage,
};

/// A store whose content is sealed.
pub struct SealedState {
    store: Arc<dyn State>,
    keys: Arc<KeyRing>,
    logged: Arc<LoggedOnce>,
}

/// True if a failed decryption was logged. It is logged once, because a writer in the store could fill the log.
#[derive(Debug, Default)]
struct LoggedOnce(AtomicBool);

impl SealedState {
    pub fn new(store: Arc<dyn State>, keys: Arc<KeyRing>) -> Self {
        Self {
            store,
            keys,
            logged: Arc::default(),
        }
    }

    fn seal(&self, place: &str, plain: &[u8]) -> Bytes {
        self.keys.seal_stored(place, plain).into()
    }

    fn open(&self, place: &str, sealed: &[u8]) -> Option<Bytes> {
        open(&self.keys, &self.logged, place, sealed)
    }
}

fn open(keys: &KeyRing, logged: &LoggedOnce, place: &str, sealed: &[u8]) -> Option<Bytes> {
    let plain = keys.open_stored(place, sealed);
    if plain.is_none() && !logged.0.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            setting = "seal.keys",
            "an entry of the shared state was not sealed by a key of this ring, and is treated as absent: replicas have different keys, a key was removed too early, or another program writes to the store"
        );
    }
    plain.map(Bytes::from)
}

impl fmt::Debug for SealedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SealedState").field(&self.store).finish()
    }
}

impl State for SealedState {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let found = self.store.get(key).await?;
            Ok(found.and_then(|sealed| self.open(key, &sealed)))
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        self.store.put(key, self.seal(key, &value), life)
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.store.put_if_absent(key, self.seal(key, &value), life)
    }

    /// Any key of the ring may have sealed the expected value.
    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        let value = self.seal(key, &value);
        Box::pin(async move {
            for sealed in self.keys.seal_stored_by_each(key, &expected) {
                let swap = self
                    .store
                    .compare_and_swap(key, sealed.into(), value.clone(), life);
                if swap.await? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        self.store.remove(key)
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        self.store.count(key, by, life)
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Retention) -> StateFuture<'a, u64> {
        self.store.append(log, self.seal(log, &entry), keep)
    }

    /// An entry that does not open counts as present and empty, so that readers continue after its number.
    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        Box::pin(async move {
            let page = self.store.read_after(log, after, max).await?;
            Ok(page.map(|page| LogPage {
                entries: page
                    .entries
                    .into_iter()
                    .map(|(number, sealed)| (number, self.open(log, &sealed).unwrap_or_default()))
                    .collect(),
                ..page
            }))
        })
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        self.store.trim(log, through)
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        self.store.publish(channel, self.seal(channel, &message))
    }

    fn remove_all<'a>(&'a self, prefix: &'a str) -> StateFuture<'a, ()> {
        self.store.remove_all(prefix)
    }

    fn claimed(&self, claim: Claim<'_>) -> Option<Arc<dyn State>> {
        Some(Arc::new(Self {
            store: self.store.claimed(claim)?,
            keys: Arc::clone(&self.keys),
            logged: Arc::clone(&self.logged),
        }))
    }

    fn usage(&self) -> Vec<Usage> {
        self.store.usage()
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        Box::pin(async move {
            let listener = OpenObserver {
                inner: self.store.subscribe(channel).await?,
                channel: channel.to_owned(),
                keys: Arc::clone(&self.keys),
                logged: Arc::clone(&self.logged),
            };
            Ok(Box::new(listener) as Box<dyn Subscription>)
        })
    }
}

/// Hears what opens.
struct OpenObserver {
    inner: Box<dyn Subscription>,
    channel: String,
    keys: Arc<KeyRing>,
    logged: Arc<LoggedOnce>,
}

impl Subscription for OpenObserver {
    fn next(&mut self) -> BoxFuture<'_, SubscriptionEvent> {
        Box::pin(async move {
            loop {
                match self.inner.next().await {
                    SubscriptionEvent::Missed => return SubscriptionEvent::Missed,
                    SubscriptionEvent::Message(sealed) => {
                        if let Some(plain) = open(&self.keys, &self.logged, &self.channel, &sealed)
                        {
                            return SubscriptionEvent::Message(plain);
                        }
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SealConfig, Secret};
    use super::*;
    use crate::state::Memory;

    const LIFE: Duration = Duration::from_secs(60);

    fn sealed(store: &Arc<dyn State>, secrets: &[&str]) -> SealedState {
        let keys = secrets
            .iter()
            .map(|secret| Secret::from(secret.repeat(32)))
            .collect();
        let keys = KeyRing::new(&SealConfig { keys }).expect("long enough");
        SealedState::new(Arc::clone(store), Arc::new(keys))
    }

    fn memory() -> Arc<dyn State> {
        Arc::new(Memory::new(1 << 20))
    }

    #[tokio::test]
    async fn replicas_with_the_key_read_what_others_cannot() {
        let store = memory();
        let (one, other) = (sealed(&store, &["a"]), sealed(&store, &["b", "a"]));
        let value = Bytes::from_static(b"a secret outcome");
        one.put("k", value.clone(), LIFE).await.expect("written");
        assert_eq!(other.get("k").await.expect("read"), Some(value.clone()));
        assert_eq!(sealed(&store, &["c"]).get("k").await.expect("read"), None);
        let raw = store.get("k").await.expect("read").expect("there");
        assert!(!raw.windows(6).any(|part| part == b"secret"));
        // By whichever key it was sealed, it is the same value.
        let next = Bytes::from_static(b"next");
        let swap = other.compare_and_swap("k", value.clone(), next.clone(), LIFE);
        assert!(swap.await.expect("swapped"));
        assert!(
            !other
                .compare_and_swap("k", value, next.clone(), LIFE)
                .await
                .expect("compared")
        );
        assert_eq!(other.get("k").await.expect("read"), Some(next));
        assert_eq!(
            one.get("k").await.expect("read"),
            None,
            "sealed by a key it has not"
        );
    }

    #[tokio::test]
    async fn who_can_write_to_the_store_cannot_make_anything_up() {
        let store = memory();
        let state = sealed(&store, &["a"]);
        let plain = Bytes::from_static(b"{\"status\":\"completed\"}");
        store
            .put("forged", plain.clone(), LIFE)
            .await
            .expect("written");
        assert_eq!(state.get("forged").await.expect("read"), None);
        // Nor put at another place what is good at its own.
        state
            .put("task:1", plain.clone(), LIFE)
            .await
            .expect("written");
        let good = store.get("task:1").await.expect("read").expect("there");
        store
            .put("task:2", good.clone(), LIFE)
            .await
            .expect("written");
        assert_eq!(state.get("task:2").await.expect("read"), None);
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 1;
            store
                .put("task:1", bad.into(), LIFE)
                .await
                .expect("written");
            assert_eq!(state.get("task:1").await.expect("read"), None, "byte {at}");
        }
        for end in 0..good.len() {
            store
                .put("task:1", good.slice(..end), LIFE)
                .await
                .expect("written");
            assert_eq!(
                state.get("task:1").await.expect("read"),
                None,
                "{end} bytes"
            );
        }
    }

    #[tokio::test]
    async fn forged_entries_of_logs_are_left_out() {
        let store = memory();
        let state = sealed(&store, &["a"]);
        let keep = Retention {
            entries: 10,
            bytes: 1 << 16,
            life: LIFE,
            may_go: false,
        };
        let first = state
            .append("log", Bytes::from_static(b"one"), keep)
            .await
            .expect("appended");
        let forged = store
            .append("log", Bytes::from_static(b"forged"), keep)
            .await
            .expect("appended");
        let last = state
            .append("log", Bytes::from_static(b"two"), keep)
            .await
            .expect("appended");
        let page = state
            .read_after("log", 0, 10)
            .await
            .expect("read")
            .expect("a log");
        assert_eq!(
            page.entries,
            [
                (first, Bytes::from_static(b"one")),
                (forged, Bytes::new()),
                (last, Bytes::from_static(b"two"))
            ]
        );
        assert_eq!((page.first, page.last), (first, last));
    }

    #[tokio::test]
    async fn forged_messages_are_not_heard() {
        let store = memory();
        let state = sealed(&store, &["a"]);
        let mut listener = state.subscribe("c").await.expect("subscribed");
        store
            .publish("c", Bytes::from_static(b"forged"))
            .await
            .expect("said");
        state
            .publish("c", Bytes::from_static(b"true"))
            .await
            .expect("said");
        assert_eq!(
            listener.next().await,
            SubscriptionEvent::Message(Bytes::from_static(b"true"))
        );
    }

    #[tokio::test]
    async fn counters_are_as_they_are() {
        let store = memory();
        let state = sealed(&store, &["a"]);
        assert_eq!(state.count("n", 2, LIFE).await.expect("counted"), 2);
        assert_eq!(store.count("n", 1, LIFE).await.expect("counted"), 3);
    }
}
