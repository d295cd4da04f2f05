//! Entries, what they cost, and who makes room.

mod log;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::size_of;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::super::{StateError, Usage};
use super::channels::Channels;
use log::Log;

/// Owner and kind of a new entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stake {
    pub(super) owner: u64,
    pub(super) kind: &'static str,
    /// True if entries may be evicted to make room. Logs have this flag themselves.
    pub(super) may_go: bool,
}

impl Stake {
    /// Entries of the server itself, which have no share.
    pub(super) const SERVER: Self = Self {
        owner: 0,
        kind: "other",
        may_go: false,
    };
}

/// Fraction of the capacity that is freed at once, so that not every entry has to evict another one.
const ROOM_PART: usize = 64;
/// Cost of an entry in the indexes by key and by expiry, in bytes.
const INDEX_BYTES: usize =
    in_tree(size_of::<(Arc<str>, Entry)>()) + in_tree(size_of::<(Instant, Arc<str>)>());
/// Overhead of a hash table besides its buckets, in bytes.
const GROUP_BYTES: usize = 16;
/// Tables with less room than this are left as they are.
const TABLE_MIN: usize = 64;

pub(super) struct Inner {
    entries: BTreeMap<Arc<str>, Entry>,
    /// Keys ordered by expiry.
    ends: BTreeSet<(Instant, Arc<str>)>,
    owners: HashMap<u64, Owner, RandomState>,
    /// Room of the table `owners`. Removed elements lower its `capacity()` until it is rehashed, and not its size.
    owners_room: usize,
    kinds: Vec<Usage>,
    /// Cost of the keys and contents of all entries, in bytes.
    contents: usize,
    pub(super) channels: Channels,
    /// Above every number that a log here ever gave.
    next_number: u64,
    max_bytes: usize,
    share_bytes: usize,
    /// True if the eviction of entries was logged.
    is_logged: bool,
}

struct Entry {
    ends: Instant,
    owner: u64,
    /// Cost of key and content, in bytes.
    cost: usize,
    content: Content,
    /// Its place in `kinds`.
    kind: u8,
    may_go: bool,
}

enum Content {
    Value(Box<[u8]>),
    Count(u64),
    Log(Box<Log>),
}

/// Usage of one owner.
#[derive(Clone, Copy, Default)]
struct Owner {
    bytes: usize,
    /// The evictable part of it, in bytes.
    may_go: usize,
}

impl Inner {
    pub(super) fn new(max_bytes: usize, share_bytes: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            ends: BTreeSet::new(),
            owners: HashMap::default(),
            owners_room: 0,
            kinds: Vec::new(),
            contents: 0,
            channels: Channels::default(),
            next_number: 0,
            max_bytes,
            share_bytes,
            is_logged: false,
        }
    }

    /// Everything that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.contents + self.index_bytes() + self.channels.bytes()
    }

    fn index_bytes(&self) -> usize {
        self.entries.len() * INDEX_BYTES + table(self.owners_room, size_of::<(u64, Owner)>())
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        let mut usage = self.kinds.clone();
        usage.push(Usage {
            kind: "channel",
            bytes: self.channels.bytes(),
            entries: self.channels.subscribers(),
        });
        usage.push(Usage {
            kind: "index",
            bytes: self.index_bytes(),
            entries: self.entries.len(),
        });
        usage
    }

    /// Drops expired entries.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.ends.first().is_some_and(|(ends, _)| *ends <= now) {
            if let Some((_, key)) = self.ends.pop_first() {
                self.remove(&key);
            }
        }
    }

    /// Makes sure that there is room for something more. The entry of `key` does not make room.
    pub(super) fn reserve(
        &mut self,
        bytes: usize,
        stake: Stake,
        key: &str,
    ) -> Result<(), StateError> {
        if bytes <= self.room() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(
                setting = "state.memory_bytes",
                "the in-memory state is full: task results, broken streams and subscriptions of the callers that use most are removed before they expire"
            );
        }
        self.make_room(bytes, stake.owner, key);
        match bytes <= self.room() {
            true => Ok(()),
            false => Err(StateError::Full),
        }
    }

    /// Makes sure that an owner does not take more than its share for what may not go.
    fn check_share(&self, bytes: usize, stake: Stake) -> Result<(), StateError> {
        let taken = self.owner(stake.owner);
        let has_share = stake.owner != Stake::SERVER.owner && !stake.may_go;
        match has_share && self.share_bytes < taken.bytes - taken.may_go + bytes {
            true => Err(StateError::Share),
            false => Ok(()),
        }
    }

    /// Evicts entries of the owners that use most. Owners that use less than the writer lose none.
    fn make_room(&mut self, bytes: usize, writer: u64, key: &str) {
        let aim = self
            .max_bytes
            .saturating_sub(bytes.max(self.max_bytes / ROOM_PART));
        while aim < self.bytes() {
            let ranks = self.largest_owners(self.bytes() - aim, writer);
            let mut soonest: Vec<(usize, Instant, Arc<str>)> = self
                .entries
                .iter()
                .filter(|(other, entry)| entry.may_go && ***other != *key)
                .filter_map(|(key, entry)| {
                    let rank = *ranks.get(&entry.owner)?;
                    Some((rank, entry.ends, Arc::clone(key)))
                })
                .collect();
            soonest.sort_unstable();
            let mut dropped = false;
            for (_, _, key) in soonest {
                if self.bytes() <= aim {
                    return;
                }
                dropped |= self.remove(&key);
            }
            // Its owner has nothing else that may go, or there are no owners.
            if !dropped {
                return;
            }
        }
    }

    /// Ranks the owners that use most, until their evictable entries make up `excess`. Owners that use less than the writer
    /// are not among them.
    fn largest_owners(&self, excess: usize, writer: u64) -> HashMap<u64, usize, RandomState> {
        let least = match writer == Stake::SERVER.owner {
            true => 0,
            false => self.owner(writer).bytes,
        };
        let mut owners: Vec<(u64, Owner)> = self
            .owners
            .iter()
            .filter(|(owner, taken)| {
                0 < taken.may_go && (**owner == writer || least <= taken.bytes)
            })
            .map(|(owner, taken)| (*owner, *taken))
            .collect();
        owners.sort_unstable_by_key(|(_, taken)| Reverse(taken.bytes));
        let mut found = 0;
        owners
            .into_iter()
            .take_while(|(_, taken)| {
                let is_needed = found < excess;
                found += taken.may_go;
                is_needed
            })
            .enumerate()
            .map(|(rank, (owner, _))| (owner, rank))
            .collect()
    }

    /// Returns the number of free bytes.
    pub(super) fn room(&self) -> usize {
        self.max_bytes.saturating_sub(self.bytes())
    }

    fn owner(&self, owner: u64) -> Owner {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    fn kind(&mut self, kind: &'static str) -> u8 {
        let found = self.kinds.iter().position(|known| known.kind == kind);
        let at = found.unwrap_or_else(|| {
            self.kinds.push(Usage {
                kind,
                bytes: 0,
                entries: 0,
            });
            self.kinds.len() - 1
        });
        // There are as many as the program names.
        u8::try_from(at).unwrap_or(u8::MAX)
    }

    /// Puts an entry that there is room for. Nothing has its key.
    fn insert(&mut self, key: Arc<str>, entry: Entry) {
        self.account(&entry, true);
        self.ends.insert((entry.ends, Arc::clone(&key)));
        self.entries.insert(key, entry);
    }

    fn account(&mut self, entry: &Entry, adds: bool) {
        let change = |bytes: &mut usize, by: usize| match adds {
            true => *bytes += by,
            false => *bytes -= by,
        };
        change(&mut self.contents, entry.cost);
        if let Some(kind) = self.kinds.get_mut(usize::from(entry.kind)) {
            change(&mut kind.bytes, entry.cost);
            change(&mut kind.entries, 1);
        }
        let owner = self.owners.entry(entry.owner).or_default();
        change(&mut owner.bytes, entry.cost);
        if entry.may_go {
            change(&mut owner.may_go, entry.cost);
        }
        let is_gone = owner.bytes == 0;
        self.owners_room = self.owners_room.max(self.owners.capacity());
        if is_gone {
            self.owners.remove(&entry.owner);
            if shrink(&mut self.owners) {
                self.owners_room = self.owners.capacity();
            }
        }
    }

    fn take(&mut self, key: &str) -> Option<(Arc<str>, Entry)> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.account(&entry, false);
        self.ends.remove(&(entry.ends, Arc::clone(&key)));
        Some((key, entry))
    }

    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.take(key).is_some()
    }

    /// Removes all keys that begin with a prefix.
    pub(super) fn remove_all(&mut self, prefix: &str) {
        let keys: Vec<Arc<str>> = self
            .entries
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix))
            .cloned()
            .collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// Writes content in place of the present content.
    fn write(
        &mut self,
        key: &str,
        content: Content,
        life: Duration,
        stake: Stake,
    ) -> Result<(), StateError> {
        let before = self.take(key);
        // The creator of an entry pays for it, unless another owner claims it.
        let stake = match &before {
            Some((_, entry)) if stake.owner == Stake::SERVER.owner => Stake {
                owner: entry.owner,
                may_go: entry.may_go,
                kind: self
                    .kinds
                    .get(usize::from(entry.kind))
                    .map_or(stake.kind, |kind| kind.kind),
            },
            _ => stake,
        };
        let cost = block(ARC_BYTES + key.len()) + content.cost();
        // Existing entries may change: a task can end although its owner has used up its share.
        let share = match &before {
            Some(_) => Ok(()),
            None => self.check_share(cost + INDEX_BYTES, stake),
        };
        let room = share.and_then(|()| self.reserve(cost + INDEX_BYTES, stake, key));
        if let Err(error) = room {
            if let Some((key, entry)) = before {
                self.insert(key, entry);
            }
            return Err(error);
        }
        let entry = Entry {
            ends: Instant::now() + life,
            owner: stake.owner,
            cost,
            content,
            kind: self.kind(stake.kind),
            may_go: stake.may_go,
        };
        self.insert(before.map_or_else(|| key.into(), |(key, _)| key), entry);
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Bytes>, StateError> {
        match self.entries.get(key).map(|entry| &entry.content) {
            None => Ok(None),
            Some(Content::Value(value)) => Ok(Some(Bytes::copy_from_slice(value))),
            Some(_) => Err(StateError::WrongType),
        }
    }

    pub(super) fn put(
        &mut self,
        key: &str,
        value: &[u8],
        life: Duration,
        stake: Stake,
    ) -> Result<(), StateError> {
        match self.entries.get(key).map(|entry| &entry.content) {
            None | Some(Content::Value(_)) => {
                self.write(key, Content::Value(value.into()), life, stake)
            }
            Some(_) => Err(StateError::WrongType),
        }
    }

    pub(super) fn put_if_absent(
        &mut self,
        key: &str,
        value: &[u8],
        life: Duration,
        stake: Stake,
    ) -> Result<bool, StateError> {
        if self.entries.contains_key(key) {
            return Ok(false);
        }
        self.write(key, Content::Value(value.into()), life, stake)?;
        Ok(true)
    }

    pub(super) fn compare_and_swap(
        &mut self,
        key: &str,
        expected: &[u8],
        value: &[u8],
        life: Duration,
        stake: Stake,
    ) -> Result<bool, StateError> {
        match self.entries.get(key).map(|entry| &entry.content) {
            Some(Content::Value(found)) if **found == *expected => {
                self.write(key, Content::Value(value.into()), life, stake)?;
                Ok(true)
            }
            None | Some(Content::Value(_)) => Ok(false),
            Some(_) => Err(StateError::WrongType),
        }
    }

    pub(super) fn count(
        &mut self,
        key: &str,
        by: u64,
        life: Duration,
        stake: Stake,
    ) -> Result<u64, StateError> {
        match self.entries.get_mut(key).map(|entry| &mut entry.content) {
            Some(Content::Count(count)) => {
                *count = count.saturating_add(by);
                Ok(*count)
            }
            Some(_) => Err(StateError::WrongType),
            None => {
                self.write(key, Content::Count(by), life, stake)?;
                Ok(by)
            }
        }
    }
}

impl Content {
    fn cost(&self) -> usize {
        match self {
            Self::Value(value) => block(value.len()),
            Self::Count(_) => 0,
            Self::Log(log) => size_of::<Log>() + log.cost,
        }
    }
}

/// The room of a queue with one element.
const QUEUE_MIN: usize = 4;
/// Size of the header before the content of an `Arc`, in bytes.
pub(super) const ARC_BYTES: usize = 2 * size_of::<usize>();

/// Returns the memory that an allocation of this size takes, in bytes.
pub(super) fn block(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

/// Returns the cost of an element in a B-tree. Its nodes have room for eleven and are two thirds full on average.
const fn in_tree(element: usize) -> usize {
    element * 8 / 5
}

/// Returns the cost of a hash table with this capacity, in bytes.
pub(super) fn table(room: usize, element: usize) -> usize {
    let buckets = match room {
        0 => return 0,
        1..=3 => 4,
        4..=7 => 8,
        _ => (room * 8).div_ceil(7).next_power_of_two(),
    };
    buckets * (element + 1) + GROUP_BYTES
}

/// Returns the memory of a table that has become much too large. Returns true if it was.
pub(super) fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V, RandomState>) -> bool {
    let is_large = TABLE_MIN < map.capacity() && map.len() < map.capacity() / 4;
    let shrinks = is_large || map.is_empty();
    if shrinks {
        map.shrink_to(map.len() * 2);
    }
    shrinks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a store with one entry for each owner, the last of which writes.
    #[tokio::test]
    async fn room_is_made_by_as_many_owners_as_it_takes_at_once() {
        const OWNERS: u64 = 20_000;
        let mut inner = Inner::new(8 << 20, 2 << 20);
        let value = [b'x'; 512];
        let life = Duration::from_secs(60);
        let write = |inner: &mut Inner, owner: u64| {
            let stake = Stake {
                owner,
                kind: "other",
                may_go: true,
            };
            inner.put(&format!("k{owner}"), &value, life, stake)
        };
        let mut full = None;
        for owner in 1..=OWNERS {
            let before = inner.entries.len();
            write(&mut inner, owner).expect("room");
            if inner.entries.len() <= before {
                full.get_or_insert((before, inner.entries.len()));
            }
            assert!(inner.bytes() <= inner.max_bytes);
        }
        // A part of the capacity is freed, for which many owners lose their entries, and not all of them.
        let (before, after) = full.expect("it was full");
        let freed = before - after;
        assert!(
            (before / (2 * ROOM_PART)..before / 8).contains(&freed),
            "{freed} of {before}"
        );
        assert!(inner.entries.contains_key(&*format!("k{OWNERS}")));
        // One that uses more loses its entries first.
        let large = Stake {
            owner: OWNERS + 1,
            kind: "other",
            may_go: true,
        };
        inner
            .put("large", &[b'x'; 60_000], life, large)
            .expect("room");
        for owner in 1..=OWNERS {
            write(&mut inner, owner).expect("room");
            if !inner.entries.contains_key("large") {
                break;
            }
        }
        assert!(!inner.entries.contains_key("large"));
    }
}
