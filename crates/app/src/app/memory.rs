//! Watch over the memory use of the process.

use std::convert::Infallible;
use std::time::Duration;

use crate::limit::Pressure;
use crate::server::Server;
use crate::telemetry;

/// Interval of the measurements. Large results can fill the remaining memory within a second.
const EVERY: Duration = Duration::from_millis(200);

/// Applies the memory limit until dropped. Close to the limit the server is not ready, so that requests are sent elsewhere.
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
