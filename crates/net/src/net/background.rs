//! Background tasks of a server, which are started by name and stopped together.
//!
//! They run on the control runtime: the one that binds and serves, and on which no request waits for another. A task that
//! panics, or returns an error, is logged with its name and listed until the server ends.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};

use super::lock::Mutex;
use super::spawn::spawn_on;

type BoxError = Box<dyn Error + Send + Sync>;
type Task = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;
type ReportFailure = Box<dyn Fn(&str, &str) + Send + Sync>;

/// Name of a background task.
pub type TaskName = Cow<'static, str>;

/// Signal for a background task to return.
///
/// It is given when the server stops, after the last call. The server then waits for the task within `drain.grace_seconds`.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Returns true once the task should return.
    pub fn is_given(&self) -> bool {
        // The sender lives as long as the server.
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the task should return.
    pub async fn given(&self) {
        // An error means that the server is gone.
        let _ = self.0.clone().wait_for(|is_given| *is_given).await;
    }
}

/// Output of an application's hook or background task: nothing, or a result.
pub trait TaskOutput: Send + 'static {
    /// Converts it into a result.
    ///
    /// # Errors
    ///
    /// The error that was returned.
    fn into_result(self) -> Result<(), BoxError>;
}

impl TaskOutput for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError> + Send + 'static> TaskOutput for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// Consequence of a failed task, beside the line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The server continues without it.
    Continue,
    /// The server is not ready any more.
    NotReady,
}

/// Registry of the background tasks of one server. Clones share the registry.
#[derive(Clone, Default)]
pub struct Background(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `None` if there was no runtime: nothing can be spawned.
    runtime: Option<Handle>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<Entry>>,
    report: OnceLock<ReportFailure>,
    /// Ends the thread of the runtime when it is dropped, if there is one.
    _thread: Option<oneshot::Sender<()>>,
}

struct Entry {
    name: TaskName,
    /// True if it is told to stop and waited for. Others are aborted.
    is_awaited: bool,
    task: JoinHandle<()>,
}

impl Background {
    /// Creates a registry whose tasks run on the current runtime, if there is one.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            runtime: Handle::try_current().ok(),
            ..Inner::default()
        }))
    }

    /// Creates a registry with a control runtime on a thread of its own. It is for servers without a transport, whose
    /// callers need not have a runtime. The thread ends when the last clone is dropped.
    ///
    /// # Errors
    ///
    /// The system cannot create the runtime or the thread.
    pub fn on_thread() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("longshore-control".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })?;
        Ok(Self(Arc::new(Inner {
            runtime: Some(handle),
            _thread: Some(ends),
            ..Inner::default()
        })))
    }

    /// Runs a future on the control runtime and blocks until it completes.
    ///
    /// # Errors
    ///
    /// There is no runtime, or the future panicked.
    pub fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, result) = mpsc::sync_channel(1);
        let sending = async move {
            let _ = sender.send(future.await);
        };
        if self.spawn(sending).is_none() {
            return Err(io::Error::other("no runtime to run on"));
        }
        result.recv().map_err(|_| {
            io::Error::other("the control runtime stopped the work, or the work panicked")
        })
    }

    /// Sets the function that receives the name and the error of each failed task with [`OnFailure::NotReady`].
    pub fn on_failure(&self, report: impl Fn(&str, &str) + Send + Sync + 'static) {
        let _ = self.0.report.set(Box::new(report));
    }

    /// Spawns a short-lived task on the control runtime. It is neither listed nor stopped. Returns `None` without a
    /// runtime.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        Some(spawn_on(self.0.runtime.as_ref()?, task))
    }

    /// Starts a task that runs until the server stops, and is aborted then.
    pub fn run<T>(
        &self,
        name: impl Into<TaskName>,
        on_failure: OnFailure,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<AbortHandle> {
        // Boxed before it is wrapped: a future within another one takes its room twice, and both are moved.
        let task = Box::pin(task);
        let task = Box::pin(async {
            task.await;
            Ok(())
        });
        self.start(name.into(), false, on_failure, task)
    }

    /// Starts a task that is told to stop and waited for.
    pub fn run_until_stopped<F, R>(
        &self,
        name: impl Into<TaskName>,
        on_failure: OnFailure,
        task: impl FnOnce(StopSignal) -> F,
    ) -> Option<AbortHandle>
    where
        F: Future<Output = R> + Send + 'static,
        R: TaskOutput,
    {
        let task = Box::pin(task(StopSignal(self.0.stop.subscribe())));
        let task = Box::pin(async { task.await.into_result() });
        self.start(name.into(), true, on_failure, task)
    }

    fn start(
        &self,
        name: TaskName,
        is_awaited: bool,
        on_failure: OnFailure,
        task: Task,
    ) -> Option<AbortHandle> {
        let weak = Arc::downgrade(&self.0);
        let own = name.clone();
        let task = self.spawn(async move {
            let error = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => super::with_causes(&*error),
                Err(panic) => format!("panicked: {}", panic_message(&*panic)),
            };
            tracing::error!(task = %own, error, "background task failed");
            if let Some(inner) = weak.upgrade()
                && on_failure == OnFailure::NotReady
                && let Some(report) = inner.report.get()
            {
                report(&own, &error);
            }
        })?;
        let handle = task.abort_handle();
        let mut tasks = self.0.tasks.lock();
        tasks.retain(|entry| !entry.task.is_finished());
        tasks.push(Entry {
            name,
            is_awaited,
            task,
        });
        Some(handle)
    }

    /// Returns the names of the running tasks, in the order of their start.
    pub fn names(&self) -> Vec<TaskName> {
        let tasks = self.0.tasks.lock();
        let running = tasks.iter().filter(|entry| !entry.task.is_finished());
        running.map(|entry| entry.name.clone()).collect()
    }

    /// Tells the tasks of [`run_until_stopped`](Self::run_until_stopped) to stop, waits for them, and aborts those that
    /// take longer.
    pub async fn stop(&self, within: Duration) {
        self.0.stop.send_replace(true);
        let awaited: Vec<Entry> = {
            let mut tasks = self.0.tasks.lock();
            tasks.extract_if(.., |entry| entry.is_awaited).collect()
        };
        let deadline = tokio::time::Instant::now() + within;
        for mut entry in awaited {
            if tokio::time::timeout_at(deadline, &mut entry.task)
                .await
                .is_err()
            {
                tracing::warn!(
                    task = %entry.name,
                    setting = "drain.grace_seconds",
                    "background task did not stop in time; it is aborted"
                );
                entry.task.abort();
            }
        }
    }

    /// Aborts all tasks, the last one first.
    pub fn abort(&self) {
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        for entry in tasks.into_iter().rev() {
            entry.task.abort();
        }
    }
}

/// Returns the message of a caught panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Background").field(&self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_are_told_to_stop_and_waited_for_until_the_deadline() {
        let background = Background::new();
        let (sender, mut reported) = tokio::sync::mpsc::channel(8);
        for (name, seconds) in [("quick", 1), ("slow", 60)] {
            let sender = sender.clone();
            background.run_until_stopped(name, OnFailure::NotReady, |stop| async move {
                stop.given().await;
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let _ = sender.try_send(name);
            });
        }
        background.run("loop", OnFailure::Continue, std::future::pending::<()>());
        assert_eq!(background.names(), ["quick", "slow", "loop"]);
        let began = tokio::time::Instant::now();
        background.stop(Duration::from_secs(5)).await;
        assert_eq!(began.elapsed().as_secs(), 5);
        assert_eq!(reported.try_recv(), Ok("quick"));
        assert!(reported.try_recv().is_err());
        assert_eq!(background.names(), ["loop"]);
        background.abort();
        assert_eq!(background.names(), [""; 0]);
    }

    #[tokio::test]
    async fn failures_are_reported_by_name() {
        let background = Background::new();
        let (sender, mut reported) = tokio::sync::mpsc::channel(8);
        background.on_failure(move |name, error| {
            let _ = sender.try_send(format!("{name}: {error}"));
        });
        background.run_until_stopped("prices", OnFailure::NotReady, |_| async {
            Err::<(), _>("connection refused")
        });
        assert_eq!(
            reported.recv().await.as_deref(),
            Some("prices: connection refused")
        );
        background.run("cache", OnFailure::NotReady, async {
            assert_eq!(1, 2, "out of step");
        });
        let panicked = reported.recv().await.expect("reported");
        assert!(
            panicked.starts_with("cache: panicked: ") && panicked.contains("out of step"),
            "{panicked}"
        );
        // A task that returns has done its work.
        background.run_until_stopped("once", OnFailure::NotReady, |_| async {});
        background.run("quiet", OnFailure::Continue, async {
            assert_eq!(1, 2, "unseen");
        });
        background.stop(Duration::from_secs(5)).await;
        assert!(reported.try_recv().is_err());
    }

    #[test]
    fn without_a_runtime_nothing_starts_and_a_thread_of_its_own_has_one() {
        assert!(Background::new().spawn(async {}).is_none());
        let background = Background::on_thread().expect("a thread");
        let slept = background.block_on(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            7
        });
        assert_eq!(slept.expect("it runs"), 7);
    }
}
