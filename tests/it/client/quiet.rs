//! Servers of HTTP+SSE (2024-11-05) that send nothing for a long time.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

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
        if request.method == "GET" {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let endpoint = "event: endpoint\ndata: /messages\n\n";
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
        let status = match &*request.target {
            "/messages" if message["method"] == "tools/list" => "403 Forbidden",
            "/messages" => "202 Accepted",
            _ => "405 Method Not Allowed",
        };
        let echo = match status {
            "403 Forbidden" => request.headers["authorization"].as_str(),
            _ => "",
        };
        let length = echo.len();
        let response = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{echo}");
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
    connect_with(url, http::HeaderMap::new()).await
}

async fn connect_with(url: &str, headers: http::HeaderMap) -> Client {
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
        ..quick()
    };
    Client::connect(target, options).await.expect("connected")
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

#[tokio::test(flavor = "multi_thread")]
async fn credentials_in_an_error_response_to_a_message_are_redacted() {
    let (url, _pinged) = start(true);
    let mut token = http::HeaderValue::from_static("Bearer canary-of-the-api");
    token.set_sensitive(true);
    let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]);
    let client = connect_with(&url, headers).await;
    let refused = client
        .request("tools/list", Params::new(), None, None)
        .await;
    let refused = refused.expect_err("status 403").to_string();
    assert!(refused.contains("Bearer ***"), "{refused}");
}
