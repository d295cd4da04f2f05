use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use http::HeaderName;
use http::header::CONNECTION;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::net::{Guard, Phase};

/// Test server with a fixed response. Counts its connections and closes each after `answers` responses.
async fn serve(answer: &'static str, answers: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                for _ in 0..answers {
                    // Requests of these tests have no body, and come in one go.
                    match socket.read(&mut buffer).await {
                        Ok(n) if 0 < n => {}
                        _ => return,
                    }
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, connections)
}

fn lane(address: SocketAddr) -> PinnedClient {
    let guard = Guard::public().allow_loopback();
    let client = Client::builder(guard).build().expect("a client");
    let url = format!("http://{address}/mcp?x=1#part");
    PinnedClient::new(client, url.parse().expect("a URL")).expect("permitted")
}

async fn ask(lane: &PinnedClient) -> Result<StreamingResponse, FetchError> {
    let headers = lane.headers(HeaderMap::new());
    lane.send(Method::GET, headers, Bytes::new()).await
}

async fn body(lane: &PinnedClient) -> Bytes {
    let answer = ask(lane).await.expect("an answer");
    answer.read().await.expect("a body").body
}

const PLAIN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const EMPTY: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

#[tokio::test]
async fn requests_go_over_one_connection_one_after_the_other() {
    let (address, connections) = serve(PLAIN, usize::MAX).await;
    let lane = lane(address);
    for _ in 0..3 {
        assert_eq!(body(&lane).await, "ok");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    // Two at once need two.
    let (one, other) = (
        ask(&lane).await.expect("one"),
        ask(&lane).await.expect("another"),
    );
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    drop((one, other));
}

#[tokio::test]
async fn a_connection_is_free_as_soon_as_there_is_nothing_more_to_read() {
    let (address, connections) = serve(EMPTY, usize::MAX).await;
    let lane = lane(address);
    for _ in 0..3 {
        // The body is not read.
        ask(&lane).await.expect("an answer");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stream_whose_end_nobody_waits_for_leaves_its_connection() {
    let (address, connections) = serve(STREAM, usize::MAX).await;
    let lane = lane(address);
    for _ in 0..3 {
        let mut answer = ask(&lane).await.expect("an answer");
        assert_eq!(
            answer.chunk().await.expect("a part").as_deref(),
            Some(&b"ok"[..])
        );
        answer.let_end();
        while lane.0.idle().0.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_is_given_up_takes_its_connection_along() {
    let (address, connections) = serve(STREAM, usize::MAX).await;
    let lane = lane(address);
    drop(ask(&lane).await.expect("an answer"));
    assert_eq!(body(&lane).await, "ok");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_that_was_hung_up_meanwhile_is_made_anew() {
    let (address, connections) = serve(PLAIN, 1).await;
    let lane = lane(address);
    for expected in 1..4 {
        assert_eq!(body(&lane).await, "ok");
        assert_eq!(connections.load(Ordering::SeqCst), expected);
        while lane
            .0
            .idle()
            .0
            .lock()
            .iter()
            .any(|(sender, _)| !sender.is_closed())
        {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_kept_for_a_minute() {
    let (address, connections) = serve(PLAIN, usize::MAX).await;
    let lane = lane(address);
    assert_eq!(body(&lane).await, "ok");
    tokio::time::advance(IDLE_CONNECTION_LIFE).await;
    assert_eq!(body(&lane).await, "ok");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    tokio::time::advance(IDLE_CONNECTION_LIFE * 2).await;
    assert_eq!(body(&lane).await, "ok");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_is_sent_is_what_the_client_would_send() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let lane = lane(address);
    let mut headers = HeaderMap::new();
    headers.insert(
        HeaderName::from_static("x-own"),
        HeaderValue::from_static("1"),
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(HOST, HeaderValue::from_static("elsewhere.example"));
    let headers = lane.headers(headers);
    let sent = tokio::spawn(async move {
        let body = Bytes::from_static(b"{}");
        lane.send(Method::POST, headers, body).await
    });
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut buffer = vec![0; 4096];
    let n = socket.read(&mut buffer).await.expect("a request");
    let text = String::from_utf8_lossy(&buffer[..n]);
    assert!(text.starts_with("POST /mcp?x=1 HTTP/1.1\r\n"), "{text}");
    assert!(text.contains(&format!("host: {address}\r\n")), "{text}");
    assert!(
        text.contains("x-own: 1\r\n") && text.contains("content-length: 2\r\n"),
        "{text}"
    );
    assert!(
        !text.contains("elsewhere") && !text.contains("close"),
        "{text}"
    );
    drop(socket);
    let error = sent.await.expect("no panic").expect_err("nobody answered");
    assert!(matches!(error, FetchError::Broken { .. }), "{error}");
    assert!(error.may_have_happened());
}

#[tokio::test]
async fn what_is_not_permitted_is_not_asked() {
    let client = Client::builder(Guard::public()).build().expect("a client");
    for url in [
        "http://127.0.0.1/",
        "http://169.254.169.254/",
        "ftp://example.com/",
    ] {
        let url = url.parse().expect("a URL");
        assert!(PinnedClient::new(client.clone(), url).is_err());
    }
    // Names are checked at resolution.
    let url = "http://localhost/".parse().expect("a URL");
    let lane = PinnedClient::new(client, url).expect("a name");
    let error = ask(&lane).await.expect_err("not permitted");
    assert!(!error.may_have_happened(), "{error}");
}

#[tokio::test]
async fn a_request_that_is_left_to_the_pool_has_the_time_that_is_left() {
    // The server never responds.
    let (address, _) = serve("", usize::MAX).await;
    let lane = lane(address);
    let headers = lane.headers(HeaderMap::new());
    let total = (
        Instant::now() + Duration::from_millis(50),
        Duration::from_secs(10),
    );
    let sent = lane
        .0
        .by_client(Method::GET, headers, Bytes::new(), Some(total));
    let error = tokio::time::timeout(Duration::from_secs(5), sent)
        .await
        .expect("the time is up earlier")
        .expect_err("nobody answered");
    assert!(
        matches!(error, FetchError::Timeout { phase: Phase::Total, limit, .. } if limit == total.1),
        "{error}"
    );
}
