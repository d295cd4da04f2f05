//! Tools that come with the program.

mod builtin;

pub use builtin::UnknownToolset;
pub(crate) use builtin::builtin;
