//! What the toolset `fetch` may reach, and how it behaves there.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::EgressConfig;

/// The toolset `fetch`: pages of the web, as Markdown. It reaches what is public, and nothing on this machine or in
/// private networks unless `egress` says so.
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
    /// What may be reached. It is asked for each redirect and each `robots.txt` too, and every address that a name has is
    /// looked at.
    pub egress: EgressConfig,
    /// Whether the tool, which a model calls, leaves alone what a site's `robots.txt` asks programs to leave alone. The
    /// prompt, which a person chooses, never asks for it. Default: true.
    pub robots: bool,
    /// What the tool sends as `User-Agent`. Its first word is the name that `robots.txt` knows it by. Default:
    /// `ModelContextProtocol/1.0 (Autonomous; longshore)`.
    pub user_agent_autonomous: String,
    /// What the prompt sends as `User-Agent`. Default: `ModelContextProtocol/1.0 (User-Specified; longshore)`.
    pub user_agent_user: String,
    /// How long one call may take, in seconds, `robots.txt` and redirects included. Default: 20.
    pub timeout_seconds: u64,
    /// How many bytes a page may have, after inflating. Default: 5242880, 5 MiB.
    pub response_bytes: usize,
    /// How many redirects are followed. Default: 5.
    pub redirects: usize,
    /// How many pages may be fetched at once; further calls wait for their turn. Default: 16.
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

impl FetchConfig {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.clamp(1, 3600))
    }
}
