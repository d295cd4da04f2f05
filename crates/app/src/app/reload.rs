//! Taking on a changed configuration while the server runs: whole, or not at all.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::AppError;
use super::compose::Composer;
use crate::auth::ApiKeys;
use crate::config::{Config, Loaded, Reload, Watch};
use crate::environment::Probe;
use crate::net;
use crate::server::Server;
use crate::source::SourceConfig;
use crate::telemetry::{Counter, RELOAD_FAILED, RELOADS, Telemetry};

/// What is left to do once every room has agreed. It cannot fail.
pub(crate) type Commit = Box<dyn FnOnce() + Send>;

/// A room that takes on new settings: it checks them and prepares, and changes nothing before all others have agreed too.
pub type Hook = Box<dyn Fn(&Config) -> Result<Commit, AppError> + Send + Sync>;

/// Reads the configuration again when its files change, and when the process is sent SIGHUP.
pub(super) struct Reloader {
    /// As the process started; what cannot change while it runs is still as it was then.
    started: Loaded,
    current: Loaded,
    hooks: Vec<Hook>,
    composer: Arc<Composer>,
    /// Told when something has changed that takes a new start.
    restart: Option<Arc<Notify>>,
    telemetry: Telemetry,
    succeeded: Counter,
    failed: Counter,
    /// Whether the last attempt failed.
    has_failed: Arc<AtomicBool>,
    watch: Watch,
    signals: Signals,
}

/// The files of a configuration, and what these name that tools are made of.
fn files_of(loaded: &Loaded) -> Vec<PathBuf> {
    let sources = loaded.config.sources.iter();
    let made_of = sources.filter_map(SourceConfig::file);
    loaded.files().map(Into::into).chain(made_of).collect()
}

/// How long it is until what was down is asked for again, at first and at last.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// Why the configuration is looked at.
enum Why {
    /// It may have changed.
    News,
    /// Something that it names was not to be had.
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
        loaded: Loaded,
        hooks: Vec<Hook>,
        composer: &Arc<Composer>,
        restart: Option<Arc<Notify>>,
        telemetry: &Telemetry,
    ) -> Self {
        let counter = |outcome| telemetry.metrics.counter(&RELOADS, &[("outcome", outcome)]);
        let has_failed = Arc::new(AtomicBool::new(false));
        telemetry.metrics.read(&RELOAD_FAILED, &[], {
            let has_failed = Arc::clone(&has_failed);
            move || f64::from(u8::from(has_failed.load(Ordering::Relaxed)))
        });
        Self {
            // From now on, so that nothing is missed between the start and the first request.
            watch: Watch::new(files_of(&loaded)),
            signals: Signals::new(),
            started: loaded.clone(),
            current: loaded,
            hooks,
            composer: Arc::clone(composer),
            restart,
            telemetry: telemetry.clone(),
            succeeded: counter("success"),
            failed: counter("failure"),
            has_failed,
        }
    }

    /// Does so for as long as it is polled.
    pub(super) async fn run(mut self) -> Infallible {
        let mut pause = PAUSE.0;
        loop {
            let awaits_some = self.composer.awaits_some();
            let why = tokio::select! {
                () = self.watch.changed() => Why::News,
                () = self.signals.next() => {
                    tracing::info!("SIGHUP: the configuration is read again");
                    self.watch.pass_over();
                    Why::News
                }
                () = tokio::time::sleep(pause), if awaits_some => Why::Missing,
            };
            pause = match why {
                Why::News => PAUSE.0,
                Why::Missing => PAUSE.1.min(pause * 2),
            };
            // Files and schemas take their time, and others wait for this thread.
            let reloaded = net::spawn_blocking(move || {
                match why {
                    Why::News => self.reload(),
                    Why::Missing => self.composer.ask_again(),
                }
                self
            });
            match reloaded.await {
                Ok(reloader) => self = reloader,
                Err(error) => {
                    tracing::error!(%error, "reading the configuration again has failed; it will not be read any more");
                    return std::future::pending().await;
                }
            }
            self.watch.follow(files_of(&self.current));
        }
    }

    fn reload(&mut self) {
        let reloaded = self.try_reload();
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

    fn try_reload(&mut self) -> Result<(), AppError> {
        let loaded = self.current.read_again(&Probe::real())?;
        self.composer.places_are_in(&loaded);
        let commits = self.hooks.iter().map(|hook| hook(&loaded.config));
        let commits = commits.collect::<Result<Vec<_>, _>>()?;
        let changed = self.current.changes(&loaded);
        let named = |reload: Reload, changes: &[(String, Reload)]| {
            let names = changes.iter().filter(|(_, of)| *of == reload);
            names
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let live = named(Reload::Live, &changed);
        // What is in a document is seen by nothing that is said in the configuration.
        let sources = &mut loaded.config.sources.iter();
        let names_documents = sources.any(SourceConfig::is_a_document);
        if live.is_empty() && !names_documents {
            tracing::info!(
                "the configuration was read again; nothing that can change while the server runs has changed"
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
                    "what the configuration names was read again, and is in force"
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
                    tracing::info!(settings = restart, "changed settings take a new start");
                    wanted.notify_one();
                }
                None => tracing::warn!(
                    settings = restart,
                    "changed settings that take effect with the next start of the server"
                ),
            }
        }
        self.current = loaded;
        Ok(())
    }
}

/// SIGHUP, where there is such a thing.
struct Signals {
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn new() -> Self {
        Self {
            #[cfg(unix)]
            hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(hangup) = &mut self.hangup {
            hangup.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// Holds callers to changed limits.
pub(super) fn limits_hook(server: &Arc<Server>) -> Hook {
    let server = Arc::clone(server);
    Box::new(move |config| {
        let (server, limits) = (Arc::clone(&server), config.limits.clone());
        Ok(Box::new(move || server.limits.take_on(&limits)))
    })
}

/// Lets in those whose keys a changed configuration has, and nobody else.
pub(super) fn keys_hook(keys: Option<Arc<ApiKeys>>) -> Hook {
    Box::new(move |config| match keys.clone() {
        Some(keys) => {
            let changed = keys.changed(&config.auth)?;
            Ok(Box::new(move || {
                if changed.is_empty() {
                    tracing::error!(
                        setting = "auth.api_keys",
                        "no API key is left: every API key is rejected (401) until one is added; make one with \
                         `longshore key new`. Without a key the server may not start again"
                    );
                }
                keys.take_on(changed);
            }))
        }
        None => {
            let are_wanted = !config.auth.api_keys.is_empty();
            Ok(Box::new(move || {
                if are_wanted {
                    tracing::warn!(
                        setting = "auth.api_keys",
                        "callers are asked for keys from the next start on, since they were not asked until now"
                    );
                }
            }))
        }
    })
}
