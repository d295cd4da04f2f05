//! The state of a single process, in bounded memory.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{Heard, Keep, LogPage, State, StateError, StateFuture, Subscription, unix_micros};

/// A [`State`] that no other process sees, and that ends with this one.
///
/// It takes no more memory than it was given. When there is no room left, what has ended is thrown away; if that is
/// not enough, logs that may go ([`Keep::may_go`]) make room, those first that would end first: outcomes of tasks, and
/// streams of calls. If others fill it, it refuses to remember more ([`StateError::Full`]).
///
/// Tests of several replicas in one process can share one:
///
/// ```
/// use std::sync::Arc;
/// use longshore::App;
/// use longshore::state::Memory;
///
/// let state = Arc::new(Memory::default());
/// let one = App::new().state(state.clone());
/// let other = App::new().state(state);
/// ```
pub struct Memory {
    shards: [Mutex<Shard>; SHARDS],
    channels: Mutex<HashMap<Box<str>, broadcast::Sender<Bytes>>>,
    hasher: RandomState,
    bytes: AtomicUsize,
    max_bytes: usize,
    /// Whether it was told that there is not enough room.
    told: AtomicBool,
}

/// Keys are spread over so many locks.
const SHARDS: usize = 16;
/// Messages that somebody who listens may be behind.
const CHANNEL_MESSAGES: usize = 1024;
/// What a key costs besides its own bytes and those of its content.
const OVERHEAD_BYTES: usize = 160;
/// What an entry of a log costs besides its own bytes.
const ENTRY_OVERHEAD_BYTES: usize = 48;
/// The part of the whole for which room is made at once, so that it is not made for each entry anew.
const ROOM_PART: usize = 64;

#[derive(Default)]
struct Shard {
    entries: HashMap<Arc<str>, Entry>,
    /// The same keys by when they end.
    ends: BTreeSet<(Instant, Arc<str>)>,
    /// Those of them that are logs, and may go before they end.
    logs: BTreeSet<(Instant, Arc<str>)>,
    /// Above every number that a log here ever gave.
    next_number: u64,
}

struct Entry {
    ends: Instant,
    content: Content,
}

enum Content {
    Value(Bytes),
    Count(u64),
    Log(Log),
}

#[derive(Default)]
struct Log {
    entries: VecDeque<Bytes>,
    /// The number of the oldest entry that is kept, or of the next one.
    first: u64,
    bytes: usize,
    may_go: bool,
}

impl Memory {
    /// A state of at most so many bytes.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            shards: Default::default(),
            channels: Mutex::default(),
            hasher: RandomState::default(),
            bytes: AtomicUsize::new(0),
            max_bytes,
            told: AtomicBool::new(false),
        }
    }

    /// How many bytes it takes now, what has ended but was not thrown away yet included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.throw_away(&mut shard, Instant::now());
        shard
    }

    fn throw_away(&self, shard: &mut Shard, now: Instant) {
        while shard.ends.first().is_some_and(|(ends, _)| *ends <= now) {
            if let Some((_, key)) = shard.ends.pop_first() {
                self.take(shard, &key);
            }
        }
    }

    /// Makes sure of room for something, and counts it.
    fn reserve(&self, bytes: usize) -> Result<(), StateError> {
        if self.try_reserve(bytes) {
            return Ok(());
        }
        for shard in &self.shards {
            // One that is held by somebody, this thread included, looks after itself.
            if let Ok(mut shard) = shard.try_lock() {
                self.throw_away(&mut shard, Instant::now());
            }
        }
        if self.try_reserve(bytes) {
            return Ok(());
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                setting = "state.memory_bytes",
                "the state in memory is full: outcomes of tasks, and streams of calls that broke off, are forgotten before their time"
            );
        }
        self.make_room(bytes);
        match self.try_reserve(bytes) {
            true => Ok(()),
            false => Err(StateError::Full),
        }
    }

    /// Throws logs away that would end soon, but for those in the shard that the caller holds.
    fn make_room(&self, bytes: usize) {
        let room = bytes.max(self.max_bytes / ROOM_PART);
        let aim = self.max_bytes.saturating_sub(room);
        while aim < self.bytes() {
            let free = |shard: &Mutex<Shard>| Some(shard.try_lock().ok()?.logs.first()?.0);
            let mut soonest: Vec<_> = self
                .shards
                .iter()
                .filter_map(|shard| Some((free(shard)?, shard)))
                .collect();
            soonest.sort_by_key(|(ends, _)| *ends);
            let is_less = soonest.into_iter().any(|(_, shard)| {
                let Ok(mut shard) = shard.try_lock() else {
                    return false;
                };
                let log = shard.logs.first().map(|(_, log)| Arc::clone(log));
                log.is_some_and(|log| self.take(&mut shard, &log))
            });
            if !is_less {
                return;
            }
        }
    }

    fn try_reserve(&self, bytes: usize) -> bool {
        let max = self.max_bytes;
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|taken| *taken <= max)
            })
            .is_ok()
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Puts a value in the place of whatever is there.
    fn write(
        &self,
        shard: &mut Shard,
        key: &str,
        value: Bytes,
        life: Duration,
    ) -> Result<(), StateError> {
        let content = Content::Value(value);
        self.reserve(cost(key, &content))?;
        self.take(shard, key);
        shard.insert(key, content, life);
        Ok(())
    }

    fn take(&self, shard: &mut Shard, key: &str) -> bool {
        let Some((key, entry)) = shard.entries.remove_entry(key) else {
            return false;
        };
        self.release(cost(&key, &entry.content));
        let place = (entry.ends, key);
        shard.ends.remove(&place);
        shard.logs.remove(&place);
        true
    }

    fn get_now(&self, key: &str) -> Result<Option<Bytes>, StateError> {
        match self.shard(key).entries.get(key).map(|e| &e.content) {
            None => Ok(None),
            Some(Content::Value(value)) => Ok(Some(value.clone())),
            Some(_) => Err(StateError::WrongType),
        }
    }

    fn put_now(&self, key: &str, value: Bytes, life: Duration) -> Result<(), StateError> {
        let mut shard = self.shard(key);
        match shard.entries.get(key).map(|e| &e.content) {
            None | Some(Content::Value(_)) => self.write(&mut shard, key, value, life),
            Some(_) => Err(StateError::WrongType),
        }
    }

    fn put_if_absent_now(
        &self,
        key: &str,
        value: Bytes,
        life: Duration,
    ) -> Result<bool, StateError> {
        let mut shard = self.shard(key);
        if shard.entries.contains_key(key) {
            return Ok(false);
        }
        self.write(&mut shard, key, value, life)?;
        Ok(true)
    }

    fn compare_and_swap_now(
        &self,
        key: &str,
        expected: &Bytes,
        value: Bytes,
        life: Duration,
    ) -> Result<bool, StateError> {
        let mut shard = self.shard(key);
        match shard.entries.get(key).map(|e| &e.content) {
            Some(Content::Value(found)) if found == expected => {
                self.write(&mut shard, key, value, life)?;
                Ok(true)
            }
            None | Some(Content::Value(_)) => Ok(false),
            Some(_) => Err(StateError::WrongType),
        }
    }

    fn count_now(&self, key: &str, by: u64, life: Duration) -> Result<u64, StateError> {
        let mut shard = self.shard(key);
        match shard.entries.get_mut(key).map(|e| &mut e.content) {
            Some(Content::Count(count)) => {
                *count = count.saturating_add(by);
                Ok(*count)
            }
            Some(_) => Err(StateError::WrongType),
            None => {
                let content = Content::Count(by);
                self.reserve(cost(key, &content))?;
                shard.insert(key, content, life);
                Ok(by)
            }
        }
    }

    fn append_now(&self, key: &str, entry: Bytes, keep: Keep) -> Result<u64, StateError> {
        let mut shard = self.shard(key);
        let known = shard.entries.contains_key(key);
        let entry_cost = entry.len() + ENTRY_OVERHEAD_BYTES;
        let log_cost = if known { 0 } else { OVERHEAD_BYTES + key.len() };
        self.reserve(entry_cost + log_cost)?;
        if !known {
            let log = Log {
                first: shard.next_number.max(unix_micros()),
                may_go: keep.may_go,
                ..Log::default()
            };
            shard.insert(key, Content::Log(log), keep.life);
        }
        let Some(Entry {
            content: Content::Log(log),
            ..
        }) = shard.entries.get_mut(key)
        else {
            self.release(entry_cost + log_cost);
            return Err(StateError::WrongType);
        };
        log.bytes += entry.len();
        log.entries.push_back(entry);
        let number = log.first + log.entries.len() as u64 - 1;
        while log.entries.len() > 1 && (keep.entries < log.entries.len() || keep.bytes < log.bytes)
        {
            self.release(log.drop_first());
        }
        shard.next_number = shard.next_number.max(number + 1);
        shard.prolong_log(key, keep.life);
        Ok(number)
    }

    fn read_after_now(
        &self,
        key: &str,
        after: u64,
        max: usize,
    ) -> Result<Option<LogPage>, StateError> {
        let shard = self.shard(key);
        let log = match shard.entries.get(key).map(|e| &e.content) {
            None => return Ok(None),
            Some(Content::Log(log)) => log,
            Some(_) => return Err(StateError::WrongType),
        };
        let skip = after.saturating_add(1).saturating_sub(log.first);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let kept = log.entries.iter().enumerate().skip(skip).take(max);
        Ok(Some(LogPage {
            entries: kept
                .map(|(at, entry)| (log.first + at as u64, entry.clone()))
                .collect(),
            first: log.first,
            last: log.first + log.entries.len() as u64 - 1,
        }))
    }

    fn trim_now(&self, key: &str, through: u64) -> Result<(), StateError> {
        let mut shard = self.shard(key);
        match shard.entries.get_mut(key).map(|e| &mut e.content) {
            None => Ok(()),
            Some(Content::Log(log)) => {
                while log.first <= through && !log.entries.is_empty() {
                    self.release(log.drop_first());
                }
                Ok(())
            }
            Some(_) => Err(StateError::WrongType),
        }
    }

    fn publish_now(&self, channel: &str, message: Bytes) {
        let mut channels = self.channels();
        if let Some(sender) = channels.get(channel)
            && sender.send(message).is_err()
        {
            channels.remove(channel);
        }
    }

    fn subscribe_now(&self, channel: &str) -> Box<dyn Subscription> {
        let receiver = match self.channels().entry(channel.into()) {
            MapEntry::Occupied(known) => known.get().subscribe(),
            MapEntry::Vacant(vacant) => {
                let (sender, receiver) = broadcast::channel(CHANNEL_MESSAGES);
                vacant.insert(sender);
                receiver
            }
        };
        Box::new(Listener(receiver))
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<Box<str>, broadcast::Sender<Bytes>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    /// As much as is set by default.
    fn default() -> Self {
        Self::new(super::StateConfig::default().memory_bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("bytes", &self.bytes())
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

impl Shard {
    fn insert(&mut self, key: &str, content: Content, life: Duration) {
        let key: Arc<str> = key.into();
        let ends = Instant::now() + life;
        self.ends.insert((ends, Arc::clone(&key)));
        if let Content::Log(Log { may_go: true, .. }) = content {
            self.logs.insert((ends, Arc::clone(&key)));
        }
        self.entries.insert(key, Entry { ends, content });
    }

    fn prolong_log(&mut self, key: &str, life: Duration) {
        let Some((key, _)) = self.entries.get_key_value(key) else {
            return;
        };
        let key = Arc::clone(key);
        if let Some(entry) = self.entries.get_mut(&key) {
            let before = (entry.ends, Arc::clone(&key));
            entry.ends = Instant::now() + life;
            let place = (entry.ends, key);
            if self.logs.remove(&before) {
                self.logs.insert(place.clone());
            }
            self.ends.remove(&before);
            self.ends.insert(place);
        }
    }
}

impl Log {
    /// Drops the oldest entry, and says what it has cost.
    fn drop_first(&mut self) -> usize {
        self.first += 1;
        let bytes = self.entries.pop_front().map_or(0, |entry| entry.len());
        self.bytes -= bytes;
        bytes + ENTRY_OVERHEAD_BYTES
    }
}

fn cost(key: &str, content: &Content) -> usize {
    let content = match content {
        Content::Value(value) => value.len(),
        Content::Count(_) => 0,
        Content::Log(log) => log.bytes + log.entries.len() * ENTRY_OVERHEAD_BYTES,
    };
    OVERHEAD_BYTES + key.len() + content
}

struct Listener(broadcast::Receiver<Bytes>);

impl Subscription for Listener {
    fn next(&mut self) -> BoxFuture<'_, Heard> {
        Box::pin(async {
            match self.0.recv().await {
                Ok(message) => Heard::Message(message),
                Err(RecvError::Lagged(_)) => Heard::Missed,
                // The store is gone, and nothing will ever be said again.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        })
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T, StateError>) -> StateFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl State for Memory {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        ready(self.get_now(key))
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        ready(self.put_now(key, value, life))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        ready(self.put_if_absent_now(key, value, life))
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        ready(self.compare_and_swap_now(key, &expected, value, life))
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        ready(Ok(self.take(&mut self.shard(key), key)))
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        ready(self.count_now(key, by, life))
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Keep) -> StateFuture<'a, u64> {
        ready(self.append_now(log, entry, keep))
    }

    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        ready(self.read_after_now(log, after, max))
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        ready(self.trim_now(log, through))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        self.publish_now(channel, message);
        ready(Ok(()))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        ready(Ok(self.subscribe_now(channel)))
    }
}
