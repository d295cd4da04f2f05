//! The provider's response: from a login at the provider to a code for the client.

use http::{HeaderMap, Response};

use super::authorize::Failure;
use super::error::OAuthError;
use super::form::Parameters;
use super::sealed::{self, AuthorizationRequest, Code, LoginState, User};
use super::server::AuthorizationServer;
use super::text::random_text;
use crate::net::Body;

/// Validity of a code, in seconds.
pub(super) const CODE_SECONDS: u64 = 60;

impl AuthorizationServer {
    /// Redeems the provider's code and sends the browser back to the client.
    pub(super) async fn callback(
        &self,
        headers: &HeaderMap,
        query: &[u8],
        now: u64,
    ) -> Result<Response<Body>, Failure> {
        let parameters = Parameters::read(query)?;
        let state = parameters.get("state").unwrap_or_default();
        let login: Option<LoginState<AuthorizationRequest>> =
            sealed::open(&self.ring, &self.issuer, state, now);
        let Some(LoginState {
            subject: request,
            browser,
            nonce,
            verifier,
            ..
        }) = login
        else {
            if let Some(visit) = sealed::open(&self.ring, &self.issuer, state, now) {
                return self.recognized(headers, &parameters, visit, now).await;
            }
            return Err(OAuthError::invalid_request(
                "the login has expired, or it did not begin here",
            )
            .into());
        };
        self.check_browser(headers, &browser)?;
        match self.logged_in(&parameters, (&verifier, &nonce)).await {
            Err(error) => {
                tracing::info!(error = error.code, reason = %error.description, "login failed");
                Err(Failure::Redirect(error, request))
            }
            Ok(user) => {
                let code = Code {
                    request,
                    user,
                    login: random_text(),
                    authenticated: now,
                    expires: now + CODE_SECONDS,
                };
                match sealed::seal(&self.ring, &self.issuer, &code) {
                    Some(sealed) => Ok(self.back_to_client(&code.request, &[("code", &sealed)])),
                    None => {
                        let error = OAuthError::server_error("the code cannot be sealed");
                        Err(Failure::Redirect(error, code.request))
                    }
                }
            }
        }
    }

    /// Returns the user whom the provider logged in, if they may use this server.
    ///
    /// `verifier` and `nonce` are those of the request to the provider.
    pub(super) async fn logged_in(
        &self,
        parameters: &Parameters,
        (verifier, nonce): (&str, &str),
    ) -> Result<User, OAuthError> {
        self.provider.check_issuer(parameters.get("iss")).await?;
        match parameters.get("error") {
            Some("access_denied") => {
                return Err(OAuthError::access_denied("the login was cancelled"));
            }
            Some(error) => {
                let shown: String = error
                    .chars()
                    .filter(char::is_ascii_graphic)
                    .take(60)
                    .collect();
                tracing::warn!(
                    provider = self.provider.host(),
                    error = shown,
                    "the identity provider rejected a login; check client_id, scopes and the redirect URI at the provider"
                );
                return Err(OAuthError::server_error(
                    "the identity provider rejected the login",
                ));
            }
            None => {}
        }
        let code = parameters.required("code", super::form::PARAMETERS_MAX_BYTES)?;
        let user = self
            .provider
            .redeem(code, &self.callback, verifier, nonce)
            .await?;
        self.check_allowed(&user)?;
        Ok(user)
    }

    /// Checks that a user may use this server.
    pub(super) fn check_allowed(&self, user: &User) -> Result<(), OAuthError> {
        let allow = &self.config.allow;
        match allow.admits(&user.subject, user.email.as_deref(), &user.groups) {
            true => Ok(()),
            false => Err(OAuthError::access_denied(
                "this account may not use this server (auth.oauth.facade.allow)",
            )),
        }
    }
}
