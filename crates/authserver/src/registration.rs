//! Dynamic client registration (RFC 7591).

use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{CLIENT_ID_MAX_BYTES, display_name};
use super::error::OAuthError;
use super::redirect;
use super::sealed::{self, RegisteredClient};
use super::server::AuthorizationServer;
use crate::auth::strict_object;

/// Maximum number of redirect URIs of one client.
pub(super) const REDIRECT_URIS_MAX: usize = 10;
/// Maximum size of client metadata, in bytes. For documents, the draft recommends 5 KB.
pub(super) const METADATA_MAX_BYTES: usize = 16 * 1024;

/// Client metadata. Members that are not listed are ignored, as RFC 7591, section 2, asks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClientMetadata {
    pub(super) client_id: Option<String>,
    pub(super) client_name: Option<String>,
    pub(super) redirect_uris: Vec<String>,
    pub(super) grant_types: Option<Vec<String>>,
    pub(super) response_types: Option<Vec<String>>,
    pub(super) token_endpoint_auth_method: Option<String>,
    /// RFC 9449, section 5.2.
    pub(super) dpop_bound_access_tokens: bool,
}

impl ClientMetadata {
    /// Reads metadata: a JSON object of limited size that has no member twice.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        if METADATA_MAX_BYTES < body.len() {
            return Err("it is longer than 16 KiB".to_owned());
        }
        let object = strict_object(body).ok_or("it is not a JSON object with distinct members")?;
        serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
    }

    /// Checks what registrations and metadata documents have in common.
    pub(super) fn check(&self) -> Result<(), OAuthError> {
        let invalid = |text: String| OAuthError::new("invalid_client_metadata", text);
        if self.redirect_uris.is_empty() {
            return Err(OAuthError::new(
                "invalid_redirect_uri",
                "redirect_uris is missing or empty",
            ));
        }
        if REDIRECT_URIS_MAX < self.redirect_uris.len() {
            return Err(OAuthError::new(
                "invalid_redirect_uri",
                "redirect_uris has more than 10 entries",
            ));
        }
        for (at, uri) in self.redirect_uris.iter().enumerate() {
            if let Err(error) = redirect::check(uri) {
                let text = format!("redirect_uris[{at}]: {error}");
                return Err(OAuthError::new("invalid_redirect_uri", text));
            }
        }
        let has = |list: &Option<Vec<String>>, wanted: &str| {
            list.as_ref()
                .is_none_or(|list| list.iter().any(|one| one == wanted))
        };
        if !has(&self.grant_types, "authorization_code") {
            return Err(invalid(
                "grant_types must contain authorization_code".to_owned(),
            ));
        }
        if !has(&self.response_types, "code") {
            return Err(invalid("response_types must contain code".to_owned()));
        }
        Ok(())
    }
}

impl AuthorizationServer {
    /// Registers a client. Its ID is its sealed metadata, so nothing is stored.
    ///
    /// # Errors
    ///
    /// The metadata is not acceptable, or registration is off.
    pub(super) fn register(&self, body: &[u8], now: u64) -> Result<Value, OAuthError> {
        if !self.config.registration {
            return Err(OAuthError::access_denied(
                "dynamic client registration is off here",
            ));
        }
        let metadata = ClientMetadata::read(body).map_err(|problem| {
            let text = format!("the body is not valid client metadata: {problem}");
            OAuthError::new("invalid_client_metadata", text)
        })?;
        metadata.check()?;
        let client = RegisteredClient {
            name: display_name(metadata.client_name.as_deref().unwrap_or_default()),
            redirect_uris: metadata.redirect_uris,
            issued: now,
            is_dpop: metadata.dpop_bound_access_tokens,
        };
        let too_large = || {
            OAuthError::new(
                "invalid_client_metadata",
                "the name and the redirect URIs together are too long",
            )
        };
        let id = sealed::seal(&self.ring, &self.issuer, &client)
            .filter(|id| id.len() <= CLIENT_ID_MAX_BYTES)
            .ok_or_else(too_large)?;
        // Clients are public: what a client asked for otherwise is replaced (RFC 7591, section 3.2.1).
        Ok(json!({
            "client_id": id,
            "client_id_issued_at": now,
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "dpop_bound_access_tokens": client.is_dpop,
        }))
    }
}
