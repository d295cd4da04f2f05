//! Durable steps: effects that run once in a call whose tool can run again.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ReplayError, ReplaySession};
use crate::seal::{JournalKey, MAX_AGE_SECONDS, short_digest};
use crate::state::StateError;

/// Error of a durable step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The result cannot be written as JSON. The step has run.
    #[error("the result of the step cannot be written as JSON")]
    Serialize(#[source] serde_json::Error),
    /// The step runs at most once, and a call with the same responses has started it before.
    #[error("the step has run before, and must not run twice")]
    AlreadyRun,
    /// The step runs at most once, and the shared state does not say whether it has run.
    #[error("the shared state is unavailable, so the step cannot run at most once")]
    Unavailable(#[source] StateError),
    /// The recorded result has another type.
    #[error("the recorded result of the step has another type")]
    Deserialize(#[source] serde_json::Error),
}

/// Kind of a step in journal keys. The kinds of requests are 1 to 3.
pub(super) const STEP: u8 = 4;

/// Record of a step that runs at most once, and has failed or was dropped. No JSON text is empty.
const WITHOUT_RESULT: &str = "";

/// Guarantee of a step whose result is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepGuarantee {
    AtLeastOnce,
    AtMostOnce,
}

thread_local! {
    /// Steps whose effects this thread polls, the innermost last. Each has the address of its session.
    static POLLED: RefCell<Vec<(usize, JournalKey)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the step of a session whose effect this thread polls.
pub(super) fn enclosing(session: &ReplaySession) -> Option<JournalKey> {
    let session = std::ptr::from_ref(session).addr();
    POLLED.with_borrow(|polled| {
        let mut inner = polled.iter().rev();
        inner.find(|(of, _)| *of == session).map(|(_, key)| *key)
    })
}

/// Marks a step as polled by this thread until dropped.
struct Polled;

impl Polled {
    fn enter(session: &ReplaySession, key: JournalKey) -> Self {
        let session = std::ptr::from_ref(session).addr();
        POLLED.with_borrow_mut(|polled| polled.push((session, key)));
        Self
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        POLLED.with_borrow_mut(Vec::pop);
    }
}

/// Digest of a step. A step within another one is distinguished from steps of its name elsewhere, which run also in
/// rounds that have the result of the outer one.
fn step_digest(name: &str, outer: Option<JournalKey>) -> [u8; 16] {
    match outer {
        None => short_digest(&[name.as_bytes()]),
        Some(outer) => short_digest(&[name.as_bytes(), &outer.digest, &outer.nth.to_le_bytes()]),
    }
}

/// Runs a step, or returns its recorded result.
pub async fn run_step<T, E, F>(
    session: &ReplaySession,
    name: &str,
    guarantee: StepGuarantee,
    effect: F,
) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: From<StepError>,
    F: Future<Output = Result<T, E>>,
{
    if !session.is_durable() {
        return effect.await;
    }
    let outer = enclosing(session);
    let key = match session.begin_step(STEP, step_digest(name, outer), outer) {
        Ok(recorded) if *recorded == *WITHOUT_RESULT => return Err(StepError::AlreadyRun.into()),
        Ok(recorded) => {
            return serde_json::from_str(&recorded).map_err(|error| {
                session.fail(ReplayError::NonDeterminism(format!(
                    "the recorded result of the step \"{name}\" has another type"
                )));
                StepError::Deserialize(error).into()
            });
        }
        Err(key) => key,
    };
    let mut running = RunningStep {
        session,
        key,
        result: None,
    };
    if guarantee == StepGuarantee::AtMostOnce {
        running.claim().await?;
        running.result = Some(WITHOUT_RESULT.into());
    }
    let mut effect = pin!(effect);
    let value = poll_fn(|cx| {
        let _polled = Polled::enter(session, key);
        effect.as_mut().poll(cx)
    })
    .await?;
    let text = serde_json::to_string(&value).map_err(StepError::Serialize)?;
    running.result = Some(text.into());
    Ok(value)
}

/// A step that is running. Dropping it ends the step.
struct RunningStep<'c> {
    session: &'c ReplaySession,
    key: JournalKey,
    /// What is recorded.
    result: Option<Box<str>>,
}

impl RunningStep<'_> {
    /// Claims the step in the shared state, so that no other round with the same responses runs it. In a first round, only
    /// the journal tells later ones that it has run.
    async fn claim(&self) -> Result<(), StepError> {
        let Some((store, name)) = self.session.step_claim(self.key) else {
            return Ok(());
        };
        let max_age = Duration::from_secs(MAX_AGE_SECONDS);
        match store
            .put_if_absent(&name, Bytes::from_static(b"1"), max_age)
            .await
        {
            Ok(true) => Ok(()),
            Ok(false) => Err(StepError::AlreadyRun),
            Err(error) => Err(StepError::Unavailable(error)),
        }
    }
}

impl Drop for RunningStep<'_> {
    fn drop(&mut self) {
        let result = self.result.take();
        self.session.end_step(self.key, result);
    }
}
