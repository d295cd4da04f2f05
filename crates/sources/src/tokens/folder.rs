//! Token store in files. Only the owner can read them, and each is replaced atomically.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::{Grants, KeepError, Name};
use crate::environment::read_file;
use crate::net;
use crate::seal::random_bytes;

/// A folder with one file for each name.
pub(super) struct Folder(PathBuf);

const FILE_BYTES: u64 = 256 * 1024;
/// Maximum time to wait for the lock of a file.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

impl Folder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) async fn load(&self, name: &Name) -> Result<Option<Grants>, KeepError> {
        let file = name.file(&self.0);
        match blocking(move || read_file(&file, FILE_BYTES)).await {
            Ok(text) => Grants::read(&text).map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn put(&self, name: &Name, grants: Grants) -> Result<(), KeepError> {
        let file = name.file(&self.0);
        blocking(move || write_private(&file, &grants.text())).await
    }

    /// Acquires the lock of a file, which is held until dropped. The lock is on a separate file that is never
    /// removed.
    ///
    /// Returns `None` if locking is not possible, as in a read-only folder, or if the holder does not release the
    /// lock in time. The caller then proceeds without a lock.
    pub(super) async fn turn(&self, name: &Name) -> Option<File> {
        let folder = self.0.clone();
        let file = name.file(&folder).with_extension("lock");
        let open = move || {
            make(&folder)?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            private(&mut options);
            options.open(file)
        };
        let lock = net::spawn_blocking(open).await.ok()?.ok()?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        while Instant::now() < deadline {
            match lock.try_lock() {
                Ok(()) => return Some(lock),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(_)) => return None,
            }
        }
        None
    }

    pub(super) async fn forget(&self, name: &Name) -> Result<(), KeepError> {
        let file = name.file(&self.0);
        match blocking(move || std::fs::remove_file(file)).await {
            Err(error) if is_missing(&error) => Ok(()),
            removed => removed,
        }
    }

    pub(super) async fn names(&self) -> Result<Vec<Name>, KeepError> {
        let folder = self.0.clone();
        let list = move || {
            let entries = std::fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
            let names = entries.iter().map(std::fs::DirEntry::file_name);
            let mut names: Vec<_> = names
                .filter_map(|name| Name::read(name.to_str()?))
                .collect();
            names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
            Ok(names)
        };
        match blocking(list).await {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            names => names,
        }
    }
}

/// Runs file operations on a blocking thread.
async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, KeepError> {
    let asked = net::spawn_blocking(ask).await;
    Ok(asked.map_err(|_| KeepError::Ending)??)
}

fn is_missing(error: &KeepError) -> bool {
    matches!(error, KeepError::File(error) if error.kind() == io::ErrorKind::NotFound)
}

fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Writes a temporary file that only the owner can read, and renames it over the target. Concurrent writers use different
/// temporary names.
pub(in super::super) fn write_private(file: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        make(folder)?;
    }
    let number = u64::from_le_bytes(random_bytes());
    let beside = file.with_extension(format!("{number:016x}.tmp"));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    let mut open = options.open(&beside)?;
    let written = open
        .write_all(text)
        .and_then(|()| open.sync_all())
        .and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        // The incomplete file is useless.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
