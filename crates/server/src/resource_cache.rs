//! Cache of resource contents.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::auth::{Principal, PrincipalKind};
use crate::net::Mutex;
use crate::protocol::{CacheScope, ResourceBody, ResourceContents};

/// Contents by URI, up to a size in bytes. The oldest entry is evicted first.
///
/// Concurrent misses for one key all read the resource.
#[derive(Debug)]
pub struct ResourceCache {
    bytes_max: usize,
    cache: Mutex<Entries>,
}

/// URI of the contents and the principal that they belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    uri: Arc<str>,
    /// `None` if the contents are public.
    principal: Option<Arc<str>>,
}

/// Position in the sequence of insertions and invalidations.
type Number = u64;

#[derive(Debug, Default)]
struct Entries {
    by_uri: HashMap<Arc<str>, OfUri, RandomState>,
    /// Keys in the order of insertion.
    by_age: BTreeMap<Number, CacheKey>,
    next: Number,
    bytes: usize,
    /// The last invalidated URIs, oldest first: a reading that began before is not cached.
    invalidated: VecDeque<(Number, Arc<str>)>,
}

/// Entries of one URI, by principal; `None` if they are public.
type OfUri = HashMap<Option<Arc<str>>, CacheEntry, RandomState>;

#[derive(Debug)]
struct CacheEntry {
    contents: Arc<[ResourceContents]>,
    until: Instant,
    number: Number,
    bytes: usize,
}

/// Maximum size of one entry, as a divisor of the cache size.
const SHARE: usize = 4;
/// Approximate overhead of an entry in bytes.
const ENTRY_BYTES: usize = 512;
/// Number of invalidated URIs that are remembered.
const INVALIDATED_MAX: usize = 256;

/// A reading whose contents may be cached.
#[derive(Debug)]
pub struct CacheableRead {
    key: CacheKey,
    began: Number,
}

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

    /// Returns cached contents and their remaining time to live, or how to cache what is read now.
    pub fn get(&self, key: CacheKey) -> Result<(Arc<[ResourceContents]>, Duration), CacheableRead> {
        let mut cache = self.cache.lock();
        if let Some(entry) = cache.entry(&key) {
            let left = entry.until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Ok((Arc::clone(&entry.contents), left));
            }
            cache.remove(&key);
        }
        let began = cache.next;
        Err(CacheableRead { key, began })
    }

    /// Removes the contents of a URI, for all principals. Readings that have begun are not cached.
    pub fn invalidate(&self, uri: &Arc<str>) {
        let mut cache = self.cache.lock();
        let removed = cache.by_uri.remove(uri);
        for entry in removed.into_iter().flat_map(HashMap::into_values) {
            cache.by_age.remove(&entry.number);
            cache.bytes -= entry.bytes;
        }
        let number = cache.number();
        if let Some((last, same)) = cache.invalidated.back_mut()
            && same == uri
        {
            *last = number;
            return;
        }
        if cache.invalidated.len() == INVALIDATED_MAX {
            cache.invalidated.pop_front();
        }
        cache.invalidated.push_back((number, Arc::clone(uri)));
    }

    pub fn put(&self, read: CacheableRead, contents: Arc<[ResourceContents]>, ttl: Duration) {
        let CacheableRead { key, began } = read;
        let bytes = ENTRY_BYTES + 2 * key.uri.len() + contents.iter().map(size).sum::<usize>();
        // An expiry beyond the range of the clock is not cached.
        let (true, Some(until)) = (
            bytes <= self.bytes_max / SHARE,
            Instant::now().checked_add(ttl),
        ) else {
            return;
        };
        let mut cache = self.cache.lock();
        if cache.was_invalidated(&key.uri, began) {
            return;
        }
        cache.remove(&key);
        let number = cache.number();
        cache.bytes += bytes;
        cache.by_age.insert(number, key.clone());
        let entry = CacheEntry {
            contents,
            until,
            number,
            bytes,
        };
        let CacheKey { uri, principal } = key;
        let of_uri = cache.by_uri.entry(uri).or_default();
        of_uri.insert(principal, entry);
        while self.bytes_max < cache.bytes {
            let Some((_, oldest)) = cache.by_age.pop_first() else {
                return;
            };
            cache.remove(&oldest);
        }
    }
}

impl Entries {
    fn entry(&self, key: &CacheKey) -> Option<&CacheEntry> {
        self.by_uri.get(&key.uri)?.get(&key.principal)
    }

    fn remove(&mut self, key: &CacheKey) {
        let Some(of_uri) = self.by_uri.get_mut(&key.uri) else {
            return;
        };
        if let Some(entry) = of_uri.remove(&key.principal) {
            self.by_age.remove(&entry.number);
            self.bytes -= entry.bytes;
        }
        if of_uri.is_empty() {
            self.by_uri.remove(&key.uri);
        }
    }

    fn number(&mut self) -> Number {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Returns true if a URI has been invalidated since a reading began, or if that is not known any more.
    fn was_invalidated(&self, uri: &str, began: Number) -> bool {
        let is_full = self.invalidated.len() == INVALIDATED_MAX;
        let is_unknown = |(oldest, _): &(Number, _)| is_full && began < *oldest;
        self.invalidated.front().is_some_and(is_unknown)
            || self
                .invalidated
                .iter()
                .rev()
                .take_while(|(number, _)| began <= *number)
                .any(|(_, invalidated)| **invalidated == *uri)
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

    fn put(cache: &ResourceCache, key: CacheKey, contents: Arc<[ResourceContents]>) {
        let began = cache.cache.lock().next;
        cache.put(CacheableRead { key, began }, contents, MINUTE);
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_was_kept_is_there_until_its_time_is_up() {
        let kept = ResourceCache::new(1 << 20);
        put(&kept, public("a"), text("a"));
        tokio::time::advance(Duration::from_secs(59)).await;
        let (contents, left) = kept.get(public("a")).expect("still there");
        assert_eq!((&contents, left), (&text("a"), Duration::from_secs(1)));
        assert!(kept.get(public("b")).is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(kept.get(public("a")).is_err());
        let cache = kept.cache.lock();
        assert_eq!((cache.bytes, cache.by_age.len()), (0, 0));
    }

    #[test]
    fn what_came_first_goes_first_when_there_is_no_room() {
        let kept = ResourceCache::new(100_000);
        for i in 0..1_000 {
            put(&kept, public(&format!("x:{i}")), text("text"));
            put(&kept, public("x:same"), text("text"));
        }
        let cache = kept.cache.lock();
        assert!(cache.bytes <= 100_000);
        assert_eq!(cache.by_uri.len(), cache.by_age.len());
        drop(cache);
        assert!(kept.get(public("x:999")).is_ok() && kept.get(public("x:same")).is_ok());
        assert!(kept.get(public("x:0")).is_err());
        put(&kept, public("large"), text(&"x".repeat(25_001)));
        assert!(kept.get(public("large")).is_err());
        let none = ResourceCache::new(0);
        put(&none, public("a"), text("a"));
        assert!(none.get(public("a")).is_err());
    }

    #[test]
    fn cache_04_what_is_a_callers_own_is_kept_for_nobody_else() {
        let kept = ResourceCache::new(1 << 20);
        let own = CacheKey::of("a", CacheScope::Private, &Principal::local()).expect("can be kept");
        put(&kept, own.clone(), text("own"));
        assert!(kept.get(own).is_ok());
        assert!(kept.get(public("a")).is_err());
        assert_eq!(
            CacheKey::of("a", CacheScope::Private, &Principal::anonymous()),
            None
        );
    }

    #[test]
    fn contents_that_have_changed_are_forgotten_also_while_they_are_read() {
        let kept = ResourceCache::new(1 << 20);
        let own = CacheKey::of("a", CacheScope::Private, &Principal::local()).expect("can be kept");
        put(&kept, own.clone(), text("own"));
        put(&kept, public("a"), text("a"));
        put(&kept, public("b"), text("b"));
        kept.invalidate(&"a".into());
        assert!(kept.get(own).is_err() && kept.get(public("b")).is_ok());
        let [read, of_other, long] =
            ["a", "c", "c"].map(|uri| kept.get(public(uri)).expect_err("not kept"));
        kept.invalidate(&"a".into());
        kept.put(read, text("old"), MINUTE);
        kept.put(of_other, text("c"), MINUTE);
        assert!(kept.get(public("a")).is_err() && kept.get(public("c")).is_ok());
        kept.invalidate(&"c".into());
        for n in 0..INVALIDATED_MAX {
            kept.invalidate(&n.to_string().into());
        }
        kept.put(long, text("old"), MINUTE);
        assert!(kept.get(public("c")).is_err());
        let cache = kept.cache.lock();
        assert_eq!((cache.by_uri.len(), cache.by_age.len()), (1, 1));
        assert_eq!(cache.invalidated.len(), INVALIDATED_MAX);
    }
}
