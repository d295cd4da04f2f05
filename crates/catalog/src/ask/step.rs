//! What is done once in a call that may begin anew.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Asking, Desk, Fault};
use crate::seal::{JournalKey, LIFE_SECONDS_MAX, short_digest};
use crate::state::StateError;

/// Why a step was not taken, or what it gave cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// What it gave cannot be written as JSON. It was taken all the same.
    #[error("what the step gave cannot be kept")]
    Write(#[source] serde_json::Error),
    /// It must be taken once, and was begun before: by a call that went on from the same answers.
    #[error("the step was taken before, and must not be taken twice")]
    TakenBefore,
    /// It must be taken once, and it cannot be found out whether it was taken before.
    #[error("whether the step was taken before cannot be found out")]
    Ledger(#[source] StateError),
    /// What it gave in an earlier round is not what it gives now.
    #[error("what the step gave before is of another type")]
    Read(#[source] serde_json::Error),
}

/// The kind of a step, beside those of questions.
const STEP: u8 = 4;

/// How often a step may be taken that nobody knows the result of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    AtLeast,
    AtMost,
}

/// Takes a step, or recalls what it gave.
pub async fn step<T, E, F>(asking: &Asking, name: &str, once: Once, effect: F) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: From<StepError>,
    F: Future<Output = Result<T, E>>,
{
    if !asking.is_in_rounds() {
        return effect.await;
    }
    let desk = asking.desk_or_new();
    let place = match desk.begin_step(STEP, short_digest(&[name.as_bytes()])) {
        Ok(before) => {
            return serde_json::from_str(&before).map_err(|error| {
                let departed = format!("the step \"{name}\" gave something else before");
                desk.fail(Fault::Departed(departed));
                StepError::Read(error).into()
            });
        }
        Err(place) => place,
    };
    let mut taken = Taken {
        asking,
        desk,
        place,
        value: None,
    };
    if once == Once::AtMost
        && let Some((ledger, key)) = desk.ledger(place)
    {
        let life = Duration::from_secs(LIFE_SECONDS_MAX);
        match ledger
            .put_if_absent(&key, Bytes::from_static(b"1"), life)
            .await
        {
            Ok(true) => {}
            Ok(false) => return Err(StepError::TakenBefore.into()),
            Err(error) => return Err(StepError::Ledger(error).into()),
        }
    }
    let value = effect.await?;
    let text = serde_json::to_string(&value).map_err(StepError::Write)?;
    taken.value = Some(text.into());
    Ok(value)
}

/// A step that is being taken; while there is one, the call is not broken off by a question.
struct Taken<'c> {
    asking: &'c Asking,
    desk: &'c Desk,
    place: JournalKey,
    value: Option<Box<str>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.desk.end_step(self.place, self.value.take());
        self.asking.wake_driver();
    }
}
