//! Configuration of WebAssembly components.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::environment::Secret;

/// A WebAssembly component. Each function that it exports becomes a tool whose schemas follow from the function's
/// types.
///
/// A component can access only clocks, random numbers and what is configured here. It has no network. Each call runs
/// in its own instance, so no data of one caller is left for the next.
///
/// Requires a program built with the feature `wasm`.
///
/// ```yaml
/// sources:
///   - name: text
///     component:
///       path: ./text.wasm
///       directories:
///         - { path: /srv/dictionaries, at: /dictionaries }
///       limits: { timeout_seconds: 5, memory_bytes: 134217728 }
///       tools:
///         slug:
///           description: A text as a part of a URL.
///           arguments: { text: "What the part is made of" }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentSourceConfig {
    /// File of the component, in the binary or the text format.
    #[schemars(extend("x-path" = "file"))]
    pub path: PathBuf,
    /// Functions to offer, by name: `slug`, or with the interface, `docs:text/urls@0.1.0#slug`. `*` matches anything.
    /// Default: all.
    #[serde(deserialize_with = "crate::environment::list")]
    pub include: Vec<String>,
    /// Functions to leave out of those included.
    #[serde(deserialize_with = "crate::environment::list")]
    pub exclude: Vec<String>,
    /// Details of functions that their types do not show, by the name as in `include`, without `*`.
    pub tools: BTreeMap<String, ComponentToolConfig>,
    /// Environment variables of the component. It sees no others.
    pub environment: BTreeMap<String, Secret>,
    /// Folders that the component can access. It cannot access anything outside of them, not even through links.
    pub directories: Vec<DirectoryConfig>,
    /// Resource limits of a call.
    pub limits: ComponentLimits,
}

/// Details of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentToolConfig {
    /// Name of the tool, after the source's prefix. Default: the function's name, preceded by its interface's name if
    /// it has one.
    pub name: Option<String>,
    /// Display name of the tool.
    pub title: Option<String>,
    /// Description of the tool, for the model. Default: the function's signature.
    pub description: Option<String>,
    /// Descriptions of the arguments, by name.
    pub arguments: BTreeMap<String, String>,
    /// Declare that the tool changes nothing. Default: true, unless the component has a writable folder.
    pub read_only: Option<bool>,
    /// Declare that the tool can destroy data.
    pub destructive: Option<bool>,
    /// Declare that the tool is idempotent.
    pub idempotent: Option<bool>,
}

/// A folder that a component can access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// Path of the folder on the host.
    #[schemars(extend("x-path" = "file"))]
    pub path: PathBuf,
    /// Path at which the component sees the folder. Default: the same as `path`.
    pub at: Option<String>,
    /// Allow the component to write to the folder.
    pub writable: bool,
}

/// Resource limits of a component's calls.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentLimits {
    /// Maximum time of a call, in seconds. It is then aborted, wherever it is.
    pub timeout_seconds: u64,
    /// Maximum memory of a call, in bytes, including tables.
    pub memory_bytes: usize,
    /// Maximum size of a result as JSON, in bytes.
    pub output_bytes: usize,
    /// Maximum number of concurrent calls, of all its functions together.
    pub concurrency: usize,
    /// Maximum time a call waits in the queue, in milliseconds.
    pub queue_ms: u64,
}

impl Default for ComponentLimits {
    fn default() -> Self {
        Self {
            timeout_seconds: 30,
            memory_bytes: 64 * 1024 * 1024,
            output_bytes: 1024 * 1024,
            concurrency: 8,
            queue_ms: 1000,
        }
    }
}
