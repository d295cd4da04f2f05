//! `git_status`, like `git status` without its hints.

use gix::bstr::ByteSlice;
use gix::state::InProgress;

use super::branch::{apart, detached};
use super::change::{Change, with_moves};
use super::repository::{OpenRepository, ResultContext};
use super::text::{Text, quoted};
use super::tree::Mode;
use crate::catalog::ToolError;

pub(super) fn status(place: &OpenRepository<'_>) -> Result<String, ToolError> {
    let worktree = place.worktree()?;
    let index = place.index()?;
    let mut out = Text::of(place);
    out.push("Repository status:\n");
    let head = place.head()?;
    branch(place, head, &mut out)?;
    if head.is_none() {
        out.push("\nNo commits yet\n\n");
    }
    progress(place, &index.conflicts, &mut out);

    let mut staged = with_moves(place.staged_changes(place.head_tree()?, &index)?);
    staged.retain(|change| !change.is_conflict);
    let mut unstaged = place.unstaged_changes(&index, &worktree)?;
    unstaged.retain(|change| !change.is_conflict);
    let untracked = place.untracked(&index, &worktree, true)?;
    section(
        "Changes to be committed:",
        staged.iter().map(change_line),
        &mut out,
    );
    let conflicts = index.conflicts.iter().map(|(path, stages)| {
        let label = match stages {
            [_, true, true] if stages[0] => "both modified:",
            [_, true, true] => "both added:",
            [true, true, false] => "deleted by them:",
            [true, false, true] => "deleted by us:",
            [false, true, false] => "added by us:",
            [false, false, true] => "added by them:",
            _ => "both deleted:",
        };
        format!("{label:<16} {}", quoted(path.as_bstr()))
    });
    section("Unmerged paths:", conflicts, &mut out);
    section(
        "Changes not staged for commit:",
        unstaged.iter().map(change_line),
        &mut out,
    );
    section(
        "Untracked files:",
        untracked.iter().map(|path| quoted(path.as_bstr())),
        &mut out,
    );
    if staged.is_empty() {
        if !unstaged.is_empty() || !index.conflicts.is_empty() {
            out.line("no changes added to commit");
        } else if !untracked.is_empty() {
            out.line("nothing added to commit but untracked files present");
        } else if head.is_none() {
            out.line("nothing to commit");
        } else {
            out.line("nothing to commit, working tree clean");
        }
    }
    Ok(super::diff::trimmed(out.finish()))
}

fn section(title: &str, lines: impl Iterator<Item = String>, out: &mut Text) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    out.line(title);
    for line in lines {
        out.line(format!("\t{line}"));
    }
    out.push("\n");
}

fn change_line(change: &Change) -> String {
    let path = quoted(change.path.as_bstr());
    if let Some(from) = &change.from {
        return format!("renamed:    {} -> {path}", quoted(from.as_bstr()));
    }
    let label = match (change.old, change.new) {
        (None, _) => "new file:",
        (_, None) => "deleted:",
        (Some(old), Some(new)) if !old.version.mode.is_alike(new.version.mode) => "typechange:",
        (Some(old), Some(_)) if old.version.mode == Mode::Submodule => {
            return format!("modified:   {path} (new commits)");
        }
        _ => "modified:",
    };
    format!("{label:<11} {path}")
}

/// Returns the upstream branch of a branch.
///
/// gix ignores the remotes of an untrusted configuration, so this reads only names from it. It supports only remotes
/// with Git's default layout, of all branches or of single ones.
fn followed(place: &OpenRepository<'_>, branch: &str) -> Option<String> {
    let snapshot = place.repository.config_snapshot();
    let value = |key: String| Some(snapshot.string(key.as_str())?.to_str_lossy().into_owned());
    let remote = value(format!("branch.{branch}.remote"))?;
    let merged = value(format!("branch.{branch}.merge"))?;
    if remote == "." {
        return Some(merged);
    }
    let name = merged.strip_prefix("refs/heads/")?;
    let usual = ["*", name].map(|name| format!("+refs/heads/{name}:refs/remotes/{remote}/{name}"));
    let fetched = snapshot
        .plumbing()
        .strings(format!("remote.{remote}.fetch").as_str())?;
    let is_usual = fetched
        .iter()
        .any(|fetch| usual.iter().any(|usual| fetch == usual.as_str()));
    is_usual.then(|| format!("refs/remotes/{remote}/{name}"))
}

/// Writes the branch, and its state relative to its upstream branch.
fn branch(
    place: &OpenRepository<'_>,
    id: Option<gix::ObjectId>,
    out: &mut Text,
) -> Result<(), ToolError> {
    let head = place.repository.head().doing("read HEAD")?;
    let Some(name) = head.referent_name() else {
        if let Some(id) = id {
            out.line(detached(place, id)?);
        }
        return Ok(());
    };
    out.push("On branch ");
    out.line(name.shorten());
    let upstream = followed(place, &name.shorten().to_str_lossy());
    let (Some(upstream), Some(ours)) = (upstream, id) else {
        return Ok(());
    };
    let shown = upstream
        .strip_prefix("refs/remotes/")
        .or_else(|| upstream.strip_prefix("refs/heads/"))
        .unwrap_or(&upstream)
        .to_owned();
    let theirs = place.repository.try_find_reference(upstream.as_str());
    let theirs = theirs
        .ok()
        .flatten()
        .and_then(|mut reference| reference.peel_to_id().ok().map(gix::Id::detach));
    let Some(theirs) = theirs else {
        out.line(format!(
            "Your branch is based on '{shown}', but the upstream is gone.\n"
        ));
        return Ok(());
    };
    let commits = |count: usize| if count == 1 { "commit" } else { "commits" };
    let Some(apart) = apart(place, ours, theirs)? else {
        return Ok(());
    };
    out.line(match apart {
        (0, 0) => format!("Your branch is up to date with '{shown}'.\n"),
        (ahead, 0) => format!("Your branch is ahead of '{shown}' by {ahead} {}.\n", commits(ahead)),
        (0, behind) => format!(
            "Your branch is behind '{shown}' by {behind} {}, and can be fast-forwarded.\n",
            commits(behind)
        ),
        (ahead, behind) => format!(
            "Your branch and '{shown}' have diverged,\nand have {ahead} and {behind} different commits each, respectively.\n"
        ),
    });
    Ok(())
}

fn progress<T>(
    place: &OpenRepository<'_>,
    conflicts: &std::collections::BTreeMap<T, [bool; 3]>,
    out: &mut Text,
) {
    let what = match place.repository.state() {
        None => return,
        Some(InProgress::Merge) if conflicts.is_empty() => {
            "All conflicts fixed but you are still merging."
        }
        Some(InProgress::Merge) => "You have unmerged paths.",
        Some(InProgress::Rebase | InProgress::RebaseInteractive) => "A rebase is in progress.",
        Some(InProgress::ApplyMailbox | InProgress::ApplyMailboxRebase) => {
            "Patches are being applied."
        }
        Some(InProgress::Bisect) => "A bisection is in progress.",
        Some(InProgress::CherryPick | InProgress::CherryPickSequence) => {
            "A cherry-pick is in progress."
        }
        Some(InProgress::Revert | InProgress::RevertSequence) => "A revert is in progress.",
    };
    out.line(what);
    out.push("\n");
}
