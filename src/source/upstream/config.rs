//! Upstream servers as they are configured, in the form that other products have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::client::{Lifecycle, Target};
use crate::environment::Secret;
use crate::net::{Client as HttpClient, Deadlines, Guard, Program};
use crate::source::credentials::{AuthConfig, Credentials};
use crate::source::pattern::matches;
use crate::source::tokens::Tokens;

/// Another MCP server whose tools, resources and prompts are served too: a program (`command`), or a URL. The
/// `mcpServers` of other products' files can be used as they are.
///
/// ```yaml
/// upstreams:
///   time: { command: mcp-server-time }
///   weather: { url: "https://weather.example.com/mcp", headers: { Authorization: "Bearer ${WEATHER_TOKEN}" } }
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// The program to start: a path, or a name that is looked up in `PATH`. It never goes through a shell.
    #[schemars(extend("x-path" = "program"))]
    pub command: Option<String>,
    /// Its arguments, one for each.
    pub args: Vec<String>,
    /// Variables of its environment, besides the few that every program needs. It gets no others of this process.
    pub env: BTreeMap<String, Secret>,
    /// The folder that it runs in. Default: where this process does.
    #[schemars(extend("x-path" = "file"))]
    pub cwd: Option<PathBuf>,
    /// The endpoint of a server that is reached over HTTP.
    #[serde(alias = "serverUrl")]
    pub url: Option<String>,
    /// Protocol era to connect with: `auto` probes with `server/discover` (2026-07-28) and falls back to `initialize`;
    /// `modern` uses 2026-07-28 only; `legacy` uses `initialize` only, for servers that fail on the probe. Default: `auto`.
    pub protocol: Lifecycle,
    /// How to prove oneself to it, where a fixed header is not enough: over HTTP.
    pub auth: AuthConfig,
    /// Headers of each request to it. Nothing of the caller's is ever sent to it.
    pub headers: BTreeMap<String, Secret>,
    /// Whether it is left out. Default: false.
    pub disabled: bool,
    /// How long connecting to it may take, in seconds, starting a program included. Default: 30.
    pub connect_seconds: u64,
    /// How long a call to it may take, in seconds. Default: `upstreams_timeout_seconds`.
    pub timeout_seconds: Option<u64>,
    /// Maximum size of one message, in bytes, 65536 to 268435456; a request with a larger response fails. All lists together
    /// may have four times as many bytes as text, and eight times as many in memory. Default: 8388608, 8 MiB.
    pub message_bytes: usize,
    /// How many calls to it may be under way at once, and when it counts as down. Others are not affected.
    pub bulkhead: crate::net::BulkheadConfig,
    /// What stands before the names of what it offers; `""` for nothing. Default: its own name and two underscores, as
    /// `upstreams_separator` and `upstreams_names` say.
    pub prefix: Option<String>,
    /// Tools to offer, and no others; `*` stands for any text. Default: all.
    #[serde(deserialize_with = "crate::environment::list")]
    pub tools: Vec<String>,
    /// Tools not to offer, written alike. Default: none.
    #[serde(deserialize_with = "crate::environment::list")]
    pub exclude_tools: Vec<String>,
    /// After how many seconds without a call it is disconnected, and its program ended; the next call connects again.
    /// 0 for never. Default: from 60 to 300, the longer the more it is used.
    pub idle_seconds: Option<u64>,
    /// What becomes of what it offers while it is down: `keep` it listed, as far as it is known or remembered; `hide` it
    /// until it is back; or `error`: do not start without it. Default: `keep`.
    pub on_down: OnDown,
    /// What happens when a tool that it had before is described otherwise: `warn` in the log; `quarantine`: the tool is
    /// not offered until it is what it was, or until what is remembered is removed; `allow`. Default: `warn`.
    pub on_change: OnChange,
    /// Of other products; `stdio`, `http` or `sse`. What counts is whether there is a command or a URL.
    #[serde(rename = "type", alias = "transport", alias = "transportType")]
    pub kind: Option<String>,
    /// Of other products, without a meaning here.
    #[serde(alias = "alwaysAllow", alias = "autoAllow")]
    #[serde(rename = "autoApprove")]
    pub auto_approve: Vec<String>,
    /// Of other products: what it is for.
    pub description: Option<String>,
}

/// What becomes of the tools of an upstream that cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnDown {
    /// Those that are known or remembered stay listed; calls of them say that it cannot be reached.
    #[default]
    Keep,
    /// They are not listed until it is back.
    Hide,
    /// The server does not start. Once it has, it keeps them.
    Error,
}

/// What happens when a tool is described otherwise than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnChange {
    /// The log says so.
    #[default]
    Warn,
    /// The tool is not offered.
    Quarantine,
    /// Nothing.
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
            auto_approve: Vec::new(),
            description: None,
        }
    }
}

/// Why an upstream cannot be what its configuration says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstreams.{name}{place}: {problem}")]
pub struct UpstreamError {
    name: String,
    place: &'static str,
    problem: String,
}

impl UpstreamError {
    pub(super) fn down(name: &str, problem: &str) -> Self {
        Self {
            name: name.to_owned(),
            place: "",
            problem: format!("it cannot be reached, and on_down is error: {problem}"),
        }
    }

    pub(super) fn system(error: &std::io::Error) -> Self {
        Self {
            name: "*".to_owned(),
            place: "",
            problem: format!("the system refused what connections need: {error}"),
        }
    }
}

/// How long a call may take where nothing else is set, in seconds.
pub(crate) const TIMEOUT_SECONDS: u64 = 120;

impl UpstreamConfig {
    /// How long a call to it may take.
    pub(super) fn timeout(&self) -> Duration {
        let seconds = self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        Duration::from_secs(seconds.max(1))
    }

    /// Stands for all of this; secrets cannot be told from it.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Context::new(&SHA256);
        let mut take = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for text in [&self.command, &self.url].into_iter().flatten() {
            take(text);
        }
        self.args.iter().for_each(|text| take(text));
        for (name, value) in self.env.iter().chain(&self.headers) {
            take(name);
            take(value.expose());
        }
        take(
            &self
                .cwd
                .as_ref()
                .map_or_else(String::new, |cwd| cwd.display().to_string()),
        );
        if self.protocol != Lifecycle::Auto {
            take(self.protocol.as_str());
        }
        HEXLOWER.encode(hash.finish().as_ref())
    }

    /// Where it is.
    ///
    /// # Errors
    ///
    /// It has neither a command nor a URL, or both, or one that cannot be used.
    pub fn target(&self, name: &str) -> Result<Target, UpstreamError> {
        let wrong = |place, problem: String| UpstreamError {
            name: name.to_owned(),
            place,
            problem,
        };
        match (self.command.as_deref(), self.url.as_deref()) {
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
                let url: Url = url.parse().map_err(|_| {
                    wrong(".url", "it is no URL; write https://host/path".to_owned())
                })?;
                let guard = Guard::public().trust(&url);
                guard
                    .check_url(&url)
                    .map_err(|error| wrong(".url", error.to_string()))?;
                let deadlines = Deadlines {
                    total: None,
                    first_byte: self.timeout(),
                    idle: self.timeout().max(Duration::from_secs(60)),
                    ..Deadlines::default()
                };
                let client = HttpClient::builder(guard)
                    .deadlines(deadlines)
                    .build()
                    .map_err(|error| wrong("", error.to_string()))?;
                Ok(Target::Url {
                    url,
                    headers: self
                        .header_map()
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

    /// Whether a tool of its is to be offered.
    pub(super) fn chooses(&self, tool: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        (self.tools.is_empty() || any(&self.tools)) && !any(&self.exclude_tools)
    }

    /// What proves to it who calls, if there is anything.
    ///
    /// # Errors
    ///
    /// There is more than one way, or one that cannot be gone.
    pub(super) fn credentials(
        &self,
        name: &str,
        tokens: &Tokens,
    ) -> Result<Option<Arc<Credentials>>, UpstreamError> {
        let wrong = |problem| UpstreamError {
            name: name.to_owned(),
            place: ".auth",
            problem,
        };
        let url: Option<Url> = self.url.as_deref().and_then(|url| url.parse().ok());
        match Credentials::new(&self.auth, url.as_ref(), tokens).map_err(wrong)? {
            Credentials::None => Ok(None),
            _ if self.url.is_none() => Err(wrong("it is for servers with a url".to_owned())),
            credentials => Ok(Some(Arc::new(credentials))),
        }
    }

    /// The same, for clients of other rooms.
    ///
    /// # Errors
    ///
    /// As of [`target`](Self::target): there is more than one way, or one that cannot be gone.
    #[cfg(feature = "cli")]
    pub(crate) fn proof(
        &self,
        name: &str,
        tokens: &Tokens,
    ) -> Result<Option<Arc<dyn crate::client::Credentials>>, UpstreamError> {
        let credentials = self.credentials(name, tokens)?;
        Ok(credentials.map(|credentials| credentials as Arc<dyn crate::client::Credentials>))
    }

    fn header_map(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let key: HeaderName = name
                .parse()
                .map_err(|_| format!("{name:?} cannot be the name of a header"))?;
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
mod tests {
    use super::*;

    fn of(text: &str) -> UpstreamConfig {
        serde_json::from_str(text).expect("valid")
    }

    fn refused(text: &str) -> String {
        of(text).target("x").expect_err("refused").to_string()
    }

    #[test]
    fn entries_of_other_products_can_be_used_as_they_are() {
        let stdio = of(
            r#"{"type": "stdio", "command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "s3cret"}, "alwaysAllow": ["a"], "disabled": false}"#,
        );
        let Ok(Target::Program(program)) = stdio.target("x") else {
            panic!("a program");
        };
        assert_eq!(program.arguments, ["-y", "server"]);
        assert_eq!(program.environment[std::ffi::OsStr::new("TOKEN")], "s3cret");
        assert!(!format!("{stdio:?}{program:?}").contains("s3cret"));
        let http = of(
            r#"{"url": "http://localhost:1/mcp", "headers": {"Authorization": "Bearer s3cret"}}"#,
        );
        let target = http.target("x").expect("a URL");
        assert!(!format!("{http:?}{target:?}").contains("s3cret"));
    }

    #[test]
    fn what_cannot_be_is_told_with_its_place() {
        assert_eq!(
            refused("{}"),
            "upstreams.x: it needs a command to start, or the url of its endpoint"
        );
        assert_eq!(
            refused(r#"{"command": "a", "url": "http://b"}"#),
            "upstreams.x: it has a command and a URL; leave one of them out"
        );
        assert_eq!(
            refused(r#"{"url": "weather"}"#),
            "upstreams.x.url: it is no URL; write https://host/path"
        );
        assert!(refused(r#"{"url": "ftp://a/b"}"#).starts_with("upstreams.x.url: "));
        assert_eq!(
            refused(r#"{"url": "http://a/b", "headers": {"a b": "c"}}"#),
            "upstreams.x.headers: \"a b\" cannot be the name of a header"
        );
    }
}
