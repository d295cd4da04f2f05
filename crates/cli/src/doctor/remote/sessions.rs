//! Checks that a session works on every replica.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::super::report::{Check, Finding, Report};
use super::protocol::initialize;
use super::wire::{Ask, DiagnosedServer};

const AREA: &str = "sessions";

/// Starts a session and uses it over several connections. Returns its ID, if there is one.
pub(super) async fn examine(
    wire: &DiagnosedServer,
    connections: u32,
    revision: Option<&str>,
    report: &mut Report,
) -> Option<String> {
    let revision = revision?;
    let begun = wire
        .ask(&Ask::message(wire, &initialize(revision)))
        .await
        .ok()?;
    let Some(id) = begun.header("mcp-session-id").map(str::to_owned) else {
        report.add(Check(AREA, "id").ok("none: the server has no sessions"));
        return None;
    };
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let asked = of_session(wire, &initialized, &id, revision);
    if let Ok(seen) = wire.ask(&asked).await
        && seen.status != 202
        && !seen.is_limited()
    {
        report.add(
            Check(AREA, "notification")
                .warning(format!("the response is {} instead of 202", seen.summary()))
                .advise(
                    "clients treat everything but 202 as a failure: upgrade the server or its SDK",
                ),
        );
    }
    let mut statuses: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..connections {
        let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
        let asked = of_session(wire, &ping, &id, revision);
        let status = match wire.ask(&asked).await {
            Ok(seen) => seen.status.to_string(),
            Err(problem) => problem,
        };
        *statuses.entry(status).or_default() += 1;
    }
    report.add(judge(&statuses, connections));
    unknown(wire, revision, report).await;
    Some(id)
}

fn judge(statuses: &BTreeMap<String, u32>, connections: u32) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "replicas");
    let fine = statuses.get("200").copied().unwrap_or_default();
    if fine == connections {
        return CHECK.ok(format!(
            "a session holds on {connections} connections, without affinity"
        ));
    }
    if statuses.contains_key("429") && fine + statuses["429"] == connections {
        return CHECK.limited();
    }
    let others: Vec<_> = statuses
        .iter()
        .filter(|(status, _)| *status != "200")
        .map(|(status, count)| format!("{count} times {status}"))
        .collect();
    CHECK.failure(format!(
            "{fine} of {connections} connections know the session; {}: replicas do not share it",
            others.join(", ")
        ))
    .advise("Longshore: the same seal.keys on every replica (chart: seal.existingSecret), and no affinity")
    .advise("servers with sessions in memory: one replica; or affinity by the header Mcp-Session-Id: nginx: hash $http_mcp_session_id consistent; Istio: consistentHash.httpHeaderName: mcp-session-id. Affinity by cookie does not help: clients store no cookies")
}

/// Clients start a new session only on 404 (LH-11).
async fn unknown(wire: &DiagnosedServer, revision: &str, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "unknown session");
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let asked = of_session(
        wire,
        &ping,
        "00000000-0000-0000-0000-000000000000",
        revision,
    );
    let Ok(seen) = wire.ask(&asked).await else {
        return;
    };
    report.add(if seen.is_limited() {
        CHECK.limited()
    } else if seen.status == 404 {
        CHECK.ok("404: clients begin a new one")
    } else {
        CHECK.warning(format!(
                "the response is {}: clients begin a new session only after 404, for example after a restart",
                seen.summary()
            ))
        .advise("respond with 404 to an unknown session ID")
    });
}

/// Ends the session.
pub(super) async fn end(wire: &DiagnosedServer, id: Option<&str>, report: &mut Report) {
    let Some(id) = id else { return };
    let asked = Ask::new(Method::DELETE, wire.target())
        .header("mcp-session-id", id)
        .header("accept", "application/json, text/event-stream");
    report.add(match wire.ask(&asked).await {
        Ok(seen) if seen.is_success() => {
            Check(AREA, "end").ok(format!("the response to DELETE is {}", seen.status))
        }
        Ok(seen) if seen.status == 405 => {
            Check(AREA, "end").ok("clients may not end sessions (405)")
        }
        Ok(seen) => Check(AREA, "end")
            .warning(format!("the response to DELETE is {}", seen.summary()))
            .advise("let DELETE pass: nginx: no limit_except; WAF: allow DELETE at the endpoint"),
        Err(problem) => Check(AREA, "end")
            .warning(problem)
            .advise("let DELETE pass to the server"),
    });
}

pub(super) fn of_session(wire: &DiagnosedServer, message: &Value, id: &str, revision: &str) -> Ask {
    Ask::message(wire, message)
        .header("mcp-session-id", id)
        .header("mcp-protocol-version", revision)
}

#[cfg(test)]
mod tests {
    use super::super::super::report::Status;
    use super::*;

    #[test]
    fn a_session_has_to_hold_everywhere() {
        let of = |pairs: &[(&str, u32)]| {
            let pairs = pairs
                .iter()
                .map(|(status, count)| ((*status).to_owned(), *count));
            judge(&pairs.collect(), 8)
        };
        assert_eq!(of(&[("200", 8)]).status, Status::Ok);
        let found = of(&[("200", 3), ("404", 5)]);
        assert_eq!(found.status, Status::Failure);
        assert!(
            found
                .seen
                .contains("3 of 8 connections know the session; 5 times 404"),
            "{found:?}"
        );
        assert!(found.advice[0].contains("seal.keys"));
        assert_eq!(of(&[("200", 3), ("429", 5)]).status, Status::Skipped);
        assert_eq!(of(&[("404", 3), ("429", 5)]).status, Status::Failure);
    }
}
