//! Runs against a small MCP server in this process, right and wrong.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

/// Faulty behavior of the server for one request, selected by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mischief {
    None,
    /// Every third answer is an error.
    Errors,
    /// Every answer has another id.
    OtherIds,
    /// The tenth answer takes 80 ms, in which nothing else moves.
    Stall,
    /// With every seventh answer the connection is closed, as HTTP has it.
    Closes,
}

async fn fake(http2: bool, mischief: Mischief) -> Target {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    let target = Target::mcp(listener.local_addr().expect("an address"));
    let count = Arc::new(AtomicU32::new(0));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let service = service_fn(move |request| respond(request, mischief, Arc::clone(&count)));
            let socket = TokioIo::new(socket);
            if http2 {
                tokio::spawn(async {
                    drop(
                        http2::Builder::new(TokioExecutor::new())
                            .serve_connection(socket, service)
                            .await,
                    );
                });
            } else {
                tokio::spawn(async {
                    drop(
                        http1::Builder::new()
                            .header_read_timeout(None)
                            .serve_connection(socket, service)
                            .await,
                    );
                });
            }
        }
    });
    target
}

async fn respond(
    request: Request<Incoming>,
    mischief: Mischief,
    count: Arc<AtomicU32>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    #[expect(
        clippy::disallowed_methods,
        reason = "the generator under test is trusted"
    )]
    let body = body.collect().await.expect("a body").to_bytes();
    let message: Value = serde_json::from_slice(&body).expect("JSON");
    let method = message["method"].as_str().expect("a method");
    let in_session = head
        .headers
        .get("mcp-session-id")
        .is_some_and(|id| id == "sealed");
    let is_stateless = head
        .headers
        .get("mcp-protocol-version")
        .is_some_and(|version| version == "2026-07-28");

    let mut response = Response::builder();
    let result = match method {
        "notifications/initialized" => {
            let status = if in_session { 202 } else { 400 };
            return Ok(response
                .status(status)
                .body(Full::default())
                .expect("a response"));
        }
        "initialize" => {
            response = response.header("Mcp-Session-Id", "sealed");
            json!({"protocolVersion": "2025-06-18"})
        }
        "server/discover" => json!({"supportedVersions": ["2026-07-28"]}),
        _ if !in_session && !is_stateless => {
            return Ok(response
                .status(400)
                .body(Full::from("no session"))
                .expect("a response"));
        }
        "ping" => json!({}),
        "tools/list" => json!({"tools": vec![json!({"name": "a"}); 50]}),
        _ => {
            json!({"content": [{"type": "text", "text": message["params"]["arguments"]["message"]}]})
        }
    };
    let mut reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    if !matches!(method, "initialize") {
        let number = count.fetch_add(1, Relaxed);
        match mischief {
            Mischief::Errors if number % 3 == 2 => {
                reply = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "no"}});
            }
            Mischief::OtherIds => reply["id"] = json!(1),
            Mischief::Closes if number % 7 == 6 => {
                response = response.header("connection", "close");
            }
            Mischief::Stall if number == 10 => std::thread::sleep(Duration::from_millis(80)),
            _ => {}
        }
    }
    Ok(response
        .body(Full::from(reply.to_string()))
        .expect("a response"))
}

fn plan(target: Target, workload: Workload) -> Plan {
    Plan {
        slots: 4,
        ..Plan::new(target, workload, Until::Sent(40))
    }
}

#[tokio::test]
async fn every_workload_is_answered_over_both_versions_of_http() {
    for http2 in [false, true] {
        let target = fake(http2, Mischief::None).await;
        for workload in [
            Workload::Call,
            Workload::CallStateless,
            Workload::List50,
            Workload::Ping,
            Workload::Discover,
            Workload::Initialize,
            Workload::Echo64k,
        ] {
            let measured = run(
                &Plan {
                    http2,
                    ..plan(target.clone(), workload)
                },
                None,
            )
            .await
            .expect("a run");
            assert_eq!(
                (measured.answers(), measured.failures),
                (40, 0),
                "{workload:?} {measured:?}"
            );
        }
    }
}

#[tokio::test]
async fn wrong_answers_are_failures_and_never_answers() {
    let target = fake(false, Mischief::Errors).await;
    let measured = run(&plan(target, Workload::Ping), None)
        .await
        .expect("a run");
    assert_eq!((measured.answers(), measured.failures), (27, 13));
    assert!(
        matches!(measured.first_failure, Some(SlotError::Wrong(_))),
        "{measured:?}"
    );

    let target = fake(false, Mischief::OtherIds).await;
    let measured = run(&plan(target, Workload::Ping), None)
        .await
        .expect("a run");
    assert_eq!((measured.answers(), measured.failures), (0, 40));
}

#[tokio::test]
async fn a_server_that_hangs_up_is_a_failure_of_every_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    let target = Target::mcp(listener.local_addr().expect("an address"));
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });

    let measured = run(&plan(target, Workload::Discover), None)
        .await
        .expect("a run");
    assert_eq!((measured.answers(), measured.failures), (0, 4));
    assert!(
        matches!(measured.first_failure, Some(SlotError::Wire(_))),
        "{measured:?}"
    );
}

#[tokio::test]
async fn a_connection_that_the_server_ends_with_an_answer_is_replaced() {
    let target = fake(false, Mischief::Closes).await;
    let measured = run(&plan(target, Workload::Ping), None)
        .await
        .expect("a run");
    assert_eq!((measured.answers(), measured.failures), (40, 0));
}

#[tokio::test]
async fn a_window_counts_only_what_was_answered_within_it() {
    let target = fake(false, Mischief::None).await;
    let until = Until::Elapsed(Duration::from_millis(100));
    let measured = run(
        &Plan {
            until,
            ..plan(target, Workload::Ping)
        },
        Some(std::process::id()),
    )
    .await
    .expect("a run");
    assert!(measured.answers() > 0);
    assert!(
        measured
            .server_time
            .is_some_and(|time| time.used > Duration::ZERO)
    );
    assert!(
        (100..2000).contains(&measured.elapsed.as_millis()),
        "{measured:?}"
    );
}

#[tokio::test]
async fn at_a_rate_a_stall_is_charged_to_every_request_that_was_due_in_it() {
    let target = fake(false, Mischief::Stall).await;
    let plan = Plan {
        pace: Pace::PerSecond(1000.0),
        until: Until::Sent(100),
        ..plan(target, Workload::Discover)
    };
    let measured = run(&plan, None).await.expect("a run");
    assert_eq!((measured.answers(), measured.failures), (100, 0));
    // About eighty requests were due within the stall, and four connections had noticed it.
    assert!(
        measured.latency.quantile(0.5) > Duration::from_millis(20),
        "{measured:?}"
    );
}

#[tokio::test]
async fn a_probe_tells_the_length_and_the_session() {
    let target = fake(false, Mischief::None).await;
    let seen = probe(&plan(target, Workload::Ping))
        .await
        .expect("an answer");
    assert_eq!(
        seen.length,
        r#"{"jsonrpc":"2.0","id":1001,"result":{}}"#.len()
    );
    assert_eq!(
        seen.session.and_then(|session| session.id).as_deref(),
        Some("sealed")
    );
}
