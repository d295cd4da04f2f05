//! The configuration, composed of the settings of all rooms: detectors < file < environment < flags.
//!
//! Each room has a struct of settings with `serde`'s and `schemars`' derives and `deny_unknown_fields`. Composed in
//! [`Config`] they are all that is needed: the loader, the JSON Schema, the reference in the documentation and
//! `longshore config explain` follow from the types. A field marked `#[schemars(extend("x-reload" = "live"))]`, or in a
//! struct that is, takes effect when the file is read again; all others with the next start.

#[cfg(feature = "egress")]
mod ca_file;
mod diagnostic;
mod error;
mod expand;
mod explain;
mod file;
mod flags;
mod load;
mod log;

#[cfg(test)]
mod platforms;
mod reference;
mod schema;

mod typed;
mod validate;
mod value;
mod variables;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::environment::Conflict;
#[cfg(feature = "egress")]
pub(crate) use ca_file::check_ca_file;
#[cfg(feature = "egress")]
pub use ca_file::trust_ca_file;
pub use diagnostic::Diagnostic;
pub use error::ConfigError;
pub use explain::ResolvedSetting;
pub use flags::Flags;
pub use load::Loaded;
pub use log::{LogConfig, LogFormat};
pub use reference::{ReferencePage, reference, reference_index};
pub use schema::{Reload, Setting, schema, settings};
pub(crate) use validate::{
    is_exposed, is_public, open_to_others_in_container, validate_bound, validate_features,
};
pub use value::Origin;
pub use watch::Watch;

use crate::audit::AuditConfig;
use crate::auth::{AuthConfig, PolicyConfig};
use crate::limit::LimitConfig;
use crate::seal::SealConfig;
use crate::server::{EndpointConfig, ServerConfig};
use crate::source::{
    ArtifactConfig, BuiltinConfig, SourceConfig, TokensConfig, UpstreamConfig, UpstreamNames,
};
use crate::state::StateConfig;
use crate::telemetry::TelemetryConfig;
use crate::transport::drain::DrainConfig;
use crate::transport::http::HttpConfig;
use crate::transport::stdio::StdioConfig;

/// The whole configuration. One that [`Config::load`] returns is valid.
///
/// ```toml
/// transport = "http"
/// toolsets = ["demo"]
///
/// [http]
/// port = 3000
///
/// [server]
/// name = "my tools"
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Transport for clients. If unset: `http`, or `stdio` if standard input and output are both pipes, no setting of
    /// `http` and neither `PORT` nor `CI` is set, and the process is neither in a container nor on a platform.
    pub transport: Transport,
    /// Names of built-in toolsets to serve: `demo`, `everything` (an example of each protocol feature), `fetch`,
    /// `filesystem`, `memory`, `time`, and in builds that contain them, such as the image, `git` and `sql`. If unset,
    /// the program serves the demo toolset unless there are sources or upstreams; an application serves none.
    #[schemars(extend("x-reload" = "live"))]
    #[serde(deserialize_with = "crate::environment::list")]
    pub toolsets: Vec<String>,
    /// Settings of the built-in toolsets.
    #[schemars(extend("x-reload" = "live"))]
    pub builtin: BuiltinConfig,
    /// Meaning of `${NAME}` in the configuration file if the variable is not set.
    pub env_missing: EnvMissing,
    /// File with CA certificates in PEM form that all outgoing TLS connections trust in addition to the public ones, for
    /// servers with certificates of a private CA. Redis (`state.tls.ca`) and PostgreSQL have their own settings.
    #[schemars(extend("x-path" = "file"))]
    pub ca_file: Option<PathBuf>,
    /// The server itself.
    pub server: ServerConfig,
    /// HTTP.
    pub http: HttpConfig,
    /// Standard input and output.
    pub stdio: StdioConfig,
    /// Authentication.
    pub auth: AuthConfig,
    /// Access policy.
    #[schemars(extend("x-reload" = "live"))]
    pub policy: PolicyConfig,
    /// Other MCP servers whose tools, resources and prompts are served too, by name.
    #[serde(alias = "mcpServers")]
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// Folder for a cache of the upstream servers' tools, so that the next start need not query them. If unset, they
    /// are queried at each start.
    #[schemars(extend("x-path" = "file"))]
    pub upstreams_folder: Option<PathBuf>,
    /// Seconds that the start waits for upstream servers that are not cached. Slower ones are added when they
    /// respond; 0 waits for none. Servers that are required by `on_down` are always awaited. If unset: 10.
    pub upstreams_wait_seconds: Option<u64>,
    /// Timeout of calls to upstream servers without their own `timeout_seconds`, in seconds. Also
    /// `MCP_PROXY_REQUEST_TIMEOUT`. If unset: 120.
    pub upstreams_timeout_seconds: Option<u64>,
    /// Interval between checks for idle connections to upstream servers (`idle_seconds`), in seconds, 1 to 3600. If
    /// unset: 30.
    pub upstreams_reap_seconds: Option<u64>,
    /// Tools and prompts of upstream servers that are prefixed with the server's name, if the server has no `prefix`:
    /// `always`; `collision`, if another item has the same name; `never`.
    pub upstreams_names: UpstreamNames,
    /// Separator between the server's name and the item's name: 1 to 8 letters, digits, `_`, `-` and `.`. If unset:
    /// `__`.
    pub upstreams_separator: Option<String>,
    /// Endpoints besides `/mcp`, each at `/mcp/` and its name, with a part of the items.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// Keys for session ids and cursors.
    pub seal: SealConfig,
    /// Traces, metrics and logs.
    pub telemetry: TelemetryConfig,
    /// Stopping.
    pub drain: DrainConfig,
    /// State that replicas share.
    pub state: StateConfig,
    /// Store of the tokens that this program obtains as a client of other servers.
    pub tokens: TokensConfig,
    /// Tools that need no code: HTTP calls, operations of OpenAPI documents, command lines.
    #[schemars(extend("x-reload" = "live"))]
    pub sources: Vec<SourceConfig>,
    /// Large results of tools that need no code: kept, and linked to.
    pub artifacts: ArtifactConfig,
    /// Rate and concurrency limits.
    #[schemars(extend("x-reload" = "live"))]
    pub limits: LimitConfig,
    /// Audit log.
    pub audit: AuditConfig,
    /// The log.
    pub log: LogConfig,
}

/// Transport for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Transport {
    /// Over the network, at `/mcp`.
    #[default]
    Http,
    /// The parent process, over standard input and output.
    Stdio,
}

/// Meaning of `${NAME}` if the variable is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EnvMissing {
    /// A mistake: the server does not start.
    #[default]
    Error,
    /// An empty string, as files for other products may expect.
    Empty,
}
