//! Interned names of operations, so that hot paths compare and index by ID.

use std::collections::HashMap;
use std::sync::Arc;

use crate::net::RwLock;

/// ID of a method, or of a method with a tool or prompt. An ID never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(u16);

/// Kind of catalog item that a method names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Tool,
    Prompt,
}

/// Label for names that are not in the catalog, and for names beyond the maximum.
pub const OTHER: &str = "_OTHER";

/// Maximum number of operations that are counted separately.
pub(crate) const OPERATIONS_MAX: usize = 4096;

/// Names of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    pub method: Arc<str>,
    pub target: Option<(Target, Arc<str>)>,
}

/// Table of all operation IDs.
#[derive(Debug)]
pub struct Names(RwLock<OperationTable>);

#[derive(Debug)]
struct OperationTable {
    operations: Vec<Operation>,
    ids: HashMap<Operation, OperationId>,
}

impl OperationId {
    /// An unknown method.
    pub const OTHER: Self = Self(0);

    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Default for Names {
    fn default() -> Self {
        let other = Operation {
            method: OTHER.into(),
            target: None,
        };
        Self(RwLock::new(OperationTable {
            ids: HashMap::from([(other.clone(), OperationId::OTHER)]),
            operations: vec![other],
        }))
    }
}

impl Names {
    /// Returns the ID of an operation. The same names always have the same ID.
    pub fn id(&self, method: &str, target: Option<(Target, &str)>) -> OperationId {
        let operation = Operation {
            method: method.into(),
            target: target.map(|(target, name)| (target, name.into())),
        };
        let mut known = self.0.write();
        if let Some(id) = known.ids.get(&operation) {
            return *id;
        }
        if OPERATIONS_MAX <= known.operations.len() {
            let other = Operation {
                target: operation.target.map(|(target, _)| (target, OTHER.into())),
                ..operation
            };
            return known.ids.get(&other).copied().unwrap_or(OperationId::OTHER);
        }
        // The cast is lossless: the length was checked above.
        let id = OperationId(known.operations.len() as u16);
        known.operations.push(operation.clone());
        known.ids.insert(operation, id);
        id
    }

    /// Returns the names of an operation.
    #[cfg(feature = "otlp")]
    pub fn get(&self, id: OperationId) -> Operation {
        let known = self.0.read();
        let operation = known.operations.get(id.index());
        operation.unwrap_or(&known.operations[0]).clone()
    }

    /// Returns all operations, indexed by ID.
    pub fn all(&self) -> Vec<Operation> {
        self.0.read().operations.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_ids_and_are_not_endless() {
        let names = Names::default();
        let ping = names.id("ping", None);
        let unknown = names.id("tools/call", Some((Target::Tool, OTHER)));
        let add = names.id("tools/call", Some((Target::Tool, "add")));
        assert_ne!(ping, add);
        assert_eq!(names.id("tools/call", Some((Target::Tool, "add"))), add);
        assert_ne!(names.id("tools/call", Some((Target::Prompt, "add"))), add);
        assert_eq!(&*names.all()[ping.index()].method, "ping");
        for number in 0..OPERATIONS_MAX {
            names.id("tools/call", Some((Target::Tool, &number.to_string())));
        }
        let late = |target| names.id("tools/call", Some((target, "one too many")));
        // It counts as a call of an unknown tool.
        assert_eq!(late(Target::Tool), unknown);
        assert_eq!(late(Target::Prompt), OperationId::OTHER);
        assert_eq!(names.all().len(), OPERATIONS_MAX);
    }
}
