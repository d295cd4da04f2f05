//! Where tokens are kept that this program has got from an issuer as its client: by `longshore login`, or for a refresh
//! token that it was given.
//!
//! There is one place for all of them, and one way to get the next: whoever wants to takes its turn, looks at what is there,
//! and only then asks the issuer. What is kept is each issuer's own, and of a server or an API; nothing of it is ever shown
//! to another. Tokens of callers are never kept.

mod folder;
mod grant;
mod memory;
mod name;
mod shared;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::folder::Folder;
#[cfg(feature = "cli")]
pub(super) use self::grant::client;
pub(super) use self::grant::{Grant, Granted, Grants};
use self::memory::Memory;
pub(super) use self::name::Name;
use self::shared::Shared;
use crate::environment::Probe;
use crate::state::{SharedState, StateError};

/// Where tokens are kept that this program gets from issuers, for itself: those of `longshore login`, and those that come
/// for a `refresh_token`. Tokens of callers are never kept.
///
/// ```toml
/// [tokens]
/// store = "state"
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokensConfig {
    /// `memory`, where they are forgotten when the process ends; `file`, in a folder, in files that nobody else may read; or
    /// `state`, which all replicas have (`state.url`), encrypted with `seal.keys`. Default: `file` if `tokens.folder` is set,
    /// else `memory`.
    pub store: Option<TokenStore>,
    /// The folder of `file`. Default: `LONGSHORE_TOKENS`, else `longshore/tokens` in `$XDG_CONFIG_HOME` or `~/.config`.
    #[schemars(extend("x-path" = "file"))]
    pub folder: Option<PathBuf>,
}

/// Where tokens are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TokenStore {
    /// Until the process ends.
    Memory,
    /// In files, which processes of one machine may share.
    File,
    /// In the state that replicas share.
    State,
}

/// Why there is no place for tokens as it was configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// A folder that is not used.
    #[error(
        "tokens.folder is set, and tokens.store is {0}; set tokens.store to file, or leave the folder out"
    )]
    FolderUnused(&'static str),
    /// Nobody has said which folder, and there is no home.
    #[error("tokens.store is file, and there is no folder for it; name one with tokens.folder")]
    NoFolder,
    /// The state is that of one process.
    #[error(
        "tokens.store is state, and there is no state that others have too; set state.url, or keep tokens in a folder (tokens.store = file)"
    )]
    NoState,
    /// Whoever can read the state could read them.
    #[error(
        "tokens.store is state, and nothing encrypts what is there; set seal.keys to the same on all replicas"
    )]
    NoKeys,
}

impl TokensConfig {
    /// Which place is meant.
    pub(crate) fn store(&self) -> TokenStore {
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

    /// Whether it makes sense.
    ///
    /// # Errors
    ///
    /// A folder that nothing is kept in, or none where one is needed.
    pub(crate) fn check(&self, probe: &Probe) -> Result<(), TokensError> {
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

/// The folder that commands keep tokens in, and servers that are told no other.
pub(crate) fn default_folder(probe: &Probe) -> Option<PathBuf> {
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

/// The place in which tokens are kept. Its copies are the same place.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<Place>);

enum Place {
    Memory(Memory),
    Folder(Folder),
    Shared(Shared),
}

/// Why tokens cannot be read or kept. The texts hold no secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("this process is ending")]
    Ending,
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the state is not open yet")]
    NoState,
    #[error("what is there is none of this program's tokens")]
    Foreign,
    #[error("somebody else has been getting a token for too long; try again")]
    Busy,
}

/// The right to get the next token, which one has at a time.
#[must_use = "others wait for its end"]
pub(super) enum Turn {
    Memory {
        _held: tokio::sync::OwnedMutexGuard<()>,
    },
    /// There is none where there are no locks.
    Folder {
        _held: Option<std::fs::File>,
    },
    Shared(shared::Turn),
}

impl Turn {
    /// Lets others have theirs. Whoever does not come to this holds them up for a few seconds at most.
    pub(super) async fn end(self) {
        if let Self::Shared(turn) = self {
            turn.end().await;
        }
    }
}

impl Tokens {
    /// The place that is configured. If it is the state, that has to be told ([`are_in`](Self::are_in)).
    ///
    /// # Errors
    ///
    /// The configuration makes no sense.
    pub(crate) fn new(config: &TokensConfig, probe: &Probe) -> Result<Self, TokensError> {
        config.check(probe)?;
        let place = match config.store() {
            TokenStore::Memory => Place::Memory(Memory::default()),
            TokenStore::File => Place::Folder(Folder::new(config.folder(probe)?)),
            TokenStore::State => Place::Shared(Shared::default()),
        };
        Ok(Self(Arc::new(place)))
    }

    /// A folder.
    #[cfg(any(feature = "cli", test))]
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self(Arc::new(Place::Folder(Folder::new(folder))))
    }

    /// Tells what the state is. `is_shared` if others have it too, `is_sealed` if nobody without a key can read it.
    ///
    /// # Errors
    ///
    /// Tokens are to be kept there, and it is no place for them.
    pub(crate) fn are_in(
        &self,
        state: SharedState,
        is_shared: bool,
        is_sealed: bool,
    ) -> Result<(), TokensError> {
        match &*self.0 {
            Place::Shared(_) if !is_shared => Err(TokensError::NoState),
            Place::Shared(_) if !is_sealed => Err(TokensError::NoKeys),
            Place::Shared(shared) => {
                shared.is_in(state);
                Ok(())
            }
            Place::Memory(_) | Place::Folder(_) => Ok(()),
        }
    }

    /// Whether nothing of it is left once the process ends.
    pub(crate) fn are_in_memory(&self) -> bool {
        matches!(&*self.0, Place::Memory(_))
    }

    /// Whether they are where other replicas have them too.
    #[cfg(feature = "cli")]
    pub(crate) fn are_shared(&self) -> bool {
        matches!(&*self.0, Place::Shared(_))
    }

    /// What is kept under a name, by issuer.
    pub(super) async fn look(&self, name: &Name) -> Result<Option<Grants>, KeepError> {
        match &*self.0 {
            Place::Memory(memory) => Ok(memory.look(name)),
            Place::Folder(folder) => folder.look(name).await,
            Place::Shared(shared) => shared.look(name).await,
        }
    }

    /// Keeps what an issuer has granted, in the place of what it granted before. Whoever does so has its turn.
    pub(super) async fn keep(&self, name: &Name, grant: &Grant) -> Result<(), KeepError> {
        let mut grants = self.there(name).await?;
        grants.renew(grant.clone());
        self.put(name, grants).await
    }

    /// The same, where it is to be used instead of what other issuers have granted.
    #[cfg(feature = "cli")]
    pub(super) async fn begin(&self, name: &Name, grant: &Grant) -> Result<(), KeepError> {
        let mut grants = self.there(name).await?;
        grants.add(grant.clone());
        self.put(name, grants).await
    }

    async fn there(&self, name: &Name) -> Result<Grants, KeepError> {
        match self.look(name).await {
            Ok(grants) => Ok(grants.unwrap_or_default()),
            Err(KeepError::Foreign) => Ok(Grants::default()),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, name: &Name, grants: Grants) -> Result<(), KeepError> {
        match &*self.0 {
            Place::Memory(memory) => memory.put(name, grants),
            Place::Folder(folder) => folder.put(name, grants).await?,
            Place::Shared(shared) => shared.put(name, &grants).await?,
        }
        Ok(())
    }

    /// Somebody uses it, so that it is not to go away.
    pub(super) async fn prolong(&self, name: &Name) {
        if let Place::Shared(shared) = &*self.0 {
            shared.prolong(name).await;
        }
    }

    /// Waits for the right to change what is kept under a name.
    pub(super) async fn turn(&self, name: &Name) -> Result<Turn, KeepError> {
        Ok(match &*self.0 {
            Place::Memory(memory) => Turn::Memory {
                _held: memory.turn(name).await,
            },
            Place::Folder(folder) => Turn::Folder {
                _held: folder.turn(name).await,
            },
            Place::Shared(shared) => Turn::Shared(shared.turn(name).await?),
        })
    }
}

/// For whoever looks after what is kept.
#[cfg(feature = "cli")]
impl Tokens {
    /// Forgets what an issuer granted, or all issuers. Whoever does so has its turn.
    pub(super) async fn forget(&self, name: &Name, issuer: Option<&str>) -> Result<(), KeepError> {
        if let Some(issuer) = issuer
            && let Some(mut grants) = self.look(name).await?
        {
            grants.remove(issuer);
            if !grants.is_empty() {
                return self.put(name, grants).await;
            }
        }
        match &*self.0 {
            Place::Memory(memory) => memory.forget(name),
            Place::Folder(folder) => folder.forget(name).await?,
            Place::Shared(shared) => shared.forget(name).await?,
        }
        Ok(())
    }

    /// Everything that is kept.
    pub(super) async fn all(&self) -> Result<Vec<(Name, Grants)>, KeepError> {
        let names = match &*self.0 {
            Place::Memory(memory) => memory.names(),
            Place::Folder(folder) => folder.names().await?,
            Place::Shared(shared) => shared.names().await?,
        };
        let mut all = Vec::new();
        for name in names {
            match self.look(&name).await {
                Ok(Some(grants)) => all.push((name, grants)),
                Ok(None) | Err(KeepError::Foreign) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Forgets what has ended and cannot be renewed.
    pub(super) async fn sweep(&self, now: std::time::SystemTime) -> Result<(), KeepError> {
        for (name, grants) in self.all().await? {
            if grants.are_over(now) {
                let turn = self.turn(&name).await?;
                // Somebody may have got another one meanwhile.
                let over = self
                    .look(&name)
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

/// Whether a folder has a login for a server.
#[cfg(feature = "cli")]
pub(crate) fn has_login(folder: &std::path::Path, server: &url::Url) -> bool {
    Name::of_login(server).file(folder).exists()
}

impl Default for Tokens {
    /// In memory.
    fn default() -> Self {
        Self(Arc::new(Place::Memory(Memory::default())))
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Place::Memory(_) => f.write_str("memory"),
            Place::Folder(folder) => folder.path().display().fmt(f),
            Place::Shared(_) => f.write_str("the state that replicas share"),
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
