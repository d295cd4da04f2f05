//! What the requests of one connection share: who waits for which answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::wire::{self, Incoming};
use super::{ClientError, RpcError};
use crate::net;

/// Who hears what a server says while it works on one request.
pub trait Listener: Send + Sync {
    /// Whether anybody wants to know how far it has come. A server that is not asked to tell may answer at once, where it
    /// would have to open a stream. Default: yes.
    fn wants_progress(&self) -> bool {
        true
    }

    /// The least level of log messages that somebody wants, as the protocol names it; servers of 2026-07-28 are told.
    /// Default: `debug`.
    fn wants_log(&self) -> Option<&'static str> {
        Some("debug")
    }

    /// The request is sent now, under this id of JSON-RPC; under another one, where it is sent again.
    fn sent(&self, id: u64) {
        let _ = id;
    }

    /// How far it has come.
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let _ = (progress, total, message);
    }

    /// A log message: its level, its logger's name, and the message.
    fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let _ = (level, logger, data);
    }

    /// A question to whoever asked: `elicitation/create`, `sampling/createMessage` or `roots/list`.
    ///
    /// # Errors
    ///
    /// What the server is told instead of an answer. By default that nobody can be asked.
    fn question(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let _ = params;
        Box::pin(async move {
            Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("nobody can be asked: {method}"),
            ))
        })
    }
}

/// Who hears what a server says outside of requests.
pub trait Events: Send + Sync {
    /// A list has changed: `tools`, `resources` or `prompts`.
    fn list_changed(&self, list: &str) {
        let _ = list;
    }

    /// A resource that was subscribed to has changed.
    fn resource_updated(&self, uri: &str) {
        let _ = uri;
    }

    /// The connection has ended.
    fn closed(&self) {}
}

const METHOD_NOT_FOUND: i64 = -32601;
/// Questions that one connection may have open.
const QUESTIONS_MAX: usize = 64;

pub(super) type Answered = Result<Box<RawValue>, ClientError>;

pub(super) struct Shared {
    next: AtomicU64,
    state: Mutex<State>,
    events: Option<Arc<dyn Events>>,
    questions: tokio::sync::Semaphore,
    /// The server has said that it listens.
    acknowledged: Notify,
}

#[derive(Default)]
struct State {
    pending: HashMap<u64, Pending>,
    /// Why there will be no more answers.
    closed: Option<ClientError>,
}

struct Pending {
    answer: Option<oneshot::Sender<Answered>>,
    listener: Option<Arc<dyn Listener>>,
    /// Questions that came up, which nobody needs an answer to once the request is over.
    questions: Vec<AbortHandle>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        for question in &self.questions {
            question.abort();
        }
    }
}

/// Sends a message without waiting for what comes of it.
pub(super) type Send1 = Arc<dyn Fn(Bytes) -> BoxFuture<'static, ()> + Send + Sync>;

impl Shared {
    pub(super) fn new(events: Option<Arc<dyn Events>>) -> Self {
        Self {
            next: AtomicU64::new(1),
            state: Mutex::default(),
            events,
            questions: tokio::sync::Semaphore::new(QUESTIONS_MAX),
            acknowledged: Notify::new(),
        }
    }

    /// The server says that it listens to a request to.
    pub(super) fn acknowledged(&self) -> Notified<'_> {
        self.acknowledged.notified()
    }

    /// A place for one answer.
    pub(super) fn expect(
        self: &Arc<Self>,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Expected, ClientError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(closed) = &state.closed {
            return Err(closed.clone());
        }
        let pending = Pending {
            answer: Some(answer),
            listener,
            questions: Vec::new(),
        };
        state.pending.insert(id, pending);
        Ok(Expected {
            id,
            receiver,
            shared: Arc::clone(self),
        })
    }

    pub(super) fn waits_for(&self, id: u64) -> bool {
        self.state().pending.contains_key(&id)
    }

    pub(super) fn settle(&self, id: u64, answer: Answered) {
        let pending = self.state().pending.remove(&id);
        if let Some(waiting) = pending.and_then(|mut pending| pending.answer.take()) {
            // Whoever waited may have stopped to.
            let _ = waiting.send(answer);
        }
    }

    /// Nothing comes any more.
    pub(super) fn close(&self, why: &ClientError) {
        let pending = {
            let mut state = self.state();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(why.clone());
            std::mem::take(&mut state.pending)
        };
        for mut pending in pending.into_values() {
            if let Some(waiting) = pending.answer.take() {
                let _ = waiting.send(Err(why.clone()));
            }
        }
        if let Some(events) = &self.events {
            events.closed();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed.is_some()
    }

    /// Takes what the server sent. `about` is the request on whose answer it came, where that is known.
    /// Questions are answered with what `send` makes.
    pub(super) fn take(
        self: &Arc<Self>,
        incoming: Incoming,
        about: Option<u64>,
        send: impl FnOnce() -> Send1,
    ) {
        match incoming {
            Incoming::Answer { id, outcome } => {
                if let Some(id) = id.or(about) {
                    self.settle(id, outcome.map_err(ClientError::Rpc));
                }
            }
            Incoming::Notice { method, params } => self.notice(&method, params.as_deref(), about),
            Incoming::Question { id, method, params } => {
                self.question(id, method, params, about, send());
            }
        }
    }

    fn notice(&self, method: &str, params: Option<&RawValue>, about: Option<u64>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Progress {
            progress_token: Value,
            progress: f64,
            total: Option<f64>,
            message: Option<String>,
        }
        #[derive(Deserialize)]
        struct Log {
            #[serde(default)]
            level: String,
            logger: Option<String>,
            #[serde(default)]
            data: Value,
        }
        #[derive(Deserialize)]
        struct Updated {
            uri: String,
        }
        let params = params.map_or("{}", RawValue::get);
        match method {
            "notifications/progress" => {
                let Ok(progress) = serde_json::from_str::<Progress>(params) else {
                    return;
                };
                let token = progress.progress_token;
                let id = token.as_u64().or_else(|| token.as_str()?.parse().ok());
                if let Some(listener) = id.and_then(|id| self.listener(id)) {
                    listener.progress(
                        progress.progress,
                        progress.total,
                        progress.message.as_deref(),
                    );
                }
            }
            "notifications/message" => {
                let Ok(log) = serde_json::from_str::<Log>(params) else {
                    return;
                };
                if let Some((_, listener)) = self.listener_of(about) {
                    listener.log(&log.level, log.logger.as_deref(), &log.data);
                }
            }
            "notifications/resources/updated" => {
                if let (Some(events), Ok(updated)) =
                    (&self.events, serde_json::from_str::<Updated>(params))
                {
                    events.resource_updated(&updated.uri);
                }
            }
            "notifications/subscriptions/acknowledged" => self.acknowledged.notify_waiters(),
            _ => {
                let list = method
                    .strip_prefix("notifications/")
                    .and_then(|rest| rest.strip_suffix("/list_changed"));
                if let (Some(events), Some(list)) = (&self.events, list) {
                    events.list_changed(list);
                }
            }
        }
    }

    fn question(
        self: &Arc<Self>,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
        about: Option<u64>,
        send: Send1,
    ) {
        let found = self.listener_of(about);
        let asked = found.as_ref().map(|(id, _)| *id);
        let shared = Arc::clone(self);
        let asking = net::spawn(async move {
            let outcome = match (method.as_str(), found) {
                ("ping", _) => Ok(json!({})),
                (_, Some((_, listener))) => match shared.questions.try_acquire() {
                    Ok(_permit) => listener.question(method, params).await,
                    Err(_) => Err(RpcError::new(-32603, "too many questions at once")),
                },
                (_, None) => Err(RpcError::new(
                    METHOD_NOT_FOUND,
                    format!("nobody can be asked: {method}"),
                )),
            };
            send(wire::answer(&id, &outcome).into()).await;
        });
        if let Some(id) = asked
            && let Some(pending) = self.state().pending.get_mut(&id)
        {
            pending.questions.push(asking.abort_handle());
        }
    }

    fn listener(&self, id: u64) -> Option<Arc<dyn Listener>> {
        self.state().pending.get(&id)?.listener.clone()
    }

    /// Who listens to what is said about a request. Where it is not known which one is meant, as over stdio, there
    /// must be but one: what is meant for one caller is not told to another.
    fn listener_of(&self, about: Option<u64>) -> Option<(u64, Arc<dyn Listener>)> {
        if let Some(id) = about {
            return Some((id, self.listener(id)?));
        }
        let state = self.state();
        let mut listeners = state
            .pending
            .iter()
            .filter_map(|(id, pending)| Some((*id, pending.listener.as_ref()?)));
        match (listeners.next(), listeners.next()) {
            (Some((id, only)), None) => Some((id, Arc::clone(only))),
            _ => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is waited for. Dropping it forgets the request.
pub(super) struct Expected {
    pub(super) id: u64,
    receiver: oneshot::Receiver<Answered>,
    shared: Arc<Shared>,
}

impl Expected {
    pub(super) async fn answer(&mut self) -> Answered {
        match (&mut self.receiver).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Gone("the connection was closed".to_owned())),
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.shared.state().pending.remove(&self.id);
    }
}
