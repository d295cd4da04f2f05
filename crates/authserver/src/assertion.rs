//! Identity assertions (ID-JAG): the provider vouches for a user to a client that the organization knows, and the user does
//! not log in here.
//!
//! Source: draft-ietf-oauth-identity-assertion-authz-grant, and the MCP extension
//! `io.modelcontextprotocol/enterprise-managed-authorization`.

use std::time::Duration;

use serde_json::{Map, Value};

use super::client::Client;
use super::error::OAuthError;
use super::form::{PARAMETERS_MAX_BYTES, Parameters};
use super::server::AuthorizationServer;
use super::text::{distinct, random_text};
use super::token::{Grant, away};
use crate::auth::DpopProof;
use crate::seal::sha256_base64url;

/// Maximum length of an assertion's unique ID, in bytes.
const ID_MAX_BYTES: usize = 256;

impl AuthorizationServer {
    /// Exchanges an identity assertion for an access token. There is no refresh token: the client requests another assertion.
    pub(super) async fn accept_assertion(
        &self,
        client: &Client,
        parameters: &Parameters,
        proof: Option<&DpopProof>,
        now: u64,
    ) -> Result<Value, OAuthError> {
        if !client.is_confidential() {
            return Err(OAuthError::new(
                "unauthorized_client",
                "identity assertions are accepted from clients of auth.oauth.facade.clients that have a secret",
            ));
        }
        let assertion = parameters.required("assertion", PARAMETERS_MAX_BYTES)?;
        let audiences = [self.issuer.clone(), format!("{}/", self.issuer)];
        let verified = self
            .provider
            .verify_assertion(assertion, &audiences, &client.id);
        let (claims, user) = verified.await?;
        self.check_allowed(&user)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let resource = self.resource(Some(resource_of(&claims)?));
        let resource = resource.map_err(|_| {
            OAuthError::invalid_grant("resource of the assertion is not an endpoint of this server")
        })?;
        self.check_resource(
            parameters,
            &resource,
            "resource differs from that of the assertion",
        )?;
        let scopes = self.granted_scopes(text("scope"), parameters.get("scope"));
        let id = text("jti").filter(|id| (1..=ID_MAX_BYTES).contains(&id.len()));
        let id = id.ok_or(OAuthError::invalid_grant(
            "jti of the assertion is missing or longer than 256 bytes",
        ))?;
        self.use_proof(proof, &user).await?;
        let expires = claims.get("exp").and_then(Value::as_u64).unwrap_or(now);
        // Longer than it is accepted, with the tolerated difference between clocks.
        let life = Duration::from_secs(expires.saturating_sub(now) + 120);
        if !self
            .once
            .use_assertion(&sha256_base64url(id), life)
            .await
            .map_err(away)?
        {
            return Err(OAuthError::invalid_grant("the assertion was used before"));
        }
        let grant = Grant {
            client_id: &client.id,
            user: &user,
            scopes: &scopes,
            resource: &resource,
            login: &random_text(),
            authenticated: claims
                .get("auth_time")
                .and_then(Value::as_u64)
                .unwrap_or(now),
            thumbprint: proof.map(|proof| proof.thumbprint.as_str()),
        };
        Ok(self.issue_access(&grant, now, self.config.access_seconds))
    }

    /// Returns the scopes of an assertion that this server offers, narrowed to those of the request.
    fn granted_scopes(&self, granted: Option<&str>, requested: Option<&str>) -> Vec<String> {
        let is_requested = |scope: &str| {
            requested.is_none_or(|list| list.split_ascii_whitespace().any(|one| one == scope))
        };
        let offer = self.offer.load();
        let mut granted = distinct(granted.unwrap_or_default());
        granted.retain(|scope| offer.scopes.contains(scope) && is_requested(scope));
        granted
    }
}

/// Returns the resource of an assertion: one, as a text or in a list.
fn resource_of(claims: &Map<String, Value>) -> Result<&str, OAuthError> {
    let only = match claims.get("resource") {
        Some(Value::Array(list)) => match &list[..] {
            [only] => only.as_str(),
            _ => None,
        },
        Some(resource) => resource.as_str(),
        None => None,
    };
    only.ok_or(OAuthError::invalid_grant(
        "the assertion does not name one resource",
    ))
}
