//! `git_commit`.

use gix::ObjectId;
use gix::bstr::{BStr, BString, ByteSlice};
use gix::objs::tree::Entry as TreeEntry;
use gix::refs::TargetRef;
use gix::state::InProgress;

use super::repository::{OpenRepository, ResultContext};
use super::tree::Version;
use crate::catalog::ToolError;

/// State files of a merge, removed when it is committed.
const MERGE_FILES: [&str; 4] = ["MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE"];
/// Maximum number of commits merged together.
const MERGED_MAX: usize = 64;
/// Maximum size of a commit message, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn commit(place: &OpenRepository<'_>, message: &str) -> Result<String, ToolError> {
    if message.trim().is_empty() {
        return Err(ToolError::new("the message is empty; describe the commit"));
    }
    if MESSAGE_BYTES_MAX < message.len() || message.contains('\0') {
        return Err(ToolError::new("the message is not valid text for a commit"));
    }
    let merged = merged(place)?;
    check_head(place)?;
    // The index is not changed here, and the lock keeps other processes from doing so.
    let lock = place.lock_index()?;
    let index = place.index()?;
    index.check_writable()?;
    index.check_merged()?;
    let head = place.head()?;
    let old = place.head_tree()?;
    let is_changed = !place.staged_changes(old, &index)?.is_empty();
    if !is_changed && merged.is_empty() {
        return Err(ToolError::new(
            "No changes staged for commit. Use git_add to stage changes first; git_status shows what is currently staged.",
        ));
    }
    let signature = signature(place)?;
    let entries: Vec<_> = index
        .staged
        .iter()
        .map(|(path, staged)| (path, staged.version))
        .collect();
    let tree = write_tree(place, &entries, 0)?;
    let parents = head.into_iter().chain(merged.iter().copied());
    let mut buffer = gix::date::parse::TimeBuf::default();
    let mut other = gix::date::parse::TimeBuf::default();
    let id = place
        .repository
        .commit_as(
            signature.to_ref(&mut buffer),
            signature.to_ref(&mut other),
            "HEAD",
            message,
            tree,
            parents,
        )
        .doing("commit")?
        .detach();
    if !merged.is_empty() {
        end_merge(place);
    }
    drop(lock);
    Ok(format!("Changes committed successfully with hash {id}"))
}

/// Removes the state of a merge.
pub(super) fn end_merge(place: &OpenRepository<'_>) {
    for file in MERGE_FILES {
        let _ = std::fs::remove_file(place.repository.git_dir().join(file));
    }
}

/// Rejects changes that Git would restore with the end of the merge.
pub(super) fn check_no_autostash(place: &OpenRepository<'_>) -> Result<(), ToolError> {
    if place.repository.git_dir().join("MERGE_AUTOSTASH").exists() {
        return Err(ToolError::new(
            "the merge has put changes aside that would have to be brought back, which is not done here; use git itself",
        ));
    }
    Ok(())
}

/// Rejects a HEAD that leads to anything but references below `refs`, as Git does. Other names are paths of files.
fn check_head(place: &OpenRepository<'_>) -> Result<(), ToolError> {
    const STEPS_MAX: usize = 8;
    let head = place.repository.head().doing("read HEAD")?;
    let mut next = head.referent_name().map(|name| name.to_owned());
    for _ in 0..STEPS_MAX {
        let Some(name) = next.take() else {
            return Ok(());
        };
        if !name.as_bstr().starts_with(b"refs/") {
            break;
        }
        let found = place.repository.try_find_reference(name.as_ref());
        if let Some(reference) = found.doing("read a branch")?
            && let TargetRef::Symbolic(target) = reference.target()
        {
            next = Some(target.to_owned());
        }
    }
    Err(ToolError::new(
        "HEAD does not lead to a branch; git_checkout can set it to one",
    ))
}

/// Returns the commits that are being merged. Other operations in progress are rejected, since a commit alone does
/// not complete them.
fn merged(place: &OpenRepository<'_>) -> Result<Vec<ObjectId>, ToolError> {
    match place.repository.state() {
        None => return Ok(Vec::new()),
        Some(InProgress::Merge) => {}
        Some(_) => {
            return Err(ToolError::new(
                "a rebase, a cherry-pick or the like is in progress, which is not gone on with here; use git itself",
            ));
        }
    }
    check_no_autostash(place)?;
    let text = std::fs::read(place.repository.git_dir().join("MERGE_HEAD"));
    let text = text.doing("read the state of the merge")?;
    let mut merged = Vec::new();
    for line in text.lines() {
        let id = ObjectId::from_hex(line.trim()).doing("read the state of the merge")?;
        merged.push(place.peel(id, gix::objs::Kind::Commit)?);
        if MERGED_MAX < merged.len() {
            return Err(ToolError::new("too many commits are being merged"));
        }
    }
    Ok(merged)
}

/// Returns the committer with the current time.
pub(super) fn signature(place: &OpenRepository<'_>) -> Result<gix::actor::Signature, ToolError> {
    let snapshot = place.repository.config_snapshot();
    let known = |configured: &str, own: &str| -> Option<BString> {
        if configured.is_empty() {
            snapshot.string(own).filter(|text| is_sound(text.as_ref()))
        } else {
            Some(configured.into())
        }
    };
    let author = &place.config.author;
    let (name, email) = (
        known(&author.name, "user.name"),
        known(&author.email, "user.email"),
    );
    match (name, email) {
        (Some(name), Some(email)) => Ok(gix::actor::Signature {
            name,
            email,
            time: gix::date::Time::now_local_or_utc(),
        }),
        _ => Err(ToolError::new(
            "the author is unknown; the operator of this server must set builtin.git.author, or user.name and user.email of the repository",
        )),
    }
}

/// Returns true if a text is valid as a name or an address in a commit.
pub(super) fn is_sound(text: &BStr) -> bool {
    !text.trim().is_empty()
        && !text
            .iter()
            .any(|byte| matches!(byte, b'<' | b'>' | b'\n' | b'\0'))
}

/// Writes the trees for sorted entries that share a path prefix.
fn write_tree(
    place: &OpenRepository<'_>,
    entries: &[(&BString, Version)],
    depth: usize,
) -> Result<ObjectId, ToolError> {
    place.stop.check()?;
    let mut tree = gix::objs::Tree::empty();
    let mut rest = entries;
    while let Some((path, version)) = rest.first() {
        let name = &path[depth..];
        let Some(length) = name.find_byte(b'/') else {
            tree.entries.push(TreeEntry {
                mode: version.mode.kind().into(),
                filename: name.into(),
                oid: version.id,
            });
            rest = &rest[1..];
            continue;
        };
        let within = depth + length + 1;
        let prefix = &path[..within];
        let end = rest.partition_point(|(path, _)| path.starts_with(prefix));
        tree.entries.push(TreeEntry {
            mode: gix::objs::tree::EntryKind::Tree.into(),
            filename: name[..length].into(),
            oid: write_tree(place, &rest[..end], within)?,
        });
        rest = &rest[end..];
    }
    tree.entries.sort();
    let id = place.repository.write_object(&tree).doing("write a tree")?;
    Ok(id.detach())
}
