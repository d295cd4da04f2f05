//! Checks the supported protocol versions, and the tolerance for differences between clients.

use serde_json::{Value, json};

use super::super::report::{Finding, Report};
use super::limited;
use super::wire::{Ask, Seen, Wire};

const AREA: &str = "protocol";
/// Protocol versions with `initialize`, newest first.
const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
pub(super) const STATELESS: &str = "2026-07-28";

/// Supported versions.
#[derive(Clone, Debug, Default)]
pub(super) struct Eras {
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
pub(super) fn stateless(wire: &Wire, method: &str, mut params: Value) -> Ask {
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

pub(super) async fn examine(wire: &Wire, report: &mut Report) -> Eras {
    let eras = eras(wire, report).await;
    if eras.handshake.is_none() && !eras.stateless {
        return eras;
    }
    accept(wire, &eras, report).await;
    slash(wire, &eras, report).await;
    content_type(wire, &eras, report).await;
    eras
}

/// A request that the server supports.
pub(super) fn usual(wire: &Wire, eras: &Eras) -> Ask {
    match &eras.handshake {
        Some(revision) => Ask::message(wire, &initialize(revision)),
        None => stateless(wire, "server/discover", json!({})),
    }
}

async fn eras(wire: &Wire, report: &mut Report) -> Eras {
    let mut eras = Eras::default();
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
                        Finding::ok(AREA, "sessions", seen)
                    } else {
                        Finding::warning(
                            AREA,
                            "sessions",
                            format!("{seen}, and not {}", HANDSHAKE[0]),
                        )
                        .advise("a newer version of the server or its SDK")
                    });
                    eras.handshake = Some(revision.to_owned());
                }
                _ if seen.is_result() => {
                    let named = match revision {
                        Some(revision) => format!("{revision:?}"),
                        None => "none".to_owned(),
                    };
                    let problem = format!(
                        "`initialize` names {named} as protocolVersion, which has to be {} or one before",
                        HANDSHAKE[0]
                    );
                    report.add(
                        Finding::failure(AREA, "sessions", problem)
                            .advise("a newer version of the server or its SDK: clients end the connection at this"),
                    );
                }
                _ => report.add(refused(wire, &seen)),
            }
        }
        Err(problem) => report.add(Finding::failure(AREA, "sessions", problem)),
    }
    match wire.ask(&stateless(wire, "server/discover", json!({}))).await {
        Ok(seen) if seen.is_result() => {
            let versions = &seen.json()["result"]["supportedVersions"];
            let named = versions.as_array();
            eras.stateless = named.is_some_and(|all| all.iter().any(|one| one == STATELESS));
            report.add(if eras.stateless {
                Finding::ok(AREA, "stateless", format!("it speaks {STATELESS}"))
            } else {
                Finding::warning(
                    AREA,
                    "stateless",
                    format!("`server/discover` is answered, and {STATELESS} is not in its supportedVersions ({versions})"),
                )
                .advise("a newer version of the server; one that does not know a method has to answer -32601")
            });
        }
        Ok(seen) if seen.is_limited() => report.add(limited(AREA, "stateless")),
        Ok(seen) => report.add(
            Finding::warning(
                AREA,
                "stateless",
                format!("{STATELESS} is not spoken ({}): its clients fall back to `initialize`", seen.summary()),
            )
            .advise("a newer version of the server; a proxy must pass on Mcp-Method, Mcp-Name and MCP-Protocol-Version"),
        ),
        Err(problem) => report.add(
            Finding::failure(AREA, "stateless", problem)
                .advise("an unknown method has to be answered, or clients of the newest revision wait in vain"),
        ),
    }
    if eras.handshake.is_some() {
        negotiation(wire, report).await;
    }
    eras
}

fn refused(wire: &Wire, seen: &Seen) -> Finding {
    let problem = format!("`initialize` is answered {}", seen.summary());
    Finding::failure(AREA, "sessions", problem).advise(
        match seen.status {
            401 | 403 if wire.token.is_none() => "put a token into the variable LONGSHORE_TOKEN, and ask again; Cloud Run: $(gcloud auth print-identity-token), or allUsers as roles/run.invoker; a firewall for the web may refuse what is no browser",
            401 | 403 => "the token in LONGSHORE_TOKEN is not accepted: its audience has to be this server, and its scopes those of auth.oauth.scopes",
            421 => "the server does not know the name under which it was asked: http.allowed_hosts",
            406 | 415 => "something in front changes Accept or Content-Type",
            413 => "nginx: client_max_body_size 4m",
            429 => "limits.initialize, limits.principal; or ask again later",
            _ => "clients up to 2025-11-25 cannot connect: the log of the server says why",
        },
    )
}

/// An unknown version must be answered with a supported one (LH-05).
async fn negotiation(wire: &Wire, report: &mut Report) {
    let asked = Ask::message(wire, &initialize("1999-12-31"));
    let Ok(seen) = wire.ask(&asked).await else {
        return;
    };
    let answer = seen.json();
    report.add(match answer["result"]["protocolVersion"].as_str() {
        None if seen.is_limited() => limited(AREA, "negotiation"),
        Some(revision) => Finding::ok(AREA, "negotiation", format!("whoever asks for another is offered {revision}")),
        None => Finding::warning(
            AREA,
            "negotiation",
            format!("a revision that is not known is answered {} and not with one that is", seen.summary()),
        )
        .advise("`initialize` has to answer with a revision that the server speaks: a newer version of the server or its SDK"),
    });
}

async fn accept(wire: &Wire, eras: &Eras, report: &mut Report) {
    let mut refused = Vec::new();
    for accept in [
        Some("*/*"),
        Some("application/json"),
        Some("text/event-stream"),
        None,
    ] {
        let asked = match accept {
            Some(accept) => usual(wire, eras).header("accept", accept),
            None => usual(wire, eras).without("accept"),
        };
        let said = match wire.ask(&asked).await {
            Ok(seen) if seen.is_result() => continue,
            Ok(seen) if seen.is_limited() => {
                report.add(limited(AREA, "Accept"));
                return;
            }
            Ok(seen) => seen.summary(),
            Err(problem) => problem,
        };
        refused.push(format!("{}: {said}", accept.unwrap_or("none")));
    }
    report.add(if refused.is_empty() {
        Finding::ok(AREA, "Accept", "answered whatever it says")
    } else {
        Finding::warning(
            AREA,
            "Accept",
            format!("clients that do not name both forms are refused: {}", refused.join("; ")),
        )
        .advise("http.strict_accept = false; or have the proxy set it: nginx: proxy_set_header Accept \"application/json, text/event-stream\"")
    });
}

async fn slash(wire: &Wire, eras: &Eras, report: &mut Report) {
    const CHECK: &str = "trailing slash";
    let path = wire.url.path();
    let other = match path.strip_suffix('/') {
        Some("") => return,
        Some(path) => path.to_owned(),
        None => format!("{path}/"),
    };
    let asked = usual(wire, eras).at(other.clone());
    report.add(match wire.ask(&asked).await {
        Ok(seen) if seen.is_result() => Finding::ok(AREA, CHECK, format!("{other} is the same")),
        Ok(seen) if seen.is_limited() => limited(AREA, CHECK),
        Ok(seen) if seen.redirect().is_some() => Finding::warning(
            AREA,
            CHECK,
            format!(
                "{other} is redirected ({}): a POST that is redirected is lost in many clients",
                seen.status
            ),
        )
        .advise(format!(
            "answer at {other} too: nginx: location ~ ^/mcp/?$ instead of location /mcp/"
        )),
        Ok(seen) => Finding::warning(
            AREA,
            CHECK,
            format!("{other} is answered {}", seen.summary()),
        )
        .advise(format!(
            "tell clients the URL to the letter, or route {other} too: ingress: pathType Prefix"
        )),
        Err(problem) => Finding::warning(AREA, CHECK, format!("{other}: {problem}"))
            .advise("route it to the server too"),
    });
}

/// Forms on foreign sites can send any text, but a JSON content type triggers a preflight request.
async fn content_type(wire: &Wire, eras: &Eras, report: &mut Report) {
    const CHECK: &str = "content type";
    let asked = usual(wire, eras).header("content-type", "text/plain");
    let Ok(seen) = wire.ask(&asked).await else {
        return;
    };
    report.add(if seen.is_limited() {
        limited(AREA, CHECK)
    } else if seen.is_result() {
        Finding::warning(
            AREA,
            CHECK,
            "JSON is taken as text/plain, which any web page can send without asking",
        )
        .advise("refuse all but application/json with 415")
    } else {
        Finding::ok(
            AREA,
            CHECK,
            format!("what is no JSON is answered {}", seen.status),
        )
    });
}
