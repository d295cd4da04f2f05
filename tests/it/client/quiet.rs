//! Servers of HTTP+SSE (2024-11-05) that send nothing for a long time, reject messages, or redirect requests.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

use futures_util::future::BoxFuture;
use longshore::client::Credentials;
use longshore::net::OutgoingRequest;

use super::*;
use crate::support::{becomes, incoming};

/// Starts a server of HTTP+SSE. Returns its URL, and a receiver of its `ping` requests. `answers_pings` decides whether
/// it responds to them.
fn start(answers_pings: bool) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/sse", listener.local_addr().expect("an address"));
    let (pings, pinged) = mpsc::channel();
    let events = Arc::new(Mutex::new(None));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (pings, events) = (pings.clone(), Arc::clone(&events));
            std::thread::spawn(move || serve(stream, &events, &pings, answers_pings));
        }
    });
    (url, pinged)
}

fn serve(
    mut stream: TcpStream,
    events: &Mutex<Option<TcpStream>>,
    pings: &Sender<()>,
    answers_pings: bool,
) {
    let mut rest = Vec::new();
    while let Some(request) = incoming::read(&mut stream, &mut rest) {
        let mut open = events.lock().expect("not poisoned");
        let moved_to = match (&*request.method, &*request.target) {
            ("GET", "/old") => Some("/moved"),
            ("GET", "/away") => Some("http://127.0.0.9:9/sse"),
            ("POST", "/old-messages") => Some("/messages"),
            _ => None,
        };
        if let Some(to) = moved_to {
            let moved =
                format!("HTTP/1.1 307 Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            if stream.write_all(moved.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        if request.method == "GET" {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let endpoint = match &*request.target {
                "/moved" => "event: endpoint\ndata: old-messages\n\n",
                _ => "event: endpoint\ndata: /messages\n\n",
            };
            if stream
                .write_all(format!("{head}{endpoint}").as_bytes())
                .is_err()
            {
                return;
            }
            *open = stream.try_clone().ok();
            continue;
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let authorization = request.headers.get("authorization");
        let authorization = authorization.map_or("", String::as_str);
        let (status, challenge, echo) = match (
            &*request.target,
            message["method"].as_str().unwrap_or_default(),
        ) {
            ("/messages", "tools/list") => ("403 Forbidden", String::new(), authorization),
            ("/messages", "prompts/list") => (
                "403 Forbidden",
                r#"Bearer error="insufficient_scope", scope="files:write""#.to_owned(),
                "",
            ),
            ("/messages", "resources/list") => (
                "401 Unauthorized",
                format!(r#"Bearer realm="{authorization}""#),
                "",
            ),
            ("/messages", _) => ("202 Accepted", String::new(), ""),
            _ => ("405 Method Not Allowed", String::new(), ""),
        };
        let length = echo.len();
        let response = format!(
            "HTTP/1.1 {status}\r\nwww-authenticate: {challenge}\r\ncontent-length: {length}\r\n\r\n{echo}"
        );
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" if status.starts_with("202") => Some(json!({
                "protocolVersion": "2024-11-05", "capabilities": {},
                "serverInfo": {"name": "quiet", "version": "0"},
            })),
            "ping" => {
                let _ = pings.send(());
                answers_pings.then(|| json!({}))
            }
            _ => None,
        };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
        if let (Some(result), Some(events)) = (result, &mut *open) {
            let response = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            let _ = events.write_all(format!("data: {response}\n\n").as_bytes());
        }
    }
}

async fn connect(url: &str) -> Client {
    connect_with(url, http::HeaderMap::new(), None)
        .await
        .expect("connected")
}

async fn connect_with(
    url: &str,
    headers: http::HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
) -> Result<Client, ClientError> {
    let deadlines = Deadlines {
        total: None,
        idle: Duration::from_secs(2),
        ..Deadlines::default()
    };
    let target = Target::Url {
        url: url.parse().expect("a URL"),
        headers,
        client: HttpClient::builder(Guard::public().allow_loopback())
            .deadlines(deadlines)
            .build()
            .expect("a client"),
    };
    let options = Options {
        lifecycle: Lifecycle::Legacy,
        credentials,
        ..quick()
    };
    Client::connect(target, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_messages_stays_open_as_long_as_the_server_answers_pings() {
    let (url, pinged) = start(true);
    let client = connect(&url).await;
    for _ in 0..2 {
        pinged.recv().expect("a ping");
    }
    assert!(!client.is_closed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_given_up_if_a_ping_is_not_answered() {
    let (url, pinged) = start(false);
    let client = connect(&url).await;
    pinged.recv().expect("a ping");
    becomes(|| client.is_closed());
}

/// A sensitive header.
fn authorization() -> http::HeaderMap {
    let mut token = http::HeaderValue::from_static("Bearer canary-of-the-api");
    token.set_sensitive(true);
    http::HeaderMap::from_iter([(http::header::AUTHORIZATION, token)])
}

/// Credentials that record what they lack.
#[derive(Debug, Default)]
struct Lacking(Mutex<Vec<String>>);

impl Credentials for Lacking {
    fn apply<'r>(&'r self, _: &'r mut OutgoingRequest) -> BoxFuture<'r, Result<(), ClientError>> {
        Box::pin(async { Ok(()) })
    }

    fn lacks<'r>(&'r self, scope: &'r str) -> BoxFuture<'r, ()> {
        self.0.lock().expect("not poisoned").push(scope.to_owned());
        Box::pin(async {})
    }

    fn refused<'r>(
        &'r self,
        _: &'r OutgoingRequest,
        _: &'r http::HeaderMap,
    ) -> BoxFuture<'r, bool> {
        Box::pin(async { false })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_challenge_of_a_rejected_message_says_what_is_missing() {
    let (url, _pinged) = start(true);
    let lacking = Arc::new(Lacking::default());
    let credentials = Arc::clone(&lacking) as Arc<dyn Credentials>;
    let client = connect_with(&url, authorization(), Some(credentials)).await;
    let client = client.expect("connected");
    let scope = client.request("prompts/list", Params::new(), None, None);
    let refused = scope.await.expect_err("status 403");
    assert!(
        matches!(&refused, ClientError::InsufficientScope { scope } if scope == "files:write"),
        "{refused:?}"
    );
    assert_eq!(*lacking.0.lock().expect("not poisoned"), ["files:write"]);
    let login = client.request("resources/list", Params::new(), None, None);
    let refused = login.await.expect_err("status 401");
    assert!(
        matches!(&refused, ClientError::Unauthorized { challenge } if challenge == r#"Bearer realm="Bearer ***""#),
        "{refused:?}"
    );
    assert!(!client.is_closed());
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_in_an_error_response_to_a_message_are_redacted() {
    let (url, _pinged) = start(true);
    let client = connect_with(&url, authorization(), None).await;
    let client = client.expect("connected");
    let refused = client
        .request("tools/list", Params::new(), None, None)
        .await;
    let refused = refused.expect_err("status 403").to_string();
    assert!(refused.contains("Bearer ***"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_of_the_stream_and_of_messages_are_followed_within_the_origin() {
    let (url, _pinged) = start(true);
    let at = |path| url.replace("/sse", path);
    let client = connect(&at("/old")).await;
    assert_eq!(client.server().implementation.name, "quiet");
    let away = connect_with(&at("/away"), authorization(), None).await;
    assert_eq!(
        away.expect_err("another origin").to_string(),
        "it redirects to http://127.0.0.9:9/sse; if that is the server, use that URL"
    );
}
