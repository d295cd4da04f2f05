//! Errors of database queries.

/// Reason why a query failed. Messages for the model refer only to its query; the database's address and user only go
/// to the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum SqlError {
    /// Error of the database about the query.
    #[error("{0}")]
    Answer(String),
    /// The query is not allowed.
    #[error("{0}")]
    Refused(String),
    /// The database is unavailable.
    #[error("the database {name} cannot be used at the moment")]
    Unusable {
        name: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
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
