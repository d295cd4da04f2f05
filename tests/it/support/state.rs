//! A store that a test stands in front of: what the test does not do itself is passed on to a store in memory.
//!
//! The unit tests of `longshore-core` and `longshore-sources` use it too.

#![allow(unreachable_pub)] // It is a public module of `longshore-core` where its feature `testing` is on.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use longshore::state::{LogPage, Memory, Retention, State, StateFuture, Subscription};

/// Replacement for calls of a store.
pub trait StandIn: fmt::Debug + Send + Sync + 'static {
    /// The store for all other calls.
    fn store(&self) -> &Memory;

    /// Returns the replacement result, if any.
    fn instead<'a, T: Send + 'a>(&'a self, _: Asked) -> Option<StateFuture<'a, T>> {
        None
    }

    /// Tells everybody who listens.
    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        self.store().publish(channel, message)
    }
}

/// Kind of a store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Reads or writes a value.
    Value,
    /// Writes a value if it is unchanged.
    Swap,
    /// Writes a value.
    Put,
    /// Uses a counter.
    Count,
    /// Reads a log.
    Read,
    /// Another log operation.
    Log,
    /// Publishes or subscribes.
    Channel,
}

/// A store with a replacement for some calls.
#[derive(Debug)]
pub struct Fronted<S>(pub S);

impl<S: StandIn> Fronted<S> {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        asked: Asked,
        store: impl FnOnce(&'a Memory) -> StateFuture<'a, T>,
    ) -> StateFuture<'a, T> {
        let instead = self.0.instead(asked);
        instead.unwrap_or_else(|| store(self.0.store()))
    }
}

impl<S: StandIn> State for Fronted<S> {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        self.answer(Asked::Value, |store| store.get(key))
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        self.answer(Asked::Put, |store| store.put(key, value, life))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.answer(Asked::Value, |store| store.put_if_absent(key, value, life))
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        self.answer(Asked::Swap, |store| {
            store.compare_and_swap(key, expected, value, life)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        self.answer(Asked::Value, |store| store.remove(key))
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        self.answer(Asked::Count, |store| store.count(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Retention) -> StateFuture<'a, u64> {
        self.answer(Asked::Log, |store| store.append(log, entry, keep))
    }

    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        self.answer(Asked::Read, |store| store.read_after(log, after, max))
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        self.answer(Asked::Log, |store| store.trim(log, through))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        let instead = self.0.instead(Asked::Channel);
        instead.unwrap_or_else(|| self.0.publish(channel, message))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        self.answer(Asked::Channel, |store| store.subscribe(channel))
    }
}
