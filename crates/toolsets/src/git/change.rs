//! Changes between two states of a repository, by path.

use std::collections::{HashMap, VecDeque};

use gix::ObjectId;
use gix::bstr::{BString, ByteSlice};

use super::tree::Version;

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: BString,
    /// Former path, if the file was only moved.
    pub(super) from: Option<BString>,
    pub(super) old: Option<FileState>,
    pub(super) new: Option<FileState>,
    /// True for an unmerged path, which has several states.
    pub(super) is_conflict: bool,
}

/// State of a path on one side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) version: Version,
    /// True if its content is in the working tree and not in the object database.
    pub(super) is_in_worktree: bool,
}

impl FileState {
    pub(super) fn stored(version: Version) -> Self {
        Self {
            version,
            is_in_worktree: false,
        }
    }

    pub(super) fn in_worktree(version: Version) -> Self {
        Self {
            version,
            is_in_worktree: true,
        }
    }
}

impl Change {
    pub(super) fn new(path: BString, old: Option<FileState>, new: Option<FileState>) -> Self {
        Self {
            path,
            from: None,
            old,
            new,
            is_conflict: false,
        }
    }

    pub(super) fn conflict(path: BString) -> Self {
        Self {
            is_conflict: true,
            ..Self::new(path, None, None)
        }
    }
}

/// Combines a removed file and an added one with equal content into a move, preferring equal file names.
pub(super) fn with_moves(changes: Vec<Change>) -> Vec<Change> {
    let moves = moves(&changes);
    let mut left: Vec<Option<Change>> = changes.into_iter().map(Some).collect();
    for (source, position) in moves {
        let source = left[source].take();
        if let (Some(source), Some(change)) = (source, &mut left[position]) {
            change.from = Some(source.path);
            change.old = source.old;
        }
    }
    left.into_iter().flatten().collect()
}

/// Returns the moves: the positions of a removed file and of an added one.
fn moves(changes: &[Change]) -> Vec<(usize, usize)> {
    // Positions of removed files by content, and by content and file name. Thousands of files can have one content.
    let mut by_content: HashMap<ObjectId, VecDeque<usize>> = HashMap::new();
    let mut by_name: HashMap<(ObjectId, &[u8]), VecDeque<usize>> = HashMap::new();
    for (position, change) in changes.iter().enumerate() {
        if let (Some(old), None) = (change.old, change.new)
            && old.version.mode.is_file()
        {
            let (id, name) = (old.version.id, file_name(&change.path));
            by_content.entry(id).or_default().push_back(position);
            by_name.entry((id, name)).or_default().push_back(position);
        }
    }
    let mut is_taken = vec![false; changes.len()];
    let mut moves = Vec::new();
    for (position, change) in changes.iter().enumerate() {
        let (None, Some(new)) = (change.old, change.new) else {
            continue;
        };
        if !new.version.mode.is_file() {
            continue;
        }
        let (id, name) = (new.version.id, file_name(&change.path));
        let source = first_left(by_name.get_mut(&(id, name)), &is_taken)
            .or_else(|| first_left(by_content.get_mut(&id), &is_taken));
        if let Some(source) = source {
            is_taken[source] = true;
            moves.push((source, position));
        }
    }
    moves
}

/// Takes positions from a queue up to the first that is not taken yet, and returns that one.
fn first_left(queue: Option<&mut VecDeque<usize>>, is_taken: &[bool]) -> Option<usize> {
    let queue = queue?;
    std::iter::from_fn(|| queue.pop_front()).find(|position| !is_taken[*position])
}

fn file_name(path: &BString) -> &[u8] {
    let at = path.rfind_byte(b'/').map_or(0, |at| at + 1);
    &path[at..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::builtin::git::tree::Mode;

    fn side(id: u8) -> Option<FileState> {
        let id = ObjectId::from_bytes_or_panic(&[id; 20]);
        Some(FileState::stored(Version {
            mode: Mode::File,
            id,
        }))
    }

    fn change(path: &str, old: Option<FileState>, new: Option<FileState>) -> Change {
        Change::new(path.into(), old, new)
    }

    #[test]
    fn a_file_that_went_and_came_was_moved() {
        let changes = vec![
            change("a/x", side(1), None),
            change("b/x", side(1), None),
            change("c", side(2), side(3)),
            change("d/x", None, side(1)),
            change("e", None, side(4)),
            change("f", side(5), None),
        ];
        let moved = with_moves(changes);
        let shown: Vec<_> = moved
            .iter()
            .map(|change| {
                (
                    change.path.to_string(),
                    change.from.as_ref().map(ToString::to_string),
                )
            })
            .collect();
        let expected = [
            ("b/x", None),
            ("c", None),
            ("d/x", Some("a/x")),
            ("e", None),
            ("f", None),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(path, from): &(&str, Option<&str>)| {
                ((*path).to_owned(), from.map(str::to_owned))
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_moved_file_preferably_kept_its_name() {
        let changes = vec![
            change("a/x", side(1), None),
            change("a/y", side(1), None),
            change("b/y", None, side(1)),
        ];
        let moved = with_moves(changes);
        assert_eq!(
            moved[1]
                .from
                .as_ref()
                .map(|path| path.to_string())
                .as_deref(),
            Some("a/y")
        );
        assert_eq!(moved.len(), 2);
    }
    #[test]
    fn many_files_of_one_content_are_moved_in_linear_time() {
        const COUNT: usize = 200_000;
        let gone = (0..COUNT).map(|n| change(&format!("a/{n}"), side(1), None));
        let new = (0..COUNT).map(|n| change(&format!("b/x{n}"), None, side(1)));
        let begun = std::time::Instant::now();
        let moved = with_moves(gone.chain(new).collect());
        assert_eq!(moved.len(), COUNT);
        assert_eq!(moved[7].from.as_ref().expect("moved"), "a/7");
        // Comparing them pairwise takes minutes.
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
