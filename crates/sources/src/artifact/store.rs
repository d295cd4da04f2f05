//! Stores for large results.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, ready};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::net::{self, Mutex};

/// A large result, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Content as a client reads it.
    pub bytes: Bytes,
    /// Media type.
    pub media_type: String,
    /// Time from which no link is valid and the artifact can be removed.
    pub expires: SystemTime,
}

/// Future returned by the methods of [`ArtifactStore`].
pub type ArtifactFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Store for large results, which keeps them until they expire.
///
/// The setting `artifacts` selects one in memory, in a folder or in a bucket. An application can supply its own
/// (`App::artifact_store`). The store does not decide access or lifetime: links are
/// sealed, expire, and are bound to a principal. Replicas that share a store can read each other's artifacts.
///
/// ```
/// use std::collections::HashMap;
/// use std::future::ready;
/// use std::sync::Mutex;
/// use std::time::SystemTime;
///
/// use longshore::source::{Artifact, ArtifactFuture, ArtifactStore};
///
/// #[derive(Debug, Default)]
/// struct InMemory(Mutex<HashMap<String, Artifact>>);
///
/// impl ArtifactStore for InMemory {
///     fn put<'a>(&'a self, key: &'a str, artifact: Artifact, _: SystemTime) -> ArtifactFuture<'a, ()> {
///         self.0.lock().expect("no panics").insert(key.to_owned(), artifact);
///         Box::pin(ready(Ok(())))
///     }
///
///     fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>> {
///         let found = self.0.lock().expect("no panics").get(key).cloned();
///         Box::pin(ready(Ok(found)))
///     }
/// }
/// ```
pub trait ArtifactStore: fmt::Debug + Send + Sync + 'static {
    /// Stores an artifact under a key of 32 hexadecimal digits that is never reused. The store may remove artifacts
    /// that expired by `now`. If it fails, the result is sent whole and the error is logged.
    fn put<'a>(
        &'a self,
        key: &'a str,
        artifact: Artifact,
        now: SystemTime,
    ) -> ArtifactFuture<'a, ()>;

    /// Returns the artifact under a key. Returns `None` if there is none or it has expired; an error if that cannot
    /// be determined.
    fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>>;
}

/// In-memory store that evicts the oldest artifacts.
#[derive(Debug)]
pub(super) struct MemoryStore {
    memory: Mutex<Memory>,
    total: u64,
}

/// Store in a folder, with one file for each artifact. An artifact that does not fit is rejected.
#[derive(Clone, Debug)]
pub(super) struct FolderStore {
    folder: PathBuf,
    total: u64,
    /// Locked while space is checked and reserved, and while a file is renamed, so that two writers of this process do not
    /// reserve the same space.
    room: Arc<Mutex<Room>>,
}

/// Space that is used in a folder: as of the last scan, and with what this process has reserved since then.
#[derive(Debug, Default)]
struct Room {
    used: u64,
    is_as_scanned: bool,
    /// Time of the last scan, and for how long its result is used.
    scanned: Option<(SystemTime, Duration)>,
}

#[derive(Debug, Default)]
struct Memory {
    entries: HashMap<String, Artifact>,
    /// Keys from oldest to newest.
    order: VecDeque<String>,
    bytes: u64,
}

/// Approximate memory overhead of an entry, in bytes.
const ENTRY_BYTES: u64 = 512;
/// Minimum time between two scans of a folder, which open each file. What other replicas write is noticed then.
const SCAN_EVERY: Duration = Duration::from_secs(10);
/// Minimum time between two scans, in durations of a scan.
const SCAN_SHARE: u32 = 20;
/// Maximum length of the header line of a file, in bytes.
const HEAD_MAX: usize = 512;

impl MemoryStore {
    /// Creates a store with a capacity of `total` bytes.
    pub(super) fn new(total: u64) -> Self {
        Self {
            memory: Mutex::default(),
            total,
        }
    }

    fn keep(&self, key: &str, artifact: Artifact, now: SystemTime) -> io::Result<()> {
        let size = artifact.bytes.len() as u64;
        if self.total < size {
            return Err(too_large());
        }
        let size = size + ENTRY_BYTES;
        let mut memory = self.memory.lock();
        while self.total < memory.bytes + size || memory.oldest_has_ended(now) {
            if !memory.drop_oldest() {
                break;
            }
        }
        memory.bytes += size;
        memory.order.push_back(key.to_owned());
        memory.entries.insert(key.to_owned(), artifact);
        Ok(())
    }
}

impl ArtifactStore for MemoryStore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        artifact: Artifact,
        now: SystemTime,
    ) -> ArtifactFuture<'a, ()> {
        Box::pin(ready(self.keep(key, artifact, now)))
    }

    fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>> {
        let memory = self.memory.lock();
        Box::pin(ready(Ok(memory.entries.get(key).cloned())))
    }
}

impl FolderStore {
    /// # Errors
    ///
    /// The folder does not exist and cannot be created.
    pub(super) fn open(folder: &Path, total: u64) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            total,
            room: Arc::default(),
        })
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(name_of(key))
    }
}

impl ArtifactStore for FolderStore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        artifact: Artifact,
        now: SystemTime,
    ) -> ArtifactFuture<'a, ()> {
        let (store, file) = (self.clone(), self.file(key));
        beside(move || {
            let begun = {
                let mut room = store.room.lock();
                let head = head_of(&artifact);
                let size = (head.len() + artifact.bytes.len()) as u64;
                room.reserve(size, store.total, &store.folder, now)?;
                TemporaryFile::new(&file, head, size)?
            };
            begun.end(&artifact.bytes, &store.room)
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>> {
        let file = self.file(key);
        beside(move || match read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        })
    }
}

impl Room {
    /// Reserves space, or returns an error if there is not enough.
    fn reserve(&mut self, size: u64, total: u64, folder: &Path, now: SystemTime) -> io::Result<()> {
        let is_recent = self
            .scanned
            .is_some_and(|(at, valid)| now.duration_since(at).is_ok_and(|age| age < valid));
        let fits = |used: u64| used.saturating_add(size) <= total;
        if !is_recent || !fits(self.used) && !self.is_as_scanned {
            let begun = Instant::now();
            self.used = clear(folder, now)?;
            self.is_as_scanned = true;
            self.scanned = Some((now, SCAN_EVERY.max(begun.elapsed() * SCAN_SHARE)));
        }
        if !fits(self.used) {
            return Err(too_large());
        }
        self.used += size;
        self.is_as_scanned = false;
        Ok(())
    }
}

/// Runs blocking work on a blocking thread.
fn beside<'a, T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> ArtifactFuture<'a, T> {
    Box::pin(async move {
        let done = net::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
    })
}

fn too_large() -> io::Error {
    io::Error::other("the store is full (artifacts.total_bytes)")
}

impl Memory {
    fn oldest_has_ended(&self, now: SystemTime) -> bool {
        let oldest = self.order.front().and_then(|key| self.entries.get(key));
        oldest.is_some_and(|kept| kept.expires <= now)
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(key) = self.order.pop_front() else {
            return false;
        };
        if let Some(kept) = self.entries.remove(&key) {
            self.bytes -= kept.bytes.len() as u64 + ENTRY_BYTES;
        }
        true
    }
}

/// Returns the file name for a key.
pub(super) fn name_of(key: &str) -> String {
    format!("{key}.artifact")
}

/// Removes expired artifacts and abandoned temporary files. Returns the number of bytes that remain.
fn clear(folder: &Path, now: SystemTime) -> io::Result<u64> {
    let mut left = 0;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let file = entry.path();
        let found = entry.metadata();
        let stays = match file.extension().and_then(|extension| extension.to_str()) {
            Some("artifact") => match head(&file) {
                Ok((expires, _)) => now < expires,
                // Other errors may pass, such as a lack of file descriptors.
                Err(error) => error.kind() != io::ErrorKind::InvalidData,
            },
            Some("tmp") => found
                .as_ref()
                .is_ok_and(|found| is_being_written(found, now)),
            _ => continue,
        };
        if stays {
            left += found.map_or(0, |found| found.len());
        } else {
            let _ = std::fs::remove_file(&file);
        }
    }
    Ok(left)
}

/// Maximum time to write a file. An older temporary file was left by a process that ended.
const WRITING: Duration = Duration::from_secs(600);

fn is_being_written(found: &std::fs::Metadata, now: SystemTime) -> bool {
    let Ok(written) = found.modified() else {
        return false;
    };
    // The clock of another machine may run ahead.
    let age = now.duration_since(written);
    age.unwrap_or_else(|ahead| ahead.duration()) < WRITING
}

fn split(bytes: &[u8]) -> io::Result<(SystemTime, String, usize)> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "it is not a valid artifact");
    let end = bytes.iter().position(|b| *b == b'\n').ok_or_else(odd)?;
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| odd())?;
    let (expires, media) = line.split_once(' ').ok_or_else(odd)?;
    let expires: u64 = expires.parse().map_err(|_| odd())?;
    let expires = UNIX_EPOCH
        .checked_add(Duration::from_secs(expires))
        .ok_or_else(odd)?;
    Ok((expires, media.to_owned(), end + 1))
}

fn head(file: &Path) -> io::Result<(SystemTime, String)> {
    let mut bytes = Vec::new();
    let mut open = std::fs::File::open(file)?.take(HEAD_MAX as u64);
    open.read_to_end(&mut bytes)?;
    let (expires, media, _) = split(&bytes)?;
    Ok((expires, media))
}

fn read(file: &Path) -> io::Result<Artifact> {
    let bytes = Bytes::from(std::fs::read(file)?);
    let (expires, media_type, start) = split(&bytes)?;
    Ok(Artifact {
        bytes: bytes.slice(start..),
        media_type,
        expires,
    })
}

/// Returns the header line of a file.
fn head_of(kept: &Artifact) -> String {
    let expires = kept.expires.duration_since(UNIX_EPOCH).unwrap_or_default();
    let media: String = kept
        .media_type
        .chars()
        .filter(|c| !c.is_control())
        .take(HEAD_MAX / 8)
        .collect();
    format!("{} {media}\n", expires.as_secs())
}

/// A temporary file that is renamed when complete, so readers never see a partial file. Only the owner can read it.
/// Dropping it before completion removes it.
struct TemporaryFile {
    file: PathBuf,
    temporary: PathBuf,
    open: std::fs::File,
    head: String,
    is_whole: bool,
}

impl TemporaryFile {
    /// Creates a file with its final size, which counts against the capacity immediately.
    fn new(file: &Path, head: String, size: u64) -> io::Result<Self> {
        let temporary = file.with_extension("tmp");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let begun = Self {
            open: options.open(&temporary)?,
            file: file.to_owned(),
            temporary,
            head,
            is_whole: false,
        };
        begun.open.set_len(size)?;
        Ok(begun)
    }

    /// Writes the file and renames it. A writer that lists the folder meanwhile could miss it under both names.
    fn end(mut self, bytes: &[u8], room: &Mutex<Room>) -> io::Result<()> {
        self.open.write_all(self.head.as_bytes())?;
        self.open.write_all(bytes)?;
        let _room = room.lock();
        std::fs::rename(&self.temporary, &self.file)?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_whole {
            // Failure is harmless: readers ignore the file, and the next cleanup tries again.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(bytes: usize) -> Artifact {
        Artifact {
            bytes: vec![b'x'; bytes].into(),
            media_type: "text/plain".to_owned(),
            expires: SystemTime::now() + Duration::from_secs(60),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_write_that_fails_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FolderStore::open(folder.path(), 10_000).expect("opened");
        // Its place is taken by a folder, so that it cannot be put there.
        std::fs::create_dir_all(folder.path().join("a.artifact/in")).expect("made");
        let now = SystemTime::now();
        assert!(store.put("a", artifact(10), now).await.is_err());
        assert_eq!(names(folder.path()), ["a.artifact"]);
        store.put("b", artifact(10), now).await.expect("kept");
        let kept = store.get("b").await.expect("read").expect("there");
        assert_eq!(kept.bytes.len(), 10);
    }

    #[tokio::test]
    async fn what_was_never_written_to_its_end_counts_and_is_swept() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FolderStore::open(folder.path(), 1000).expect("opened");
        let left = folder.path().join("gone.tmp");
        std::fs::write(&left, vec![0; 900]).expect("written");
        let now = SystemTime::now();
        let refused = store.put("a", artifact(200), now).await;
        assert!(refused.is_err(), "there may be somebody who writes it");
        let later = now + WRITING + Duration::from_secs(1);
        store.put("a", artifact(200), later).await.expect("kept");
        assert_eq!(names(folder.path()), ["a.artifact"]);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_not_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FolderStore::open(folder.path(), 1000).expect("opened");
        let looped = folder.path().join("a.artifact");
        std::os::unix::fs::symlink("a.artifact", &looped).expect("linked");
        std::fs::write(folder.path().join("b.artifact"), "no header").expect("written");
        let now = SystemTime::now();
        store.put("c", artifact(10), now).await.expect("kept");
        assert_eq!(names(folder.path()), ["a.artifact", "c.artifact"]);
    }

    #[tokio::test]
    async fn the_folder_is_scanned_now_and_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FolderStore::open(folder.path(), 1000).expect("opened");
        let now = SystemTime::now();
        store.put("a", artifact(100), now).await.expect("kept");
        let other = folder.path().join("other.artifact");
        let far = format!("{} text/plain\n{}", u32::MAX, "x".repeat(700));
        std::fs::write(&other, far).expect("written");
        store.put("b", artifact(100), now).await.expect("kept");
        let later = now + SCAN_EVERY;
        let refused = store.put("c", artifact(100), later).await;
        assert!(refused.is_err(), "the other file is seen");
        // A folder that is full is not scanned for each artifact either.
        std::fs::remove_file(&other).expect("removed");
        assert!(store.put("d", artifact(100), later).await.is_err());
        let later = later + SCAN_EVERY;
        store.put("e", artifact(100), later).await.expect("kept");
    }

    #[tokio::test]
    async fn many_at_once_do_not_take_the_same_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FolderStore::open(folder.path(), 1000).expect("opened");
        let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        let now = SystemTime::now();
        let puts = keys.iter().map(|key| store.put(key, artifact(200), now));
        let kept = futures_util::future::join_all(puts).await;
        assert_eq!(kept.iter().filter(|kept| kept.is_ok()).count(), 4);
    }
}
