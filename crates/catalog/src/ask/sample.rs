//! Questions to the client itself: its model, and its roots.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Deserialize;
use serde_json::json;

use super::AskError;
use super::question::{Draft, Question, QuestionKind};
use crate::catalog::{CallContext, in_words, strict};
use crate::protocol::{ClientAbility, Root, SamplingRequest, SamplingResult};

/// A message of the client's model, asked for when it is awaited. See [`CallContext::sample`].
#[derive(Debug)]
#[must_use = "a question is asked when it is awaited"]
pub struct Sample<'c>(Question<'c>);

/// The client's roots, asked for when they are awaited. See [`CallContext::roots`].
#[derive(Debug)]
#[must_use = "a question is asked when it is awaited"]
pub struct Roots<'c>(Question<'c>);

impl<'c> Sample<'c> {
    pub fn new(context: &'c CallContext, request: &SamplingRequest) -> Self {
        let asking = &context.asking;
        let draft = || {
            asking.require(ClientAbility::Sampling)?;
            if request.needs_tools() {
                asking.require(ClientAbility::SamplingTools)?;
            }
            if request.needs_context() {
                asking.require(ClientAbility::SamplingContext)?;
            }
            let params = request.params(asking.revision());
            let params = params.map_err(AskError::InvalidQuestion)?;
            Ok(Draft::new(QuestionKind::Sampling, params))
        };
        Self(Question::new(asking, draft()))
    }

    /// Gives the question a name of its own, of at most 128 bytes. Clients of 2026-07-28 see it, and may send the
    /// answer along before they are asked. Default: one is made up.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name(name.into());
        self
    }
}

impl<'c> Roots<'c> {
    pub fn new(context: &'c CallContext) -> Self {
        let asking = &context.asking;
        let declared = asking.require(ClientAbility::Roots);
        let draft = declared.map(|()| Draft::new(QuestionKind::Roots, json!({})));
        Self(Question::new(asking, draft))
    }

    /// Gives the question a name of its own, of at most 128 bytes. Clients of 2026-07-28 see it, and may send the
    /// answer along before they are asked. Default: one is made up.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name(name.into());
        self
    }
}

impl Future for Sample<'_> {
    type Output = Result<SamplingResult, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(|answer| {
            let answer = answer?;
            strict::from_str(&answer.json).map_err(|e| {
                let problem = format!(
                    "not a valid result of sampling/createMessage: {}",
                    in_words(&e)
                );
                self.0.refuse(&answer, problem)
            })
        })
    }
}

impl Future for Roots<'_> {
    type Output = Result<Vec<Root>, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        #[derive(Deserialize)]
        struct ListRootsResult {
            roots: Vec<Root>,
        }
        self.0.poll(cx).map(|answer| {
            let answer = answer?;
            match strict::from_str::<ListRootsResult>(&answer.json) {
                Ok(result) => Ok(result.roots),
                Err(e) => {
                    let problem = format!("not a valid result of roots/list: {}", in_words(&e));
                    Err(self.0.refuse(&answer, problem))
                }
            }
        })
    }
}
