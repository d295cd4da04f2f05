//! What a registry of MCP servers knows of them, and how one of them is configured as an upstream.
//!
//! A registry has what anybody has published there. Nothing of it is run or trusted here: it becomes a text that somebody
//! reads before it is used.

mod entry;
mod listed;

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

pub(crate) use self::entry::{Entry, Preference, entry};
pub(crate) use self::listed::Server;
use self::listed::{Answer, List};
use crate::catalog::located;
use crate::net::{Client, Deadlines, FetchError, Guard, Outgoing};

/// Where the protocol's own registry is.
pub(crate) const OFFICIAL: &str = "https://registry.modelcontextprotocol.io/";

/// What stands for the newest version.
const LATEST: &str = "latest";
/// How long one answer may take.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
/// How long an answer may be.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// How many servers are asked for at once, and how many times.
const PAGE: usize = 100;
const PAGES_MAX: usize = 20;

/// Why a registry does not say what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    #[error("{0:?} is no URL of a registry: write one such as {OFFICIAL}")]
    Url(String),
    #[error(
        "there is no server {0:?}; names are whole, such as io.github.somebody/weather, and `search` finds them"
    )]
    NotFound(String),
    #[error("there is no version {version:?} of {name}; its newest is {newest}")]
    NoVersion {
        name: String,
        version: String,
        newest: String,
    },
    #[error("it answers with status {0}")]
    Status(StatusCode),
    #[error("what it answers is none of a registry: {0}")]
    Document(String),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("no client can be made: {0}")]
    Client(String),
}

/// A registry, by the interface of the protocol's own (v0.1).
pub(crate) struct Registry {
    root: Url,
    client: Client,
}

impl Registry {
    /// # Errors
    ///
    /// It is no URL of HTTP.
    pub(crate) fn at(url: &str) -> Result<Self, RegistryError> {
        let bad = || RegistryError::Url(url.to_owned());
        let mut root: Url = url.parse().map_err(|_| bad())?;
        if root.cannot_be_a_base() || !matches!(root.scheme(), "http" | "https") {
            return Err(bad());
        }
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", root.path()));
        }
        // Whoever asks has named it, so it may be in a private network.
        let client = Client::builder(Guard::public().trust(&root))
            .deadlines(Deadlines::total(TIMEOUT))
            .max_body(ANSWER_BYTES)
            .idle_connections(1)
            .build()
            .map_err(|error| RegistryError::Client(error.to_string()))?;
        Ok(Self { root, client })
    }

    /// Servers with a text in their names, in their newest versions; at most so many.
    pub(crate) async fn search(
        &self,
        text: &str,
        most: usize,
    ) -> Result<Vec<Server>, RegistryError> {
        let mut found = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut url = self.path(&["v0.1", "servers"])?;
            url.query_pairs_mut()
                .append_pair("search", text)
                .append_pair("version", "latest")
                .append_pair("limit", &PAGE.min(most).to_string())
                .extend_pairs(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let list: List = self.get(url, text).await?;
            found.extend(list.servers.into_iter().map(Answer::into_server));
            cursor = list.metadata.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() || most <= found.len() {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// One server, by its whole name.
    pub(crate) async fn server(&self, name: &str, version: &str) -> Result<Value, RegistryError> {
        let at = |version| self.path(&["v0.1", "servers", name, "versions", version]);
        match self.get(at(version)?, name).await {
            // A version may be missing, or the whole server.
            Err(RegistryError::NotFound(_)) if version != LATEST => {
                let newest: Value = self.get(at(LATEST)?, name).await?;
                Err(RegistryError::NoVersion {
                    name: name.to_owned(),
                    version: version.to_owned(),
                    newest: described(&newest)?.version,
                })
            }
            answer => answer,
        }
    }

    fn path(&self, parts: &[&str]) -> Result<Url, RegistryError> {
        let mut url = self.root.clone();
        url.path_segments_mut()
            .map_err(|()| RegistryError::Url(self.root.to_string()))?
            .pop_if_empty()
            .extend(parts);
        Ok(url)
    }

    async fn get<T: DeserializeOwned>(&self, url: Url, name: &str) -> Result<T, RegistryError> {
        let answer = self.client.fetch(Outgoing::get(url)).await?;
        match answer.status {
            StatusCode::NOT_FOUND => return Err(RegistryError::NotFound(name.to_owned())),
            status if !status.is_success() => return Err(RegistryError::Status(status)),
            _ => {}
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| RegistryError::Document(error.to_string()))
    }
}

/// A server of what a registry said of it.
///
/// # Errors
///
/// It is no description of one.
pub(crate) fn described(answer: &Value) -> Result<Server, RegistryError> {
    let answer: Answer = located::read(answer)
        .map_err(|misfit| RegistryError::Document(misfit.cause.to_string()))?;
    Ok(answer.into_server())
}
