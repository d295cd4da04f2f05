//! Errors of a configuration.

use std::fmt;
use std::path::PathBuf;

use super::Conflict;
use super::Diagnostic;

/// Error of an unusable configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A configuration file, which this build cannot read.
    #[error("configuration file {} requires the feature `config-files`, which this build does not have; enable the feature, or set LONGSHORE_ variables", path.display())]
    NotBuilt {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is of no kind that is known.
    #[error("configuration file {}: the format is unknown; its name must end in .yaml, .yml, .toml, .json or .jsonc", path.display())]
    Kind {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not written as files of its kind are.
    #[error("configuration file {place}: {message}")]
    File {
        /// File, line and column.
        place: String,
        /// Description of the error.
        message: String,
    },
    /// Settings that do not exist, or that cannot have their values.
    #[error("{}", in_lines(.0))]
    Diagnostics(Vec<Diagnostic>),
    /// Settings that contradict one another.
    #[error("{}", in_lines(.0))]
    Conflicts(Vec<Conflict>),
}

fn in_lines(items: &[impl fmt::Display]) -> String {
    let lines: Vec<_> = items.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
