//! What is asked of the system, always from the handle of a directory and a single name. No call here follows a symbolic
//! link, and none is given a path of more than one name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, statat,
};
use rustix::io::Errno;

use super::refusal::Refusal;

/// For directories on the way: to look further from there takes no right to list them.
#[cfg(target_os = "linux")]
const ON_THE_WAY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const ON_THE_WAY: OFlags = OFlags::RDONLY;

/// A directory that an operator has named: its path is trusted, and links in it are followed.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        path,
        ON_THE_WAY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// What has a name, in a directory. `None` if nothing has.
pub(super) fn look(dir: impl AsFd, name: &OsStr) -> Result<Option<Stat>, Refusal> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Steps into a directory.
pub(super) fn enter(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Refusal> {
    open_dir(dir, name, ON_THE_WAY)
}

/// Opens a directory to list it.
pub(super) fn open_to_list(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Refusal> {
    open_dir(dir, name, OFlags::RDONLY)
}

fn open_dir(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Refusal> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty()).map_err(|errno| match errno {
        // It was a directory when it was looked at.
        Errno::NOTDIR | Errno::LOOP => Refusal::Changed,
        errno => errno.into(),
    })?;
    if fstat(&opened)?.st_dev != fstat(dir)?.st_dev && is_of_kernel(&opened) {
        return Err(Refusal::Kernel);
    }
    Ok(opened)
}

/// Opens a regular file to read it. Nothing else is ever waited for: neither the other end of a pipe, nor a device.
pub(super) fn open_file(dir: impl AsFd, name: &OsStr) -> Result<(File, Stat), Refusal> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP => Refusal::Changed,
        Errno::NXIO => Refusal::NotRegular,
        errno => errno.into(),
    })?;
    let stat = fstat(&opened)?;
    match kind(&stat) {
        FileType::RegularFile => Ok((File::from(opened), stat)),
        FileType::Directory => Err(Refusal::IsDirectory),
        _ => Err(Refusal::NotRegular),
    }
}

/// What a symbolic link says.
pub(super) fn read_link(dir: impl AsFd, name: &OsStr) -> Result<Vec<u8>, Refusal> {
    let target = readlinkat(dir, name, Vec::new()).map_err(|errno| match errno {
        // It was a link when it was looked at.
        Errno::INVAL | Errno::NOENT => Refusal::Changed,
        errno => errno.into(),
    })?;
    Ok(target.into_bytes())
}

/// Makes a directory, unless something is there.
pub(super) fn make_dir(dir: impl AsFd, name: &OsStr) -> Result<(), Refusal> {
    match mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        // Somebody else made it just now, or it is looked at again and found to be something else.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// An entry of a directory, and what it is.
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: FileType,
}

/// Reads the entries of a directory, in no order: at most so many, and whether there are more.
pub(super) fn entries(
    opened: &OwnedFd,
    max: usize,
    mut go_on: impl FnMut() -> Result<(), crate::catalog::ToolError>,
) -> Result<(Vec<Entry>, bool), ListError> {
    let mut found = Vec::new();
    for entry in Dir::read_from(opened).map_err(Refusal::of)? {
        let entry = entry.map_err(Refusal::of)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if found.len() == max {
            return Ok((found, true));
        }
        if found.len().is_multiple_of(256) {
            go_on()?;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => look(opened, name)?.map_or(FileType::Unknown, |stat| kind(&stat)),
            kind => kind,
        };
        found.push(Entry {
            name: name.to_owned(),
            kind,
        });
    }
    Ok((found, false))
}

/// Why a directory was not listed to its end.
pub(super) enum ListError {
    Refused(Refusal),
    Stopped(crate::catalog::ToolError),
}

impl From<Refusal> for ListError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<crate::catalog::ToolError> for ListError {
    fn from(error: crate::catalog::ToolError) -> Self {
        Self::Stopped(error)
    }
}

impl ListError {
    pub(super) fn at(self, path: &str) -> crate::catalog::ToolError {
        match self {
            Self::Refused(refusal) => refusal.at(path),
            Self::Stopped(error) => error,
        }
    }
}

/// Whether a handle is of a file system on which files are views of the kernel: of processes, their memory and their
/// open files among them, through which everything could be reached.
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
