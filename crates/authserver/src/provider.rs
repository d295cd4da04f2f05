//! The identity provider: its metadata, its login page, and who it says logged in.
//!
//! A provider speaks OpenID Connect, whose ID token names the user, or plain OAuth 2, where the user is asked for with the
//! access token (GitHub). Its tokens are used here and dropped.

mod documents;
mod user;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use self::documents::{FailedFetch, ProviderDocuments};
use super::error::OAuthError;
use super::sealed::User;
use crate::auth::{
    AssertionDemands, FacadeConfig, FacadeSetupError, IdTokenDemands, Preset, ProviderKind,
    strict_object, verify_id_token, verify_identity_assertion,
};
use crate::environment::{Secret, unix_seconds};
use crate::net::{Client, FetchedResponse, OutgoingRequest};
use crate::seal::sha256_base64url;

/// Issuer that GitHub names in its responses (RFC 9207).
const GITHUB_ISSUER: &str = "https://github.com/login/oauth";
/// Tolerated difference between clocks, in seconds.
const LEEWAY_SECONDS: u64 = 60;
/// Maximum length of a claim that becomes a part of our tokens, in bytes.
const CLAIM_MAX_BYTES: usize = 256;
/// Maximum size of all groups of a user together, in bytes.
const GROUPS_MAX_BYTES: usize = 2048;

/// The identity provider.
#[derive(Debug)]
pub(super) struct Provider {
    /// The issuer as it names itself; for plain OAuth, the origin of the provider.
    issuer: String,
    host: String,
    kind: ProviderKind,
    preset: Preset,
    client_id: String,
    client_secret: Secret,
    scopes: Vec<String>,
    group_claims: Vec<String>,
    /// Groups that are kept. Empty for all.
    groups: Vec<String>,
    web: Client,
    known: ArcSwapOption<ProviderDocuments>,
    /// Held by the one request that fetches. Holds the latest failure.
    fetching: Mutex<Option<FailedFetch>>,
    /// True if the userinfo endpoint did not return the last user. Changes are logged.
    has_no_user_info: AtomicBool,
}

impl Provider {
    pub(super) fn new(config: &FacadeConfig, web: Client) -> Result<Self, FacadeSetupError> {
        let checked = config.provider()?;
        let host = checked.url.host_str().unwrap_or_default().to_owned();
        Ok(Self {
            issuer: checked.issuer,
            host,
            kind: checked.kind,
            preset: checked.preset,
            client_id: checked.client_id,
            client_secret: checked.client_secret,
            scopes: checked.scopes,
            group_claims: checked.group_claims,
            groups: config.groups.clone(),
            web,
            known: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            has_no_user_info: AtomicBool::new(false),
        })
    }

    /// The host, to show to people.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the URL of the provider's login page for one login.
    pub(super) async fn authorization_url(
        &self,
        callback: &str,
        state: &str,
        nonce: &str,
        verifier: &str,
    ) -> Result<Url, OAuthError> {
        let known = self.known().await?;
        let mut url = known.authorization.clone();
        let challenge = sha256_base64url(verifier);
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &self.client_id)
                .append_pair("redirect_uri", callback)
                .append_pair("scope", &self.scopes.join(" "))
                .append_pair("state", state)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256");
            if matches!(self.kind, ProviderKind::OpenId) {
                query.append_pair("nonce", nonce);
            }
        }
        Ok(url)
    }

    /// Checks `iss` of an authorization response (RFC 9207, section 2.4).
    pub(super) async fn check_issuer(&self, shown: Option<&str>) -> Result<(), OAuthError> {
        let mixed_up = || OAuthError::access_denied("the response is from another issuer");
        let own = match self.kind {
            ProviderKind::OpenId => &*self.issuer,
            ProviderKind::Plain => GITHUB_ISSUER,
        };
        match shown {
            Some(shown) if shown != own => Err(mixed_up()),
            Some(_) => Ok(()),
            None if self.known().await?.sends_issuer => Err(mixed_up()),
            None => Ok(()),
        }
    }

    /// Exchanges the provider's code and returns the user.
    pub(super) async fn redeem(
        &self,
        code: &str,
        callback: &str,
        verifier: &str,
        nonce: &str,
    ) -> Result<User, OAuthError> {
        let known = self.known().await?;
        let form = self.code_form(&known, code, callback, verifier);
        let mut request = OutgoingRequest::post(
            known.token.clone(),
            "application/x-www-form-urlencoded",
            form,
        )
        .header(ACCEPT, HeaderValue::from_static("application/json"));
        if known.basic {
            request = request.header(AUTHORIZATION, self.basic()?);
        }
        let answer = self.fetch(request, "token endpoint").await?;
        let found = strict_object(&answer.body).unwrap_or_default();
        let text = |name: &str| found.get(name).and_then(Value::as_str);
        if answer.status != StatusCode::OK || text("error").is_some() {
            tracing::warn!(
                provider = self.host,
                status = answer.status.as_u16(),
                error = text("error").map(|e| e.chars().take(60).collect::<String>()),
                "the identity provider rejected a code; check auth.oauth.facade.client_id and client_secret"
            );
            return Err(rejected());
        }
        match self.kind {
            ProviderKind::OpenId => {
                let token = text("id_token").ok_or_else(|| self.odd("it sent no ID token"))?;
                let claims = self.verify(&known, token, nonce).await?;
                let token = text("access_token");
                let claims = self.with_user_info(&known, claims, token).await;
                self.user_of(&claims)
            }
            ProviderKind::Plain => {
                let token = text("access_token").ok_or_else(|| self.odd("it sent no token"))?;
                let claims = self.ask_for_user(&known, token).await?;
                self.user_of(&claims)
            }
        }
    }

    fn code_form(
        &self,
        known: &ProviderDocuments,
        code: &str,
        callback: &str,
        verifier: &str,
    ) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", callback)
            .append_pair("code_verifier", verifier);
        if !known.basic {
            form.append_pair("client_id", &self.client_id)
                .append_pair("client_secret", self.client_secret.expose());
        }
        form.finish()
    }

    /// Verifies an ID token (OpenID Connect Core, section 3.1.3.7).
    async fn verify(
        &self,
        known: &Arc<ProviderDocuments>,
        token: &str,
        nonce: &str,
    ) -> Result<Map<String, Value>, OAuthError> {
        let demands = IdTokenDemands {
            issuers: &self.preset.issuer_names(&self.issuer),
            client_id: &self.client_id,
            nonce,
            now: unix_seconds(),
            leeway: LEEWAY_SECONDS,
        };
        let verified = match verify_id_token(token, &known.keys, &demands) {
            Err(fault) if fault.is_unknown_key() => {
                let newer = self.newer_keys(known).await?;
                verify_id_token(token, &newer.keys, &demands)
            }
            verified => verified,
        };
        verified.map_err(|fault| self.odd(fault.text()))
    }

    /// Verifies an identity assertion of the provider. Returns its claims, and the user that it names.
    pub(super) async fn verify_assertion(
        &self,
        assertion: &str,
        audiences: &[String],
        client_id: &str,
    ) -> Result<(Map<String, Value>, User), OAuthError> {
        let known = self.known().await?;
        let issuers = self.preset.issuer_names(&self.issuer);
        let demands = AssertionDemands {
            issuers: &issuers,
            audiences,
            client_id,
            now: unix_seconds(),
            leeway: LEEWAY_SECONDS,
        };
        let verified = match verify_identity_assertion(assertion, &known.keys, &demands) {
            Err(fault) if fault.is_unknown_key() => {
                let newer = self.newer_keys(&known).await?;
                verify_identity_assertion(assertion, &newer.keys, &demands)
            }
            verified => verified,
        };
        let claims = verified.map_err(|fault| {
            tracing::info!(
                provider = self.host,
                client = client_id,
                problem = fault.text(),
                "an identity assertion is not valid"
            );
            OAuthError::invalid_grant(fault.text())
        })?;
        let user = self.user_of(&claims)?;
        Ok((claims, user))
    }

    fn user_of(&self, claims: &Map<String, Value>) -> Result<User, OAuthError> {
        let text = |name: &str| {
            let text = claims.get(name).and_then(Value::as_str)?;
            let is_good = !text.is_empty() && text.len() <= CLAIM_MAX_BYTES;
            (is_good && !text.chars().any(char::is_control)).then(|| text.to_owned())
        };
        let subject = text("sub").ok_or_else(|| self.odd("it named no subject"))?;
        // An address that the user may have made up must not admit anybody.
        let is_verified = match claims.get("email_verified") {
            Some(Value::Bool(verified)) => *verified,
            // Some providers write it as text.
            Some(Value::String(verified)) => verified == "true",
            Some(_) => false,
            // These send no such claim: addresses of Entra are those of the tenant, and GitHub shows verified ones only.
            None => matches!(self.kind, ProviderKind::Plain) || self.preset == Preset::Entra,
        };
        let mut groups = Vec::new();
        for name in &self.group_claims {
            collect_words(claim(claims, name), &mut groups);
        }
        if !self.groups.is_empty() {
            groups.retain(|group| self.groups.contains(group));
        }
        groups.sort();
        groups.dedup();
        if GROUPS_MAX_BYTES < groups.iter().map(|group| group.len() + 3).sum() {
            tracing::warn!(
                "a user has more groups than fit into a token; list the groups that matter in auth.oauth.facade.groups"
            );
            return Err(OAuthError::access_denied(
                "the account has too many groups (auth.oauth.facade.groups)",
            ));
        }
        Ok(User {
            subject,
            name: text("name"),
            username: text("preferred_username"),
            email: text("email").filter(|_| is_verified),
            groups,
        })
    }

    async fn fetch(
        &self,
        request: OutgoingRequest,
        what: &'static str,
    ) -> Result<FetchedResponse, OAuthError> {
        self.web.fetch(request).await.map_err(|error| {
            tracing::warn!(provider = self.host, %error, "cannot reach the {what} of the identity provider");
            OAuthError::unavailable("the identity provider does not respond; try again")
        })
    }

    fn basic(&self) -> Result<HeaderValue, OAuthError> {
        // As forms encode it (RFC 6749, section 2.3.1). Some providers decode nothing, so no more than that is encoded.
        let encoded =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!(
            "{}:{}",
            encoded(&self.client_id),
            encoded(self.client_secret.expose())
        );
        let value = format!("Basic {}", STANDARD.encode(pair));
        let mut value = HeaderValue::from_str(&value).map_err(|_| rejected())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Logs the problem with the provider's response. The client receives only the fact that the login failed.
    fn odd(&self, problem: &str) -> OAuthError {
        tracing::warn!(
            provider = self.host,
            problem,
            "the identity provider's response cannot be used"
        );
        rejected()
    }
}

fn rejected() -> OAuthError {
    OAuthError::server_error(
        "the login at the identity provider failed; the server's log has the reason",
    )
}

/// Returns a claim by its name, or by the path to it.
fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    claim(claims.get(first)?.as_object()?, rest)
}

fn collect_words(value: Option<&Value>, words: &mut Vec<String>) {
    match value {
        Some(Value::String(word)) => words.push(word.clone()),
        Some(Value::Array(list)) => {
            words.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AllowConfig;
    use crate::net::Guard;

    /// RFC 9207, section 2.4. GitHub does not name its origin.
    #[tokio::test]
    async fn github_names_its_issuer_in_responses() {
        let config = FacadeConfig {
            provider: Some("https://github.com".to_owned()),
            client_id: Some("id".to_owned()),
            client_secret: Some("secret".to_owned().into()),
            allow: AllowConfig {
                anyone: true,
                ..AllowConfig::default()
            },
            ..FacadeConfig::default()
        };
        let web = Client::builder(Guard::public()).build().expect("a client");
        let provider = Provider::new(&config, web).expect("a provider");
        for (shown, is_own) in [
            (None, true),
            (Some("https://github.com/login/oauth"), true),
            (Some("https://github.com"), false),
            (Some("https://evil.example"), false),
        ] {
            let checked = provider.check_issuer(shown).await;
            assert_eq!(checked.is_ok(), is_own, "{shown:?}");
        }
    }

    #[test]
    fn credentials_are_encoded_as_in_a_form() {
        let config = FacadeConfig {
            provider: Some("https://id.example.com".to_owned()),
            client_id: Some("my-client_1.example".to_owned()),
            client_secret: Some("a b+c:d".to_owned().into()),
            ..FacadeConfig::default()
        };
        let web = Client::builder(Guard::public()).build().expect("a client");
        let provider = Provider::new(&config, web).expect("a provider");
        let value = provider.basic().expect("a header");
        let encoded = value.to_str().expect("ASCII").strip_prefix("Basic ");
        let decoded = STANDARD.decode(encoded.expect("Basic")).expect("base64");
        assert_eq!(decoded, b"my-client_1.example:a+b%2Bc%3Ad");
    }
}
