//! A state whose messages are late.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use longshore::state::{Memory, State, StateFuture};

use crate::support::{Fronted, StandIn};

/// A store that is shared with another replica, but holds back published messages.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Memory>,
    waiting: Mutex<Vec<(String, Bytes)>>,
}

impl Held {
    pub(super) fn new(shared: Arc<Memory>) -> Arc<Fronted<Self>> {
        Arc::new(Fronted(Self {
            shared,
            waiting: Mutex::default(),
        }))
    }

    /// Returns the number of held messages.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().expect("no panic").len()
    }

    /// Publishes what waits, in its order.
    pub(super) fn release_connection(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("no panic"));
        for (channel, message) in waiting {
            let published = self.shared.publish(&channel, message);
            futures_util::FutureExt::now_or_never(published)
                .expect("memory answers at once")
                .expect("published");
        }
    }
}

impl StandIn for Held {
    fn store(&self) -> &Memory {
        &self.shared
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        let mut waiting = self.waiting.lock().expect("no panic");
        waiting.push((channel.to_owned(), message));
        Box::pin(std::future::ready(Ok(())))
    }
}
