//! Checks the supported protocol versions, and the tolerance for differences between clients.

use serde_json::{Value, json};

use super::super::report::{Check, Finding, Report};
use super::wire::{Ask, CompleteResponse, DiagnosedServer};

const AREA: &str = "protocol";
/// Protocol versions with `initialize`, newest first.
const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
pub(super) const STATELESS: &str = "2026-07-28";

/// Supported versions.
#[derive(Clone, Debug, Default)]
pub(super) struct Lifecycles {
    /// The newest version with sessions, if any.
    pub(super) handshake: Option<String>,
    pub(super) stateless: bool,
}

/// First message of a client up to 2025-11-25.
pub(super) fn initialize(revision: &str) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": {"name": "longshore-doctor", "version": env!("CARGO_PKG_VERSION")},
        },
    })
}

/// Self-contained request of 2026-07-28.
pub(super) fn stateless(wire: &DiagnosedServer, method: &str, mut params: Value) -> Ask {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": {"name": "longshore-doctor", "version": env!("CARGO_PKG_VERSION")},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    Ask::message(wire, &message)
        .header("mcp-protocol-version", STATELESS)
        .header("mcp-method", method)
}

pub(super) async fn examine(wire: &DiagnosedServer, report: &mut Report) -> Lifecycles {
    let lifecycles = lifecycles(wire, report).await;
    if lifecycles.handshake.is_none() && !lifecycles.stateless {
        return lifecycles;
    }
    accept(wire, &lifecycles, report).await;
    slash(wire, &lifecycles, report).await;
    content_type(wire, &lifecycles, report).await;
    lifecycles
}

/// A request that the server supports.
pub(super) fn usual(wire: &DiagnosedServer, lifecycles: &Lifecycles) -> Ask {
    match &lifecycles.handshake {
        Some(revision) => Ask::message(wire, &initialize(revision)),
        None => stateless(wire, "server/discover", json!({})),
    }
}

async fn lifecycles(wire: &DiagnosedServer, report: &mut Report) -> Lifecycles {
    let mut lifecycles = Lifecycles::default();
    let asked = Ask::message(wire, &initialize(HANDSHAKE[0]));
    match wire.ask(&asked).await {
        Ok(seen) => {
            let answer = seen.json();
            let revision = answer["result"]["protocolVersion"].as_str();
            let server = &answer["result"]["serverInfo"];
            match revision {
                Some(revision) if HANDSHAKE.contains(&revision) => {
                    let name = server["name"].as_str().unwrap_or("it");
                    let version = server["version"].as_str().unwrap_or_default();
                    let seen = format!("{name} {version} speaks {revision}");
                    report.add(if revision == HANDSHAKE[0] {
                        Check(AREA, "sessions").ok(seen)
                    } else {
                        Check(AREA, "sessions")
                            .warning(format!("{seen}, and not {}", HANDSHAKE[0]))
                            .advise("upgrade the server or its SDK")
                    });
                    lifecycles.handshake = Some(revision.to_owned());
                }
                _ if seen.is_result() => {
                    let named = match revision {
                        Some(revision) => format!("{revision:?}"),
                        None => "none".to_owned(),
                    };
                    let problem = format!(
                        "the response to `initialize` has the protocolVersion {named}; it must be {} or an earlier one",
                        HANDSHAKE[0]
                    );
                    report.add(Check(AREA, "sessions").failure(problem).advise(
                        "upgrade the server or its SDK: clients disconnect because of this",
                    ));
                }
                _ => report.add(refused(wire, &seen)),
            }
        }
        Err(problem) => report.add(
            Check(AREA, "sessions")
                .failure(problem)
                .advise("the server must respond to `initialize`, with an error if it has no sessions: see its log"),
        ),
    }
    match wire.ask(&stateless(wire, "server/discover", json!({}))).await {
        Ok(seen) if seen.is_result() => {
            let versions = &seen.json()["result"]["supportedVersions"];
            let named = versions.as_array();
            lifecycles.stateless = named.is_some_and(|all| all.iter().any(|one| one == STATELESS));
            report.add(if lifecycles.stateless {
                Check(AREA, "stateless").ok(format!("it speaks {STATELESS}"))
            } else {
                Check(AREA, "stateless").warning(format!("`server/discover` works, but {STATELESS} is not in its supportedVersions ({versions})"))
                .advise("upgrade the server; the response to an unknown method must be the error -32601")
            });
        }
        Ok(seen) if seen.is_limited() => report.add(Check(AREA, "stateless").limited()),
        Ok(seen) => report.add(
            Check(AREA, "stateless").warning(format!("{STATELESS} is not supported ({}): its clients fall back to `initialize`", seen.summary()))
            .advise(advice(wire, &seen).unwrap_or("upgrade the server; a proxy must pass Mcp-Method, Mcp-Name and MCP-Protocol-Version")),
        ),
        Err(problem) => report.add(
            Check(AREA, "stateless").failure(problem)
                .advise("the server must respond to an unknown method with an error; otherwise clients of the newest version wait until their timeout"),
        ),
    }
    if lifecycles.handshake.is_some() {
        negotiation(wire, report).await;
    }
    lifecycles
}

const HOST_ADVICE: &str = "the server does not accept this host name: add it to http.allowed_hosts, or have the proxy pass on the Host header of the client";

fn refused(wire: &DiagnosedServer, seen: &CompleteResponse) -> Finding {
    let problem = format!("the response to `initialize` is {}", seen.summary());
    Check(AREA, "sessions")
        .failure(problem)
        .advise(advice(wire, seen).unwrap_or(
            "clients of versions up to 2025-11-25 cannot connect: see the log of the server",
        ))
}

/// Returns the advice for a status that does not depend on the protocol version.
fn advice(wire: &DiagnosedServer, seen: &CompleteResponse) -> Option<&'static str> {
    let setting = &seen.json()["error"]["data"]["setting"];
    Some(match seen.status {
        403 if setting == "http.allowed_hosts" => HOST_ADVICE,
        401 | 403 if wire.token.is_none() => {
            "put a token into the variable LONGSHORE_TOKEN, and run it again; Cloud Run: $(gcloud auth print-identity-token), or allUsers as roles/run.invoker; a web application firewall may reject clients that are not browsers"
        }
        401 | 403 => {
            "the token in LONGSHORE_TOKEN is rejected: its audience must be this server, and it needs the scopes of auth.oauth.scopes"
        }
        421 => HOST_ADVICE,
        406 | 415 => "a proxy changes Accept or Content-Type",
        413 => "nginx: client_max_body_size 4m",
        429 => "raise limits.initialize_per_minute or limits.principal, or run it later",
        _ => return None,
    })
}

/// An unknown version must be answered with a supported one (LH-05).
async fn negotiation(wire: &DiagnosedServer, report: &mut Report) {
    let asked = Ask::message(wire, &initialize("1999-12-31"));
    let Ok(seen) = wire.ask(&asked).await else {
        return;
    };
    let answer = seen.json();
    report.add(match answer["result"]["protocolVersion"].as_str() {
        None if seen.is_limited() => Check(AREA, "negotiation").limited(),
        Some(revision) => Check(AREA, "negotiation").ok(format!("for an unknown version the server offers {revision}")),
        None => Check(AREA, "negotiation").warning(format!("the response to an unknown version is {}, not a supported version", seen.summary()))
        .advise("the response to `initialize` must name a version that the server supports: upgrade the server or its SDK"),
    });
}

async fn accept(wire: &DiagnosedServer, lifecycles: &Lifecycles, report: &mut Report) {
    let mut refused = Vec::new();
    for accept in [
        Some("*/*"),
        Some("application/json"),
        Some("text/event-stream"),
        None,
    ] {
        let asked = match accept {
            Some(accept) => usual(wire, lifecycles).header("accept", accept),
            None => usual(wire, lifecycles).without("accept"),
        };
        let said = match wire.ask(&asked).await {
            Ok(seen) if seen.is_result() => continue,
            Ok(seen) if seen.is_limited() => {
                report.add(Check(AREA, "Accept").limited());
                return;
            }
            Ok(seen) => seen.summary(),
            Err(problem) => problem,
        };
        refused.push(format!("{}: {said}", accept.unwrap_or("none")));
    }
    report.add(if refused.is_empty() {
        Check(AREA, "Accept").ok("any value is accepted")
    } else {
        Check(AREA, "Accept").warning(format!("clients whose Accept does not list both types are rejected: {}", refused.join("; ")))
        .advise("http.strict_accept = false; or have the proxy set it: nginx: proxy_set_header Accept \"application/json, text/event-stream\"")
    });
}

async fn slash(wire: &DiagnosedServer, lifecycles: &Lifecycles, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "trailing slash");
    let path = wire.url.path();
    let other = match path.strip_suffix('/') {
        Some("") => return,
        Some(path) => path.to_owned(),
        None => format!("{path}/"),
    };
    let query = wire
        .url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let asked = usual(wire, lifecycles).at(format!("{other}{query}"));
    report.add(match wire.ask(&asked).await {
        Ok(seen) if seen.is_result() => CHECK.ok(format!("{other} is the same")),
        Ok(seen) if seen.is_limited() => CHECK.limited(),
        Ok(seen) if seen.redirect().is_some() => CHECK
            .warning(format!(
                "{other} is redirected ({}): many clients lose a POST that is redirected",
                seen.status
            ))
            .advise(format!(
                "serve {other} too: nginx: location ~ ^/mcp/?$ instead of location /mcp/"
            )),
        Ok(seen) => CHECK
            .warning(format!("the response at {other} is {}", seen.summary()))
            .advise(format!(
                "give clients the exact URL, or route {other} too: ingress: pathType Prefix"
            )),
        Err(problem) => CHECK
            .warning(format!("{other}: {problem}"))
            .advise("route it to the server"),
    });
}

/// Forms on foreign sites can send any text, but a JSON content type triggers a preflight request.
async fn content_type(wire: &DiagnosedServer, lifecycles: &Lifecycles, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "content type");
    let asked = usual(wire, lifecycles).header("content-type", "text/plain");
    let Ok(seen) = wire.ask(&asked).await else {
        return;
    };
    report.add(if seen.is_limited() {
        CHECK.limited()
    } else if seen.is_result() {
        CHECK.warning("JSON is accepted as text/plain, which any web page can send without a preflight request")
        .advise("respond with 415 to everything but application/json")
    } else {
        CHECK.ok(format!("the response to another content type is {}", seen.status))
    });
}
