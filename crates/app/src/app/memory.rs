//! Looks at how much memory is in use.

use std::convert::Infallible;
use std::time::Duration;

use crate::limit::Pressure;
use crate::server::Server;
use crate::telemetry;

/// How often it looks: large results can fill what is left within a second.
const EVERY: Duration = Duration::from_millis(200);

/// Has the server hold to its limit of memory, for as long as it is polled. While there is nearly none left it is not
/// ready, so that requests are sent elsewhere.
pub(super) async fn watch(server: &Server) -> Infallible {
    let gate = server.telemetry().life.gate("memory");
    gate.open();
    let mut seconds = tokio::time::interval(EVERY);
    loop {
        seconds.tick().await;
        match server.limits.look_at_memory(telemetry::memory_bytes) {
            Pressure::Critical => gate.close(),
            Pressure::None | Pressure::High => gate.open(),
        }
    }
}
