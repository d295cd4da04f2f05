//! How this program proves itself to other servers: with what configuration holds, and with nothing of a caller's.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};
use memchr::memmem::Finder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::environment::Secret;
use crate::net::{Client, Deadlines, FetchError, Fetched, Guard, Outgoing};

/// How to prove oneself to another server: in one of these ways.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// A token, sent as `Authorization: Bearer`.
    pub bearer: Option<Secret>,
    /// A file that holds such a token. It is read again for every call, so that it may change.
    pub bearer_file: Option<PathBuf>,
    /// A name and a password.
    pub basic: Option<BasicConfig>,
    /// A header with a secret.
    pub header: Option<NamedSecret>,
    /// A parameter of the query with a secret.
    pub query: Option<NamedSecret>,
    /// A token that is got with OAuth's client credentials, and got anew before it expires.
    pub oauth: Option<OAuthConfig>,
}

/// A name and a password.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// A secret with a name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedSecret {
    /// The name of the header or parameter.
    pub name: String,
    /// The secret.
    pub value: Secret,
}

/// OAuth 2 with client credentials (RFC 6749, 4.4).
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuthConfig {
    /// Where tokens are got.
    pub token_url: String,
    /// Who we are.
    pub client_id: String,
    /// What proves it.
    pub client_secret: Secret,
    /// What the token is to allow.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Whom the token is for, where the issuer wants to be told (`audience`).
    #[serde(default)]
    pub audience: Option<String>,
    /// Whom the token is for, by RFC 8707 (`resource`).
    #[serde(default)]
    pub resource: Option<String>,
}

/// What is put into each request.
#[derive(Default)]
pub(super) enum Credentials {
    #[default]
    None,
    Header(HeaderName, HeaderValue),
    Query(String, Secret),
    BearerFile(PathBuf),
    OAuth(Box<OAuth>),
}

/// Why a request cannot be given what it needs to be accepted. The texts hold no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialError {
    #[error("the credentials for it cannot be read")]
    File(#[source] std::io::Error),
    #[error("the credentials for it are no text that a header can hold")]
    NotText,
    #[error("its issuer of tokens cannot be asked: {0}")]
    Fetch(#[from] FetchError),
    #[error("its issuer of tokens refuses: status {0}")]
    Refused(StatusCode),
    #[error("its issuer of tokens answers something else than a token")]
    NoToken,
}

impl Credentials {
    /// What a configuration describes.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to do.
    pub(super) fn new(config: &AuthConfig) -> Result<Self, String> {
        let AuthConfig {
            bearer,
            bearer_file,
            basic,
            header,
            query,
            oauth,
        } = config;
        let ways = [
            bearer.is_some(),
            bearer_file.is_some(),
            basic.is_some(),
            header.is_some(),
            query.is_some(),
            oauth.is_some(),
        ];
        if ways.iter().filter(|given| **given).count() > 1 {
            return Err("there is more than one way to prove oneself; keep one".to_owned());
        }
        if let Some(token) = bearer {
            return Ok(Self::Header(AUTHORIZATION, bearer_value(token.expose())?));
        }
        if let Some(path) = bearer_file {
            read_token(path).map_err(|e| format!("bearer_file {}: {e}", path.display()))?;
            return Ok(Self::BearerFile(path.clone()));
        }
        if let Some(basic) = basic {
            let value = basic_value(&basic.username, basic.password.expose())?;
            return Ok(Self::Header(AUTHORIZATION, value));
        }
        if let Some(named) = header {
            let name = HeaderName::try_from(&*named.name)
                .map_err(|_| format!("{:?} is no name of a header", named.name))?;
            return Ok(Self::Header(name, sensitive(named.value.expose())?));
        }
        if let Some(named) = query {
            return Ok(Self::Query(named.name.clone(), named.value.clone()));
        }
        match oauth {
            Some(config) => Ok(Self::OAuth(Box::new(OAuth::new(config)?))),
            None => Ok(Self::None),
        }
    }

    /// Puts them into a request.
    pub(super) async fn apply(&self, request: &mut Outgoing) -> Result<(), CredentialError> {
        match self {
            Self::None => {}
            Self::Header(name, value) => {
                request.headers.insert(name, value.clone());
            }
            Self::Query(name, value) => {
                request
                    .url
                    .query_pairs_mut()
                    .append_pair(name, value.expose());
            }
            Self::BearerFile(path) => {
                let token = read_token(path).map_err(CredentialError::File)?;
                let value = bearer_value(&token).map_err(|_| CredentialError::NotText)?;
                request.headers.insert(AUTHORIZATION, value);
            }
            Self::OAuth(oauth) => {
                let value = oauth.token().await?;
                request.headers.insert(AUTHORIZATION, value);
            }
        }
        Ok(())
    }

    /// Takes out of an answer what the request was proved with (ELI-08): some servers repeat what they were sent, and
    /// callers must not learn it. What is too short to be a secret is left as it is.
    pub(super) fn conceal(&self, request: &Outgoing, answer: &mut Fetched) {
        let secret = match self {
            Self::None => return,
            Self::Query(_, value) => value.expose().to_owned(),
            Self::Header(name, _) => bare(request.headers.get(name)),
            Self::BearerFile(_) | Self::OAuth(_) => bare(request.headers.get(AUTHORIZATION)),
        };
        if secret.len() < SECRET_MIN_BYTES {
            return;
        }
        let finder = Finder::new(&secret);
        if finder.find(&answer.body).is_some() {
            answer.body = without(&answer.body, &finder).into();
        }
        for value in answer.headers.values_mut() {
            if finder.find(value.as_bytes()).is_some()
                && let Ok(clean) = HeaderValue::from_bytes(&without(value.as_bytes(), &finder))
            {
                *value = clean;
            }
        }
    }

    /// The other server did not accept a request with status 401. Tells whether it is worth another try.
    pub(super) async fn refused(&self, request: &Outgoing) -> bool {
        match self {
            Self::OAuth(oauth) => {
                let mut token = oauth.token.lock().await;
                let used = request.headers.get(AUTHORIZATION);
                // Another call may have got a new one already.
                if token.as_ref().map(|token| &token.value) == used {
                    *token = None;
                }
                true
            }
            _ => false,
        }
    }
}

/// Shorter ones would be found where they are none.
const SECRET_MIN_BYTES: usize = 8;
/// What stands where a secret was.
const CONCEALED: &[u8] = b"***";

/// The secret in a header, without what says of which kind it is.
fn bare(value: Option<&HeaderValue>) -> String {
    let text = value.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let text = text.unwrap_or_default();
    let bare = ["Bearer ", "Basic "]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    bare.unwrap_or(text).to_owned()
}

fn without(text: &[u8], secret: &Finder<'_>) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut rest = 0;
    for at in secret.find_iter(text) {
        clean.extend_from_slice(&text[rest..at]);
        clean.extend_from_slice(CONCEALED);
        rest = at + secret.needle().len();
    }
    clean.extend_from_slice(&text[rest..]);
    clean
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Header(..) => "Header",
            Self::Query(..) => "Query",
            Self::BearerFile(_) => "BearerFile",
            Self::OAuth(_) => "OAuth",
        })
    }
}

/// Tokens from an issuer, one at a time.
pub(super) struct OAuth {
    config: OAuthConfig,
    url: Url,
    client: Client,
    token: Mutex<Option<Token>>,
}

struct Token {
    value: HeaderValue,
    /// When it is got anew.
    until: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: Option<f64>,
}

/// Where the issuer does not say how long a token is good.
const TOKEN_LIFE: Duration = Duration::from_secs(300);
/// So long before it expires a token is got anew.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
const TOKEN_BYTES: usize = 64 * 1024;
const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);

impl OAuth {
    fn new(config: &OAuthConfig) -> Result<Self, String> {
        let url: Url = config
            .token_url
            .parse()
            .map_err(|_| format!("token_url {:?} is no URL", config.token_url))?;
        let guard = Guard::public().trust(&url);
        guard
            .check_url(&url)
            .map_err(|e| format!("token_url: {e}"))?;
        let client = Client::builder(guard)
            .deadlines(Deadlines::total(ISSUER_TIMEOUT))
            .max_body(TOKEN_BYTES)
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self {
            config: config.clone(),
            url,
            client,
            token: Mutex::new(None),
        })
    }

    /// A token that is good for a while. Those who ask while one is being got wait for it.
    async fn token(&self) -> Result<HeaderValue, CredentialError> {
        let mut token = self.token.lock().await;
        if let Some(token) = &*token
            && Instant::now() < token.until
        {
            return Ok(token.value.clone());
        }
        let new = self.fetch().await?;
        let value = new.value.clone();
        *token = Some(new);
        Ok(value)
    }

    /// What the issuer is asked.
    fn request(&self) -> Result<Outgoing, CredentialError> {
        let config = &self.config;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !config.scopes.is_empty() {
            form.append_pair("scope", &config.scopes.join(" "));
        }
        if let Some(audience) = &config.audience {
            form.append_pair("audience", audience);
        }
        if let Some(resource) = &config.resource {
            form.append_pair("resource", resource);
        }
        // RFC 6749, 2.3.1: both are form-encoded before they become a name and a password.
        let encode =
            |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let proof = basic_value(
            &encode(&config.client_id),
            &encode(config.client_secret.expose()),
        )
        .map_err(|_| CredentialError::NotText)?;
        Ok(Outgoing::post(
            self.url.clone(),
            "application/x-www-form-urlencoded",
            form.finish(),
        )
        .header(AUTHORIZATION, proof)
        .header(
            http::header::ACCEPT,
            HeaderValue::from_static("application/json"),
        ))
    }

    async fn fetch(&self) -> Result<Token, CredentialError> {
        let request = self.request()?;
        let answer = self.client.fetch(request).await?;
        if answer.status != StatusCode::OK {
            return Err(CredentialError::Refused(answer.status));
        }
        let answer: TokenAnswer =
            serde_json::from_slice(&answer.body).map_err(|_| CredentialError::NoToken)?;
        let value = bearer_value(&answer.access_token).map_err(|_| CredentialError::NoToken)?;
        let life = answer
            .expires_in
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .unwrap_or(TOKEN_LIFE)
            .min(Duration::from_secs(24 * 3600));
        Ok(Token {
            value,
            until: Instant::now() + life.saturating_sub(TOKEN_MARGIN).max(life / 2),
        })
    }
}

/// The first line of a small file.
fn read_token(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(TOKEN_BYTES as u64)
        .read_to_string(&mut text)?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "there is nothing in it",
        ));
    }
    Ok(token.to_owned())
}

fn bearer_value(token: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("Bearer {token}"))
}

fn basic_value(username: &str, password: &str) -> Result<HeaderValue, String> {
    if username.contains(':') {
        return Err("a user name cannot have a colon".to_owned());
    }
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    sensitive(&format!("Basic {encoded}"))
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "the secret has characters that no header can hold".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
