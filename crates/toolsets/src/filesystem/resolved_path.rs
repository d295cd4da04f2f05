//! Path resolution, name by name, from one directory handle to the next.
//!
//! The system never follows links itself. The target of a symbolic link is read and resolved in the same way: `..`
//! returns to the previous handle, and stops at the root. Concurrent changes by other processes thus cannot lead
//! outside.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{FileType, Stat};

use super::handle;
use super::refusal::PathRejection;
use super::roots::{LexicalPath, Roots};

/// Result of a path resolution.
#[derive(Debug)]
pub(super) struct ResolvedPath<'r> {
    roots: &'r Roots,
    root: usize,
    /// The directories below the root, each with its name in its parent.
    way: Vec<(OsString, OwnedFd)>,
    /// The last name; `None` if the path is a root itself.
    name: Option<OsString>,
    /// Metadata of the last name, if it exists.
    found: Option<Stat>,
}

/// Handling of a symbolic link at the end of a path, and of missing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowMode {
    /// Follow the link. The last name may be missing.
    Follow,
    /// Return the link itself.
    Stay,
    /// Follow the link, and create missing directories.
    Make,
}

/// Maximum number of links in a path, as in Linux.
const LINKS_MAX: usize = 40;

impl<'r> ResolvedPath<'r> {
    /// Resolves a requested path.
    ///
    /// # Errors
    ///
    /// The path leads outside, or does not exist.
    pub(super) fn find(
        roots: &'r Roots,
        path: &str,
        ending: FollowMode,
    ) -> Result<Self, PathRejection> {
        let LexicalPath { root, names } = roots.find(path)?;
        let mut walk = Walk {
            spot: Self {
                roots,
                root,
                way: Vec::new(),
                name: None,
                found: None,
            },
            ahead: names.into_iter().map(|name| (name, false)).collect(),
            links: 0,
            ending,
        };
        walk.run()?;
        Ok(walk.spot)
    }

    /// Returns the directory that contains the last name.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        match self.way.last() {
            Some((_, handle)) => handle.as_fd(),
            None => self.roots.get(self.root).handle.as_fd(),
        }
    }

    /// Returns the last name; `.` for a root itself.
    pub(super) fn name(&self) -> &OsStr {
        self.name.as_deref().unwrap_or(OsStr::new("."))
    }

    pub(super) fn is_root(&self) -> bool {
        self.name.is_none()
    }

    /// Returns the metadata of the target.
    ///
    /// # Errors
    ///
    /// The target does not exist.
    pub(super) fn found(&self) -> Result<&Stat, PathRejection> {
        self.found.as_ref().ok_or(PathRejection::NotFound)
    }

    pub(super) fn is_free(&self) -> bool {
        self.found.is_none()
    }

    /// Returns the path without symbolic links.
    pub(super) fn real_path(&self) -> PathBuf {
        let mut path = self.roots.get(self.root).real.clone();
        path.extend(self.way.iter().map(|(name, _)| name));
        path.extend(&self.name);
        path
    }

    /// Opens the target directory to list it.
    ///
    /// # Errors
    ///
    /// The target is not a directory, or does not exist.
    pub(super) fn open_to_list(&self) -> Result<OwnedFd, PathRejection> {
        match handle::kind(self.found()?) {
            FileType::Directory => handle::open_to_list(self.dir(), self.name()),
            _ => Err(PathRejection::NoDirectory),
        }
    }
}

struct Walk<'r> {
    spot: ResolvedPath<'r>,
    /// Names still to resolve, each with true if it comes from a link.
    ahead: VecDeque<(OsString, bool)>,
    links: usize,
    ending: FollowMode,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), PathRejection> {
        while let Some((name, by_link)) = self.ahead.pop_front() {
            if name == ".." {
                self.spot.way.pop().ok_or(PathRejection::LinkOutside)?;
            } else if !name.is_empty() && name != "." {
                self.step(name, by_link)?;
            }
        }
        if self.spot.name.is_none() {
            self.stop_at_directory()?;
        }
        Ok(())
    }

    fn step(&mut self, name: OsString, by_link: bool) -> Result<(), PathRejection> {
        let is_last = self.ahead.is_empty();
        let mut found = handle::stat_entry(self.spot.dir(), &name)?;
        if found.is_none() && self.ending == FollowMode::Make {
            if by_link {
                return Err(PathRejection::Dangling);
            }
            handle::make_dir(self.spot.dir(), &name)?;
            found = handle::stat_entry(self.spot.dir(), &name)?;
        }
        let Some(stat) = found else {
            return match (is_last, by_link) {
                (true, false) => {
                    self.spot.name = Some(name);
                    Ok(())
                }
                (_, true) => Err(PathRejection::Dangling),
                (false, false) => Err(PathRejection::NotFound),
            };
        };
        match handle::kind(&stat) {
            FileType::Symlink if !(is_last && self.ending == FollowMode::Stay) => {
                self.follow(&name)
            }
            FileType::Directory if !is_last => {
                let handle = handle::enter(self.spot.dir(), &name)?;
                self.spot.way.push((name, handle));
                Ok(())
            }
            _ if !is_last => Err(PathRejection::NotADirectory),
            _ => {
                self.spot.name = Some(name);
                self.spot.found = Some(stat);
                Ok(())
            }
        }
    }

    /// Continues with the target of a link.
    fn follow(&mut self, name: &OsStr) -> Result<(), PathRejection> {
        self.links += 1;
        if LINKS_MAX < self.links {
            return Err(PathRejection::TooManyLinks);
        }
        let target = handle::read_link(self.spot.dir(), name)?;
        if target.is_empty() {
            return Err(PathRejection::LinkOutside);
        }
        let names: Vec<&OsStr> = if target.starts_with(b"/") {
            let found = self.spot.roots.find_target(&target);
            let (root, names) = found.ok_or(PathRejection::LinkOutside)?;
            self.spot.root = root;
            self.spot.way.clear();
            names
        } else {
            target
                .split(|&byte| byte == b'/')
                .map(OsStr::from_bytes)
                .collect()
        };
        for name in names.into_iter().rev() {
            self.ahead.push_front((name.to_owned(), true));
        }
        Ok(())
    }

    /// Ends at a directory that is already open: a root, or one that a link has led back to.
    fn stop_at_directory(&mut self) -> Result<(), PathRejection> {
        let spot = &mut self.spot;
        let stat = rustix::fs::fstat(spot.dir())?;
        if let Some((name, _)) = spot.way.pop() {
            spot.name = Some(name);
        }
        spot.found = Some(stat);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Few names, so that paths and links meet.
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// A path of these names and of what is no name.
    fn path() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            6 => proptest::sample::select(&NAMES[..]),
            2 => Just(".."),
            1 => Just("."),
            1 => Just(""),
        ];
        (vec(part, 1..6), any::<bool>()).prop_map(|(parts, ends)| {
            let slash = if ends { "/" } else { "" };
            format!("{}{slash}", parts.join("/"))
        })
    }

    /// Makes what it can of links and directories, at random paths, within the root and beside it.
    fn build(base: &Path, entries: &[(String, Option<String>)]) {
        for top in ["root/a/b", "root/c", "outside/a/b", "outside/c"] {
            std::fs::create_dir_all(base.join(top)).expect("made");
        }
        for (place, target) in entries {
            for top in ["root", "outside"] {
                let place = base.join(top).join(place);
                let is_within = place
                    .parent()
                    .and_then(|parent| parent.canonicalize().ok())
                    .is_some_and(|parent| parent.starts_with(base));
                if !is_within {
                    continue;
                }
                let _ = match target {
                    Some(target) => {
                        symlink(target.replace("@", base.to_str().expect("UTF-8")), place)
                    }
                    None => std::fs::create_dir(place),
                };
            }
        }
    }

    proptest! {
        // Each makes its own folders.
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// The system's own way of following paths says where each leads. What is found is there, and is inside; what
        /// the system cannot find is not found.
        #[test]
        fn whatever_is_linked_to_whatever_nothing_outside_is_found(
            entries in vec((path(), proptest::option::of(prop_oneof![
                4 => path(),
                1 => path().prop_map(|path| format!("@/{path}")),
                1 => path().prop_map(|path| format!("@/root/{path}")),
                1 => Just("/".to_owned()),
            ])), 0..12),
            wanted in vec(path(), 1..8),
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let base = folder.path().canonicalize().expect("there");
            build(&base, &entries);
            let root = base.join("root");
            let roots = Roots::open(std::slice::from_ref(&root)).expect("there");
            for path in wanted {
                let Ok(spot) = ResolvedPath::find(&roots, &path, FollowMode::Follow) else {
                    continue;
                };
                // `..` of a path that is asked for takes back a name; the system would look where that leads.
                let tidy = roots.find(&path).expect("found").names;
                let there = root.join(tidy.iter().collect::<PathBuf>());
                prop_assert!(spot.real_path().starts_with(&root));
                match spot.found() {
                    Ok(found) => {
                        prop_assert_eq!(there.canonicalize().ok(), Some(spot.real_path()), "{}", path);
                        let system = std::fs::metadata(&there).expect("there");
                        prop_assert_eq!(found.st_ino, std::os::unix::fs::MetadataExt::ino(&system));
                    }
                    Err(_) => prop_assert!(there.symlink_metadata().is_err(), "{}", path),
                }
            }
        }

        #[test]
        fn whatever_is_asked_for_names_are_plain(path in "[./a~:\\\\%\0]{0,40}") {
            let roots = Roots::open(&[std::env::temp_dir()]).expect("there");
            if let Ok(wanted) = roots.find(&path) {
                for name in wanted.names {
                    let name = name.to_str().expect("UTF-8");
                    prop_assert!(!name.contains(['/', '\0']) && !matches!(name, "" | "." | ".."));
                }
            }
        }
    }
}
