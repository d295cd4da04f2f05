//! A state whose messages are late.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{Keep, LogPage, Memory, State, StateFuture, Subscription};

/// The same state as another replica's, but what is published here waits.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Memory>,
    waiting: Mutex<Vec<(String, Bytes)>>,
}

impl Held {
    pub(super) fn new(shared: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            waiting: Mutex::default(),
        })
    }

    /// How many messages wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().expect("no panic").len()
    }

    /// Publishes what waits, in its order.
    pub(super) fn let_go(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("no panic"));
        for (channel, message) in waiting {
            let published = self.shared.publish(&channel, message);
            futures_util::FutureExt::now_or_never(published)
                .expect("memory answers at once")
                .expect("published");
        }
    }
}

impl State for Held {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        self.shared.get(key)
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        self.shared.put(key, value, life)
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.shared.put_if_absent(key, value, life)
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.shared.compare_and_swap(key, expected, value, life)
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        self.shared.remove(key)
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        self.shared.count(key, by, life)
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Keep) -> StateFuture<'a, u64> {
        self.shared.append(log, entry, keep)
    }

    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        self.shared.read_after(log, after, max)
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        self.shared.trim(log, through)
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        let mut waiting = self.waiting.lock().expect("no panic");
        waiting.push((channel.to_owned(), message));
        Box::pin(std::future::ready(Ok(())))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        self.shared.subscribe(channel)
    }
}
