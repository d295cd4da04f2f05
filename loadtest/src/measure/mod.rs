//! The arithmetic of a measurement: no clock, no socket.

mod histogram;
mod summary;

pub(crate) use histogram::Histogram;
pub(crate) use summary::{Spread, median, ratios};
