//! Checks that streams are delivered without buffering, and how long they stay open.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::super::proxy_kind::ProxyKind;
use super::super::report::{Check, Finding, Report};
use super::protocol::{Lifecycles, stateless};
use super::wire::{Ask, DiagnosedServer, More, Open};
use crate::net::{EventDecoder, SseItem};
use crate::protocol::counted;

const AREA: &str = "streams";
/// Maximum delay of an event that is sent immediately.
const AT_ONCE: Duration = Duration::from_secs(3);
const EVENT_MAX: usize = 1024 * 1024;

pub(super) async fn examine(
    wire: &DiagnosedServer,
    front: ProxyKind,
    session: Option<&str>,
    lifecycles: &Lifecycles,
    hold: Duration,
    report: &mut Report,
) {
    let mut held = None;
    if lifecycles.stateless {
        held = listen(wire, front, report).await;
    }
    if held.is_none()
        && let (Some(session), Some(revision)) = (session, &lifecycles.handshake)
    {
        held = of_session(wire, front, session, revision, report).await;
    }
    match held {
        Some(stream) => report.add(watch(stream, front, hold).await),
        None => report.add(Check(AREA, "cut-off").skipped("no stream could be opened")),
    }
}

/// A stream of 2026-07-28: its first event is an acknowledgement, sent at once. If that does not arrive, somebody holds
/// it back.
async fn listen(wire: &DiagnosedServer, front: ProxyKind, report: &mut Report) -> Option<Open> {
    const CHECK: Check<'_> = Check(AREA, "subscriptions/listen");
    let asked = stateless(wire, "subscriptions/listen", json!({"notifications": {}}));
    let begun = Instant::now();
    let mut stream = open(wire, &asked, CHECK, front, report).await?;
    if !stream.is_stream() {
        let status = stream.status;
        report.add(if status == 429 {
            CHECK.limited()
        } else if status == 200 {
            CHECK
                .failure("the content type of the response is not text/event-stream")
                .advise("a proxy changes Content-Type, or the server does not stream")
        } else {
            CHECK.skipped(format!("status {status}: the server has no such streams"))
        });
        return None;
    }
    headers(&stream, report);
    let first = first_message(&mut stream, AT_ONCE).await;
    let took = begun.elapsed();
    compression(wire, front, report).await;
    match first {
        Ok(message) if message["method"] == "notifications/subscriptions/acknowledged" => {
            report.add(CHECK.ok(format!(
                "the first event arrives after {} ms",
                took.as_millis()
            )));
            Some(stream)
        }
        Ok(message) => {
            report.add(
                CHECK
                    .warning(format!("the first event is {}", message["method"]))
                    .advise(
                        "it must be notifications/subscriptions/acknowledged: upgrade the server",
                    ),
            );
            Some(stream)
        }
        Err(problem) => {
            report.add(buffered(CHECK, &problem, front));
            None
        }
    }
}

/// Most clients take gzip, and a proxy that compresses waits for a block to be full.
async fn compression(wire: &DiagnosedServer, front: ProxyKind, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "compression");
    let asked = stateless(wire, "subscriptions/listen", json!({"notifications": {}}))
        .header("accept-encoding", "gzip, deflate, br");
    let Ok(mut stream) = wire.open(&asked).await else {
        report.add(buffered(
            CHECK,
            "with Accept-Encoding: gzip the response head does not arrive",
            front,
        ));
        return;
    };
    let coding = stream.header("content-encoding").map(str::to_owned);
    let Some(coding) = coding.filter(|coding| coding != "identity") else {
        report.add(CHECK.ok("none, also with Accept-Encoding: gzip"));
        return;
    };
    // A compressed acknowledgement is longer than this; the header of a compressed block is not.
    const ARRIVED: usize = 40;
    let until = Instant::now() + AT_ONCE;
    let mut arrived = 0;
    while let More::Bytes(bytes) = stream
        .more(until.saturating_duration_since(Instant::now()))
        .await
    {
        arrived += bytes.len();
        if ARRIVED < arrived {
            report.add(
                CHECK.warning(format!("{coding}, if the client accepts it; events still arrive immediately"))
                    .advise("do not compress text/event-stream: it saves nothing, and some proxies buffer until a block is full"),
            );
            return;
        }
    }
    report.add(buffered(
        CHECK,
        &format!(
            "with Accept-Encoding: {coding} the first event does not arrive within {AT_ONCE:?}"
        ),
        front,
    ));
}

/// Opens the stream of a session. Many servers send nothing at first, so silence proves nothing.
async fn of_session(
    wire: &DiagnosedServer,
    front: ProxyKind,
    session: &str,
    revision: &str,
    report: &mut Report,
) -> Option<Open> {
    const CHECK: Check<'_> = Check(AREA, "GET");
    let asked = Ask::new(Method::GET, wire.target())
        .header("accept", "text/event-stream")
        .header("mcp-session-id", session)
        .header("mcp-protocol-version", revision);
    let stream = open(wire, &asked, CHECK, front, report).await?;
    match stream.status {
        200 if stream.is_stream() => {
            headers(&stream, report);
            report.add(CHECK.ok("a session has a stream of its own"));
            Some(stream)
        }
        405 => {
            report.add(CHECK.skipped("405: the server has no such stream"));
            None
        }
        429 => {
            report.add(CHECK.limited());
            None
        }
        status => {
            report.add(
                CHECK.warning(format!("the response is {status}")).advise(
                    "respond with text/event-stream, or with 405 if there is no such stream",
                ),
            );
            None
        }
    }
}

/// Opens a stream, or reports that its head does not arrive.
async fn open(
    wire: &DiagnosedServer,
    asked: &Ask,
    check: Check<'_>,
    front: ProxyKind,
    report: &mut Report,
) -> Option<Open> {
    let opened = wire.open(asked).await.map_err(|problem| {
        let problem = format!("the response head does not arrive: {problem}");
        report.add(buffered(check, &problem, front));
    });
    opened.ok()
}

fn buffered(check: Check<'_>, what: &str, front: ProxyKind) -> Finding {
    let front_name = front.name();
    check
        .failure(format!(
            "{what}; a proxy buffers streams (in front: {front_name})"
        ))
        .advise_all(front.against_buffering())
}

/// Checks headers that cause proxies to buffer.
fn headers(stream: &Open, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "headers");
    let mut problems = Vec::new();
    if let Some(coding) = stream
        .header("content-encoding")
        .filter(|c| *c != "identity")
    {
        problems.push(format!(
            "compressed ({coding}): a proxy may buffer events until a block is full"
        ));
    }
    if stream.header("content-length").is_some() {
        problems.push("it has a Content-Length, so a proxy has buffered it".to_owned());
    }
    let cached = stream.header("cache-control").unwrap_or_default();
    if !cached.contains("no-cache") && !cached.contains("no-store") {
        problems.push("no Cache-Control: no-cache, so a cache may store it".to_owned());
    }
    report.add(if problems.is_empty() {
        CHECK.ok("not compressed and not cached")
    } else {
        CHECK.warning(problems.join("; "))
            .advise("no compression and no caching of text/event-stream: nginx: gzip off; proxy_cache off; server: Cache-Control: no-cache, no-transform")
    });
}

async fn first_message(stream: &mut Open, within: Duration) -> Result<Value, String> {
    let until = Instant::now() + within;
    let mut decoder = EventDecoder::new(EVENT_MAX);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match stream.more(left).await {
            More::Bytes(bytes) => {
                let said = decoder.push(&bytes).map_err(|error| error.to_string())?;
                for said in said {
                    if let SseItem::Event(event) = said
                        && let Ok(message) = serde_json::from_str(&event.data)
                    {
                        return Ok(message);
                    }
                }
            }
            More::End => return Err("the stream ends without an event".to_owned()),
            More::Broken(problem) => return Err(format!("the stream breaks: {problem}")),
            More::Silence => {
                return Err(format!(
                    "the first event, which is sent immediately, does not arrive within {within:?}"
                ));
            }
        }
    }
}

/// Holds a stream, and sees how long it is let live.
async fn watch(mut stream: Open, front: ProxyKind, hold: Duration) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "cut-off");
    let begun = Instant::now();
    let mut last = begun;
    let mut signs = 0;
    loop {
        let left = hold.saturating_sub(begun.elapsed());
        let ended = match stream.more(left).await {
            More::Bytes(_) => {
                last = Instant::now();
                signs += 1;
                continue;
            }
            More::Silence => {
                let heartbeats = counted(signs, "heartbeat");
                let seen = format!("open after {} s, {heartbeats}", hold.as_secs());
                return if signs == 0 && Duration::from_secs(30) <= hold {
                    CHECK.warning(format!("{seen}: balancers close silent streams, usually after 60 s"))
                    .advise("send a comment every 15 to 25 s, as Longshore does, or raise the timeouts:")
                    .advise_all(front.against_cut_offs())
                } else {
                    CHECK.ok(format!("{seen}; --hold 120 waits longer"))
                };
            }
            More::End => "ended".to_owned(),
            More::Broken(problem) => format!("broken off ({problem})"),
        };
        return CHECK
            .warning(format!(
                "{ended} after {} s, the last {} s without a heartbeat",
                begun.elapsed().as_secs(),
                last.elapsed().as_secs()
            ))
            .advise_all(front.against_cut_offs());
    }
}
