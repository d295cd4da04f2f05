//! Standard input and output, and what all transports share.

pub mod drain;
pub mod stdio;
