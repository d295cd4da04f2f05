//! The number of processor cores.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Probe, System};

/// Zero until the environment was read.
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of cores that this process can use, with parts of a core rounded up, or 1 if it is unknown.
///
/// It is that of the last time that the environment was read, at the start or for a reload.
pub fn cores() -> usize {
    match KNOWN.load(Ordering::Relaxed) {
        0 => of(&Probe::real().environment().system),
        cores => cores,
    }
}

/// Keeps the number of cores of the real environment.
pub(super) fn keep(system: &System) {
    KNOWN.store(of(system), Ordering::Relaxed);
}

fn of(system: &System) -> usize {
    let millis = system.cpu_millis.as_ref().map_or(0, |cpu| cpu.value);
    usize::try_from(millis.div_ceil(1000)).map_or(usize::MAX, |cores| cores.max(1))
}
