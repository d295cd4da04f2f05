//! Renewable credentials for servers reached over HTTP.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};

use super::ClientError;
use crate::net::{Client as HttpClient, OutgoingRequest, PinnedClient, StreamingResponse};
use crate::source::redact::added_secrets;

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

    /// Records the scopes of an `insufficient_scope` error.
    pub(super) async fn lacks(&self, scope: &str) {
        if let Some(credentials) = &self.credentials
            && !scope.is_empty()
        {
            credentials.lacks(scope).await;
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

    /// Sends a request. Retries it once if it was rejected for credentials that can be replaced.
    pub(super) async fn open(
        &self,
        outgoing: OutgoingRequest,
    ) -> Result<StreamingResponse, ClientError> {
        let (answer, _) = self.send(outgoing).await?;
        Ok(answer)
    }

    /// Sends a request as [`open`](Self::open) does. Also returns the secrets of the credentials, which the response may
    /// echo if it is not a success.
    pub(super) async fn send(
        &self,
        outgoing: OutgoingRequest,
    ) -> Result<(StreamingResponse, Vec<String>), ClientError> {
        self.send_over(None, outgoing).await
    }

    /// Sends a request as [`send`](Self::send) does: over the pinned client, unless the credentials change its URL.
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
