//! Reload of the configuration while the server runs. A change is applied as a whole, or not at all.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::catalog_builder::CatalogBuilder;
use super::error::AppError;
use super::hooks::Hook;
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

/// Reason for a reload.
enum Reason {
    /// The configuration may have changed.
    Changed,
    /// A source was unavailable.
    Missing,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("file", &self.current.file)
            .finish_non_exhaustive()
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
        loop {
            let awaits_some = self.catalogs.awaits_some();
            let reason = tokio::select! {
                () = self.triggers.watch.changed() => Reason::Changed,
                () = self.triggers.hangups.next() => {
                    tracing::info!("SIGHUP: the configuration is being reloaded");
                    self.triggers.watch.pass_over();
                    Reason::Changed
                }
                () = tokio::time::sleep(pause), if awaits_some => Reason::Missing,
            };
            pause = match reason {
                Reason::Changed => PAUSE.0,
                Reason::Missing => PAUSE.1.min(pause * 2),
            };
            // Files and schemas take time, and other tasks wait for this thread.
            let reloaded = net::spawn_blocking(move || {
                Handle::current().block_on(async {
                    match reason {
                        Reason::Changed => self.reload().await,
                        Reason::Missing => self.catalogs.retry_sources().await,
                    }
                });
                self
            });
            match reloaded.await {
                Ok(reloader) => self = reloader,
                Err(error) => {
                    tracing::error!(%error, "reading the configuration again has failed; it will not be read any more");
                    return std::future::pending().await;
                }
            }
            self.triggers
                .watch
                .follow(files_with_references(&self.current, &self.catalogs));
        }
    }

    async fn reload(&mut self) {
        let reloaded = self.try_reload().await;
        self.has_failed.store(reloaded.is_err(), Ordering::Relaxed);
        match reloaded {
            Ok(()) => self.succeeded.add(1),
            Err(error) => {
                self.failed.add(1);
                tracing::error!(
                    error = net::with_causes(&error),
                    "the changed configuration cannot be used; the one from before stays in force"
                );
            }
        }
    }

    async fn try_reload(&mut self) -> Result<(), AppError> {
        let loaded = self.current.read_again(&Probe::read_again())?;
        self.catalogs.update_origins(&loaded);
        let commits = self.hooks.iter().map(|hook| hook(&loaded.config));
        let mut commits = commits.collect::<Result<Vec<_>, _>>()?;
        commits.push(self.catalogs.prepare(&loaded.config).await?);
        let changed = self.current.changes(&loaded);
        let named = |reload: Reload, changes: &[(String, Reload)]| {
            let names = changes.iter().filter(|(_, of)| *of == reload);
            names
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let live = named(Reload::Live, &changed);
        // A document can change while the settings that name it stay the same.
        let sources = &mut loaded.config.sources.iter();
        let names_documents = sources.any(SourceConfig::is_a_document);
        if live.is_empty() && !names_documents {
            tracing::info!(
                "the configuration was reloaded; no setting that applies to a running server has changed"
            );
        } else {
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
            }
        }
        let restart = named(Reload::Restart, &self.started.changes(&loaded));
        if !restart.is_empty() {
            match &self.restart {
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
        self.current = loaded;
        Ok(())
    }
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
