//! Requests for the user: to the userinfo endpoint of an OpenID provider, and to the API of GitHub.

use std::sync::atomic::Ordering::Relaxed;

use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::documents::ProviderDocuments;
use super::{Provider, claim};
use crate::auth::{Preset, strict_object};
use crate::error::OAuthError;
use crate::net::OutgoingRequest;

impl Provider {
    /// Adds the claims of the userinfo endpoint (OpenID Connect Core, section 5.3) to those of an ID token, if email address or
    /// groups are missing there. Some providers put little more than the subject into ID tokens.
    ///
    /// Claims of the ID token take precedence. Without a response of the endpoint they are all there is.
    pub(super) async fn with_user_info(
        &self,
        known: &ProviderDocuments,
        claims: Map<String, Value>,
        token: Option<&str>,
    ) -> Map<String, Value> {
        let has_groups = self
            .group_claims
            .iter()
            .any(|name| claim(&claims, name).is_some());
        // Google has no claim with groups.
        let is_complete =
            has_value(&claims, "email") && (has_groups || self.preset == Preset::Google);
        let (Some(url), Some(token), false) = (&known.user, token, is_complete) else {
            return claims;
        };
        let found = match user_request(url.clone(), token) {
            Some(request) => self.fetch(request, "userinfo endpoint").await.ok(),
            None => None,
        };
        let found = found.filter(|answer| answer.status == StatusCode::OK);
        let found = found.and_then(|answer| strict_object(&answer.body));
        // Users in responses can differ from those of ID tokens (OpenID Connect Core, section 5.3.2).
        let found = found.filter(|found| found.get("sub") == claims.get("sub"));
        let was_failing = self.has_no_user_info.swap(found.is_none(), Relaxed);
        match found {
            Some(found) => {
                if was_failing {
                    tracing::info!(
                        provider = self.host,
                        "the userinfo endpoint of the identity provider returns users again"
                    );
                }
                merged(claims, found)
            }
            None => {
                if !was_failing {
                    tracing::warn!(
                        provider = self.host,
                        "the userinfo endpoint of the identity provider did not return the user; the claims of the ID token count, and further failures are not logged until one succeeds"
                    );
                }
                claims
            }
        }
    }

    /// Asks plain OAuth for the user.
    pub(super) async fn ask_for_user(
        &self,
        known: &ProviderDocuments,
        token: &str,
    ) -> Result<Map<String, Value>, OAuthError> {
        let url = known
            .user
            .clone()
            .ok_or_else(|| self.odd("it has no user endpoint"))?;
        let ask = async |url: Url| {
            let request = user_request(url, token);
            let request = request.ok_or_else(|| self.odd("its token is not ASCII"))?;
            self.fetch(request, "user endpoint").await
        };
        let answer = ask(url.clone()).await?;
        if answer.status != StatusCode::OK {
            return Err(self.odd("it did not return the user"));
        }
        let mut claims =
            strict_object(&answer.body).ok_or_else(|| self.odd("the user is not valid JSON"))?;
        // GitHub: `id` is stable, `login` can change owners.
        if let Some(id) = claims.get("id").and_then(Value::as_u64) {
            claims.insert("sub".to_owned(), id.to_string().into());
        }
        if let Some(login) = claims.get("login").cloned() {
            claims.insert("preferred_username".to_owned(), login);
        }
        // Most users do not show their address in the profile.
        if !has_value(&claims, "email") {
            let mut addresses = url;
            addresses.set_path(&format!("{}/emails", addresses.path()));
            let answer = ask(addresses).await?;
            // Without the scope `user:email`, the status is 404.
            if answer.status == StatusCode::OK
                && let Some(email) = primary_address(&answer.body)
            {
                claims.insert("email".to_owned(), email.into());
            }
        }
        Ok(claims)
    }
}

/// Returns a request with an access token, which must be ASCII.
fn user_request(url: Url, token: &str) -> Option<OutgoingRequest> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    bearer.set_sensitive(true);
    let request = OutgoingRequest::get(url)
        .header(ACCEPT, HeaderValue::from_static("application/json"))
        .header(USER_AGENT, HeaderValue::from_static("longshore"))
        .header(AUTHORIZATION, bearer);
    Some(request)
}

fn has_value(claims: &Map<String, Value>, name: &str) -> bool {
    claims.get(name).is_some_and(|value| !value.is_null())
}

/// Adds claims that an ID token does not have.
fn merged(mut claims: Map<String, Value>, found: Map<String, Value>) -> Map<String, Value> {
    // `email_verified` is about the address beside it.
    if !has_value(&claims, "email") {
        claims.remove("email_verified");
    }
    let has_own_address = has_value(&claims, "email") && claims.get("email") != found.get("email");
    for (name, value) in found {
        let is_of_other_address = has_own_address && name == "email_verified";
        if !is_of_other_address && !has_value(&claims, &name) {
            claims.insert(name, value);
        }
    }
    claims
}

/// An address of a GitHub account.
#[derive(Deserialize)]
struct EmailAddress {
    email: String,
    primary: bool,
    verified: bool,
}

/// Returns the primary address of a GitHub account, if it is verified.
fn primary_address(body: &[u8]) -> Option<String> {
    let addresses: Vec<EmailAddress> = serde_json::from_slice(body).ok()?;
    let mut addresses = addresses.into_iter();
    let primary = addresses.find(|address| address.primary && address.verified)?;
    Some(primary.email)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_of_the_id_token_take_precedence() {
        let object = |value: Value| match value {
            Value::Object(object) => object,
            other => panic!("{other}"),
        };
        for (token, info, expected) in [
            (
                json!({"sub": "1", "email": null}),
                json!({"sub": "1", "email": "a@example.com", "email_verified": true}),
                json!({"sub": "1", "email": "a@example.com", "email_verified": true}),
            ),
            (
                json!({"sub": "1", "name": "Ann"}),
                json!({"sub": "1", "name": "Bob", "groups": ["dev"]}),
                json!({"sub": "1", "name": "Ann", "groups": ["dev"]}),
            ),
            (
                json!({"sub": "1", "email": "a@example.com"}),
                json!({"sub": "1", "email": "a@example.com", "email_verified": true}),
                json!({"sub": "1", "email": "a@example.com", "email_verified": true}),
            ),
            (
                json!({"sub": "1", "email": "a@example.com"}),
                json!({"sub": "1", "email": "b@example.com", "email_verified": true}),
                json!({"sub": "1", "email": "a@example.com"}),
            ),
            (
                json!({"sub": "1", "email_verified": true}),
                json!({"sub": "1", "email": "a@example.com", "email_verified": false}),
                json!({"sub": "1", "email": "a@example.com", "email_verified": false}),
            ),
            (
                json!({"sub": "1", "email_verified": true}),
                json!({"sub": "1", "email": "a@example.com"}),
                json!({"sub": "1", "email": "a@example.com"}),
            ),
        ] {
            let merged = merged(object(token), object(info));
            assert_eq!(Value::Object(merged), expected);
        }
    }

    #[test]
    fn the_address_of_a_github_account_is_the_primary_one_if_it_is_verified() {
        let address = |email: &str, primary, verified| json!({"email": email, "primary": primary, "verified": verified, "visibility": null});
        let of = |addresses: Value| primary_address(addresses.to_string().as_bytes());
        let other = address("b@example.com", false, true);
        let found = of(json!([other, address("a@example.com", true, true)]));
        assert_eq!(found.as_deref(), Some("a@example.com"));
        assert_eq!(
            of(json!([other, address("a@example.com", true, false)])),
            None
        );
        assert_eq!(of(json!([])), None);
        assert_eq!(of(json!({"message": "Not Found"})), None);
    }
}
