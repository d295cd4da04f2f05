//! Reload of the configuration while the server runs. A change is applied as a whole, or not at all.

mod start_check;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::start_check::{check_start, checked_files, is_in};
use super::catalog_builder::{CatalogBuilder, Refresh, RefreshedSources};
use super::error::{AppError, MainError};
use super::hooks::{Commit, Hook};
use crate::auth::AuthMethodKind;
use crate::config::{Loaded, Reload, Watch};
use crate::environment::Probe;
use crate::net;
use crate::source::SourceConfig;
use crate::telemetry::{Counter, RELOAD_FAILED, RELOADS, Telemetry};

/// Reloads the configuration when its files change, and on SIGHUP.
pub(super) struct Reloader {
    /// Settings at startup, which are still in force where a change needs a restart.
    started: Arc<Loaded>,
    current: Arc<Loaded>,
    /// Configuration that the last attempt could not apply. Files that it names may be missing.
    rejected: Option<Arc<Loaded>>,
    hooks: Vec<Hook>,
    catalogs: Arc<CatalogBuilder>,
    /// Notified when a changed setting needs a restart.
    restart: Option<Arc<Notify>>,
    telemetry: Telemetry,
    succeeded: Counter,
    failed: Counter,
    /// True if the last attempt failed.
    has_failed: Arc<AtomicBool>,
    triggers: ReloadTriggers,
}

/// Returns the files of a configuration, and the documents of its sources.
fn files_of(loaded: &Loaded) -> Vec<PathBuf> {
    let sources = loaded.config.sources.iter();
    let made_of = sources.filter_map(SourceConfig::file);
    loaded.files().map(Into::into).chain(made_of).collect()
}

/// Returns the files of a configuration, the documents of its sources, and the files that these refer to.
fn files_with_references(loaded: &Loaded, catalogs: &CatalogBuilder) -> Vec<PathBuf> {
    let mut files = files_of(loaded);
    files.extend(catalogs.referenced_files());
    files
}

/// First and maximum pause until unavailable sources are loaded again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// Toolsets that open or read files and folders of their settings when they are created.
const OPENING: [&str; 3] = ["filesystem", "git", "sql"];

/// Event that the reloader handles.
enum Event {
    /// The files of the configuration, or documents in files, may have changed.
    Changed,
    /// SIGHUP.
    Hangup,
    /// A source is unavailable.
    Unavailable,
    /// Sources were loaded again.
    Refreshed(RefreshedSources),
}

/// Sources that are being loaded again. Reloads do not wait for it.
type Refreshing = (Refresh, BoxFuture<'static, RefreshedSources>);

async fn refreshed(refreshing: &mut Option<Refreshing>) -> RefreshedSources {
    match refreshing {
        Some((_, loading)) => loading.await,
        None => std::future::pending().await,
    }
}

impl Reloader {
    pub(super) fn new(
        loaded: Arc<Loaded>,
        hooks: Vec<Hook>,
        catalogs: &Arc<CatalogBuilder>,
        restart: Option<Arc<Notify>>,
        telemetry: &Telemetry,
        mut triggers: ReloadTriggers,
    ) -> Self {
        triggers
            .watch
            .follow(files_with_references(&loaded, catalogs));
        let counter = |outcome| telemetry.metrics.counter(&RELOADS, &[("outcome", outcome)]);
        let has_failed = Arc::new(AtomicBool::new(false));
        telemetry.metrics.read(&RELOAD_FAILED, &[], {
            let has_failed = Arc::clone(&has_failed);
            move || f64::from(u8::from(has_failed.load(Ordering::Relaxed)))
        });
        Self {
            triggers,
            started: Arc::clone(&loaded),
            current: loaded,
            rejected: None,
            hooks,
            catalogs: Arc::clone(catalogs),
            restart,
            telemetry: telemetry.clone(),
            succeeded: counter("success"),
            failed: counter("failure"),
            has_failed,
        }
    }

    /// Reloads until dropped.
    pub(super) async fn run(mut self) -> Infallible {
        let mut pause = PAUSE.0;
        let mut refreshing: Option<Refreshing> = None;
        loop {
            let awaits_some = refreshing.is_none() && self.catalogs.awaits_some();
            let event = tokio::select! {
                () = self.triggers.watch.changed() => Event::Changed,
                () = self.triggers.hangups.next() => Event::Hangup,
                refreshed = refreshed(&mut refreshing) => Event::Refreshed(refreshed),
                () = tokio::time::sleep(pause), if awaits_some => Event::Unavailable,
            };
            match event {
                Event::Changed | Event::Hangup => {
                    let is_hangup = matches!(event, Event::Hangup);
                    if is_hangup {
                        tracing::info!("SIGHUP: the configuration is being reloaded");
                        self.triggers.watch.pass_over();
                    }
                    match self.reload_beside(is_hangup).await {
                        Some(reloader) => self = reloader,
                        None => return std::future::pending().await,
                    }
                    pause = PAUSE.0;
                    // What was being loaded may belong to other settings.
                    let which = match is_hangup {
                        true => Some(Refresh::Documents),
                        false => refreshing.take().map(|(which, _)| which),
                    };
                    refreshing = which.map(|which| self.refresh(which));
                }
                Event::Unavailable => {
                    pause = PAUSE.1.min(pause * 2);
                    refreshing = Some(self.refresh(Refresh::Unavailable));
                }
                Event::Refreshed(refreshed) => {
                    refreshing = None;
                    let catalogs = Arc::clone(&self.catalogs);
                    // Schemas take time, and other tasks wait for this thread.
                    let _ = net::spawn_blocking(move || catalogs.serve_refreshed(refreshed)).await;
                }
            }
            let mut files = files_with_references(&self.current, &self.catalogs);
            // A file that is missing may be created.
            if let Some(rejected) = &self.rejected {
                files.extend(files_of(rejected));
                files.extend(checked_files(&rejected.config));
            }
            self.triggers.watch.follow(files);
        }
    }

    fn refresh(&self, which: Refresh) -> Refreshing {
        (which, Box::pin(self.catalogs.refresh(which)))
    }

    /// Reloads on another thread, because files and schemas take time and other tasks wait for this one. Returns `None` if
    /// the runtime ends.
    async fn reload_beside(mut self, rereads_all: bool) -> Option<Self> {
        let reloaded = net::spawn_blocking(move || {
            Handle::current().block_on(self.reload(rereads_all));
            self
        });
        reloaded.await.ok()
    }

    async fn reload(&mut self, rereads_all: bool) {
        // Items of the application are built again, and their code can panic.
        let reloaded = AssertUnwindSafe(self.try_reload(rereads_all));
        let error = match reloaded.catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(MainError::from(error).to_string()),
            Err(panic) => {
                self.catalogs.items.origins.update(&self.current);
                Some(format!("it panicked: {}", net::panic_message(&*panic)))
            }
        };
        self.has_failed.store(error.is_some(), Ordering::Relaxed);
        match error {
            None => self.succeeded.add(1),
            Some(error) => {
                self.failed.add(1);
                tracing::error!(
                    error,
                    "the changed configuration cannot be used; the one from before stays in force"
                );
            }
        }
    }

    /// With `rereads_all`, files and folders that settings name are opened again, even if no setting has changed.
    async fn try_reload(&mut self, rereads_all: bool) -> Result<(), AppError> {
        let loaded = self.current.read_again(&Probe::read_again())?;
        let origins = &self.catalogs.items.origins;
        origins.update(&loaded);
        let commits = match self.prepare(&loaded).await {
            Ok(commits) => commits,
            Err(error) => {
                let error = error.located(origins, &loaded.config);
                origins.update(&self.current);
                self.rejected = Some(loaded);
                return Err(error);
            }
        };
        self.rejected = None;
        self.commit(&loaded, commits, rereads_all);
        self.request_restart(&loaded);
        self.current = loaded;
        Ok(())
    }

    /// Prepares the change of all parts. It changes nothing.
    async fn prepare(&self, loaded: &Loaded) -> Result<Vec<Commit>, AppError> {
        let changes = self.changes(&self.started, loaded);
        let restart = changes.iter().filter(|(_, of)| *of == Reload::Restart);
        let restart: Vec<_> = restart.map(|(name, _)| name.as_str()).collect();
        let mut config = loaded.config.clone();
        let items = &self.catalogs.items;
        items.identity.apply(&mut config);
        check_start(&config, &restart, items, self.catalogs.apps())?;
        let config = Arc::new(config);
        // This takes longest, and the hooks read files that can change meanwhile.
        let waits_for_upstreams = restart.iter().any(|name| is_in(name, "upstreams"));
        let catalogs = self
            .catalogs
            .prepare(Arc::clone(&config), waits_for_upstreams)
            .await?;
        let commits = self.hooks.iter().map(|hook| hook(&config));
        let mut commits = commits.collect::<Result<Vec<_>, _>>()?;
        commits.push(catalogs);
        Ok(commits)
    }

    fn commit(&self, loaded: &Loaded, commits: Vec<Commit>, rereads_all: bool) {
        let live = named(Reload::Live, &self.changes(&self.current, loaded));
        // A document can change while the settings that name it stay the same, and so can a folder.
        let config = &loaded.config;
        let names_documents = config.sources.iter().any(SourceConfig::is_a_document);
        let opens = |toolset: &String| OPENING.contains(&toolset.as_str());
        let names_files = names_documents || rereads_all && config.toolsets.iter().any(opens);
        if live.is_empty() && !names_files {
            tracing::info!(
                "the configuration was reloaded; no setting that applies to a running server has changed"
            );
            return;
        }
        for commit in commits {
            commit();
        }
        self.telemetry.life.next_generation();
        let generation = self.telemetry.life.generation();
        if live.is_empty() {
            tracing::info!(
                generation,
                "the files that the configuration names were reloaded"
            );
        } else {
            tracing::info!(
                settings = live,
                generation,
                "the changed configuration is in force"
            );
            let has_rules = |of: &Loaded| !of.config.policy.rules.is_empty();
            if has_rules(&self.current) && !has_rules(loaded) {
                tracing::warn!(
                    setting = "policy.rules",
                    "no access rules are left; if the file was not complete yet, write the next one beside it and rename it"
                );
            }
        }
    }

    /// Returns the settings that have changed, and when they take effect.
    fn changes(&self, since: &Loaded, loaded: &Loaded) -> Vec<(String, Reload)> {
        let mut changes = since.changes(loaded);
        let asked_for = self.started.config.auth.kinds();
        // A server that did not ask callers for keys at its start does not begin to.
        if !asked_for.contains(&AuthMethodKind::ApiKey) {
            let of_keys = |(name, _): &&mut (String, Reload)| name.starts_with("auth.api_keys");
            for (_, reload) in changes.iter_mut().filter(of_keys) {
                *reload = Reload::Restart;
            }
        }
        changes
    }

    /// Requests a restart if a changed setting needs one, or reports it.
    fn request_restart(&self, loaded: &Loaded) {
        let restart = named(Reload::Restart, &self.changes(&self.started, loaded));
        match &self.restart {
            _ if restart.is_empty() => {}
            Some(wanted) => {
                tracing::info!(
                    settings = restart,
                    "restarting: changed settings need a restart"
                );
                wanted.notify_one();
            }
            None => tracing::warn!(settings = restart, "changed settings need a restart"),
        }
    }
}

/// Returns the names of the changed settings that take effect in this way.
fn named(reload: Reload, changes: &[(String, Reload)]) -> String {
    let names = changes.iter().filter(|(_, of)| *of == reload);
    let names: Vec<_> = names.map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

/// Events that cause a reload: changed files and SIGHUP.
///
/// They are observed from its creation on. It is created before the server is built, which may take seconds.
pub(super) struct ReloadTriggers {
    watch: Watch,
    hangups: Hangups,
}

impl ReloadTriggers {
    pub(super) fn new(loaded: &Loaded) -> Self {
        Self {
            watch: Watch::new(files_of(loaded)),
            hangups: Hangups::listen(),
        }
    }
}

/// SIGHUP, on systems that have it.
struct Hangups {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangups {
    fn listen() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal {
            signal.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::super::App;
    use super::*;
    use crate::config::Flags;

    #[tokio::test]
    async fn a_panic_fails_one_reload_and_not_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("longshore.json");
        std::fs::write(&file, r#"{"http": {"port": 0}}"#).expect("written");
        let flags = Flags {
            config: Some(file),
            ..Flags::default()
        };
        let loaded = Loaded::read(&flags, &Probe::default()).expect("valid");
        let panicked = AtomicBool::new(false);
        let hook: Hook = Box::new(move |_| {
            assert!(panicked.swap(true, Ordering::Relaxed), "the first time");
            Ok(Box::new(|| {}))
        });
        let app = App::new().loaded(loaded).on_reload(hook);
        let bound = app.bind().await.expect("bound");
        let mut reloader = bound.reloader.expect("it has a file");
        for has_failed in [true, false] {
            reloader.reload(false).await;
            assert_eq!(reloader.has_failed.load(Ordering::Relaxed), has_failed);
        }
    }
}
