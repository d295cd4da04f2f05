//! The server's name for people.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// The server's name for people: its title, or its name. Clones share it, so that a reload changes it everywhere.
#[derive(Clone, Debug, Default)]
pub struct DisplayName(Arc<ArcSwap<String>>);

impl DisplayName {
    /// Creates the name.
    pub fn new(name: &str) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(name.to_owned())))
    }

    /// Returns the present name.
    pub fn get(&self) -> Arc<String> {
        self.0.load_full()
    }

    /// Changes the name, also for the clones.
    pub fn set(&self, name: &str) {
        self.0.store(Arc::new(name.to_owned()));
    }
}
