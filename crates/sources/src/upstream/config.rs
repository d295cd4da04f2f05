//! Configuration of upstream servers, in the format that other products use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::client::{Lifecycle, TIMEOUT_MAX, Target};
use crate::environment::{Conflicts, Secret};
use crate::net::{
    Client as HttpClient, Deadlines, Guard, MemoryBudget, Program, is_connection_header,
};
use crate::source::client_tls::ClientTlsConfig;
use crate::source::credentials::{AuthConfig, Credentials, Means};
use crate::source::identity::{AssertionSigner, Forward, ForwardConfig, names_authorization};
use crate::source::parts::SourceParts;
use crate::source::pattern::matches;
#[cfg(feature = "cli")]
use crate::source::tokens::Tokens;

/// Another MCP server whose tools, resources and prompts are served too: a program (`command`), or a URL. Entries of the
/// `mcpServers` section of other products' files can be used, without settings that are not listed here.
///
/// ```yaml
/// upstreams:
///   time: { command: mcp-server-time }
///   weather: { url: "https://weather.example.com/mcp", headers: { Authorization: "Bearer ${WEATHER_TOKEN}" } }
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// The program to start: a path, or a name that is looked up in `PATH`. No shell is involved.
    #[schemars(extend("x-path" = "program"))]
    pub command: Option<String>,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Environment variables of the program, in addition to the few that every program needs. It inherits no others
    /// from this process.
    pub env: BTreeMap<String, Secret>,
    /// Working directory of the program. Default: that of this process.
    #[schemars(extend("x-path" = "file"))]
    pub cwd: Option<PathBuf>,
    /// URL of the server's endpoint, for a server reached over HTTP.
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    pub url: Option<String>,
    /// Protocol lifecycle to connect with.
    ///
    /// `auto` probes with `server/discover` (2026-07-28) and falls back to `initialize`. `modern` uses 2026-07-28
    /// only. `legacy` uses `initialize` only, for servers that fail on the probe.
    pub protocol: Lifecycle,
    /// Credentials for the server, over HTTP, if a fixed header is not enough.
    pub auth: AuthConfig,
    /// Headers of each request to the server. Nothing that the caller sent is ever forwarded.
    pub headers: BTreeMap<String, Secret>,
    /// TLS of the connections to the server, over HTTP.
    pub tls: ClientTlsConfig,
    /// Facts about the caller to send with each request to the server, over HTTP. Each caller then has a connection of
    /// its own.
    pub forward: ForwardConfig,
    /// Credentials for requesting the listing, if those of `auth` are of the caller. Default: none.
    pub listing_auth: AuthConfig,
    /// Maximum number of connections if each caller has one of its own; from 1 to 100000. The one that has been unused
    /// for longest is closed for another caller.
    pub callers_max: usize,
    /// Leave the server out.
    pub disabled: bool,
    /// Connect timeout, in seconds, including the start of a program.
    pub connect_seconds: u64,
    /// Timeout of a call, in seconds. Default: `upstreams_timeout_seconds`.
    pub timeout_seconds: Option<u64>,
    /// Maximum size of one message, in bytes, 65536 to 268435456; a request with a larger response fails.
    ///
    /// All lists together can have four times as many bytes as text, and eight times as many in memory.
    pub message_bytes: usize,
    /// Concurrency limit and circuit breaker for calls to the server. Other servers are not affected.
    pub bulkhead: crate::net::BulkheadConfig,
    /// Prefix for the names of its tools and prompts; `""` for none. Default: its name and two underscores, subject
    /// to `upstreams_separator` and `upstreams_names`.
    pub prefix: Option<String>,
    /// Tools to offer; all others are left out. `*` matches any text. Default: all.
    #[serde(alias = "includeTools", deserialize_with = "crate::environment::list")]
    pub tools: Vec<String>,
    /// Tools to leave out, as patterns like those of `tools`.
    #[serde(
        alias = "excludeTools",
        alias = "disabledTools",
        deserialize_with = "crate::environment::list"
    )]
    pub exclude_tools: Vec<String>,
    /// Idle time, in seconds, after which the server is disconnected and its program ended. The next call connects
    /// again. 0 for never. Default: 60 to 300, increasing with use.
    pub idle_seconds: Option<u64>,
    /// Handling of an unreachable server.
    ///
    /// `keep` lists its items as far as they are known or cached. `hide` removes them until the server is back.
    /// `error` prevents this server from starting without it.
    pub on_down: OnDown,
    /// Reaction to a tool whose definition differs from the pinned one.
    ///
    /// `warn` logs it. `quarantine` removes the tool until its definition is the former one again, or until the
    /// cached data is removed. `allow` does nothing.
    pub on_change: OnChange,
    /// Accepted for compatibility with other products: `stdio`, `http` or `sse`. The transport depends only on
    /// whether there is a command or a URL.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Accepted for compatibility with other products, as `type`.
    #[serde(alias = "transportType")]
    pub transport: Option<String>,
    /// Accepted for compatibility with other products, without effect.
    #[serde(rename = "autoApprove")]
    pub auto_approve: Vec<String>,
    /// Accepted for compatibility with other products, without effect.
    #[serde(rename = "alwaysAllow", alias = "autoAllow")]
    pub always_allow: Vec<String>,
    /// Accepted for compatibility with other products: the purpose of the server.
    pub description: Option<String>,
}

impl UpstreamConfig {
    /// Reports the settings of the server `name` that cannot be used.
    pub fn validate(&self, name: &str, conflicts: &mut Conflicts) {
        if !(64 * 1024..=256 * 1024 * 1024).contains(&self.message_bytes) {
            conflicts.add(
                format!("upstreams.{name}.message_bytes is {}", self.message_bytes),
                "set it to 65536 to 268435456",
            );
        }
        if !(1..=100_000).contains(&self.callers_max) {
            conflicts.add(
                format!("upstreams.{name}.callers_max is {}", self.callers_max),
                "set 1 to 100000",
            );
        }
    }
}

/// Handling of an unreachable upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnDown {
    /// Keep listing the tools that are known or cached. Their calls fail with an error that says that the upstream is
    /// unreachable.
    #[default]
    Keep,
    /// Remove them from lists until the upstream is back.
    Hide,
    /// Do not start the server. Once it has started, they stay listed.
    Error,
}

/// Reaction to a tool whose definition has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnChange {
    /// Log the change.
    #[default]
    Warn,
    /// Remove the tool.
    Quarantine,
    /// Do nothing.
    Allow,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            url: None,
            protocol: Lifecycle::default(),
            auth: AuthConfig::default(),
            headers: BTreeMap::new(),
            tls: ClientTlsConfig::default(),
            forward: ForwardConfig::default(),
            listing_auth: AuthConfig::default(),
            callers_max: 256,
            disabled: false,
            connect_seconds: 30,
            timeout_seconds: None,
            message_bytes: 8 * 1024 * 1024,
            bulkhead: crate::net::BulkheadConfig::default(),
            prefix: None,
            tools: Vec::new(),
            exclude_tools: Vec::new(),
            idle_seconds: None,
            on_down: OnDown::default(),
            on_change: OnChange::default(),
            kind: None,
            transport: None,
            auto_approve: Vec::new(),
            always_allow: Vec::new(),
            description: None,
        }
    }
}

/// Error in the configuration of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstreams.{name}{place}: {problem}")]
pub struct UpstreamError {
    name: String,
    place: &'static str,
    problem: String,
}

impl UpstreamError {
    /// Returns the problem without the name of the setting.
    #[doc(hidden)]
    pub fn into_problem(self) -> String {
        self.problem
    }

    /// Creates an error of the setting at `place` of an upstream; all of its settings if that is empty.
    fn at(name: &str, place: &'static str, problem: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            place,
            problem: problem.into(),
        }
    }

    pub(super) fn down(name: &str, problem: &str) -> Self {
        let problem = format!("it cannot be reached, and on_down is error: {problem}");
        Self::at(name, "", problem)
    }
}

/// Time that a response may additionally take to begin, while the user responds to a client request.
const ASKS: Duration = Duration::from_secs(300);
/// Default timeout of a call, in seconds.
pub const TIMEOUT_SECONDS: u64 = 120;

impl UpstreamConfig {
    /// Returns the timeout of a call.
    pub(super) fn timeout(&self) -> Duration {
        let seconds = self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        Duration::from_secs(seconds.max(1)).min(TIMEOUT_MAX)
    }

    /// Returns the server's target.
    ///
    /// # Errors
    ///
    /// It has neither a command nor a URL, or both, or one that is not valid.
    pub fn target(&self, name: &str) -> Result<Target, UpstreamError> {
        self.target_within(name, &MemoryBudget::default())
    }

    /// Returns the server's target like [`target`](Self::target), with the memory for large responses.
    pub(super) fn target_within(
        &self,
        name: &str,
        memory: &MemoryBudget,
    ) -> Result<Target, UpstreamError> {
        let wrong = |place, problem: String| UpstreamError::at(name, place, problem);
        match (self.command.as_deref(), self.url.as_deref()) {
            (Some(_), None) if self.tls.is_some() => Err(wrong(
                ".tls",
                "a program has no TLS connection; remove it, or set url instead of command"
                    .to_owned(),
            )),
            (Some(command), None) if !command.trim().is_empty() => {
                let mut program = Program::new(command);
                program.arguments = self.args.iter().map(Into::into).collect();
                for (variable, value) in &self.env {
                    program = program.variable(variable, value.expose());
                }
                program.folder = self.cwd.clone();
                Ok(Target::Program(program))
            }
            (None, Some(url)) => {
                // `localhost:3000/mcp` is a URL with the scheme `localhost`.
                let url: Option<Url> = url.parse().ok().filter(Url::has_host);
                let url = url.ok_or_else(|| {
                    wrong(
                        ".url",
                        "it is not a valid URL; write it whole: https://host/path, or http://host:port/path"
                            .to_owned(),
                    )
                })?;
                let guard = Guard::public().trust(&url);
                guard
                    .check_url(&url)
                    .map_err(|error| wrong(".url", error.to_string()))?;
                let deadlines = Deadlines {
                    total: None,
                    // The timeout of each request is shorter, unless its client request is open.
                    first_byte: self.timeout().saturating_add(ASKS),
                    idle: self.timeout().max(Duration::from_secs(60)),
                    ..Deadlines::default()
                };
                let builder = HttpClient::builder(guard)
                    .deadlines(deadlines)
                    .memory(memory.clone());
                let client = self
                    .tls
                    .apply_for(std::slice::from_ref(&url), builder)
                    .map_err(|problem| wrong(".tls", problem))?
                    .build()
                    .map_err(|error| wrong("", error.to_string()))?;
                Ok(Target::Url {
                    url,
                    headers: self
                        .header_map(name)
                        .map_err(|problem| wrong(".headers", problem))?,
                    client,
                })
            }
            (Some(_), Some(_)) => Err(wrong(
                "",
                "it has a command and a URL; leave one of them out".to_owned(),
            )),
            _ => Err(wrong(
                "",
                "it needs a command to start, or the url of its endpoint".to_owned(),
            )),
        }
    }

    /// Returns true if a tool is selected to be offered.
    pub(super) fn chooses(&self, tool: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        (self.tools.is_empty() || any(&self.tools)) && !any(&self.exclude_tools)
    }

    /// Returns the entries that select or leave out none of these tools, each with its setting.
    pub(super) fn unmatched(&self, tools: &[Value]) -> Vec<(&'static str, &str)> {
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        let names: Vec<&str> = names.collect();
        let lists = [
            ("tools", &self.tools),
            ("exclude_tools", &self.exclude_tools),
        ];
        let entries = lists.into_iter().flat_map(|(setting, entries)| {
            entries.iter().map(move |entry| (setting, entry.as_str()))
        });
        let is_unmatched =
            |entry: &str| entry != "*" && !names.iter().any(|name| matches(entry, name));
        entries.filter(|(_, entry)| is_unmatched(entry)).collect()
    }

    /// Returns the credentials for requesting the listing, if there are other ones than for calls.
    ///
    /// # Errors
    ///
    /// As [`credentials_at`](Self::credentials_at), or they would not be used.
    pub(super) fn listing_credentials(
        &self,
        name: &str,
        parts: &SourceParts,
    ) -> Result<Option<Arc<Credentials>>, UpstreamError> {
        const PLACE: &str = ".listing_auth";
        let wrong = |problem| UpstreamError::at(name, PLACE, problem);
        if self.listing_auth.is_some() && !self.auth.is_of_caller() {
            return Err(wrong(
                "it has no effect, because auth is the same for all callers; remove it",
            ));
        }
        if self.listing_auth.is_of_caller() {
            return Err(wrong(
                "the listing is requested without a caller; use another method",
            ));
        }
        self.credentials_at(name, PLACE, &self.listing_auth, parts)
    }

    /// Returns the credentials of the setting at `place`, if any.
    ///
    /// # Errors
    ///
    /// There is more than one authentication method, or one that is not valid.
    pub(super) fn credentials_at(
        &self,
        name: &str,
        place: &'static str,
        auth: &AuthConfig,
        parts: &SourceParts,
    ) -> Result<Option<Arc<Credentials>>, UpstreamError> {
        let wrong = |problem: String| UpstreamError::at(name, place, problem);
        let url: Option<Url> = self.url.as_deref().and_then(|url| url.parse().ok());
        let means = Means {
            source: name,
            server: url.as_ref(),
            is_mcp: true,
            parts,
        };
        match Credentials::new(auth, means).map_err(wrong)? {
            Credentials::None => Ok(None),
            _ if self.url.is_none() => Err(wrong("it is for servers with a url".to_owned())),
            credentials => Ok(Some(Arc::new(credentials))),
        }
    }

    /// Returns the facts about the caller that requests carry.
    ///
    /// # Errors
    ///
    /// A setting is not valid, or the server is a program.
    pub(super) fn forwarded(
        &self,
        name: &str,
        signer: Option<&AssertionSigner>,
    ) -> Result<Forward, UpstreamError> {
        let wrong = |problem: String| UpstreamError::at(name, "", problem);
        let has_credentials = self.auth.is_some() || names_authorization(self.headers.keys());
        let forward = Forward::new(&self.forward, signer, has_credentials);
        let forward =
            forward.map_err(|(setting, problem)| wrong(format!("{setting}: {problem}")))?;
        if self.url.is_none() && !forward.is_empty() {
            return Err(wrong("forward: it is for servers with a url".to_owned()));
        }
        Ok(forward)
    }

    /// Returns the configured credentials for clients of other modules.
    ///
    /// # Errors
    ///
    /// The target is not valid (see [`target`](Self::target)), or there is more than one authentication method, or
    /// one that is not valid.
    #[cfg(feature = "cli")]
    pub fn proof(
        &self,
        name: &str,
        tokens: &Tokens,
    ) -> Result<Option<Arc<dyn crate::client::Credentials>>, UpstreamError> {
        if self.auth.is_of_caller() {
            let problem = "it is used with the rights of callers, and a command has none";
            return Err(UpstreamError::at(name, ".auth", problem));
        }
        let parts = SourceParts {
            tokens: tokens.clone(),
            ..SourceParts::default()
        };
        let credentials = self.credentials_at(name, ".auth", &self.auth, &parts)?;
        Ok(credentials.map(|credentials| credentials as Arc<dyn crate::client::Credentials>))
    }

    /// Returns the headers of all requests. Files of other clients can have names that the client sets itself; those are left
    /// out.
    fn header_map(&self, upstream: &str) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let key = HeaderName::try_from(name.as_str())
                .map_err(|_| format!("{name:?} is not a valid header name"))?;
            if is_connection_header(&key) {
                tracing::warn!(
                    upstream,
                    header = name.as_str(),
                    "the upstream's headers contain a name that the client sets itself; the entry is left out"
                );
                continue;
            }
            let mut value = HeaderValue::from_str(value.expose().trim()).map_err(|_| {
                format!("the value of {name} has characters that no header can have")
            })?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests;
