//! Configuration of the toolset `fetch`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::EgressConfig;

/// The toolset `fetch`: web pages as Markdown. It reaches only public addresses, and nothing on this machine or in
/// private networks unless `egress` allows it.
///
/// ```yaml
/// toolsets: [fetch]
/// builtin:
///   fetch:
///     egress:
///       hosts: ["*.example.com"]
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FetchConfig {
    /// Hosts that can be reached. The rules also apply to each redirect, each `robots.txt`, and every address that a
    /// name resolves to.
    pub egress: EgressConfig,
    /// Respect `robots.txt` in the tool, which a model calls. The prompt, which a user chooses, never requests it.
    pub robots: bool,
    /// `User-Agent` of the tool. Its first word is the name that `robots.txt` is matched against.
    pub user_agent_autonomous: String,
    /// `User-Agent` of the prompt.
    pub user_agent_user: String,
    /// Timeout of one call, in seconds, including `robots.txt` and redirects.
    pub timeout_seconds: u64,
    /// Maximum size of a page, in bytes, after decompression.
    pub response_bytes: usize,
    /// Maximum number of redirects to follow.
    pub redirects: usize,
    /// Maximum number of concurrent fetches; further calls wait in a queue.
    pub concurrency: usize,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            egress: EgressConfig::default(),
            robots: true,
            user_agent_autonomous: "ModelContextProtocol/1.0 (Autonomous; longshore)".to_owned(),
            user_agent_user: "ModelContextProtocol/1.0 (User-Specified; longshore)".to_owned(),
            timeout_seconds: 20,
            response_bytes: 5 * 1024 * 1024,
            redirects: 5,
            concurrency: 16,
        }
    }
}
