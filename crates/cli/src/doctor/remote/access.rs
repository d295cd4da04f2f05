//! Checks how a client reaches the endpoint: redirects, and discovery of the authorization server.

use http::Method;
use serde_json::{Value, json};
use url::{Position, Url};

use super::super::report::{Check, Finding, Report};
use super::login;
use super::protocol::initialize;
use super::wire::{Ask, CompleteResponse, DiagnosedServer};
use crate::net::challenge_parameter;

const AREA: &str = "access";
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Checks the redirect from `http://`.
pub(super) async fn to_https(wire: &DiagnosedServer, report: &mut Report) {
    if !wire.is_secure() || wire.port != 443 {
        return;
    }
    let mut plain = wire.url.clone();
    if plain.set_scheme("http").is_err() {
        return;
    }
    let Ok(plain) = wire.to(&plain).await else {
        return;
    };
    // Without the query, which can have a key.
    let asked = Ask::new(Method::GET, plain.url.path());
    report.add(match plain.ask(&asked).await {
        Err(_) => Check(AREA, "http").ok("closed"),
        Ok(seen) => match seen.redirect() {
            Some(location) if location.starts_with("https://") => {
                Check(AREA, "http").ok(format!("{} to https", seen.status))
            }
            _ => Check(AREA, "http").warning(format!("without TLS the response is {}", seen.summary()))
            .advise("redirect, or close port 80: ingress-nginx: nginx.ingress.kubernetes.io/force-ssl-redirect: \"true\"; ALB: alb.ingress.kubernetes.io/ssl-redirect: \"443\"; GKE: FrontendConfig redirectToHttps"),
        },
    });
}

/// Checks the response to an unauthenticated request. Returns `None` if nothing responds.
pub(super) async fn first_answer(
    wire: &DiagnosedServer,
    report: &mut Report,
) -> Option<CompleteResponse> {
    let asked = Ask::message(wire, &initialize("2025-11-25")).anonymous();
    let answered = wire.ask(&asked).await;
    let may_be_tls = !wire.is_secure() && !answered.as_ref().is_ok_and(|seen| seen.status != 400);
    if may_be_tls && let Some(url) = wire.at_other_scheme().await {
        report.add(
            Check(AREA, "endpoint")
                .failure(format!(
                    "no response to plain HTTP: port {} speaks TLS",
                    wire.port
                ))
                .advise(format!("use {url}")),
        );
        return None;
    }
    let seen = match answered {
        Ok(seen) => seen,
        Err(problem) => {
            report.add(
                Check(AREA, "endpoint").failure(format!("no response to `initialize`: {problem}"))
                    .advise("the port must be that of the MCP server or its balancer; run `longshore doctor` on the machine itself"),
            );
            return None;
        }
    };
    if let Some(location) = seen.redirect() {
        let target = wire
            .url
            .join(location)
            .map_or_else(|_| location.to_owned(), |target| target.to_string());
        let loses_body = matches!(seen.status, 301..=303);
        let said = if loses_body {
            "and most clients then send a GET instead of the POST"
        } else {
            "which few clients follow for a POST"
        };
        let finding = Check(AREA, "endpoint").failure(format!(
            "{} is redirected ({}) to {target}, {said}",
            wire.url, seen.status
        ));
        report.add(if asks_to_log_in(&target) {
            finding.advise("a proxy redirects to a login page, which MCP clients cannot use: exempt the endpoint and /.well-known/ (oauth2-proxy: --skip-auth-route), and let the server check tokens itself (auth.oauth.issuer)")
        } else {
            finding
                .advise(format!("give clients {target}"))
                .advise("or serve both paths: no `return 301` and no rewrite for the endpoint; in frameworks turn off redirects to paths with a slash")
        });
        return None;
    }
    let speaks = seen.json()["jsonrpc"] == "2.0";
    // A silent stream is diagnosed by the stream checks.
    let media = seen.header("content-type").unwrap_or("no content type");
    let streams = seen.is_success() && media.starts_with("text/event-stream");
    if speaks && seen.status != 503 || streams {
        return Some(seen);
    }
    if seen.is_success() || matches!(seen.status, 404 | 405 | 502 | 503 | 504) {
        let mut problem = format!(
            "`initialize` at {}: the response is {}",
            wire.url,
            seen.summary()
        );
        if seen.is_success() {
            problem.push_str(&format!(
                ", with content type {media}, which is not an MCP response"
            ));
        }
        let finding = Check(AREA, "endpoint").failure(problem);
        report.add(match seen.status {
            503 if speaks => finding.advise("the server rejects requests: it is starting, stopping or overloaded; see its log and /readyz"),
            502..=504 => finding.advise("the balancer reaches no server: check readiness of the pods, Service selector and targetPort, NetworkPolicy; Cloud Run: the container must listen on $PORT"),
            _ => finding.advise("use the URL of the endpoint, usually with /mcp at its end; a rewrite in a proxy must keep the path (ingress-nginx: no rewrite-target)"),
        });
        return None;
    }
    Some(seen)
}

/// Returns true if a redirect leads to a login page.
fn asks_to_log_in(target: &str) -> bool {
    const WORDS: [&str; 9] = [
        "login",
        "log-in",
        "signin",
        "sign-in",
        "sign_in",
        "oauth",
        "sso",
        "saml",
        "authorize",
    ];
    let target = target.to_ascii_lowercase();
    let place = target.split(['?', '#']).next().unwrap_or_default();
    let parts = place.split(['/', '.', ':']);
    parts
        .into_iter()
        .any(|part| WORDS.iter().any(|word| part.starts_with(word)))
        || place.contains("accounts.google.com")
}

/// Checks that a client without a token can discover where to get one. If `walks`, a login is walked up to the page that
/// waits for the user.
pub(super) async fn authorization(
    wire: &DiagnosedServer,
    first: &CompleteResponse,
    walks: bool,
    report: &mut Report,
) {
    const AREA: &str = "authorization";
    let path = wire.url.path().trim_end_matches('/');
    let (inserted, root) = (format!("{WELL_KNOWN}{path}"), WELL_KNOWN.to_owned());
    let at_path = metadata(wire, &inserted).await;
    let at_root = metadata(wire, &root).await;
    if first.status != 401 {
        let is_here = wire.addresses.iter().all(std::net::IpAddr::is_loopback);
        report.add(if matches!(first.status, 403 | 429 | 500..) {
            let seen = format!("unknown: the response to `initialize` is {}", first.summary());
            Check(AREA, "authentication").skipped(seen)
        } else if is_here || !first.is_success() {
            Check(AREA, "authentication").ok(format!("not required ({})", first.status))
        } else {
            Check(AREA, "authentication").warning("not required: everyone who knows the URL can use the tools")
                .advise("set auth.oauth.issuer or auth.api_keys; or authenticate in a proxy: IAP, oauth2-proxy, Cloud Run without allUsers")
        });
        return;
    }
    let challenge = first.header("www-authenticate").unwrap_or_default();
    let named = challenge_parameter(challenge, "resource_metadata");
    let is_discoverable = named.is_some() || at_path.is_some() || at_root.is_some();
    if !is_discoverable && wire.has_api_key() {
        report.add(Check(AREA, "authentication").ok("required; there is no authorization server, so users put an API key into their clients"));
        return;
    }
    report.add(match &named {
        Some(url) => Check(AREA, "challenge").ok(format!("401 names {url}")),
        None => Check(AREA, "challenge").warning("401 without resource_metadata in WWW-Authenticate: clients must guess the issuer of tokens")
        .advise("set auth.oauth.issuer and http.public_url; a proxy must pass WWW-Authenticate"),
    });
    if !is_discoverable {
        report.add(
            Check(AREA, "metadata").warning(format!("none at {inserted} and none at {root}: users must configure keys by hand"))
            .advise("set auth.oauth.issuer, and route /.well-known/oauth-protected-resource to the server: its path is beside the endpoint, not below it (ingress: another path)"),
        );
        return;
    }
    for (place, found) in [(&inserted, &at_path), (&root, &at_root)] {
        report.add(match found {
            Some(_) => Check(AREA, "metadata").ok(format!("at {place}")),
            None => Check(AREA, "metadata").warning(format!("none at {place}, where some clients look"))
                .advise(format!("route {place} to the server: ingress: a path /.well-known/oauth-protected-resource of pathType Prefix")),
        });
    }
    let Some(document) = at_path.or(at_root) else {
        return;
    };
    report.add(resource(wire, &document));
    let servers: Vec<_> = document["authorization_servers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if servers.is_empty() {
        report.add(
            Check(AREA, "issuers")
                .failure("the metadata names no authorization server")
                .advise("auth.oauth.issuer"),
        );
    }
    const SERVERS_MAX: usize = 4;
    for server in servers.into_iter().take(SERVERS_MAX) {
        let (finding, metadata) = issuer(wire, server).await;
        report.add(finding);
        if let Some(metadata) = metadata.filter(|_| walks) {
            // Clients send the identifier of the metadata: the URL may have a query, which the identifier has not.
            let resource = document["resource"].as_str();
            let resource = resource.unwrap_or(&wire.url[..Position::AfterPath]);
            login::walk(wire, resource, &metadata, report).await;
        }
    }
}

/// Checks that the metadata is about this server, as clients do (RFC 9728, 3.3).
fn resource(wire: &DiagnosedServer, document: &Value) -> Finding {
    const AREA: &str = "authorization";
    let said = document["resource"].as_str().unwrap_or_default();
    let bare = |text: &str| text.trim_end_matches('/').to_owned();
    let endpoint = bare(&wire.url[..Position::AfterPath]);
    let origin = bare(&wire.url.origin().ascii_serialization());
    if bare(said) == endpoint || bare(said) == origin {
        return Check(AREA, "resource").ok(said);
    }
    Check(AREA, "resource").failure(format!("the metadata has the resource {said:?}, and clients of {endpoint} reject it"))
    .advise(format!("http.public_url = {origin:?}"))
    .advise("or let the proxy send X-Forwarded-Host and X-Forwarded-Proto, and trust it: http.trusted_proxies")
}

/// Checks that an authorization server is reachable and supports what clients need.
async fn issuer(wire: &DiagnosedServer, server: &str) -> (Finding, Option<Value>) {
    const AREA: &str = "authorization";
    let Ok(url) = Url::parse(server) else {
        let finding = Check(AREA, "issuer")
            .failure(format!("{server:?} is not a valid URL"))
            .advise("auth.oauth.issuer");
        return (finding, None);
    };
    let path = url.path().trim_end_matches('/');
    let Ok(other) = wire.to(&url).await else {
        let finding = Check(AREA, "issuer").failure(format!("{server} has no address")).advise(
            "clients must be able to resolve that name: create a DNS record, or use the public name",
        );
        return (finding, None);
    };
    for place in [
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
        format!("{path}/.well-known/openid-configuration"),
    ] {
        let Some(document) = metadata(&other, &place).await else {
            continue;
        };
        if document["issuer"].as_str() != Some(server) {
            let finding = Check(AREA, "issuer").failure(format!(
                    "the issuer in the metadata of {server} is {}, at {place}",
                    document["issuer"]
                ))
            .advise(
                "auth.oauth.issuer must be exactly the issuer in the metadata, including slashes",
            );
            return (finding, None);
        }
        let methods = &document["code_challenge_methods_supported"];
        let has_pkce = methods
            .as_array()
            .is_some_and(|all| all.iter().any(|method| method == "S256"));
        let registers = document["registration_endpoint"].is_string();
        let by_url = document["client_id_metadata_document_supported"] == json!(true);
        let how = match (by_url, registers) {
            (true, _) => "clients identify themselves by the URL of their metadata",
            (false, true) => "clients register themselves",
            (false, false) => "clients must be registered by hand",
        };
        let seen = format!("{server}: {how}");
        let finding = if !has_pkce {
            Check(AREA, "issuer").failure(format!("{seen}; its metadata does not list PKCE with S256, and clients reject it without"))
            .advise("enable it at the issuer: code_challenge_methods_supported must contain S256")
        } else if by_url || registers {
            Check(AREA, "issuer").ok(seen)
        } else {
            Check(AREA, "issuer").warning(seen)
                .advise("enable Client ID Metadata Documents or Dynamic Client Registration at the issuer, or configure the client ID in each client")
                .advise("or let Longshore register clients in front of it: auth.oauth.facade")
        };
        return (finding, Some(document));
    }
    let finding = Check(AREA, "issuer").failure(format!("{server} has no metadata at any of the well-known paths"))
        .advise("auth.oauth.issuer must be the issuer in its metadata, and clients must be able to reach it");
    (finding, None)
}

/// Fetches a JSON document, if it exists.
async fn metadata(wire: &DiagnosedServer, path: &str) -> Option<Value> {
    let asked = Ask::new(Method::GET, path)
        .header("accept", "application/json")
        .header("mcp-protocol-version", "2025-11-25")
        .anonymous();
    let seen = wire.ask(&asked).await.ok()?;
    let document = seen.json();
    (seen.status == 200 && document.is_object()).then_some(document)
}
