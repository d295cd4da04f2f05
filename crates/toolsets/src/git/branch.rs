//! `git_branch` and `git_create_branch`, and the description of HEAD.

use std::collections::HashSet;
use std::path::PathBuf;

use gix::ObjectId;
use gix::bstr::{BString, ByteSlice};
use gix::objs::Kind;
use gix::refs::transaction::{PreviousValue, RefEdit};
use gix::refs::{FullName, TargetRef};

use super::commit::signature;
use super::repository::{OpenRepository, ResultContext, no_option, small_file};
use super::text::Text;
use crate::catalog::ToolError;

/// Returns branches with their names for the list.
pub(super) fn list(
    place: &OpenRepository<'_>,
    kind: &str,
    contains: Option<&str>,
    not_contains: Option<&str>,
) -> Result<String, ToolError> {
    let (local, remote) = match kind {
        "local" => (true, false),
        "remote" => (false, true),
        "all" => (true, true),
        other => return Err(ToolError::new(format!("Invalid branch type: {other}"))),
    };
    let wanted = |revision: Option<&str>, what: &str| match revision.filter(|text| !text.is_empty())
    {
        Some(revision) => {
            no_option(what, revision)?;
            place.commit(revision).map(Some)
        }
        None => Ok(None),
    };
    let contains = wanted(contains, "contains value")?;
    let not_contains = wanted(not_contains, "not_contains value")?;
    let mut search = Search { place, walked: 0 };
    let mut fits = |tip: ObjectId| -> Result<bool, ToolError> {
        if let Some(wanted) = contains
            && !search.has(tip, wanted)?
        {
            return Ok(false);
        }
        match not_contains {
            Some(unwanted) => Ok(!search.has(tip, unwanted)?),
            None => Ok(true),
        }
    };
    let mut out = Text::of(place);
    let head = place.repository.head().doing("read HEAD")?;
    let current = head.referent_name().map(|name| name.as_bstr().to_owned());
    if local
        && head.is_detached()
        && let Some(id) = place.head()?
        && fits(id)?
    {
        out.line(format!("* ({})", detached(place, id)?));
    }
    let elsewhere: HashSet<BString> = checked_out(place)?
        .into_iter()
        .map(|(_, branch)| branch)
        .collect();
    let platform = place.repository.references().doing("list the branches")?;
    let mut prefixes = Vec::new();
    if local {
        prefixes.push(("refs/heads/", ""));
    }
    if remote {
        prefixes.push(("refs/remotes/", if local { "remotes/" } else { "" }));
    }
    for (prefix, shown) in prefixes {
        let branches = if prefix == "refs/heads/" {
            platform.local_branches()
        } else {
            platform.remote_branches()
        };
        for branch in branches.doing("list the branches")? {
            place.stop.check()?;
            // A broken branch is omitted; the others are listed.
            let Ok(mut branch) = branch else { continue };
            let name = branch.name().as_bstr().to_owned();
            let target = match branch.target() {
                TargetRef::Symbolic(target) => Some(target.as_bstr().to_owned()),
                TargetRef::Object(_) => None,
            };
            let Ok(tip) = branch.peel_to_id() else {
                continue;
            };
            if !fits(tip.detach())? {
                continue;
            }
            let mark = match current.as_ref() == Some(&name) {
                true => "* ",
                false if elsewhere.contains(&name) => "+ ",
                false => "  ",
            };
            let short = name.strip_prefix(prefix.as_bytes()).unwrap_or(&name);
            out.push(format!("{mark}{shown}"));
            out.push(short);
            if let Some(target) = target {
                out.push(" -> ");
                out.push(target.strip_prefix(prefix.as_bytes()).unwrap_or(&target));
            }
            out.push("\n");
        }
    }
    Ok(super::diff::trimmed(out.finish()))
}

/// Returns the branches that are checked out in working trees of the repository, each with the folder of the working
/// tree's own files.
pub(super) fn checked_out(
    place: &OpenRepository<'_>,
) -> Result<Vec<(PathBuf, BString)>, ToolError> {
    let common = place.repository.common_dir();
    let worktrees = std::fs::read_dir(common.join("worktrees"));
    let worktrees = worktrees.into_iter().flatten().flatten();
    let worktrees = worktrees.map(|entry| entry.path());
    // A bare repository has a branch, but not in a working tree.
    let snapshot = place.repository.config_snapshot();
    let is_bare = snapshot.boolean("core.bare") == Some(true);
    let main = (!is_bare).then(|| common.to_owned());
    let mut found = Vec::new();
    for folder in worktrees.chain(main) {
        place.stop.check()?;
        let head = small_file(&folder.join("HEAD"));
        if let Some(branch) = head.as_deref().and_then(|head| head.strip_prefix("ref:")) {
            found.push((folder, BString::from(branch.trim())));
        }
    }
    Ok(found)
}

/// Searches the histories of branches for commits, within a common limit.
struct Search<'a> {
    place: &'a OpenRepository<'a>,
    walked: usize,
}

impl Search<'_> {
    fn has(&mut self, tip: ObjectId, wanted: ObjectId) -> Result<bool, ToolError> {
        use gix::revision::walk::Sorting;
        use gix::traverse::commit::simple::CommitTimeOrder::NewestFirst;
        let sorting = Sorting::ByCommitTime(NewestFirst);
        let walk = self.place.repository.rev_walk([tip]).sorting(sorting).all();
        for info in walk.doing("walk through the commits")? {
            self.place.stop.check()?;
            self.walked += 1;
            if self.place.limits().walked_commits < self.walked {
                self.place.stop.hit("walked_commits");
                return Err(ToolError::new(format!(
                    "more than {} commits would be read",
                    self.place.limits().walked_commits
                )));
            }
            if info.doing("walk through the commits")?.id == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Describes a detached HEAD: the checked-out name, if known, and whether HEAD is still there.
pub(super) fn detached(place: &OpenRepository<'_>, id: ObjectId) -> Result<String, ToolError> {
    let head = place.repository.head().doing("read HEAD")?;
    let mut log = head.log_iter();
    let mut came_from = None;
    if let Ok(Some(lines)) = log.rev() {
        // Maximum number of log entries to search for the last checkout.
        const LINES_MAX: usize = 1000;
        for line in lines.take(LINES_MAX).flatten() {
            if let Some(moved) = line.message.strip_prefix(b"checkout: moving from ") {
                let to = moved
                    .rfind(" to ")
                    .map(|at| moved[at + 4..].as_bstr().to_owned());
                came_from = to.map(|to| (to, line.new_oid));
                break;
            }
        }
    }
    let Some((name, at)) = came_from else {
        return Ok(format!("HEAD detached at {}", place.short(id)));
    };
    // The name is useless if it now refers to another commit, or was not a reference.
    let is_reference = name
        .to_str()
        .ok()
        .and_then(|name| place.repository.try_find_reference(name).ok().flatten())
        .and_then(|mut reference| reference.peel_to_commit().ok())
        .is_some_and(|commit| commit.id == at);
    let name = if is_reference {
        name.to_str_lossy().into_owned()
    } else {
        place.short(at)
    };
    let preposition = if at == id { "at" } else { "from" };
    Ok(format!("HEAD detached {preposition} {name}"))
}

/// Creates a branch at another one, or at HEAD.
pub(super) fn create(
    place: &OpenRepository<'_>,
    name: &str,
    base: Option<&str>,
) -> Result<String, ToolError> {
    no_option("branch name", name)?;
    let full = branch_name(name)?;
    let (id, shown) = match base.filter(|base| !base.is_empty()) {
        Some(base) => {
            no_option("base branch", base)?;
            (place.commit(base)?, base.to_owned())
        }
        None => {
            let head = place.repository.head().doing("read HEAD")?;
            if head.is_detached() {
                return Err(ToolError::new(
                    "HEAD is detached, so there is no current branch to branch from; pass base_branch",
                ));
            }
            let shown = head.referent_name().map(|name| name.shorten().to_string());
            let id = place
                .head()?
                .ok_or_else(|| ToolError::new("the repository has no commit yet to branch from"))?;
            (id, shown.unwrap_or_default())
        }
    };
    let exists = place.repository.try_find_reference(full.as_ref());
    if exists.doing("look for a branch")?.is_some() {
        return Err(ToolError::new(format!(
            "Cannot create branch '{name}': refs/heads/{name} already exists"
        )));
    }
    let id = place.peel(id, Kind::Commit)?;
    let message = format!("branch: Created from {shown}");
    let edit = RefEdit::update(full, id, PreviousValue::MustNotExist, message);
    edit_reference(place, edit).doing(&format!("create the branch '{name}'"))?;
    Ok(format!("Created branch '{name}' from '{shown}'"))
}

/// Returns the full reference name of a branch, if the name is valid.
fn branch_name(name: &str) -> Result<FullName, ToolError> {
    let full = format!("refs/heads/{name}");
    let is_sound = name != "HEAD" && name != "@" && !name.contains("@{");
    let full = FullName::try_from(full).ok().filter(|_| is_sound);
    full.ok_or_else(|| ToolError::new(format!("'{name}' is not a valid branch name")))
}

/// Changes a reference, with the committer's identity in its log.
pub(super) fn edit_reference(place: &OpenRepository<'_>, edit: RefEdit) -> gix::Result<()> {
    let signature = signature(place).unwrap_or_else(|_| gix::actor::Signature {
        name: "longshore".into(),
        email: "longshore@localhost".into(),
        time: gix::date::Time::now_local_or_utc(),
    });
    let mut buffer = gix::date::parse::TimeBuf::default();
    place
        .repository
        .edit_references_as([edit], Some(signature.to_ref(&mut buffer)))?;
    Ok(())
}

/// Returns the numbers of commits that only the first and only the second history has.
pub(super) fn apart(
    place: &OpenRepository<'_>,
    ours: ObjectId,
    theirs: ObjectId,
) -> Result<Option<(usize, usize)>, ToolError> {
    if ours == theirs {
        return Ok(Some((0, 0)));
    }
    let count = |tip: ObjectId, hidden: ObjectId| -> Result<Option<usize>, ToolError> {
        let walk = place.repository.rev_walk([tip]).with_hidden([hidden]).all();
        let mut seen = HashSet::new();
        for info in walk.doing("walk through the commits")? {
            place.stop.check()?;
            if place.limits().walked_commits < seen.len() {
                place.stop.hit("walked_commits");
                return Ok(None);
            }
            seen.insert(info.doing("walk through the commits")?.id);
        }
        Ok(Some(seen.len()))
    };
    Ok(count(ours, theirs)?.zip(count(theirs, ours)?))
}
