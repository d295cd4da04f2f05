//! The index: staged entries, differences from the working tree, and changes under its lock.

mod extensions;
mod files;
mod untracked;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use gix::ObjectId;
use gix::bstr::{BStr, BString, ByteSlice};
use gix::index::entry::{Flags, Mode as IndexMode, Stage, Stat};
use gix::index::{File as IndexFile, State};
use gix::objs::tree::EntryMode;

use super::change::{Change, FileState};
use super::repository::{OpenRepository, ResultContext};
use super::tree::{Mode, Version, is_path, too_many};
use super::worktree::Worktree;
use crate::catalog::ToolError;
pub(super) use files::Files;

/// Time to wait for another process that holds the index lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// An index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) version: Version,
    pub(super) stat: Stat,
    /// True if the file counts as unchanged without a look at it (`git update-index --assume-unchanged`).
    pub(super) is_assumed: bool,
}

impl IndexEntry {
    pub(super) fn new(version: Version, stat: Stat) -> Self {
        Self {
            version,
            stat,
            is_assumed: false,
        }
    }
}

/// A snapshot of the index.
pub(super) struct Index {
    pub(super) file: IndexFile,
    pub(super) staged: BTreeMap<BString, IndexEntry>,
    /// Paths without staged content (`git add --intent-to-add`), as empty files.
    pub(super) intended: BTreeMap<BString, Version>,
    /// Unmerged paths, with the stages that exist: base, ours, theirs.
    pub(super) conflicts: BTreeMap<BString, [bool; 3]>,
    /// True for a sparse checkout, which has only a part of the files.
    is_sparse: bool,
}

/// The lock of the index, required to change it.
pub(super) struct Lock(gix::lock::File);

impl OpenRepository<'_> {
    pub(super) fn index(&self) -> Result<Index, ToolError> {
        self.check_nesting()?;
        let path = self.repository.index_path();
        let file = match self.repository.open_index() {
            Ok(file) => file,
            Err(_) if std::fs::symlink_metadata(&path).is_err() => {
                IndexFile::from_state(State::new(self.repository.object_hash()), path)
            }
            Err(error) => return Err(error).doing("read the index"),
        };
        if self.limits().files < file.entries().len() {
            return Err(too_many(self.limits().files, self.stop));
        }
        let mut index = Index {
            staged: BTreeMap::new(),
            intended: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            is_sparse: file.is_sparse(),
            file,
        };
        for entry in index.file.entries() {
            let path = entry.path(&index.file);
            if !is_path(path) {
                return Err(ToolError::new("the index contains an invalid path"));
            }
            index.is_sparse |= entry.flags.contains(Flags::SKIP_WORKTREE);
            match entry.stage() {
                Stage::Unconflicted => {
                    let Some(mode) = mode_of(entry.mode) else {
                        index.is_sparse = true;
                        continue;
                    };
                    let version = Version { mode, id: entry.id };
                    if entry.flags.contains(Flags::INTENT_TO_ADD) {
                        index.intended.insert(path.to_owned(), version);
                        continue;
                    }
                    let staged = IndexEntry {
                        version,
                        stat: entry.stat,
                        is_assumed: entry.flags.contains(Flags::ASSUME_VALID),
                    };
                    index.staged.insert(path.to_owned(), staged);
                }
                stage => {
                    let stages = index.conflicts.entry(path.to_owned()).or_default();
                    stages[stage as usize - 1] = true;
                }
            }
        }
        Ok(index)
    }

    /// Locks the index. The holder has to read it again afterwards.
    pub(super) fn lock_index(&self) -> Result<Lock, ToolError> {
        let wait = gix::lock::acquire::Fail::AfterDurationWithBackoff(LOCK_WAIT);
        let path = self.repository.index_path();
        let lock = gix::lock::File::acquire_to_update_resource(&path, wait, None, 0);
        lock.map(Lock).map_err(|error| {
            let text = if path.with_extension("lock").exists() {
                "another process is changing the repository; try again in a moment"
            } else {
                "the repository cannot be changed by the user this server runs as"
            };
            ToolError::new(text).caused_by(error)
        })
    }

    /// Returns the differences between a tree and the index.
    pub(super) fn staged_changes(
        &self,
        tree: Option<ObjectId>,
        index: &Index,
    ) -> Result<Vec<Change>, ToolError> {
        let mut gone = self.flat(tree)?;
        let mut changes = Changes::default();
        for (path, staged) in &index.staged {
            let old = gone.remove(path);
            if old != Some(staged.version) {
                let new = Some(FileState::stored(staged.version));
                changes.add(path, old, new);
            }
        }
        for (path, version) in &gone {
            changes.add(path, Some(*version), None);
        }
        Ok(changes.with_conflicts(index))
    }

    /// Returns the differences between the index and the working tree, for paths in the index.
    pub(super) fn unstaged_changes(
        &self,
        index: &Index,
        worktree: &Worktree,
    ) -> Result<Vec<Change>, ToolError> {
        let mut files = Files::new(self, index, worktree)?;
        let mut changes = Changes::default();
        for (path, staged) in index.staged.iter().filter(|(_, staged)| !staged.is_assumed) {
            self.stop.check()?;
            let new = files.version(path.as_bstr(), Some(staged))?;
            if new != Some(staged.version) {
                changes.add(path, Some(staged.version), new.map(FileState::in_worktree));
            }
        }
        for (path, intended) in &index.intended {
            self.stop.check()?;
            let new = files.version(path.as_bstr(), None)?;
            let old = new.is_none().then_some(*intended);
            changes.add(path, old, new.map(FileState::in_worktree));
        }
        Ok(changes.with_conflicts(index))
    }

    /// Returns the differences between a tree and the working tree, for paths in the tree or the index.
    pub(super) fn worktree_changes(
        &self,
        tree: ObjectId,
        index: &Index,
        worktree: &Worktree,
    ) -> Result<Vec<Change>, ToolError> {
        let mut old = self.flat(Some(tree))?;
        let mut files = Files::new(self, index, worktree)?;
        let mut changes = Changes::default();
        for (path, staged) in &index.staged {
            self.stop.check()?;
            let new = match staged.is_assumed {
                true => Some(staged.version),
                false => files.version(path.as_bstr(), Some(staged))?,
            };
            let old = old.remove(path);
            if old != new {
                let new = new.map(|version| {
                    if version == staged.version {
                        FileState::stored(version)
                    } else {
                        FileState::in_worktree(version)
                    }
                });
                changes.add(path, old, new);
            }
        }
        for path in index.intended.keys() {
            self.stop.check()?;
            let new = files.version(path.as_bstr(), None)?;
            let old = old.remove(path);
            if old != new {
                changes.add(path, old, new.map(FileState::in_worktree));
            }
        }
        for (path, version) in &old {
            changes.add(path, Some(*version), None);
        }
        Ok(changes.with_conflicts(index))
    }

    /// Returns files that have changed, but would count as unchanged in an index that is written now: they have the size
    /// and the time, in seconds, of their entries.
    fn hidden_changes(
        &self,
        staged: &BTreeMap<BString, IndexEntry>,
        old: &Index,
    ) -> Result<BTreeSet<BString>, ToolError> {
        let options = self
            .repository
            .stat_options()
            .doing("read the configuration")?;
        let timestamp = old.file.timestamp();
        let racy: Vec<_> = staged
            .iter()
            .filter(|(path, staged)| {
                old.staged.get(*path) == Some(*staged)
                    && !staged.is_assumed
                    && staged.stat.is_racy(timestamp, options)
            })
            .collect();
        let mut modified = BTreeSet::new();
        if racy.is_empty() || self.repository.workdir().is_none() {
            return Ok(modified);
        }
        let worktree = self.worktree()?;
        let mut files = Files::new(self, old, &worktree)?;
        for (path, staged) in racy {
            // Out of time, or unreadable: such a file is looked at again by the next call.
            let is_unchanged = self.stop.check().is_ok()
                && files
                    .version(path.as_bstr(), Some(staged))
                    .is_ok_and(|now| now == Some(staged.version));
            if !is_unchanged {
                modified.insert(path.clone());
            }
        }
        Ok(modified)
    }
}

/// Changes by path.
#[derive(Default)]
struct Changes(BTreeMap<BString, Change>);

impl Changes {
    fn add(&mut self, path: &BString, old: Option<Version>, new: Option<FileState>) {
        let change = Change::new(path.clone(), old.map(FileState::stored), new);
        self.0.insert(path.clone(), change);
    }

    /// Returns the changes, with unmerged paths as such.
    fn with_conflicts(mut self, index: &Index) -> Vec<Change> {
        for path in index.conflicts.keys() {
            self.0.insert(path.clone(), Change::conflict(path.clone()));
        }
        self.0.into_values().collect()
    }
}

impl Index {
    /// Rejects changes to an index with unsupported features.
    pub(super) fn check_writable(&self) -> Result<(), ToolError> {
        if self.is_sparse {
            return Err(ToolError::new(
                "only a part of the working tree is checked out, and that cannot be changed here; use git itself",
            ));
        }
        Ok(())
    }

    /// Rejects operations that are not possible with unmerged paths.
    pub(super) fn check_merged(&self) -> Result<(), ToolError> {
        match self.conflicts.keys().next() {
            None => Ok(()),
            Some(path) => Err(ToolError::new(format!(
                "there are unmerged paths, '{path}' among them; resolve them and git_add them first"
            ))),
        }
    }
}

impl Lock {
    /// Replaces the index. Of the old one, unmerged paths and paths without content are kept if `is_kept` says so.
    pub(super) fn write(
        self,
        place: &OpenRepository<'_>,
        staged: &BTreeMap<BString, IndexEntry>,
        old: &Index,
        is_kept: &dyn Fn(&BStr) -> bool,
    ) -> Result<(), ToolError> {
        let mut state = State::new(place.repository.object_hash());
        let modified = place.hidden_changes(staged, old)?;
        for (path, staged) in staged {
            let flags = match staged.is_assumed {
                true => Flags::ASSUME_VALID,
                false => Flags::empty(),
            };
            // Without metadata, the content is compared.
            let stat = match modified.contains(path) {
                true => Stat::default(),
                false => staged.stat,
            };
            state.dangerously_push_entry(
                stat,
                staged.version.id,
                flags,
                EntryMode::from(staged.version.mode.kind()).into(),
                path.as_bstr(),
            );
        }
        for entry in old.file.entries() {
            let path = entry.path(&old.file);
            let flags = match entry.stage() {
                Stage::Unconflicted if !old.intended.contains_key(path) => continue,
                Stage::Unconflicted if collides(staged, path) => continue,
                Stage::Unconflicted => Flags::INTENT_TO_ADD | Flags::EXTENDED,
                stage => Flags::from_stage(stage),
            };
            if is_kept(path) {
                state.dangerously_push_entry(entry.stat, entry.id, flags, entry.mode, path);
            }
        }
        state.sort_entries();
        let file = IndexFile::from_state(state, place.repository.index_path());
        let mut writer = io::BufWriter::with_capacity(64 * 1024, self.0);
        file.write_to(&mut writer, gix::index::write::Options::default())
            .doing("write the index")?;
        writer.flush().doing("write the index")?;
        let lock = writer.into_inner().map_err(io::IntoInnerError::into_error);
        let lock = lock.doing("write the index")?;
        lock.commit()
            .map_err(|error| error.error)
            .doing("put the index in its place")?;
        Ok(())
    }
}

/// Returns true if a path is staged, is a folder of a staged path, or is below a staged file.
fn collides(staged: &BTreeMap<BString, IndexEntry>, path: &BStr) -> bool {
    let mut folder = path.to_owned();
    folder.push(b'/');
    staged.contains_key(path)
        || path
            .find_iter("/")
            .any(|at| staged.contains_key(path[..at].as_bstr()))
        || staged
            .range(folder.clone()..)
            .next()
            .is_some_and(|(other, _)| other.starts_with(&folder))
}

fn mode_of(mode: IndexMode) -> Option<Mode> {
    match mode {
        IndexMode::FILE => Some(Mode::File),
        IndexMode::FILE_EXECUTABLE => Some(Mode::Executable),
        IndexMode::SYMLINK => Some(Mode::Link),
        IndexMode::COMMIT => Some(Mode::Submodule),
        _ => None,
    }
}
