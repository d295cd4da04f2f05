//! `git_diff_unstaged`, `git_diff_staged` and `git_diff`.

use super::change::{Change, with_moves};
use super::index::Files;
use super::patch::Patch;
use super::repository::{OpenRepository, check_revision, no_option};
use super::text::Text;
use crate::catalog::ToolError;

pub(super) fn unstaged(place: &OpenRepository<'_>, context: usize) -> Result<String, ToolError> {
    let worktree = place.worktree()?;
    let index = place.index()?;
    let changes = place.unstaged_changes(&index, &worktree)?;
    let files = Files::new(place, &index, &worktree)?;
    written(place, Some(files), context, "Unstaged changes:\n", &changes)
}

pub(super) fn staged(place: &OpenRepository<'_>, context: usize) -> Result<String, ToolError> {
    let index = place.index()?;
    let changes = with_moves(place.staged_changes(place.head_tree()?, &index)?);
    written(place, None, context, "Staged changes:\n", &changes)
}

/// Returns the differences between a commit and the working tree, or between the two commits of a range.
pub(super) fn diff(
    place: &OpenRepository<'_>,
    target: &str,
    context: usize,
) -> Result<String, ToolError> {
    no_option("target", target)?;
    check_revision(target)?;
    let title = format!("Diff with {target}:\n");
    if target.contains("...") {
        return Err(ToolError::new(
            "a range is written with two dots here: A..B",
        ));
    }
    if let Some((old, new)) = target.split_once("..") {
        let tree = |revision: &str| {
            let revision = if revision.is_empty() {
                "HEAD"
            } else {
                revision
            };
            place.resolve(revision).and_then(|id| place.tree_of(id))
        };
        let changes = with_moves(place.tree_changes(Some(tree(old)?), Some(tree(new)?))?);
        return written(place, None, context, &title, &changes);
    }
    let tree = place.tree_of(place.resolve(target)?)?;
    let worktree = place.worktree()?;
    let index = place.index()?;
    let changes = with_moves(place.worktree_changes(tree, &index, &worktree)?);
    let files = Files::new(place, &index, &worktree)?;
    written(place, Some(files), context, &title, &changes)
}

fn written(
    place: &OpenRepository<'_>,
    files: Option<Files<'_>>,
    context: usize,
    title: &str,
    changes: &[Change],
) -> Result<String, ToolError> {
    let mut out = Text::of(place);
    out.push(title);
    if place.limits().context_lines < context {
        place.stop.hit("context_lines");
    }
    let mut patch = Patch {
        place,
        files,
        context: context.min(place.limits().context_lines),
    };
    if changes.is_empty() {
        return Ok(out.finish());
    }
    patch.write(changes, &mut out)?;
    Ok(trimmed(out.finish()))
}

/// Removes the final newline, as programs that run git do with its output.
pub(super) fn trimmed(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}
