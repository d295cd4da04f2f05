//! Metric ids of methods.

use std::collections::HashMap;
use std::sync::Arc;

use super::method::MethodHandler;
use crate::protocol::Method;
use crate::telemetry::{Metrics, OperationId, Target};

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
