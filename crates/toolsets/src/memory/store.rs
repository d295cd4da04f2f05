//! Storage of graphs: a shared file, and one for each authenticated caller.
//!
//! A graph is written to a temporary file that is then renamed. Readers thus see either version, and a crash leaves
//! one of them intact. Writers hold a lock on a separate file that is never removed, so that concurrent processes do
//! not lose each other's changes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER;

use super::MemoryConfig;
use super::graph::{Bounds, Graph, GraphError};
use super::lines::{self, BadLine};
use crate::auth::{Principal, PrincipalKind};
use crate::seal::{KeyError, KeyRing, Purpose, SealConfig, sha256};
use crate::source::builtin::{Stop, ToolsetError};

/// Store of all graphs.
pub(super) struct Store {
    file: PathBuf,
    per_principal: bool,
    keys: Option<KeyRing>,
    bounds: Bounds,
    max_bytes: usize,
    max_graphs: usize,
}

/// Location of one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GraphLocation {
    file: PathBuf,
    /// Owner of the graph; empty for the shared one.
    owner: String,
}

/// Reason why a graph cannot be read or written. The messages are for callers and reveal nothing about files.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(
        "the memory cannot be read: {0} of its file. Nothing was changed; the operator of the server must repair the file"
    )]
    Line(BadLine),
    #[error(
        "the memory cannot be read: its file has more than {max} bytes. Nothing was changed; builtin.memory.max_bytes sets the limit"
    )]
    Large { max: usize },
    #[error(
        "the memory cannot be read: its file is encrypted with a key that this server does not have. Nothing was changed"
    )]
    Sealed,
    #[error("the memory cannot be read: its path is not a regular file")]
    NoFile,
    #[error(
        "the memory would have {bytes} bytes; the maximum is {max}. Nothing was changed; delete what is no longer needed"
    )]
    Full { bytes: usize, max: usize },
    #[error("the maximum of {max} memories is reached. Nothing was changed")]
    Graphs { max: usize },
    #[error("the memory is being written by another process; try again later")]
    Locked,
    #[error("the memory cannot be {doing}: {}. Nothing was changed", source.kind())]
    Io {
        doing: &'static str,
        source: io::Error,
    },
}

impl StoreError {
    /// Returns the setting whose limit was hit, if any.
    pub(super) fn limit(&self) -> Option<&'static str> {
        match self {
            Self::Graph(GraphError::Entities { .. }) => Some("max_entities"),
            Self::Graph(GraphError::Relations { .. }) => Some("max_relations"),
            Self::Graph(GraphError::Observations { .. }) => Some("max_observations"),
            Self::Large { .. } | Self::Full { .. } => Some("max_bytes"),
            Self::Graphs { .. } => Some("max_graphs"),
            _ => None,
        }
    }
}

/// First line of an encrypted file.
const SEALED: &[u8] = b"longshore-sealed-1\n";
/// Maximum overhead of encryption in addition to a third of the size: the first line and the rest of the last block.
const SEALED_BYTES: usize = 128;
/// Delay between two attempts to acquire a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(3);

impl Store {
    /// Opens the configured store, and reads the shared graph to check that it is usable.
    pub(super) fn new(config: &MemoryConfig) -> Result<Self, ToolsetError> {
        let file = config.file.as_deref().ok_or_else(|| {
            ToolsetError::setting(
                "builtin.memory.file",
                "is not set; set it to the file of the memory, for example /var/lib/longshore/memory.jsonl",
            )
        })?;
        let wrong = |problem: String| ToolsetError::setting("builtin.memory.file", problem);
        let file = resolved(file).map_err(|e| {
            wrong(format!(
                "is {}, and its folder cannot be used: {e}; make the folder first",
                file.display()
            ))
        })?;
        check_writable(&file).map_err(|e| {
            wrong(format!(
                "is {}, which cannot be written: {e}; its folder, and its lock if there is one, must be writable for the server's user",
                file.display()
            ))
        })?;
        let store = Self {
            keys: keys(config)?,
            per_principal: config.per_principal,
            bounds: Bounds::of(config),
            max_bytes: config.max_bytes,
            max_graphs: config.max_graphs,
            file,
        };
        let shared = store.shared();
        match store.load(&shared) {
            Ok(_) => Ok(store),
            Err(StoreError::Line(bad)) => Err(wrong(format!(
                "is {}, of which line {} {}; repair or remove the line. Nothing was changed",
                shared.file.display(),
                bad.line,
                bad.problem
            ))),
            Err(error @ StoreError::Io { .. }) => {
                let cause = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                Err(wrong(format!(
                    "is {}, which cannot be read: {cause}",
                    shared.file.display()
                )))
            }
            Err(error) => Err(wrong(format!("is {}: {error}", shared.file.display()))),
        }
    }

    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    fn shared(&self) -> GraphLocation {
        GraphLocation {
            file: self.file.clone(),
            owner: String::new(),
        }
    }

    /// Returns the location of a caller's graph. The file name is a digest, since callers' names can contain any
    /// character.
    pub(super) fn place(&self, principal: &Principal) -> GraphLocation {
        let is_known = !matches!(
            principal.kind(),
            PrincipalKind::Anonymous | PrincipalKind::Local
        );
        if !self.per_principal || !is_known {
            return self.shared();
        }
        let hash = sha256(format!("longshore memory\0{}", principal.id()));
        let owner = HEXLOWER.encode(&hash[..16]);
        let (stem, extension) = self.name();
        let file = self
            .file
            .with_file_name(format!("{stem}.{owner}{extension}"));
        GraphLocation { file, owner }
    }

    /// Returns the name and the extension of the shared file.
    fn name(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let extension = part(self.file.extension());
        let dot = if extension.is_empty() { "" } else { "." };
        (part(self.file.file_stem()), format!("{dot}{extension}"))
    }

    /// Reads the current graph. A missing file is an empty graph.
    pub(super) fn read(&self, place: &GraphLocation) -> Result<Graph, StoreError> {
        let loaded = self.load(place).inspect_err(|error| log(place, error))?;
        Ok(loaded.map(|loaded| loaded.graph).unwrap_or_default())
    }

    /// Changes a graph under its lock. Also returns whether anything has changed.
    pub(super) fn change<T>(
        &self,
        place: &GraphLocation,
        stop: &Stop,
        change: impl FnOnce(&mut Graph) -> Result<T, GraphError>,
    ) -> Result<(T, bool), StoreError> {
        self.try_change(place, stop, change)
            .inspect_err(|error| log(place, error))
    }

    fn try_change<T>(
        &self,
        place: &GraphLocation,
        stop: &Stop,
        change: impl FnOnce(&mut Graph) -> Result<T, GraphError>,
    ) -> Result<(T, bool), StoreError> {
        if !place.owner.is_empty() && !place.file.exists() && self.max_graphs <= self.count()? {
            return Err(StoreError::Graphs {
                max: self.max_graphs,
            });
        }
        let _lock = lock(&beside(&place.file, "lock"), stop)?;
        let loaded = self.load(place)?;
        let mut graph = loaded
            .as_ref()
            .map(|loaded| loaded.graph.clone())
            .unwrap_or_default();
        let outcome = change(&mut graph)?;
        let text = lines::write(&graph);
        let is_changed = loaded
            .as_ref()
            .map_or(!text.is_empty(), |loaded| loaded.graph != graph);
        let is_plain = loaded.as_ref().is_some_and(|loaded| !loaded.is_sealed);
        let is_to_be_sealed = is_plain && self.keys.is_some();
        if !is_changed && !is_to_be_sealed {
            return Ok((outcome, false));
        }
        let grows = loaded.is_none_or(|loaded| loaded.bytes < text.len());
        if self.max_bytes < text.len() && grows {
            return Err(StoreError::Full {
                bytes: text.len(),
                max: self.max_bytes,
            });
        }
        let bytes = match &self.keys {
            Some(keys) => [
                SEALED,
                keys.seal(place.purpose(), text.as_bytes()).as_bytes(),
            ]
            .concat(),
            None => text.into_bytes(),
        };
        replace(&place.file, &bytes).map_err(|source| StoreError::Io {
            doing: "written",
            source,
        })?;
        Ok((outcome, is_changed))
    }

    /// Returns the number of callers with a graph.
    fn count(&self) -> Result<usize, StoreError> {
        let (stem, extension) = self.name();
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let entries = fs::read_dir(folder).map_err(|source| StoreError::Io {
            doing: "read",
            source,
        })?;
        let names = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_graph = |name: &String| {
            let owner = name
                .strip_prefix(&*stem)
                .and_then(|rest| rest.strip_prefix('.'));
            let owner = owner.and_then(|rest| rest.strip_suffix(&*extension));
            owner.is_some_and(|owner| {
                owner.len() == 32 && owner.bytes().all(|b| b.is_ascii_hexdigit())
            })
        };
        Ok(names.filter(is_graph).count())
    }

    fn load(&self, place: &GraphLocation) -> Result<Option<Loaded>, StoreError> {
        let failed = |source| StoreError::Io {
            doing: "read",
            source,
        };
        let about = match fs::metadata(&place.file) {
            Ok(about) => about,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        // Opening anything else could block forever.
        if !about.is_file() {
            return Err(StoreError::NoFile);
        }
        let large = || StoreError::Large {
            max: self.max_bytes,
        };
        let encoded = self.max_bytes.saturating_add(self.max_bytes / 3);
        let max = encoded.saturating_add(SEALED_BYTES);
        let mut bytes = Vec::new();
        let file = File::open(&place.file).map_err(failed)?;
        let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        if max < bytes.len() {
            return Err(large());
        }
        let sealed = bytes.strip_prefix(SEALED);
        let is_sealed = sealed.is_some();
        if let Some(sealed) = sealed {
            let keys = self.keys.as_ref().ok_or(StoreError::Sealed)?;
            bytes = keys
                .open(place.purpose(), sealed)
                .ok_or(StoreError::Sealed)?;
        }
        if self.max_bytes < bytes.len() {
            return Err(large());
        }
        let graph = lines::read(&bytes).map_err(StoreError::Line)?;
        Ok(Some(Loaded {
            graph,
            bytes: bytes.len(),
            is_sealed,
        }))
    }
}

struct Loaded {
    graph: Graph,
    /// Size of its text.
    bytes: usize,
    is_sealed: bool,
}

impl GraphLocation {
    pub(super) fn is_shared(&self) -> bool {
        self.owner.is_empty()
    }

    /// Binds an encrypted file to its location, so that it cannot be opened elsewhere.
    fn purpose(&self) -> Purpose<'_> {
        Purpose {
            kind: "memory-1",
            endpoint: &self.owner,
        }
    }
}

/// Logs an error that callers cannot correct, for the operator.
fn log(place: &GraphLocation, error: &StoreError) {
    match error {
        StoreError::Graph(_) | StoreError::Full { .. } => {}
        _ => {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(file = %place.file.display(), cause, "{error}");
        }
    }
}

fn keys(config: &MemoryConfig) -> Result<Option<KeyRing>, ToolsetError> {
    if config.keys.is_empty() {
        return Ok(None);
    }
    for (index, key) in config.keys.iter().enumerate() {
        let bytes = key.expose().len();
        if bytes < 32 {
            return Err(ToolsetError::setting(
                format!("builtin.memory.keys[{index}]"),
                format!(
                    "has {bytes} bytes; a key needs at least 32, for example from `openssl rand -base64 32`"
                ),
            ));
        }
    }
    let config = SealConfig {
        keys: config.keys.clone(),
    };
    let ring = KeyRing::new(&config).map_err(|error| match error {
        KeyError::Sample { index } => ToolsetError::setting(
            format!("builtin.memory.keys[{index}]"),
            "is a sample from the documentation, which is public; make a key with `openssl rand -base64 32`",
        ),
        error => ToolsetError::setting("builtin.memory.keys", error.to_string()),
    })?;
    Ok(Some(ring))
}

/// Resolves links in a file's path, so that the file is replaced and not the link.
fn resolved(file: &Path) -> io::Result<PathBuf> {
    match file.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let folder = file
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
            Ok(folder.canonicalize()?.join(name))
        }
        resolved => resolved,
    }
}

/// Checks the permissions to write a file and its lock, without writing.
fn check_writable(file: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::{Access, access};
        let folder = file.parent().unwrap_or(Path::new("/"));
        access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
        let lock = beside(file, "lock");
        if lock.exists() {
            access(lock, Access::WRITE_OK)?;
        }
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Returns a path beside another one.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    file.with_file_name(name)
}

/// Acquires a lock, which is held until dropped.
fn lock(file: &Path, stop: &Stop) -> Result<File, StoreError> {
    let failed = |source| StoreError::Io {
        doing: "locked",
        source,
    };
    let lock = private(OpenOptions::new().write(true).create(true).truncate(false))
        .open(file)
        .map_err(failed)?;
    loop {
        let is_locked = match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        // A caller that got a timeout must not find its change written afterwards.
        stop.check().map_err(|_| StoreError::Locked)?;
        if is_locked {
            return Ok(lock);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Replaces a file's contents atomically.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let other = beside(file, "tmp");
    let written = write_whole(&other, file, bytes).and_then(|()| fs::rename(&other, file));
    if written.is_err() {
        let _ = fs::remove_file(&other);
        return written;
    }
    // The rename also has to survive a crash. If the folder cannot be synced, that is left to the system.
    if let Some(folder) = file.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

fn write_whole(other: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
    // Removes a file that a crash has left.
    match fs::remove_file(other) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut written = private(OpenOptions::new().write(true).create_new(true)).open(other)?;
    if let Ok(about) = fs::metadata(file) {
        written.set_permissions(about.permissions())?;
    }
    written.write_all(bytes)?;
    written.sync_all()
}

/// Restricts a new file to its owner.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

#[cfg(test)]
mod tests;
