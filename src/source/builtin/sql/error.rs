//! Why a question to a database has no answer.

use std::time::Duration;

/// What a model is told is in the words of its question. Where a database is, and as whom it is spoken to, is for the
/// log.
#[derive(Debug, thiserror::Error)]
pub(super) enum SqlError {
    /// The database's own word on the question.
    #[error("{0}")]
    Answer(String),
    /// Something that may not be asked.
    #[error("{0}")]
    Refused(String),
    /// The database itself is at fault.
    #[error("the database {name} cannot be used at the moment")]
    Unusable {
        name: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It was interrupted.
    #[error("the query took more than {} s and was stopped; ask for less", .0.as_secs())]
    TooLong(Duration),
    /// No query could be started in time.
    #[error("too many queries are under way; try again in a moment")]
    Busy,
}

impl SqlError {
    pub(super) fn unusable(
        name: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Unusable {
            name: name.to_owned(),
            source: source.into(),
        }
    }
}
