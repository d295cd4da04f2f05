//! Configured sources, and the tools built from them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::builder::{BuiltSource, SourceBuilder};
use super::command::CommandSourceConfig;
use super::credentials::AuthConfig;
use super::http::HttpSourceConfig;
use super::kind::SourceKind;
use super::openapi::OpenApiSourceConfig;
use super::parts::SourceParts;
use super::per_user::PerUserConfig;
use super::wasm::ComponentSourceConfig;
use crate::net;

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
    /// Each kind with its settings, if the source has them.
    fn kinds(&self) -> [(&'static str, Option<&dyn SourceKind>); 4] {
        [
            ("http", kind(self.http.as_ref())),
            ("openapi", kind(self.openapi.as_ref())),
            ("command", kind(self.command.as_ref())),
            ("component", kind(self.component.as_ref())),
        ]
    }

    fn set_kinds(&self) -> impl Iterator<Item = &dyn SourceKind> {
        self.kinds().into_iter().filter_map(|(_, kind)| kind)
    }

    /// Path of the file that describes its tools, if it is local.
    pub fn file(&self) -> Option<PathBuf> {
        self.set_kinds().find_map(SourceKind::file)
    }

    /// Returns true if it exchanges the access tokens of callers.
    #[doc(hidden)]
    pub fn exchanges_tokens(&self) -> bool {
        let mut all = self.set_kinds().filter_map(SourceKind::auth);
        all.any(AuthConfig::exchanges_tokens)
    }

    /// Returns true if each user logs in to its API.
    #[doc(hidden)]
    pub fn has_user_logins(&self) -> bool {
        let mut all = self.set_kinds().filter_map(SourceKind::auth);
        all.any(AuthConfig::has_user_logins)
    }

    /// Returns the settings of the logins of users, if each user logs in to its API.
    #[doc(hidden)]
    pub fn user_logins(&self) -> Option<&PerUserConfig> {
        let mut all = self.set_kinds().filter_map(SourceKind::auth);
        all.find_map(|auth| auth.per_user.as_ref())
    }

    /// Returns true if a document or a component describes its tools, which may change without the configuration.
    pub fn is_a_document(&self) -> bool {
        self.set_kinds().any(SourceKind::is_document)
    }

    /// Returns true if a document that has to be fetched describes its tools.
    #[doc(hidden)]
    pub fn is_a_remote_document(&self) -> bool {
        self.set_kinds().any(SourceKind::is_remote_document)
    }

    /// Has the only kind of the source add its tools.
    async fn collect(&self, builder: &mut SourceBuilder) {
        let set: Vec<_> = self.set_kinds().collect();
        match *set {
            [kind] => kind.collect(builder).await,
            ref other => {
                let names: Vec<_> = self.kinds().iter().map(|(name, _)| *name).collect();
                let (last, rest) = names.split_last().unwrap_or((&"", &[]));
                let rest = rest.join(", ");
                let problem = if other.is_empty() {
                    format!("it has no kind; set {rest} or {last}")
                } else {
                    format!("it has several kinds; write one source for each of {rest} and {last}")
                };
                builder.refuse("", problem);
            }
        }
    }
}

fn kind<K: SourceKind>(config: Option<&K>) -> Option<&dyn SourceKind> {
    config.map(|config| config as &dyn SourceKind)
}

/// Returns the tools of some sources, selected by their indices in the list. Documents may have to be fetched.
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
            let mut before = sources[..position].iter();
            let twin = before.position(|other| other.name == config.name);
            let twin = twin.filter(|_| !config.name.is_empty());
            let mut one = SourceBuilder::new(&config.name, &place, config.prefix.as_deref());
            one.parts = parts.clone();
            if let Some(twin) = twin {
                let problem = format!("sources[{twin}] has the same name; choose another one");
                one.refuse("name", problem);
            } else {
                config.collect(&mut one).await;
            }
            one.finish()
        });
    futures_util::future::join_all(each).await
}
