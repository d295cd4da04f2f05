//! `git_add` and `git_reset`.

use std::collections::BTreeSet;
use std::path::Path;

use gix::bstr::{BStr, BString, ByteSlice};
use gix::index::entry::Stat;
use gix::state::InProgress;

use super::commit::{check_no_autostash, end_merge};
use super::index::{Files, Index, IndexEntry};
use super::repository::{OpenRepository, ResultContext};
use super::tree::{Version, is_path};
use super::worktree::{Content, FileKind, Worktree};
use crate::catalog::ToolError;

/// Maximum number of paths in one call.
const NAMED_MAX: usize = 10_000;

pub(super) fn add(place: &OpenRepository<'_>, files: &[String]) -> Result<String, ToolError> {
    if files.is_empty() {
        return Err(ToolError::new(
            "No files provided to stage. Pass one or more paths, or ['.'] to stage everything.",
        ));
    }
    if NAMED_MAX < files.len() {
        return Err(ToolError::new(format!(
            "at most {NAMED_MAX} paths can be named in one call"
        )));
    }
    let worktree = place.worktree()?;
    let lock = place.lock_index()?;
    let index = place.index()?;
    index.check_writable()?;
    let root = place.repository.workdir().unwrap_or(Path::new(""));
    let paths: Result<BTreeSet<BString>, ToolError> =
        files.iter().map(|file| relative(file, root)).collect();
    let paths = paths?;
    let untracked: BTreeSet<BString> = place
        .untracked(&index, &worktree, false)?
        .into_iter()
        .collect();
    let wanted = wanted(&paths, &index, &untracked, &worktree)?;

    let mut staged = index.staged.clone();
    let mut is_changed = false;
    let mut content = Files::new(place, &index, &worktree)?;
    for path in wanted {
        place.stop.check()?;
        let before = index.staged.get(&path);
        if before.is_some_and(|staged| staged.is_assumed) {
            continue;
        }
        let version = content.version(path.as_bstr(), before)?;
        let is_undecided =
            index.conflicts.contains_key(&path) || index.intended.contains_key(&path);
        if !is_undecided && version == before.map(|staged| staged.version) {
            continue;
        }
        is_changed = true;
        match content.content(path.as_bstr(), before)? {
            None => {
                staged.remove(&path);
            }
            Some(Content { mode, stat, bytes }) => {
                let id = place
                    .repository
                    .write_blob(&bytes)
                    .doing("store a file's content")?
                    .detach();
                make_room(&mut staged, &path);
                staged.insert(path, IndexEntry::new(Version { mode, id }, stat));
            }
        }
    }
    if !is_changed {
        return Ok("No changes were staged: the given paths had nothing new to stage. git_status shows what is \
                   modified or untracked."
            .to_owned());
    }
    lock.write(place, &staged, &index, &|path| {
        covering(&paths, path).next().is_none()
    })?;
    Ok("Files staged successfully".to_owned())
}

/// Returns the paths that the names match.
fn wanted(
    named: &BTreeSet<BString>,
    index: &Index,
    untracked: &BTreeSet<BString>,
    worktree: &Worktree,
) -> Result<BTreeSet<BString>, ToolError> {
    let mut wanted = BTreeSet::new();
    let mut unmatched: BTreeSet<&BStr> = named.iter().map(|name| name.as_bstr()).collect();
    unmatched.remove(BStr::new(""));
    let tracked = index.staged.keys().chain(index.conflicts.keys());
    let all = tracked
        .chain(index.intended.keys())
        .chain(untracked.iter().filter(|path| !path.ends_with(b"/")));
    for path in all {
        let mut names = covering(named, path.as_bstr()).peekable();
        if names.peek().is_some() {
            wanted.insert(path.clone());
        }
        for name in names {
            unmatched.remove(name);
        }
    }
    if let Some(name) = unmatched.first() {
        let kind = worktree.find(name).doing("look at a file")?;
        let mut as_folder = (*name).to_owned();
        as_folder.push(b'/');
        return Err(ToolError::new(match kind {
            None => format!("pathspec '{name}' did not match any files"),
            Some(_) if untracked.contains(&as_folder) => {
                format!("'{name}' is a repository of its own, and cannot be added")
            }
            Some(FileKind::Folder) => {
                format!("nothing to add in '{name}'; its files may be ignored")
            }
            Some(_) => {
                format!("'{name}' is ignored by the repository's .gitignore, and is not added")
            }
        }));
    }
    Ok(wanted)
}

/// Returns the names that a path equals or is below. The empty name covers the whole working tree.
fn covering<'p>(named: &BTreeSet<BString>, path: &'p BStr) -> impl Iterator<Item = &'p BStr> {
    let folders = path.find_iter("/").map(|at| path[..at].as_bstr());
    let names = folders.chain([BStr::new(""), path]);
    names.filter(|name| named.contains(*name))
}

/// Returns the part of an absolute path below the root, which can be written with other symbolic links.
fn beneath<'p>(path: &'p Path, root: &Path) -> Option<&'p Path> {
    if let Ok(rest) = path.strip_prefix(root) {
        return Some(rest);
    }
    let is_root = |folder: &&Path| std::fs::canonicalize(folder).is_ok_and(|real| real == root);
    let folder = path.ancestors().find(is_root)?;
    path.strip_prefix(folder).ok()
}

/// Converts a caller's path to one relative to the root of the working tree.
fn relative(file: &str, root: &Path) -> Result<BString, ToolError> {
    let outside = || {
        ToolError::new(format!(
            "Path '{file}' is outside the repository '{}'",
            root.display()
        ))
    };
    let path = Path::new(file);
    let path = if path.is_absolute() {
        beneath(path, root).ok_or_else(outside)?
    } else {
        path
    };
    let mut steps: Vec<&str> = Vec::new();
    for step in path.components() {
        match step {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                steps.pop().ok_or_else(outside)?;
            }
            std::path::Component::Normal(name) => steps.push(name.to_str().ok_or_else(outside)?),
            _ => return Err(outside()),
        }
    }
    let relative = BString::from(steps.join("/"));
    if !relative.is_empty() && !is_path(relative.as_bstr()) {
        return Err(ToolError::new(format!(
            "'{file}' is not a path that can be added"
        )));
    }
    Ok(relative)
}

/// Removes entries that conflict with a new path: a file in place of one of its folders, or files in a folder of its
/// name.
fn make_room(staged: &mut std::collections::BTreeMap<BString, IndexEntry>, path: &BString) {
    for at in path.find_iter("/") {
        staged.remove(path[..at].as_bstr());
    }
    let mut within = path.clone();
    within.push(b'/');
    let beneath: Vec<BString> = staged
        .range(within.clone()..)
        .take_while(|(other, _)| other.starts_with(&within))
        .map(|(other, _)| other.clone())
        .collect();
    for other in beneath {
        staged.remove(&other);
    }
}

/// Resets the index to the last commit. As in Git, a merge in progress ends: the next commit would otherwise record
/// the merged commits as parents, without their content.
pub(super) fn reset(place: &OpenRepository<'_>) -> Result<String, ToolError> {
    let is_merging = place.repository.state() == Some(InProgress::Merge);
    if is_merging {
        check_no_autostash(place)?;
    }
    let lock = place.lock_index()?;
    let index = place.index()?;
    index.check_writable()?;
    let entries = place.flat(place.head_tree()?)?;
    let staged = entries
        .into_iter()
        .map(|(path, version)| {
            let staged = match index.staged.get(&path) {
                Some(staged) if staged.version == version => *staged,
                _ => IndexEntry::new(version, Stat::default()),
            };
            (path, staged)
        })
        .collect();
    lock.write(place, &staged, &index, &|_| false)?;
    if is_merging {
        end_merge(place);
    }
    Ok("All staged changes reset".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_covered_by_its_own_name_and_those_of_its_folders() {
        let named: BTreeSet<BString> = ["a/b", "a/b/c", "d", "a/bc"].map(BString::from).into();
        let of = |path: &str| -> Vec<String> {
            covering(&named, path.into())
                .map(|name| name.to_string())
                .collect()
        };
        assert_eq!(of("a/b/c"), ["a/b", "a/b/c"]);
        assert_eq!(of("a/b/c/d"), ["a/b", "a/b/c"]);
        assert_eq!(of("a/bcd"), [""; 0]);
        assert_eq!(of("dd"), [""; 0]);
        let all = BTreeSet::from([BString::default()]);
        assert_eq!(covering(&all, "a/b".into()).count(), 1);
    }
}
