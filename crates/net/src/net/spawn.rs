//! Tasks on whose speed no request depends.
//!
//! What a runtime does with a task is some three KiB of code, and compiled for each kind of future that is spawned.
//! These are spawned as objects, and so it is compiled for each kind of result.

use std::future::Future;
use std::pin::Pin;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// As `tokio::spawn`.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(object(future))
}

/// As [`Handle::spawn`].
pub fn spawn_on<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime.spawn(object(future))
}

/// As `tokio::task::spawn_local`: on a runtime whose tasks stay on their thread.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let future: Pin<Box<dyn Future<Output = T>>> = Box::pin(future);
    tokio::task::spawn_local(future)
}

fn object<T>(
    future: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(future)
}

/// As `tokio::task::spawn_blocking`.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}
