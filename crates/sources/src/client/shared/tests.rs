use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::super::attribution::{Caller, GRACE};
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
        self.heard.lock().push(what);
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock())
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
        self.withheld.lock().push(method);
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
        let mut withheld = self.counts.withheld.lock();
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

#[test]
fn ids_of_connections_to_one_server_begin_at_numbers_of_their_own() {
    let first = || {
        let shared = Arc::new(Shared::new(None).with_random_ids());
        shared.expect(None).expect("it is open").id
    };
    let (one, other) = (first(), first());
    assert_ne!(one, other);
    assert!((1..=1 << 30).contains(&one), "{one}");
    assert_eq!(
        Arc::new(Shared::new(None))
            .expect(None)
            .expect("it is open")
            .id,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_user_does_not_count_against_the_timeout() {
    let shared = Arc::new(Shared::new(None));
    let expected = shared.expect(Some(of("alice", None))).expect("open");
    let seconds = Duration::from_secs;
    let begin = Instant::now();
    let asked = |change: fn(&mut AskedTime, Instant)| {
        let mut state = shared.state.lock();
        let pending = state.pending.get_mut(&expected.id).expect("pending");
        change(&mut pending.asked, Instant::now());
    };
    let user = async {
        tokio::time::sleep(seconds(5)).await;
        asked(AskedTime::begin);
        assert!(shared.is_asking(Some(expected.id)) && shared.is_asking(None));
        tokio::time::sleep(seconds(200)).await;
        asked(AskedTime::end);
        assert!(!shared.is_asking(Some(expected.id)));
    };
    tokio::join!(user, shared.time_is_up(expected.id, seconds(8)));
    assert_eq!(begin.elapsed().as_secs(), 208);
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
async fn a_question_that_the_server_cancels_ends_without_an_answer() {
    let mut wire = ServerConnection::new();
    let mut alice = stateless("alice");
    Arc::get_mut(&mut alice).expect("its own").thinks = true;
    let call = wire.call(&alice);
    wire.asks("elicitation/create");
    tokio::task::yield_now().await;
    assert!(wire.shared.is_asking(Some(call.id)));
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"},
    });
    wire.says(&cancelled, None);
    tokio::task::yield_now().await;
    assert!(!wire.shared.is_asking(Some(call.id)));
    assert!(wire.sent.try_recv().is_err(), "no response");
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

#[tokio::test]
async fn a_server_that_reads_no_responses_gets_only_so_many() {
    let connection = ServerConnection::new();
    let begun = Arc::new(AtomicUsize::new(0));
    for id in 0..2 * REPLIES_MAX {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
        for incoming in wire::read(message.as_bytes()).expect("a message") {
            let begun = Arc::clone(&begun);
            connection.shared.take(incoming, None, || {
                Arc::new(move |_| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    Box::pin(std::future::pending::<()>())
                })
            });
        }
    }
    assert_eq!(connection.shared.replies.available_permits(), 0);
    while begun.load(Ordering::Relaxed) < REPLIES_MAX {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_may_hang_if_requests_time_out_one_after_the_other_without_a_message() {
    let connection = ServerConnection::new();
    let limit = Duration::from_secs(10);
    let may_hang = || connection.shared.may_hang(limit);
    assert!(!may_hang());
    tokio::time::advance(limit / 2).await;
    assert!(!may_hang(), "it began before the first one had timed out");
    tokio::time::advance(limit / 2).await;
    assert!(may_hang());
    assert!(!may_hang(), "two more are needed");
    tokio::time::advance(limit).await;
    connection.answers(1);
    assert!(!may_hang(), "a message has arrived");
}

#[tokio::test(start_paused = true)]
async fn only_a_connection_without_any_response_is_closed() {
    for responds in [true, false] {
        let shared = ServerConnection::new().shared;
        let expected = shared.expect(None).expect("it is open");
        let (id, server) = (expected.id, Arc::clone(&shared));
        let send: Send1 = Arc::new(move |_| {
            if responds {
                server.settle(id, Ok(RawValue::NULL.to_owned()));
            }
            Box::pin(std::future::ready(()))
        });
        let is_closed = shared.close_if_it_hangs(send, Bytes::new(), expected).await;
        assert_eq!(is_closed, !responds);
        assert_eq!(shared.is_closed(), !responds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_subscription_is_not_waited_for() {
    let connection = ServerConnection::new();
    let began = Instant::now();
    let accepted = connection.shared.acknowledgements().of(7);
    let error = json!({"code": -32603, "message": "too many subscriptions"});
    connection.says(&json!({"jsonrpc": "2.0", "id": 7, "error": error}), None);
    assert_eq!(accepted.await, Some(std::collections::BTreeSet::new()));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_is_read_although_others_follow() {
    let connection = ServerConnection::new();
    let began = Instant::now();
    let accepted = connection.shared.acknowledgements().of(7);
    for (id, uri) in [(7, "x://seven"), (8, "x://eight")] {
        let params = json!({"notifications": {"resourceSubscriptions": [uri]}});
        let method = "notifications/subscriptions/acknowledged";
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        connection.says(&message, Some(id));
    }
    assert_eq!(accepted.await, Some(["x://seven".into()].into()));
    assert_eq!(began.elapsed(), Duration::ZERO);
}
