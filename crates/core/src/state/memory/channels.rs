//! Channels: a queue for each subscriber, which is as large as what waits in it and goes with the subscriber.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::mem::size_of;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use foldhash::fast::RandomState;
use futures_util::future::BoxFuture;

use super::super::{StateError, Subscription, SubscriptionEvent};
use super::Store;
use super::inner::{ARC_BYTES, Inner, Stake, block, shrink, table};

/// Maximum number of messages queued for one subscriber.
const MESSAGES_MAX: usize = 1024;
/// Maximum size of these messages together, in bytes.
const MESSAGES_BYTES_MAX: usize = 1024 * 1024;
/// Capacity above which an empty queue is replaced by a small one.
const ROOM_KEPT: usize = 16;

/// Subscribers by the names of their channels.
#[derive(Default)]
pub(super) struct Channels {
    by_name: HashMap<Arc<str>, Vec<Subscriber>, RandomState>,
    next: u64,
    /// Memory cost of names, subscribers and messages, in bytes.
    contents: usize,
    subscribers: usize,
}

struct Subscriber {
    number: u64,
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// True if messages for it were dropped.
    has_missed: bool,
    waker: Option<Waker>,
}

impl Channels {
    pub(super) fn bytes(&self) -> usize {
        let slot = size_of::<(Arc<str>, Vec<Subscriber>)>();
        self.contents + table(self.by_name.capacity(), slot)
    }

    pub(super) fn subscribers(&self) -> usize {
        self.subscribers
    }
}

impl Subscriber {
    fn cost(&self) -> usize {
        size_of::<Self>() + self.queue.capacity() * size_of::<Bytes>() + self.bytes
    }

    fn pop(&mut self) -> Option<Bytes> {
        let message = self.queue.pop_front()?;
        self.bytes -= message.len();
        if self.queue.is_empty() && ROOM_KEPT < self.queue.capacity() {
            self.queue = VecDeque::new();
        }
        Some(message)
    }

    /// Puts a message at the end of the queue. If it is full, the oldest ones are dropped.
    fn push(&mut self, message: &Bytes) {
        while MESSAGES_MAX <= self.queue.len()
            || (MESSAGES_BYTES_MAX < self.bytes + message.len() && !self.queue.is_empty())
        {
            self.pop();
            self.has_missed = true;
        }
        self.bytes += message.len();
        self.queue.push_back(message.clone());
    }
}

impl Inner {
    /// Puts a message into the queue of each subscriber. Returns the subscribers to wake.
    pub(super) fn publish(&mut self, channel: &str, message: &Bytes) -> Vec<Waker> {
        let mut room = self.room();
        let Channels {
            by_name, contents, ..
        } = &mut self.channels;
        let Some(subscribers) = by_name.get_mut(channel) else {
            return Vec::new();
        };
        let mut wakers = Vec::new();
        for subscriber in subscribers {
            let before = subscriber.cost();
            match message.len() <= room {
                true => subscriber.push(message),
                false => subscriber.has_missed = true,
            }
            let after = subscriber.cost();
            *contents = *contents + after - before;
            room = room.saturating_sub(after.saturating_sub(before));
            wakers.extend(subscriber.waker.take());
        }
        wakers
    }

    /// Adds a subscriber, if there is room for one. Returns its number.
    pub(super) fn subscribe(&mut self, channel: &str) -> Result<u64, StateError> {
        let subscriber = Subscriber {
            number: self.channels.next,
            queue: VecDeque::new(),
            bytes: 0,
            has_missed: false,
            waker: None,
        };
        let name = block(ARC_BYTES + channel.len());
        self.reserve(subscriber.cost() + name, Stake::SERVER, "")?;
        let Channels {
            by_name,
            next,
            contents,
            subscribers,
        } = &mut self.channels;
        *next += 1;
        *subscribers += 1;
        *contents += subscriber.cost();
        let number = subscriber.number;
        match by_name.get_mut(channel) {
            Some(known) => {
                known.reserve_exact(1);
                known.push(subscriber);
            }
            None => {
                *contents += name;
                by_name.insert(channel.into(), vec![subscriber]);
            }
        }
        Ok(number)
    }

    fn unsubscribe(&mut self, channel: &str, number: u64) {
        let Channels {
            by_name,
            contents,
            subscribers,
            ..
        } = &mut self.channels;
        let Some(known) = by_name.get_mut(channel) else {
            return;
        };
        known.retain(|subscriber| {
            let stays = subscriber.number != number;
            if !stays {
                *contents -= subscriber.cost();
                *subscribers -= 1;
            }
            stays
        });
        if known.is_empty() {
            by_name.remove(channel);
            *contents -= block(ARC_BYTES + channel.len());
            shrink(by_name);
        } else {
            known.shrink_to_fit();
        }
    }

    fn poll_next(
        &mut self,
        channel: &str,
        number: u64,
        cx: &Context<'_>,
    ) -> Poll<SubscriptionEvent> {
        let Channels {
            by_name, contents, ..
        } = &mut self.channels;
        let found = by_name
            .get_mut(channel)
            .and_then(|known| known.iter_mut().find(|one| one.number == number));
        let Some(subscriber) = found else {
            return Poll::Pending;
        };
        if std::mem::take(&mut subscriber.has_missed) {
            return Poll::Ready(SubscriptionEvent::Missed);
        }
        *contents -= subscriber.cost();
        let message = subscriber.pop();
        *contents += subscriber.cost();
        match message {
            Some(message) => Poll::Ready(SubscriptionEvent::Message(message)),
            None => {
                subscriber.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A subscriber. Dropping it drops its queue, and the channel with its last subscriber.
pub(super) struct Listener {
    store: Arc<Store>,
    channel: Box<str>,
    number: u64,
}

impl Listener {
    pub(super) fn new(store: Arc<Store>, channel: &str, number: u64) -> Self {
        Self {
            store,
            channel: channel.into(),
            number,
        }
    }
}

impl Subscription for Listener {
    fn next(&mut self) -> BoxFuture<'_, SubscriptionEvent> {
        Box::pin(poll_fn(|cx| {
            let mut inner = self.store.inner.lock();
            inner.poll_next(&self.channel, self.number, cx)
        }))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.store
            .inner
            .lock()
            .unsubscribe(&self.channel, self.number);
    }
}
