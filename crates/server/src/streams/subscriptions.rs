//! Handlers of `resources/subscribe` and `resources/unsubscribe`, whose state all replicas share.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Streams;
use super::cluster::BusMessage;
use super::mailbox::Uris;
use crate::limit::Limit;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, fault_of_uri};
use crate::server::reply::Reply;
use crate::server::resources::not_found;
use crate::server::share::{StateKind, owner_of};
use crate::server::tools::invalid_params;
use crate::server::{Caller, MaybeReady, Server};
use crate::state::{StateError, VALUE_MAX_BYTES};

/// Time to live of subscriptions, the maximum age of a session.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Time to live after the last subscription was removed.
const EMPTY_TTL: Duration = Duration::from_secs(1);
/// Maximum number of attempts when another replica writes at the same time.
const ATTEMPTS_MAX: usize = 8;

/// Error of a change of subscriptions.
#[derive(Debug, thiserror::Error)]
enum SubscriptionError {
    #[error("at most {0} resources can be subscribed to (server.streams.subscriptions)")]
    TooManyStreams(usize),
    #[error("the subscriptions of a session have at most 65536 bytes together")]
    TooLarge,
    #[error(transparent)]
    State(#[from] StateError),
}

impl Server {
    /// Handles both methods (SUB-08). The URI need not exist, since its resource can be added later.
    pub(crate) fn change_subscription(
        &self,
        caller: Caller<'_>,
        request: &Request<'_>,
        adds: bool,
    ) -> Result<MaybeReady, Reply> {
        let Some(uri) = request.params.uri.and_then(message::string) else {
            return Err(invalid_params(
                request.id,
                "uri is required, a string: which resource is meant",
            ));
        };
        if let Some(fault) = fault_of_uri(&uri) {
            return Err(invalid_params(request.id, &format!("uri: {fault}")));
        }
        // A URI that the caller may not read must look unknown.
        if adds && !self.snapshot.load().sees_uri(caller.principal, &uri) {
            return Err(not_found(request.id, &uri, caller.revision));
        }
        let Some(session) = caller.session.cloned() else {
            return Err(invalid_params(request.id, "there is no session"));
        };
        let (streams, uri) = (Arc::clone(&self.streams), uri.into_owned());
        let hits = Arc::clone(&self.limits.hits);
        let owner = owner_of(caller.principal, caller.address);
        let id = request.id.to_owned();
        Ok(MaybeReady::Pending(Box::pin(async move {
            match streams
                .update_subscription(&session, &uri, adds, owner.as_deref())
                .await
            {
                Ok(()) => Reply::constant(&id, br#","result":{}}"#),
                Err(SubscriptionError::State(error @ (StateError::Full | StateError::Share))) => {
                    let message = format!("subscriptions cannot be remembered now: {error}");
                    Reply::error(&id, &ErrorObject::new(ErrorCode::Internal, message))
                }
                Err(SubscriptionError::State(error)) => {
                    tracing::warn!(%error, "a subscription could not be remembered");
                    let message = "subscriptions cannot be remembered now; try again later";
                    Reply::error(&id, &ErrorObject::new(ErrorCode::Internal, message))
                }
                Err(refused) => {
                    if let SubscriptionError::TooManyStreams(_) = refused {
                        hits.count(Limit::Subscriptions);
                    }
                    invalid_params(&id, &refused.to_string())
                }
            }
        })))
    }
}

impl Streams {
    /// Subscriptions of a session.
    pub(super) async fn subscriptions_of(&self, session: &str) -> Result<Uris, StateError> {
        let found = self.state.get(&self.names.subscriptions(session)).await;
        self.track_health(&found);
        Ok(Arc::new(
            found?.map(|value| read(&value)).unwrap_or_default(),
        ))
    }

    async fn update_subscription(
        &self,
        session: &Arc<str>,
        uri: &str,
        adds: bool,
        owner: Option<&str>,
    ) -> Result<(), SubscriptionError> {
        let state = StateKind::Subscription.of(&self.state, owner);
        let key = self.names.subscriptions(session);
        for _ in 0..ATTEMPTS_MAX {
            let found = state.get(&key).await?;
            let mut uris = found.as_ref().map(|value| read(value)).unwrap_or_default();
            let changed = if adds {
                uris.insert(uri.into())
            } else {
                uris.remove(uri)
            };
            if !changed {
                return Ok(());
            }
            if self.config.subscriptions < uris.len() {
                return Err(SubscriptionError::TooManyStreams(self.config.subscriptions));
            }
            let value = write(&uris);
            if VALUE_MAX_BYTES < value.len() {
                return Err(SubscriptionError::TooLarge);
            }
            let written = match found {
                None => state.put_if_absent(&key, value, TTL).await?,
                Some(found) => {
                    let life = if uris.is_empty() { EMPTY_TTL } else { TTL };
                    state.compare_and_swap(&key, found, value, life).await?
                }
            };
            if written {
                self.set_subscriptions(session, &Arc::new(uris));
                let session = Arc::clone(session);
                self.broadcast(BusMessage::Subscribed { session });
                return Ok(());
            }
        }
        Err(SubscriptionError::State(StateError::Unreachable {
            reason: "a value changes faster than it can be changed".to_owned(),
        }))
    }
}

fn read(value: &[u8]) -> HashSet<Arc<str>> {
    serde_json::from_slice(value).unwrap_or_default()
}

fn write(uris: &HashSet<Arc<str>>) -> Bytes {
    serde_json::to_vec(uris).unwrap_or_default().into()
}
