//! A question of somebody else's, passed on as it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde_json::Value;

use super::AskError;
use super::question::{Draft, Question, QuestionKind};
use crate::catalog::CallContext;
use crate::protocol::ClientAbility;

/// A message of the client's model, asked for in somebody else's words.
#[must_use = "a question is asked when it is awaited"]
pub struct RelayedSample<'c>(Question<'c>);

impl<'c> RelayedSample<'c> {
    pub fn new(context: &'c CallContext, params: Value) -> Self {
        let asking = &context.asking;
        let draft = || {
            asking.require(ClientAbility::Sampling)?;
            if params.get("tools").is_some() || params.get("toolChoice").is_some() {
                asking.require(ClientAbility::SamplingTools)?;
            }
            Ok(Draft::new(QuestionKind::Sampling, params))
        };
        Self(Question::new(asking, draft()))
    }
}

impl Future for RelayedSample<'_> {
    type Output = Result<Value, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(|answer| {
            let answer = answer?;
            serde_json::from_str(&answer.json)
                .map_err(|error| self.0.refuse(&answer, error.to_string()))
        })
    }
}
