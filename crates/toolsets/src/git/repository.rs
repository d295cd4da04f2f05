//! Access control for repositories: from a caller's path to an open repository.
//!
//! A repository can refer to other places: `.git` can be a file that names another folder, that folder can name a
//! common one, objects can be borrowed from elsewhere, and each can be a symbolic link. All of these have to be
//! inside a configured folder.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gix::bstr::ByteSlice;
use gix::prelude::ObjectIdExt;
use gix::{ObjectId, Repository, ThreadSafeRepository};

use super::config::GitConfig;
use super::format;
use super::links;
use super::worktree::Worktree;
use crate::catalog::ToolError;
use crate::net::Mutex;
use crate::source::builtin::Stop;

/// Maximum size of an object or an index to read, in bytes.
pub(super) const READ_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Maximum size of a commit, a tag or a tree, in bytes.
const NODE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum length of a revision's name, in bytes.
const REVISION_BYTES_MAX: usize = 1000;
/// Minimum number of digits of a short ID.
const SHORT: usize = 7;

/// The configured repositories, with a cache of open ones.
pub(super) struct Repositories {
    roots: Vec<PathBuf>,
    pub(super) config: GitConfig,
    /// Open repositories, the most recently used first.
    open: Mutex<Vec<Open>>,
}

struct Open {
    folder: PathBuf,
    stamp: Stamp,
    repository: ThreadSafeRepository,
}

/// Fingerprint of a repository's configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp(Vec<Option<(SystemTime, u64)>>);

/// A repository during one call.
pub(super) struct OpenRepository<'a> {
    pub(super) repository: Repository,
    pub(super) config: &'a GitConfig,
    pub(super) stop: &'a Stop,
}

impl Repositories {
    /// Checks the configured folders, which have to exist.
    pub(super) fn new(config: &GitConfig) -> Result<Self, (usize, String)> {
        let mut roots = Vec::new();
        for (position, folder) in config.repositories.iter().enumerate() {
            let refuse = |problem: String| (position, problem);
            let root = fs::canonicalize(folder).map_err(|error| {
                refuse(format!(
                    "is {}, which cannot be used: {error}",
                    folder.display()
                ))
            })?;
            if !root.is_dir() {
                return Err(refuse(format!(
                    "is {}, which is not a folder",
                    folder.display()
                )));
            }
            if root.parent().is_none() {
                let problem =
                    "is the whole file system; name the folders that have repositories in them";
                return Err(refuse(problem.to_owned()));
            }
            roots.push(root);
        }
        Ok(Self {
            roots,
            config: config.clone(),
            open: Mutex::default(),
        })
    }

    /// Returns the repository at a path, or in the nearest folder above it.
    pub(super) fn at<'a>(
        &'a self,
        path: &str,
        stop: &'a Stop,
    ) -> Result<OpenRepository<'a>, ToolError> {
        let folder = self.folder(path)?;
        let stamp = self.check(&folder, path, stop)?;
        let repository = match self.opened(&folder, &stamp) {
            Some(repository) => repository,
            None => {
                let repository = self.open(&folder, path)?;
                self.keep(Open {
                    folder: folder.clone(),
                    stamp,
                    repository: repository.clone(),
                });
                repository
            }
        };
        Ok(OpenRepository {
            repository: repository.to_thread_local(),
            config: &self.config,
            stop,
        })
    }

    fn opened(&self, folder: &Path, stamp: &Stamp) -> Option<ThreadSafeRepository> {
        let mut open = self.open.lock();
        let position = open.iter().position(|one| one.folder == folder)?;
        let one = open.remove(position);
        if one.stamp != *stamp {
            return None;
        }
        let repository = one.repository.clone();
        open.insert(0, one);
        Some(repository)
    }

    fn keep(&self, one: Open) {
        let mut open = self.open.lock();
        open.retain(|other| other.folder != one.folder);
        open.insert(0, one);
        open.truncate(self.config.limits.open_repositories);
    }

    /// Returns the folder of the repository that a path belongs to.
    fn folder(&self, path: &str) -> Result<PathBuf, ToolError> {
        let wanted = Path::new(path);
        let candidates: Vec<PathBuf> = if wanted.is_absolute() {
            vec![wanted.to_owned()]
        } else {
            self.roots.iter().map(|root| root.join(wanted)).collect()
        };
        for candidate in candidates {
            // Errors of paths outside are not reported.
            let Ok(real) = fs::canonicalize(candidate) else {
                continue;
            };
            let Some(root) = self.root_of(&real) else {
                continue;
            };
            let found = real
                .ancestors()
                .take_while(|folder| folder.starts_with(root))
                .find(|folder| looks_like_a_repository(folder));
            if let Some(folder) = found {
                return Ok(folder.to_owned());
            }
        }
        let roots: Vec<_> = self
            .roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        Err(ToolError::new(format!(
            "{path:?} is in no repository that may be used here; those in {} may",
            roots.join(", ")
        )))
    }

    fn root_of(&self, real: &Path) -> Option<&Path> {
        let root = self.roots.iter().find(|root| real.starts_with(root));
        root.map(PathBuf::as_path)
    }

    /// Checks everything that a repository consists of. This is repeated for each call, since it can change.
    fn check(&self, folder: &Path, path: &str, stop: &Stop) -> Result<Stamp, ToolError> {
        let escapes = || {
            ToolError::new(format!(
                "the repository at {path:?} has parts outside of the folders that may be used here"
            ))
        };
        let dot_git = folder.join(".git");
        let git_dir = match fs::symlink_metadata(&dot_git) {
            Ok(found) if found.is_file() => {
                let target = small_file(&dot_git).ok_or_else(escapes)?;
                let target = target.trim_end().strip_prefix("gitdir:").map(str::trim);
                folder.join(target.ok_or_else(escapes)?)
            }
            Ok(_) => dot_git,
            Err(_) => folder.to_owned(),
        };
        let git_dir = self.inside(&git_dir).ok_or_else(escapes)?;
        let common_file = git_dir.join("commondir");
        let common_dir = match fs::symlink_metadata(&common_file) {
            Ok(_) => {
                let target = small_file(&common_file).ok_or_else(escapes)?;
                self.inside(&git_dir.join(target.trim_end()))
                    .ok_or_else(escapes)?
            }
            Err(_) => git_dir.clone(),
        };
        for folder in [&git_dir, &common_dir, &common_dir.join("info")] {
            links::check_kinds(folder)?;
        }
        for own in ["HEAD", "index", "config.worktree", "logs", "MERGE_HEAD"] {
            self.absent_or_inside(&git_dir.join(own))
                .ok_or_else(escapes)?;
        }
        for shared in [
            "config",
            "info",
            "info/exclude",
            "info/attributes",
            "logs",
            "objects",
            "objects/info",
            "objects/pack",
            "packed-refs",
            "refs",
            "refs/heads",
            "refs/remotes",
            "refs/tags",
            "shallow",
        ] {
            self.absent_or_inside(&common_dir.join(shared))
                .ok_or_else(escapes)?;
        }
        for shared_index in links::shared_indexes(&git_dir) {
            self.absent_or_inside(&shared_index).ok_or_else(escapes)?;
        }
        let mut walked: Vec<PathBuf> = vec![git_dir.join("refs"), git_dir.join("logs")];
        walked.extend(["objects", "refs", "logs", "worktrees"].map(|part| common_dir.join(part)));
        self.check_alternates(&common_dir.join("objects"), 0, &mut walked)
            .ok_or_else(escapes)?;
        if !links::are_inside(&walked, |path| self.inside(path), stop)? {
            return Err(escapes());
        }
        if !self.config.allow_other_owners {
            for part in [folder, &git_dir, &common_dir, &common_dir.join("objects")] {
                let is_ours = fs::metadata(part).is_ok_and(|found| belongs_to_us(&found));
                if !is_ours {
                    return Err(ToolError::new(format!(
                        "the repository at {path:?} belongs to another user than the one this server runs as; the operator can set builtin.git.allow_other_owners"
                    )));
                }
            }
        }
        let watched = [
            common_dir.join("config"),
            git_dir.join("config.worktree"),
            git_dir,
        ];
        Ok(Stamp(watched.iter().map(|file| stamp(file)).collect()))
    }

    /// Checks the alternate object folders, recursively, and adds them to `found`.
    fn check_alternates(
        &self,
        objects: &Path,
        depth: usize,
        found: &mut Vec<PathBuf>,
    ) -> Option<()> {
        const DEPTH_MAX: usize = 5;
        let list = objects.join("info").join("alternates");
        if fs::symlink_metadata(&list).is_err() {
            return Some(());
        }
        if depth == DEPTH_MAX {
            return None;
        }
        for line in small_file(&list)?.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let borrowed = self.inside(&objects.join(line))?;
            self.check_alternates(&borrowed, depth + 1, found)?;
            found.push(borrowed);
        }
        Some(())
    }

    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let real = fs::canonicalize(path).ok()?;
        self.root_of(&real)?;
        Some(real)
    }

    fn absent_or_inside(&self, path: &Path) -> Option<()> {
        match fs::symlink_metadata(path) {
            Err(_) => Some(()),
            Ok(_) => self.inside(path).map(|_| ()),
        }
    }

    fn open(&self, folder: &Path, path: &str) -> Result<ThreadSafeRepository, ToolError> {
        let limit = format!("gitoxide.objects.allocLimit={READ_BYTES_MAX}");
        // Reduced trust ignores all repository settings that start a program, read another file or refer to other
        // places. User and system configuration and the environment are not read.
        let opened = gix::open::Options::isolated()
            .with(gix::sec::Trust::Reduced)
            .config_overrides([limit.as_str(), "index.threads=1", "core.fsmonitor=false"])
            .open(folder);
        let repository =
            opened.map_err(|error| format::unreadable(folder, path).caused_by(error))?;
        let local = repository.to_thread_local();
        format::check_references(&local, path)?;
        let is_at_home = match local.workdir() {
            Some(worktree) => fs::canonicalize(worktree).is_ok_and(|real| real == folder),
            None => true,
        };
        if !is_at_home {
            return Err(ToolError::new(format!(
                "the working tree of the repository at {path:?} is somewhere else"
            )));
        }
        Ok(repository)
    }
}

impl<'a> OpenRepository<'a> {
    /// Resolves a revision.
    pub(super) fn resolve(&self, revision: &str) -> Result<ObjectId, ToolError> {
        check_revision(revision)?;
        // `:path` is read from the index.
        if revision.contains(':') {
            self.check_nesting()?;
        }
        let found = self.repository.rev_parse_single(revision);
        let id = found.map_err(|error| unresolved(revision).caused_by(error))?;
        Ok(id.detach())
    }

    /// Resolves a revision to a commit, following tags.
    pub(super) fn commit(&self, revision: &str) -> Result<ObjectId, ToolError> {
        let id = self.resolve(revision)?;
        self.peel(id, gix::objs::Kind::Commit)
            .map_err(|error| unresolved(revision).caused_by(Cause(error.message().to_owned())))
    }

    /// Follows an object to one of a given kind.
    pub(super) fn peel(&self, id: ObjectId, kind: gix::objs::Kind) -> Result<ObjectId, ToolError> {
        self.bounded(id, NODE_BYTES_MAX)?;
        let object = self.repository.find_object(id).doing("read an object")?;
        let peeled = object.peel_to_kind(kind).doing("follow an object")?;
        Ok(peeled.id)
    }

    /// Returns the tree of a commit or of another object that has one.
    pub(super) fn tree_of(&self, id: ObjectId) -> Result<ObjectId, ToolError> {
        self.peel(id, gix::objs::Kind::Tree)
    }

    /// Returns the commit of HEAD; `None` on a branch without commits.
    pub(super) fn head(&self) -> Result<Option<ObjectId>, ToolError> {
        let mut head = self.repository.head().doing("read HEAD")?;
        let id = head.try_peel_to_id().doing("read HEAD")?;
        Ok(id.map(gix::Id::detach))
    }

    /// Returns the tree of HEAD; `None` on a branch without commits.
    pub(super) fn head_tree(&self) -> Result<Option<ObjectId>, ToolError> {
        self.head()?.map(|id| self.tree_of(id)).transpose()
    }

    /// Rejects an object that is too large before it is read.
    pub(super) fn bounded(&self, id: ObjectId, max: u64) -> Result<(), ToolError> {
        let header = self.repository.find_header(id).doing("find an object")?;
        let size = header.size();
        if max < size {
            self.stop.hit("file_bytes");
            return Err(ToolError::new(format!(
                "the object {id} has {size} bytes, and at most {max} are read"
            )));
        }
        Ok(())
    }

    /// Returns the working tree.
    pub(super) fn worktree(&self) -> Result<Worktree, ToolError> {
        let path = self.repository.workdir();
        let path =
            path.ok_or_else(|| ToolError::new("the repository is bare: it has no working tree"))?;
        Worktree::open(path).doing("open the working tree")
    }

    /// Returns the shortest unambiguous form of an ID.
    pub(super) fn short(&self, id: ObjectId) -> String {
        match id.attach(&self.repository).shorten() {
            Ok(prefix) => prefix.to_string(),
            // The object is not stored, as for a file that was not added.
            Err(_) => id.to_hex_with_len(SHORT).to_string(),
        }
    }

    pub(super) fn limits(&self) -> &super::config::GitLimits {
        &self.config.limits
    }
}

/// Adds a description of the failed operation to an error. The cause only goes to the log.
pub(super) trait ResultContext<T> {
    fn doing(self, what: &str) -> Result<T, ToolError>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> ResultContext<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, ToolError> {
        self.map_err(|error| ToolError::new(format!("cannot {what}")).caused_by(error))
    }
}

/// A cause that is only a text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Cause(String);

fn unresolved(revision: &str) -> ToolError {
    ToolError::new(format!("Ref '{revision}' did not resolve to an object"))
}

/// Rejects a revision that a program would take for an option, or that would search the whole history.
pub(super) fn check_revision(revision: &str) -> Result<(), ToolError> {
    no_option("revision", revision)?;
    if REVISION_BYTES_MAX < revision.len() {
        return Err(ToolError::new("the revision is too long"));
    }
    if revision.starts_with(":/") || revision.contains("^{/") {
        return Err(ToolError::new(
            "revisions cannot be searched for by their text here; git_log shows them",
        ));
    }
    Ok(())
}

/// Rejects a value that begins with a dash.
pub(super) fn no_option(what: &str, value: &str) -> Result<(), ToolError> {
    if value.starts_with('-') {
        return Err(ToolError::new(format!(
            "Invalid {what}: '{value}' - cannot start with '-'"
        )));
    }
    Ok(())
}

fn looks_like_a_repository(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(".git")).is_ok()
        || (folder.join("HEAD").is_file()
            && folder.join("objects").is_dir()
            && folder.join("refs").is_dir())
}

/// Reads a small text file.
pub(super) fn small_file(path: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 16 * 1024;
    let found = fs::metadata(path).ok()?;
    if !found.is_file() || BYTES_MAX < found.len() {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    bytes.to_str().ok().map(str::to_owned)
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(file).ok()?;
    if found.is_dir() {
        // Its modification time changes with every file in it, so only its identity is compared.
        return Some((SystemTime::UNIX_EPOCH, found.ino()));
    }
    Some((found.modified().ok()?, found.len()))
}

/// A repository owned by the superuser is trusted, since the superuser has access to everything anyway.
fn belongs_to_us(found: &Metadata) -> bool {
    let owner = found.uid();
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}
