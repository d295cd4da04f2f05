//! JSON-RPC errors of other servers, and what the errors of tools, resources and prompts have in common.

use crate::protocol::ErrorObject;

/// JSON-RPC error of another server, with the code and the data for the caller. It is the source of an error whose
/// kind is `Protocol`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{} ({})", .0.message, .0.code.number())]
pub struct ProtocolError(pub ErrorObject);

/// Defines the error of a tool, a resource or a prompt. It is not itself an [`Error`](std::error::Error), so that every
/// error converts into it. `$invalid` is the error of invalid input, which its `from_boxed` converts in its own way.
macro_rules! item_error {
    ($(#[$attribute:meta])* $error:ident: $kind:ident, $invalid:ident) => {
        $(#[$attribute])*
        #[derive(Debug)]
        pub struct $error {
            kind: $kind,
            message: String,
            source: Option<Box<dyn Error + Send + Sync>>,
            /// Converted from the error of another library.
            foreign: bool,
        }

        impl $error {
            /// A failure, with a message for the caller.
            pub fn new(message: impl Into<String>) -> Self {
                Self::of($kind::Failed, message)
            }

            /// A fault of the implementation, with a message for the log. The caller gets no details.
            pub fn internal(message: impl Into<String>) -> Self {
                Self::of($kind::Internal, message)
            }

            /// A caller that may not do this, with a message for it.
            pub fn forbidden(message: impl Into<String>) -> Self {
                Self::of($kind::Forbidden, message)
            }

            /// The JSON-RPC error of another server, for the caller.
            #[doc(hidden)]
            pub fn protocol(error: ErrorObject) -> Self {
                Self::of($kind::Protocol, error.message.clone()).caused_by(ProtocolError(error))
            }

            /// Returns the JSON-RPC error of another server.
            #[doc(hidden)]
            pub fn protocol_error(&self) -> Option<&ErrorObject> {
                let error: &ProtocolError = self.source()?.downcast_ref()?;
                Some(&error.0)
            }

            fn of(kind: $kind, message: impl Into<String>) -> Self {
                Self {
                    kind,
                    message: message.into(),
                    source: None,
                    foreign: false,
                }
            }

            /// Keeps the cause for the log. It is not shown to the caller.
            #[must_use]
            pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
                self.source = Some(source.into());
                self
            }

            /// The message.
            pub fn message(&self) -> &str {
                &self.message
            }

            /// Returns true if the message is that of a converted error (`?`), which was not written for the caller.
            /// `server.mask_errors` hides such messages.
            pub fn is_foreign(&self) -> bool {
                self.foreign
            }

            /// Turns a converted error into a fault, whose message only the log has, if `hides` is set.
            #[doc(hidden)]
            #[must_use]
            pub fn masked(mut self, hides: bool) -> Self {
                if hides && self.foreign {
                    self.kind = $kind::Internal;
                }
                self
            }

            /// Converts an error whose type is not known.
            pub(crate) fn from_dynamic(error: &(dyn Error + 'static)) -> Self {
                if let Some(invalid) = error.downcast_ref::<$invalid>() {
                    return Self::from(invalid.clone());
                }
                match error.downcast_ref::<ClientRequestError>() {
                    Some(of_client) => Self::from(of_client.clone()),
                    None => Self {
                        foreign: true,
                        source: error.source().map(|cause| with_causes(cause).into()),
                        ..Self::new(error.to_string())
                    },
                }
            }

            /// The kind of failure.
            pub fn kind(&self) -> $kind {
                self.kind
            }

            /// The cause, for the log.
            pub fn source(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
                self.source.as_deref()
            }

            /// Converts an error of a client request, whose message is shown to the caller, or of another library.
            fn converted(error: Box<dyn Error + Send + Sync>) -> Self {
                let of_client = error.downcast_ref::<ClientRequestError>();
                let kind = match of_client {
                    Some(ClientRequestError::NotDeclared(ability)) => {
                        $kind::MissingCapability(*ability)
                    }
                    Some(ClientRequestError::InvalidRequest(_)) => $kind::Internal,
                    Some(ClientRequestError::UrlElicitationRequired(_)) => {
                        $kind::UrlElicitationRequired
                    }
                    _ => $kind::Failed,
                };
                let converted = Self {
                    foreign: of_client.is_none(),
                    ..Self::of(kind, error.to_string())
                };
                converted.caused_by(error)
            }
        }

        impl<E: Error + Send + Sync + 'static> From<E> for $error {
            fn from(error: E) -> Self {
                Self::from_boxed(Box::new(error))
            }
        }
    };
}

pub(crate) use item_error;
