//! Where large results are kept.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;

use super::s3::S3;

/// Something that is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) bytes: Arc<[u8]>,
    pub(super) media: String,
    pub(super) expires: SystemTime,
}

#[derive(Debug)]
pub(super) enum Store {
    Memory { kept: Mutex<Memory>, total: u64 },
    Folder { folder: PathBuf, total: u64 },
    S3(Box<S3>),
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: HashMap<[u8; 16], Kept>,
    /// From old to new.
    order: VecDeque<[u8; 16]>,
    bytes: u64,
}

/// Longest line in front of what a file holds.
const HEAD_MAX: usize = 512;

impl Store {
    pub(super) fn open(folder: Option<&Path>, total: u64) -> io::Result<Self> {
        Ok(match folder {
            None => Self::Memory {
                kept: Mutex::default(),
                total,
            },
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                Self::Folder {
                    folder: folder.to_owned(),
                    total,
                }
            }
        })
    }

    pub(super) async fn put(&self, key: [u8; 16], kept: Kept, now: SystemTime) -> io::Result<()> {
        let size = kept.bytes.len() as u64;
        match self {
            Self::Memory {
                kept: memory,
                total,
            } => {
                if *total < size {
                    return Err(too_large());
                }
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                while *total < memory.bytes + size || memory.oldest_has_ended(now) {
                    if !memory.drop_oldest() {
                        break;
                    }
                }
                memory.bytes += size;
                memory.order.push_back(key);
                memory.entries.insert(key, kept);
                Ok(())
            }
            Self::Folder { folder, total } => {
                if *total < clear(folder, now)? + size {
                    return Err(too_large());
                }
                write(&path(folder, key), &kept)
            }
            Self::S3(s3) => s3.put(key, &kept).await.map_err(io::Error::other),
        }
    }

    /// What is kept under a key. `None` if there is nothing.
    ///
    /// # Errors
    ///
    /// Nobody knows, since the store does not answer.
    pub(super) async fn get(&self, key: [u8; 16]) -> io::Result<Option<Kept>> {
        Ok(match self {
            Self::Memory { kept, .. } => {
                let memory = kept.lock().unwrap_or_else(PoisonError::into_inner);
                memory.entries.get(&key).cloned()
            }
            Self::Folder { folder, .. } => read(&path(folder, key)).ok(),
            Self::S3(s3) => s3.get(key).await.map_err(io::Error::other)?,
        })
    }
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
pub(super) fn name_of(key: [u8; 16]) -> String {
    format!("{}.artifact", HEXLOWER.encode(&key))
}

fn path(folder: &Path, key: [u8; 16]) -> PathBuf {
    folder.join(name_of(key))
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

fn read(file: &Path) -> io::Result<Kept> {
    let bytes = std::fs::read(file)?;
    let (expires, media, start) = split(&bytes)?;
    Ok(Kept {
        bytes: bytes[start..].into(),
        media,
        expires,
    })
}

/// Writes beside and renames, so that a file is whole whenever it is read; nobody else may read it.
fn write(file: &Path, kept: &Kept) -> io::Result<()> {
    let temporary = file.with_extension("tmp");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut open = options.open(&temporary)?;
    let expires = kept.expires.duration_since(UNIX_EPOCH).unwrap_or_default();
    let media: String = kept
        .media
        .chars()
        .filter(|c| !c.is_control())
        .take(HEAD_MAX / 8)
        .collect();
    writeln!(open, "{} {media}", expires.as_secs())?;
    open.write_all(&kept.bytes)?;
    drop(open);
    std::fs::rename(&temporary, file)
}
