//! Why a question has no answer.

use std::time::Duration;

use super::RequiredVisit;
use crate::protocol::ClientAbility;

/// Why the client has not answered a question.
///
/// It converts into the errors of tools, resources and prompts with `?`. [`NotDeclared`](Self::NotDeclared) then
/// becomes the error -32021 for clients of 2026-07-28, which says what they would have to declare, and
/// [`VisitRequired`](Self::VisitRequired) the error -32042 for those of 2025-11-25, which says which page to visit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The client has not said that it can do this. [`CallContext::client_can`](crate::CallContext::client_can) tells
    /// beforehand.
    #[error("this needs a client that has declared the capability {0}")]
    NotDeclared(ClientAbility),
    /// There is nobody who could be asked.
    #[error("the client cannot be asked: {0}")]
    Unreachable(&'static str),
    /// The client's revision of the protocol has no way to ask this.
    #[error("the client cannot be asked this: {0}")]
    Unsupported(String),
    /// No answer came in time.
    #[error("the client did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The client has answered with an error.
    #[error("the client answered with an error: {message} ({code})")]
    Refused {
        /// The client's own code.
        code: i64,
        /// The client's own words.
        message: String,
    },
    /// The client has answered something that is no answer to the question.
    #[error("the client's answer cannot be used: {0}")]
    InvalidAnswer(String),
    /// More questions wait for answers than may.
    #[error("too many questions wait for the client's answer ({0})")]
    TooMany(&'static str),
    /// The client's person has to visit a page before the request is made again; see
    /// [`ElicitUrl::required`](crate::catalog::ElicitUrl::required).
    #[error("{}", .0.message())]
    VisitRequired(Box<RequiredVisit>),
    /// The call, or its session, is over.
    #[error("the call has ended before the client answered")]
    Ended,
    /// The question itself is at fault, and with it the tool.
    #[error("the question cannot be asked: {0}")]
    InvalidQuestion(String),
}

impl AskError {
    /// Whether the client would have to declare a capability; which one.
    pub fn missing(&self) -> Option<ClientAbility> {
        match self {
            Self::NotDeclared(ability) => Some(*ability),
            _ => None,
        }
    }
}
