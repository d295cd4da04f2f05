//! Soft limit of open files for child processes.

use std::sync::OnceLock;

static BEFORE: OnceLock<u64> = OnceLock::new();

/// Records the soft limit of open files before this process raises its own. Child processes begin with it, since programs that
/// use `select`, or look through all file descriptors, cannot cope with a high one.
pub fn keep_open_file_limit(soft: u64) {
    let _ = BEFORE.set(soft);
}

/// Returns the soft limit for child processes, if it is another than that of this process.
#[cfg(feature = "sources")]
pub(super) fn open_file_limit() -> Option<u64> {
    BEFORE.get().copied()
}
