//! `git_show`: a commit with its changes, a file, or the content of a folder.

use gix::bstr::ByteSlice;
use gix::objs::Kind;

use super::change::with_moves;
use super::date;
use super::patch::{Patch, names};
use super::repository::{OpenRepository, ResultContext};
use super::text::{Text, recoded};
use crate::catalog::ToolError;

/// Number of context lines around a change.
const CONTEXT: usize = 3;

pub(super) fn show(place: &OpenRepository<'_>, revision: &str) -> Result<String, ToolError> {
    let id = place.resolve(revision)?;
    let mut out = Text::of(place);
    let header = place.repository.find_header(id).doing("find an object")?;
    let max = u64::try_from(place.limits().file_bytes).unwrap_or(u64::MAX);
    match header.kind() {
        Kind::Blob => {
            place.bounded(id, max)?;
            let blob = place
                .repository
                .find_blob(id)
                .doing("read a file's content")?;
            out.push(&blob.data);
        }
        Kind::Tree => {
            place.bounded(id, max)?;
            let tree = place.repository.find_tree(id).doing("read a tree")?;
            for (position, entry) in tree.iter().enumerate() {
                let entry = entry.doing("read a tree")?;
                if 0 < position {
                    out.push("\n");
                }
                out.push(entry.filename());
                if entry.mode().is_tree() {
                    out.push("/");
                }
            }
        }
        Kind::Commit | Kind::Tag => commit(place, id, &mut out)?,
    }
    Ok(out.finish())
}

fn commit(place: &OpenRepository<'_>, id: gix::ObjectId, out: &mut Text) -> Result<(), ToolError> {
    let id = place.peel(id, Kind::Commit)?;
    let commit = place.repository.find_commit(id).doing("read a commit")?;
    let encoding = commit.decode().ok().and_then(|commit| commit.encoding);
    let author = commit.author().doing("read a commit")?;
    out.line(format!("commit {id}"));
    out.push("Author: ");
    out.push(recoded(author.name, encoding));
    out.push(" <");
    out.push(author.email);
    let time = author.time().unwrap_or_default();
    out.push(format!(">\nDate:   {}\n\n", date::shown(time, " %z")));
    let message = commit.message_raw().doing("read a commit")?;
    let message = recoded(message, encoding);
    for line in message.trim_end_with(|c| c == '\n').split_str("\n") {
        out.push("    ");
        out.line(line);
    }
    let parent = commit.parent_ids().next().map(gix::Id::detach);
    let old = parent.map(|parent| place.tree_of(parent)).transpose()?;
    let changes = with_moves(place.tree_changes(old, Some(place.tree_of(id)?))?);
    let mut patch = Patch {
        place,
        files: None,
        context: CONTEXT,
    };
    for change in &changes {
        place.stop.check()?;
        if out.is_full() {
            break;
        }
        let (old, new) = names(change);
        out.push(format!("\n--- {old}\n+++ {new}\n"));
        patch.body(change, out, |_, _, _| {})?;
    }
    Ok(())
}
