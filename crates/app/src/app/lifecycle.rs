//! Hooks and background tasks of an application, which run while it is served.

use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
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

/// Boxes a hook. If it panics, its result is an error.
fn boxed<F, R>(hook: impl FnOnce() -> F + Send + 'static) -> LifecycleHook
where
    F: Future<Output = R> + Send + 'static,
    R: TaskOutput,
{
    Box::new(|| {
        let running = AssertUnwindSafe(async { hook().await.into_result() }).catch_unwind();
        Box::pin(running.map(|done| {
            done.unwrap_or_else(|panic| {
                let message = crate::net::panic_message(&*panic);
                Err(format!("it panicked: {message}").into())
            })
        }))
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
    /// A hook failed or panicked. The later ones and the tasks are not started.
    pub(super) async fn start(&mut self, background: &Background) -> Result<(), AppError> {
        for hook in std::mem::take(&mut self.on_start) {
            hook().await.map_err(AppError::OnStart)?;
        }
        for (name, task) in std::mem::take(&mut self.tasks) {
            background.run_until_stopped(name, OnFailure::NotReady, task);
        }
        Ok(())
    }

    /// Tells the tasks to stop, waits for them, and then runs the stop hooks, the last one first, also if the start was not
    /// completed. What takes longer than the deadline is aborted. The tasks have at least `time_min`, and so have the hooks
    /// together.
    ///
    /// A hook that fails or panics does not affect the others.
    pub(super) async fn stop(self, background: &Background, deadline: Instant, time_min: Duration) {
        let now = Instant::now();
        let until = deadline.max(now + time_min);
        background.stop(until.saturating_duration_since(now)).await;
        let until = deadline.max(Instant::now() + time_min);
        for hook in self.on_stop.into_iter().rev() {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left.max(HOOK_TIME_MIN), hook()).await {
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

/// Minimum time for each stop hook, even if an earlier one took all the time.
const HOOK_TIME_MIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Calls(Arc<Mutex<Vec<&'static str>>>);

    impl Calls {
        fn add(&self, name: &'static str) {
            self.0.lock().expect("no panic").push(name);
        }

        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.0.lock().expect("no panic"))
        }
    }

    const HALF: Duration = Duration::from_millis(500);

    #[tokio::test(start_paused = true)]
    async fn a_stop_hook_that_panics_or_fails_does_not_keep_others_from_running() {
        let calls = Calls::default();
        let mut lifecycle = Lifecycle::default();
        for name in ["first", "second"] {
            let calls = calls.clone();
            lifecycle.on_stop(move || async move { calls.add(name) });
        }
        lifecycle.on_stop(|| async { Err::<(), _>("the pool is gone") });
        lifecycle.on_stop(|| async { assert_eq!(1, 2, "the pool is poisoned") });
        lifecycle.on_stop(|| {
            assert_eq!(1, 2, "before its future");
            async {}
        });
        let background = Background::new();
        lifecycle.start(&background).await.expect("started");
        lifecycle.stop(&background, Instant::now(), HALF).await;
        assert_eq!(calls.take(), ["second", "first"]);
    }

    #[tokio::test]
    async fn a_start_hook_that_panics_fails_the_start() {
        let calls = Calls::default();
        let mut lifecycle = Lifecycle::default();
        lifecycle.on_start(|| async { assert_eq!(1, 2, "the pool is poisoned") });
        let later = calls.clone();
        lifecycle.on_start(move || async move { later.add("later") });
        let stopped = calls.clone();
        lifecycle.on_stop(move || async move { stopped.add("stop") });
        let background = Background::new();
        let failed = lifecycle.start(&background).await.expect_err("it panicked");
        let failed = crate::net::with_causes(&failed);
        assert!(failed.contains("it panicked: "), "{failed}");
        assert!(failed.contains("the pool is poisoned"), "{failed}");
        lifecycle.stop(&background, Instant::now(), HALF).await;
        assert_eq!(calls.take(), ["stop"]);
    }

    #[tokio::test(start_paused = true)]
    async fn stop_hooks_have_half_a_second_after_a_task_that_ignores_its_signal() {
        let calls = Calls::default();
        let mut lifecycle = Lifecycle::default();
        lifecycle.background("stubborn".to_owned(), |_| std::future::pending::<()>());
        for (name, millis) in [("last", 40), ("slow", 60_000), ("first", 400)] {
            let calls = calls.clone();
            lifecycle.on_stop(move || async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                calls.add(name);
            });
        }
        let background = Background::new();
        lifecycle.start(&background).await.expect("started");
        let began = Instant::now();
        lifecycle.stop(&background, began, HALF).await;
        assert_eq!(calls.take(), ["first", "last"]);
        assert_eq!(began.elapsed().as_millis(), 500 + 500 + 40);
    }
}
