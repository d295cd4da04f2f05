//! Things of one kind, in the order in which they were added, found by key.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::protocol::Revision;

/// An entry of a list.
pub trait ListItem {
    /// The member of the result that holds the list.
    const MEMBER: &'static str;
    /// Purpose for which the list's cursors are signed.
    const CURSOR: &'static str;

    /// Unique key of the entry among its kind.
    fn key(&self) -> &str;

    /// Serialises the entry for clients of a revision.
    fn write(&self, out: &mut Vec<u8>, revision: Revision);
}

/// All things of one kind.
#[derive(Debug)]
pub struct Table<T> {
    entries: Vec<T>,
    by_key: HashMap<Box<str>, usize, RandomState>,
}

impl<T: ListItem> Table<T> {
    /// Returns true if clients see both entries alike.
    pub fn looks_like(&self, other: &Self) -> bool {
        let serialized = |table: &Self| {
            let mut bytes = Vec::new();
            for entry in &table.entries {
                for revision in Revision::ALL {
                    entry.write(&mut bytes, revision);
                }
            }
            bytes
        };
        self.len() == other.len() && serialized(self) == serialized(other)
    }

    /// Returns the serialised size for a revision in bytes, with a comma for each entry.
    pub fn size(&self, revision: Revision) -> usize {
        let mut bytes = Vec::new();
        let sizes = self.entries.iter().map(|entry| {
            bytes.clear();
            entry.write(&mut bytes, revision);
            bytes.len() + 1
        });
        sizes.sum()
    }

    /// Adds something, or gives it back if another has its key.
    pub fn add(&mut self, entry: T) -> Result<(), T> {
        if self.by_key.contains_key(entry.key()) {
            return Err(entry);
        }
        self.by_key.insert(entry.key().into(), self.entries.len());
        self.entries.push(entry);
        Ok(())
    }
}

impl<T> Table<T> {
    #[inline]
    pub fn get(&self, key: &str) -> Option<&T> {
        self.by_key
            .get(key)
            .map(|position| &self.entries[*position])
    }

    pub fn position(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.entries.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.entries.iter_mut()
    }

    pub fn entries(&self) -> &[T] {
        &self.entries
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            by_key: HashMap::default(),
        }
    }
}
