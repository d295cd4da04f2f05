//! Errors of client requests and of replay.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::protocol::ClientAbility;

/// Error of an elicitation, sampling or roots request to the client.
///
/// Converts into the errors of tools, resources and prompts with `?`. [`NotDeclared`](Self::NotDeclared) then becomes
/// the error -32021 for clients of 2026-07-28, which names the missing capability.
/// [`UrlElicitationRequired`](Self::UrlElicitationRequired) becomes the error -32042 for clients of 2025-11-25.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientRequestError {
    /// The client has not declared the capability. Check first with
    /// [`CallContext::client_can`](crate::CallContext::client_can).
    #[error("Server requires the {0} capability")]
    NotDeclared(ClientAbility),
    /// The client takes no requests during this call.
    #[error("the client accepts no requests: {0}")]
    Unreachable(&'static str),
    /// The client's protocol version has no such request.
    #[error("the client's protocol version does not support this request: {0}")]
    Unsupported(String),
    /// The client did not respond in time.
    #[error("the client did not respond within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The client responded with an error.
    #[error("the client responded with an error: {message} ({code})")]
    Refused {
        /// Error code of the client.
        code: i64,
        /// Error message of the client.
        message: String,
    },
    /// The client's response does not match the request.
    #[error("the client's response is not valid: {0}")]
    InvalidResponse(String),
    /// Too many requests are pending. Names the limit.
    #[error("too many requests wait for the client's response ({0})")]
    TooMany(&'static str),
    /// The user has to visit a page before the request is sent again; see
    /// [`ElicitUrl::required`](crate::catalog::ElicitUrl::required).
    #[error("{}", .0.message())]
    UrlElicitationRequired(Box<RequiredElicitation>),
    /// The call or its session has ended.
    #[error("the call ended before the client responded")]
    Ended,
    /// The request is not valid. This is a mistake in the tool.
    #[error("the request to the client is not valid: {0}")]
    InvalidRequest(String),
}

impl ClientRequestError {
    /// Returns the capability that the client has not declared, if that is the reason.
    pub fn missing(&self) -> Option<ClientAbility> {
        match self {
            Self::NotDeclared(ability) => Some(*ability),
            _ => None,
        }
    }

    /// Reads the error of a client's response from its JSON text.
    pub fn from_response(error: &str) -> Self {
        let error: Value = serde_json::from_str(error).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or("no reason was given");
        Self::Refused {
            code: error["code"].as_i64().unwrap_or_default(),
            message: message.chars().take(500).collect(),
        }
    }
}

/// A page that the user has to visit before a request can succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredElicitation {
    message: String,
    url: String,
    id: Arc<str>,
}

impl RequiredElicitation {
    pub fn new(message: String, url: String, id: Arc<str>) -> Self {
        Self { message, url, id }
    }

    /// The message to the user.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the entry in `data` of the error (ELI-10).
    pub fn elicitation(&self) -> Value {
        json!({"mode": "url", "message": self.message, "url": self.url, "elicitationId": &*self.id})
    }
}

/// Reason for which a call fails, regardless of its tool's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The tool made other requests than before, or a step has another type. This is a mistake in the tool.
    NonDeterminism(String),
    /// The client sent a response that does not match its request (MRTR-09).
    InvalidResponse(String),
    /// The stored journal could not be read.
    JournalUnavailable(String),
}
