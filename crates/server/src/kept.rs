//! What resources said, kept for as long as they say that it stays good.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::auth::{Principal, PrincipalKind};
use crate::protocol::{CacheScope, ResourceBody, ResourceContents};

/// Contents by URI, up to a number of bytes; what came first goes first.
///
/// Two callers who ask at the same time for what is not there both have it read.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes_max: usize,
    shelf: Mutex<Shelf>,
}

/// Whose contents of which URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    uri: Arc<str>,
    /// `None` if they are everybody's.
    principal: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Shelf {
    entries: HashMap<Key, Entry, RandomState>,
    /// In the order in which they came.
    by_age: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    contents: Arc<[ResourceContents]>,
    until: Instant,
    number: u64,
    bytes: usize,
}

/// One resource may take so much of the whole: a fourth.
const SHARE: usize = 4;
/// What an entry takes beside its texts, roughly.
const ENTRY_BYTES: usize = 512;

impl Key {
    /// `None` if the contents cannot be kept: those that are a caller's alone, where nobody knows who that is.
    pub(crate) fn of(uri: &str, scope: CacheScope, principal: &Principal) -> Option<Self> {
        let principal = match (scope, principal.kind()) {
            (CacheScope::Public, _) => None,
            (CacheScope::Private, PrincipalKind::Anonymous) => return None,
            (CacheScope::Private, _) => Some(Arc::from(principal.id())),
        };
        Some(Self {
            uri: Arc::from(uri),
            principal,
        })
    }
}

impl Kept {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            shelf: Mutex::default(),
        }
    }

    /// What is there, and for how long it stays good.
    pub(crate) fn get(&self, key: &Key) -> Option<(Arc<[ResourceContents]>, Duration)> {
        let mut shelf = self.shelf();
        let entry = shelf.entries.get(key)?;
        let left = entry.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            shelf.remove(key);
            return None;
        }
        Some((Arc::clone(&entry.contents), left))
    }

    pub(crate) fn put(&self, key: Key, contents: Arc<[ResourceContents]>, ttl: Duration) {
        let bytes = ENTRY_BYTES + 2 * key.uri.len() + contents.iter().map(size).sum::<usize>();
        // What no clock reaches is not worth keeping.
        let (true, Some(until)) = (
            bytes <= self.bytes_max / SHARE,
            Instant::now().checked_add(ttl),
        ) else {
            return;
        };
        let mut shelf = self.shelf();
        shelf.remove(&key);
        let number = shelf.next;
        shelf.next += 1;
        shelf.bytes += bytes;
        shelf.by_age.insert(number, key.clone());
        let entry = Entry {
            contents,
            until,
            number,
            bytes,
        };
        shelf.entries.insert(key, entry);
        while self.bytes_max < shelf.bytes {
            let Some((_, oldest)) = shelf.by_age.pop_first() else {
                return;
            };
            shelf.remove(&oldest);
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_age.remove(&entry.number);
            self.bytes -= entry.bytes;
        }
    }
}

fn size(contents: &ResourceContents) -> usize {
    let (ResourceBody::Text(body) | ResourceBody::Blob(body)) = &contents.body;
    let meta = contents.meta.as_ref();
    let meta = meta.map_or(0, |meta| serde_json::to_vec(meta).map_or(0, |m| m.len()));
    ENTRY_BYTES + contents.uri.len() + body.len() + 4 * meta
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(uri: &str) -> Key {
        Key::of(uri, CacheScope::Public, &Principal::anonymous()).expect("can be kept")
    }

    fn text(text: &str) -> Arc<[ResourceContents]> {
        Arc::from([ResourceContents::text(text)])
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_was_kept_is_there_until_its_time_is_up() {
        let kept = Kept::new(1 << 20);
        kept.put(public("a"), text("a"), MINUTE);
        tokio::time::advance(Duration::from_secs(59)).await;
        let (contents, left) = kept.get(&public("a")).expect("still there");
        assert_eq!((&contents, left), (&text("a"), Duration::from_secs(1)));
        assert!(kept.get(&public("b")).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(kept.get(&public("a")).is_none());
        let shelf = kept.shelf();
        assert_eq!((shelf.bytes, shelf.by_age.len()), (0, 0));
    }

    #[test]
    fn what_came_first_goes_first_when_there_is_no_room() {
        let kept = Kept::new(100_000);
        for i in 0..1_000 {
            kept.put(public(&format!("x:{i}")), text("text"), MINUTE);
            kept.put(public("x:same"), text("text"), MINUTE);
        }
        let shelf = kept.shelf();
        assert!(shelf.bytes <= 100_000);
        assert_eq!(shelf.entries.len(), shelf.by_age.len());
        drop(shelf);
        assert!(kept.get(&public("x:999")).is_some() && kept.get(&public("x:same")).is_some());
        assert!(kept.get(&public("x:0")).is_none());
        kept.put(public("large"), text(&"x".repeat(25_001)), MINUTE);
        assert!(kept.get(&public("large")).is_none());
        let none = Kept::new(0);
        none.put(public("a"), text("a"), MINUTE);
        assert!(none.get(&public("a")).is_none());
    }

    #[test]
    fn cache_04_what_is_a_callers_own_is_kept_for_nobody_else() {
        let kept = Kept::new(1 << 20);
        let own = Key::of("a", CacheScope::Private, &Principal::local()).expect("can be kept");
        kept.put(own.clone(), text("own"), MINUTE);
        assert!(kept.get(&own).is_some());
        assert!(kept.get(&public("a")).is_none());
        assert_eq!(
            Key::of("a", CacheScope::Private, &Principal::anonymous()),
            None
        );
    }
}
