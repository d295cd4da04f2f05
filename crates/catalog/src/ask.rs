//! Asking the client, while a call runs.
//!
//! To whoever writes a tool, a question is an `await`. How it reaches the client is the server's matter, and differs:
//!
//! - Within a session, up to 2025-11-25, it goes out on the stream that the call's answer has become, and the answer
//!   comes in a request of its own. The call waits meanwhile.
//! - In 2026-07-28 the call ends with its questions. What is settled so far, its [`Journal`](desk::Desk), travels
//!   through the client; with the answers the call begins anew, and each question that has an answer is answered at
//!   once.
//!
//! Here questions are put on a [`Desk`], and answers taken from it. The server looks at the desk whenever the call
//! has to wait, and carries things to and fro.

mod desk;
mod elicit;
mod error;
mod form;
mod question;
mod relayed;
mod sample;
mod secret;
mod step;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;

pub use desk::{Desk, Fault, Interruption, Round};
pub use elicit::{Elicit, ElicitForm, ElicitUrl, Elicited, RequiredVisit, UrlElicitation};
pub use error::AskError;
pub use form::{Form, FormError};
pub use question::ask;
pub use question::{ClientError, Slot};
pub use relayed::RelayedSample;
pub use sample::{Roots, Sample};
pub use step::StepError;
pub use step::{Once, step};

use crate::protocol::message::{Message, Payload, Request};
use crate::protocol::{ClientAbility, ClientCapabilities, Revision};

/// What a call has to do with its client beside answering it.
#[derive(Debug, Default)]
pub struct Asking {
    client: Client,
    /// Made by the first question or step: most calls have none.
    desk: OnceLock<Box<Desk>>,
    /// Whoever polls the call. Questions may come from other tasks of its.
    driver: AtomicWaker,
    phase: AtomicU8,
    /// How long it lives, if it is a task, in milliseconds.
    task_life: AtomicU64,
    /// Who waits for it to become one.
    becoming: AtomicWaker,
}

/// What a call is, as far as it may outlive its request.
const CALL: u8 = 0;
const MAY_BECOME_TASK: u8 = 1;
const WANTS_TO_BE_TASK: u8 = 2;
const TASK: u8 = 3;

/// Who is at the other end.
#[derive(Debug)]
pub enum Client {
    /// Nobody who could be asked, and why.
    Nobody(&'static str),
    /// One that has a session, and is asked while the call runs.
    Session {
        revision: Revision,
        capabilities: ClientCapabilities,
        /// How long it has to answer.
        timeout: Duration,
    },
    /// One that is asked by ending the call. The whole request says what it can do.
    Stateless { request: Bytes },
}

impl Default for Client {
    fn default() -> Self {
        Self::Nobody("nobody made this call")
    }
}

impl Asking {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            ..Self::default()
        }
    }

    /// One that goes on where a journal ends.
    pub fn resumed(client: Client, desk: Desk) -> Self {
        Self {
            client,
            desk: OnceLock::from(Box::new(desk)),
            ..Self::default()
        }
    }

    /// Whether the client has declared that it can do something.
    pub fn client_can(&self, ability: ClientAbility) -> bool {
        match &self.client {
            Client::Nobody(_) => false,
            Client::Session { capabilities, .. } => capabilities.contains(ability.bit()),
            Client::Stateless { request } => declared(request).contains(ability.bit()),
        }
    }

    /// Only what is declared is asked for (MRTR-04, ELI-01).
    pub fn require(&self, ability: ClientAbility) -> Result<(), AskError> {
        match self.client {
            Client::Nobody(why) => Err(AskError::Unreachable(why)),
            _ if self.client_can(ability) => Ok(()),
            _ => Err(AskError::NotDeclared(ability)),
        }
    }

    /// Whether what is settled has to be got from elsewhere before the call begins.
    #[inline]
    pub fn is_kept_elsewhere(&self) -> bool {
        self.desk().is_some_and(Desk::is_kept_elsewhere)
    }

    /// Gets it. Whoever polls the call sees if that fails.
    pub async fn fetch_journal(&self) {
        if let Some(desk) = self.desk() {
            desk.fetch().await;
        }
    }

    /// An id of the call that is the same in all of its rounds; `None` until the first one ends with a question.
    pub fn root(&self) -> Option<[u8; 16]> {
        self.desk().and_then(Desk::root)
    }

    /// What the client speaks.
    pub fn revision(&self) -> Revision {
        match self.client {
            Client::Session { revision, .. } => revision,
            Client::Nobody(_) | Client::Stateless { .. } => Revision::V2026_07_28,
        }
    }

    /// How long the client has to answer while the call waits; `None` if the call does not wait.
    pub fn patience(&self) -> Option<Duration> {
        match self.client {
            _ if self.phase() == TASK => Some(Duration::from_millis(
                self.task_life.load(Ordering::Relaxed),
            )),
            Client::Session { timeout, .. } => Some(timeout),
            Client::Nobody(_) | Client::Stateless { .. } => None,
        }
    }

    /// Whether the call is one that may begin anew.
    pub(crate) fn is_in_rounds(&self) -> bool {
        matches!(self.client, Client::Stateless { .. }) && self.phase() != TASK
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    /// The call may say that it is a task, and waits then until it is one.
    pub fn may_become_task(&self) {
        self.phase.store(MAY_BECOME_TASK, Ordering::Release);
    }

    /// The call is a task from now on, and lives so long.
    pub fn become_task(&self, life: Duration) {
        let ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        self.task_life.store(ms, Ordering::Relaxed);
        self.phase.store(TASK, Ordering::Release);
        self.becoming.wake();
    }

    pub fn wants_to_be_task(&self) -> bool {
        self.phase() == WANTS_TO_BE_TASK
    }

    /// Waits until the call is a task, if it may become one.
    pub(crate) fn poll_begin_task(&self, waker: &Waker) -> Poll<()> {
        self.becoming.register(waker);
        match self.phase() {
            CALL | TASK => Poll::Ready(()),
            MAY_BECOME_TASK => {
                self.phase.store(WANTS_TO_BE_TASK, Ordering::Release);
                self.wake_driver();
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    /// Whether the client has declared the extension for tasks on this request.
    pub fn declares_tasks(&self) -> bool {
        match &self.client {
            Client::Stateless { request } => declared(request).contains(ClientCapabilities::TASKS),
            Client::Nobody(_) | Client::Session { .. } => false,
        }
    }

    /// The whole request, of a call that may begin anew.
    pub fn request(&self) -> Option<&Bytes> {
        match &self.client {
            Client::Stateless { request } => Some(request),
            _ => None,
        }
    }

    /// The desk, if anything was ever put on it.
    #[inline]
    pub fn desk(&self) -> Option<&Desk> {
        self.desk.get().map(|desk| &**desk)
    }

    pub(crate) fn desk_or_new(&self) -> &Desk {
        self.desk.get_or_init(Box::default)
    }

    /// Whether nobody is to hear what the tool says now: it was said before, since answers wait that the tool has not
    /// come to yet; or it is said by a task (TSK-11).
    pub(crate) fn is_muted(&self) -> bool {
        matches!(self.phase(), WANTS_TO_BE_TASK | TASK)
            || self.desk().is_some_and(Desk::is_replaying)
    }

    /// Whoever polls the call is told of everything that is put on the desk from elsewhere.
    pub fn driven_by(&self, waker: &Waker) {
        self.driver.register(waker);
    }

    pub(crate) fn wake_driver(&self) {
        self.driver.wake();
    }

    /// After a poll of the call that left it waiting: whether it ends here, for now or for good.
    pub fn interruption(&self) -> Option<Interruption> {
        let desk = self.desk()?;
        desk.interruption(self.is_in_rounds())
    }
}

/// What the client has declared on this request alone (META-03).
fn declared(request: &[u8]) -> ClientCapabilities {
    let text = read(request).and_then(|request| request.params.meta.client_capabilities);
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The request in a body that was read before.
pub fn read(body: &[u8]) -> Option<Request<'_>> {
    match Payload::read(body) {
        Ok(Payload::Single(Message::Request(request))) => Some(request),
        _ => None,
    }
}
