//! ID tokens of OpenID Connect, for the authorization server that logs users in at a provider.

use serde_json::{Map, Value};

use super::keys::{KeySet, KeySetError};
use super::strict_json;
use super::token::{ClaimRequirements, IDENTITY_ASSERTION, Token, TokenError, UNKNOWN_KEY};

/// Public keys of an OpenID provider.
#[derive(Debug, Default)]
pub struct IssuerKeys(KeySet);

/// Reason why the keys of a provider cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct IssuerKeysError(KeySetError);

/// Requirements for an ID token.
#[derive(Clone, Copy, Debug)]
pub struct IdTokenDemands<'d> {
    pub issuers: &'d [String],
    pub client_id: &'d str,
    pub nonce: &'d str,
    /// Current time, in seconds of Unix time.
    pub now: u64,
    /// Tolerated difference between clocks, in seconds.
    pub leeway: u64,
}

/// Reason why an ID token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdTokenFault(TokenError);

impl IdTokenFault {
    /// Returns true if newer keys of the provider may verify the token.
    pub fn is_unknown_key(self) -> bool {
        self.0 == UNKNOWN_KEY
    }

    pub fn text(self) -> &'static str {
        self.0.0
    }
}

impl IssuerKeys {
    /// Reads a JWK set.
    ///
    /// # Errors
    ///
    /// It is not a JWK set, or has no key that can verify a signature.
    pub fn read(text: &[u8]) -> Result<Self, IssuerKeysError> {
        KeySet::read(text).map(Self).map_err(IssuerKeysError)
    }
}

/// Verifies an ID token and returns its claims (OpenID Connect Core, section 3.1.3.7).
///
/// # Errors
///
/// The signature or a claim is not valid.
pub fn verify_id_token(
    text: &str,
    keys: &IssuerKeys,
    demands: &IdTokenDemands<'_>,
) -> Result<Map<String, Value>, IdTokenFault> {
    let fault = |text| IdTokenFault(TokenError(text));
    let token = Token::read(text).map_err(IdTokenFault)?;
    token.check_signature(&keys.0).map_err(IdTokenFault)?;
    let audiences = [demands.client_id.to_owned()];
    let checked = token.check_claims(ClaimRequirements {
        issuers: demands.issuers,
        audiences: &audiences,
        audience_claim: "aud",
        now: demands.now,
        leeway: demands.leeway,
    });
    checked.map_err(IdTokenFault)?;
    let claims = token.into_claims();
    let text_of = |name: &str| claims.get(name).and_then(Value::as_str);
    if text_of("nonce") != Some(demands.nonce) {
        return Err(fault("the nonce of the ID token is that of another login"));
    }
    let authorized = claims.get("azp").is_none_or(|azp| azp == demands.client_id);
    let is_only_for_us = !matches!(claims.get("aud"), Some(Value::Array(list)) if list.len() > 1);
    if !authorized || (!is_only_for_us && !claims.contains_key("azp")) {
        return Err(fault("the ID token was issued to another client"));
    }
    Ok(claims)
}

/// Requirements for an identity assertion (ID-JAG).
#[derive(Clone, Copy, Debug)]
pub struct AssertionDemands<'d> {
    pub issuers: &'d [String],
    /// Names of the authorization server that the assertion is for.
    pub audiences: &'d [String],
    /// The client that shows the assertion.
    pub client_id: &'d str,
    /// Current time, in seconds of Unix time.
    pub now: u64,
    /// Tolerated difference between clocks, in seconds.
    pub leeway: u64,
}

/// Verifies an identity assertion and returns its claims (draft-ietf-oauth-identity-assertion-authz-grant; RFC 7523,
/// section 3).
///
/// # Errors
///
/// The signature or a claim is not valid.
pub fn verify_identity_assertion(
    text: &str,
    keys: &IssuerKeys,
    demands: &AssertionDemands<'_>,
) -> Result<Map<String, Value>, IdTokenFault> {
    /// Maximum validity, so that the record of used assertions is bounded.
    const VALID_SECONDS: u64 = 3600;
    let fault = |text| IdTokenFault(TokenError(text));
    let token = Token::read_of_type(text, IDENTITY_ASSERTION).map_err(IdTokenFault)?;
    token.check_signature(&keys.0).map_err(IdTokenFault)?;
    let checked = token.check_claims(ClaimRequirements {
        issuers: demands.issuers,
        audiences: demands.audiences,
        audience_claim: "aud",
        now: demands.now,
        leeway: demands.leeway,
    });
    checked.map_err(IdTokenFault)?;
    if demands.now + VALID_SECONDS < token.expires() {
        return Err(fault("the assertion is valid for more than an hour"));
    }
    if matches!(token.claims().get("aud"), Some(Value::Array(list)) if list.len() > 1) {
        return Err(fault("the assertion has more than one audience"));
    }
    let claims = token.into_claims();
    if claims.get("client_id").and_then(Value::as_str) != Some(demands.client_id) {
        return Err(fault(
            "client_id of the assertion is not the client that shows it",
        ));
    }
    Ok(claims)
}

/// Reads a JSON object that has no member twice and is not nested too deep.
pub fn strict_object(text: &[u8]) -> Option<Map<String, Value>> {
    strict_json::object(text)
}
