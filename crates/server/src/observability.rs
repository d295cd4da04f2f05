//! Telemetry of a server: its metric ids, and metrics of its catalog.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::method::MethodHandler;
use super::snapshot::Snapshot;
use crate::net::Mutex;
use crate::protocol::Method;
use crate::telemetry::{Metrics, OperationId, TOOLS, TOOLS_SIZE, Target, Telemetry};

/// Telemetry of a server, with the ids of its methods.
pub(super) struct Observability {
    pub(super) telemetry: Telemetry,
    pub(super) operations: Operations,
}

impl Observability {
    pub(super) fn new(
        telemetry: Telemetry,
        methods: &HashMap<String, Arc<dyn MethodHandler>>,
    ) -> Self {
        Self {
            operations: Operations::new(&telemetry.metrics, methods),
            telemetry,
        }
    }
}

/// Metric ids of methods.
#[derive(Debug)]
pub(super) struct Operations {
    /// By method, in the order of [`Method::ALL`].
    methods: Vec<OperationId>,
    /// Custom methods, by name.
    custom: HashMap<String, OperationId>,
}

/// Label of unknown tools and prompts.
const OTHER: &str = "_OTHER";

impl Operations {
    pub(super) fn new(metrics: &Metrics, custom: &HashMap<String, Arc<dyn MethodHandler>>) -> Self {
        let of = |method: Method| {
            let target = match method {
                Method::ToolsCall => Some((Target::Tool, OTHER)),
                Method::PromptsGet => Some((Target::Prompt, OTHER)),
                _ => None,
            };
            metrics.operation(method.as_str(), target)
        };
        Self {
            methods: Method::ALL.map(of).into(),
            custom: custom
                .keys()
                .map(|name| (name.clone(), metrics.operation(name, None)))
                .collect(),
        }
    }

    #[inline]
    pub(super) fn of(&self, method: Method) -> OperationId {
        let id = self.methods.get(method as usize);
        id.copied().unwrap_or(OperationId::OTHER)
    }

    /// Metric id of a method. Unregistered names share one.
    pub(super) fn named(&self, name: &str) -> OperationId {
        match Method::parse(name) {
            Some(method) => self.of(method),
            None => self.custom.get(name).copied().unwrap_or(OperationId::OTHER),
        }
    }
}

/// The snapshot that the metrics describe. Expensive values are computed when they are read.
#[derive(Clone, Debug)]
pub(super) struct CatalogMetrics(Arc<Mutex<Weak<Snapshot>>>);

impl CatalogMetrics {
    pub(super) fn new(snapshot: &Arc<Snapshot>) -> Self {
        Self(Arc::new(Mutex::new(Arc::downgrade(snapshot))))
    }

    /// Describes another snapshot from now on.
    pub(super) fn replace(&self, snapshot: &Arc<Snapshot>) {
        *self.0.lock() = Arc::downgrade(snapshot);
    }

    pub(super) fn show(&self, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let read = |instrument, of: fn(&Snapshot) -> usize| {
            let catalog_metrics = self.clone();
            let read = move || {
                catalog_metrics
                    .snapshot()
                    .map_or(0, |snapshot| of(&snapshot)) as f64
            };
            metrics.read(instrument, labels, read);
        };
        read(&TOOLS, |snapshot| snapshot.catalog.tools.len());
        read(&TOOLS_SIZE, Snapshot::tools_size);
    }

    /// Returns `None` after the server was dropped.
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let current = self.0.lock();
        current.upgrade()
    }
}
