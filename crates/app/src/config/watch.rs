//! Notification of changed files.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(feature = "config-files")]
use notify::RecommendedWatcher as Watcher;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::environment::FileStamp;

/// Watcher for a set of files.
///
/// It watches their folders: editors replace files, and a mounted `ConfigMap` changes by a new target of a symbolic link
/// beside it. Polling finds changes that the system does not report, and all changes in builds without the feature
/// `config-files`.
#[derive(Debug)]
pub struct Watch {
    files: Vec<PathBuf>,
    seen: Vec<Option<FileStamp>>,
    news: mpsc::Receiver<()>,
    teller: mpsc::Sender<()>,
    /// Reports changes until dropped.
    watcher: Option<Watcher>,
    /// Time since a file has been missing.
    gone: Option<Instant>,
    /// True if the files have to be compared, because a wait was dropped after a notification.
    is_due: bool,
}

/// Uninhabited: without the feature `config-files` files are polled.
#[cfg(not(feature = "config-files"))]
type Watcher = std::convert::Infallible;

/// Time without changes after which a file counts as completely written.
const SETTLE: Duration = Duration::from_millis(200);
/// Maximum wait for a missing file that an editor is replacing.
const GONE: Duration = Duration::from_secs(5);
/// Interval of polling, beside the notifications of the system.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

impl Watch {
    /// Starts watching files.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let (teller, news) = mpsc::channel(1);
        let mut watch = Self {
            files: Vec::new(),
            seen: Vec::new(),
            news,
            teller,
            watcher: None,
            gone: None,
            is_due: false,
        };
        watch.follow(files);
        watch
    }

    /// Replaces the set of files. No change to a file in both sets is missed.
    pub fn follow(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        let files: Vec<PathBuf> = files.into_iter().collect();
        if files == self.files && self.watcher.is_some() {
            return;
        }
        if files.is_empty() {
            // Without files, no watcher thread is needed.
            (self.files, self.seen, self.watcher) = (files, Vec::new(), None);
            return;
        }
        let known: HashMap<_, _> = self.files.iter().zip(&self.seen).collect();
        let seen = files.iter().map(|file| match known.get(file) {
            Some(seen) => **seen,
            None => FileStamp::of(file),
        });
        self.seen = seen.collect();
        self.files = files;
        // Changes before the watcher starts are found by an immediate poll.
        let _ = self.teller.try_send(());
        self.watcher = self.watcher_of_folders();
    }

    /// Marks the current state of the files as seen, before the caller reads them. Only later changes are reported.
    pub(crate) fn pass_over(&mut self) {
        self.seen = stamps(&self.files);
    }

    /// Waits until a file has changed and is complete. A missing file delays this for a while. If the wait is dropped, the next
    /// one continues it.
    pub async fn changed(&mut self) {
        if self.files.is_empty() {
            std::future::pending::<()>().await;
        }
        loop {
            if !self.is_due {
                tokio::select! {
                    _ = self.news.recv() => {}
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
                self.is_due = true;
            }
            let mut now = stamps(&self.files);
            if now == self.seen {
                self.gone = None;
                // Another file of the folder changes, perhaps continuously, such as a log.
                tokio::time::sleep(SETTLE).await;
                self.is_due = false;
                continue;
            }
            loop {
                tokio::time::sleep(SETTLE).await;
                let then = std::mem::replace(&mut now, stamps(&self.files));
                if now == then {
                    break;
                }
            }
            self.is_due = false;
            // A file that was missing before may stay so.
            let is_there = |(now, seen): (&Option<FileStamp>, &Option<FileStamp>)| {
                now.is_some() || seen.is_none()
            };
            let is_whole = now.iter().zip(&self.seen).all(is_there)
                || GONE <= self.gone.get_or_insert_with(Instant::now).elapsed();
            if now != self.seen && is_whole {
                (self.seen, self.gone) = (now, None);
                return;
            }
        }
    }

    #[cfg(feature = "config-files")]
    fn watcher_of_folders(&self) -> Option<Watcher> {
        use notify::{RecursiveMode, Watcher as _};

        let watched = || {
            let teller = self.teller.clone();
            let mut watcher = notify::recommended_watcher(move |_| {
                // If the channel is full, a notification is pending already.
                let _ = teller.try_send(());
            })?;
            let folders: BTreeSet<&Path> = self.files.iter().map(|file| folder_of(file)).collect();
            for folder in folders {
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    tracing::debug!(folder = %folder.display(), %error, "a folder cannot be watched; its files are checked periodically");
                }
            }
            Ok::<_, notify::Error>(watcher)
        };
        watched()
            .inspect_err(|error| {
                tracing::debug!(%error, "the system does not report changed files; they are checked periodically");
            })
            .ok()
    }

    #[cfg(not(feature = "config-files"))]
    fn watcher_of_folders(&self) -> Option<Watcher> {
        None
    }
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<FileStamp>> {
    files.iter().map(|file| FileStamp::of(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than it could ever take.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn hears(watch: &mut Watch, change: impl FnOnce()) {
        change();
        tokio::time::timeout(PATIENCE, watch.changed())
            .await
            .expect("the change is heard of");
    }

    #[tokio::test]
    async fn a_file_that_is_written_or_replaced_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "1").expect("written");
        let mut watch = Watch::new([file.clone()]);
        hears(&mut watch, || std::fs::write(&file, "22").expect("written")).await;
        hears(&mut watch, || {
            let new = folder.path().join("new");
            std::fs::write(&new, "333").expect("written");
            std::fs::rename(&new, &file).expect("renamed");
        })
        .await;
        hears(&mut watch, || {
            std::fs::remove_file(&file).expect("removed");
            std::fs::write(&file, "4444").expect("written");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_stays_away_is_told_of_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "1").expect("written");
        let mut watch = Watch::new([file.clone()]);
        hears(&mut watch, || std::fs::remove_file(&file).expect("removed")).await;
        let again = tokio::time::timeout(PATIENCE, watch.changed()).await;
        assert!(again.is_err());
        hears(&mut watch, || std::fs::write(&file, "2").expect("written")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_never_there_delays_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "1").expect("written");
        let mut watch = Watch::new([file.clone(), folder.path().join("missing.yaml")]);
        let before = Instant::now();
        hears(&mut watch, || std::fs::write(&file, "22").expect("written")).await;
        assert!(before.elapsed() < GONE);
    }

    #[tokio::test]
    async fn what_is_read_for_another_reason_is_not_told_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "1").expect("written");
        let mut watch = Watch::new([file.clone()]);
        std::fs::write(&file, "22").expect("written");
        watch.pass_over();
        assert_eq!(watch.seen, stamps(&watch.files));
        hears(&mut watch, || {
            std::fs::write(&file, "333").expect("written");
        })
        .await;
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "333");
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_no_file_nothing_is_watched_until_there_is_one() {
        let mut watch = Watch::new([]);
        assert!(watch.watcher.is_none());
        let waited = tokio::time::timeout(PATIENCE, watch.changed()).await;
        assert!(waited.is_err());
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "1").expect("written");
        watch.follow([file.clone()]);
        hears(&mut watch, || std::fs::write(&file, "22").expect("written")).await;
        watch.follow([]);
        assert!(watch.watcher.is_none());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_config_map_changes_when_its_link_is_turned() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (version, text) in [("..1", "one"), ("..2", "two")] {
            std::fs::create_dir(path(version)).expect("created");
            std::fs::write(path(version).join("a.yaml"), text).expect("written");
        }
        symlink("..1", path("..data")).expect("linked");
        symlink("..data/a.yaml", path("a.yaml")).expect("linked");
        let mut watch = Watch::new([path("a.yaml")]);
        hears(&mut watch, || {
            symlink("..2", path("..data_tmp")).expect("linked");
            std::fs::rename(path("..data_tmp"), path("..data")).expect("renamed");
        })
        .await;
        assert_eq!(
            std::fs::read_to_string(path("a.yaml")).expect("read"),
            "two"
        );
    }
}
