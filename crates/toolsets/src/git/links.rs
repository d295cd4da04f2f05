//! Symbolic links, pipes and devices among a repository's own files.
//!
//! Git follows links to references, logs and objects, also when it writes. A prepared repository could thus make the
//! server append to, or create, a file somewhere else. Opening a named pipe or a device can block forever.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::repository::ResultContext;
use crate::catalog::ToolError;
use crate::source::builtin::Stop;

/// Maximum number of files that are examined.
const FILES_MAX: usize = 2_000_000;

/// Returns true if all links in some folders, and in the folders that these links lead to, are inside. `inside`
/// returns the real path of a link if it is.
///
/// # Errors
///
/// A folder cannot be listed, or has a pipe or a device in it.
pub(super) fn are_inside(
    folders: &[PathBuf],
    inside: impl Fn(&Path) -> Option<PathBuf>,
    stop: &Stop,
) -> Result<bool, ToolError> {
    let mut left = Vec::new();
    for folder in folders {
        if fs::symlink_metadata(folder).is_ok() {
            let Some(real) = inside(folder) else {
                return Ok(false);
            };
            left.push(real);
        }
    }
    let mut seen = HashSet::new();
    let mut examined = 0;
    while let Some(folder) = left.pop() {
        stop.check()?;
        if !seen.insert(folder.clone()) {
            continue;
        }
        let entries = match fs::read_dir(&folder) {
            // It was removed meanwhile, or the link leads to a file.
            Err(error) if is_no_folder(&error) => {
                check_kind(&folder)?;
                continue;
            }
            entries => entries.doing("list the repository's files")?,
        };
        for entry in entries {
            let entry = entry.doing("list the repository's files")?;
            examined += 1;
            if FILES_MAX < examined {
                return Err(ToolError::new(format!(
                    "the repository consists of more than {FILES_MAX} files; run git gc"
                )));
            }
            let kind = entry.file_type().doing("list the repository's files")?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_symlink() {
                let Some(real) = inside(&entry.path()) else {
                    return Ok(false);
                };
                left.push(real);
            } else if !kind.is_file() {
                check_kind(&entry.path())?;
            }
        }
    }
    Ok(true)
}

/// Rejects a folder whose own files include a pipe or a device, as links too.
pub(super) fn check_kinds(folder: &Path) -> Result<(), ToolError> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if !entry
            .file_type()
            .is_ok_and(|kind| kind.is_file() || kind.is_dir())
        {
            check_kind(&entry.path())?;
        }
    }
    Ok(())
}

fn check_kind(path: &Path) -> Result<(), ToolError> {
    let blocks =
        |kind: fs::FileType| kind.is_fifo() || kind.is_char_device() || kind.is_block_device();
    match fs::metadata(path).is_ok_and(|found| blocks(found.file_type())) {
        false => Ok(()),
        true => Err(ToolError::new(
            "the repository has a named pipe or a device among its own files, which is not read; remove it",
        )),
    }
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Returns the files that parts of a split index are in.
pub(super) fn shared_indexes(git_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(git_dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().starts_with(b"sharedindex.")
        })
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_found_at_any_depth_and_behind_other_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("there");
        let (root, refs) = (base.join("root"), base.join("root/refs"));
        fs::create_dir_all(refs.join("heads/a/b")).expect("made");
        fs::create_dir_all(root.join("shared/c")).expect("made");
        fs::create_dir(base.join("outside")).expect("made");
        let check = || {
            let inside = |path: &Path| {
                let real = fs::canonicalize(path).ok()?;
                real.starts_with(&root).then_some(real)
            };
            are_inside(&[refs.clone(), root.join("none")], inside, &Stop::never()).expect("listed")
        };
        assert!(check());
        // Links that stay inside are followed, and circles come to an end.
        symlink("../../../shared", refs.join("heads/a/link")).expect("linked");
        symlink("..", refs.join("heads/a/circle")).expect("linked");
        symlink("../../shared", root.join("shared/c/again")).expect("linked");
        assert!(check());
        for target in ["../../../outside", "/etc/passwd", "nowhere"] {
            for place in ["refs/heads/a/b/out", "shared/c/out"] {
                symlink(target, root.join(place)).expect("linked");
                assert!(!check(), "{place} -> {target}");
                fs::remove_file(root.join(place)).expect("removed");
            }
        }
        assert!(check());
    }

    #[test]
    fn pipes_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("there");
        let refs = base.join("refs/heads");
        fs::create_dir_all(&refs).expect("made");
        let check = || {
            let inside = |path: &Path| fs::canonicalize(path).ok();
            let walked = are_inside(std::slice::from_ref(&refs), inside, &Stop::never());
            (walked.is_ok(), check_kinds(&base).is_ok())
        };
        fs::write(base.join("HEAD"), "ref: refs/heads/main").expect("written");
        assert_eq!(check(), (true, true));
        let pipe = |path: PathBuf| {
            let mode = rustix::fs::Mode::RUSR;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("made");
        };
        pipe(base.join("FETCH_HEAD"));
        assert_eq!(check(), (true, false));
        symlink("../../FETCH_HEAD", refs.join("main")).expect("linked");
        assert_eq!(check(), (false, false));
        fs::remove_file(refs.join("main")).expect("removed");
        fs::rename(base.join("FETCH_HEAD"), refs.join("main")).expect("moved");
        assert_eq!(check(), (false, true));
        fs::rename(refs.join("main"), base.join("pipe")).expect("moved");
        symlink("pipe", base.join("config")).expect("linked");
        assert_eq!(check(), (true, false));
    }
}
