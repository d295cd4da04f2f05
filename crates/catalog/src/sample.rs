//! Requests to the client itself: sampling of its model, and its roots.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::replay::{
    ClientRequest, ClientRequestError, ReplaySession, RequestDraft, RequestKind, named_request,
};
use crate::catalog::{in_words, strict};
use crate::protocol::{ClientAbility, Root, SamplingRequest, SamplingResult};

/// A sampling request. See [`CallContext::sample`](crate::CallContext::sample).
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Sample<'c>(ClientRequest<'c>);

/// A request for the client's roots. See [`CallContext::roots`](crate::CallContext::roots).
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Roots<'c>(ClientRequest<'c>);

/// A sampling request of an upstream server, passed through with its own parameters and result.
#[must_use = "a request is sent when it is awaited"]
pub struct PassthroughSample<'c>(ClientRequest<'c>);

impl<'c> Sample<'c> {
    named_request! { 0 }

    pub fn new(session: &'c ReplaySession, request: &SamplingRequest) -> Self {
        let draft = || {
            session.require(ClientAbility::Sampling)?;
            if request.needs_tools() {
                session.require(ClientAbility::SamplingTools)?;
            }
            if request.needs_context() {
                session.require(ClientAbility::SamplingContext)?;
            }
            let params = request.params(session.revision());
            let params = params.map_err(ClientRequestError::InvalidRequest)?;
            Ok(RequestDraft::new(RequestKind::Sampling, params))
        };
        Self(ClientRequest::new(session, draft()))
    }
}

impl<'c> Roots<'c> {
    named_request! { 0 }

    pub fn new(session: &'c ReplaySession) -> Self {
        let draft = session
            .require(ClientAbility::Roots)
            .map(|()| RequestDraft::new(RequestKind::Roots, json!({})));
        Self(ClientRequest::new(session, draft))
    }
}

impl<'c> PassthroughSample<'c> {
    named_request! { 0 }

    pub fn new(session: &'c ReplaySession, params: Value) -> Self {
        let draft = || {
            session.require(ClientAbility::Sampling)?;
            if params.get("tools").is_some() || params.get("toolChoice").is_some() {
                session.require(ClientAbility::SamplingTools)?;
            }
            Ok(RequestDraft::new(RequestKind::Sampling, params))
        };
        Self(ClientRequest::new(session, draft()))
    }
}

/// Polls for a result of a type.
fn poll_as<T: DeserializeOwned>(
    request: &mut ClientRequest<'_>,
    kind: RequestKind,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ClientRequestError>> {
    request.poll(cx).map(|response| {
        let response = response?;
        strict::from_str(&response.json).map_err(|e| {
            let problem = format!("not a valid result of {}: {}", kind.method(), in_words(&e));
            request.reject(&response, problem)
        })
    })
}

impl Future for Sample<'_> {
    type Output = Result<SamplingResult, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_as(&mut self.0, RequestKind::Sampling, cx)
    }
}

impl Future for Roots<'_> {
    type Output = Result<Vec<Root>, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        #[derive(Deserialize)]
        struct ListRootsResult {
            roots: Vec<Root>,
        }
        let result = poll_as(&mut self.0, RequestKind::Roots, cx);
        result.map_ok(|ListRootsResult { roots }| roots)
    }
}

impl Future for PassthroughSample<'_> {
    type Output = Result<Value, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(|response| {
            let response = response?;
            serde_json::from_str(&response.json)
                .map_err(|error| self.0.reject(&response, error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::catalog::replay::Client;
    use crate::protocol::{ClientCapabilities, Revision};

    #[tokio::test]
    async fn root_01_a_client_that_has_no_roots_is_not_asked_for_them() {
        let session = ReplaySession::new(Client::Session {
            revision: Revision::V2025_11_25,
            capabilities: ClientCapabilities::default(),
            response_timeout: Duration::MAX,
        });
        let refused = Roots::new(&session).await;
        let error = ClientRequestError::NotDeclared(ClientAbility::Roots);
        assert_eq!(refused, Err(error));
        assert!(!session.has_new_requests());
    }
}
