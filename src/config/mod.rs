//! What can be set, from all rooms, composed: file < environment < flags.

mod check;
mod load;

use serde::Deserialize;

pub use check::Finding;
pub use load::{ConfigError, Flags};

use crate::limit::LimitConfig;
use crate::seal::SealConfig;
use crate::server::ServerConfig;
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How clients reach the server. Default: `http`.
    pub transport: Transport,
    /// Names of built-in toolsets to serve. Default: for the program the demo toolset, for an application none.
    #[serde(deserialize_with = "crate::environment::list")]
    pub toolsets: Vec<String>,
    /// The server itself.
    pub server: ServerConfig,
    /// HTTP.
    pub http: HttpConfig,
    /// Standard input and output.
    pub stdio: StdioConfig,
    /// Keys for session ids and cursors.
    pub seal: SealConfig,
    /// How often, and how many at once.
    pub limits: LimitConfig,
}

/// How clients reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Transport {
    /// Over the network, at `/mcp`.
    #[default]
    Http,
    /// One client, which started this process and talks to it over standard input and output.
    Stdio,
}
