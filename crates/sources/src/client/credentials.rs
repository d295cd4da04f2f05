//! Renewable credentials for servers reached over HTTP, and responses that reject them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, Method, StatusCode};

use super::error::beginning;
use super::{ClientError, REDIRECTS_MAX};
use crate::net::{
    Client as HttpClient, OutgoingRequest, PinnedClient, StreamingResponse, challenge_parameter,
};
use crate::source::redact::{added_secrets, conceal, conceal_in_headers, secrets_of};

/// Adds credentials to requests to a server.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// Adds the credentials to a request.
    ///
    /// # Errors
    ///
    /// Describes why there are none, without revealing secrets: [`ClientError::Credentials`], or
    /// [`ClientError::CallerCredentials`] if the caller can do something about it.
    fn apply<'r>(
        &'r self,
        request: &'r mut OutgoingRequest,
    ) -> BoxFuture<'r, Result<(), ClientError>>;

    /// Records the scopes of an `insufficient_scope` error, separated by spaces. Default: does nothing.
    fn lacks<'r>(&'r self, scope: &'r str) -> BoxFuture<'r, ()> {
        let _ = scope;
        Box::pin(async {})
    }

    /// Handles a request that was rejected with status 401 and these headers. Returns true if it should be retried once, with
    /// what [`apply`](Self::apply) then adds.
    fn refused<'r>(
        &'r self,
        request: &'r OutgoingRequest,
        response: &'r HeaderMap,
    ) -> BoxFuture<'r, bool>;
}

/// Sends requests with credentials.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    client: HttpClient,
    credentials: Option<Arc<dyn Credentials>>,
}

impl Sender {
    pub(super) fn new(client: HttpClient, credentials: Option<Arc<dyn Credentials>>) -> Self {
        Self {
            client,
            credentials,
        }
    }

    /// Returns the error for a response that redirects, or asks for other credentials: 401, or 403 for a scope, which is
    /// recorded.
    pub(super) async fn check(&self, answer: &StreamingResponse) -> Result<(), ClientError> {
        let (status, headers) = (answer.status, &answer.headers);
        if status == StatusCode::UNAUTHORIZED {
            let challenge = headers.get(WWW_AUTHENTICATE);
            return Err(ClientError::Unauthorized {
                challenge: challenge
                    .map(|value| beginning(value.as_bytes()))
                    .unwrap_or_default(),
            });
        }
        if status == StatusCode::FORBIDDEN
            && let Some(scope) = insufficient_scope(headers)
        {
            if let Some(credentials) = &self.credentials
                && !scope.is_empty()
            {
                credentials.lacks(&scope).await;
            }
            return Err(ClientError::InsufficientScope {
                scope: beginning(scope.as_bytes()),
            });
        }
        if status.is_redirection()
            && let Ok(Some(to)) = answer.redirect()
        {
            return Err(ClientError::Redirected { to });
        }
        Ok(())
    }

    /// Sends a request, and follows redirects within the origin of its URL. Returns an error for a response that is not a
    /// success.
    pub(super) async fn send_successfully(
        &self,
        mut outgoing: OutgoingRequest,
    ) -> Result<StreamingResponse, ClientError> {
        let (mut answer, mut secrets) = self.follow(&mut outgoing).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        secrets.extend(secrets_of(&outgoing.headers, &outgoing.url));
        conceal_in_headers(secrets.iter().map(Cow::from), &mut answer.headers);
        self.check(&answer).await?;
        let mut answer = answer.read().await?;
        conceal(secrets.into_iter().map(Cow::from), &mut answer);
        Err(ClientError::Status {
            status: answer.status.as_u16(),
            said: beginning(&answer.body),
        })
    }

    /// Sends a request as [`send_over`](Self::send_over) does, and follows redirects within the origin of its URL.
    async fn follow(
        &self,
        outgoing: &mut OutgoingRequest,
    ) -> Result<(StreamingResponse, Vec<String>), ClientError> {
        let mut left = REDIRECTS_MAX;
        loop {
            let (answer, secrets) = self.send_over(None, outgoing.clone()).await?;
            // A message is sent again only if it was not handled (RFC 9110 section 15.4).
            let is_followed = outgoing.method == Method::GET
                || matches!(
                    answer.status,
                    StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
                );
            if is_followed
                && 0 < left
                && answer.status.is_redirection()
                && let Ok(Some(to)) = answer.redirect()
                && to.origin() == outgoing.url.origin()
            {
                left -= 1;
                outgoing.url = to;
                continue;
            }
            return Ok((answer, secrets));
        }
    }

    /// Posts a message over a pinned client, with headers that the client has prepared. Also returns the secrets of the
    /// credentials, which the response may echo if it is not a success.
    pub(super) async fn post(
        &self,
        lane: &PinnedClient,
        headers: HeaderMap,
        message: Bytes,
    ) -> Result<(StreamingResponse, Vec<String>), ClientError> {
        if self.credentials.is_none() {
            let answer = lane.send(Method::POST, headers, message).await?;
            return Ok((answer, Vec::new()));
        }
        let mut outgoing = OutgoingRequest::new(Method::POST, lane.url().clone());
        outgoing.headers = headers;
        outgoing.body = message;
        Box::pin(self.send_over(Some(lane), outgoing)).await
    }

    /// Sends a request, and follows redirects within the origin of its URL.
    pub(super) async fn open(
        &self,
        mut outgoing: OutgoingRequest,
    ) -> Result<StreamingResponse, ClientError> {
        let (answer, _) = self.follow(&mut outgoing).await?;
        Ok(answer)
    }

    /// Sends a request: over a pinned client, unless the credentials change its URL. Retries it once if it was rejected for
    /// credentials that can be replaced. Also returns the secrets of the credentials, which the response may echo if it is
    /// not a success.
    async fn send_over(
        &self,
        lane: Option<&PinnedClient>,
        prepared: OutgoingRequest,
    ) -> Result<(StreamingResponse, Vec<String>), ClientError> {
        let Some(credentials) = &self.credentials else {
            return Ok((self.client.open(prepared).await?, Vec::new()));
        };
        let attempt = async || {
            let mut sent = prepared.clone();
            credentials.apply(&mut sent).await?;
            let answer = match lane {
                Some(lane) if sent.url == *lane.url() => {
                    let headers = lane.headers(sent.headers.clone());
                    lane.send(Method::POST, headers, sent.body.clone()).await?
                }
                _ => self.client.open(sent.clone()).await?,
            };
            Ok::<_, ClientError>((sent, answer))
        };
        let (mut sent, mut answer) = attempt().await?;
        if answer.status == StatusCode::UNAUTHORIZED
            && credentials.refused(&sent, &answer.headers).await
        {
            (sent, answer) = attempt().await?;
        }
        let secrets = match answer.status.is_success() {
            true => Vec::new(),
            false => added_secrets(
                (&prepared.headers, &prepared.url),
                (&sent.headers, &sent.url),
            ),
        };
        Ok((answer, secrets))
    }
}

/// The scopes that a challenge asks for, if its error is `insufficient_scope` (RFC 6750, 3.1). Empty if it names none.
fn insufficient_scope(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut values = values.filter_map(|value| value.to_str().ok());
    values.find_map(|value| {
        let error = challenge_parameter(value, "error")?;
        (error == "insufficient_scope")
            .then(|| challenge_parameter(value, "scope").unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_challenge_counts_where_scope_is_what_is_missing() {
        let scope = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, http::HeaderValue::from_static(text));
            insufficient_scope(&headers)
        };
        let reported =
            r#"Bearer error="insufficient_scope", scope="files:read files:write", realm="x""#;
        assert_eq!(scope(reported).as_deref(), Some("files:read files:write"));
        assert_eq!(
            scope("Bearer error=insufficient_scope").as_deref(),
            Some("")
        );
        assert_eq!(scope(r#"Bearer error="invalid_token", scope="a""#), None);
        assert_eq!(scope("Basic"), None);
    }
}
