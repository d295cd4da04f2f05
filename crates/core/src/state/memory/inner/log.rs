//! Logs of messages.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::super::{LogPage, Retention, StateError, unix_micros};
use super::{ARC_BYTES, Content, Entry, INDEX_BYTES, Inner, QUEUE_MIN, Stake, block};

#[derive(Default)]
pub(super) struct Log {
    pub(super) entries: VecDeque<Box<[u8]>>,
    /// The number of the oldest entry that is kept, or of the next one.
    pub(super) first: u64,
    pub(super) bytes: usize,
    /// Cost of the entries, in bytes.
    pub(super) cost: usize,
}

impl Log {
    /// Growth of the queue's memory by one more entry, in bytes.
    fn growth(&self) -> usize {
        match self.entries.len() < self.entries.capacity() {
            true => 0,
            false => self.entries.capacity().max(QUEUE_MIN) * size_of::<Box<[u8]>>(),
        }
    }

    pub(super) fn push(&mut self, entry: &[u8]) {
        let before = self.entries.capacity();
        self.entries.push_back(entry.into());
        self.bytes += entry.len();
        self.cost += block(entry.len());
        self.cost += (self.entries.capacity() - before) * size_of::<Box<[u8]>>();
    }

    fn drop_first(&mut self) {
        self.first += 1;
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.len();
            self.cost -= block(entry.len());
        }
    }
}

impl Inner {
    pub(in super::super) fn append(
        &mut self,
        key: &str,
        entry: &[u8],
        keep: Retention,
        stake: Stake,
    ) -> Result<u64, StateError> {
        let stake = Stake {
            may_go: keep.may_go,
            ..stake
        };
        let entry_cost = block(entry.len());
        let (more, new) = match self.entries.get(key).map(|known| &known.content) {
            Some(Content::Log(log)) => (entry_cost + log.growth(), None),
            Some(_) => return Err(StateError::WrongType),
            None => {
                let log = Log {
                    first: self.next_number.max(unix_micros()),
                    ..Log::default()
                };
                // Room for its first entry too, so that no empty log is left behind.
                let whole = block(ARC_BYTES + key.len()) + size_of::<Log>() + INDEX_BYTES;
                (entry_cost + log.growth() + whole, Some(log))
            }
        };
        self.check_share(more, stake)?;
        self.reserve(more, stake, key)?;
        if let Some(log) = new {
            self.write(key, Content::Log(Box::new(log)), keep.life, stake)?;
        }
        let mut number = 0;
        let ends = Instant::now() + keep.life;
        self.change_log(key, ends, |log| {
            log.push(entry);
            number = log.first + log.entries.len() as u64 - 1;
            while log.entries.len() > 1
                && (keep.entries < log.entries.len() || keep.bytes < log.bytes)
            {
                log.drop_first();
            }
        });
        self.next_number = self.next_number.max(number + 1);
        Ok(number)
    }

    /// Changes a log, which expires then, and what it is counted with.
    fn change_log(&mut self, key: &str, ends: Instant, change: impl FnOnce(&mut Log)) {
        let Some((key, entry)) = self.entries.get_key_value(key) else {
            return;
        };
        let place = (entry.ends, Arc::clone(key));
        let Some(entry) = self.entries.get_mut(&place.1) else {
            return;
        };
        let Content::Log(log) = &mut entry.content else {
            return;
        };
        let (before, owner, kind, may_go) = (log.cost, entry.owner, entry.kind, entry.may_go);
        change(log);
        let after = log.cost;
        let adjust = |bytes: &mut usize| *bytes = *bytes + after - before;
        adjust(&mut entry.cost);
        entry.ends = ends;
        adjust(&mut self.contents);
        if let Some(kind) = self.kinds.get_mut(usize::from(kind)) {
            adjust(&mut kind.bytes);
        }
        let owner = self.owners.entry(owner).or_default();
        adjust(&mut owner.bytes);
        if may_go {
            adjust(&mut owner.may_go);
        }
        if place.0 != ends {
            self.ends.remove(&place);
            self.ends.insert((ends, place.1));
        }
    }

    pub(in super::super) fn read_after(
        &self,
        key: &str,
        after: u64,
        max: usize,
    ) -> Result<Option<LogPage>, StateError> {
        let log = match self.entries.get(key).map(|entry| &entry.content) {
            None => return Ok(None),
            Some(Content::Log(log)) => log,
            Some(_) => return Err(StateError::WrongType),
        };
        let skip = after.saturating_add(1).saturating_sub(log.first);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let kept = log.entries.iter().enumerate().skip(skip).take(max);
        Ok(Some(LogPage {
            entries: kept
                .map(|(at, entry)| (log.first + at as u64, Bytes::copy_from_slice(entry)))
                .collect(),
            first: log.first,
            last: log.first + log.entries.len() as u64 - 1,
        }))
    }

    pub(in super::super) fn trim(&mut self, key: &str, through: u64) -> Result<(), StateError> {
        match self.entries.get(key) {
            None => Ok(()),
            Some(Entry {
                content: Content::Log(_),
                ends,
                ..
            }) => {
                let ends = *ends;
                self.change_log(key, ends, |log| {
                    while log.first <= through && !log.entries.is_empty() {
                        log.drop_first();
                    }
                });
                Ok(())
            }
            Some(_) => Err(StateError::WrongType),
        }
    }
}
