//! Requests that share a connection, and the routing of messages to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::attribution::{Attribution, Caller, Doubt, Owner, is_one};
use super::wire::{self, Incoming};
use super::{ClientError, RpcError};
use crate::net;

/// Receiver of the messages that a server sends about one request.
pub trait Listener: Send + Sync {
    /// Returns true if progress notifications are wanted. Without them a server can respond with plain JSON, where it
    /// would otherwise have to open a stream. Default: true.
    fn wants_progress(&self) -> bool {
        true
    }

    /// Returns the minimum level of wanted log messages, in the protocol's terms. Servers of 2026-07-28 receive it
    /// with the request. Default: `debug`.
    fn wants_log(&self) -> Option<&'static str> {
        Some("debug")
    }

    /// Returns the caller for whom the request is made. A message that names no request is delivered only if all
    /// requests that can have caused it are of one caller. Default: `None`, this program's own user.
    fn caller(&self) -> Option<Caller> {
        None
    }

    /// Called when the request is sent under this JSON-RPC ID. A retry has another ID.
    fn sent(&self, id: u64) {
        let _ = id;
    }

    /// Called for a progress notification.
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let _ = (progress, total, message);
    }

    /// Called for a log message: its level, its logger's name, and the message.
    fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let _ = (level, logger, data);
    }

    /// Handles a client request: `elicitation/create`, `sampling/createMessage` or `roots/list`.
    ///
    /// # Errors
    ///
    /// The error that is sent to the server. By default, client requests are not supported.
    fn question(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let _ = params;
        Box::pin(async move {
            Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("no client can be asked: {method}"),
            ))
        })
    }
}

/// Receiver of the messages that a server sends outside of requests.
pub trait Events: Send + Sync {
    /// Called when a list has changed: `tools`, `resources` or `prompts`.
    fn list_changed(&self, list: &str) {
        let _ = list;
    }

    /// Called when a subscribed resource has changed.
    fn resource_updated(&self, uri: &str) {
        let _ = uri;
    }

    /// Called when a log message was dropped, or a client request rejected, because it could not be attributed to a
    /// call.
    fn withheld(&self, method: &str, reason: &'static str) {
        let _ = (method, reason);
    }

    /// Called when the connection has ended.
    fn closed(&self) {}
}

const METHOD_NOT_FOUND: i64 = -32601;
const INTERNAL_ERROR: i64 = -32603;
/// Maximum number of open client requests of one connection.
const QUESTIONS_MAX: usize = 64;

pub(super) type Answered = Result<Box<RawValue>, ClientError>;

pub(super) struct Shared {
    next: AtomicU64,
    state: Mutex<State>,
    events: Option<Arc<dyn Events>>,
    questions: tokio::sync::Semaphore,
    /// Notified when the server has acknowledged a subscription.
    acknowledged: Notify,
    /// True if a message was withheld that a new connection would deliver.
    hindered: AtomicBool,
}

#[derive(Default)]
struct State {
    pending: HashMap<u64, Pending>,
    attribution: Attribution,
    /// Reason why no further responses will arrive.
    closed: Option<ClientError>,
}

struct Pending {
    answer: Option<oneshot::Sender<Answered>>,
    listener: Option<Arc<dyn Listener>>,
    /// Open client requests. Dropping a sender rejects its request with an error.
    questions: Vec<oneshot::Sender<()>>,
}

impl Pending {
    fn owner(&self) -> Option<Owner> {
        Some(self.listener.as_ref()?.caller())
    }

    fn has_open_questions(&self) -> bool {
        self.questions.iter().any(|question| !question.is_closed())
    }
}

/// Function that sends a message without waiting for the outcome.
pub(super) type Send1 = Arc<dyn Fn(Bytes) -> BoxFuture<'static, ()> + Send + Sync>;

impl Shared {
    pub(super) fn new(events: Option<Arc<dyn Events>>) -> Self {
        Self {
            next: AtomicU64::new(1),
            state: Mutex::default(),
            events,
            questions: tokio::sync::Semaphore::new(QUESTIONS_MAX),
            acknowledged: Notify::new(),
            hindered: AtomicBool::new(false),
        }
    }

    /// Waits for the acknowledgement of a subscription.
    pub(super) fn acknowledged(&self) -> Notified<'_> {
        self.acknowledged.notified()
    }

    /// Registers a request and returns the receiver of its response.
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
        let waiting = self.end(id).and_then(|mut pending| pending.answer.take());
        if let Some(waiting) = waiting {
            // The receiver may have been dropped.
            let _ = waiting.send(answer);
        }
    }

    /// Records that the server has completed a request, or never began it.
    pub(super) fn over(&self, id: u64) {
        drop(self.end(id));
    }

    fn end(&self, id: u64) -> Option<Pending> {
        let mut state = self.state();
        let pending = state.pending.remove(&id);
        match &pending {
            Some(pending) => {
                if let Some(owner) = pending.owner() {
                    state.attribution.ended(owner, Instant::now());
                }
            }
            None => state.attribution.resolve(id, Instant::now()),
        }
        pending
    }

    /// Records that a request was abandoned, which the server may still be working on. Its open client requests are
    /// rejected with errors; returns true if there were any.
    pub(super) fn abandon(&self, id: u64) -> bool {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(&id) else {
            return false;
        };
        if let Some(owner) = pending.owner() {
            state.attribution.abandon(id, owner);
        }
        pending.has_open_questions()
    }

    /// Returns true if a request was abandoned, and has had no response since.
    pub(super) fn is_abandoned(&self, id: u64) -> bool {
        let state = self.state();
        state.closed.is_none() && state.attribution.is_abandoned(id)
    }

    /// Stops attributing messages that name no request, because they can belong to requests of other connections.
    pub(super) fn unbind(&self) {
        self.state().attribution.unbind();
    }

    /// Returns true if something was withheld that a new connection would deliver.
    pub(super) fn is_hindered(&self) -> bool {
        self.hindered.load(Ordering::Relaxed)
    }

    /// Fails all pending requests.
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

    /// Routes a message from the server. `about` is the request on whose response stream it came, if known. `send`
    /// sends the responses to client requests.
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
                let found = self.recipient(&self.state(), about, Kind::Log);
                match found {
                    Ok((_, listener)) => {
                        listener.log(&log.level, log.logger.as_deref(), &log.data);
                    }
                    Err(doubt) => self.withheld(method, doubt),
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
        let (open, over) = oneshot::channel::<()>();
        let found = {
            let mut state = self.state();
            let found = self.recipient(&state, about, Kind::Question);
            if let Ok((id, _)) = &found
                && let Some(pending) = state.pending.get_mut(id)
            {
                pending.questions.retain(|question| !question.is_closed());
                pending.questions.push(open);
            }
            found
        };
        let shared = Arc::clone(self);
        net::spawn(async move {
            let outcome = match (method.as_str(), found) {
                ("ping", _) => Ok(json!({})),
                (_, Ok((_, listener))) => match shared.questions.try_acquire() {
                    Ok(_permit) => {
                        tokio::select! {
                            biased;
                            // The sender is dropped together with the request that this client request belongs to.
                            _ = over => Err(RpcError::new(INTERNAL_ERROR, "the call that this is about has ended")),
                            outcome = listener.question(method, params) => outcome,
                        }
                    }
                    Err(_) => Err(RpcError::new(
                        INTERNAL_ERROR,
                        "too many concurrent client requests",
                    )),
                },
                (_, Err(doubt)) => {
                    shared.withheld(&method, doubt);
                    Err(RpcError::new(
                        METHOD_NOT_FOUND,
                        format!("no client can be asked ({method}): {}", doubt.reason()),
                    ))
                }
            };
            if !shared.is_closed() {
                send(wire::response(&id, &outcome).into()).await;
            }
        });
    }

    fn listener(&self, id: u64) -> Option<Arc<dyn Listener>> {
        self.state().pending.get(&id)?.listener.clone()
    }

    /// Returns the request that a message belongs to, and its listener. If the message does not name the request,
    /// every request that can have caused it must be of one caller. For a client request, there must also be only one
    /// request in progress.
    fn recipient(
        &self,
        state: &State,
        about: Option<u64>,
        kind: Kind,
    ) -> Result<(u64, Arc<dyn Listener>), Doubt> {
        if let Some(id) = about {
            let pending = state.pending.get(&id).ok_or(Doubt::Ended)?;
            let listener = pending.listener.as_ref().ok_or(Doubt::NoRequest)?;
            return Ok((id, Arc::clone(listener)));
        }
        let mut listening: Vec<(u64, &Arc<dyn Listener>)> = state
            .pending
            .iter()
            .filter_map(|(id, pending)| Some((*id, pending.listener.as_ref()?)))
            .collect();
        listening.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
        let (id, listener) = *listening.first().ok_or(Doubt::NoRequest)?;
        let owner = listener.caller();
        let mut others = listening[1..].iter();
        if !others.all(|(_, other)| is_one(&owner, &other.caller())) {
            return Err(Doubt::SeveralCallers);
        }
        if kind == Kind::Question && 1 < listening.len() {
            return Err(Doubt::SeveralRequests);
        }
        state.attribution.check(&owner, Instant::now())?;
        Ok((id, Arc::clone(listener)))
    }

    fn withheld(&self, method: &str, doubt: Doubt) {
        if doubt.ends_with_connection() {
            self.hindered.store(true, Ordering::Relaxed);
        }
        if let Some(events) = &self.events {
            events.withheld(method, doubt.reason());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kind of a message that names no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Log,
    Question,
}

/// Pending response. Dropping it abandons the request.
pub(super) struct Expected {
    pub(super) id: u64,
    receiver: oneshot::Receiver<Answered>,
    shared: Arc<Shared>,
}

impl Expected {
    pub(super) async fn response(&mut self) -> Answered {
        match (&mut self.receiver).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Gone("the connection was closed".to_owned())),
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.shared.abandon(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::super::attribution::GRACE;
    use super::*;
    use crate::auth::Principal;

    /// Notes what it is told, and answers each question with its own name unless it is to think.
    struct Hears {
        caller: Caller,
        name: String,
        heard: Mutex<Vec<String>>,
        thinks: bool,
    }

    impl Listener for Hears {
        fn caller(&self) -> Option<Caller> {
            Some(self.caller.clone())
        }

        fn log(&self, _: &str, _: Option<&str>, data: &Value) {
            self.note(data.to_string());
        }

        fn question(
            &self,
            method: String,
            _: Option<Box<RawValue>>,
        ) -> BoxFuture<'static, Result<Value, RpcError>> {
            self.note(method);
            let (name, thinks) = (self.name.clone(), self.thinks);
            Box::pin(async move {
                if thinks {
                    std::future::pending::<()>().await;
                }
                Ok(json!({"by": name}))
            })
        }
    }

    impl Hears {
        fn note(&self, what: String) {
            self.heard.lock().expect("not poisoned").push(what);
        }

        fn heard(&self) -> Vec<String> {
            std::mem::take(&mut *self.heard.lock().expect("not poisoned"))
        }
    }

    fn of(name: &str, session: Option<&str>) -> Arc<Hears> {
        let principal = match name {
            "anonymous" => Principal::anonymous(),
            name => Principal::new(name),
        };
        Arc::new(Hears {
            caller: Caller::new(Arc::new(principal), session.map(Arc::from), || None),
            name: name.to_owned(),
            heard: Mutex::default(),
            thinks: false,
        })
    }

    fn stateless(name: &str) -> Arc<Hears> {
        of(name, None)
    }

    #[derive(Default)]
    struct Counts {
        withheld: Mutex<Vec<String>>,
    }

    impl Events for Counts {
        fn withheld(&self, method: &str, _: &'static str) {
            let method = method.to_owned();
            self.withheld.lock().expect("not poisoned").push(method);
        }
    }

    /// A connection, and what is sent to the server over it.
    struct ServerConnection {
        shared: Arc<Shared>,
        counts: Arc<Counts>,
        sender: mpsc::Sender<Value>,
        sent: mpsc::Receiver<Value>,
    }

    impl ServerConnection {
        fn new() -> Self {
            let counts = Arc::<Counts>::default();
            let (sender, sent) = mpsc::channel(16);
            Self {
                shared: Arc::new(Shared::new(Some(Arc::clone(&counts) as Arc<dyn Events>))),
                counts,
                sender,
                sent,
            }
        }

        fn call(&self, listener: &Arc<Hears>) -> Expected {
            let listener = Arc::clone(listener) as Arc<dyn Listener>;
            self.shared.expect(Some(listener)).expect("it is open")
        }

        fn says(&self, message: &Value, about: Option<u64>) {
            for incoming in wire::read(message.to_string().as_bytes()).expect("a message") {
                let sender = self.sender.clone();
                self.shared.take(incoming, about, || {
                    Arc::new(move |bytes| {
                        let _ = sender.try_send(serde_json::from_slice(&bytes).expect("JSON"));
                        Box::pin(async {})
                    })
                });
            }
        }

        fn logs(&self, text: &str) {
            let params = json!({"level": "info", "data": text});
            let message =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
            self.says(&message, None);
        }

        fn answers(&self, id: u64) {
            self.says(&json!({"jsonrpc": "2.0", "id": id, "result": {}}), None);
        }

        fn asks(&self, method: &str) {
            self.says(
                &json!({"jsonrpc": "2.0", "id": "q", "method": method}),
                None,
            );
        }

        /// What the server is told to its question.
        async fn reported(&mut self) -> Value {
            self.sent.recv().await.expect("an answer")
        }

        fn withheld(&self) -> usize {
            let mut withheld = self.counts.withheld.lock().expect("not poisoned");
            std::mem::take(&mut *withheld).len()
        }

        /// Nobody hears a log line or a question of any kind now, and the server need not wait.
        async fn is_heard_by_nobody(&mut self, listeners: &[&Arc<Hears>]) {
            self.logs("secret");
            for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
                self.asks(method);
                let reported = self.reported().await;
                assert_eq!(reported["error"]["code"], METHOD_NOT_FOUND, "{reported}");
            }
            for listener in listeners {
                assert!(listener.heard().is_empty(), "{}", listener.name);
            }
            assert_eq!(self.withheld(), 4);
        }

        /// One listener hears a log line and a question.
        async fn is_heard_by(&mut self, listener: &Arc<Hears>) {
            self.logs("mine");
            self.asks("elicitation/create");
            assert_eq!(self.reported().await["result"]["by"], listener.name);
            assert_eq!(listener.heard(), ["\"mine\"", "elicitation/create"]);
            assert_eq!(self.withheld(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_call_is_the_one_that_a_message_is_about() {
        let mut wire = ServerConnection::new();
        let alice = stateless("alice");
        let call = wire.call(&alice);
        wire.is_heard_by(&alice).await;
        wire.answers(call.id);
        drop(call);
        wire.is_heard_by_nobody(&[&alice]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_abandoned_call_causes_is_told_to_no_other_caller_however_late() {
        let mut wire = ServerConnection::new();
        let (alice, bob, eve) = (stateless("alice"), stateless("bob"), stateless("eve"));
        let abandoned = wire.call(&alice);
        let id = abandoned.id;
        drop(abandoned);
        let _bobs = wire.call(&bob);
        wire.is_heard_by_nobody(&[&alice, &bob]).await;
        tokio::time::advance(Duration::from_secs(86_400)).await;
        wire.is_heard_by_nobody(&[&alice, &bob]).await;
        assert!(wire.shared.is_hindered());
        // Its late response ends the doubt, but for what comes directly after it.
        wire.answers(id);
        wire.is_heard_by_nobody(&[&alice, &bob]).await;
        tokio::time::advance(GRACE).await;
        wire.is_heard_by(&bob).await;
        let _eves = wire.call(&eve);
        wire.is_heard_by_nobody(&[&alice, &bob, &eve]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_an_answer_is_not_told_to_the_next_caller() {
        let mut wire = ServerConnection::new();
        let (alice, bob) = (stateless("alice"), stateless("bob"));
        let alices = wire.call(&alice);
        wire.answers(alices.id);
        let _bobs = wire.call(&bob);
        wire.is_heard_by_nobody(&[&alice, &bob]).await;
        tokio::time::advance(GRACE - Duration::from_millis(1)).await;
        wire.is_heard_by_nobody(&[&alice, &bob]).await;
        tokio::time::advance(Duration::from_millis(1)).await;
        wire.is_heard_by(&bob).await;
        assert!(!wire.shared.is_hindered());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_calls_again_after_a_question_hears_the_next_one() {
        let mut wire = ServerConnection::new();
        for session in [None, Some("s")] {
            let alice = of("alice", session);
            drop(wire.call(&alice));
            let _again = wire.call(&alice);
            if session.is_none() {
                wire.is_heard_by(&alice).await;
            } else {
                // The same principal in another session is another caller.
                wire.is_heard_by_nobody(&[&alice]).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_with_several_calls_gets_log_lines_and_no_questions() {
        let mut wire = ServerConnection::new();
        let alice = of("alice", Some("s"));
        let (first, second) = (wire.call(&alice), wire.call(&alice));
        wire.logs("mine");
        assert_eq!(alice.heard(), ["\"mine\""]);
        wire.asks("elicitation/create");
        assert!(wire.reported().await["error"].is_object());
        assert!(alice.heard().is_empty());
        wire.answers(first.id);
        wire.withheld();
        wire.is_heard_by(&alice).await;
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_calls_without_a_session_may_be_anybodys() {
        let mut wire = ServerConnection::new();
        let (one, other) = (stateless("anonymous"), stateless("anonymous"));
        drop(wire.call(&one));
        let _call = wire.call(&other);
        wire.is_heard_by_nobody(&[&one, &other]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_names_its_request_is_told_to_that_ones_caller_alone() {
        let mut wire = ServerConnection::new();
        let (alice, bob) = (stateless("alice"), stateless("bob"));
        let (alices, _bobs) = (wire.call(&alice), wire.call(&bob));
        let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
        wire.says(&question, Some(alices.id));
        assert_eq!(wire.reported().await["result"]["by"], "alice");
        let id = alices.id;
        drop(alices);
        wire.says(&question, Some(id));
        assert!(wire.reported().await["error"].is_object());
        assert_eq!(alice.heard(), ["roots/list"]);
        assert!(bob.heard().is_empty());
        assert_eq!(wire.withheld(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_of_a_call_that_ends_is_answered_with_an_error() {
        let mut wire = ServerConnection::new();
        let mut alice = stateless("alice");
        Arc::get_mut(&mut alice).expect("its own").thinks = true;
        let call = wire.call(&alice);
        wire.asks("elicitation/create");
        tokio::task::yield_now().await;
        assert_eq!(alice.heard(), ["elicitation/create"]);
        assert!(wire.shared.abandon(call.id), "a question was open");
        let reported = wire.reported().await;
        assert_eq!(reported["error"]["code"], INTERNAL_ERROR, "{reported}");
        assert!(wire.shared.is_abandoned(call.id));
        wire.answers(call.id);
        assert!(!wire.shared.is_abandoned(call.id));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_never_began_and_those_of_nobody_leave_no_doubt() {
        let mut wire = ServerConnection::new();
        let (alice, bob) = (stateless("alice"), stateless("bob"));
        let refused = wire.call(&alice);
        wire.shared.over(refused.id);
        drop(refused);
        drop(wire.shared.expect(None).expect("it is open"));
        tokio::time::advance(GRACE).await;
        let _bobs = wire.call(&bob);
        wire.is_heard_by(&bob).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_not_of_one_connection_is_heard_by_nobody() {
        let mut wire = ServerConnection::new();
        let alice = stateless("alice");
        let _call = wire.call(&alice);
        wire.shared.unbind();
        wire.is_heard_by_nobody(&[&alice]).await;
        assert!(!wire.shared.is_hindered(), "a new connection is no better");
    }
}
