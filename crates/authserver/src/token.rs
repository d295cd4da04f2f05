//! The token endpoint and the revocation endpoint (RFC 6749, sections 4.1.3 and 6; RFC 7009; RFC 9068).

use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::client::{CLIENT_ID_MAX_BYTES, Client};
use super::endpoints::Form;
use super::error::OAuthError;
use super::form::{PARAMETERS_MAX_BYTES, Parameters, check_form};
use super::metadata::JWT_BEARER;
use super::once::Rotation;
use super::redirect::URI_MAX_BYTES;
use super::sealed::{self, Code, RefreshToken, User};
use super::server::AuthorizationServer;
use super::text::{distinct, random_text};
use crate::auth::{DpopProof, DpopRequest};
use crate::seal::sha256_base64url;
use crate::state::StateError;
use crate::telemetry::LogInterval;

/// Bounds of a PKCE verifier, in bytes (RFC 7636, section 4.1).
const VERIFIER: std::ops::RangeInclusive<usize> = 43..=128;
/// Time for which a used code is remembered, in seconds: longer than it is valid.
const CODE_REMEMBERED: Duration = Duration::from_secs(600);

/// Content of the tokens to issue.
pub(super) struct Grant<'g> {
    pub(super) client_id: &'g str,
    pub(super) user: &'g User,
    pub(super) scopes: &'g [String],
    pub(super) resource: &'g str,
    pub(super) login: &'g str,
    pub(super) authenticated: u64,
    /// Thumbprint of the client's key.
    pub(super) thumbprint: Option<&'g str>,
}

impl AuthorizationServer {
    /// Exchanges a code or a refresh token for tokens.
    pub(super) async fn token(&self, form: Form<'_>, now: u64) -> Result<Value, OAuthError> {
        check_form(form.headers)?;
        let parameters = Parameters::read(form.body)?;
        let client = self.authenticate(form, &parameters, now).await?;
        let key = self.client_key(form.headers, &client, now)?;
        let key = key.as_ref();
        match parameters.get("grant_type") {
            Some("authorization_code") => self.redeem_code(&client, &parameters, key, now).await,
            Some("refresh_token") => self.refresh(&client, &parameters, key, now).await,
            Some(JWT_BEARER) if self.config.identity_assertions => {
                self.accept_assertion(&client, &parameters, key, now).await
            }
            Some(_) => Err(OAuthError::new(
                "unsupported_grant_type",
                "grant_type must be authorization_code or refresh_token",
            )),
            None => Err(OAuthError::invalid_request("grant_type is missing")),
        }
    }

    /// Ends the login of a refresh token. Unknown tokens are no error (RFC 7009, section 2.2).
    pub(super) async fn revoke(&self, form: Form<'_>, now: u64) -> Result<(), OAuthError> {
        check_form(form.headers)?;
        let parameters = Parameters::read(form.body)?;
        let client = self.authenticate(form, &parameters, now).await?;
        let shown = parameters.required("token", PARAMETERS_MAX_BYTES)?;
        let token: Option<RefreshToken> = sealed::open(&self.ring, &self.issuer, shown, now);
        match token.filter(|token| token.client_id == client.id) {
            // The form of an access token (RFC 7009, section 2.2.1).
            None if shown.bytes().filter(|byte| *byte == b'.').count() == 2 => {
                Err(OAuthError::new(
                    "unsupported_token_type",
                    "access tokens cannot be revoked and expire soon; revoke the refresh token",
                ))
            }
            None => Ok(()),
            Some(token) => {
                let life = Duration::from_secs(token.expires.saturating_sub(now) + 1);
                self.once.end(&token.login, life).await.map_err(away)
            }
        }
    }

    /// Returns the client that a request is from, by `Authorization: Basic` or by parameters.
    async fn authenticate(
        &self,
        form: Form<'_>,
        parameters: &Parameters,
        now: u64,
    ) -> Result<Client, OAuthError> {
        let shown = basic(form.headers)?;
        let in_form = parameters.within("client_id", CLIENT_ID_MAX_BYTES)?;
        let (id, secret) = match &shown {
            Some((id, _)) if in_form.is_some_and(|other| other != id) => {
                return Err(OAuthError::invalid_request(
                    "client_id differs from the one in the Authorization header",
                ));
            }
            Some(_) if parameters.get("client_secret").is_some() => {
                return Err(OAuthError::invalid_request(
                    "the client secret is shown in two ways",
                ));
            }
            Some((id, secret)) => (id.as_str(), Some(secret.as_str())),
            None => {
                let id =
                    in_form.ok_or_else(|| OAuthError::invalid_client("client_id is missing"))?;
                (id, parameters.get("client_secret"))
            }
        };
        let client = self.client(id, form.limits, now).await?;
        self.attempts.check(&client, secret, form.limits)?;
        Ok(client)
    }

    /// Returns the proof of the key that the tokens of a request are to be bound to (RFC 9449, section 5). Its use is recorded
    /// by [`use_proof`](Self::use_proof), once the grant was checked.
    fn client_key(
        &self,
        headers: &HeaderMap,
        client: &Client,
        now: u64,
    ) -> Result<Option<DpopProof>, OAuthError> {
        let mut proofs = headers.get_all("dpop").iter();
        let invalid = |text| OAuthError::new("invalid_dpop_proof", text);
        let proof = match (proofs.next(), proofs.next()) {
            (None, _) if self.requires_dpop || client.is_dpop => {
                return Err(invalid(
                    "the header DPoP is missing; tokens must be bound to a key of the client",
                ));
            }
            (None, _) => return Ok(None),
            (Some(proof), None) => proof.to_str(),
            (Some(_), Some(_)) => return Err(invalid("the header DPoP appears more than once")),
        };
        let request = DpopRequest {
            proof: Some(proof.map_err(|_| invalid("the proof is not ASCII"))?),
            method: "POST",
            url: &format!("{}/token", self.issuer),
            token: None,
        };
        let proof = self.dpop.verify(&request, now);
        proof.map(Some).map_err(OAuthError::dpop)
    }

    /// Records the use of a proof for the user of a grant.
    pub(super) async fn use_proof(
        &self,
        proof: Option<&DpopProof>,
        user: &User,
    ) -> Result<(), OAuthError> {
        match proof {
            None => Ok(()),
            Some(proof) => {
                let used = self.dpop.use_once(proof, &user.subject);
                used.await.map_err(OAuthError::dpop)
            }
        }
    }

    async fn redeem_code(
        &self,
        client: &Client,
        parameters: &Parameters,
        proof: Option<&DpopProof>,
        now: u64,
    ) -> Result<Value, OAuthError> {
        const UNKNOWN: &str = "the code is not valid, or it has expired";
        let code = parameters.required("code", PARAMETERS_MAX_BYTES)?;
        let verifier = parameters.required("code_verifier", *VERIFIER.end())?;
        let code: Code = sealed::open(&self.ring, &self.issuer, code, now)
            .ok_or(OAuthError::invalid_grant(UNKNOWN))?;
        let request = &code.request;
        if request.client_id != client.id {
            return Err(OAuthError::invalid_grant(
                "the code was issued to another client",
            ));
        }
        let redirect_uri = parameters.within("redirect_uri", URI_MAX_BYTES)?;
        if redirect_uri.is_some_and(|uri| uri != request.redirect_uri) {
            return Err(OAuthError::invalid_grant(
                "redirect_uri differs from that of the authorization request",
            ));
        }
        if !VERIFIER.contains(&verifier.len()) || !is_challenge_of(&request.challenge, verifier) {
            return Err(OAuthError::invalid_grant(
                "code_verifier does not match code_challenge",
            ));
        }
        self.check_resource(
            parameters,
            &request.resource,
            "resource differs from that of the authorization request",
        )?;
        let key = proof.map(|proof| proof.thumbprint.as_str());
        let bound = request.thumbprint.as_deref();
        if bound.is_some() && bound != key {
            return Err(OAuthError::invalid_grant(
                "the code is bound to another key; the DPoP proof must be of that of dpop_jkt",
            ));
        }
        self.use_proof(proof, &code.user).await?;
        let expires = code.authenticated + self.config.login_seconds;
        if !self
            .once
            .redeem(&code.login, CODE_REMEMBERED)
            .await
            .map_err(away)?
        {
            // RFC 9700, section 4.1.2: the first one to redeem it may have stolen it.
            let life = Duration::from_secs(self.config.login_seconds);
            self.once.end(&code.login, life).await.map_err(away)?;
            tracing::warn!(
                client = client.name,
                "a code was used twice; its login has ended"
            );
            return Err(OAuthError::invalid_grant("the code was used before"));
        }
        let refresh = RefreshToken {
            client_id: request.client_id.clone(),
            scopes: request.scopes.clone(),
            resource: request.resource.clone(),
            user: code.user,
            login: code.login,
            serial: 0,
            authenticated: code.authenticated,
            expires,
            thumbprint: key.map(str::to_owned),
        };
        self.issue(&refresh, &refresh.scopes, now)
    }

    async fn refresh(
        &self,
        client: &Client,
        parameters: &Parameters,
        proof: Option<&DpopProof>,
        now: u64,
    ) -> Result<Value, OAuthError> {
        let sealed = parameters.required("refresh_token", PARAMETERS_MAX_BYTES)?;
        let token: RefreshToken = sealed::open(&self.ring, &self.issuer, sealed, now).ok_or(
            OAuthError::invalid_grant("the refresh token is not valid, or the login has expired"),
        )?;
        if token.client_id != client.id {
            return Err(OAuthError::invalid_grant(
                "the refresh token was issued to another client",
            ));
        }
        // The setting may have changed since the login.
        self.check_allowed(&token.user).map_err(|_| {
            OAuthError::invalid_grant(
                "this account may no longer use this server (auth.oauth.facade.allow)",
            )
        })?;
        let key = proof.map(|proof| proof.thumbprint.as_str());
        let bound = token.thumbprint.as_deref();
        // A confidential client proves itself by its secret, and may replace its key (RFC 9449, section 5).
        let is_other_key = bound.is_some() && bound != key;
        if is_other_key && !(client.is_confidential() && key.is_some()) {
            return Err(OAuthError::invalid_grant(
                "the DPoP proof is not of the key that the login is bound to",
            ));
        }
        let scopes = self.refreshed_scopes(&token.scopes, parameters.get("scope"))?;
        self.check_resource(
            parameters,
            &token.resource,
            "the refresh token is for another resource",
        )?;
        self.use_proof(proof, &token.user).await?;
        let life = Duration::from_secs(token.expires.saturating_sub(now) + 1);
        let rotated = self
            .once
            .rotate(&token.login, token.serial, now, life)
            .await;
        match rotated.map_err(away)? {
            Rotation::Ended => {
                tracing::warn!(
                    client = client.name,
                    "a refresh token was used again, or its login was revoked; the login has ended"
                );
                Err(OAuthError::invalid_grant(
                    "the refresh token was used before, or the login has ended",
                ))
            }
            Rotation::Next(serial) => {
                let next = RefreshToken {
                    serial,
                    thumbprint: key.map(str::to_owned),
                    ..token
                };
                self.issue(&next, &scopes, now)
            }
        }
    }

    /// Checks that a request names no other resource than that of its grant.
    pub(super) fn check_resource(
        &self,
        parameters: &Parameters,
        granted: &str,
        problem: &'static str,
    ) -> Result<(), OAuthError> {
        match parameters.within("resource", URI_MAX_BYTES)? {
            Some(resource) if self.resource(Some(resource))? != granted => {
                Err(OAuthError::new("invalid_target", problem))
            }
            _ => Ok(()),
        }
    }

    /// Returns the granted scopes that a refresh requests, or all of them if it requests none of those. Scopes that are not
    /// offered here any more are left out, and requested ones are ignored, as in authorization requests.
    fn refreshed_scopes(
        &self,
        granted: &[String],
        requested: Option<&str>,
    ) -> Result<Vec<String>, OAuthError> {
        let offer = self.offer.load();
        let mut kept: Vec<String> = Vec::new();
        for scope in distinct(requested.unwrap_or_default()) {
            if !offer.scopes.contains(&scope) {
                continue;
            }
            if !granted.contains(&scope) {
                return Err(OAuthError::new(
                    "invalid_scope",
                    "a requested scope was not granted at the login; start a new authorization request",
                ));
            }
            kept.push(scope);
        }
        if kept.is_empty() {
            let offered = granted.iter().filter(|scope| offer.scopes.contains(scope));
            kept.extend(offered.cloned());
        }
        Ok(kept)
    }

    /// Issues an access token and a refresh token.
    fn issue(
        &self,
        refresh: &RefreshToken,
        scopes: &[String],
        now: u64,
    ) -> Result<Value, OAuthError> {
        let seconds = self
            .config
            .access_seconds
            .min(refresh.expires.saturating_sub(now));
        let grant = Grant {
            client_id: &refresh.client_id,
            user: &refresh.user,
            scopes,
            resource: &refresh.resource,
            login: &refresh.login,
            authenticated: refresh.authenticated,
            thumbprint: refresh.thumbprint.as_deref(),
        };
        let sealed = sealed::seal(&self.ring, &self.issuer, refresh).ok_or(
            OAuthError::server_error("the refresh token cannot be sealed"),
        )?;
        let mut response = self.issue_access(&grant, now, seconds);
        response["refresh_token"] = sealed.into();
        Ok(response)
    }

    /// Issues an access token.
    pub(super) fn issue_access(&self, grant: &Grant<'_>, now: u64, seconds: u64) -> Value {
        let access = self.keys.sign("at+jwt", &self.claims(grant, now, seconds));
        let mut response = json!({
            "access_token": access,
            "token_type": if grant.thumbprint.is_some() { "DPoP" } else { "Bearer" },
            "expires_in": seconds,
        });
        if !grant.scopes.is_empty() {
            response["scope"] = grant.scopes.join(" ").into();
        }
        response
    }

    /// Claims of an access token (RFC 9068, section 2.2).
    fn claims(&self, grant: &Grant<'_>, now: u64, seconds: u64) -> Map<String, Value> {
        let user = grant.user;
        let mut claims = Map::new();
        let mut set = |name: &str, value: Value| claims.insert(name.to_owned(), value);
        set("iss", self.issuer.clone().into());
        set("sub", user.subject.clone().into());
        set("aud", grant.resource.into());
        set("client_id", grant.client_id.into());
        set("iat", now.into());
        set("exp", (now + seconds).into());
        set("jti", random_text().into());
        set("auth_time", grant.authenticated.into());
        set("sid", grant.login.into());
        set("idp", self.provider.issuer().into());
        if let Some(thumbprint) = grant.thumbprint {
            set("cnf", json!({"jkt": thumbprint}));
        }
        if !grant.scopes.is_empty() {
            set("scope", grant.scopes.join(" ").into());
        }
        let texts = [
            ("name", &user.name),
            ("preferred_username", &user.username),
            ("email", &user.email),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                set(name, value.clone().into());
            }
        }
        if !user.groups.is_empty() {
            set("groups", json!(user.groups));
        }
        claims
    }
}

/// Returns true if a PKCE challenge is the digest of a verifier (RFC 7636, section 4.6).
fn is_challenge_of(challenge: &str, verifier: &str) -> bool {
    let is_unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let expected = sha256_base64url(verifier);
    verifier.bytes().all(is_unreserved)
        && verify_slices_are_equal(expected.as_bytes(), challenge.as_bytes()).is_ok()
}

/// Reads the credentials of `Authorization: Basic` (RFC 6749, section 2.3.1).
fn basic(headers: &HeaderMap) -> Result<Option<(String, String)>, OAuthError> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let invalid = || OAuthError::invalid_client("the Authorization header is not valid Basic");
    let text = value.to_str().map_err(|_| invalid())?;
    let (scheme, encoded) = text.split_once(' ').ok_or_else(invalid)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(invalid());
    }
    let decoded = STANDARD.decode(encoded.trim()).map_err(|_| invalid())?;
    let decoded = String::from_utf8(decoded).map_err(|_| invalid())?;
    let (id, secret) = decoded.split_once(':').ok_or_else(invalid)?;
    let plain = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text)
            .decode_utf8()
            .map_err(|_| invalid())?;
        Ok::<_, OAuthError>(decoded.into_owned())
    };
    Ok(Some((plain(id)?, plain(secret)?)))
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
pub(super) fn away(error: StateError) -> OAuthError {
    static LINES: LogInterval = LogInterval::new(Duration::from_secs(60));
    if LINES.passes() {
        tracing::warn!(%error, "cannot record used codes and refresh tokens; logins are rejected (logged once a minute)");
    }
    OAuthError::unavailable("the server cannot record the request now; try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkce_compares_the_digest_of_the_verifier() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert!(is_challenge_of(challenge, verifier));
        assert!(!is_challenge_of(challenge, &verifier.replace('d', "e")));
        assert!(!is_challenge_of(verifier, verifier));
    }

    #[test]
    fn basic_credentials_are_decoded_as_forms_encode_them() {
        let mut headers = HeaderMap::new();
        assert_eq!(basic(&headers).expect("none"), None);
        let encoded = STANDARD.encode("a%3Ab:c+d%25");
        headers.insert(
            AUTHORIZATION,
            format!("Basic {encoded}").parse().expect("ASCII"),
        );
        let found = basic(&headers).expect("valid");
        assert_eq!(found, Some(("a:b".to_owned(), "c d%".to_owned())));
        headers.insert(AUTHORIZATION, "Bearer x".parse().expect("ASCII"));
        assert!(basic(&headers).is_err());
    }
}
