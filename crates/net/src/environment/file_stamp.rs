//! State of a file, by which changes are noticed.

use std::path::Path;
use std::time::SystemTime;

/// Modification time, length and inode of a file. Files of mounted images and archives can all have the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl FileStamp {
    /// Returns the current state of a file. Links are followed. `None` if the file is missing or not accessible.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self {
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            inode,
        })
    }
}
