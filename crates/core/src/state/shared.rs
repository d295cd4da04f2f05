//! A store as the program uses it: each call within a deadline, each size within its bounds.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use crate::telemetry::{Counter, Metrics, STATE_REQUESTS};

use super::{
    Claim, ENTRY_MAX_BYTES, KEY_MAX_BYTES, LogPage, Retention, State, StateError, Subscription,
    Usage, VALUE_MAX_BYTES,
};

/// A [`State`] with a timeout for each call.
///
/// Its methods are those of the trait, limited to `state.timeout_ms`.
#[derive(Clone, Debug)]
pub struct SharedState {
    store: Arc<dyn State>,
    within: Duration,
    answered: Counter,
    failed: Counter,
}

impl SharedState {
    /// Holds a store to a deadline.
    pub fn new(store: Arc<dyn State>, within: Duration) -> Self {
        Self {
            store,
            within,
            answered: Counter::default(),
            failed: Counter::default(),
        }
    }

    /// Counts its calls, by success.
    #[must_use]
    pub fn counted(mut self, metrics: &Metrics) -> Self {
        let counter = |outcome| metrics.counter(&STATE_REQUESTS, &[("outcome", outcome)]);
        (self.answered, self.failed) = (counter("answered"), counter("failed"));
        self
    }

    /// [`State::claimed`]; the same store if that has no shares.
    #[must_use]
    pub fn claimed(&self, claim: Claim<'_>) -> Self {
        match self.store.claimed(claim) {
            None => self.clone(),
            Some(store) => Self {
                store,
                ..self.clone()
            },
        }
    }

    /// [`State::usage`].
    pub fn usage(&self) -> Vec<Usage> {
        self.store.usage()
    }

    /// [`State::remove_all`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn remove_all(&self, prefix: &str) -> Result<(), StateError> {
        check(prefix.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.remove_all(prefix)).await
    }

    /// [`State::get`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, StateError> {
        check(key.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.get(key)).await
    }

    /// [`State::put`].
    ///
    /// # Errors
    ///
    /// An error of the store, or a value that is too large.
    pub async fn put(&self, key: &str, value: Bytes, life: Duration) -> Result<(), StateError> {
        check_value(key, &value)?;
        self.in_time(self.store.put(key, value, life)).await
    }

    /// [`State::put_if_absent`].
    ///
    /// # Errors
    ///
    /// An error of the store, or a value that is too large.
    pub async fn put_if_absent(
        &self,
        key: &str,
        value: Bytes,
        life: Duration,
    ) -> Result<bool, StateError> {
        check_value(key, &value)?;
        self.in_time(self.store.put_if_absent(key, value, life))
            .await
    }

    /// [`State::compare_and_swap`].
    ///
    /// # Errors
    ///
    /// An error of the store, or a value that is too large.
    pub async fn compare_and_swap(
        &self,
        key: &str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> Result<bool, StateError> {
        check_value(key, &value)?;
        self.in_time(self.store.compare_and_swap(key, expected, value, life))
            .await
    }

    /// [`State::remove`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn remove(&self, key: &str) -> Result<bool, StateError> {
        check(key.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.remove(key)).await
    }

    /// [`State::count`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn count(&self, key: &str, by: u64, life: Duration) -> Result<u64, StateError> {
        check(key.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.count(key, by, life)).await
    }

    /// [`State::append`].
    ///
    /// # Errors
    ///
    /// The store failed, or the size is above the limit.
    pub async fn append(
        &self,
        log: &str,
        entry: Bytes,
        keep: Retention,
    ) -> Result<u64, StateError> {
        check(log.len(), KEY_MAX_BYTES)?;
        check(entry.len(), ENTRY_MAX_BYTES)?;
        self.in_time(self.store.append(log, entry, keep)).await
    }

    /// [`State::read_after`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn read_after(
        &self,
        log: &str,
        after: u64,
        max: usize,
    ) -> Result<Option<LogPage>, StateError> {
        check(log.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.read_after(log, after, max)).await
    }

    /// [`State::trim`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn trim(&self, log: &str, through: u64) -> Result<(), StateError> {
        check(log.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.trim(log, through)).await
    }

    /// [`State::publish`].
    ///
    /// # Errors
    ///
    /// The store failed, or the size is above the limit.
    pub async fn publish(&self, channel: &str, message: Bytes) -> Result<(), StateError> {
        check_value(channel, &message)?;
        self.in_time(self.store.publish(channel, message)).await
    }

    /// [`State::subscribe`].
    ///
    /// # Errors
    ///
    /// An error of the store.
    pub async fn subscribe(&self, channel: &str) -> Result<Box<dyn Subscription>, StateError> {
        check(channel.len(), KEY_MAX_BYTES)?;
        self.in_time(self.store.subscribe(channel)).await
    }

    /// The state in memory responds immediately and needs no timer.
    async fn in_time<T>(
        &self,
        mut call: impl Future<Output = Result<T, StateError>> + Unpin,
    ) -> Result<T, StateError> {
        let at_once = poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut call).poll(cx))).await;
        let within = self.within;
        let result = match at_once {
            Poll::Ready(result) => result,
            Poll::Pending => tokio::time::timeout(within, call)
                .await
                .unwrap_or(Err(StateError::TooSlow { within })),
        };
        match &result {
            Ok(_) => self.answered.add(1),
            Err(_) => self.failed.add(1),
        }
        result
    }
}

impl Default for SharedState {
    /// In the memory of this process.
    fn default() -> Self {
        let config = super::StateConfig::default();
        Self::new(
            Arc::new(super::Memory::default()),
            Duration::from_millis(config.timeout_ms),
        )
    }
}

fn check_value(key: &str, value: &Bytes) -> Result<(), StateError> {
    check(key.len(), KEY_MAX_BYTES)?;
    check(value.len(), VALUE_MAX_BYTES)
}

fn check(bytes: usize, max: usize) -> Result<(), StateError> {
    if max < bytes {
        return Err(StateError::TooLarge { bytes, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Asked, Fronted, StandIn};
    use super::super::{Memory, StateFuture};
    use super::*;

    /// Never answers.
    #[derive(Debug)]
    struct Dead(Memory);

    impl StandIn for Dead {
        fn store(&self) -> &Memory {
            &self.0
        }

        fn instead<'a, T: Send + 'a>(&'a self, _: Asked) -> Option<StateFuture<'a, T>> {
            Some(Box::pin(std::future::pending()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_call_waits_for_a_store_that_does_not_answer() {
        let within = Duration::from_millis(100);
        let dead = Fronted(Dead(Memory::new(1 << 20)));
        let state = SharedState::new(Arc::new(dead), within);
        let keep = Retention {
            entries: 1,
            bytes: 1,
            life: within,
            may_go: false,
        };
        let begun = tokio::time::Instant::now();
        let none = Bytes::new;
        let slow = [
            state.get("k").await.map(drop),
            state.put("k", none(), within).await,
            state.put_if_absent("k", none(), within).await.map(drop),
            state
                .compare_and_swap("k", none(), none(), within)
                .await
                .map(drop),
            state.remove("k").await.map(drop),
            state.count("k", 1, within).await.map(drop),
            state.append("k", none(), keep).await.map(drop),
            state.read_after("k", 0, 1).await.map(drop),
            state.trim("k", 1).await,
            state.publish("k", none()).await,
            state.subscribe("k").await.map(drop),
        ];
        for result in &slow {
            assert!(
                matches!(result, Err(StateError::TooSlow { .. })),
                "{result:?}"
            );
        }
        assert_eq!(begun.elapsed(), within * slow.len() as u32);
    }

    #[tokio::test]
    async fn sizes_are_bounded_at_their_edges() {
        let state = SharedState::new(Arc::new(Memory::new(1 << 20)), Duration::from_secs(1));
        let life = Duration::from_secs(60);
        let of = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        assert!(state.put("k", of(VALUE_MAX_BYTES), life).await.is_ok());
        assert!(matches!(
            state.put("k", of(VALUE_MAX_BYTES + 1), life).await,
            Err(StateError::TooLarge {
                bytes: 65_537,
                max: 65_536
            })
        ));
        assert!(matches!(
            state.get(&"k".repeat(KEY_MAX_BYTES + 1)).await,
            Err(StateError::TooLarge { .. })
        ));
        let keep = Retention {
            entries: 10,
            bytes: ENTRY_MAX_BYTES,
            life,
            may_go: false,
        };
        assert!(state.append("l", of(ENTRY_MAX_BYTES), keep).await.is_ok());
        assert!(matches!(
            state.append("l", of(ENTRY_MAX_BYTES + 1), keep).await,
            Err(StateError::TooLarge { .. })
        ));
    }
}
