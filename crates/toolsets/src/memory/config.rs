//! Configuration of the toolset `memory`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;

/// The toolset `memory`: a knowledge graph of entities, observations and relations, stored in a file in the format of
/// the official reference server.
///
/// ```yaml
/// toolsets: [memory]
/// builtin:
///   memory:
///     file: /var/lib/longshore/memory.jsonl
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// File of the graph. It is created on the first write; its folder must exist. Required if the toolset is
    /// named.
    #[schemars(extend("x-path" = "file"))]
    pub file: Option<PathBuf>,
    /// Give each authenticated caller a separate graph, in a file beside `file` named by a digest of the caller.
    /// Unauthenticated callers share `file`.
    pub per_principal: bool,
    /// Secrets of at least 32 bytes that encrypt the files. The first one encrypts, all of them decrypt: to rotate,
    /// put a new one in front. Unencrypted files are read, and encrypted on their next write. Default: none; files
    /// are plain text.
    #[serde(deserialize_with = "crate::environment::list")]
    pub keys: Vec<Secret>,
    /// Maximum number of entities in one graph.
    pub max_entities: usize,
    /// Maximum number of relations in one graph.
    pub max_relations: usize,
    /// Maximum number of observations of one entity.
    pub max_observations: usize,
    /// Maximum size of one graph as text, in bytes.
    pub max_bytes: usize,
    /// Maximum number of callers' graphs.
    pub max_graphs: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            file: None,
            per_principal: true,
            keys: Vec::new(),
            max_entities: 10_000,
            max_relations: 50_000,
            max_observations: 1000,
            max_bytes: 8 * 1024 * 1024,
            max_graphs: 1000,
        }
    }
}
