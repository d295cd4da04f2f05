//! The steps of a login, one after another.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use http::header::ACCEPT;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use url::Url;

use super::callback::{Callback, Redirected};
use super::discovery::{self, Issuer, cut, endpoint};
use super::registrations::{Identity, Registrations};
use super::token_admin::kept_in;
use super::{LoginError, StoredToken};
use crate::environment::{Secret, unix_seconds};
use crate::net::{Client, OutgoingRequest};
use crate::seal::{random_bytes, sha256_base64url};
use crate::source::credentials::{DPOP_ALGORITHM, DpopKey};
use crate::source::tokens::{Grant, Granted, Grants, Name, Tokens, client, is_same_issuer};

/// Parameters of a login.
#[derive(Clone, Debug)]
pub struct LoginRequest {
    pub server: Url,
    /// Token store.
    pub tokens: Tokens,
    /// ID of a client that is already registered with the issuer.
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    /// URL of a client ID metadata document, for issuers that support it.
    pub client_metadata: Option<Url>,
    /// The server's issuer to use; the first one that it lists, by default. Required if a client secret is set that
    /// no earlier login has shown to that issuer.
    pub issuer: Option<String>,
    /// Requested scopes. If empty, the scopes that the server requests.
    pub scopes: Vec<String>,
    /// Port for the redirect; 0 for any free port.
    pub port: u16,
    /// Non-public networks in which the server and the issuer are allowed.
    pub networks: Vec<IpNet>,
    /// Time limit of the login, with all requests and the time that the user needs. Storing the token comes on top.
    pub patience: Duration,
}

/// Response to a client registration (RFC 7591).
#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
    /// In seconds since 1970; 0 if the secret does not expire.
    #[serde(default)]
    client_secret_expires_at: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoginRejection {
    error: String,
    error_description: String,
}

/// An authorization request that is ready: the issuer is known, and knows the client.
pub(crate) struct PreparedLogin {
    /// The issuer's page for the user, without parameters.
    pub(crate) authorize: Url,
    /// The grant, without tokens.
    pub(crate) grant: Grant,
    /// True if the issuer promises to name itself in its response (RFC 9207).
    pub(crate) names_itself: bool,
}

/// Discovers the issuer of a server and identifies the client there. `known` are earlier grants for the server, and
/// `registrations` clients that were registered for the redirect URI.
pub(crate) async fn prepare(
    request: &LoginRequest,
    known: Option<&Grants>,
    redirect: &str,
    registrations: &Registrations,
) -> Result<PreparedLogin, LoginError> {
    let web = client(&request.networks, Some(&request.server))?;
    let DiscoveredServer {
        resource,
        issuer: issuer_name,
        mut scopes,
        is_own_issuer,
        offers_dpop,
    } = find(&web, request).await?;
    let issued = known.iter().flat_map(|grants| grants.iter());
    if !may_learn_secret(request, &issuer_name, issued) {
        return Err(LoginError::SecretWithoutIssuer {
            issuer: issuer_name,
        });
    }
    let issuer = match discovery::issuer(&web, &issuer_name).await {
        Err(LoginError::NoIssuer(_)) if is_own_issuer => discovery::default_issuer(&issuer_name)?,
        issuer => issuer?,
    };
    if !issuer
        .code_challenge_methods_supported
        .iter()
        .any(|m| m == "S256")
    {
        return Err(LoginError::NoPkce);
    }
    let [authorize, token_endpoint] = issuer.endpoints(&web)?;
    let identity = match registrations.get(&issuer.issuer, redirect) {
        Some(identity) => identity,
        None => identify(&web, request, &issuer, redirect, registrations).await?,
    };
    let before = known.and_then(|known| known.of(Some(&issuer.issuer)));
    let lacking = before.map(|before| before.lacking.clone());
    let lacking = lacking.unwrap_or_default();
    if !request.scopes.is_empty() {
        scopes.clone_from(&request.scopes);
    } else if let Some(before) = before
        && !lacking.is_empty()
    {
        // Requests the scopes granted before, and the missing ones.
        for scope in before.scopes.iter().chain(&lacking) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
    }
    // Without this scope, the issuer may not grant a refresh token.
    if issuer
        .scopes_supported
        .iter()
        .any(|s| s == "offline_access")
        && !scopes.iter().any(|s| s == "offline_access")
    {
        scopes.push("offline_access".to_owned());
    }
    // A key helps only if both can bind tokens to it, and check that.
    let binds = offers_dpop && lists_dpop(&issuer.dpop_signing_alg_values_supported);
    let dpop_key = binds.then(DpopKey::generate).transpose()?;
    let grant = Grant {
        dpop_key,
        server: request.server.as_str().to_owned(),
        resource,
        issuer: issuer.issuer,
        token_endpoint: token_endpoint.as_str().to_owned(),
        revocation_endpoint: issuer.revocation_endpoint,
        client_id: identity.id,
        client_secret: identity.secret,
        secret_in_form: identity.in_form,
        scopes,
        lacking,
        networks: request.networks.clone(),
        ..Grant::default()
    };
    Ok(PreparedLogin {
        authorize,
        grant,
        names_itself: issuer.authorization_response_iss_parameter_supported,
    })
}

/// Runs the authorization flow. `show` receives the URL to open in a browser.
pub async fn log_in(
    request: &LoginRequest,
    show: impl FnOnce(&Url),
) -> Result<StoredToken, LoginError> {
    let tokens = &request.tokens;
    if tokens.are_in_memory() {
        return Err(LoginError::InMemory);
    }
    // The token must be storable before the user is asked for consent.
    let name = Name::of_login(&request.server);
    let failed = kept_in(tokens);
    let known = tokens.load_readable(&name).await.map_err(&failed)?;
    let authorized = timeout(request.patience, authorize(request, known.as_ref(), show));
    let late = |_| LoginError::Timeout(request.patience.as_secs());
    let grant = authorized.await.map_err(late)??;
    // A server that refreshes its token now would overwrite the new one.
    let turn = tokens.turn(&name).await.map_err(&failed)?;
    let begun = tokens.begin(&name, &grant).await;
    turn.end().await;
    begun.map_err(&failed)?;
    if let Err(error) = tokens.sweep(SystemTime::now()).await {
        tracing::debug!(%error, "expired logins could not be removed");
    }
    Ok(StoredToken::of(&grant, true))
}

/// Obtains a grant: from the discovery of the issuer to the exchange of the code. `known` are earlier grants for the server.
async fn authorize(
    request: &LoginRequest,
    known: Option<&Grants>,
    show: impl FnOnce(&Url),
) -> Result<Grant, LoginError> {
    let port = request.port;
    let unheard = |source| LoginError::Listen { port, source };
    let callback = Callback::listen(port).await.map_err(unheard)?;
    let redirect = callback.redirect_uri();
    let registrations = Registrations::default();
    let PreparedLogin {
        authorize,
        mut grant,
        names_itself,
    } = prepare(request, known, &redirect, &registrations).await?;
    let (verifier, state) = (secret_text(), secret_text());
    let url = authorization_url(authorize, &grant, &redirect, &verifier, &state);
    show(&url);
    let redirected = callback.wait(&state).await.map_err(unheard)?;
    let code = code_of(redirected, &grant.issuer, names_itself)?;
    redeem(&mut grant, &code, &redirect, &verifier).await?;
    Ok(grant)
}

/// Exchanges the code for the tokens of a grant.
pub(crate) async fn redeem(
    grant: &mut Grant,
    code: &str,
    redirect: &str,
    verifier: &str,
) -> Result<(), LoginError> {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect),
        ("code_verifier", verifier),
    ];
    let endpoint = grant.token_endpoint.clone();
    let granted: Granted = grant.ask(&endpoint, &fields).await?;
    grant.take(granted, SystemTime::now());
    Ok(())
}

/// Checks whether an issuer may receive the client's secret, if there is one. The user must have named the issuer, or
/// an earlier login at this server must have used the secret there. The server's metadata alone is not trusted.
fn may_learn_secret<'g>(
    request: &LoginRequest,
    issuer: &str,
    mut known: impl Iterator<Item = &'g Grant>,
) -> bool {
    let Some(secret) = &request.client_secret else {
        return true;
    };
    request.issuer.is_some()
        || known.any(|grant| {
            is_same_issuer(&grant.issuer, issuer)
                && grant.client_secret.as_deref() == Some(secret.expose())
        })
}

/// Discovered authorization server and resource.
struct DiscoveredServer {
    /// Resource identifier of the server.
    resource: String,
    issuer: String,
    scopes: Vec<String>,
    /// The server is its own issuer, as in 2025-03-26, with default endpoints if it has no metadata.
    is_own_issuer: bool,
    /// The server accepts tokens that are bound to a key.
    offers_dpop: bool,
}

fn lists_dpop(algorithms: &[String]) -> bool {
    algorithms.iter().any(|known| known == DPOP_ALGORITHM)
}

/// Discovers the resource identifier of the server, its issuer, and the scopes to request.
async fn find(web: &Client, request: &LoginRequest) -> Result<DiscoveredServer, LoginError> {
    let server = &request.server;
    let challenge = discovery::challenge(web, server).await?;
    let reported = challenge.as_ref().and_then(|c| c.metadata.as_ref());
    let resource = discovery::resource(web, server, reported).await?;
    let Some(resource) = resource else {
        let Some(challenge) = challenge else {
            return Err(LoginError::Open);
        };
        // Up to 2025-03-26 a server is its own issuer, at the root of its origin.
        let mut root = server.clone();
        root.set_path("");
        root.set_query(None);
        let own = root.as_str().trim_end_matches('/').to_owned();
        let issuer = request.issuer.clone().unwrap_or_else(|| own.clone());
        return Ok(DiscoveredServer {
            resource: canonical(server),
            is_own_issuer: issuer == own,
            issuer,
            scopes: challenge.scopes,
            offers_dpop: challenge.offers_dpop,
        });
    };
    let issuer = match &request.issuer {
        Some(wanted) => Some(wanted),
        None => resource.authorization_servers.first(),
    };
    let issuer = issuer.ok_or(LoginError::NoMetadata)?.clone();
    let offers_dpop = lists_dpop(&resource.dpop_signing_alg_values_supported)
        || challenge
            .as_ref()
            .is_some_and(|challenge| challenge.offers_dpop);
    let asked = challenge
        .map(|challenge| challenge.scopes)
        .unwrap_or_default();
    let scopes = if asked.is_empty() {
        resource.scopes_supported
    } else {
        asked
    };
    Ok(DiscoveredServer {
        resource: resource.resource,
        issuer,
        scopes,
        is_own_issuer: false,
        offers_dpop,
    })
}

/// Returns the canonical URI of a server (RFC 8707, 2).
fn canonical(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    url.as_str().to_owned()
}

/// Returns the client identity: a registered client, a client ID metadata document, or a client registered now.
async fn identify(
    web: &Client,
    request: &LoginRequest,
    issuer: &Issuer,
    redirect: &str,
    registrations: &Registrations,
) -> Result<Identity, LoginError> {
    if let Some(id) = &request.client_id {
        let secret = request.client_secret.as_ref();
        return Ok(Identity {
            id: id.clone(),
            secret: secret.map(|secret| secret.expose().to_owned()),
            in_form: issuer.takes_secret_in_form(),
        });
    }
    if let Some(document) = &request.client_metadata
        && issuer.client_id_metadata_document_supported
    {
        return Ok(Identity {
            id: document.as_str().to_owned(),
            secret: None,
            in_form: false,
        });
    }
    if issuer.registration_endpoint.is_none() {
        let redirect = redirect.to_owned();
        return Err(LoginError::NoClient { redirect });
    }
    let endpoint = endpoint(
        issuer.registration_endpoint.as_ref(),
        "registration_endpoint",
    )?;
    let methods = &issuer.token_endpoint_auth_methods_supported;
    let wants_secret = !methods.is_empty() && !issuer.takes("none");
    let method = match wants_secret {
        false => "none",
        true if issuer.takes("client_secret_basic") => "client_secret_basic",
        true => "client_secret_post",
    };
    // RFC 8252: a redirect to the user's own machine is that of a native application.
    let kind = match redirect.starts_with("http://127.0.0.1") {
        true => "native",
        false => "web",
    };
    let body = json!({
        "client_name": "Longshore",
        "application_type": kind,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    });
    let asked = OutgoingRequest::post(endpoint.clone(), "application/json", body.to_string())
        .header(ACCEPT, http::HeaderValue::from_static("application/json"));
    let answer = web.fetch(asked).await?;
    if issuer.is_default && matches!(answer.status.as_u16(), 401 | 404 | 405) {
        return Err(LoginError::NoOAuth);
    }
    if !matches!(answer.status, StatusCode::CREATED | StatusCode::OK) {
        return Err(LoginError::NotRegistered {
            status: answer.status.as_u16(),
            problem: error_text(&answer.body),
        });
    }
    let registered: Registered =
        serde_json::from_slice(&answer.body).map_err(|error| LoginError::Document {
            url: endpoint.clone(),
            problem: error.to_string(),
        })?;
    let method = registered.token_endpoint_auth_method;
    let identity = Identity {
        id: registered.client_id,
        secret: registered.client_secret,
        in_form: method.is_some_and(|method| method == "client_secret_post"),
    };
    let life = match registered.client_secret_expires_at {
        0 => None,
        expires => Some(Duration::from_secs(expires.saturating_sub(unix_seconds()))),
    };
    registrations.put(&issuer.issuer, redirect, identity.clone(), life);
    Ok(identity)
}

/// Returns the issuer's error description, sanitized.
fn error_text(body: &[u8]) -> String {
    let refusal: LoginRejection = serde_json::from_slice(body).unwrap_or_default();
    cut(format!("{} {}", refusal.error, refusal.error_description).trim())
}

/// Returns the page of the issuer for one login.
pub(crate) fn authorization_url(
    mut url: Url,
    grant: &Grant,
    redirect: &str,
    verifier: &str,
    state: &str,
) -> Url {
    let challenge = sha256_base64url(verifier);
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &grant.client_id)
        .append_pair("redirect_uri", redirect)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .append_pair("state", state);
    // The code is bound to the key, too (RFC 9449, section 10).
    let key = grant.dpop_key.as_deref();
    if let Some(key) = key.and_then(|key| DpopKey::read(key).ok()) {
        query.append_pair("dpop_jkt", &key.thumbprint());
    }
    if !grant.resource.is_empty() {
        query.append_pair("resource", &grant.resource);
    }
    if !grant.scopes.is_empty() {
        query.append_pair("scope", &grant.scopes.join(" "));
    }
    drop(query);
    url
}

/// Returns the authorization code if it is from the expected issuer (RFC 9207). The state has been checked before.
pub(crate) fn code_of(
    redirected: Redirected,
    issuer: &str,
    names_itself: bool,
) -> Result<String, LoginError> {
    match &redirected.iss {
        Some(iss) if iss != issuer => return Err(LoginError::MixedUp),
        None if names_itself => return Err(LoginError::MixedUp),
        _ => {}
    }
    if let Some(error) = redirected.error {
        let description = redirected.error_description.unwrap_or_default();
        return Err(LoginError::Denied(cut(
            format!("{error} {description}").trim()
        )));
    }
    redirected.code.ok_or(LoginError::NoCode)
}

/// Returns 256 random bits as text.
pub(crate) fn secret_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(iss: Option<&str>, error: Option<&str>) -> Redirected {
        Redirected {
            code: Some("code".to_owned()),
            iss: iss.map(str::to_owned),
            error: error.map(str::to_owned),
            ..Redirected::default()
        }
    }

    /// RFC 9207, 2.4.
    #[test]
    fn a_code_of_another_issuer_is_not_used_and_nothing_that_it_says() {
        let code = |redirected, promises| code_of(redirected, "https://a.example", promises);
        assert!(code(back(None, None), false).is_ok());
        assert!(code(back(Some("https://a.example"), None), false).is_ok());
        assert!(code(back(Some("https://a.example"), None), true).is_ok());
        for (iss, promises) in [
            (None, true),
            (Some("https://a.example/"), true),
            (Some("https://b.example"), false),
        ] {
            for error in [None, Some("login_required")] {
                let refused = code(back(iss, error), promises);
                assert!(
                    matches!(refused, Err(LoginError::MixedUp)),
                    "{iss:?} {error:?}"
                );
            }
        }
        let denied = code(back(None, Some("access_denied\u{1b}[2J")), false);
        let denied = denied.expect_err("denied").to_string();
        assert_eq!(denied, "the issuer rejected the login: access_denied[2J");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_is_that_of_the_whole_login() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        let folder = tempfile::tempdir().expect("a folder");
        let request = LoginRequest {
            server: format!("http://{address}/mcp").parse().expect("a URL"),
            tokens: Tokens::in_folder(folder.path().to_owned()),
            client_id: None,
            client_secret: None,
            client_metadata: None,
            issuer: None,
            scopes: Vec::new(),
            port: 0,
            networks: Vec::new(),
            patience: Duration::from_secs(2),
        };
        let done = log_in(&request, |_| ()).await.map(drop);
        assert!(matches!(done, Err(LoginError::Timeout(2))), "{done:?}");
    }

    #[test]
    fn a_verifier_is_never_in_the_url() {
        let grant = Grant {
            client_id: "me".to_owned(),
            client_secret: Some("s3cret".to_owned()),
            resource: "https://b.example/mcp".to_owned(),
            ..Grant::default()
        };
        let url = "https://a.example/authorize?x=1".parse().expect("a URL");
        let redirect = "http://127.0.0.1:1/callback";
        let url = authorization_url(url, &grant, redirect, "verifier", "state");
        let text = url.as_str();
        assert!(
            text.starts_with("https://a.example/authorize?x=1&response_type=code&client_id=me&")
        );
        assert!(!text.contains("verifier") && !text.contains("s3cret") && !text.contains("scope="));
        // The example of RFC 7636, appendix B, would be another; this is its formula.
        let challenge = sha256_base64url("verifier");
        assert!(text.contains(&format!(
            "code_challenge={challenge}&code_challenge_method=S256"
        )));
    }
}
