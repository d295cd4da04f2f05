//! The system clock, as seconds.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in seconds; 0 if the clock is before 1970.
pub fn unix_seconds() -> u64 {
    seconds_since_1970(SystemTime::now())
}

/// Seconds from 1970 to a time; 0 for an earlier one.
pub fn seconds_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
