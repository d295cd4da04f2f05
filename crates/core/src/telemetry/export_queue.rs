//! Export queue: many producers, one consumer.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::net::Mutex;

/// A bounded queue that wakes its reader once for each batch. A channel would wake it for each item, which costs a
/// system call and preempts the worker. Clones share the queue.
#[derive(Debug)]
pub struct BatchQueue<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    waiting: Mutex<VecDeque<T>>,
    max: usize,
    batch: usize,
    filled: Notify,
}

impl<T> Clone for BatchQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
impl<T> BatchQueue<T> {
    /// Room for `max`, which are taken out `batch` at a time.
    pub fn new(max: usize, batch: usize) -> Self {
        Self(Arc::new(Shared {
            waiting: Mutex::default(),
            max,
            batch: batch.clamp(1, max.max(1)),
            filled: Notify::new(),
        }))
    }

    /// Adds an item. Returns false if the queue is full.
    pub fn put(&self, thing: T) -> bool {
        let mut waiting = self.0.waiting.lock();
        if self.0.max <= waiting.len() {
            return false;
        }
        waiting.push_back(thing);
        let is_filled = self.0.batch <= waiting.len();
        drop(waiting);
        if is_filled {
            self.0.filled.notify_one();
        }
        true
    }

    /// Waits until a batch was complete.
    pub async fn filled(&self) {
        self.0.filled.notified().await;
    }

    /// Takes the next batch if it is complete, else nothing.
    pub(crate) fn take_batch(&self) -> Vec<T> {
        let mut waiting = self.0.waiting.lock();
        match self.0.batch <= waiting.len() {
            true => waiting.drain(..self.0.batch).collect(),
            false => Vec::new(),
        }
    }

    /// Takes up to one batch.
    pub(crate) fn take_some(&self) -> Vec<T> {
        let mut waiting = self.0.waiting.lock();
        let count = self.0.batch.min(waiting.len());
        waiting.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_reader_is_woken_for_a_batch_and_not_for_less() {
        let outbox = BatchQueue::new(5, 2);
        assert!(outbox.put(1));
        assert!(outbox.filled().now_or_never().is_none());
        assert!(outbox.take_batch().is_empty());
        assert!(outbox.clone().put(2));
        assert!(outbox.filled().now_or_never().is_some());
        assert!(outbox.filled().now_or_never().is_none());
        assert!(outbox.put(3));
        assert_eq!(outbox.take_batch(), [1, 2]);
        assert!(outbox.take_batch().is_empty());
        assert_eq!(outbox.take_some(), [3]);
        assert!(outbox.take_some().is_empty());
    }

    #[test]
    fn what_there_is_no_room_for_is_not_kept() {
        let outbox = BatchQueue::new(3, 512);
        assert_eq!(
            [1, 2, 3, 4].map(|n| outbox.put(n)),
            [true, true, true, false]
        );
        assert_eq!(outbox.take_some(), [1, 2, 3]);
        assert!(outbox.put(5));
    }
}
