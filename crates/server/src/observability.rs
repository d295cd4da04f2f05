//! Telemetry of a server.

use std::collections::HashMap;
use std::sync::Arc;

use super::method::MethodHandler;
use super::operations::Operations;
use crate::telemetry::Telemetry;

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
