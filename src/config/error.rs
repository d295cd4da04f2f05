//! Why a configuration cannot be used.

use std::fmt;
use std::path::PathBuf;

use super::Diagnostic;
use super::check::Conflict;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A configuration file, which this build cannot read.
    #[error("configuration file {} requires the feature `config-files`, which this build does not have; enable the feature, or set LONGSHORE_ variables", path.display())]
    NotBuilt {
        /// Which file.
        path: PathBuf,
    },
    /// The file is of no kind that is known.
    #[error("configuration file {} ends in none of .yaml, .yml, .toml, .json and .jsonc; name it after what is in it", path.display())]
    Kind {
        /// Which file.
        path: PathBuf,
    },
    /// The file is not written as files of its kind are.
    #[error("configuration file {place}: {message}")]
    File {
        /// Which file, line and column.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// Settings that do not exist, or that cannot have their values.
    #[error("{}", in_lines(.0))]
    Mistakes(Vec<Diagnostic>),
    /// Settings that contradict one another.
    #[error("{}", in_lines(.0))]
    Contradictions(Vec<Conflict>),
}

fn in_lines(items: &[impl fmt::Display]) -> String {
    let lines: Vec<_> = items.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
