//! Ctrl-C while a command runs: programs that it has started end too, and the terminal shows its input again.

use std::thread;

use super::terminal;
use crate::app::Signals;

/// Waits for signals to stop, on a thread of its own, because the main thread may be waiting for the user.
pub(super) fn watch() {
    let watching = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async { Signals::listen().exit(terminal::restore).await });
        }
    };
    // Without the thread, signals end the process in the usual way.
    let _ = thread::Builder::new()
        .name("longshore-signals".to_owned())
        .spawn(watching);
}
