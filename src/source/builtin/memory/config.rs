//! Where the toolset `memory` keeps what it is told, and how much of it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;

/// The toolset `memory`: a knowledge graph of entities, what was observed of them, and relations between them, kept in a
/// file in the format of the official reference server.
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
    /// The file with the graph. It is made when there is something to keep; its folder has to be there. Required if the
    /// toolset is named.
    #[schemars(extend("x-path" = "file"))]
    pub file: Option<PathBuf>,
    /// Whether each caller that has proved who it is gets a graph of its own, in a file beside `file` that is named after a
    /// digest of who it is. Callers without a proof share `file`. Default: true.
    pub per_principal: bool,
    /// Secrets of at least 32 bytes with which files are encrypted. The first encrypts, all of them decrypt: to rotate, put
    /// a new one in front. Files that are not encrypted yet are read, and encrypted when they are next written.
    /// Default: none, and files are plain text.
    #[serde(deserialize_with = "crate::environment::list")]
    pub keys: Vec<Secret>,
    /// How many entities one graph may have. Default: 10000.
    pub max_entities: usize,
    /// How many relations one graph may have. Default: 50000.
    pub max_relations: usize,
    /// How many observations one entity may have. Default: 1000.
    pub max_observations: usize,
    /// How many bytes one graph may have, as text. Default: 8388608, 8 MiB.
    pub max_bytes: usize,
    /// How many graphs of callers there may be. Default: 1000.
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
