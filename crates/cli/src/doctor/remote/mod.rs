//! Checks a deployed server of any make from a client's view.
//!
//! The checks change nothing: they use discovery, lists, streams and a session that they end. Each request has its
//! own connection.

mod access;
mod bodies;
mod guards;
mod login;
mod old_tls;
mod protocol;
mod sessions;
mod streams;
mod tls;
mod wire;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use rustls::RootCertStore;
use url::Url;

pub(crate) use tls::examining;
pub(super) use tls::judge_expiry;

use super::proxy_kind::ProxyKind;
use super::reach::skew;
use super::report::{Check, Finding, Report};
use crate::cli::client::check_no_password;
use crate::environment::Secret;
use wire::{Ask, CompleteResponse, DiagnosedServer};

/// The target, and the options of the checks.
pub(super) struct Remote {
    pub(super) url: Url,
    pub(super) token: Option<Secret>,
    pub(super) hold: Duration,
    pub(super) patience: Duration,
    pub(super) connections: u32,
    pub(super) origin: Option<String>,
    /// True if a login is walked, which registers a client.
    pub(super) walks_login: bool,
    /// Additional CA certificates in PEM, each with the option or variable that names its file.
    pub(super) roots: Vec<(&'static str, Vec<u8>)>,
}

/// Runs all checks.
///
/// # Errors
///
/// The options are invalid: the URL, or the certificate file.
pub(super) async fn examine(remote: Remote, report: &mut Report) -> Result<(), String> {
    let url = remote.url;
    let is_http = matches!(url.scheme(), "http" | "https");
    if !is_http || url.host().is_none() {
        return Err(format!(
            "--url is {url}: write the URL of the MCP endpoint, such as https://mcp.example.com/mcp"
        ));
    }
    check_no_password("--url", &url)?;
    let roots = tls::roots(&remote.roots)?;
    let both = [&rustls::version::TLS13, &rustls::version::TLS12];
    let mut wire = DiagnosedServer {
        token: remote.token,
        ..DiagnosedServer::new(url, remote.patience, tls::examining(&both, false)?)
    };
    if !is_reachable(&mut wire, &roots, report).await {
        return Ok(());
    }
    access::to_https(&wire, report).await;
    let Some(first) = access::first_answer(&wire, report).await else {
        return Ok(());
    };
    let front = ProxyKind::of(&first.headers);
    report.add(Check("network", "in front").ok(front.name()));
    report.add(clock(&first, SystemTime::now()));
    health(&wire, report).await;
    access::authorization(&wire, &first, remote.walks_login, report).await;
    if wire.token.is_none() && first.status == 401 {
        report.add(
            Check("protocol", "everything")
                .skipped("the server requires authentication")
                .advise(
                    "put a token or an API key into the variable LONGSHORE_TOKEN, and run it again",
                ),
        );
        return Ok(());
    }
    let lifecycles = protocol::examine(&wire, report).await;
    if lifecycles.handshake.is_none() && !lifecycles.stateless {
        report.add(Check("protocol", "everything else").skipped("no protocol version works with these credentials, so guards, sessions and streams cannot be checked"));
        return Ok(());
    }
    bodies::examine(&wire, front, &lifecycles, report).await;
    guards::examine(&wire, &lifecycles, remote.origin.as_deref(), report).await;
    let session = sessions::examine(
        &wire,
        remote.connections,
        lifecycles.handshake.as_deref(),
        report,
    )
    .await;
    streams::examine(
        &wire,
        front,
        session.as_deref(),
        &lifecycles,
        remote.hold,
        report,
    )
    .await;
    sessions::end(&wire, session.as_deref(), report).await;
    Ok(())
}

/// Checks name, connection and encryption. Returns false if no request can be sent.
async fn is_reachable(
    wire: &mut DiagnosedServer,
    roots: &Arc<RootCertStore>,
    report: &mut Report,
) -> bool {
    match DiagnosedServer::resolve(&wire.url).await {
        Ok(addresses) => {
            report.add(Check("network", "name").ok(listed(&addresses)));
            wire.addresses = addresses;
        }
        Err(problem) => {
            report.add(
                Check("network", "name")
                    .failure(problem)
                    .advise(format!("create a DNS record for {}", wire.host)),
            );
            return false;
        }
    }
    if let Err(problem) = wire.connect(wire.port).await {
        report.add(
            Check("network", "connection").failure(problem).advise(
                "check that a server listens on this port, and that no firewall blocks it; Cloud Run: ingress: all; security groups; the Service's selector and targetPort",
            ),
        );
        return false;
    }
    if !wire.is_secure() {
        report.add(plain(wire));
        return true;
    }
    if let Err(problem) = tls::examine(wire, roots, report).await {
        let finding = Check("tls", "handshake").failure(problem);
        report.add(match wire.at_other_scheme().await {
            Some(url) => finding.advise(format!(
                "this port speaks plain HTTP: use {url}, or serve TLS on it (http.tls.certificate and http.tls.key)"
            )),
            None => finding.advise("serve TLS 1.2 or 1.3 on this port, with a certificate"),
        });
        return false;
    }
    old_tls::examine(wire, report).await;
    true
}

fn listed(addresses: &[std::net::IpAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

fn plain(wire: &DiagnosedServer) -> Finding {
    let is_here = wire.addresses.iter().all(std::net::IpAddr::is_loopback);
    if is_here {
        return Check("tls", "encryption").ok("none, on this machine");
    }
    Check("tls", "encryption").warning("none: tokens and responses can be read on the way, and clients reject OAuth without https")
    .advise("use a certificate at the balancer: ingress: spec.tls; GKE: ManagedCertificate; ALB: alb.ingress.kubernetes.io/certificate-arn")
    .advise("or in the process: http.tls.certificate and http.tls.key")
}

fn clock(first: &CompleteResponse, now: SystemTime) -> Finding {
    let date = first.header("date").and_then(http_date);
    match date {
        None => Check("network", "clock").skipped("the server sends no Date header"),
        Some(date) => match skew(now, date) {
            None => Check("network", "clock").ok("the clocks of the server and of this machine agree"),
            Some(skew) => Check("network", "clock").warning(format!("the clocks of the server and of this machine differ by {} s", skew.as_secs()))
            .advise("synchronize the clock that is wrong: `timedatectl set-ntp true`; tokens and sessions depend on it"),
        },
    }
}

/// Parses an HTTP date (RFC 9110, 5.6.7).
pub(in crate::doctor) fn http_date(text: &str) -> Option<SystemTime> {
    let timestamp = jiff::fmt::rfc2822::parse(&text.replace("GMT", "+0000")).ok()?;
    Some(timestamp.timestamp().into())
}

async fn health(wire: &DiagnosedServer, report: &mut Report) {
    const AREA: &str = "health";
    let mut found = Vec::new();
    for path in ["/readyz", "/livez", "/health"] {
        let asked = Ask::new(Method::GET, path).anonymous();
        if let Ok(seen) = wire.ask(&asked).await {
            found.push((path, seen));
        }
    }
    let answered: Vec<_> = found
        .iter()
        .map(|(path, seen)| format!("{path} {}", seen.status))
        .collect();
    let statuses = answered.join(", ");
    if found.iter().any(|(_, seen)| seen.status == 503) {
        report.add(
            Check(AREA, "pages")
                .warning(format!("not ready: {statuses}"))
                .advise("see the server's log, and /health/detailed with credentials"),
        );
    } else if found.iter().any(|(_, seen)| seen.is_success()) {
        report.add(Check(AREA, "pages").ok(statuses));
    } else if found.is_empty() {
        report.add(Check(AREA, "pages").skipped("no response"));
    } else {
        report.add(Check(AREA, "pages").skipped(format!("not reachable for clients: {statuses}")));
    }
}
