//! Errors of extractors.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::catalog::{PromptError, ResourceError, ToolError};

/// The error of an extractor, which ends the call.
///
/// | made by | tools | resources and prompts |
/// |---|---|---|
/// | [`new`](Self::new), `?` on any error | A result with `isError: true` | JSON-RPC error -32603, with the message |
/// | [`forbidden`](Self::forbidden) | JSON-RPC error 403 | JSON-RPC error 403 |
/// | [`missing_scopes`](Self::missing_scopes) | JSON-RPC error 403; over HTTP with the status 403 and a challenge | JSON-RPC error 403 |
/// | [`internal`](Self::internal) | JSON-RPC error -32603 without details | The same |
///
/// It is not itself an [`Error`], so that every error converts into it.
pub struct Rejection {
    kind: RejectionKind,
    source: Option<BoxError>,
}

type BoxError = Box<dyn Error + Send + Sync>;

enum RejectionKind {
    Failed(String),
    /// An error that was converted.
    Converted(BoxError),
    Forbidden(String),
    MissingScopes(MissingScopes),
    Internal(String),
}

/// Scopes that a caller needs for a call, in the `source` of an error.
#[derive(Debug, thiserror::Error)]
#[error("the credential lacks a scope that is needed: {}", .0.join(" "))]
pub struct MissingScopes(pub Arc<[String]>);

impl Rejection {
    /// A failed call, with a message for the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of(RejectionKind::Failed(message.into()))
    }

    /// A caller that may not make this call, with a message for it.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::of(RejectionKind::Forbidden(message.into()))
    }

    /// A caller whose credential lacks scopes. An OAuth client can ask for a token that has all of `scopes`.
    pub fn missing_scopes<S: Into<String>>(scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self::of(RejectionKind::MissingScopes(MissingScopes(scopes)))
    }

    /// A fault of the server, with a message for the log. The caller gets no details.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::of(RejectionKind::Internal(message.into()))
    }

    fn of(kind: RejectionKind) -> Self {
        Self { kind, source: None }
    }

    /// Adds the cause, for the log. The caller does not see it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns true if another argument or caller may succeed; false for faults of the server.
    pub(crate) fn concerns_argument(&self) -> bool {
        matches!(
            self.kind,
            RejectionKind::Failed(_)
                | RejectionKind::Forbidden(_)
                | RejectionKind::MissingScopes(_)
        )
    }

    /// The message.
    pub fn message(&self) -> String {
        match &self.kind {
            RejectionKind::Failed(message)
            | RejectionKind::Forbidden(message)
            | RejectionKind::Internal(message) => message.clone(),
            RejectionKind::Converted(error) => error.to_string(),
            RejectionKind::MissingScopes(scopes) => scopes.to_string(),
        }
    }
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            RejectionKind::Failed(_) | RejectionKind::Converted(_) => "Failed",
            RejectionKind::Forbidden(_) => "Forbidden",
            RejectionKind::MissingScopes(_) => "MissingScopes",
            RejectionKind::Internal(_) => "Internal",
        };
        f.debug_struct("Rejection")
            .field("kind", &format_args!("{kind}"))
            .field("message", &self.message())
            .field("source", &self.source)
            .finish()
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Rejection {
    fn from(error: E) -> Self {
        Self::of(RejectionKind::Converted(Box::new(error)))
    }
}

/// Converts a rejection into the error of a kind of function. All three have the same constructors.
macro_rules! convert {
    ($($error:ident),*) => {$(
        impl From<Rejection> for $error {
            fn from(rejection: Rejection) -> Self {
                let error = match rejection.kind {
                    RejectionKind::Failed(message) => Self::new(message),
                    RejectionKind::Converted(error) => Self::from_boxed(error),
                    RejectionKind::Forbidden(message) => Self::forbidden(message),
                    RejectionKind::MissingScopes(scopes) => {
                        return Self::forbidden(scopes.to_string()).caused_by(scopes);
                    }
                    RejectionKind::Internal(message) => Self::internal(message),
                };
                match rejection.source {
                    Some(source) => error.caused_by(source),
                    None => error,
                }
            }
        }
    )*};
}

convert!(ToolError, ResourceError, PromptError);
