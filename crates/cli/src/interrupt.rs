//! Ctrl-C while a command runs: programs that it has started end too, and the terminal shows its input again.

use std::sync::mpsc;
use std::thread;

use super::run::runtime;
use super::terminal;
use crate::app::Signals;

/// Waits for signals to stop, on a thread of its own, because the main thread may be waiting for the user. Returns once it
/// listens.
pub(super) fn watch() {
    let (starting, started) = mpsc::channel::<()>();
    let watching = move || {
        if let Ok(runtime) = runtime() {
            runtime.block_on(async {
                let signals = Signals::listen();
                drop(starting);
                signals.exit(terminal::restore).await;
            });
        }
    };
    // Without the thread, signals end the process in the usual way.
    let _ = thread::Builder::new()
        .name("longshore-signals".to_owned())
        .spawn(watching);
    // Nothing is sent; the channel is closed.
    let _ = started.recv();
}
