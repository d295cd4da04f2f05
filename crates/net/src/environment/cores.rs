//! The number of processor cores.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Zero until they were counted.
static COUNTED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of cores that this process can use, or 1 if it is unknown.
///
/// They are counted once, since the limit of a container is in files, and again by [`recount`].
pub fn cores() -> usize {
    match COUNTED.load(Ordering::Relaxed) {
        0 => recount().max(1),
        cores => cores,
    }
}

/// Counts them again, as the limit of a container can change. Returns 0 if the number is unknown.
pub(super) fn recount() -> usize {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    COUNTED.store(cores, Ordering::Relaxed);
    cores
}
