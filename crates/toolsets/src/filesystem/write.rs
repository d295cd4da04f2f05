//! Atomic changes of files and directories.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::handle;
use super::refusal::{Abort, PathRejection};
use super::resolved_path::{FollowMode, ResolvedPath};
use super::roots::Roots;
use crate::net::Mutex;
use crate::source::builtin::Stop;

/// Resolves a path to write to: a regular file, or a name that does not exist.
pub(super) fn place<'r>(roots: &'r Roots, path: &str) -> Result<ResolvedPath<'r>, PathRejection> {
    let spot = ResolvedPath::find(roots, path, FollowMode::Follow)?;
    if spot.is_free() {
        return Ok(spot);
    }
    let found = spot.found()?;
    match handle::kind(found) {
        FileType::RegularFile if found.st_mode & 0o222 == 0 => Err(PathRejection::ReadOnly),
        FileType::RegularFile => {
            handle::check_writable(spot.dir(), spot.name())?;
            Ok(spot)
        }
        FileType::Directory => Err(PathRejection::IsDirectory),
        _ => Err(PathRejection::NotRegular),
    }
}

/// Replaces a file: writes a temporary file in the same directory and renames it. Readers thus never see a partial
/// file, and other hard links keep the old content. Mode and owner are preserved.
///
/// With `expected`, a file that is not in that state any more is not replaced, and the error is
/// [`PathRejection::Changed`].
pub(super) fn replace(
    spot: &ResolvedPath<'_>,
    content: &[u8],
    expected: Option<&Stat>,
    stop: &Stop,
) -> Result<(), Abort> {
    let dir = spot.dir();
    let before = spot.found().ok();
    let mut beside = Beside::new(dir, before)?;
    for piece in content.chunks(1024 * 1024) {
        stop.check()?;
        beside.file.write_all(piece).map_err(PathRejection::from)?;
    }
    if let Some(before) = before {
        keep_owner_and_mode(&beside.file, before)?;
    }
    beside.file.sync_data().map_err(PathRejection::from)?;
    let inode = rustix::fs::fstat(dir).map_err(PathRejection::of)?.st_ino;
    let lock = usize::try_from(inode).unwrap_or_default() % RENAMES.len();
    let _lock = RENAMES[lock].lock();
    if let Some(expected) = expected {
        let now = handle::stat_entry(dir, spot.name())?;
        if !now.is_some_and(|now| is_same(&now, expected)) {
            return Err(PathRejection::Changed.into());
        }
    }
    renameat(dir, &beside.name, dir, spot.name()).map_err(PathRejection::of)?;
    beside.is_in_place = true;
    Ok(())
}

/// Locks for renames, selected by directory, so that no other call replaces a file between the check of its state and
/// the rename. A directory on a file system that hangs blocks only a part of the others.
static RENAMES: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];

/// A temporary file that replaces another one. It is removed on drop if that does not happen.
struct Beside<'d> {
    dir: BorrowedFd<'d>,
    name: OsString,
    file: File,
    is_in_place: bool,
}

impl<'d> Beside<'d> {
    fn new(dir: BorrowedFd<'d>, before: Option<&Stat>) -> Result<Self, PathRejection> {
        let random = getrandom::u64().map_err(|_| PathRejection::System(Errno::IO))?;
        let name = OsString::from(format!(".longshore-{random:016x}.tmp"));
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        // The replacement of a file with restricted permissions must not be readable by others meanwhile.
        let mode = if before.is_some() { 0o600 } else { 0o666 };
        let file = openat(dir, &name, flags, Mode::from_raw_mode(mode))?;
        Ok(Self {
            dir,
            name,
            file: File::from(file),
            is_in_place: false,
        })
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

fn keep_owner_and_mode(file: &File, before: &Stat) -> Result<(), PathRejection> {
    let now = rustix::fs::fstat(file)?;
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid) {
        let owner = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
        rustix::fs::fchown(file, Some(owner.0), Some(owner.1))
            .map_err(|_| PathRejection::OtherOwner)?;
    }
    let mode = Mode::from_raw_mode(before.st_mode & 0o777);
    Ok(rustix::fs::fchmod(file, mode)?)
}

/// Creates a directory and its missing parents. An existing directory is accepted.
pub(super) fn make_directory(roots: &Roots, path: &str) -> Result<(), PathRejection> {
    let spot = ResolvedPath::find(roots, path, FollowMode::Make)?;
    match handle::kind(spot.found()?) {
        FileType::Directory => Ok(()),
        _ => Err(PathRejection::Exists),
    }
}

/// Reason why something was not moved, and the path that is responsible.
pub(super) enum MoveError {
    Source(PathRejection),
    Destination(PathRejection),
}

/// Moves something to a name that must not exist. A symbolic link is moved itself, unless its target is outside.
pub(super) fn rename(roots: &Roots, source: &str, destination: &str) -> Result<(), MoveError> {
    let from = movable(roots, source).map_err(MoveError::Source)?;
    let to =
        ResolvedPath::find(roots, destination, FollowMode::Stay).map_err(MoveError::Destination)?;
    if !to.is_free() {
        return Err(MoveError::Destination(PathRejection::Exists));
    }
    let moved = match rename_to_free(&from, &to) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => rename_otherwise(&from, &to),
        moved => moved,
    };
    moved.map_err(|errno| match errno {
        Errno::EXIST | Errno::NOTEMPTY => MoveError::Destination(PathRejection::Exists),
        Errno::INVAL => MoveError::Destination(PathRejection::IntoItself),
        Errno::NOENT => MoveError::Source(PathRejection::Changed),
        errno => MoveError::Destination(errno.into()),
    })
}

fn movable<'r>(roots: &'r Roots, source: &str) -> Result<ResolvedPath<'r>, PathRejection> {
    let from = ResolvedPath::find(roots, source, FollowMode::Stay)?;
    let found = from.found()?;
    if from.is_root() || roots.has_below(&from.real_path()) {
        return Err(PathRejection::IsRoot);
    }
    if handle::kind(found) == FileType::Symlink {
        match ResolvedPath::find(roots, source, FollowMode::Follow) {
            Ok(_) | Err(PathRejection::Dangling) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(from)
}

/// Renames atomically, so that a concurrently created target is never overwritten.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_to_free(from: &ResolvedPath<'_>, to: &ResolvedPath<'_>) -> Result<(), Errno> {
    use rustix::fs::{RenameFlags, renameat_with};
    renameat_with(
        from.dir(),
        from.name(),
        to.dir(),
        to.name(),
        RenameFlags::NOREPLACE,
    )
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_to_free(_: &ResolvedPath<'_>, _: &ResolvedPath<'_>) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Renames on file systems without an atomic operation for that. A directory can only replace an empty one. Anything
/// else gets a second hard link, which fails if the name exists, and then loses the first.
fn rename_otherwise(from: &ResolvedPath<'_>, to: &ResolvedPath<'_>) -> Result<(), Errno> {
    let is_dir = from
        .found()
        .is_ok_and(|stat| handle::kind(stat) == FileType::Directory);
    if is_dir {
        return renameat(from.dir(), from.name(), to.dir(), to.name());
    }
    rustix::fs::linkat(
        from.dir().as_fd(),
        from.name(),
        to.dir().as_fd(),
        to.name(),
        AtFlags::empty(),
    )?;
    unlinkat(from.dir(), from.name(), AtFlags::empty())
}

/// Returns true if a file has not changed since it was read.
fn is_same(now: &Stat, before: &Stat) -> bool {
    let of = |stat: &Stat| {
        (
            (stat.st_dev, stat.st_ino),
            stat.st_size,
            (stat.st_mtime, stat.st_mtime_nsec),
        )
    };
    of(now) == of(before)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    /// Returns true if this process has no privileges. Otherwise runs the test in one that has none.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn is_unprivileged(test: &str) -> bool {
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            return true;
        }
        let this = std::env::current_exe().expect("a program");
        let name = format!(
            "{}::{test}",
            module_path!().split_once("::").expect("a module").1
        );
        let mut command = Command::new(this);
        command.args(["--exact", &name]).uid(NOBODY).gid(NOBODY);
        let Ok(output) = command.output() else {
            eprintln!("skipped: another user cannot run this program");
            return false;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        false
    }

    fn write(path: &str, roots: &Roots) -> Result<(), PathRejection> {
        replace(&place(roots, path)?, b"new", None, &Stop::never()).map_err(|error| match error {
            Abort::Refused(refusal) => refusal,
            Abort::Stopped(_) => PathRejection::Changed,
        })
    }

    #[test]
    fn a_file_that_the_user_may_not_write_is_not_replaced() {
        if !is_unprivileged("a_file_that_the_user_may_not_write_is_not_replaced") {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let roots = Roots::open(&[folder.path().to_owned()]).expect("there");
        let path = folder.path().join("file");
        std::fs::write(&path, "old").expect("written");
        for (mode, expected) in [
            (0o444, Err(PathRejection::ReadOnly)),
            // Others may write it, but the owner may not.
            (0o466, Err(PathRejection::NotWritable)),
            (0o640, Ok(())),
        ] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("set");
            assert_eq!(write("file", &roots), expected, "{mode:o}");
            let found = std::fs::metadata(&path).expect("there");
            assert_eq!(found.permissions().mode() & 0o777, mode);
            assert_eq!(found.len(), 3);
        }
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
    }

    #[test]
    fn a_file_whose_owner_cannot_be_preserved_is_not_replaced() {
        if !is_unprivileged("a_file_whose_owner_cannot_be_preserved_is_not_replaced") {
            return;
        }
        let theirs = rustix::fs::stat("/").expect("there");
        let file = tempfile::tempfile().expect("a file");
        let kept = keep_owner_and_mode(&file, &theirs);
        assert_eq!(kept, Err(PathRejection::OtherOwner));
        let ours = rustix::fs::fstat(&file).expect("there");
        assert_eq!(keep_owner_and_mode(&file, &ours), Ok(()));
    }
}
