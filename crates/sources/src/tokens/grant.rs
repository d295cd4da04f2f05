//! Stored grant of an issuer: a token, its source, and the means to refresh it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use url::Url;

use super::KeepError;
use crate::environment::seconds_since_1970;
use crate::net::{Client, FetchedResponse, Guard, OutgoingRequest};
use crate::source::credentials::{
    CredentialError, DpopKey, issuer_client, read_answer, token_request,
};

/// Stored data of one grant. It is sent only to the issuer that granted it and to the server that it is for.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The server that the token is for, as given at login.
    #[serde(default)]
    pub server: String,
    /// Resource identifier of the server: the `resource` of RFC 8707.
    pub resource: String,
    /// URL of the issuer.
    pub issuer: String,
    pub(crate) token_endpoint: String,
    pub(crate) revocation_endpoint: Option<String>,
    pub client_id: String,
    pub client_secret: Option<String>,
    /// Sends the client secret in the form instead of a header.
    #[serde(default)]
    pub(crate) secret_in_form: bool,
    /// Empty before the first token was requested.
    pub(crate) access_token: String,
    /// Expiry in seconds since 1970; `None` if the issuer did not state one.
    pub(crate) expires: Option<u64>,
    /// Time before expiry at which the token is refreshed, in seconds.
    #[serde(default = "margin")]
    pub(crate) margin: u64,
    pub refresh_token: Option<String>,
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Scopes of earlier `insufficient_scope` errors. The next login requests them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// Non-public networks in which the issuer is allowed.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// True if the configuration names the endpoints, so that they can be anywhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_configured: bool,
    /// The user whose own login it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Private key to which the issuer is asked to bind tokens (RFC 9449): PKCS #8 in base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dpop_key: Option<String>,
    /// True if the access token is bound to that key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_bound: bool,
}

impl fmt::Debug for Grant {
    /// Omits tokens and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("resource", &self.resource)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// Grants of several issuers for the same server, the latest last.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    grants: Vec<Grant>,
}

/// Maximum number of issuers with a login for one server.
const ISSUERS_MAX: usize = 8;

impl Grants {
    /// Parses stored grants.
    ///
    /// # Errors
    ///
    /// The data has another format.
    pub(super) fn read(text: &[u8]) -> Result<Self, KeepError> {
        // The parser's message could quote the tokens.
        serde_json::from_slice(text).map_err(|_| KeepError::Foreign)
    }

    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Returns the grant of this issuer; without a name, the latest one.
    pub fn of(&self, issuer: Option<&str>) -> Option<&Grant> {
        let is_meant =
            |grant: &&Grant| issuer.is_none_or(|issuer| is_same_issuer(&grant.issuer, issuer));
        self.grants.iter().rev().find(is_meant)
    }

    /// Replaces the earlier grant of the same issuer, in the same position.
    pub(super) fn renew(&mut self, grant: Grant) {
        match self
            .grants
            .iter_mut()
            .find(|old| old.issuer == grant.issuer)
        {
            Some(old) => *old = grant,
            None => self.add(grant),
        }
    }

    /// Replaces the earlier grant of the same issuer, and makes this one the latest.
    pub(super) fn add(&mut self, grant: Grant) {
        self.remove(&grant.issuer);
        self.grants.push(grant);
        let surplus = self.grants.len().saturating_sub(ISSUERS_MAX);
        self.grants.drain(..surplus);
    }

    pub(super) fn remove(&mut self, issuer: &str) {
        self.grants
            .retain(|grant| !is_same_issuer(&grant.issuer, issuer));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter()
    }

    /// Returns the time at which the last of them expires; `None` if unknown.
    pub(super) fn end(&self) -> Option<SystemTime> {
        let ends = self.grants.iter().map(|grant| match grant.refresh_token {
            Some(_) => None,
            None => grant.expires,
        });
        let ends: Option<Vec<u64>> = ends.collect();
        let last = ends?.into_iter().max()?;
        UNIX_EPOCH.checked_add(Duration::from_secs(last))
    }

    /// Returns true if all have expired and cannot be refreshed.
    pub(super) fn are_over(&self, now: SystemTime) -> bool {
        self.grants.is_empty() || self.end().is_some_and(|end| end <= now)
    }
}

/// Maximum number of recorded missing scopes, and bytes of one.
const LACKING_MAX: usize = 64;
const SCOPE_BYTES: usize = 256;

/// Compares two issuer URLs, ignoring a trailing slash.
pub(crate) fn is_same_issuer(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Response to a token request.
#[derive(Deserialize)]
pub struct Granted {
    pub(crate) access_token: String,
    pub(crate) token_type: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    pub(crate) expires_in: Option<f64>,
    #[serde(default, deserialize_with = "filled")]
    pub refresh_token: Option<String>,
    #[serde(default, deserialize_with = "words")]
    pub scope: Option<String>,
}

/// Reads a number of seconds. Some issuers write it as a string.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

/// Reads a string that is absent if it is empty.
fn filled<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// Reads words. Some issuers write them as a list.
fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => Some(text),
        Value::Array(list) => {
            let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            Some(words.join(" "))
        }
        _ => None,
    })
}

impl Granted {
    /// Returns true if the token is bound to the key that signed the request.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_of_type("dpop")
    }

    /// Returns true if the token can be used: a bearer token or, if the request was signed with a key, one that is bound to it.
    pub(crate) fn is_usable(&self, is_signed: bool) -> bool {
        let is_bearer = self.is_of_type("") || self.is_of_type("bearer");
        self.has_token() && (is_bearer || (is_signed && self.is_bound()))
    }

    /// Returns true if there is a token that a header can hold.
    pub(crate) fn has_token(&self) -> bool {
        let token = self.access_token.as_bytes();
        !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
    }

    fn is_of_type(&self, kind: &str) -> bool {
        let known = self.token_type.as_deref().unwrap_or_default();
        known.eq_ignore_ascii_case(kind)
    }
}

/// Returns the default time before expiry at which a token is refreshed, in seconds.
fn margin() -> u64 {
    30
}

impl Grant {
    /// Returns true if the token is not due for a refresh.
    pub(crate) fn is_fresh(&self, now: SystemTime) -> bool {
        let now = seconds_since_1970(now);
        !self.access_token.is_empty()
            && self
                .expires
                .is_none_or(|expires| now + self.margin < expires)
    }

    /// Returns true if the token has not expired.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        let now = seconds_since_1970(now);
        !self.access_token.is_empty() && self.expires.is_none_or(|expires| now < expires)
    }

    /// Records missing scopes, separated by spaces. Returns true if any is new.
    pub fn lacks(&mut self, scope: &str) -> bool {
        let before = self.lacking.len();
        for scope in scope.split_whitespace() {
            let is_known = |known: &[String]| known.iter().any(|known| known == scope);
            if self.lacking.len() < LACKING_MAX
                && scope.len() <= SCOPE_BYTES
                && !is_known(&self.lacking)
            {
                self.lacking.push(scope.to_owned());
            }
        }
        before < self.lacking.len()
    }

    /// Updates the grant with the issuer's response.
    pub fn take(&mut self, granted: Granted, now: SystemTime) {
        self.is_bound = granted.is_bound();
        self.access_token = granted.access_token;
        if granted.refresh_token.is_some() {
            self.refresh_token = granted.refresh_token;
        }
        // Without a refresh token, 0 means that the token does not expire (Mailchimp).
        let shortest = if self.refresh_token.is_some() {
            0.0
        } else {
            1.0
        };
        let life = granted
            .expires_in
            .filter(|seconds| seconds.is_finite() && shortest <= *seconds)
            .map(|seconds| seconds.min(1e9) as u64);
        self.expires = life.map(|life| seconds_since_1970(now) + life);
        self.margin = life.map_or(margin(), |life| margin().min(life / 2));
        if let Some(scope) = granted.scope {
            self.scopes = scope.split_whitespace().map(str::to_owned).collect();
        }
    }

    /// Requests another token with the refresh token (RFC 6749, 6).
    pub(crate) async fn refresh(&self) -> Result<Granted, CredentialError> {
        let refresh = self.refresh_token.as_deref();
        let refresh = refresh.ok_or(CredentialError::LoginEnded)?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        self.ask(&self.token_endpoint, &fields).await
    }

    /// Sends a form to the issuer, with the client's authentication and the resource.
    pub async fn ask(
        &self,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<Granted, CredentialError> {
        let answer = self.send(endpoint, fields).await?;
        let granted: Granted = read_answer(&answer)?;
        match granted.is_usable(self.dpop_key.is_some()) {
            true => Ok(granted),
            false => Err(CredentialError::NoToken),
        }
    }

    pub async fn send(
        &self,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<FetchedResponse, CredentialError> {
        let request = self.request(endpoint, fields)?;
        let client = match self.is_configured {
            true => issuer_client(Guard::public().trust(&request.url))?,
            false => {
                let server: Option<Url> = self.resource.parse().ok();
                client(&self.networks, server.as_ref())?
            }
        };
        match &self.dpop_key {
            Some(key) => DpopKey::read(key)?.fetch(&client, request).await,
            None => Ok(client.fetch(request).await?),
        }
    }

    fn request(
        &self,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<OutgoingRequest, CredentialError> {
        let endpoint: Url = endpoint.parse().map_err(|_| CredentialError::NoToken)?;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        if !self.resource.is_empty() {
            form.append_pair("resource", &self.resource);
        }
        let secret = self.client_secret.as_deref();
        let proof = (self.client_id.as_str(), secret, self.secret_in_form);
        token_request(endpoint, form, proof)
    }
}

/// Returns true for a URL on this machine, as in development, where `http` is allowed.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns a client for URLs from untrusted metadata. It allows public addresses over `https`, and the networks that
/// the user allowed at login. If the server itself is on this machine, its issuer can be too.
pub fn client(networks: &[IpNet], server: Option<&Url>) -> Result<Client, CredentialError> {
    let guard = match server {
        Some(server) if is_here(server) => Guard::public().allow_loopback(),
        Some(server) => Guard::public().https_only().trust(server),
        None => Guard::public().https_only(),
    };
    let guard = networks
        .iter()
        .fold(guard, |guard, network| guard.allow_network(*network));
    issuer_client(guard)
}
