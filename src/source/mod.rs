//! Tools that come with the program.

mod builtin;
mod upstream;

pub use builtin::UnknownToolset;
pub(crate) use builtin::builtin;
pub use upstream::{OnChange, OnDown, UpstreamConfig, UpstreamError};
pub(crate) use upstream::{UpstreamStates, Upstreams};
