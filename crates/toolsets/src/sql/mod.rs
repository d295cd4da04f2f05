//! Toolset `sql`: database queries, read-only unless configured otherwise.

mod config;
#[cfg(feature = "sql")]
mod connect;
#[cfg(feature = "sql")]
mod error;
#[cfg(feature = "sql")]
mod placeholder;
#[cfg(feature = "sql")]
mod postgres;
#[cfg(feature = "sql")]
mod rows;
#[cfg(feature = "sql")]
mod sqlite;
#[cfg(feature = "sql")]
mod tools;

pub use config::{DatabaseConfig, QueryConfig, SqlConfig, SqlLimits};
#[cfg(feature = "sql")]
pub use tools::toolset;
