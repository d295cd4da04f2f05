//! Tests that need control of the clock and of the calls.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::*;
use crate::catalog::{Catalog, Definition, IntoTool as _, ToolError, tool_fn};
use crate::server::tests::{at, of};
use crate::server::{ServerConfig, ServerParts};

/// A client of HTTP+SSE, whose server has a tool that waits for `go`.
struct Client {
    server: Arc<Server>,
    worker: WorkerState,
    principal: Arc<Principal>,
    stream: Option<Box<dyn EventSource>>,
    id: String,
    go: Arc<Notify>,
}

/// Maximum age of streams, in seconds.
const MAX_AGE: u64 = 10;

impl Client {
    /// Opens a session, and initializes it.
    async fn open() -> Self {
        Self::open_as(Principal::anonymous()).await
    }

    async fn open_as(principal: Principal) -> Self {
        let go = Arc::new(Notify::new());
        let tool_go = Arc::clone(&go);
        let wait = move |_, _: Map<String, Value>| {
            let go = Arc::clone(&tool_go);
            async move {
                go.notified().await;
                Ok::<_, ToolError>(String::new())
            }
        };
        let tool = tool_fn(Definition::new("wait"), wait).into_tool();
        let mut config = ServerConfig::default();
        config.streams.max_age_seconds = MAX_AGE;
        let server = Arc::new(Server::new(ServerParts {
            config,
            ..of(Catalog::new([tool]).expect("a good tool"))
        }));
        let principal = Arc::new(principal);
        let stream = server.open_sse_session(&principal, None, "/messages", None);
        let mut client = Self {
            worker: at(1_700_000_000),
            stream: Some(stream.unwrap_or_else(|reply| panic!("{reply:?}"))),
            id: String::new(),
            server,
            principal,
            go,
        };
        let Poll::Ready(Some(path)) = client.poll() else {
            panic!("the first event names the path");
        };
        client.id = path.rsplit('=').next().expect("an id").to_owned();
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        client
            .post(&request(0, "initialize", &params))
            .await
            .expect("accepted");
        assert_eq!(client.message()["id"], 0);
        client
    }

    /// Posts a message, and lets its handling begin.
    async fn post(&self, message: &Value) -> Result<(), RejectReason> {
        let body = Bytes::from(message.to_string());
        let mut cx = Context::from_waker(Waker::noop());
        let by = (&self.worker, RequestOrigin::default());
        let server = &self.server;
        match server.post_sse_message(&mut cx, by, &self.principal, &self.id, &body) {
            Ok(task) => drop(tokio::spawn(task)),
            Err(reply) => match reply.reply().await {
                Reply::Response(response) => return Err(response.refusal.expect("a reason")),
                other => panic!("{other:?}"),
            },
        }
        settle().await;
        Ok(())
    }

    async fn call(&self, id: u64) -> Result<(), RejectReason> {
        let call = request(id, "tools/call", &json!({"name": "wait"}));
        self.post(&call).await
    }

    async fn cancel(&self, id: u64) -> Result<(), RejectReason> {
        let params = json!({"requestId": id});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        self.post(&cancel).await
    }

    /// Data of the next event; `None` at the end of the stream.
    fn poll(&mut self) -> Poll<Option<String>> {
        let mut cx = Context::from_waker(Waker::noop());
        let stream = self.stream.as_mut().expect("a stream");
        stream.poll_next(&mut cx).map(|event| {
            let EventData::Message(message) = event?.data else {
                panic!("a message");
            };
            Some(String::from_utf8(message.to_vec()).expect("UTF-8"))
        })
    }

    fn message(&mut self) -> Value {
        let Poll::Ready(Some(message)) = self.poll() else {
            panic!("no message");
        };
        serde_json::from_str(&message).expect("JSON")
    }
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Lets the tasks run that can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// SSE24-02: responses are sent on the stream, which the client cannot resume.
#[tokio::test(start_paused = true)]
async fn sse24_02_a_stream_ends_after_the_responses_to_requests_in_progress() {
    for stops in [true, false] {
        let expires = unix_seconds() + MAX_AGE;
        let mut client = Client::open_as(Principal::anonymous().with_expiry(expires)).await;
        client.call(1).await.expect("accepted");
        client.call(2).await.expect("accepted");
        match stops {
            true => client.server.end_streams(),
            false => tokio::time::advance(Duration::from_secs(MAX_AGE)).await,
        }
        assert_eq!(client.poll(), Poll::Pending);
        assert_eq!(client.call(3).await, Err(RejectReason::SessionUnknown));
        client.cancel(2).await.expect("notifications are accepted");
        assert_eq!(client.poll(), Poll::Pending);
        client.go.notify_one();
        settle().await;
        let response = client.message();
        assert_eq!(
            (&response["id"], &response["result"]["isError"]),
            (&json!(1), &json!(false))
        );
        assert_eq!(client.poll(), Poll::Ready(None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_no_maximum_age() {
    let mut client = Client::open().await;
    tokio::time::advance(Duration::from_secs(MAX_AGE + 2)).await;
    assert_eq!(client.poll(), Poll::Pending);
    client.call(1).await.expect("accepted");
    client.go.notify_one();
    settle().await;
    assert_eq!(client.message()["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_last_request_wakes_a_stream_without_a_message() {
    let mut client = Client::open().await;
    client.call(1).await.expect("accepted");
    client.server.end_streams();
    let mut stream = client.stream.take().expect("a stream");
    let ended = tokio::spawn(async move {
        let next = std::future::poll_fn(|cx| stream.poll_next(cx));
        let next = tokio::time::timeout(Duration::from_secs(1), next).await;
        matches!(next, Ok(None))
    });
    settle().await;
    assert!(!ended.is_finished());
    client.cancel(1).await.expect("accepted");
    assert!(ended.await.expect("no panic"));
}

#[tokio::test(start_paused = true)]
async fn requests_in_progress_are_limited_and_other_messages_are_not() {
    let client = Client::open().await;
    for id in 1..=64 {
        client.call(id).await.expect("accepted");
    }
    assert_eq!(client.call(65).await, Err(RejectReason::TooManyStreams));
    let response = json!({"jsonrpc": "2.0", "id": "unknown", "result": {}});
    client
        .post(&response)
        .await
        .expect("responses are accepted");
    client.cancel(64).await.expect("notifications are accepted");
    client
        .call(65)
        .await
        .expect("accepted after the cancellation");
}

#[test]
fn a_batch_takes_a_permit_if_it_has_a_request() {
    let bounds = MessageBounds::default();
    let expects = |body: &str| expects_response(&Payload::of_text(body, bounds), bounds);
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert!(!expects(notification) && expects(ping));
    assert!(!expects(
        r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#
    ));
    assert!(expects(
        r#"[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":1,"method":"ping"}]"#
    ));
    assert!(!expects("{"));
}
