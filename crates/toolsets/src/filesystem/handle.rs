//! System calls, each relative to a directory handle and with a single name. None of them follows a symbolic link,
//! and none takes a path of several names.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, statat,
};
use rustix::io::Errno;

use super::refusal::{Abort, PathRejection};
use crate::source::builtin::Stop;

/// Flags for intermediate directories: traversing them requires no permission to list them.
#[cfg(target_os = "linux")]
const ON_THE_WAY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const ON_THE_WAY: OFlags = OFlags::RDONLY;

/// Opens a directory that the operator configured. Its path is trusted, and its links are followed.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        path,
        ON_THE_WAY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Returns the metadata of a name in a directory; `None` if it does not exist.
pub(super) fn stat_entry(dir: impl AsFd, name: &OsStr) -> Result<Option<Stat>, PathRejection> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens a subdirectory to traverse it.
pub(super) fn enter(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, PathRejection> {
    open_dir(dir, name, ON_THE_WAY)
}

/// Opens a directory to list it.
pub(super) fn open_to_list(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, PathRejection> {
    open_dir(dir, name, OFlags::RDONLY)
}

fn open_dir(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, PathRejection> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty()).map_err(|errno| match errno {
        // It was a directory when it was checked.
        Errno::NOTDIR | Errno::LOOP => PathRejection::Changed,
        errno => errno.into(),
    })?;
    if fstat(&opened)?.st_dev != fstat(dir)?.st_dev && is_of_kernel(&opened) {
        return Err(PathRejection::Kernel);
    }
    Ok(opened)
}

/// Opens a regular file for reading. Never blocks on a pipe or a device.
pub(super) fn open_file(dir: impl AsFd, name: &OsStr) -> Result<(File, Stat), PathRejection> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP => PathRejection::Changed,
        Errno::NXIO => PathRejection::NotRegular,
        errno => errno.into(),
    })?;
    let stat = fstat(&opened)?;
    match kind(&stat) {
        FileType::RegularFile => Ok((File::from(opened), stat)),
        FileType::Directory => Err(PathRejection::IsDirectory),
        _ => Err(PathRejection::NotRegular),
    }
}

/// Checks that a regular file may be written. The system decides, because modes are only a part of its rules.
pub(super) fn check_writable(dir: impl AsFd, name: &OsStr) -> Result<(), PathRejection> {
    let flags =
        OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        // A program that is running may be replaced, although it cannot be changed.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => Err(PathRejection::NotWritable),
        Err(Errno::NXIO) => Err(PathRejection::NotRegular),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the target of a symbolic link.
pub(super) fn read_link(dir: impl AsFd, name: &OsStr) -> Result<Vec<u8>, PathRejection> {
    let target = readlinkat(dir, name, Vec::new()).map_err(|errno| match errno {
        // It was a link when it was checked.
        Errno::INVAL | Errno::NOENT => PathRejection::Changed,
        errno => errno.into(),
    })?;
    Ok(target.into_bytes())
}

/// Creates a directory unless the name exists.
pub(super) fn make_dir(dir: impl AsFd, name: &OsStr) -> Result<(), PathRejection> {
    match mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        // Another process may have created it just now. The caller checks again what it is.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// An entry of a directory with its type.
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: FileType,
}

/// Reads up to a maximum number of entries of a directory, unsorted. Also returns whether there are more.
pub(super) fn entries(
    opened: &OwnedFd,
    max: usize,
    stop: &Stop,
) -> Result<(Vec<Entry>, bool), Abort> {
    let mut found = Vec::new();
    for entry in Dir::read_from(opened).map_err(PathRejection::of)? {
        let entry = entry.map_err(PathRejection::of)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if found.len() == max {
            return Ok((found, true));
        }
        if found.len().is_multiple_of(256) {
            stop.check()?;
        }
        let kind = match entry.file_type() {
            // Some file systems do not report the type.
            FileType::Unknown => {
                stat_entry(opened, name)?.map_or(FileType::Unknown, |stat| kind(&stat))
            }
            kind => kind,
        };
        found.push(Entry {
            name: name.to_owned(),
            kind,
        });
    }
    Ok((found, false))
}

/// Returns true if a handle is on a kernel file system such as procfs. Its files expose processes with their memory
/// and open files, and would give access to everything.
pub(super) fn is_of_kernel(handle: impl AsFd) -> bool {
    #[cfg(target_os = "linux")]
    {
        const PROC: u64 = 0x9fa0;
        const SYS: u64 = 0x6265_6572;
        const DEBUG: u64 = 0x6462_6720;
        const TRACE: u64 = 0x7472_6163;
        const SECURITY: u64 = 0x7363_6673;
        const CGROUP: u64 = 0x0027_e0eb;
        const CGROUP2: u64 = 0x6367_7270;
        rustix::fs::fstatfs(handle).is_ok_and(|found| {
            let kind = u64::try_from(found.f_type).unwrap_or_default();
            [PROC, SYS, DEBUG, TRACE, SECURITY, CGROUP, CGROUP2].contains(&kind)
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = handle;
        false
    }
}
