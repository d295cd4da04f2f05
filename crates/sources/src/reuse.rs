//! State of sources that outlives a reload: API clients, bulkheads and counters whose settings have not changed.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use super::api_client::{ApiClient, ClientSettings};
use super::command::CommandSourceConfig;
use super::output_contract::Mismatches;
#[cfg(feature = "wasm")]
use crate::net::BulkheadConfig;
use crate::net::{Bulkhead, Mutex};

/// State of the served sources. A source with the same settings uses it again, so that a reload does not close circuit
/// breakers, admit more concurrent calls, request new tokens or restart counters. Clones share the state, and state that no
/// source uses any more is dropped.
#[derive(Clone, Debug, Default)]
pub struct Reuse(Arc<Pools>);

#[derive(Debug, Default)]
struct Pools {
    clients: Pool<ClientSettings, ApiClient>,
    bulkheads: Pool<BulkheadUser, Bulkhead>,
    mismatches: Pool<(&'static str, String), AtomicU64>,
}

/// User of a bulkhead, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BulkheadUser {
    /// A command, by the name of its tool, and its source with this tool alone.
    Command(String, Box<CommandSourceConfig>),
    /// A component, by the name of its source.
    #[cfg(feature = "wasm")]
    Component(String, BulkheadConfig),
}

/// Values in use, by what they were made from.
struct Pool<K, T>(Mutex<Vec<(K, Weak<T>)>>);

impl Reuse {
    /// Returns the client with these settings, and creates it if no source uses one.
    ///
    /// # Errors
    ///
    /// The error of `create`.
    pub(super) fn client<E>(
        &self,
        settings: ClientSettings,
        create: impl FnOnce(&ClientSettings) -> Result<ApiClient, E>,
    ) -> Result<Arc<ApiClient>, E> {
        self.0.clients.get_or_create(settings, create)
    }

    /// Returns the bulkhead of a user with these settings, and creates it if there is none.
    pub(super) fn bulkhead(
        &self,
        user: BulkheadUser,
        create: impl FnOnce() -> Bulkhead,
    ) -> Arc<Bulkhead> {
        self.0.bulkheads.get_or_insert(user, create)
    }

    /// Returns the counter of results of a source or tool that did not conform to their output schemas. `kind` is the kind of
    /// the source.
    pub(super) fn mismatches(&self, kind: &'static str, name: &str) -> Mismatches {
        let key = (kind, name.to_owned());
        Mismatches::from(self.0.mismatches.get_or_insert(key, AtomicU64::default))
    }
}

impl<K: PartialEq, T> Pool<K, T> {
    fn get_or_create<E>(
        &self,
        key: K,
        create: impl FnOnce(&K) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut all = self.0.lock();
        all.retain(|(_, value)| 0 < value.strong_count());
        let mut same = all.iter().filter(|(known, _)| *known == key);
        if let Some(value) = same.find_map(|(_, value)| value.upgrade()) {
            return Ok(value);
        }
        let value = Arc::new(create(&key)?);
        all.push((key, Arc::downgrade(&value)));
        Ok(value)
    }

    fn get_or_insert(&self, key: K, create: impl FnOnce() -> T) -> Arc<T> {
        let created = self.get_or_create(key, |_| Ok::<_, std::convert::Infallible>(create()));
        let Ok(value) = created;
        value
    }
}

impl<K, T> Default for Pool<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, T> fmt::Debug for Pool<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(feature = "wasm"))]
    use crate::net::BulkheadConfig;

    #[test]
    fn what_is_in_use_is_used_again_if_its_settings_are_the_same() {
        let reuse = Reuse::default();
        let bulkhead = |name: &str, directory: Option<&str>| {
            let source = CommandSourceConfig {
                directory: directory.map(Into::into),
                ..CommandSourceConfig::default()
            };
            let user = BulkheadUser::Command(name.to_owned(), Box::new(source));
            let create = || Bulkhead::new(name, &BulkheadConfig::default());
            reuse.clone().bulkhead(user, create)
        };
        let first = bulkhead("a", None);
        assert!(Arc::ptr_eq(&first, &bulkhead("a", None)));
        assert!(!Arc::ptr_eq(&first, &bulkhead("a", Some("/tmp"))));
        assert!(!Arc::ptr_eq(&first, &bulkhead("b", None)));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert!(gone.upgrade().is_none(), "the pool keeps nothing alive");
        let _again = bulkhead("a", None);
        let known = reuse.0.bulkheads.0.lock().len();
        assert_eq!(known, 1);
    }

    #[test]
    fn what_cannot_be_created_is_tried_again() {
        let pool: Pool<u8, u8> = Pool::default();
        assert_eq!(
            pool.get_or_create(1, |_| Err("no file")).err(),
            Some("no file")
        );
        let value = pool.get_or_create(1, |key| Ok::<_, ()>(*key));
        assert_eq!(value.map(|value| *value), Ok(1));
    }
}
