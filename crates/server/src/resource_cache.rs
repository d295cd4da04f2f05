//! Cache of resource contents.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::auth::{Principal, PrincipalKind};
use crate::protocol::{CacheScope, ResourceBody, ResourceContents};

/// Contents by URI, up to a size in bytes. The oldest entry is evicted first.
///
/// Concurrent misses for one key all read the resource.
#[derive(Debug)]
pub(crate) struct ResourceCache {
    bytes_max: usize,
    cache: Mutex<Entries>,
}

/// URI of the contents and the principal that they belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    uri: Arc<str>,
    /// `None` if the contents are public.
    principal: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Entries {
    entries: HashMap<CacheKey, CacheEntry, RandomState>,
    /// Keys in the order of insertion.
    by_age: BTreeMap<u64, CacheKey>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct CacheEntry {
    contents: Arc<[ResourceContents]>,
    until: Instant,
    number: u64,
    bytes: usize,
}

/// Maximum size of one entry, as a divisor of the cache size.
const SHARE: usize = 4;
/// Approximate overhead of an entry in bytes.
const ENTRY_BYTES: usize = 512;

impl CacheKey {
    /// Returns `None` if the contents cannot be cached: private contents of anonymous callers, who cannot be told
    /// apart.
    pub fn of(uri: &str, scope: CacheScope, principal: &Principal) -> Option<Self> {
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

impl ResourceCache {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            cache: Mutex::default(),
        }
    }

    /// Cached contents and their remaining time to live.
    pub fn get(&self, key: &CacheKey) -> Option<(Arc<[ResourceContents]>, Duration)> {
        let mut cache = self.cache();
        let entry = cache.entries.get(key)?;
        let left = entry.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            cache.remove(key);
            return None;
        }
        Some((Arc::clone(&entry.contents), left))
    }

    pub fn put(&self, key: CacheKey, contents: Arc<[ResourceContents]>, ttl: Duration) {
        let bytes = ENTRY_BYTES + 2 * key.uri.len() + contents.iter().map(size).sum::<usize>();
        // An expiry beyond the range of the clock is not cached.
        let (true, Some(until)) = (
            bytes <= self.bytes_max / SHARE,
            Instant::now().checked_add(ttl),
        ) else {
            return;
        };
        let mut cache = self.cache();
        cache.remove(&key);
        let number = cache.next;
        cache.next += 1;
        cache.bytes += bytes;
        cache.by_age.insert(number, key.clone());
        let entry = CacheEntry {
            contents,
            until,
            number,
            bytes,
        };
        cache.entries.insert(key, entry);
        while self.bytes_max < cache.bytes {
            let Some((_, oldest)) = cache.by_age.pop_first() else {
                return;
            };
            cache.remove(&oldest);
        }
    }

    fn cache(&self) -> MutexGuard<'_, Entries> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn remove(&mut self, key: &CacheKey) {
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

    fn public(uri: &str) -> CacheKey {
        CacheKey::of(uri, CacheScope::Public, &Principal::anonymous()).expect("can be kept")
    }

    fn text(text: &str) -> Arc<[ResourceContents]> {
        Arc::from([ResourceContents::text(text)])
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_was_kept_is_there_until_its_time_is_up() {
        let kept = ResourceCache::new(1 << 20);
        kept.put(public("a"), text("a"), MINUTE);
        tokio::time::advance(Duration::from_secs(59)).await;
        let (contents, left) = kept.get(&public("a")).expect("still there");
        assert_eq!((&contents, left), (&text("a"), Duration::from_secs(1)));
        assert!(kept.get(&public("b")).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(kept.get(&public("a")).is_none());
        let cache = kept.cache();
        assert_eq!((cache.bytes, cache.by_age.len()), (0, 0));
    }

    #[test]
    fn what_came_first_goes_first_when_there_is_no_room() {
        let kept = ResourceCache::new(100_000);
        for i in 0..1_000 {
            kept.put(public(&format!("x:{i}")), text("text"), MINUTE);
            kept.put(public("x:same"), text("text"), MINUTE);
        }
        let cache = kept.cache();
        assert!(cache.bytes <= 100_000);
        assert_eq!(cache.entries.len(), cache.by_age.len());
        drop(cache);
        assert!(kept.get(&public("x:999")).is_some() && kept.get(&public("x:same")).is_some());
        assert!(kept.get(&public("x:0")).is_none());
        kept.put(public("large"), text(&"x".repeat(25_001)), MINUTE);
        assert!(kept.get(&public("large")).is_none());
        let none = ResourceCache::new(0);
        none.put(public("a"), text("a"), MINUTE);
        assert!(none.get(&public("a")).is_none());
    }

    #[test]
    fn cache_04_what_is_a_callers_own_is_kept_for_nobody_else() {
        let kept = ResourceCache::new(1 << 20);
        let own = CacheKey::of("a", CacheScope::Private, &Principal::local()).expect("can be kept");
        kept.put(own.clone(), text("own"), MINUTE);
        assert!(kept.get(&own).is_some());
        assert!(kept.get(&public("a")).is_none());
        assert_eq!(
            CacheKey::of("a", CacheScope::Private, &Principal::anonymous()),
            None
        );
    }
}
