//! What proves to a server over HTTP who calls, where that changes from time to time.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::StatusCode;

use super::ClientError;
use crate::net::{Answer, Client as HttpClient, Outgoing};

/// Puts credentials into requests to a server.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// Puts them into a request.
    ///
    /// # Errors
    ///
    /// Why there are none, in words without secrets.
    fn apply<'r>(&'r self, request: &'r mut Outgoing) -> BoxFuture<'r, Result<(), String>>;

    /// A request was refused with status 401. Tells whether it is worth another try, once, with what
    /// [`apply`](Self::apply) puts into it then.
    fn refused<'r>(&'r self, request: &'r Outgoing) -> BoxFuture<'r, bool>;
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

    /// Sends a request; once more, if it was refused for credentials that can be replaced.
    pub(super) async fn open(&self, outgoing: Outgoing) -> Result<Answer, ClientError> {
        let Some(credentials) = &self.credentials else {
            return Ok(self.client.open(outgoing).await?);
        };
        let with_credentials = async || {
            let mut attempt = outgoing.clone();
            let applied = credentials.apply(&mut attempt).await;
            applied.map_err(ClientError::Credentials)?;
            Ok::<_, ClientError>(attempt)
        };
        let attempt = with_credentials().await?;
        let answer = self.client.open(attempt.clone()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && credentials.refused(&attempt).await {
            return Ok(self.client.open(with_credentials().await?).await?);
        }
        Ok(answer)
    }
}
