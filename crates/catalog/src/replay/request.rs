//! The future of a client request, as a tool awaits it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Sleep;

use super::journal::Recorded;
use super::pending::{PendingRequest, RequestKind};
use super::session::{OpenOutcome, ReplaySession};
use super::{ClientRequestError, ReplayError};
use crate::seal::short_digest;

/// A client request that has not been sent.
pub struct RequestDraft {
    kind: RequestKind,
    params: Value,
    name: Option<Box<str>>,
    /// A member of the parameters that differs in each round, and is not part of the digest.
    volatile: Option<(&'static str, Value)>,
}

impl RequestDraft {
    pub fn new(kind: RequestKind, params: Value) -> Self {
        Self {
            kind,
            params,
            name: None,
            volatile: None,
        }
    }

    /// Adds a member of the parameters that differs in each round.
    pub fn set_volatile(&mut self, member: &'static str, value: Value) {
        self.volatile = Some((member, value));
    }

    /// Opens the request, or finds its response in the journal.
    fn open(self, session: &ReplaySession) -> Result<OpenOutcome, ClientRequestError> {
        let Self {
            kind,
            mut params,
            name,
            volatile,
        } = self;
        if let Some(name) = &name
            && (name.is_empty() || REQUEST_NAME_MAX_BYTES < name.len())
        {
            let problem = format!("its name must have 1 to {REQUEST_NAME_MAX_BYTES} bytes");
            return Err(ClientRequestError::InvalidRequest(problem));
        }
        let text = params.to_string();
        let digest = short_digest(&[
            text.as_bytes(),
            name.as_deref().unwrap_or_default().as_bytes(),
        ]);
        let text = match volatile {
            Some((member, value)) => {
                params[member] = value;
                params.to_string()
            }
            None => text,
        };
        session.open_request(kind, digest, name, text.into())
    }
}

/// Time that a tool has to read its recorded values after it has made a new request.
pub(super) const DIVERGENCE_GRACE: Duration = Duration::from_secs(5);

/// Maximum length of a request's name, in bytes.
pub const REQUEST_NAME_MAX_BYTES: usize = 128;

/// A client request, sent when it is first polled. Dropping it withdraws the request.
pub struct ClientRequest<'c> {
    session: &'c ReplaySession,
    stage: Stage,
    deadline: Option<Pin<Box<Sleep>>>,
    /// End of the time in which the tool has to read its recorded values. Apart from `deadline`: the call can become a
    /// task while this runs.
    divergence: Option<Pin<Box<Sleep>>>,
}

enum Stage {
    Draft(Result<RequestDraft, ClientRequestError>),
    Pending(Arc<PendingRequest>),
    Done,
}

/// A client's response, as JSON text.
pub struct Response {
    pub json: Box<str>,
    /// Name under which the client sent it in this round, if the call was resumed.
    name: Option<Box<str>>,
}

impl<'c> ClientRequest<'c> {
    /// Creates the request. An error of the draft is returned when the request is polled.
    pub fn new(
        session: &'c ReplaySession,
        draft: Result<RequestDraft, ClientRequestError>,
    ) -> Self {
        Self {
            session,
            stage: Stage::Draft(draft),
            deadline: None,
            divergence: None,
        }
    }

    pub fn set_name(&mut self, name: String) {
        if let Stage::Draft(Ok(draft)) = &mut self.stage {
            draft.name = Some(name.into());
        }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, ClientRequestError>> {
        if let Stage::Draft(_) = &self.stage
            && let Stage::Draft(draft) = std::mem::replace(&mut self.stage, Stage::Done)
        {
            match draft?.open(self.session)? {
                OpenOutcome::Recorded(Recorded {
                    value,
                    response_name,
                }) => {
                    return Poll::Ready(Ok(Response {
                        json: value,
                        name: response_name,
                    }));
                }
                OpenOutcome::Pending(request) => self.stage = Stage::Pending(request),
            }
        }
        let Stage::Pending(request) = &self.stage else {
            // Polled again after its end.
            return Poll::Ready(Err(ClientRequestError::Ended));
        };
        if let Poll::Ready(response) = request.poll_response(cx) {
            self.withdraw();
            return Poll::Ready(response.map(|json| Response { json, name: None }));
        }
        let Some(timeout) = self.session.response_timeout() else {
            self.poll_divergence(cx);
            // The call is suspended here.
            return Poll::Pending;
        };
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        if deadline.as_mut().poll(cx).is_ready() {
            self.withdraw();
            return Poll::Ready(Err(ClientRequestError::TimedOut(timeout)));
        }
        Poll::Pending
    }

    /// Fails the call if it makes a new request and does not read its recorded values in time.
    ///
    /// A tool that repeats its earlier requests reads all values: what came before them is recorded too. But it may
    /// take some time if it has concurrent futures, and one of them waits for something that is not recorded. And it may
    /// take another path if a step that failed in an earlier round has succeeded in this one.
    fn poll_divergence(&mut self, cx: &mut Context<'_>) {
        let Stage::Pending(request) = &self.stage else {
            return;
        };
        if !self.session.is_replaying() {
            return;
        }
        let divergence = self
            .divergence
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(DIVERGENCE_GRACE)));
        if divergence.as_mut().poll(cx).is_ready() && !self.session.drop_unread() {
            self.session.fail(ReplayError::NonDeterminism(format!(
                "it made the new request {} and did not repeat all earlier ones",
                request.describe()
            )));
        }
    }

    /// Rejects a response that does not match the request. If it came with this round, the call fails (MRTR-09).
    pub fn reject(&self, response: &Response, problem: String) -> ClientRequestError {
        if let Some(name) = &response.name {
            self.session.fail(ReplayError::InvalidResponse(format!(
                "inputResponses.{name}: {problem}"
            )));
        }
        ClientRequestError::InvalidResponse(problem)
    }

    fn withdraw(&mut self) {
        if let Stage::Pending(request) = std::mem::replace(&mut self.stage, Stage::Done) {
            self.session.withdraw(&request);
        }
    }
}

impl Drop for ClientRequest<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl fmt::Debug for ClientRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Draft(_) => "draft",
            Stage::Pending(_) => "pending",
            Stage::Done => "done",
        };
        f.debug_struct("ClientRequest")
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}

/// The method that names a request, which is the field `$request`.
macro_rules! named_request {
    ($request:tt) => {
        /// Names the request, in at most 128 bytes. Default: a generated name.
        ///
        /// Clients of 2026-07-28 see the name, and may send the response together with the first call.
        pub fn named(mut self, name: impl Into<String>) -> Self {
            self.$request.set_name(name.into());
            self
        }
    };
}

pub(crate) use named_request;

/// Sends a request of the protocol as it is, and returns the result as it is. Capabilities are not checked.
pub async fn send_named(
    session: &ReplaySession,
    name: Option<String>,
    method: &str,
    params: Value,
) -> Result<Value, ClientRequestError> {
    let draft = RequestKind::of_method(method)
        .map(|kind| RequestDraft::new(kind, params))
        .ok_or_else(|| {
            ClientRequestError::InvalidRequest(format!(
                "the protocol has no client method {method}"
            ))
        });
    let mut request = ClientRequest::new(session, draft);
    if let Some(name) = name {
        request.set_name(name);
    }
    let response = poll_fn(|cx| request.poll(cx)).await?;
    serde_json::from_str(&response.json)
        .map_err(|error| ClientRequestError::InvalidResponse(error.to_string()))
}
