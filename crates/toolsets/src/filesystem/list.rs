//! Directory listings, trees and searches. Symbolic links are entries like files; a walk never follows them.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::FileType;
use serde::Serialize;

use super::config::FilesystemLimits;
use super::handle::{self, Entry};
use super::pattern::Patterns;
use super::refusal::{PathRejection, visible};
use super::resolved_path::{FollowMode, ResolvedPath};
use super::roots::Roots;
use crate::catalog::ToolError;
use crate::source::builtin::Stop;

/// Converts a name for display, with invalid UTF-8 replaced.
fn shown(name: &OsStr) -> String {
    visible(&name.to_string_lossy())
}

fn label(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "[DIR]",
        _ => "[FILE]",
    }
}

/// Returns a directory's entries sorted by name, and whether there are more.
fn sorted(
    opened: &OwnedFd,
    max: usize,
    path: &str,
    stop: &Stop,
) -> Result<(Vec<Entry>, bool), ToolError> {
    let (mut entries, more) = handle::entries(opened, max, stop).map_err(|error| error.at(path))?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok((entries, more))
}

fn opened<'r>(roots: &'r Roots, path: &str) -> Result<(ResolvedPath<'r>, OwnedFd), ToolError> {
    let open = || {
        let spot = ResolvedPath::find(roots, path, FollowMode::Follow)?;
        let opened = spot.open_to_list()?;
        Ok((spot, opened))
    };
    open().map_err(|refusal: PathRejection| refusal.at(path))
}

fn and_more(limits: &FilesystemLimits, stop: &Stop) -> String {
    stop.hit("entries");
    format!(
        "(only the first {} entries are shown: builtin.filesystem.limits.entries)",
        limits.entries
    )
}

/// Lists a directory, one entry on each line.
pub(super) fn listing(
    roots: &Roots,
    path: &str,
    limits: &FilesystemLimits,
    stop: &Stop,
) -> Result<String, ToolError> {
    let (_, opened) = opened(roots, path)?;
    let (entries, more) = sorted(&opened, limits.entries, path, stop)?;
    let lines = entries
        .iter()
        .map(|entry| format!("{} {}", label(entry.kind), shown(&entry.name)));
    let lines: Vec<String> = lines.chain(more.then(|| and_more(limits, stop))).collect();
    Ok(lines.join("\n"))
}

/// Lists a directory with the sizes of its entries, and totals.
pub(super) fn listing_with_sizes(
    roots: &Roots,
    path: &str,
    by_size: bool,
    limits: &FilesystemLimits,
    stop: &Stop,
) -> Result<String, ToolError> {
    let (_, opened) = opened(roots, path)?;
    let (entries, more) = sorted(&opened, limits.entries, path, stop)?;
    let mut sized = Vec::with_capacity(entries.len());
    for (position, entry) in entries.into_iter().enumerate() {
        if position.is_multiple_of(256) {
            stop.check()?;
        }
        let found = handle::stat_entry(&opened, &entry.name).ok().flatten();
        let size = found.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default());
        sized.push((entry, size));
    }
    if by_size {
        sized.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    } else {
        sized.sort_by_cached_key(|(entry, _)| entry.name.to_string_lossy().to_lowercase());
    }
    let is_dir = |entry: &Entry| entry.kind == FileType::Directory;
    let mut lines: Vec<String> = sized
        .iter()
        .map(|(entry, size)| {
            let size = match entry.kind {
                FileType::Directory => String::new(),
                _ => format!("{:>10}", human(*size)),
            };
            format!("{} {:<30} {size}", label(entry.kind), shown(&entry.name))
        })
        .collect();
    let directories = sized.iter().filter(|(entry, _)| is_dir(entry)).count();
    let total: u64 = sized
        .iter()
        .filter(|(entry, _)| !is_dir(entry))
        .map(|(_, size)| size)
        .sum();
    lines.extend(more.then(|| and_more(limits, stop)));
    lines.push(String::new());
    lines.push(format!(
        "Total: {} files, {directories} directories",
        sized.len() - directories
    ));
    lines.push(format!("Combined size: {}", human(total)));
    Ok(lines.join("\n"))
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while 1024.0 <= size && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{size:.2} {}", UNITS[unit]),
    }
}

/// A node of a tree.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    name: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<Node>>,
    /// True if the directory has more entries than its children show.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// Returns a directory with everything below it, as JSON.
pub(super) fn tree(
    roots: &Roots,
    path: &str,
    leave_out: &Patterns,
    limits: &FilesystemLimits,
    stop: &Stop,
) -> Result<String, ToolError> {
    let (_, opened) = opened(roots, path)?;
    let mut growth = Growth {
        path,
        leave_out,
        limits,
        stop,
        room: limits.entries,
    };
    let (mut nodes, truncated) = growth.nodes(&opened, "", 1)?;
    if truncated {
        // The root directory has no node that could carry the flag.
        nodes.push(Node {
            name: and_more(limits, stop),
            r#type: "truncated",
            children: None,
            truncated: true,
        });
    }
    Ok(serde_json::to_string_pretty(&nodes)?)
}

struct Growth<'g> {
    path: &'g str,
    leave_out: &'g Patterns,
    limits: &'g FilesystemLimits,
    stop: &'g Stop,
    /// Number of entries that still fit.
    room: usize,
}

impl Growth<'_> {
    fn nodes(
        &mut self,
        opened: &OwnedFd,
        above: &str,
        depth: usize,
    ) -> Result<(Vec<Node>, bool), ToolError> {
        let (entries, mut truncated) = sorted(opened, self.limits.entries, self.path, self.stop)?;
        let mut nodes = Vec::new();
        for entry in entries {
            let relative = below(above, &entry.name);
            if self.leave_out.mean(&relative) {
                continue;
            }
            if self.room == 0 {
                self.stop.hit("entries");
                truncated = true;
                break;
            }
            self.room -= 1;
            let mut node = Node {
                name: entry.name.to_string_lossy().into_owned(),
                r#type: "file",
                children: None,
                truncated: false,
            };
            if entry.kind == FileType::Directory {
                let (children, truncated) = self.children(opened, &entry, &relative, depth)?;
                node.r#type = "directory";
                node.children = Some(children);
                node.truncated = truncated;
            }
            nodes.push(node);
        }
        Ok((nodes, truncated))
    }

    fn children(
        &mut self,
        parent: &OwnedFd,
        entry: &Entry,
        relative: &str,
        depth: usize,
    ) -> Result<(Vec<Node>, bool), ToolError> {
        if self.limits.depth <= depth || self.room == 0 {
            let is_full = self.room == 0;
            self.stop.hit(if is_full { "entries" } else { "depth" });
            return Ok((Vec::new(), true));
        }
        // An unreadable or deleted directory has no children.
        match handle::open_to_list(parent.as_fd(), &entry.name) {
            Ok(opened) => self.nodes(&opened, relative, depth + 1),
            Err(_) => Ok((Vec::new(), true)),
        }
    }
}

fn below(above: &str, name: &OsStr) -> String {
    let name = name.to_string_lossy();
    match above {
        "" => name.into_owned(),
        above => format!("{above}/{name}"),
    }
}

/// Returns the paths below a directory that match a pattern.
pub(super) fn search(
    roots: &Roots,
    path: &str,
    wanted: &Patterns,
    leave_out: &Patterns,
    limits: &FilesystemLimits,
    stop: &Stop,
) -> Result<String, ToolError> {
    let (spot, opened) = opened(roots, path)?;
    let base = spot.real_path();
    let base = visible(&base.to_string_lossy());
    let mut search = Search {
        roots,
        base: base.trim_end_matches('/'),
        path,
        wanted,
        leave_out,
        limits,
        stop,
        room: limits.searched,
        found: Vec::new(),
        left_off: None,
    };
    search.below(&opened, "", 1)?;
    let mut lines = search.found;
    if lines.is_empty() && search.left_off.is_none() {
        return Ok("No matches found".to_owned());
    }
    if let Some(limit) = search.left_off {
        stop.hit(limit);
        lines.push(format!(
            "(there may be more: builtin.filesystem.limits.{limit} ended the search; begin in a deeper folder, or narrow the pattern)"
        ));
    }
    Ok(lines.join("\n"))
}

struct Search<'s> {
    roots: &'s Roots,
    /// The path of the directory without links, for display.
    base: &'s str,
    /// The requested path.
    path: &'s str,
    wanted: &'s Patterns,
    leave_out: &'s Patterns,
    limits: &'s FilesystemLimits,
    stop: &'s Stop,
    room: usize,
    found: Vec<String>,
    /// The limit that made the search incomplete.
    left_off: Option<&'static str>,
}

impl Search<'_> {
    fn below(&mut self, opened: &OwnedFd, above: &str, depth: usize) -> Result<(), ToolError> {
        let (entries, more) = sorted(opened, self.room, self.path, self.stop)?;
        self.room -= entries.len();
        if more {
            self.left_off = Some("searched");
        }
        for entry in entries {
            let relative = below(above, &entry.name);
            if self.leave_out.mean(&relative) || !self.is_inside(&entry, &relative) {
                continue;
            }
            if self.wanted.mean(&relative) {
                if self.found.len() == self.limits.matches {
                    self.left_off = Some("matches");
                    return Ok(());
                }
                self.found
                    .push(format!("{}/{}", self.base, visible(&relative)));
            }
            if entry.kind != FileType::Directory {
                continue;
            }
            if self.limits.depth <= depth {
                self.left_off.get_or_insert("depth");
                continue;
            }
            // An unreadable or deleted directory has no matches.
            if let Ok(opened) = handle::open_to_list(opened.as_fd(), &entry.name) {
                self.below(&opened, &relative, depth + 1)?;
            }
            if self.left_off == Some("matches") {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns true if a link's target is inside. Other links are not reported, because they are not usable.
    fn is_inside(&self, entry: &Entry, relative: &str) -> bool {
        if entry.kind != FileType::Symlink {
            return true;
        }
        let path = match self.path {
            "" => format!("./{relative}"),
            path => format!("{path}/{relative}"),
        };
        ResolvedPath::find(self.roots, &path, FollowMode::Follow).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_lead_inside_are_found_whatever_the_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("there");
        let odd = base.join("a\nb");
        std::fs::create_dir(&odd).expect("made");
        std::fs::write(odd.join("file"), "x").expect("written");
        symlink("file", odd.join("link")).expect("made");
        symlink("/etc/passwd", odd.join("link-outside")).expect("made");
        symlink("a\nb", base.join("odd")).expect("made");
        let all = Patterns::new(["**/link*"]).expect("a pattern");
        let none = Patterns::new([]).expect("no pattern");
        let limits = FilesystemLimits::default();
        let shown = format!("{}/a\\nb/link", base.display());
        for root in [&base, &odd] {
            let roots = Roots::open(std::slice::from_ref(root)).expect("there");
            let absolute = odd.to_str().expect("UTF-8");
            let relative = if root == &base { "odd" } else { "." };
            for path in [absolute, relative, ""] {
                let found = search(&roots, path, &all, &none, &limits, &Stop::never());
                assert_eq!(found.expect("found"), shown, "{path:?} of {root:?}");
            }
        }
    }

    #[test]
    fn sizes_are_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KB"),
            (1_572_864, "1.50 MB"),
            (5 << 30, "5.00 GB"),
            (u64::MAX, "16777216.00 TB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
