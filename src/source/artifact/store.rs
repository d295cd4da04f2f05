//! Where large results are kept.

use crate::net;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, ready};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// A large result, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// As a client reads it.
    pub bytes: Bytes,
    /// Its media type.
    pub media_type: String,
    /// When no link leads to it any more, and it can be removed.
    pub expires: SystemTime,
}

/// What an [`ArtifactStore`] answers with.
pub type ArtifactFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Where large results are kept, until whoever got a link to one reads it.
///
/// There is one in memory, one in a folder and one in a bucket, as the setting `artifacts` says; an application can have one of its
/// own ([`App::artifact_store`](crate::App::artifact_store)). Who may read what, and for how long, is not the store's business: links are
/// sealed, end, and are bound to a principal. A store that several replicas use lets each read what another has kept.
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
/// struct Shelf(Mutex<HashMap<String, Artifact>>);
///
/// impl ArtifactStore for Shelf {
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
    /// Keeps something under a key: 32 hexadecimal digits that stand for nothing else, ever. What has ended by `now` may be
    /// removed. Where it fails, the result is sent whole, and the log says why.
    fn put<'a>(
        &'a self,
        key: &'a str,
        artifact: Artifact,
        now: SystemTime,
    ) -> ArtifactFuture<'a, ()>;

    /// What is kept under a key. `None` if there is nothing, or nothing any more; an error if nobody knows.
    fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>>;
}

/// In memory, where the oldest make room.
#[derive(Debug)]
pub(super) struct MemoryStore {
    memory: Mutex<Memory>,
    total: u64,
}

/// In a folder, a file for each. What has no room is refused.
#[derive(Clone, Debug)]
pub(super) struct FolderStore {
    folder: PathBuf,
    total: u64,
}

#[derive(Debug, Default)]
struct Memory {
    entries: HashMap<String, Artifact>,
    /// From old to new.
    order: VecDeque<String>,
    bytes: u64,
}

/// Longest line in front of what a file holds.
const HEAD_MAX: usize = 512;

impl MemoryStore {
    /// With room for so many bytes.
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
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
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
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(Ok(memory.entries.get(key).cloned())))
    }
}

impl FolderStore {
    /// # Errors
    ///
    /// There is no such folder, and none can be made.
    pub(super) fn open(folder: &Path, total: u64) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            total,
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
            if store.total < clear(&store.folder, now)? + artifact.bytes.len() as u64 {
                return Err(too_large());
            }
            write(&file, &artifact)
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

/// Does what may take a while where nobody waits behind it.
fn beside<'a, T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> ArtifactFuture<'a, T> {
    Box::pin(async move {
        let done = net::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
    })
}

fn too_large() -> io::Error {
    io::Error::other("there is no room for it (artifacts.total_bytes)")
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
            self.bytes -= kept.bytes.len() as u64;
        }
        true
    }
}

/// What it is called where things have names.
pub(super) fn name_of(key: &str) -> String {
    format!("{key}.artifact")
}

/// Takes away what has ended; tells how many bytes are left.
fn clear(folder: &Path, now: SystemTime) -> io::Result<u64> {
    let mut left = 0;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let file = entry.path();
        if file
            .extension()
            .is_none_or(|extension| extension != "artifact")
        {
            continue;
        }
        match head(&file) {
            Ok((expires, _)) if now < expires => left += entry.metadata().map_or(0, |m| m.len()),
            // What cannot be read is of no use to anybody.
            _ => {
                let _ = std::fs::remove_file(&file);
            }
        }
    }
    Ok(left)
}

fn split(bytes: &[u8]) -> io::Result<(SystemTime, String, usize)> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "it is no artifact");
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

/// Writes beside and renames, so that a file is whole whenever it is read; nobody else may read it.
fn write(file: &Path, kept: &Artifact) -> io::Result<()> {
    let temporary = file.with_extension("tmp");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut open = options.open(&temporary)?;
    let expires = kept.expires.duration_since(UNIX_EPOCH).unwrap_or_default();
    let media: String = kept
        .media_type
        .chars()
        .filter(|c| !c.is_control())
        .take(HEAD_MAX / 8)
        .collect();
    writeln!(open, "{} {media}", expires.as_secs())?;
    open.write_all(&kept.bytes)?;
    drop(open);
    std::fs::rename(&temporary, file)
}
