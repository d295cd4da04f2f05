//! Taking on a changed configuration while the server runs: whole, or not at all.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;

use super::AppError;
use crate::auth::ApiKeys;
use crate::config::{Config, Loaded, Reload, Watch};
use crate::environment::Probe;
use crate::net;
use crate::server::Server;
use crate::telemetry::{Counter, RELOADS, Telemetry};

/// What is left to do once every room has agreed. It cannot fail.
pub(crate) type Commit = Box<dyn FnOnce() + Send>;

/// A room that takes on new settings: it checks them and prepares, and changes nothing before all others have agreed too.
pub(crate) type Hook = Box<dyn Fn(&Config) -> Result<Commit, AppError> + Send + Sync>;

/// Reads the configuration again when its files change, and when the process is sent SIGHUP.
pub(super) struct Reloader {
    /// As the process started; what cannot change while it runs is still as it was then.
    started: Loaded,
    current: Loaded,
    hooks: Vec<Hook>,
    /// Told when something has changed that takes a new start.
    restart: Option<Arc<Notify>>,
    telemetry: Telemetry,
    succeeded: Counter,
    failed: Counter,
    watch: Watch,
    signals: Signals,
}

fn files_of(loaded: &Loaded) -> Vec<PathBuf> {
    loaded.files().map(Into::into).collect()
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
        restart: Option<Arc<Notify>>,
        telemetry: &Telemetry,
    ) -> Self {
        let counter = |outcome| telemetry.metrics.counter(&RELOADS, &[("outcome", outcome)]);
        Self {
            // From now on, so that nothing is missed between the start and the first request.
            watch: Watch::new(files_of(&loaded)),
            signals: Signals::new(),
            started: loaded.clone(),
            current: loaded,
            hooks,
            restart,
            telemetry: telemetry.clone(),
            succeeded: counter("success"),
            failed: counter("failure"),
        }
    }

    /// Does so for as long as it is polled.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            tokio::select! {
                () = self.watch.changed() => {}
                () = self.signals.next() => tracing::info!("SIGHUP: the configuration is read again"),
            }
            // Files and schemas take their time, and others wait for this thread.
            let reloaded = net::spawn_blocking(move || {
                self.reload();
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
        match self.try_reload() {
            Ok(()) => self.succeeded.add(1),
            Err(error) => {
                self.failed.add(1);
                tracing::error!(
                    %error,
                    "the changed configuration cannot be used; the one from before stays in force"
                );
            }
        }
    }

    fn try_reload(&mut self) -> Result<(), AppError> {
        let loaded = self.current.read_again(&Probe::real())?;
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
        if live.is_empty() {
            tracing::info!(
                "the configuration was read again; nothing that can change while the server runs has changed"
            );
        } else {
            for commit in commits {
                commit();
            }
            self.telemetry.life.next_generation();
            let generation = self.telemetry.life.generation();
            tracing::info!(
                settings = live,
                generation,
                "the changed configuration is in force"
            );
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
            let changed = ApiKeys::new(&config.auth)?;
            Ok(Box::new(move || keys.take_on(changed)))
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
