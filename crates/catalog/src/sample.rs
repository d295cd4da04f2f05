//! Requests to the client itself: sampling of its model, and its roots.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Deserialize;
use serde_json::{Value, json};

use super::replay::{ClientRequest, ClientRequestError, ReplaySession, RequestDraft, RequestKind};
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

    /// Names the request, in at most 128 bytes. Default: a generated name.
    ///
    /// Clients of 2026-07-28 see the name, and may send the response together with the first call.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.set_name(name.into());
        self
    }
}

impl<'c> Roots<'c> {
    pub fn new(session: &'c ReplaySession) -> Self {
        let draft = session
            .require(ClientAbility::Roots)
            .map(|()| RequestDraft::new(RequestKind::Roots, json!({})));
        Self(ClientRequest::new(session, draft))
    }

    /// Names the request, in at most 128 bytes. Default: a generated name.
    ///
    /// Clients of 2026-07-28 see the name, and may send the response together with the first call.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.set_name(name.into());
        self
    }
}

impl<'c> PassthroughSample<'c> {
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

    /// Names the request, in at most 128 bytes. Default: a generated name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.set_name(name.into());
        self
    }
}

impl Future for Sample<'_> {
    type Output = Result<SamplingResult, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(|response| {
            let response = response?;
            strict::from_str(&response.json).map_err(|e| {
                let method = RequestKind::Sampling.method();
                let problem = format!("not a valid result of {method}: {}", in_words(&e));
                self.0.reject(&response, problem)
            })
        })
    }
}

impl Future for Roots<'_> {
    type Output = Result<Vec<Root>, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        #[derive(Deserialize)]
        struct ListRootsResult {
            roots: Vec<Root>,
        }
        self.0.poll(cx).map(|response| {
            let response = response?;
            match strict::from_str::<ListRootsResult>(&response.json) {
                Ok(result) => Ok(result.roots),
                Err(e) => {
                    let method = RequestKind::Roots.method();
                    let problem = format!("not a valid result of {method}: {}", in_words(&e));
                    Err(self.0.reject(&response, problem))
                }
            }
        })
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
