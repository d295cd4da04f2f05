//! The accessible directories, and the mapping of paths to them.
//!
//! Each directory is opened once, when the toolset is created. All access starts from that handle, so later changes
//! of the configured path cannot redirect it.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::handle;
use super::refusal::PathRejection;

/// All accessible directories, in the configured order.
#[derive(Debug)]
pub(super) struct Roots(Vec<Root>);

/// An accessible directory.
#[derive(Debug)]
pub(super) struct Root {
    /// The configured path, made absolute.
    pub(super) shown: PathBuf,
    /// The path without symbolic links.
    pub(super) real: PathBuf,
    pub(super) handle: OwnedFd,
}

/// Lexical meaning of a path: an accessible directory and the remaining names, without `.` and `..`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LexicalPath {
    pub(super) root: usize,
    pub(super) names: Vec<OsString>,
}

/// Maximum path length on Linux.
const PATH_BYTES_MAX: usize = 4096;

impl Roots {
    /// Opens the directories.
    ///
    /// # Errors
    ///
    /// One of them cannot be used. Returns its position and how to correct the problem.
    pub(super) fn open(directories: &[PathBuf]) -> Result<Self, (usize, String)> {
        let open = |path: &PathBuf| {
            let shown = std::path::absolute(path)?;
            let real = shown.canonicalize()?;
            let handle = handle::open_root(&real)?;
            Ok::<_, std::io::Error>(Root {
                shown,
                real,
                handle,
            })
        };
        let mut roots = Vec::with_capacity(directories.len());
        for (position, path) in directories.iter().enumerate() {
            let problem = |what: String| (position, format!("is {}, {what}", path.display()));
            let root = open(path).map_err(|error| {
                problem(format!(
                    "which cannot be opened ({error}); name a directory that exists"
                ))
            })?;
            if handle::is_of_kernel(&root.handle) {
                let advice = "which is a kernel file system; name a directory with files";
                return Err(problem(advice.to_owned()));
            }
            roots.push(root);
        }
        Ok(Self(roots))
    }

    pub(super) fn get(&self, root: usize) -> &Root {
        &self.0[root]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.0.iter()
    }

    /// Maps a path to a directory and the names below it. Relative paths start in the first directory. `..` removes
    /// the preceding name lexically, without access to the file system.
    ///
    /// # Errors
    ///
    /// The path is outside of all directories, or is not valid.
    pub(super) fn find(&self, path: &str) -> Result<LexicalPath, PathRejection> {
        if path.contains('\0') {
            return Err(PathRejection::Nul);
        }
        if PATH_BYTES_MAX < path.len() {
            return Err(PathRejection::TooLong);
        }
        if path == "~" || path.starts_with("~/") {
            return Err(PathRejection::Home);
        }
        if is_of_windows(path) || path.starts_with("file:") {
            return Err(PathRejection::Foreign);
        }
        let mut names: Vec<&OsStr> = Vec::new();
        if !path.starts_with('/') {
            let first = self.0.first().ok_or(PathRejection::Outside)?;
            names.extend(names_of(&first.real));
        }
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop();
                }
                name => names.push(OsStr::new(name)),
            }
        }
        self.below(&names)
            .map(|(root, depth)| LexicalPath {
                root,
                names: names[depth..].iter().map(|&name| name.to_owned()).collect(),
            })
            .ok_or(PathRejection::Outside)
    }

    /// Maps the absolute target of a symbolic link to a directory and the remaining names, including `.` and `..`. A
    /// target is inside only if it begins with the path of a directory, name by name.
    pub(super) fn find_target<'a>(&self, target: &'a [u8]) -> Option<(usize, Vec<&'a OsStr>)> {
        let names: Vec<&OsStr> = target
            .split(|&byte| byte == b'/')
            .map(OsStr::from_bytes)
            .filter(|name| !name.is_empty())
            .collect();
        let (root, depth) = self.below(&names)?;
        Some((root, names[depth..].to_vec()))
    }

    /// Returns the deepest directory that contains the names, and the number of names in its path.
    fn below(&self, names: &[&OsStr]) -> Option<(usize, usize)> {
        let mut found = None;
        for (position, root) in self.0.iter().enumerate() {
            for path in [&root.real, &root.shown] {
                let mut depth = 0;
                let begins = names_of(path).all(|name| {
                    let is_next = names.get(depth) == Some(&name);
                    depth += 1;
                    is_next
                });
                if begins && found.is_none_or(|(_, deepest)| deepest < depth) {
                    found = Some((position, depth));
                }
            }
        }
        found
    }

    /// Returns true if the path equals one of the directories, or contains one.
    pub(super) fn has_below(&self, real: &Path) -> bool {
        self.0.iter().any(|root| root.real.starts_with(real))
    }
}

/// Returns the names of a directory's path. One with `..` never matches, since its target is unknown.
fn names_of(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        // Never equal to a name of a normalized path.
        Component::ParentDir => Some(OsStr::new("..")),
        _ => None,
    })
}

/// Returns true for a Windows path such as `C:\x`, which is rejected on every system.
fn is_of_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    matches!(bytes, [drive, b':'] if drive.is_ascii_alphabetic())
        || matches!(bytes, [drive, b':', b'\\' | b'/', ..] if drive.is_ascii_alphabetic())
        || path.starts_with(r"\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(folder: &Path) -> Roots {
        let names = ["data", "data/inner", "data-evil", "other"];
        let directories: Vec<PathBuf> = names
            .iter()
            .map(|name| {
                let path = folder.join(name);
                std::fs::create_dir_all(&path).expect("made");
                path
            })
            .filter(|path| !path.ends_with("data-evil"))
            .collect();
        Roots::open(&directories).expect("there")
    }

    #[test]
    fn a_path_belongs_to_the_deepest_directory_name_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("there");
        let roots = roots(&base);
        let base = base.to_str().expect("UTF-8");
        let found = |path: &str| {
            let wanted = roots.find(path).ok()?;
            let names: Vec<_> = wanted
                .names
                .iter()
                .map(|n| n.to_str().expect("UTF-8"))
                .collect();
            Some((wanted.root, names.join("/")))
        };
        let at = |path: &str| format!("{base}/{path}");
        for (path, is) in [
            (at("data"), Some((0, ""))),
            (at("data/"), Some((0, ""))),
            (at("data/a/./b//c/"), Some((0, "a/b/c"))),
            (at("data/inner/x"), Some((1, "x"))),
            (at("data/inner/../x"), Some((0, "x"))),
            (at("other/../data/x"), Some((0, "x"))),
            (at("data/../../../../../../../../etc/passwd"), None),
            (at("data-evil"), None),
            (at("data-evil/x"), None),
            (at("dat"), None),
            (at("DATA/x"), None),
            (at("data/.."), None),
            ("a".to_owned(), Some((0, "a"))),
            (String::new(), Some((0, ""))),
            (".".to_owned(), Some((0, ""))),
            ("a/../../data/b".to_owned(), Some((0, "b"))),
            ("../other/b".to_owned(), Some((2, "b"))),
            ("..".to_owned(), None),
            ("../data-evil/x".to_owned(), None),
            ("a/..\\..\\x".to_owned(), Some((0, "a/..\\..\\x"))),
            ("/".to_owned(), None),
            ("/etc/passwd".to_owned(), None),
        ] {
            let is = is.map(|(root, names): (usize, &str)| (root, names.to_owned()));
            assert_eq!(found(&path), is, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_here_is_refused_before_anything_is_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let roots = roots(folder.path());
        for (path, refusal) in [
            ("a\0b", PathRejection::Nul),
            ("\0", PathRejection::Nul),
            ("~", PathRejection::Home),
            ("~/.ssh/id_rsa", PathRejection::Home),
            ("C:\\Windows", PathRejection::Foreign),
            ("c:/Windows", PathRejection::Foreign),
            ("C:", PathRejection::Foreign),
            (r"\\server\share", PathRejection::Foreign),
            ("file:///etc/passwd", PathRejection::Foreign),
        ] {
            assert_eq!(roots.find(path), Err(refusal), "{path:?}");
        }
        assert_eq!(roots.find(&"a/".repeat(3000)), Err(PathRejection::TooLong));
        assert!(roots.find("~root").is_ok(), "a name like any other");
    }

    #[test]
    fn directories_that_are_not_there_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        for path in [folder.path().join("nothing"), file] {
            let (position, problem) =
                Roots::open(&[folder.path().to_owned(), path]).expect_err("refused");
            assert_eq!(position, 1);
            assert!(
                problem.contains("name a directory that exists"),
                "{problem}"
            );
        }
        #[cfg(target_os = "linux")]
        {
            let (_, problem) = Roots::open(&["/proc/self".into()]).expect_err("refused");
            assert!(problem.contains("kernel"), "{problem}");
        }
    }
}
