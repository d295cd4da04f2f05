//! Client for registries of MCP servers, and conversion of their entries to upstreams.
//!
//! Anyone can publish in a registry. Its content is neither run nor trusted here: it becomes configuration text that
//! the user reviews before use.

mod bundle;
mod entry;
mod listed;

use std::path::Path;

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

pub use self::bundle::BundleError;
pub use self::entry::{Entry, Preference, entry};
pub use self::listed::Server;
use self::listed::{List, ListedServer};
use crate::catalog::path_deserializer;
use crate::net::{Client, Deadlines, FetchError, Guard, OutgoingRequest};

/// URL of the official registry.
pub const OFFICIAL: &str = "https://registry.modelcontextprotocol.io/";

/// Alias of the newest version.
const LATEST: &str = "latest";
/// Timeout of one request.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
/// Time limit for the download of a bundle.
const BUNDLE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(300);
/// Maximum size of a response, in bytes.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Number of servers in one page, and maximum number of pages.
const PAGE: usize = 100;
const PAGES_MAX: usize = 20;

/// Reason why a registry request failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{0:?} is not the URL of a registry; write one such as {OFFICIAL}")]
    Url(String),
    #[error(
        "there is no server {0:?}; names are whole, such as io.github.example/weather, and `search` finds them"
    )]
    NotFound(String),
    #[error("{name} has no version {version:?}; its latest is {newest}")]
    NoVersion {
        name: String,
        version: String,
        newest: String,
    },
    #[error("it responded with status {0}")]
    Status(StatusCode),
    #[error("its response is not that of a registry: {0}")]
    Document(String),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("no client can be made: {0}")]
    Client(String),
}

/// Client for a registry with the API of the official one (v0.1).
pub struct Registry {
    root: Url,
    client: Client,
}

impl Registry {
    /// # Errors
    ///
    /// The URL is not a valid HTTP URL.
    pub fn at(url: &str) -> Result<Self, RegistryError> {
        let bad = || RegistryError::Url(url.to_owned());
        let mut root: Url = url.parse().map_err(|_| bad())?;
        if root.cannot_be_a_base() || !matches!(root.scheme(), "http" | "https") {
            return Err(bad());
        }
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", root.path()));
        }
        // The user named the registry, so it can be in a private network.
        let client = Client::builder(Guard::public().trust(&root))
            .deadlines(Deadlines::total(TIMEOUT))
            .max_body(ANSWER_BYTES)
            .idle_connections(1)
            .build()
            .map_err(|error| RegistryError::Client(error.to_string()))?;
        Ok(Self { root, client })
    }

    /// Returns the newest versions of servers whose names contain a text, up to a maximum.
    pub async fn search(&self, text: &str, most: usize) -> Result<Vec<Server>, RegistryError> {
        let mut found = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut url = self.path(&["v0.1", "servers"])?;
            url.query_pairs_mut()
                .append_pair("search", text)
                .append_pair("version", "latest")
                .append_pair("limit", &PAGE.min(most).to_string())
                .extend_pairs(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let list: List = self.get(url, text).await.map_err(|error| match error {
                RegistryError::NotFound(_) => RegistryError::Status(StatusCode::NOT_FOUND),
                error => error,
            })?;
            found.extend(list.servers.into_iter().map(ListedServer::into_server));
            cursor = list.metadata.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() || most <= found.len() {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// Returns a server by its full name.
    pub async fn server(&self, name: &str, version: &str) -> Result<Value, RegistryError> {
        let at = |version| self.path(&["v0.1", "servers", name, "versions", version]);
        match self.get(at(version)?, name).await {
            // Finds out whether only the version is missing, or the whole server.
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

    /// Downloads the bundle of a server, checks it, unpacks it into a new folder, and returns the entry that starts it.
    ///
    /// # Errors
    ///
    /// There is no bundle, it is not the published one, or it cannot be unpacked or started.
    pub async fn unpacked(&self, server: &Server, folder: &Path) -> Result<Entry, RegistryError> {
        let (package, url, stated) = bundle::source(server, &self.root)?;
        let client = Client::builder(Guard::public().trust(&self.root))
            .deadlines(Deadlines::total(BUNDLE_TIMEOUT))
            .max_body(bundle::BUNDLE_BYTES)
            .redirects(5)
            .build()
            .map_err(|error| RegistryError::Client(error.to_string()))?;
        let response = client.fetch(OutgoingRequest::get(url)).await?;
        if !response.status.is_success() {
            return Err(RegistryError::Status(response.status));
        }
        Ok(bundle::unpack(
            server,
            package,
            &response.body,
            stated,
            folder,
        )?)
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
        let answer = self.client.fetch(OutgoingRequest::get(url)).await?;
        match answer.status {
            StatusCode::NOT_FOUND => return Err(RegistryError::NotFound(name.to_owned())),
            status if !status.is_success() => return Err(RegistryError::Status(status)),
            _ => {}
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| RegistryError::Document(error.to_string()))
    }
}

/// Parses a registry's description of a server.
///
/// # Errors
///
/// The description is not valid.
pub fn described(answer: &Value) -> Result<Server, RegistryError> {
    let answer: ListedServer = path_deserializer::read(answer)
        .map_err(|misfit| RegistryError::Document(misfit.cause.to_string()))?;
    Ok(answer.into_server())
}
