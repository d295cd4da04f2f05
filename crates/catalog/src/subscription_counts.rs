//! Counts of resource subscriptions, for sources that subscribe elsewhere on behalf of clients.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::net::Mutex;

/// The URIs that streams of this process have subscribed to, counted.
#[derive(Clone, Default)]
pub struct SubscriptionCounts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    counts: Mutex<HashMap<Arc<str>, usize>>,
    changed: Notify,
}

impl SubscriptionCounts {
    /// Adds one subscription for each URI.
    pub fn begin<'a>(&self, uris: impl IntoIterator<Item = &'a Arc<str>>) {
        self.change(uris, |counts, uri| {
            let count = counts.entry(Arc::clone(uri)).or_default();
            *count += 1;
            *count == 1
        });
    }

    /// Removes one subscription for each URI.
    pub fn end<'a>(&self, uris: impl IntoIterator<Item = &'a Arc<str>>) {
        self.change(uris, |counts, uri| {
            let Some(count) = counts.get_mut(uri) else {
                return false;
            };
            *count -= 1;
            *count == 0 && counts.remove(uri).is_some()
        });
    }

    /// Changes the count of each URI. `change` returns true if the set of URIs is another one after it.
    fn change<'a>(
        &self,
        uris: impl IntoIterator<Item = &'a Arc<str>>,
        change: impl Fn(&mut HashMap<Arc<str>, usize>, &Arc<str>) -> bool,
    ) {
        let mut counts = self.0.counts.lock();
        let is_news = uris
            .into_iter()
            .fold(false, |is_news, uri| change(&mut counts, uri) | is_news);
        drop(counts);
        if is_news {
            self.0.changed.notify_one();
        }
    }

    /// Returns all subscribed URIs.
    pub fn uris(&self) -> BTreeSet<Arc<str>> {
        self.0.counts.lock().keys().cloned().collect()
    }

    /// Waits until the set may have changed. Supports a single waiter.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl fmt::Debug for SubscriptionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionCounts")
            .field("uris", &self.0.counts.lock().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_uri_is_of_interest_from_the_first_who_listens_to_the_last() {
        let interest = SubscriptionCounts::default();
        let (a, b): (Arc<str>, Arc<str>) = ("x://a".into(), "x://b".into());
        interest.begin([&a, &b]);
        interest.changed().await;
        interest.begin([&a]);
        interest.end([&a]);
        let none = std::time::Duration::ZERO;
        let news = tokio::time::timeout(none, interest.changed()).await;
        assert!(news.is_err(), "somebody listens still");
        assert_eq!(interest.uris().len(), 2);
        interest.end([&a]);
        interest.changed().await;
        assert_eq!(interest.uris(), BTreeSet::from([Arc::clone(&b)]));
        // Of nobody's.
        interest.end([&a]);
        assert_eq!(interest.uris(), BTreeSet::from([b]));
    }
}
