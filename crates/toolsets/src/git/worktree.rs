//! Files of a working tree, accessed through folder handles.
//!
//! Every step starts from the handle of the parent folder and never follows a symbolic link. Reads and writes thus
//! stay inside the working tree, whatever changes meanwhile.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use gix::bstr::{BStr, BString, ByteSlice};
use gix::index::entry::{Stat, stat::Time};
use rustix::fs::{AtFlags, FileType, Mode as Permissions, OFlags, RawMode};
use rustix::io::Errno;

use super::repository::ResultContext;
use super::tree::Mode;
use crate::catalog::ToolError;

#[derive(Debug)]
pub(super) struct Worktree {
    root: Rc<OwnedFd>,
    /// The most recently used folder; files are mostly accessed in order.
    last: RefCell<Option<(BString, Rc<OwnedFd>)>>,
}

/// Kind of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Tracked {
        mode: Mode,
        stat: Stat,
    },
    Folder,
    /// A pipe, a socket or a device, which Git does not track.
    Other,
}

/// A file's content, with its metadata from when it was opened.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) mode: Mode,
    pub(super) stat: Stat,
    pub(super) bytes: Vec<u8>,
}

impl Worktree {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, FOLDER, Permissions::empty())?;
        Ok(Self {
            root: Rc::new(root),
            last: RefCell::default(),
        })
    }

    /// Examines a path. Returns `None` if a component is missing, or is not a folder.
    pub(super) fn find(&self, path: &BStr) -> io::Result<Option<FileKind>> {
        let Some((folder, name)) = self.parent(path)? else {
            return Ok(None);
        };
        let stat = rustix::fs::statat(&*folder, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
        Ok(if_present(stat)?.map(|stat| found(&stat)))
    }

    /// Reads a file, or the target of a link. Returns `None` if the path is neither; an error if it is larger than
    /// `max` bytes.
    pub(super) fn read(&self, path: &BStr, max: usize) -> io::Result<Option<Content>> {
        let Some(FileKind::Tracked { mode, stat }) = self.find(path)? else {
            return Ok(None);
        };
        if mode == Mode::Link {
            let Some((folder, name)) = self.parent(path)? else {
                return Ok(None);
            };
            let target = rustix::fs::readlinkat(&*folder, name.as_bytes(), Vec::new());
            return Ok(if_present(target)?.map(|target| Content {
                mode,
                stat,
                bytes: target.into_bytes(),
            }));
        }
        let Some(file) = self.file(path)? else {
            return Ok(None);
        };
        let FileKind::Tracked { mode, stat } = found(&rustix::fs::fstat(&file)?) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit).read_to_end(&mut bytes)?;
        if max < bytes.len() {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the file is too large",
            ));
        }
        Ok(Some(Content { mode, stat, bytes }))
    }

    /// Returns true if the nearest existing path above a missing one is a folder.
    pub(super) fn is_below_folder(&self, path: &BStr) -> io::Result<bool> {
        let mut rest = split(path).0;
        while !rest.is_empty() {
            match self.find(rest)? {
                Some(FileKind::Folder) => return Ok(true),
                Some(_) => return Ok(false),
                None => rest = split(rest).0,
            }
        }
        Ok(true)
    }

    /// Checks that a file with rules (`.gitignore`, `.gitattributes`) can be read whole, if a folder has one. The library
    /// opens these files by their names, which can block forever for a pipe or a device.
    pub(super) fn check_rules(
        &self,
        folder: &BStr,
        name: &str,
        max: usize,
    ) -> Result<(), ToolError> {
        // Formatting would replace bytes that are not UTF-8.
        let mut path = folder.to_owned();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let Some((folder, name)) = self.parent(path.as_bstr()).doing("look at a folder")? else {
            return Ok(());
        };
        let stat = rustix::fs::statat(&*folder, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
        let Some(stat) = if_present(stat).doing("look at a file")? else {
            return Ok(());
        };
        let problem = match FileType::from_raw_mode(stat.st_mode as RawMode) {
            FileType::RegularFile
                if usize::try_from(stat.st_size).is_ok_and(|size| size <= max) =>
            {
                return Ok(());
            }
            FileType::RegularFile => format!("has more than {max} bytes"),
            // Links are not followed.
            FileType::Symlink | FileType::Directory => return Ok(()),
            _ => "is a pipe or a device".to_owned(),
        };
        Err(ToolError::new(format!(
            "the file '{path}' {problem}, and is not read; remove it"
        )))
    }

    /// Opens a file of any size for streaming.
    pub(super) fn file(&self, path: &BStr) -> io::Result<Option<File>> {
        let Some((folder, name)) = self.parent(path)? else {
            return Ok(None);
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*folder, name.as_bytes(), flags, Permissions::empty());
        Ok(if_present(file)?.map(File::from))
    }

    /// Replaces a path with a file or a link. Missing folders are created.
    pub(super) fn write(&self, path: &BStr, mode: Mode, bytes: &[u8]) -> io::Result<Stat> {
        let (folder, name) = self.made_parent(path)?;
        let random = getrandom::u64().map_err(io::Error::other)?;
        let temporary = format!(".longshore-{random:016x}");
        let permissions = match mode {
            Mode::Executable => Permissions::from_raw_mode(0o777),
            _ => Permissions::from_raw_mode(0o666),
        };
        let placed = (|| {
            if mode == Mode::Link {
                rustix::fs::symlinkat(bytes, &*folder, temporary.as_str())?;
            } else {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&*folder, temporary.as_str(), flags, permissions)?;
                File::from(file).write_all(bytes)?;
            }
            rustix::fs::renameat(&*folder, temporary.as_str(), &*folder, name.as_bytes())?;
            let stat = rustix::fs::statat(&*folder, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok::<_, io::Error>(stat_of(&stat))
        })();
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&*folder, temporary.as_str(), AtFlags::empty());
        }
        placed
    }

    /// Creates a folder unless the path exists.
    pub(super) fn make_folder(&self, path: &BStr) -> io::Result<()> {
        let (folder, name) = self.made_parent(path)?;
        match rustix::fs::mkdirat(&*folder, name.as_bytes(), Permissions::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns all files below a folder; an error if there are more than `max`.
    pub(super) fn beneath(&self, path: &BStr, max: usize) -> io::Result<Vec<BString>> {
        let mut found = Vec::new();
        let mut folders = vec![path.to_owned()];
        while let Some(folder) = folders.pop() {
            let Some((handle, name)) = self.parent(folder.as_bstr())? else {
                continue;
            };
            let handle =
                rustix::fs::openat(&*handle, name.as_bytes(), FOLDER, Permissions::empty());
            let Some(handle) = if_present(handle)? else {
                continue;
            };
            for entry in rustix::fs::Dir::read_from(&handle)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                if max == found.len() + folders.len() {
                    return Err(io::Error::other("too many files"));
                }
                let mut path = folder.clone();
                path.push(b'/');
                path.extend_from_slice(name);
                if entry.file_type() == FileType::Directory {
                    folders.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        Ok(found)
    }

    /// Removes a file or a link, and the folders that are then empty.
    pub(super) fn remove(&self, path: &BStr) -> io::Result<()> {
        let Some((folder, name)) = self.parent(path)? else {
            return Ok(());
        };
        if_present(rustix::fs::unlinkat(
            &*folder,
            name.as_bytes(),
            AtFlags::empty(),
        ))?;
        self.last.replace(None);
        let mut rest = path;
        while let Some(at) = rest.rfind_byte(b'/') {
            rest = rest[..at].as_bstr();
            let Some((folder, name)) = self.parent(rest)? else {
                break;
            };
            // This fails for the first folder that is not empty, where the cleanup ends.
            if rustix::fs::unlinkat(&*folder, name.as_bytes(), AtFlags::REMOVEDIR).is_err() {
                break;
            }
            self.last.replace(None);
        }
        Ok(())
    }

    /// Returns the folder of a path's last component, and that component.
    fn parent<'p>(&self, path: &'p BStr) -> io::Result<Option<(Rc<OwnedFd>, &'p BStr)>> {
        let (folder, name) = split(path);
        check_step(name)?;
        if folder.is_empty() {
            return Ok(Some((Rc::clone(&self.root), name)));
        }
        if let Some((last, handle)) = &*self.last.borrow()
            && last == folder
        {
            return Ok(Some((Rc::clone(handle), name)));
        }
        let mut handle = Rc::clone(&self.root);
        for step in folder.split_str("/") {
            check_step(step)?;
            let next = rustix::fs::openat(&*handle, step, FOLDER, Permissions::empty());
            let Some(next) = if_present(next)? else {
                return Ok(None);
            };
            handle = Rc::new(next);
        }
        self.last
            .replace(Some((folder.to_owned(), Rc::clone(&handle))));
        Ok(Some((handle, name)))
    }

    fn made_parent<'p>(&self, path: &'p BStr) -> io::Result<(Rc<OwnedFd>, &'p BStr)> {
        let (folder, name) = split(path);
        check_step(name)?;
        let mut handle = Rc::clone(&self.root);
        for step in folder.split_str("/").filter(|step| !step.is_empty()) {
            check_step(step)?;
            match rustix::fs::mkdirat(handle.as_fd(), step, Permissions::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            handle = Rc::new(rustix::fs::openat(
                &*handle,
                step,
                FOLDER,
                Permissions::empty(),
            )?);
        }
        Ok((handle, name))
    }
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn split(path: &BStr) -> (&BStr, &BStr) {
    match path.rfind_byte(b'/') {
        Some(at) => (path[..at].as_bstr(), path[at + 1..].as_bstr()),
        None => (b"".as_bstr(), path),
    }
}

/// Checks a path component again where it is used, although paths are checked on input.
fn check_step(step: &[u8]) -> io::Result<()> {
    let is_sound = !matches!(step, b"" | b"." | b"..")
        && !step.eq_ignore_ascii_case(b".git")
        && !step.contains(&b'/')
        && !step.contains(&0);
    if is_sound {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path leads out of the working tree",
        ))
    }
}

/// Returns `None` if the path is missing, or a component is a file or a link.
fn if_present<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn found(stat: &rustix::fs::Stat) -> FileKind {
    let raw = stat.st_mode as RawMode;
    let mode = match FileType::from_raw_mode(raw) {
        FileType::RegularFile if raw & 0o100 != 0 => Mode::Executable,
        FileType::RegularFile => Mode::File,
        FileType::Symlink => Mode::Link,
        FileType::Directory => return FileKind::Folder,
        _ => return FileKind::Other,
    };
    FileKind::Tracked {
        mode,
        stat: stat_of(stat),
    }
}

/// Converts metadata to the index format, which keeps the low 32 bits of each value.
#[allow(
    clippy::unnecessary_cast,
    reason = "the types differ from system to system"
)]
fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    Stat {
        mtime: Time {
            secs: stat.st_mtime as u32,
            nsecs: stat.st_mtime_nsec as u32,
        },
        ctime: Time {
            secs: stat.st_ctime as u32,
            nsecs: stat.st_ctime_nsec as u32,
        },
        dev: stat.st_dev as u32,
        ino: stat.st_ino as u32,
        uid: stat.st_uid as u32,
        gid: stat.st_gid as u32,
        size: stat.st_size as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_reached_through_a_link_or_outside() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(tree.join("real")).expect("made");
        std::fs::create_dir(folder.path().join("out")).expect("made");
        std::fs::write(folder.path().join("out/secret"), "s").expect("written");
        std::fs::write(tree.join("real/file"), "f").expect("written");
        symlink("../out", tree.join("link")).expect("linked");
        symlink("../out/secret", tree.join("straight")).expect("linked");
        let worktree = Worktree::open(&tree).expect("open");
        let read = |path: &str| worktree.read(path.into(), 100);

        assert_eq!(read("real/file").expect("read").expect("there").bytes, b"f");
        let link = read("straight").expect("read").expect("there");
        assert_eq!(
            (link.mode, &*link.bytes),
            (Mode::Link, &b"../out/secret"[..])
        );
        assert!(read("link/secret").expect("read").is_none());
        assert!(
            worktree
                .find("link/secret".into())
                .expect("looked")
                .is_none()
        );
        for outside in [
            "../out/secret",
            "real/../../out/secret",
            "./real/file",
            "real//file",
            ".git/config",
        ] {
            assert!(read(outside).is_err(), "{outside}");
        }
        worktree
            .write("link/secret".into(), Mode::File, b"x")
            .expect_err("through a link");
        worktree
            .write("../new".into(), Mode::File, b"x")
            .expect_err("outside");
        assert_eq!(
            std::fs::read(folder.path().join("out/secret")).expect("read"),
            b"s"
        );

        // A link that stands where a file is to be is replaced, and not followed.
        worktree
            .write("straight".into(), Mode::File, b"x")
            .expect("written");
        assert_eq!(
            std::fs::read(folder.path().join("out/secret")).expect("read"),
            b"s"
        );
        assert_eq!(std::fs::read(tree.join("straight")).expect("read"), b"x");
    }

    #[test]
    fn folders_are_made_and_taken_away_as_needed() {
        let folder = tempfile::tempdir().expect("a folder");
        let worktree = Worktree::open(folder.path()).expect("open");
        worktree
            .write("a/b/c".into(), Mode::Executable, b"1")
            .expect("written");
        worktree
            .write("a/d".into(), Mode::Link, b"b/c")
            .expect("written");
        let content = worktree
            .read("a/b/c".into(), 1)
            .expect("read")
            .expect("there");
        assert_eq!(
            (content.mode, &*content.bytes),
            (Mode::Executable, &b"1"[..])
        );
        worktree.read("a/b/c".into(), 0).expect_err("too large");
        worktree.remove("a/b/c".into()).expect("removed");
        assert!(!folder.path().join("a/b").exists());
        assert!(folder.path().join("a/d").is_symlink());
        worktree.remove("a/d".into()).expect("removed");
        assert!(!folder.path().join("a").exists());
        assert!(folder.path().exists());
        worktree.remove("a/d".into()).expect("it is gone already");
    }

    #[test]
    fn files_with_rules_are_regular_and_not_too_large() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().join(path);
        let worktree = Worktree::open(folder.path()).expect("open");
        let check = |of: &str| worktree.check_rules(of.into(), ".gitignore", 10);
        std::fs::create_dir_all(at("a/b")).expect("made");
        for of in ["", "a", "a/b", "none", "none/either"] {
            assert!(check(of).is_ok(), "{of}");
        }
        std::fs::write(at(".gitignore"), "0123456789").expect("written");
        assert!(check("").is_ok());
        std::fs::write(at(".gitignore"), "0123456789+").expect("written");
        let large = check("").expect_err("large");
        assert!(
            large.message().contains("more than 10 bytes"),
            "{}",
            large.message()
        );
        let kind = FileType::Fifo;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("a/.gitignore"),
            kind,
            Permissions::RUSR,
            0,
        )
        .expect("made");
        let pipe = check("a").expect_err("a pipe");
        assert!(
            pipe.message().contains("'a/.gitignore' is a pipe"),
            "{}",
            pipe.message()
        );
        symlink(at("a/.gitignore"), at("a/b/.gitignore")).expect("linked");
        assert!(check("a/b").is_ok(), "links are not followed");
    }

    #[test]
    fn a_path_is_below_a_folder_if_what_exists_of_it_is_one() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("a/b")).expect("made");
        std::fs::write(folder.path().join("a/file"), "").expect("written");
        symlink("b", folder.path().join("a/link")).expect("linked");
        let worktree = Worktree::open(folder.path()).expect("open");
        let is_below = |path: &str| worktree.is_below_folder(path.into()).expect("looked at");
        for path in ["x", "a/x", "a/b/x", "a/b/x/y/z", "x/y"] {
            assert!(is_below(path), "{path}");
        }
        for path in ["a/file/x", "a/file/x/y", "a/link/x"] {
            assert!(!is_below(path), "{path}");
        }
    }
}
