//! Untracked files of a working tree.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use gix::bstr::{BStr, BString, ByteSlice as _};
use gix::dir::walk::EmissionMode;
use gix::index::State;
use gix::index::entry::{Flags, Mode as IndexMode};

use super::super::repository::{OpenRepository, ResultContext};
use super::super::tree::too_many;
use super::super::worktree::{FileKind, Worktree};
use super::Index;
use crate::catalog::ToolError;
use crate::source::builtin::Stop;

impl OpenRepository<'_> {
    /// Returns untracked paths that are not ignored; folders end in a slash. With `collapse`, a fully untracked
    /// folder is reported instead of its files.
    pub(in super::super) fn untracked(
        &self,
        index: &Index,
        worktree: &Worktree,
        collapse: bool,
    ) -> Result<Vec<BString>, ToolError> {
        let mut state: State = State::clone(&index.file);
        // The walk takes a folder for tracked if one of its entries has this flag. Git also does so if all of its files were
        // deleted, but not if the folder became a file.
        for (entry, path) in state.entries_mut_with_paths() {
            self.stop.check()?;
            let found = worktree.find(path).doing("look at a file")?;
            let is_there = match found {
                Some(FileKind::Tracked { .. }) => entry.mode != IndexMode::COMMIT,
                Some(FileKind::Folder) => entry.mode == IndexMode::COMMIT,
                Some(FileKind::Other) => false,
                None => worktree.is_below_folder(path).doing("look at a folder")?,
            };
            entry.flags.set(Flags::UPTODATE, is_there);
        }
        if !collapse {
            return self.untracked_in(&state, worktree, &[], EmissionMode::Matching);
        }
        let mut paths =
            self.untracked_in(&state, worktree, &[], EmissionMode::CollapseDirectory)?;
        // The walk also collapses folders whose tracked files were all deleted.
        let has_tracked = |folder: &BStr| state.prefixed_entries_range(folder).is_some();
        let (folders, rest): (Vec<_>, Vec<_>) = paths
            .into_iter()
            .partition(|path| path.ends_with(b"/") && has_tracked(path.as_bstr()));
        paths = rest;
        if !folders.is_empty() {
            let inside = self.untracked_in(&state, worktree, &folders, EmissionMode::Matching)?;
            paths.extend(inside.into_iter().map(|path| {
                let folders = path.find_iter(b"/").map(|at| path[..=at].as_bstr());
                let untracked = folders.into_iter().find(|folder| !has_tracked(folder));
                untracked.map_or_else(|| path.clone(), ToOwned::to_owned)
            }));
            paths.sort();
            paths.dedup();
        }
        Ok(paths)
    }

    /// Returns the untracked paths in folders, or all of them if none are named.
    fn untracked_in(
        &self,
        state: &State,
        worktree: &Worktree,
        folders: &[BString],
        emission: EmissionMode,
    ) -> Result<Vec<BString>, ToolError> {
        let options = self
            .repository
            .dirwalk_options()
            .doing("read the configuration")?
            .emit_untracked(emission);
        let mut seen = Untracked {
            paths: Vec::new(),
            max: self.limits().files,
            stop: self.stop,
            worktree,
            rules_max: self.limits().file_bytes,
            unread: None,
        };
        let goes_on = AtomicBool::new(false);
        let patterns = folders.iter().map(|folder| {
            let mut pattern = BString::from(":(top,literal)");
            pattern.extend_from_slice(folder);
            pattern
        });
        let walked = self
            .repository
            .dirwalk(state, patterns, &goes_on, options, &mut seen);
        self.stop.check()?;
        if let Some(unread) = seen.unread {
            return Err(unread);
        }
        walked.doing("walk through the working tree")?;
        if seen.max < seen.paths.len() {
            return Err(too_many(seen.max, self.stop));
        }
        seen.paths.sort();
        Ok(seen.paths)
    }
}

struct Untracked<'a> {
    paths: Vec<BString>,
    max: usize,
    stop: &'a Stop,
    worktree: &'a Worktree,
    /// Maximum size of a `.gitignore`, in bytes.
    rules_max: usize,
    /// Error of a folder whose `.gitignore` cannot be read, which ends the walk.
    unread: Option<ToolError>,
}

impl gix::dir::walk::Delegate for Untracked<'_> {
    fn emit(
        &mut self,
        entry: gix::dir::EntryRef<'_>,
        _: Option<gix::dir::entry::Status>,
    ) -> ControlFlow<()> {
        use gix::dir::entry::{Kind, Status};
        if self.unread.is_some() || self.stop.check().is_err() || self.max < self.paths.len() {
            return ControlFlow::Break(());
        }
        let is_folder = match entry.disk_kind {
            Some(Kind::Directory | Kind::Repository) => true,
            Some(Kind::File | Kind::Symlink) => false,
            Some(Kind::Untrackable) | None => return ControlFlow::Continue(()),
        };
        if entry.status == Status::Untracked {
            let mut path = entry.rela_path.into_owned();
            if is_folder {
                path.push(b'/');
            }
            self.paths.push(path);
        }
        ControlFlow::Continue(())
    }

    fn can_recurse(
        &mut self,
        entry: gix::dir::EntryRef<'_>,
        for_deletion: Option<gix::dir::walk::ForDeletionMode>,
        worktree_root_is_repository: bool,
    ) -> bool {
        let recurses = self.stop.check().is_ok()
            && entry.status.can_recurse(
                entry.disk_kind,
                entry.pathspec_match,
                for_deletion,
                worktree_root_is_repository,
            );
        if recurses && self.unread.is_none() {
            let folder = entry.rela_path.as_ref();
            let checked = self
                .worktree
                .check_rules(folder, ".gitignore", self.rules_max);
            self.unread = checked.err();
        }
        recurses && self.unread.is_none()
    }
}
