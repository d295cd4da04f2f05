//! Entry points of an application: it runs, or serves within a runtime, with hooks and background tasks of its own.

use std::future::Future;
#[cfg(feature = "cli")]
use std::sync::Arc;

#[cfg(feature = "cli")]
use tokio::sync::Notify;

use super::App;
use super::error::{AppError, Result};
#[cfg(feature = "cli")]
use super::hooks::Hook;
use super::serve::BoundServer;
use super::signals::{Signals, stop_signal};
use crate::net::{StopSignal, TaskOutput};

impl App {
    /// Serves until a signal to stop. It is a whole `main`, and creates the control runtime; in an existing
    /// runtime, use [`serve`](Self::serve).
    ///
    /// # Errors
    ///
    /// Invalid tools or settings, an address that is in use, or a runtime that already runs.
    pub fn run(self) -> Result {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(AppError::WithinRuntime.into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AppError::Io)?;
        let served = runtime.block_on(self.serve());
        runtime.shutdown_background();
        Ok(served?)
    }

    /// Serves in the current runtime until a signal to stop (SIGINT, SIGTERM), or until standard input ends. A second
    /// signal ends the process at once.
    ///
    /// The same in two steps, with the address in between: [`bind`](Self::bind) and [`BoundServer::serve`]. To stop it
    /// otherwise, use [`BoundServer::serve_until`].
    ///
    /// ```no_run
    /// use longshore::{App, tool};
    ///
    /// /// Adds two numbers.
    /// #[tool]
    /// async fn add(a: i64, b: i64) -> i64 {
    ///     a + b
    /// }
    ///
    /// #[tokio::main]
    /// async fn main() -> longshore::Result {
    ///     Ok(App::new().tool(add).serve().await?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Invalid tools or settings, an address that is in use, or a function of [`on_start`](Self::on_start) that failed.
    pub fn serve(self) -> impl Future<Output = std::result::Result<(), AppError>> {
        // Boxed: the application and what it becomes are large.
        Box::pin(self.serve_until_signal())
    }

    async fn serve_until_signal(self) -> std::result::Result<(), AppError> {
        let signals = Signals::listen();
        let (signals, Some(bound)) = self.bind_unless_stopped(signals).await? else {
            return Ok(());
        };
        bound.announce();
        bound.print_without_log();
        Box::pin(bound.serve_until(stop_signal(signals))).await
    }

    /// Binds the address, unless a signal to stop comes first: binding can have to wait for upstream servers.
    #[doc(hidden)]
    pub async fn bind_unless_stopped(
        self,
        mut signals: Signals,
    ) -> std::result::Result<(Signals, Option<BoundServer>), AppError> {
        // The first process of a container ignores signals that it does not listen for.
        tokio::select! {
            bound = Box::pin(self.bind()) => Ok((signals, Some(bound?))),
            name = signals.next() => {
                tracing::info!(signal = name, "stopping before anything was served");
                Ok((signals, None))
            }
        }
    }

    /// Runs a function before the first request, after the address is bound. Several run one after another, in the order in
    /// which they were added. An error, a panic or a signal to stop ends the start; then the functions of
    /// [`on_stop`](Self::on_stop) run.
    ///
    /// ```
    /// use longshore::App;
    ///
    /// let app = App::new().on_start(async || {
    ///     // Warms up a cache, for example.
    ///     Ok::<(), std::io::Error>(())
    /// });
    /// ```
    #[must_use]
    pub fn on_start<F, R>(mut self, hook: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        self.lifecycle.on_start(hook);
        self
    }

    /// Runs a function when the server stops: after the last call, and after the tasks of [`background`](Self::background)
    /// have ended. Several run one after another, the last one first. An error or a panic is logged, and the others run.
    ///
    /// It also runs if the start ends in a function of [`on_start`](Self::on_start), because of an error, a panic or a signal
    /// to stop. What that function would have opened may then be missing.
    ///
    /// Their time is the rest of the time for calls (`drain.grace_seconds`), and at least half a second, which they share.
    ///
    /// ```
    /// use longshore::App;
    ///
    /// let app = App::new().on_stop(async || println!("the pool is closed"));
    /// ```
    #[must_use]
    pub fn on_stop<F, R>(mut self, hook: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        self.lifecycle.on_stop(hook);
        self
    }

    /// Runs a task beside the requests, on the control runtime. It starts after the functions of
    /// [`on_start`](Self::on_start).
    ///
    /// After the last call its [`StopSignal`] is given, and the server waits for it: for the rest of the time for calls
    /// (`drain.grace_seconds`), and at least half a second. Then it is aborted.
    ///
    /// A task can return at any time. If it returns an error or panics, the log names it, and the server is not ready any
    /// more: `/health/ready` fails, and `/health/detailed` names the task. It is not started again.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use longshore::App;
    ///
    /// let app = App::new().background("refresh-prices", async |stop| {
    ///     while !stop.is_given() {
    ///         // Loads the prices, and waits for the next round or the end.
    ///         tokio::select! {
    ///             () = stop.given() => {}
    ///             () = tokio::time::sleep(Duration::from_secs(60)) => {}
    ///         }
    ///     }
    ///     Ok::<(), std::io::Error>(())
    /// });
    /// ```
    #[must_use]
    pub fn background<F, R>(
        mut self,
        name: impl Into<String>,
        task: impl FnOnce(StopSignal) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        self.lifecycle.background(name.into(), task);
        self
    }

    /// Adds a hook that applies changed settings while the server runs.
    #[cfg(feature = "cli")]
    #[doc(hidden)]
    pub fn on_reload(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Sets the notification of changed settings that need a restart.
    #[cfg(feature = "cli")]
    #[doc(hidden)]
    pub fn restart_wanted(mut self, wanted: Arc<Notify>) -> Self {
        self.restart = Some(wanted);
        self
    }
}
