//! Trees as flat, sorted lists of paths.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use gix::ObjectId;
use gix::bstr::{BStr, BString, ByteSlice};
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryKind;

use super::change::{Change, FileState};
use super::repository::{OpenRepository, ResultContext};
use crate::catalog::ToolError;
use crate::source::builtin::Stop;

/// Content of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) mode: Mode,
    pub(super) id: ObjectId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    File,
    Executable,
    Link,
    /// A commit of another repository.
    Submodule,
}

impl Mode {
    pub(super) fn octal(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
            Self::Submodule => "160000",
        }
    }

    /// Returns true if both are files, and differ at most in the executable bit.
    pub(super) fn is_alike(self, other: Self) -> bool {
        self.is_file() == other.is_file() && (self.is_file() || self == other)
    }

    pub(super) fn is_file(self) -> bool {
        matches!(self, Self::File | Self::Executable)
    }

    pub(super) fn kind(self) -> EntryKind {
        match self {
            Self::File => EntryKind::Blob,
            Self::Executable => EntryKind::BlobExecutable,
            Self::Link => EntryKind::Link,
            Self::Submodule => EntryKind::Commit,
        }
    }

    /// Returns `None` for a folder.
    fn of_tree(kind: EntryKind) -> Option<Self> {
        match kind {
            EntryKind::Tree => None,
            EntryKind::Blob => Some(Self::File),
            EntryKind::BlobExecutable => Some(Self::Executable),
            EntryKind::Link => Some(Self::Link),
            EntryKind::Commit => Some(Self::Submodule),
        }
    }
}

/// A direct entry of a tree: its name, its mode unless it is a folder, and its ID.
type LevelEntry = (BString, Option<Mode>, ObjectId);

/// Maximum nesting depth of folders.
pub(super) const DEPTH_MAX: usize = 500;

impl OpenRepository<'_> {
    /// Returns all paths of a tree. The file limit also stops trees that contain one another many times.
    pub(super) fn flat(
        &self,
        tree: Option<ObjectId>,
    ) -> Result<BTreeMap<BString, Version>, ToolError> {
        let changes = self.tree_changes(None, tree)?;
        let entries = changes
            .into_iter()
            .filter_map(|change| Some((change.path, change.new?.version)));
        Ok(entries.collect())
    }

    /// Returns the differences between two trees, in path order. Equal subtrees are not read.
    pub(super) fn tree_changes(
        &self,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
    ) -> Result<Vec<Change>, ToolError> {
        let mut changes = Vec::new();
        self.walk(old, new, &mut BString::default(), 0, &mut changes)?;
        changes.sort_by(|a: &Change, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    fn walk(
        &self,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
        path: &mut BString,
        depth: usize,
        changes: &mut Vec<Change>,
    ) -> Result<(), ToolError> {
        self.stop.check()?;
        if old == new {
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Err(ToolError::new("folders lie too deep in one another"));
        }
        let old = self.level(old)?;
        let new = self.level(new)?;
        let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (olds.peek(), news.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.0.cmp(&b.0),
            };
            let a = olds.next_if(|_| order != Ordering::Greater);
            let b = news.next_if(|_| order != Ordering::Less);
            if let (Some(a), Some(b)) = (a, b)
                && (a.1, a.2) == (b.1, b.2)
            {
                continue;
            }
            let Some((name, ..)) = a.or(b) else { continue };
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let folder = |side: Option<&LevelEntry>| match side {
                Some((_, None, id)) => Some(*id),
                _ => None,
            };
            let file = |side: Option<&LevelEntry>| match side {
                Some(&(_, Some(mode), id)) => Some(FileState::stored(Version { mode, id })),
                _ => None,
            };
            if folder(a).is_some() || folder(b).is_some() {
                self.walk(folder(a), folder(b), path, depth + 1, changes)?;
            }
            let (old, new) = (file(a), file(b));
            if old.is_some() || new.is_some() {
                if changes.len() == self.limits().files {
                    return Err(too_many(self.limits().files, self.stop));
                }
                changes.push(Change::new(path.clone(), old, new));
            }
            path.truncate(length);
        }
    }

    /// Returns the direct entries of a tree, in the order of full paths.
    fn level(&self, tree: Option<ObjectId>) -> Result<Vec<LevelEntry>, ToolError> {
        const TREE_BYTES_MAX: u64 = 32 * 1024 * 1024;
        let Some(id) = tree else {
            return Ok(Vec::new());
        };
        self.bounded(id, TREE_BYTES_MAX)?;
        let tree = self.repository.find_tree(id).doing("read a tree")?;
        let mut entries = Vec::new();
        for entry in TreeRefIter::from_bytes(&tree.data, id.kind()) {
            let entry = entry.doing("read a tree")?;
            if !is_component(entry.filename) {
                return Err(ToolError::new("a tree contains an invalid file name"));
            }
            let mode = Mode::of_tree(entry.mode.kind());
            entries.push((entry.filename.to_owned(), mode, entry.oid.to_owned()));
        }
        // Trees sort folders as if their names ended in a slash, so a file and a folder of one name are not adjacent.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        if entries.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(ToolError::new("a tree has a name in it twice"));
        }
        Ok(entries)
    }
}

/// Returns true if a name is valid as one component of a path in a working tree.
pub(super) fn is_component(name: &BStr) -> bool {
    use gix::validate::path::component::Options;
    gix::validate::path::component(
        name,
        None,
        Options {
            protect_windows: false,
            protect_hfs: true,
            protect_ntfs: true,
        },
    )
    .is_ok()
}

/// Returns true if a path is valid in a working tree.
pub(super) fn is_path(path: &BStr) -> bool {
    path.find_iter("/").count() < DEPTH_MAX
        && !path.contains(&0)
        && path.split_str("/").all(|step| is_component(step.as_bstr()))
}

pub(super) fn too_many(max: usize, stop: &Stop) -> ToolError {
    stop.hit("files");
    ToolError::new(format!(
        "there are more than {max} files, which is the maximum"
    ))
}
