//! Store for tokens that this program obtains as an OAuth client: by `longshore login`, or with a configured refresh
//! token.
//!
//! There is one store for all tokens and one procedure to refresh them: acquire the lock, read the stored grant, and
//! only then request a token. Each grant belongs to one issuer and one server or API, and is never sent to another.
//! Tokens of callers are never stored.

mod folder;
mod grant;
mod memory;
mod name;
mod shared;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::folder::Folder;
pub(super) use self::folder::write_private;
pub use self::grant::client;
pub(super) use self::grant::{Grant, Granted, Grants, is_same_issuer};
use self::memory::Memory;
pub use self::name::Name;
use self::shared::SharedTokens;
use crate::environment::{Conflicts, Probe};
use crate::state::{SharedState, StateError};

/// Store for tokens that this program obtains for itself: those of `longshore login`, and those from a
/// `refresh_token`. Tokens of callers are never stored.
///
/// ```toml
/// [tokens]
/// folder = "/var/lib/longshore/tokens"
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokensConfig {
    /// Token store: `memory` (lost when the process ends), `file` (a folder of files that only the owner can read),
    /// or `state` (shared by all replicas through `state.url`, encrypted with `seal.keys`). Default: `file` if
    /// `tokens.folder` is set, else `memory`.
    pub store: Option<TokenStore>,
    /// Folder for `file`. Default: `LONGSHORE_TOKENS`, else `longshore/tokens` in `$XDG_CONFIG_HOME` or `~/.config`.
    #[schemars(extend("x-path" = "file"))]
    pub folder: Option<PathBuf>,
}

/// Kind of token store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TokenStore {
    /// In memory, until the process ends.
    Memory,
    /// In files, which processes of one machine can share.
    File,
    /// In the state that replicas share.
    State,
}

/// Reason why the configured token store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// A folder is set but the store does not use it.
    #[error(
        "tokens.folder is set, and tokens.store is {0}; set tokens.store to file, or leave the folder out"
    )]
    FolderUnused(&'static str),
    /// No folder is configured, and there is no home directory.
    #[error("tokens.store is file, but there is no folder; set tokens.folder")]
    NoFolder,
    /// The state belongs to one process only.
    #[error(
        "tokens.store is state, but the state is not shared; set state.url, or store tokens in a folder (tokens.store = file)"
    )]
    NoState,
    /// The state is not encrypted, so that its readers could read the tokens.
    #[error(
        "tokens.store is state, but nothing encrypts tokens there; set seal.keys to the same value on all replicas"
    )]
    NoKeys,
}

impl TokensConfig {
    /// Reports the settings that contradict each other.
    pub fn validate(&self, probe: &Probe, conflicts: &mut Conflicts) {
        if let Err(error) = self.check(probe) {
            let text = error.to_string();
            let (problem, advice) = text.split_once("; ").unwrap_or((&text, ""));
            conflicts.add(problem, advice);
        }
    }

    /// Returns the selected store.
    pub fn store(&self) -> TokenStore {
        match (self.store, &self.folder) {
            (Some(store), _) => store,
            (None, Some(_)) => TokenStore::File,
            (None, None) => TokenStore::Memory,
        }
    }

    fn folder(&self, probe: &Probe) -> Result<PathBuf, TokensError> {
        let folder = self.folder.clone().or_else(|| default_folder(probe));
        folder.ok_or(TokensError::NoFolder)
    }

    /// Validates the settings.
    ///
    /// # Errors
    ///
    /// A folder is set but not used, or is required and missing.
    fn check(&self, probe: &Probe) -> Result<(), TokensError> {
        let unused = |store| match self.folder {
            Some(_) => Err(TokensError::FolderUnused(store)),
            None => Ok(()),
        };
        match self.store() {
            TokenStore::Memory => unused("memory"),
            TokenStore::State => unused("state"),
            TokenStore::File => self.folder(probe).map(drop),
        }
    }
}

/// Returns the default folder of commands, and of servers without a configured one.
pub fn default_folder(probe: &Probe) -> Option<PathBuf> {
    let set = |name: &str| probe.variable(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("LONGSHORE_TOKENS") {
        return Some(folder.into());
    }
    let base = match set("XDG_CONFIG_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(set("HOME")?).join(".config"),
    };
    Some(base.join("longshore").join("tokens"))
}

/// Handle to the token store. Clones share the store.
#[derive(Clone)]
pub struct Tokens(Arc<TokenBackend>);

enum TokenBackend {
    Memory(Memory),
    Folder(Folder),
    Shared(SharedTokens),
}

/// Reason why tokens cannot be read or stored. The messages hold no secret.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("this process is ending")]
    Ending,
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the state is not open yet")]
    NoState,
    #[error("its data is not a token of this program")]
    Foreign,
    #[error("another process has been requesting a token for too long; try again")]
    Busy,
    #[error("the memory of one process cannot hold more logins; set tokens.store to file or state")]
    Full,
}

/// Exclusive lock held while a token is refreshed.
#[must_use = "others wait for its end"]
pub(super) enum RefreshLock {
    Memory {
        _held: tokio::sync::OwnedMutexGuard<()>,
    },
    /// `None` where file locks are not available.
    Folder {
        _held: Option<std::fs::File>,
    },
    Shared(shared::SharedLock),
}

impl RefreshLock {
    /// Releases the lock. A holder that never does so blocks others for a few seconds at most.
    pub async fn end(self) {
        if let Self::Shared(turn) = self {
            turn.end().await;
        }
    }
}

impl Tokens {
    /// Opens the configured store. A store in the state has to be attached to it later ([`are_in`](Self::are_in)).
    ///
    /// # Errors
    ///
    /// The settings contradict each other.
    pub fn new(config: &TokensConfig, probe: &Probe) -> Result<Self, TokensError> {
        config.check(probe)?;
        let place = match config.store() {
            TokenStore::Memory => TokenBackend::Memory(Memory::default()),
            TokenStore::File => TokenBackend::Folder(Folder::new(config.folder(probe)?)),
            TokenStore::State => TokenBackend::Shared(SharedTokens::default()),
        };
        Ok(Self(Arc::new(place)))
    }

    /// Opens a store in a folder.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self(Arc::new(TokenBackend::Folder(Folder::new(folder))))
    }

    /// Attaches the state. `is_shared` is true if other replicas use it too; `is_sealed` is true if it is encrypted.
    ///
    /// # Errors
    ///
    /// Tokens are configured to be stored in the state, and it is not shared or not encrypted.
    pub fn are_in(
        &self,
        state: SharedState,
        is_shared: bool,
        is_sealed: bool,
    ) -> Result<(), TokensError> {
        match &*self.0 {
            TokenBackend::Shared(_) if !is_shared => Err(TokensError::NoState),
            TokenBackend::Shared(_) if !is_sealed => Err(TokensError::NoKeys),
            TokenBackend::Shared(shared) => {
                shared.is_in(state);
                Ok(())
            }
            TokenBackend::Memory(_) | TokenBackend::Folder(_) => Ok(()),
        }
    }

    /// Returns true if the tokens are lost when the process ends.
    pub(crate) fn are_in_memory(&self) -> bool {
        matches!(&*self.0, TokenBackend::Memory(_))
    }

    /// Returns true if other replicas have access to the tokens.
    pub fn are_shared(&self) -> bool {
        matches!(&*self.0, TokenBackend::Shared(_))
    }

    /// Returns the stored grants under a name, by issuer.
    pub async fn load(&self, name: &Name) -> Result<Option<Grants>, KeepError> {
        match &*self.0 {
            TokenBackend::Memory(memory) => Ok(memory.load(name)),
            TokenBackend::Folder(folder) => folder.load(name).await,
            TokenBackend::Shared(shared) => shared.load(name).await,
        }
    }

    /// Stores a grant and replaces the earlier one of its issuer. The caller must hold the lock.
    pub async fn keep(&self, name: &Name, grant: &Grant) -> Result<(), KeepError> {
        self.change(name, |grants| grants.renew(grant.clone()))
            .await
    }

    /// Stores a grant and makes it the one to use, instead of those of other issuers.
    pub async fn begin(&self, name: &Name, grant: &Grant) -> Result<(), KeepError> {
        self.change(name, |grants| grants.add(grant.clone())).await
    }

    /// Returns the stored grants under a name. Unreadable ones count as none: they are replaced.
    pub(super) async fn load_readable(&self, name: &Name) -> Result<Option<Grants>, KeepError> {
        match self.load(name).await {
            Err(KeepError::Foreign) => Ok(None),
            loaded => loaded,
        }
    }

    async fn change(&self, name: &Name, change: impl FnOnce(&mut Grants)) -> Result<(), KeepError> {
        let mut grants = self.load_readable(name).await?.unwrap_or_default();
        change(&mut grants);
        self.put(name, grants).await
    }

    async fn put(&self, name: &Name, grants: Grants) -> Result<(), KeepError> {
        match &*self.0 {
            TokenBackend::Memory(memory) => memory.put(name, grants),
            TokenBackend::Folder(folder) => folder.put(name, grants).await,
            TokenBackend::Shared(shared) => shared.put(name, &grants).await,
        }
    }

    /// Extends the storage TTL of grants in use.
    pub(super) async fn prolong(&self, name: &Name) {
        if let TokenBackend::Shared(shared) = &*self.0 {
            shared.prolong(name).await;
        }
    }

    /// Acquires the lock for the grants under a name.
    pub(super) async fn turn(&self, name: &Name) -> Result<RefreshLock, KeepError> {
        Ok(match &*self.0 {
            TokenBackend::Memory(memory) => RefreshLock::Memory {
                _held: memory.turn(name).await,
            },
            TokenBackend::Folder(folder) => RefreshLock::Folder {
                _held: folder.turn(name).await,
            },
            TokenBackend::Shared(shared) => RefreshLock::Shared(shared.turn(name).await?),
        })
    }

    /// Removes the grant of one issuer, or of all. The caller must hold the lock.
    pub(super) async fn forget(&self, name: &Name, issuer: Option<&str>) -> Result<(), KeepError> {
        if let Some(issuer) = issuer
            && let Some(mut grants) = self.load(name).await?
        {
            grants.remove(issuer);
            if !grants.is_empty() {
                return self.put(name, grants).await;
            }
        }
        match &*self.0 {
            TokenBackend::Memory(memory) => {
                memory.forget(name);
                Ok(())
            }
            TokenBackend::Folder(folder) => folder.forget(name).await,
            TokenBackend::Shared(shared) => shared.forget(name).await,
        }
    }

    /// Returns all stored grants.
    pub async fn all(&self) -> Result<Vec<(Name, Grants)>, KeepError> {
        let names = match &*self.0 {
            TokenBackend::Memory(memory) => memory.names(),
            TokenBackend::Folder(folder) => folder.names().await?,
            TokenBackend::Shared(shared) => shared.names().await?,
        };
        let mut all = Vec::new();
        for name in names {
            if let Some(grants) = self.load_readable(&name).await? {
                all.push((name, grants));
            }
        }
        Ok(all)
    }

    /// Removes grants that have expired and cannot be refreshed.
    pub(super) async fn sweep(&self, now: SystemTime) -> Result<(), KeepError> {
        for (name, grants) in self.all().await? {
            if grants.are_over(now) {
                let turn = self.turn(&name).await?;
                // A concurrent writer may have stored a new grant.
                let over = self
                    .load(&name)
                    .await?
                    .is_none_or(|now_there| now_there.are_over(now));
                let swept = match over {
                    true => self.forget(&name, None).await,
                    false => Ok(()),
                };
                turn.end().await;
                swept?;
            }
        }
        Ok(())
    }
}

/// Returns true if a folder has a login for a server.
pub fn has_login(folder: &std::path::Path, server: &url::Url) -> bool {
    Name::of_login(server).file(folder).exists()
}

impl Default for Tokens {
    /// Returns an in-memory store.
    fn default() -> Self {
        Self(Arc::new(TokenBackend::Memory(Memory::default())))
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            TokenBackend::Memory(_) => f.write_str("memory"),
            TokenBackend::Folder(folder) => folder.path().display().fmt(f),
            TokenBackend::Shared(_) => f.write_str("the state that replicas share"),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({self})")
    }
}

#[cfg(test)]
mod tests;
