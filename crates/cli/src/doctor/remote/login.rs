//! Walks a login as a client and its browser do: registration, the authorization request, the consent page, and the login
//! page of the identity provider. Nobody logs in, so the walk ends there.

use std::collections::BTreeMap;

use http::Method;
use http::header::SET_COOKIE;
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::Serializer;

use super::super::report::{Check, Finding, Report};
use super::wire::{Ask, CompleteResponse, DiagnosedServer};

const AREA: &str = "login";
/// Redirect URI of a client on the user's machine. Nothing listens there.
const REDIRECT_URI: &str = "http://127.0.0.1:33418/callback";
/// PKCE challenge by S256 of RFC 7636, appendix B. The code is never redeemed.
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const STEPS_MAX: usize = 12;

/// Problems that providers write into their pages, with what each means.
const PROBLEMS: [(&str, Problem); 12] = [
    ("AADSTS50011", Problem::RedirectUri),
    ("AADSTS700016", Problem::Client),
    ("AADSTS90002", Problem::Client),
    ("redirect_uri_mismatch", Problem::RedirectUri),
    ("redirect_mismatch", Problem::RedirectUri),
    ("Callback URL mismatch", Problem::RedirectUri),
    ("Invalid parameter: redirect_uri", Problem::RedirectUri),
    ("Invalid redirect uri", Problem::RedirectUri),
    ("redirect_uri did not match", Problem::RedirectUri),
    ("invalid_client", Problem::Client),
    ("unauthorized_client", Problem::Client),
    ("Client not found", Problem::Client),
];

/// A wrong setting at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    RedirectUri,
    Client,
}

/// End of a walk.
#[derive(Debug)]
enum LoginOutcome {
    /// The login page of this host.
    Page(String),
    /// An error page, or an error that the client receives.
    Error {
        host: String,
        seen: String,
        problem: Option<Problem>,
    },
    /// A page could not be fetched.
    Unreachable(String, String),
}

/// Walks a login at an authorization server with this metadata. `endpoint` is the MCP server, and `resource` its
/// identifier (RFC 8707).
pub(super) async fn walk(
    endpoint: &DiagnosedServer,
    resource: &str,
    metadata: &Value,
    report: &mut Report,
) {
    let text = |name: &str| metadata[name].as_str().and_then(|text| text.parse().ok());
    let (Some(registration), Some(authorization)) = (
        text("registration_endpoint"),
        text("authorization_endpoint"),
    ) else {
        report.add(Check(AREA, "registration").skipped(
            "the authorization server does not register clients, so no login can be tried",
        ));
        return;
    };
    let client = match register(endpoint, &registration).await {
        Ok(client) => client,
        Err(seen) => {
            report.add(
                Check(AREA, "registration").failure(seen)
                    .advise("auth.oauth.facade.registration = true; at another authorization server: enable dynamic client registration for public clients"),
            );
            return;
        }
    };
    report.add(Check(AREA, "registration").ok("a client registered itself"));
    let start = authorization_request(authorization, &client, resource);
    report.add(match follow(endpoint, start).await {
        LoginOutcome::Page(host) => {
            Check(AREA, "login page").ok(format!("the login continues at {host}"))
        }
        LoginOutcome::Unreachable(host, problem) => Check(AREA, "login page").failure(format!("{host}: {problem}"))
        .advise(
            "browsers of users must be able to reach it; check auth.oauth.facade.provider and DNS",
        ),
        LoginOutcome::Error {
            host,
            seen,
            problem,
        } => advised(endpoint, &host, seen, problem),
    });
}

/// Finding for an error, with the setting of the provider to change.
fn advised(
    endpoint: &DiagnosedServer,
    host: &str,
    seen: String,
    problem: Option<Problem>,
) -> Finding {
    let finding = Check(AREA, "login page").failure(seen);
    let origin = endpoint.url.origin().ascii_serialization();
    let callback = format!("{origin}/oauth/callback");
    match problem {
        Some(Problem::RedirectUri) => finding.advise(format!(
            "register {callback} at the provider ({})",
            place_of_redirect_uris(host)
        )),
        Some(Problem::Client) => finding.advise(
            "auth.oauth.facade.client_id must be the ID of the application at auth.oauth.facade.provider, in the same tenant",
        ),
        None => finding
            .advise("see the server's log for the response of the provider")
            .advise(format!(
                "at the provider: the redirect URI {callback} ({}), and the scopes of auth.oauth.facade.provider_scopes",
                place_of_redirect_uris(host)
            )),
    }
}

/// Returns where a provider keeps the redirect URIs of an application.
fn place_of_redirect_uris(host: &str) -> &'static str {
    let is = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    if is("microsoftonline.com") || is("microsoftonline.us") {
        "Entra: App registrations, Authentication, platform Web, Redirect URIs"
    } else if is("google.com") {
        "Google: APIs & Services, Credentials, the OAuth client, Authorized redirect URIs"
    } else if is("github.com") {
        "GitHub: Developer settings, OAuth Apps, Authorization callback URL"
    } else if is("okta.com") || is("oktapreview.com") {
        "Okta: Applications, General, Sign-in redirect URIs"
    } else if is("auth0.com") {
        "Auth0: Applications, Settings, Allowed Callback URLs"
    } else if is("amazoncognito.com") || is("amazonaws.com") {
        "Cognito: the app client, Login pages, Allowed callback URLs"
    } else {
        "Keycloak: Clients, Settings, Valid redirect URIs"
    }
}

/// Registers a client (RFC 7591).
async fn register(endpoint: &DiagnosedServer, url: &Url) -> Result<String, String> {
    let wire = endpoint.to(url).await?;
    let metadata = json!({
        "client_name": "longshore doctor", "redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"], "application_type": "native",
    });
    let ask = Ask::new(Method::POST, wire.target())
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(metadata.to_string())
        .anonymous();
    let seen = wire.ask(&ask).await?;
    let document = seen.json();
    match document["client_id"].as_str() {
        Some(id) if seen.is_success() => Ok(id.to_owned()),
        _ => Err(format!("a client cannot register: {}", seen.summary())),
    }
}

fn authorization_request(mut url: Url, client: &str, resource: &str) -> Url {
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", client)
        .append_pair("redirect_uri", REDIRECT_URI)
        .append_pair("code_challenge", CHALLENGE)
        .append_pair("code_challenge_method", "S256")
        .append_pair("state", "doctor")
        .append_pair("resource", resource);
    url
}

/// Follows a browser's way until a page waits for the user.
async fn follow(endpoint: &DiagnosedServer, start: Url) -> LoginOutcome {
    let mut cookies: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut at = start;
    let mut form: Option<String> = None;
    for _ in 0..STEPS_MAX {
        let host = at.host_str().unwrap_or_default().to_owned();
        let seen = match visit(
            endpoint,
            &at,
            form.take(),
            cookies.entry(host.clone()).or_default(),
        )
        .await
        {
            Ok(seen) => seen,
            Err(problem) => return LoginOutcome::Unreachable(host, problem),
        };
        if let Some(location) = seen.redirect() {
            let Ok(next) = at.join(location) else {
                return error_of(
                    host,
                    format!("it redirects to {location:?}, which is not a valid URL"),
                    "",
                );
            };
            if next.as_str().starts_with(REDIRECT_URI) {
                return returned(host, &next);
            }
            at = next;
            continue;
        }
        let page = String::from_utf8_lossy(&seen.body).into_owned();
        if let Some((action, fields)) = consent(&at, &page) {
            at = action;
            form = Some(fields);
            continue;
        }
        let said = format!("{at}\n{page}");
        let known = known_problem(&said);
        if !seen.is_success() || known.is_some() {
            let what = known.map_or_else(|| seen.summary(), |(text, _)| text.to_owned());
            return error_of(
                host.clone(),
                format!("{host} shows an error: {what}"),
                &said,
            );
        }
        return LoginOutcome::Page(host);
    }
    let host = at.host_str().unwrap_or_default().to_owned();
    error_of(host, "too many redirects".to_owned(), "")
}

fn error_of(host: String, seen: String, said: &str) -> LoginOutcome {
    LoginOutcome::Error {
        host,
        seen,
        problem: known_problem(said).map(|(_, problem)| problem),
    }
}

fn known_problem(said: &str) -> Option<(&'static str, Problem)> {
    let mut known = PROBLEMS.into_iter();
    known.find(|(text, _)| said.contains(text))
}

/// The client receives the response already, which without a user is an error.
fn returned(host: String, back: &Url) -> LoginOutcome {
    let of = |name: &str| {
        let found = back.query_pairs().find(|(known, _)| known == name);
        found.map(|(_, value)| value.chars().take(200).collect::<String>())
    };
    match of("error") {
        Some(error) => {
            let why = of("error_description").unwrap_or_default();
            let seen = format!("the client gets the error {error}: {why}");
            error_of(host, seen, &error)
        }
        None => error_of(
            host,
            "the client gets a code although no user logged in".to_owned(),
            "",
        ),
    }
}

/// Returns the action and the fields of a consent page of Longshore.
fn consent(at: &Url, page: &str) -> Option<(Url, String)> {
    let (_, rest) = page.split_once("name=form value=\"")?;
    let form = rest.split('"').next()?;
    let (_, rest) = page.split_once("action=\"")?;
    let action = at.join(rest.split('"').next()?).ok()?;
    let mut fields = Serializer::new(String::new());
    fields
        .append_pair("form", form)
        .append_pair("decision", "allow");
    Some((action, fields.finish()))
}

/// Sends a browser's request, with the cookies of its host.
async fn visit(
    endpoint: &DiagnosedServer,
    url: &Url,
    form: Option<String>,
    cookies: &mut BTreeMap<String, String>,
) -> Result<CompleteResponse, String> {
    let wire = endpoint.to(url).await?;
    let method = match &form {
        Some(_) => Method::POST,
        None => Method::GET,
    };
    let mut ask = Ask::new(method, wire.target())
        .header("accept", "text/html, */*")
        .anonymous();
    if !cookies.is_empty() {
        let pairs: Vec<_> = cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        ask = ask.header("cookie", pairs.join("; "));
    }
    if let Some(form) = form {
        ask = ask
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
    }
    let seen = wire.ask(&ask).await?;
    for cookie in seen.headers.get_all(SET_COOKIE) {
        let pair = cookie.to_str().ok().and_then(|text| text.split(';').next());
        if let Some((name, value)) = pair.and_then(|pair| pair.split_once('=')) {
            cookies.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_providers_name_the_setting_to_change() {
        for (page, problem) in [
            (
                "... AADSTS50011: The redirect URI ...",
                Some(Problem::RedirectUri),
            ),
            (
                "authError=redirect_uri_mismatch",
                Some(Problem::RedirectUri),
            ),
            ("AADSTS700016: Application not found", Some(Problem::Client)),
            (
                "<h1>We are sorry...</h1> Invalid parameter: redirect_uri",
                Some(Problem::RedirectUri),
            ),
            ("<h1>Oops</h1>", None),
        ] {
            let LoginOutcome::Error { problem: found, .. } =
                error_of(String::new(), String::new(), page)
            else {
                panic!("an error");
            };
            assert_eq!(found, problem, "{page}");
        }
        assert!(place_of_redirect_uris("login.microsoftonline.com").starts_with("Entra"));
        assert!(place_of_redirect_uris("evilgoogle.com").starts_with("Keycloak"));
    }

    #[test]
    fn the_consent_page_is_answered() {
        let at = Url::parse("https://mcp.example.com/authorize?x=1").expect("a URL");
        let page =
            r#"<form method=post action="oauth/consent"><input type=hidden name=form value="abc">"#;
        let (action, fields) = consent(&at, page).expect("a form");
        assert_eq!(action.as_str(), "https://mcp.example.com/oauth/consent");
        assert_eq!(fields, "form=abc&decision=allow");
        assert!(consent(&at, "<form action=\"/login\">").is_none());
    }
}
