//! `git_checkout`: switches the working tree to another branch or commit without losing changes.
//!
//! Only paths that differ between the two commits are examined. Local changes to other paths stay. If any change
//! would be overwritten, the checkout is rejected before anything is modified.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use gix::ObjectId;
use gix::bstr::{BStr, BString, ByteSlice};
use gix::index::entry::Stat;
use gix::refs::transaction::{Change as RefChange, LogChange, PreviousValue, RefEdit};
use gix::refs::{FullName, Target};

use super::branch::{checked_out, edit_reference};
use super::change::Change;
use super::convert::Converter;
use super::index::{Files, Index, IndexEntry};
use super::repository::{OpenRepository, ResultContext, check_revision, no_option};
use super::tree::{Mode, Version};
use super::worktree::{FileKind, Worktree};
use crate::catalog::ToolError;

/// Error message for a failure after files may have been modified.
const IN_PART: &str = "check it out; the working tree may have been changed in part";
/// Maximum number of paths that a rejection names.
const NAMED_MAX: usize = 20;
/// Maximum size of a file that is written, in bytes.
const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;

pub(super) fn checkout(place: &OpenRepository<'_>, name: &str) -> Result<String, ToolError> {
    no_option("branch name", name)?;
    check_revision(name)?;
    if place.repository.state().is_some() {
        return Err(ToolError::new(
            "a merge, a rebase or the like is in progress; finish it before another branch is checked out",
        ));
    }
    let branch = branch(place, name)?;
    let id = match &branch {
        Some((_, id)) => *id,
        None => place.commit(name)?,
    };
    if let Some((branch, _)) = &branch {
        check_not_elsewhere(place, branch)?;
    }
    let worktree = place.worktree()?;
    let lock = place.lock_index()?;
    let index = place.index()?;
    index.check_writable()?;
    index.check_merged()?;
    let old = place.head_tree()?;
    let changes = place.tree_changes(old, Some(place.tree_of(id)?))?;
    let needed = needed(place, &changes, &index, &worktree)?;

    let mut staged = index.staged.clone();
    for change in needed.iter().filter(|change| change.new.is_none()) {
        let was_submodule = change
            .old
            .is_some_and(|old| old.version.mode == Mode::Submodule);
        if !was_submodule {
            worktree.remove(change.path.as_bstr()).doing(IN_PART)?;
        }
        staged.remove(&change.path);
    }
    let written: Vec<(&BString, Version)> = needed
        .iter()
        .filter_map(|change| Some((&change.path, change.new?.version)))
        .collect();
    // Attribute files come first, because they determine how other files are written.
    let (attributes, others): (Vec<_>, Vec<_>) = written
        .into_iter()
        .partition(|(path, _)| path.rsplit_str("/").next() == Some(b".gitattributes"));
    for group in [attributes, others] {
        let mut writer = Writer::new(place, &worktree)?;
        for (path, version) in group {
            let stat = writer.write(path.as_bstr(), version)?;
            staged.insert(path.clone(), IndexEntry::new(version, stat));
        }
    }
    lock.write(place, &staged, &index, &|_| true)?;
    move_head(place, name, branch.as_ref().map(|(name, _)| name), id)?;
    Ok(match branch {
        Some((branch, _)) => format!("Switched to branch '{}'", branch.shorten()),
        None => format!("HEAD is now detached at {}", id.to_hex_with_len(7)),
    })
}

/// Returns a branch by name, with its commit. A tag can have the same name.
fn branch(
    place: &OpenRepository<'_>,
    name: &str,
) -> Result<Option<(FullName, ObjectId)>, ToolError> {
    let Ok(full) = FullName::try_from(format!("refs/heads/{name}")) else {
        return Ok(None);
    };
    let found = place.repository.try_find_reference(full.as_ref());
    let Some(mut found) = found.doing("look for a branch")? else {
        return Ok(None);
    };
    let id = found.peel_to_id().doing("read a branch")?.detach();
    Ok(Some((full, place.peel(id, gix::objs::Kind::Commit)?)))
}

/// Rejects a branch that is checked out in another working tree of the repository.
fn check_not_elsewhere(place: &OpenRepository<'_>, branch: &FullName) -> Result<(), ToolError> {
    let own = fs::canonicalize(place.repository.git_dir()).ok();
    let is_elsewhere = |(folder, head): &(PathBuf, BString)| {
        head.as_bstr() == branch.as_bstr() && fs::canonicalize(folder).ok() != own
    };
    if checked_out(place)?.iter().any(is_elsewhere) {
        return Err(ToolError::new(format!(
            "'{}' is checked out in another working tree of this repository",
            branch.shorten()
        )));
    }
    Ok(())
}

/// Returns the changes to make, if they overwrite nothing.
fn needed<'c>(
    place: &OpenRepository<'_>,
    changes: &'c [Change],
    index: &Index,
    worktree: &Worktree,
) -> Result<Vec<&'c Change>, ToolError> {
    let mut files = Files::new(place, index, worktree)?;
    let removed: BTreeSet<&BString> = changes
        .iter()
        .filter(|change| change.old.is_some() && change.new.is_none())
        .map(|change| &change.path)
        .collect();
    let mut needed = Vec::new();
    let mut lost: BTreeSet<BString> = BTreeSet::new();
    for change in changes {
        place.stop.check()?;
        let path = change.path.as_bstr();
        let staged = index.staged.get(&change.path);
        let now = staged.map(|staged| staged.version);
        let old = change.old.map(|side| side.version);
        let new = change.new.map(|side| side.version);
        if now == new {
            continue;
        }
        if now != old {
            lost.insert(change.path.clone());
            continue;
        }
        let found = worktree.find(path).doing("look at a file")?;
        let is_submodule = old.is_some_and(|old| old.mode == Mode::Submodule);
        let is_untouched = match (staged, found) {
            (Some(_), _) if is_submodule => true,
            (_, None) => true,
            (Some(staged), Some(FileKind::Tracked { .. })) => {
                files.version(path, Some(staged))? == Some(staged.version)
            }
            (None, Some(FileKind::Folder)) => {
                let inside = worktree.beneath(path, place.limits().files);
                let inside = inside.doing("look into a folder")?;
                inside.iter().all(|file| removed.contains(file))
            }
            _ => false,
        };
        if !is_untouched {
            lost.insert(change.path.clone());
        }
        if let Some(new) = new {
            for at in change.path.find_iter("/") {
                let folder: &BStr = change.path[..at].as_bstr();
                let in_the_way = match worktree.find(folder).doing("look at a file")? {
                    None | Some(FileKind::Folder) => false,
                    Some(_) => !removed.contains(&folder.to_owned()),
                };
                if in_the_way {
                    lost.insert(folder.to_owned());
                }
            }
            if new.mode != Mode::Submodule {
                place.bounded(new.id, FILE_BYTES_MAX)?;
            }
        }
        needed.push(change);
    }
    if lost.is_empty() {
        return Ok(needed);
    }
    let mut text =
        "Your local changes to the following files would be overwritten by checkout:\n".to_owned();
    for path in lost.iter().take(NAMED_MAX) {
        text.push_str(&format!("\t{}\n", super::text::quoted(path.as_bstr())));
    }
    if NAMED_MAX < lost.len() {
        text.push_str(&format!("\tand {} more\n", lost.len() - NAMED_MAX));
    }
    text.push_str("Commit them first, or move them away.");
    Err(ToolError::new(text))
}

/// Writes files according to their attributes.
struct Writer<'a> {
    place: &'a OpenRepository<'a>,
    worktree: &'a Worktree,
    converter: Converter<'a>,
}

impl<'a> Writer<'a> {
    fn new(place: &'a OpenRepository<'a>, worktree: &'a Worktree) -> Result<Self, ToolError> {
        Ok(Self {
            place,
            worktree,
            converter: Converter::new(place, worktree)?,
        })
    }

    fn write(&mut self, path: &BStr, version: Version) -> Result<Stat, ToolError> {
        if version.mode == Mode::Submodule {
            self.worktree.make_folder(path).doing(IN_PART)?;
            return Ok(Stat::default());
        }
        let mut blob = self.place.repository.find_blob(version.id).doing(IN_PART)?;
        if version.mode != Mode::Link {
            blob.data = self.converter.worktree_form(path, &blob.data)?;
        }
        let written = self.worktree.write(path, version.mode, &blob.data);
        written.doing(IN_PART)
    }
}

fn move_head(
    place: &OpenRepository<'_>,
    to: &str,
    branch: Option<&FullName>,
    id: ObjectId,
) -> Result<(), ToolError> {
    let head = place.repository.head().doing("read HEAD")?;
    let from = match head.referent_name() {
        Some(name) => name.shorten().to_string(),
        None => place.head()?.map(|id| id.to_string()).unwrap_or_default(),
    };
    let target = match branch {
        Some(name) => Target::Symbolic(name.clone()),
        None => Target::Object(id),
    };
    let name = FullName::try_from("HEAD").doing("name HEAD")?;
    let change = RefChange::Update {
        log: LogChange {
            message: format!("checkout: moving from {from} to {to}").into(),
            ..LogChange::default()
        },
        expected: PreviousValue::Any,
        new: target,
    };
    edit_reference(place, RefEdit::new(name, change)).doing("move HEAD")
}
