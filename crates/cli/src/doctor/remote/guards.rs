//! Checks the protection against foreign hosts and origins.

use http::Method;
use serde_json::json;

use super::super::report::{Check, Report};
use super::protocol::{Lifecycles, stateless, usual};
use super::wire::{Ask, CompleteResponse, DiagnosedServer};

const AREA: &str = "guards";
/// A reserved name (RFC 2606).
const STRANGER: &str = "attacker.example";

pub(super) async fn examine(
    wire: &DiagnosedServer,
    lifecycles: &Lifecycles,
    origin: Option<&str>,
    report: &mut Report,
) {
    host(wire, lifecycles, report).await;
    strange_origin(wire, lifecycles, report).await;
    preflight(wire, origin, report).await;
}

fn is_private(wire: &DiagnosedServer) -> bool {
    wire.addresses.iter().all(|address| match address {
        std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_private(),
        std::net::IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    })
}

/// A page can point its own host name at an address behind a firewall; only `Host` reveals it (T-DNS).
async fn host(wire: &DiagnosedServer, lifecycles: &Lifecycles, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "Host");
    const ADVICE: &str = "http.allowed_hosts = [\"the name that clients use\"]; or a default server in the proxy that responds with 421: nginx: server { listen 443 ssl default_server; return 421; }";
    let asked = usual(wire, lifecycles).host(STRANGER);
    report.add(match wire.ask(&asked).await {
        Ok(seen) if seen.is_result() && is_private(wire) => CHECK.failure(format!("{STRANGER} is accepted: a web page can reach this server through a browser behind the firewall (DNS rebinding)"))
        .advise(ADVICE),
        Ok(seen) if seen.is_limited() => CHECK.limited(),
        Ok(seen) if seen.is_result() => CHECK.warning(format!("{STRANGER} is accepted"))
        .advise(ADVICE),
        Ok(seen) => CHECK.ok(format!("the response to another name is {}", seen.status)),
        Err(_) => CHECK.ok("another name gets no response"),
    });
}

async fn strange_origin(wire: &DiagnosedServer, lifecycles: &Lifecycles, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "Origin");
    let strange = format!("https://{STRANGER}");
    let asked = usual(wire, lifecycles).header("origin", &*strange);
    let Ok(seen) = wire.ask(&asked).await else {
        return;
    };
    if seen.is_limited() {
        report.add(CHECK.limited());
        return;
    }
    if !seen.is_result() {
        report.add(CHECK.ok(format!(
            "the response to a page of another site is {}",
            seen.status
        )));
        return;
    }
    const ADVICE: &str =
        "check Origin, and respond with 403 to unknown sites (http.allowed_origins)";
    let seen = "pages of any site may call: the specification requires a check of Origin";
    report.add(if is_private(wire) {
        CHECK.failure(seen).advise(ADVICE)
    } else {
        CHECK.warning(seen).advise(ADVICE)
    });
}

/// Checks the preflight request of a foreign page.
async fn preflight(wire: &DiagnosedServer, origin: Option<&str>, report: &mut Report) {
    const CHECK: Check<'_> = Check(AREA, "preflight");
    const SENT: &str = "authorization, content-type, last-event-id, mcp-method, mcp-protocol-version, mcp-session-id";
    let wanted = origin.unwrap_or("https://app.example.com");
    let asked = Ask::new(Method::OPTIONS, wire.target())
        .header("origin", wanted)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", SENT)
        .anonymous();
    let seen = match wire.ask(&asked).await {
        Ok(seen) => seen,
        Err(problem) => {
            report.add(
                CHECK
                    .warning(problem)
                    .advise("the proxy must pass OPTIONS to the server"),
            );
            return;
        }
    };
    let allowed = seen.header("access-control-allow-origin");
    let credentials = seen.header("access-control-allow-credentials") == Some("true");
    let is_allowed = seen.is_success() && allowed.is_some_and(|to| to == "*" || to == wanted);
    let advice = format!(
        "http.allowed_origins = [{wanted:?}]; a proxy must pass OPTIONS on, without a proof"
    );
    match (origin, is_allowed) {
        (None, true) if credentials => report.add(
            CHECK
                .failure("a page of any site may call with the cookies of its visitor")
                .advise(
                    "list the allowed origins, and do not send Access-Control-Allow-Credentials",
                ),
        ),
        (None, true) => report.add(
            CHECK
                .warning(format!("pages of any site may call ({wanted} may)"))
                .advise("list the allowed origins: http.allowed_origins"),
        ),
        (None, false) => report.add(CHECK.ok(format!(
            "pages of other sites may not call ({}); name one that should with --origin",
            seen.status
        ))),
        (Some(_), false) => report.add(
            CHECK
                .failure(format!("pages of {wanted} may not call ({})", seen.status))
                .advise(advice),
        ),
        (Some(_), true) => readable(wire, wanted, &seen, advice, report).await,
    }
}

/// Checks that an allowed page can send the required headers and read the response headers.
async fn readable(
    wire: &DiagnosedServer,
    wanted: &str,
    seen: &CompleteResponse,
    advice: String,
    report: &mut Report,
) {
    const CHECK: Check<'_> = Check(AREA, "preflight");
    let list = seen
        .header("access-control-allow-headers")
        .unwrap_or_default();
    let list = list.to_ascii_lowercase();
    let may = |name: &str| {
        list.split(',')
            .any(|word| matches!(word.trim(), word if word == name || word == "*"))
    };
    let missing: Vec<_> = [
        "authorization",
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
    ]
    .into_iter()
    .filter(|name| !may(name))
    .collect();
    if !missing.is_empty() {
        report.add(
            CHECK
                .failure(format!(
                    "pages of {wanted} may not send {}",
                    missing.join(", ")
                ))
                .advise(format!(
                    "Access-Control-Allow-Headers must contain {}",
                    missing.join(", ")
                )),
        );
        return;
    }
    let asked = stateless(wire, "server/discover", json!({})).header("origin", wanted);
    let answer = wire.ask(&asked).await.ok();
    let exposed = answer
        .as_ref()
        .and_then(|answer| answer.header("access-control-expose-headers"))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let has_origin =
        answer.is_some_and(|answer| answer.header("access-control-allow-origin").is_some());
    report.add(if !has_origin {
        CHECK
            .failure(format!(
                "the preflight allows pages of {wanted}, but they cannot read the response"
            ))
            .advise(advice)
    } else if exposed.contains("mcp-session-id") || exposed.contains('*') {
        CHECK.ok(format!(
            "pages of {wanted} may call, and can read the needed headers"
        ))
    } else {
        CHECK
            .failure(format!(
                "pages of {wanted} may call, but cannot read Mcp-Session-Id"
            ))
            .advise("Access-Control-Expose-Headers: mcp-session-id, www-authenticate")
    });
}
