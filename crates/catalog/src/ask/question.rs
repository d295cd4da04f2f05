//! One question on its way.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use serde_json::Value;
use tokio::time::Sleep;

use super::desk::Begun;
use super::{AskError, Asking, Fault};
use crate::seal::{JournalKey, short_digest};

/// What sort of question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QuestionKind {
    Elicitation = 1,
    Sampling = 2,
    Roots = 3,
}

impl QuestionKind {
    pub fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// What its name begins with, where it has none of its own.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// What tells one question from another.
#[derive(Debug)]
pub(super) struct SlotKey {
    pub(super) kind: QuestionKind,
    pub(super) digest: [u8; 16],
    /// The name that the tool gave it.
    pub(super) name: Option<Box<str>>,
    /// Parameters of the request, JSON text.
    pub(super) params: Box<str>,
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Slot {
    key: SlotKey,
    pub place: JournalKey,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
enum SlotState {
    Open(Option<Waker>),
    Answered(Result<Box<str>, ClientError>),
    /// Nobody waits for it any more.
    Closed,
}

/// An answer that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError(AskError);

impl ClientError {
    /// The error of the client's own, as JSON text.
    pub fn read(error: &str) -> Self {
        let error: Value = serde_json::from_str(error).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or("no reason was given");
        Self(AskError::Refused {
            code: error["code"].as_i64().unwrap_or_default(),
            message: message.chars().take(500).collect(),
        })
    }

    pub fn ended() -> Self {
        Self(AskError::Ended)
    }

    pub fn too_many(setting: &'static str) -> Self {
        Self(AskError::TooMany(setting))
    }
}

impl Slot {
    pub(super) fn new(key: SlotKey, place: JournalKey) -> Self {
        Self {
            key,
            place,
            state: Mutex::new(SlotState::Open(None)),
        }
    }

    pub fn kind(&self) -> QuestionKind {
        self.key.kind
    }

    /// The name that the tool gave it.
    pub fn name(&self) -> Option<&str> {
        self.key.name.as_deref()
    }

    /// Parameters of the request, JSON text.
    pub fn params(&self) -> &str {
        &self.key.params
    }

    /// For the log: what is asked, without the words of it.
    pub(super) fn describe(&self) -> String {
        match &self.key.name {
            Some(name) => format!("{} \"{name}\"", self.key.kind.method()),
            None => self.key.kind.method().to_owned(),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(*self.state(), SlotState::Open(_))
    }

    /// Whether nobody waits for its answer any more.
    pub fn is_closed(&self) -> bool {
        matches!(*self.state(), SlotState::Closed)
    }

    /// Answers it. `false` if it was answered before, or nobody waits for it any more.
    pub fn answer(&self, answer: Result<Box<str>, ClientError>) -> bool {
        let waker = {
            let mut state = self.state();
            let SlotState::Open(waker) = &mut *state else {
                return false;
            };
            let waker = waker.take();
            *state = SlotState::Answered(answer);
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn poll_answer(&self, cx: &Context<'_>) -> Poll<Result<Box<str>, ClientError>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, SlotState::Closed) {
            SlotState::Answered(answer) => Poll::Ready(answer),
            SlotState::Open(_) => {
                *state = SlotState::Open(Some(cx.waker().clone()));
                Poll::Pending
            }
            SlotState::Closed => Poll::Ready(Err(ClientError::ended())),
        }
    }

    fn close(&self) {
        *self.state() = SlotState::Closed;
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question before it is asked.
pub(super) struct Draft {
    pub(super) kind: QuestionKind,
    pub(super) params: Value,
    pub(super) name: Option<Box<str>>,
    /// Members of the parameters that are drawn anew each time, and do not tell questions apart.
    pub(super) drawn: Option<(&'static str, Value)>,
}

impl Draft {
    pub(super) fn new(kind: QuestionKind, params: Value) -> Self {
        Self {
            kind,
            params,
            name: None,
            drawn: None,
        }
    }
}

/// Names that a question may be given.
pub(super) const NAME_MAX_BYTES: usize = 128;

/// A question that is asked when it is first polled. Dropping it takes it back.
pub(super) struct Question<'c> {
    asking: &'c Asking,
    draft: Option<Result<Draft, AskError>>,
    slot: Option<Arc<Slot>>,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// An answer, as JSON text.
pub(super) struct Answer {
    pub(super) json: Box<str>,
    /// The name under which the client has sent it in this round, if the call is one that begins anew.
    fresh: Option<Box<str>>,
}

impl<'c> Question<'c> {
    pub(super) fn new(asking: &'c Asking, draft: Result<Draft, AskError>) -> Self {
        Self {
            asking,
            draft: Some(draft),
            slot: None,
            deadline: None,
        }
    }

    pub(super) fn name(&mut self, name: String) {
        if let Some(Ok(draft)) = &mut self.draft {
            draft.name = Some(name.into());
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, AskError>> {
        if let Some(draft) = self.draft.take() {
            match self.begin(draft?)? {
                Begun::Answered(json, fresh) => return Poll::Ready(Ok(Answer { json, fresh })),
                Begun::Open(slot) => self.slot = Some(slot),
            }
        }
        let Some(slot) = &self.slot else {
            // Polled after its end.
            return Poll::Ready(Err(AskError::Ended));
        };
        if let Poll::Ready(answer) = slot.poll_answer(cx) {
            self.take_back();
            let answer = answer.map(|json| Answer { json, fresh: None });
            return Poll::Ready(answer.map_err(|ClientError(error)| error));
        }
        let Some(patience) = self.asking.patience() else {
            // The call ends here, and begins anew with the answer.
            return Poll::Pending;
        };
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if deadline.as_mut().poll(cx).is_ready() {
            self.take_back();
            return Poll::Ready(Err(AskError::TimedOut(patience)));
        }
        Poll::Pending
    }

    fn begin(&self, draft: Draft) -> Result<Begun, AskError> {
        if let Some(name) = &draft.name
            && (name.is_empty() || NAME_MAX_BYTES < name.len())
        {
            let problem = format!("its name has 1 to {NAME_MAX_BYTES} bytes");
            return Err(AskError::InvalidQuestion(problem));
        }
        let mut params = draft.params;
        let text = params.to_string();
        let name = draft.name.as_deref().unwrap_or_default();
        let digest = short_digest(&[text.as_bytes(), name.as_bytes()]);
        let text = match draft.drawn {
            Some((member, value)) => {
                params[member] = value;
                params.to_string()
            }
            None => text,
        };
        self.asking.put(SlotKey {
            kind: draft.kind,
            digest,
            name: draft.name,
            params: text.into(),
        })
    }

    /// An answer that is none: the call ends with it where the answer came with the call.
    pub(super) fn refuse(&self, answer: &Answer, problem: String) -> AskError {
        if let (Some(name), Some(desk)) = (&answer.fresh, self.asking.desk()) {
            desk.fail(Fault::BadAnswer(format!(
                "inputResponses.{name}: {problem}"
            )));
        }
        AskError::InvalidAnswer(problem)
    }

    fn take_back(&mut self) {
        if let (Some(slot), Some(desk)) = (self.slot.take(), self.asking.desk()) {
            slot.close();
            desk.withdraw(&slot);
            // The server forgets it, and may tell the client.
            self.asking.wake_driver();
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// Asks something in the words of the protocol.
pub async fn ask(asking: &Asking, method: &str, params: Value) -> Result<Value, AskError> {
    let kinds = [
        QuestionKind::Elicitation,
        QuestionKind::Sampling,
        QuestionKind::Roots,
    ];
    let kind = kinds.into_iter().find(|kind| kind.method() == method);
    let draft = kind
        .map(|kind| Draft::new(kind, params))
        .ok_or_else(|| AskError::InvalidQuestion(format!("there is no {method}")));
    let mut question = Question::new(asking, draft);
    let answer = poll_fn(|cx| question.poll(cx)).await?;
    serde_json::from_str(&answer.json).map_err(|e| AskError::InvalidAnswer(e.to_string()))
}
