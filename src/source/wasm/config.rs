//! WebAssembly components as they are configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;
use crate::source::config::TIMEOUT_SECONDS_MAX;

/// A WebAssembly component. Each function that it exports becomes a tool; its types say what the tool takes and gives.
///
/// A component reaches nothing but clocks and random numbers, and what is named here. It has no network. Each call has an
/// instance of its own, so that nothing of one caller's is there for the next.
///
/// It needs a program that was built with the feature `wasm`.
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
    /// The component's file, in the binary format or as text.
    #[schemars(extend("x-path" = "file"))]
    pub path: PathBuf,
    /// Which functions become tools, by name: `slug`, or with the interface that it is of, `docs:text/urls@0.1.0#slug`. `*`
    /// stands for anything. Default: all.
    #[serde(deserialize_with = "crate::environment::list")]
    pub include: Vec<String>,
    /// Which of them do not after all.
    #[serde(deserialize_with = "crate::environment::list")]
    pub exclude: Vec<String>,
    /// What its types do not say of a function, by the function's name as in `include`, without `*`.
    pub tools: BTreeMap<String, ComponentToolConfig>,
    /// Variables that it sees. It sees no others.
    pub environment: BTreeMap<String, Secret>,
    /// Folders that it sees. It sees no others, and nothing outside of them, whatever links lead there.
    pub directories: Vec<DirectoryConfig>,
    /// How much and how long.
    pub limits: ComponentLimits,
}

/// What is told of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentToolConfig {
    /// The name it is called by, behind the source's prefix. Default: the function's; with its interface's before it where
    /// it is of one.
    pub name: Option<String>,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, for the model that chooses. Default: its signature.
    pub description: Option<String>,
    /// What its arguments mean, by their names.
    pub arguments: BTreeMap<String, String>,
    /// Whether it changes nothing. Default: true, unless the component has a folder that it may write to.
    pub read_only: Option<bool>,
    /// Whether it may destroy what was there.
    pub destructive: Option<bool>,
    /// Whether calling it twice changes no more than calling it once.
    pub idempotent: Option<bool>,
}

/// A folder that a component sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// Where it is.
    #[schemars(extend("x-path" = "file"))]
    pub path: PathBuf,
    /// Where the component sees it. Default: at `path`.
    pub at: Option<String>,
    /// Whether the component may write there. Default: false.
    pub writable: bool,
}

/// How much a call of a component may take, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentLimits {
    /// How long a call may take, in seconds. It is then ended, wherever it is. Default: 30.
    pub timeout_seconds: u64,
    /// How much memory a call may have, in bytes; tables count too. Default: 67108864, 64 MiB.
    pub memory_bytes: usize,
    /// How large a result may be as JSON, in bytes. Default: 1048576, 1 MiB.
    pub output_bytes: usize,
    /// How many calls may run at once, of all its functions together. Default: 8.
    pub concurrency: usize,
    /// How long a call waits for its turn, in milliseconds. Default: 1000.
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

#[cfg_attr(not(feature = "wasm"), expect(dead_code, reason = "nobody asks"))]
impl ComponentLimits {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX))
    }
}
