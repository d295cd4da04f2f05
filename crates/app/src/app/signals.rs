//! Signals that stop a server.

use crate::net;

/// Keeps SIGHUP from ending the process, from now on. Call it before the configuration is read: a signal that comes earlier
/// than the subscription to it asks for nothing that is not done anyway. It must run within a runtime.
#[cfg(feature = "cli")]
pub fn survive_hangups() {
    // The handler stays for the life of the process, also without a subscription.
    #[cfg(unix)]
    drop(tokio::signal::unix::signal(
        tokio::signal::unix::SignalKind::hangup(),
    ));
}

/// Waits for the first signal to stop. The second one ends the process.
pub async fn stop_signal(mut signals: Signals) {
    let name = signals.next().await;
    tracing::info!(
        signal = name,
        "stopping: calls that have begun are finished; a second signal stops immediately"
    );
    net::spawn(signals.exit(|| {}));
}

/// Subscription to the signals to stop. A signal that arrives between two calls of `next` is not lost.
pub struct Signals {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    #[cfg(unix)]
    pub fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self {
            terminate: signal(SignalKind::terminate()).ok(),
            interrupt: signal(SignalKind::interrupt()).ok(),
        }
    }

    #[cfg(not(unix))]
    pub fn listen() -> Self {
        Self {}
    }

    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> &'static str {
        async fn heard(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = heard(&mut self.terminate) => "SIGTERM",
            () = heard(&mut self.interrupt) => "SIGINT",
        }
    }

    /// Waits for a signal, and then ends the process at once, after `clean_up`. Its children end too.
    pub async fn exit(mut self, clean_up: impl FnOnce()) {
        let name = self.next().await;
        clean_up();
        #[cfg(feature = "sources")]
        net::child::kill_all();
        std::process::exit(if name == "SIGINT" { 130 } else { 143 });
    }

    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> &'static str {
        let _ = tokio::signal::ctrl_c().await;
        "SIGINT"
    }
}
