//! A client request between its sending and its response.

use std::task::{Context, Poll, Waker};

use super::ClientRequestError;
use crate::net::Mutex;
use crate::seal::JournalKey;

/// Kind of a client request. The numbers are part of journal keys, and with them of resume tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    Elicitation = 1,
    Sampling = 2,
    Roots = 3,
}

impl RequestKind {
    /// Returns the kind of a method; `None` if clients have no such method.
    pub(super) fn of_method(method: &str) -> Option<Self> {
        [Self::Elicitation, Self::Sampling, Self::Roots]
            .into_iter()
            .find(|kind| kind.method() == method)
    }

    pub fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// Returns the prefix of generated names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// A client request that waits for its response.
///
/// ```text
/// Waiting ── respond ──► Responded ── poll_response ──► Closed
///    └────────────────────── close ───────────────────────▲
/// ```
#[derive(Debug)]
pub struct PendingRequest {
    kind: RequestKind,
    key: JournalKey,
    name: Option<Box<str>>,
    params: Box<str>,
    state: Mutex<PendingState>,
}

#[derive(Debug)]
enum PendingState {
    /// No response yet. The waker is that of the tool's future.
    Waiting(Option<Waker>),
    /// A response that the tool has not read, as JSON text.
    Responded(Result<Box<str>, ClientRequestError>),
    /// The tool has read the response, or dropped the request.
    Closed,
}

impl PendingRequest {
    pub(super) fn new(
        kind: RequestKind,
        key: JournalKey,
        name: Option<Box<str>>,
        params: Box<str>,
    ) -> Self {
        Self {
            kind,
            key,
            name,
            params,
            state: Mutex::new(PendingState::Waiting(None)),
        }
    }

    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    pub fn key(&self) -> JournalKey {
        self.key
    }

    /// Returns the name that the tool gave it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the parameters as JSON text.
    pub fn params(&self) -> &str {
        &self.params
    }

    /// Describes the request for logs, without its content.
    pub(super) fn describe(&self) -> String {
        match &self.name {
            Some(name) => format!("{} \"{name}\"", self.kind.method()),
            None => self.kind.method().to_owned(),
        }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), PendingState::Waiting(_))
    }

    pub fn is_closed(&self) -> bool {
        matches!(*self.state.lock(), PendingState::Closed)
    }

    /// Delivers a response. Returns false if the request has one already, or is closed.
    pub fn respond(&self, response: Result<Box<str>, ClientRequestError>) -> bool {
        let waker = {
            let mut state = self.state.lock();
            let PendingState::Waiting(waker) = &mut *state else {
                return false;
            };
            let waker = waker.take();
            *state = PendingState::Responded(response);
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    pub(super) fn poll_response(
        &self,
        cx: &Context<'_>,
    ) -> Poll<Result<Box<str>, ClientRequestError>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, PendingState::Closed) {
            PendingState::Responded(response) => Poll::Ready(response),
            PendingState::Waiting(_) => {
                *state = PendingState::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            PendingState::Closed => Poll::Ready(Err(ClientRequestError::Ended)),
        }
    }

    pub(super) fn close(&self) {
        *self.state.lock() = PendingState::Closed;
    }
}
