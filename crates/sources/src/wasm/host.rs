//! Process-wide state of all components: the engine, the threads that they run on, and the clock that preempts them.
//!
//! Components have a runtime of their own, not the control runtime: they compute for as long as their time slice, and
//! would delay everything else there.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Condvar, Weak};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use wasmtime::component::Linker;
use wasmtime::{Config, Engine};

use super::files::restrict;
use super::instance::State;
use super::load::Compiled;
use crate::net::Mutex;

/// Created for the first component, and kept until the process ends.
pub(super) struct Host {
    pub(super) engine: Engine,
    /// Imports that are available to components.
    pub(super) linker: Linker<State>,
    runtime: Runtime,
    ticker: Arc<Ticker>,
    /// Compiled components in use, by the digest of their file, so that a reload compiles only new ones.
    compiled: Mutex<HashMap<[u8; 32], Weak<Compiled>>>,
}

/// Time slice of a component. At its end other calls can run, and a cancelled call stops.
const TURN: Duration = Duration::from_millis(10);
/// Number of threads for blocking work, which is file access.
const BLOCKING_THREADS: usize = 32;

/// Returns the host, and starts it if it does not run yet.
///
/// # Errors
///
/// It cannot be started, for example because the process has too many threads. The next call tries again.
pub(super) fn host() -> Result<&'static Host, String> {
    static HOST: Mutex<Option<&'static Host>> = Mutex::new(None);
    started(&HOST, Host::new).map_err(|e| format!("components cannot be run here: {e}"))
}

fn started<T>(
    running: &Mutex<Option<&'static T>>,
    start: impl FnOnce() -> Result<T, String>,
) -> Result<&'static T, String> {
    let mut running = running.lock();
    match *running {
        Some(host) => Ok(host),
        None => Ok(*running.insert(Box::leak(Box::new(start()?)))),
    }
}

impl Host {
    fn new() -> Result<Self, String> {
        let mut config = Config::new();
        config.wasm_component_model(true).epoch_interruption(true);
        let engine = Engine::new(&config).map_err(|e| format!("{e:#}"))?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)
            .and_then(|()| restrict(&mut linker))
            .map_err(|e| format!("{e:#}"))?;
        // One core is left to the server. Calls yield after each time slice, so more threads would not help.
        let threads = crate::environment::cores();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.saturating_sub(1).max(1))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("longshore-wasm")
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let ticker = match Ticker::start(&engine) {
            Ok(ticker) => ticker,
            Err(error) => {
                // The start can run on another runtime, where dropping this one would panic.
                runtime.shutdown_background();
                return Err(error.to_string());
            }
        };
        Ok(Self {
            ticker,
            engine,
            linker,
            runtime,
            compiled: Mutex::default(),
        })
    }

    /// Runs a call on the host's threads, so that its computation does not block the server. Dropping the future
    /// aborts the call within a time slice.
    ///
    /// # Panics
    ///
    /// Propagates a panic of the call.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let ticking = self.ticker.hold();
        let mut task = Task(self.runtime.spawn(async move {
            let _ticking = ticking;
            call.await
        }));
        match (&mut task.0).await {
            Ok(value) => Some(value),
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }

    /// Returns the compiled component for a file digest, or compiles it.
    ///
    /// # Errors
    ///
    /// The same as those of `compile`.
    pub(super) fn compiled(
        &self,
        digest: [u8; 32],
        compile: impl FnOnce() -> Result<Compiled, String>,
    ) -> Result<Arc<Compiled>, String> {
        if let Some(known) = self.compiled.lock().get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let compiled = Arc::new(compile()?);
        let mut known = self.compiled.lock();
        known.retain(|_, compiled| compiled.strong_count() > 0);
        known.insert(digest, Arc::downgrade(&compiled));
        Ok(compiled)
    }
}

/// A task that is aborted on drop.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Advances the epoch while calls run. It has its own thread, because all others can be busy computing.
struct Ticker {
    running: Mutex<usize>,
    began: Condvar,
}

/// Keeps the ticker running until dropped.
struct Ticking(Arc<Ticker>);

impl Ticker {
    fn start(engine: &Engine) -> std::io::Result<Arc<Self>> {
        let ticker = Arc::new(Self {
            running: Mutex::new(0),
            began: Condvar::new(),
        });
        let (engine, own) = (engine.clone(), Arc::clone(&ticker));
        std::thread::Builder::new()
            .name("longshore-turns".to_owned())
            .spawn(move || {
                loop {
                    let running = own.running.lock();
                    let began = own.began.wait_while(running, |running| *running == 0);
                    drop(began);
                    std::thread::sleep(TURN);
                    engine.increment_epoch();
                }
            })?;
        Ok(ticker)
    }

    fn hold(self: &Arc<Self>) -> Ticking {
        *self.running.lock() += 1;
        self.began.notify_one();
        Ticking(Arc::clone(self))
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        *self.0.running.lock() -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_is_tried_again() {
        let running = Mutex::new(None);
        let failed = started(&running, || Err::<u8, _>("no threads".to_owned()));
        assert_eq!(failed, Err("no threads".to_owned()));
        assert_eq!(started(&running, || Ok(1)), Ok(&1));
        assert_eq!(started(&running, || Ok(2)), Ok(&1));
    }
}
