//! The configuration, composed of the settings of all rooms: detectors < file < environment < flags.
//!
//! Each room has a struct of settings with `serde`'s and `schemars`' derives and `deny_unknown_fields`. Composed in
//! [`Config`] they are all that is needed: the loader, the JSON Schema, the reference in the documentation and
//! `longshore config explain` follow from the types. A field marked `#[schemars(extend("x-reload" = "live"))]`, or in a
//! struct that is, takes effect when the file is read again; all others with the next start.

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
pub use diagnostic::Diagnostic;
pub use error::ConfigError;
pub use explain::ResolvedSetting;
pub use flags::Flags;
pub use load::Loaded;
pub use log::{LogConfig, LogFormat};
pub use reference::reference;
pub use schema::{Reload, Setting, schema, settings};
pub(crate) use validate::{is_public, open_to_others, validate_bound, validate_features};
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
    /// How clients reach the server. Default: `http`; `stdio` if standard input and output are both pipes, `PORT` is not
    /// set, and the process is neither in a container nor on a platform.
    pub transport: Transport,
    /// Names of built-in toolsets to serve: `demo`, `everything` (an example of each thing that the protocol can do),
    /// `fetch`, `filesystem`, `memory`, `time`; and where they are built in, as in the image, `git` and `sql`.
    /// Default: for the program the demo toolset, unless there are sources or upstreams; for an application none.
    #[schemars(extend("x-reload" = "live"))]
    #[serde(deserialize_with = "crate::environment::list")]
    pub toolsets: Vec<String>,
    /// What the built-in toolsets work on.
    #[schemars(extend("x-reload" = "live"))]
    pub builtin: BuiltinConfig,
    /// What `${NAME}` in the configuration file means when the variable is not set. Default: `error`.
    pub env_missing: EnvMissing,
    /// The server itself.
    pub server: ServerConfig,
    /// HTTP.
    pub http: HttpConfig,
    /// Standard input and output.
    pub stdio: StdioConfig,
    /// Who may call.
    pub auth: AuthConfig,
    /// Who sees and uses what.
    #[schemars(extend("x-reload" = "live"))]
    pub policy: PolicyConfig,
    /// Other MCP servers whose tools, resources and prompts are served too, by name.
    #[serde(alias = "mcpServers")]
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// A folder in which it is remembered what upstream servers offer, so that the next start need not ask them. Default:
    /// none, and they are asked at each start.
    #[schemars(extend("x-path" = "file"))]
    pub upstreams_folder: Option<PathBuf>,
    /// How long a start waits until all upstream servers that are not remembered have said what they offer, in seconds.
    /// Those who have not by then are listed when they do; 0 waits for none. One without which the server does not start
    /// (`on_down`) is waited for in any case. Default: 10.
    pub upstreams_wait_seconds: Option<u64>,
    /// How long a call to an upstream server may take that sets no `timeout_seconds` of its own. Also
    /// `MCP_PROXY_REQUEST_TIMEOUT`. Default: 120.
    pub upstreams_timeout_seconds: Option<u64>,
    /// How often it is looked for connections to upstream servers that nobody has used for a while (`idle_seconds`), in
    /// seconds, 1 to 3600. Default: 30.
    pub upstreams_reap_seconds: Option<u64>,
    /// Which tools and prompts of upstream servers have the server's name before theirs, where it sets no `prefix` of its
    /// own: `always`; `collision`, those whose name something else has too that is offered; `never`. Default: `always`.
    pub upstreams_names: UpstreamNames,
    /// What stands between the server's name and theirs then: 1 to 8 letters, digits, `_`, `-` and `.`. Default: `__`.
    pub upstreams_separator: Option<String>,
    /// Endpoints beside `/mcp`, each at `/mcp/` and its name, with a part of what is offered.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// Keys for session ids and cursors.
    pub seal: SealConfig,
    /// What operators get to see.
    pub telemetry: TelemetryConfig,
    /// Stopping.
    pub drain: DrainConfig,
    /// What replicas share.
    pub state: StateConfig,
    /// Where tokens are kept that this program gets for itself, as a client of others.
    pub tokens: TokensConfig,
    /// Tools that need no code: HTTP calls, operations of OpenAPI documents, command lines.
    #[schemars(extend("x-reload" = "live"))]
    pub sources: Vec<SourceConfig>,
    /// Large results of tools that need no code: kept, and linked to.
    pub artifacts: ArtifactConfig,
    /// How often, and how many at once.
    #[schemars(extend("x-reload" = "live"))]
    pub limits: LimitConfig,
    /// Who did what.
    pub audit: AuditConfig,
    /// The log.
    pub log: LogConfig,
}

/// How clients reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Transport {
    /// Over the network, at `/mcp`.
    #[default]
    Http,
    /// One client, which started this process and talks to it over standard input and output.
    Stdio,
}

/// What `${NAME}` means when the variable is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EnvMissing {
    /// A mistake: the server does not start.
    #[default]
    Error,
    /// Nothing at all, as files written for other products may expect.
    Empty,
}
