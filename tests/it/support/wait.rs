//! Waiting for what happens soon, without knowing when.

use std::time::{Duration, Instant};

/// Maximum time, far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so.
#[track_caller]
pub(crate) fn becomes(mut is_so: impl FnMut() -> bool) {
    until(|| is_so().then_some(()));
}

/// Looks until it finds something, and returns that.
#[track_caller]
pub(crate) fn until<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it did not happen in time");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until something is so that has to be awaited. With a paused clock this takes no time.
pub(crate) async fn becomes_so<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "it did not happen in time");
        tokio::time::sleep(PAUSE).await;
    }
}
