//! What is offered, as metrics tell of it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::generation::Generation;
use crate::telemetry::{Metrics, TOOLS, TOOLS_SIZE};

/// The generation that metrics tell of. What takes time to know is found out when somebody looks.
#[derive(Clone, Debug)]
pub(super) struct Offered(Arc<Mutex<Weak<Generation>>>);

impl Offered {
    pub(super) fn new(generation: &Arc<Generation>) -> Self {
        Self(Arc::new(Mutex::new(Arc::downgrade(generation))))
    }

    /// Another generation is served.
    pub(super) fn replace(&self, generation: &Arc<Generation>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(generation);
    }

    pub(super) fn show(&self, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let read = |instrument, of: fn(&Generation) -> usize| {
            let offered = self.clone();
            let read = move || offered.generation().map_or(0, |generation| of(&generation)) as f64;
            metrics.read(instrument, labels, read);
        };
        read(&TOOLS, |generation| generation.catalog.tools.len());
        read(&TOOLS_SIZE, Generation::tools_size);
    }

    /// `None` once its server has gone.
    fn generation(&self) -> Option<Arc<Generation>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.upgrade()
    }
}
