//! Tokens that an issuer gives to this program.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::{
    CredentialError, OAuthConfig, TOKEN_BYTES, basic_value, bearer_value, read_answer, read_token,
    write_secret,
};
use crate::environment::Secret;
use crate::net::{Client, Deadlines, Guard, Outgoing};
use crate::state::SharedState;

/// Tokens from an issuer, one at a time.
pub(in crate::source) struct OAuth {
    config: OAuthConfig,
    url: Url,
    client: Client,
    token: Mutex<Option<Token>>,
    /// The refresh token that is good now, once the issuer has given another than the configured one.
    refresh: std::sync::Mutex<Option<Secret>>,
    /// Where that is kept, if replicas share it.
    shared: SharedTokens,
    /// It could not be kept there: what is there is older.
    unkept: AtomicBool,
}

/// The state in which replicas keep refresh tokens. It is there once the server has one; sources are read before that.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTokens(Arc<OnceLock<SharedState>>);

impl SharedTokens {
    /// From now on they are there.
    pub(crate) fn are_in(&self, state: SharedState) {
        // There is one state for as long as the process serves.
        let _ = self.0.set(state);
    }
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
    refresh_token: Option<Secret>,
}

/// Where the issuer does not say how long a token is good.
const TOKEN_LIFE: Duration = Duration::from_secs(300);
/// So long before it expires a token is got anew.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refresh token is kept that nobody uses.
const SHARED_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// Longer than it takes to ask an issuer and the state.
const LOCK_LIFE: Duration = Duration::from_secs(15);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

impl OAuth {
    pub(super) fn new(config: &OAuthConfig) -> Result<Self, String> {
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
        if config.refresh_token.is_some() && config.subject_token_file.is_some() {
            return Err(
                "oauth has a refresh_token and a subject_token_file; keep one of them".to_owned(),
            );
        }
        if (config.store.is_some() || config.share) && config.refresh_token.is_none() {
            return Err(
                "oauth.store and oauth.share keep refresh tokens; give the first one".to_owned(),
            );
        }
        if config.store.is_some() && config.share {
            return Err("oauth has a store and share; keep one of them".to_owned());
        }
        if config.client_secret.is_none()
            && config.refresh_token.is_none()
            && config.subject_token_file.is_none()
        {
            return Err(
                "oauth needs a client_secret, a refresh_token or a subject_token_file".to_owned(),
            );
        }
        let oauth = Self {
            config: config.clone(),
            url,
            client,
            token: Mutex::new(None),
            refresh: std::sync::Mutex::new(None),
            shared: SharedTokens::default(),
            unkept: AtomicBool::new(false),
        };
        *oauth.refresh() = oauth.stored()?;
        Ok(oauth)
    }

    fn refresh(&self) -> std::sync::MutexGuard<'_, Option<Secret>> {
        self.refresh
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn share(&mut self, tokens: SharedTokens) {
        self.shared = tokens;
    }

    /// Stands for the refresh tokens of one issuer, client, resource, and token to begin with.
    fn chain(&self) -> Option<String> {
        let config = &self.config;
        let first = config.refresh_token.as_ref()?;
        let mut hash = Sha256::new();
        let resource = config.resource.as_deref().unwrap_or_default();
        for part in [
            self.url.as_str(),
            &config.client_id,
            resource,
            first.expose(),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Some(HEXLOWER.encode(&hash.finalize()))
    }

    /// The file that the refresh token is kept in.
    fn store(&self) -> Option<PathBuf> {
        let folder = self.config.store.as_ref()?;
        let host = self.url.host_str().unwrap_or("issuer");
        let chain = self.chain()?;
        Some(folder.join(format!("{host}-{}.token", &chain[..16])))
    }

    fn stored(&self) -> Result<Option<Secret>, String> {
        let Some(file) = self.store() else {
            return Ok(None);
        };
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("oauth.store {}: {error}", folder.display()))?;
        }
        match read_token(&file) {
            Ok(token) => Ok(Some(Secret::from(token))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("oauth.store {}: {error}", file.display())),
        }
    }

    /// Keeps a refresh token that the issuer has given instead of the one before.
    fn keep(&self, token: Secret) {
        if let Some(file) = self.store()
            && let Err(error) = write_secret(&file, token.expose())
        {
            tracing::warn!(file = %file.display(), %error, "a refresh token cannot be kept: after a restart the one before it is used");
        }
        *self.refresh() = Some(token);
    }

    /// A token that is good for a while. Those who ask while one is being got wait for it.
    pub(super) async fn token(&self) -> Result<HeaderValue, CredentialError> {
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

    /// A token was not accepted.
    pub(super) async fn refused(&self, used: Option<&HeaderValue>) {
        let mut token = self.token.lock().await;
        // Another call may have got a new one already.
        if token.as_ref().map(|token| &token.value) == used {
            *token = None;
        }
    }

    /// What the issuer is asked.
    fn request(&self) -> Result<Outgoing, CredentialError> {
        let config = &self.config;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        if let Some(first) = &config.refresh_token {
            let newer = self.refresh().clone();
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", newer.as_ref().unwrap_or(first).expose());
        } else if let Some(file) = &config.subject_token_file {
            let subject = read_token(file).map_err(CredentialError::File)?;
            let kind = config.subject_token_type.as_deref();
            form.append_pair("grant_type", TOKEN_EXCHANGE);
            form.append_pair("subject_token", &subject);
            form.append_pair("subject_token_type", kind.unwrap_or(JWT));
            form.append_pair("requested_token_type", ACCESS_TOKEN);
        } else {
            form.append_pair("grant_type", "client_credentials");
        }
        if !config.scopes.is_empty() {
            form.append_pair("scope", &config.scopes.join(" "));
        }
        if let Some(audience) = &config.audience {
            form.append_pair("audience", audience);
        }
        if let Some(resource) = &config.resource {
            form.append_pair("resource", resource);
        }
        let proof = match &config.client_secret {
            Some(secret) => {
                // RFC 6749, 2.3.1: both are form-encoded before they become a name and a password.
                let encode = |text: &str| {
                    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
                };
                let proof = basic_value(&encode(&config.client_id), &encode(secret.expose()));
                Some(proof.map_err(|_| CredentialError::NotText)?)
            }
            None => {
                form.append_pair("client_id", &config.client_id);
                None
            }
        };
        let request = Outgoing::post(
            self.url.clone(),
            "application/x-www-form-urlencoded",
            form.finish(),
        )
        .header(
            http::header::ACCEPT,
            HeaderValue::from_static("application/json"),
        );
        Ok(match proof {
            Some(proof) => request.header(AUTHORIZATION, proof),
            None => request,
        })
    }

    async fn fetch(&self) -> Result<Token, CredentialError> {
        if !self.config.share {
            return self.ask().await;
        }
        let state = self.shared.0.get().ok_or(CredentialError::NoState)?;
        let chain = self.chain().unwrap_or_default();
        let (key, lock) = (
            format!("oauth:token:{chain}"),
            format!("oauth:lock:{chain}"),
        );
        let lock = Lock::take(state, lock).await?;
        let asked = self.ask_in_turn(state, &key).await;
        lock.give_back().await;
        asked
    }

    /// Asks with what replicas have, and leaves them what comes instead.
    async fn ask_in_turn(&self, state: &SharedState, key: &str) -> Result<Token, CredentialError> {
        let before = self.refresh().clone();
        match &before {
            Some(newest) if self.unkept.load(Ordering::Relaxed) => {
                state.put(key, kept(newest), SHARED_LIFE).await?;
                self.unkept.store(false, Ordering::Relaxed);
            }
            _ => {
                if let Some(found) = state.get(key).await? {
                    let found = std::str::from_utf8(&found);
                    *self.refresh() = found.ok().map(|token| Secret::from(token.to_owned()));
                }
            }
        }
        let used = self.refresh().clone();
        let token = self.ask().await?;
        let newest = self.refresh().clone();
        if let Some(newest) = newest.filter(|newest| used.as_ref() != Some(newest))
            && let Err(error) = state.put(key, kept(&newest), SHARED_LIFE).await
        {
            self.unkept.store(true, Ordering::Relaxed);
            tracing::warn!(%error, "a refresh token cannot be shared: other replicas have the one before it until it can");
        }
        Ok(token)
    }

    /// Asks the issuer.
    async fn ask(&self) -> Result<Token, CredentialError> {
        let request = self.request()?;
        let answer: TokenAnswer = read_answer(&self.client.fetch(request).await?)?;
        let value = bearer_value(&answer.access_token).map_err(|_| CredentialError::NoToken)?;
        if let Some(newer) = answer.refresh_token
            && self.config.refresh_token.is_some()
        {
            self.keep(newer);
        }
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

const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

fn kept(token: &Secret) -> Bytes {
    Bytes::copy_from_slice(token.expose().as_bytes())
}

/// The right to get a token, which one replica has at a time.
struct Lock<'s> {
    state: &'s SharedState,
    key: String,
}

impl<'s> Lock<'s> {
    /// Waits for it, as long as it takes somebody to get a token.
    async fn take(state: &'s SharedState, key: String) -> Result<Self, CredentialError> {
        let until = Instant::now() + LOCK_LIFE;
        loop {
            if state.put_if_absent(&key, Bytes::new(), LOCK_LIFE).await? {
                return Ok(Self { state, key });
            }
            if until <= Instant::now() {
                return Err(CredentialError::Busy);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }

    /// Whoever does not come to this holds up others for no longer than its life.
    async fn give_back(self) {
        if let Err(error) = self.state.remove(&self.key).await {
            tracing::debug!(%error, "others wait a little for their turn to get a token");
        }
    }
}
