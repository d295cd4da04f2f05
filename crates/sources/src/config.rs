//! Configured sources, and the tools built from them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::client_stats::ClientStatsHandle;
use super::command::{self, CommandSourceConfig};
use super::credentials::AuthConfig;
use super::http::{self, HttpSourceConfig};
use super::identity::AssertionSigner;
use super::openapi::{self, OpenApiSourceConfig};
use super::per_user::Accounts;
use super::tokens::Tokens;
use super::wasm::{self, ComponentSourceConfig};
use crate::catalog::{RejectedItem, SourceItems};
use crate::net;
use crate::telemetry::Metrics;

/// Tools that need no code. Each source is of one kind: `http`, `openapi`, `command` or `component`.
///
/// ```yaml
/// sources:
///   - name: weather
///     http:
///       base_url: https://api.example.com/v1
///       tools:
///         - name: forecast
///           description: The weather of the next days.
///           arguments:
///             city: { description: "Name of a city" }
///           url: /forecast/{{ city }}
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Name of the source in logs and in the server's health.
    pub name: String,
    /// Prefix for the names of its tools. Default: the source's name and two underscores for `openapi` and
    /// `component`, else none.
    pub prefix: Option<String>,
    /// Requests to an HTTP API, each described as a tool.
    pub http: Option<HttpSourceConfig>,
    /// Operations of an OpenAPI document, each imported as a tool.
    pub openapi: Option<OpenApiSourceConfig>,
    /// Command lines, each described as a tool.
    pub command: Option<CommandSourceConfig>,
    /// Functions of a WebAssembly component, each imported as a tool. Needs a program built with the feature `wasm`.
    pub component: Option<ComponentSourceConfig>,
}

impl SourceConfig {
    /// Path of the file that describes its tools, if it is local.
    pub fn file(&self) -> Option<PathBuf> {
        match (&self.openapi, &self.component) {
            (Some(openapi), _) if !openapi.document.contains("://") => {
                Some(PathBuf::from(&openapi.document))
            }
            (_, Some(component)) => Some(component.path.clone()),
            _ => None,
        }
    }

    /// Returns true if it exchanges the access tokens of callers.
    #[doc(hidden)]
    pub fn exchanges_tokens(&self) -> bool {
        let http = self.http.as_ref().map(|http| &http.auth);
        let openapi = self.openapi.as_ref().map(|openapi| &openapi.auth);
        let mut all = http.into_iter().chain(openapi);
        all.any(AuthConfig::exchanges_tokens)
    }

    /// Returns true if each user logs in to its API.
    #[doc(hidden)]
    pub fn has_user_logins(&self) -> bool {
        let http = self.http.as_ref().map(|http| &http.auth);
        let openapi = self.openapi.as_ref().map(|openapi| &openapi.auth);
        let mut all = http.into_iter().chain(openapi);
        all.any(AuthConfig::has_user_logins)
    }

    /// Returns true if a document or a component describes its tools, which may change without the configuration.
    pub fn is_a_document(&self) -> bool {
        self.openapi.is_some() || self.component.is_some()
    }
}

/// Limits for requests to other servers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeLimits {
    /// Maximum time of one call, in seconds, retries included; from 1 to 86400.
    pub timeout_seconds: u64,
    /// Maximum response size, in bytes, after decompression.
    pub response_bytes: usize,
    /// Maximum number of retries of a request.
    ///
    /// A request is retried if no part of it was sent, or if it is idempotent.
    pub retries: u32,
    /// Maximum number of redirects to follow.
    pub redirects: usize,
    /// Concurrency limit and circuit breaker for calls to the other server.
    pub bulkhead: crate::net::BulkheadConfig,
}

/// Maximum of all timeouts, in seconds: a day.
pub const TIMEOUT_SECONDS_MAX: u64 = 86_400;
/// Time by which the server's call timeout exceeds the tool's own, so that the tool can report what timed out.
pub const GRACE: Duration = Duration::from_secs(2);

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self {
            timeout_seconds: 30,
            response_bytes: 8 * 1024 * 1024,
            retries: 2,
            redirects: 3,
            bulkhead: crate::net::BulkheadConfig::default(),
        }
    }
}

impl ExchangeLimits {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX))
    }
}

/// Tools built from one configured source, with the source's state.
#[derive(Clone, Debug)]
pub struct BuiltSource {
    pub name: String,
    pub offered: SourceItems,
    pub gauges: Vec<ClientStatsHandle>,
    /// True if a remote part of the source was unreachable and may become available later.
    pub is_awaited: bool,
}

impl BuiltSource {
    /// Falls back to the `known` state if this one is unavailable. A document that is broken while being edited
    /// removes no tools, and neither does an unreachable server.
    pub fn or_stay(self, known: &Self) -> Self {
        let has_nothing = self.offered.tools.is_empty() && !self.offered.refused.is_empty();
        if !has_nothing || known.offered.tools.is_empty() {
            return self;
        }
        tracing::warn!(
            source = self.name,
            "it cannot be loaded now; its previous tools stay listed"
        );
        let mut stays = known.clone();
        stays.offered.refused = self.offered.refused;
        stays.is_awaited = self.is_awaited;
        stays
    }
}

/// Parts of the server that sources use.
#[derive(Clone, Debug, Default)]
pub struct SourceParts {
    /// Token store for configured refresh tokens and for logins.
    pub tokens: Tokens,
    /// Signer of assertions about callers.
    pub signer: Option<AssertionSigner>,
    /// Logins of users at the APIs of sources.
    pub accounts: Accounts,
    pub metrics: Metrics,
    /// Memory limit of the process, in bytes; 0 for no limit.
    pub memory_bytes: u64,
}

/// Returns the tools of each configured source by name. Documents may have to be fetched.
///
/// # Errors
///
/// Reading a source panicked.
pub async fn offered(
    sources: &[SourceConfig],
    parts: &SourceParts,
) -> std::io::Result<Vec<BuiltSource>> {
    let all: Vec<usize> = (0..sources.len()).collect();
    offered_at(sources, &all, parts).await
}

/// Returns the tools of some sources, selected by their indices in the list.
///
/// # Errors
///
/// Reading a source panicked.
pub async fn offered_at(
    sources: &[SourceConfig],
    places: &[usize],
    parts: &SourceParts,
) -> std::io::Result<Vec<BuiltSource>> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (sources, places, parts) = (sources.to_vec(), places.to_vec(), parts.clone());
    // Parsing documents takes time, and other tasks wait for this thread.
    let collecting = net::spawn_blocking(move || {
        Handle::current().block_on(collect_all(&sources, &places, &parts))
    });
    collecting
        .await
        .map_err(|_| std::io::Error::other("loading the sources ended unexpectedly"))
}

async fn collect_all(
    sources: &[SourceConfig],
    places: &[usize],
    parts: &SourceParts,
) -> Vec<BuiltSource> {
    let each = sources
        .iter()
        .enumerate()
        .filter(|(position, _)| places.contains(position))
        .map(|(position, config)| async move {
            let place = format!("sources[{position}]");
            let name = match &*config.name {
                "" => place.clone(),
                name => name.to_owned(),
            };
            let mut before = sources[..position].iter();
            let twin = before.position(|other| other.name == config.name);
            let twin = twin.filter(|_| !config.name.is_empty());
            let mut one = SourceBuilder::new(&name, &place, config.prefix.as_deref());
            one.parts = parts.clone();
            if let Some(twin) = twin {
                let problem = format!("sources[{twin}] has the same name; choose another one");
                one.refuse("name", problem);
            } else {
                one.collect(config).await;
            }
            BuiltSource {
                name,
                offered: one.offered,
                gauges: one.gauges,
                is_awaited: one.is_awaited,
            }
        });
    futures_util::future::join_all(each).await
}

/// Maximum number of reported rejections for each source.
const REFUSED_MAX: usize = 5_000;

/// Builder for the tools of one source.
pub(super) struct SourceBuilder {
    pub(super) source: String,
    place: String,
    prefix: Option<String>,
    pub(super) offered: SourceItems,
    gauges: Vec<ClientStatsHandle>,
    is_awaited: bool,
    pub(super) parts: SourceParts,
}

impl SourceBuilder {
    pub(super) fn new(source: &str, place: &str, prefix: Option<&str>) -> Self {
        Self {
            source: source.to_owned(),
            place: place.to_owned(),
            prefix: prefix.map(str::to_owned),
            offered: SourceItems::default(),
            gauges: Vec::new(),
            is_awaited: false,
            parts: SourceParts::default(),
        }
    }

    async fn collect(&mut self, config: &SourceConfig) {
        let SourceConfig {
            http,
            openapi,
            command,
            component,
            ..
        } = config;
        match (http, openapi, command, component) {
            (Some(http), None, None, None) => http::collect(http, self),
            (None, Some(openapi), None, None) => {
                openapi::collect(openapi, &config.name, self).await;
            }
            (None, None, Some(command), None) => command::collect(command, self),
            (None, None, None, Some(component)) => wasm::collect(component, &config.name, self),
            (None, None, None, None) => self.refuse(
                "",
                "it has no kind; set http, openapi, command or component",
            ),
            _ => self.refuse(
                "",
                "it has several kinds; write one source for each of http, openapi, command and component",
            ),
        }
    }

    /// Returns the prefix for the names of the source's tools.
    pub(super) fn prefix(&self, default: &str) -> String {
        self.prefix.clone().unwrap_or_else(|| default.to_owned())
    }

    pub(super) fn offer(&mut self, tool: impl crate::catalog::Tool) {
        self.offered.tools.push(Arc::new(tool));
    }

    /// Registers statistics to export.
    pub(super) fn count(&mut self, gauge: ClientStatsHandle) {
        self.gauges.push(gauge);
    }

    /// Rejects the item at a setting below the source.
    pub(super) fn refuse(&mut self, setting: &str, problem: impl Into<String>) {
        let place = match setting {
            "" => self.place.clone(),
            setting => format!("{}.{setting}", self.place),
        };
        self.refuse_at(place, problem);
    }

    /// Rejects the item at a setting for now; it is retried later.
    pub(super) fn wait_for(&mut self, setting: &str, problem: &str) {
        self.is_awaited = true;
        self.refuse(setting, format!("{problem}; it is asked for again"));
    }

    /// Rejects an item that has no setting of its own. Rejections beyond the maximum are summarized once.
    pub(super) fn refuse_at(&mut self, place: impl Into<String>, problem: impl Into<String>) {
        let (place, problem) = match self.offered.refused.len() {
            count if count < REFUSED_MAX => (place.into(), problem.into()),
            REFUSED_MAX => (
                self.place.clone(),
                "more tools are rejected than listed here".to_owned(),
            ),
            _ => return,
        };
        let refused = RejectedItem::new(&self.source, place, problem);
        self.offered.refused.push(refused);
    }
}
