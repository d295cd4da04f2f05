//! Hooks and background tasks of an application, which run while it is served.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::error::AppError;
use crate::net::{Background, OnFailure, StopSignal, TaskOutput};

type BoxError = Box<dyn Error + Send + Sync>;
type HookFuture = BoxFuture<'static, Result<(), BoxError>>;
type LifecycleHook = Box<dyn FnOnce() -> HookFuture + Send>;
type Task = Box<dyn FnOnce(StopSignal) -> HookFuture + Send>;

/// Hooks and background tasks of an application, in the order in which they were added.
#[derive(Default)]
pub(super) struct Lifecycle {
    on_start: Vec<LifecycleHook>,
    tasks: Vec<(String, Task)>,
    on_stop: Vec<LifecycleHook>,
}

fn boxed<F, R>(hook: impl FnOnce() -> F + Send + 'static) -> LifecycleHook
where
    F: Future<Output = R> + Send + 'static,
    R: TaskOutput,
{
    Box::new(|| {
        let running = hook();
        Box::pin(async { running.await.into_result() })
    })
}

impl Lifecycle {
    pub(super) fn on_start<F, R>(&mut self, hook: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        self.on_start.push(boxed(hook));
    }

    pub(super) fn on_stop<F, R>(&mut self, hook: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        self.on_stop.push(boxed(hook));
    }

    pub(super) fn background<F, R>(
        &mut self,
        name: String,
        task: impl FnOnce(StopSignal) -> F + Send + 'static,
    ) where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        let task: Task = Box::new(|stop| {
            let running = task(stop);
            Box::pin(async { running.await.into_result() })
        });
        self.tasks.push((name, task));
    }

    /// Adds the hooks and tasks of an application that becomes a part of this one.
    pub(super) fn append(&mut self, mut other: Self) {
        self.on_start.append(&mut other.on_start);
        self.tasks.append(&mut other.tasks);
        self.on_stop.append(&mut other.on_stop);
    }

    /// Runs the start hooks one after another, and then starts the tasks.
    ///
    /// # Errors
    ///
    /// A hook failed. The later ones and the tasks are not started.
    pub(super) async fn start(self, background: &Background) -> Result<StopHooks, AppError> {
        for hook in self.on_start {
            hook().await.map_err(AppError::OnStart)?;
        }
        for (name, task) in self.tasks {
            background.run_until_stopped(name, OnFailure::NotReady, task);
        }
        Ok(StopHooks(self.on_stop))
    }
}

/// Stop hooks of an application that was started.
pub(super) struct StopHooks(Vec<LifecycleHook>);

impl StopHooks {
    /// Tells the tasks to stop, waits for them, and then runs the hooks, the last one first. What takes longer than the
    /// deadline is aborted.
    pub(super) async fn run(self, background: &Background, deadline: Instant) {
        let left = || deadline.saturating_duration_since(Instant::now());
        background.stop(left()).await;
        for hook in self.0.into_iter().rev() {
            // A hook has a moment even if the tasks took all the time.
            let within = left().max(MOMENT);
            match tokio::time::timeout(within, hook()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let error = crate::net::with_causes(&*error);
                    tracing::error!(error, "a function of App::on_stop failed");
                }
                Err(_) => tracing::warn!(
                    setting = "drain.grace_seconds",
                    "a function of App::on_stop did not finish in time"
                ),
            }
        }
    }
}

/// Minimum time for each stop hook.
const MOMENT: Duration = Duration::from_millis(50);
