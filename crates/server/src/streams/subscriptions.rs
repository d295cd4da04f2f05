//! `resources/subscribe` and `resources/unsubscribe`: what a session has subscribed to, on whichever replica.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Streams;
use super::feed::Uris;
use super::replicas::Word;
use crate::limit::Limit;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, fault_of_uri};
use crate::server::reply::Reply;
use crate::server::resources::not_found;
use crate::server::share::{Kind, owner_of};
use crate::server::tools::invalid_params;
use crate::server::{Caller, Handled, Server};
use crate::state::{StateError, VALUE_MAX_BYTES};

/// No session lives longer.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// Nothing is lost when a session's last subscription was taken back and that is forgotten.
const LIFE_OF_NONE: Duration = Duration::from_secs(1);
/// How often it is tried again if another replica was faster.
const TRIES: usize = 8;

/// Why a subscription was not changed.
#[derive(Debug, thiserror::Error)]
enum Unchanged {
    #[error("at most {0} resources can be subscribed to (server.streams.subscriptions)")]
    TooMany(usize),
    #[error("the subscriptions of a session have at most 65536 bytes together")]
    TooLarge,
    #[error(transparent)]
    State(#[from] StateError),
}

impl Server {
    /// SUB-08. A URI need not be known: what it names may come later.
    pub(in crate::server) fn change_subscription(
        &self,
        caller: Caller<'_>,
        request: &Request<'_>,
        adds: bool,
    ) -> Result<Handled, Reply> {
        let Some(uri) = request.params.uri.and_then(message::string) else {
            return Err(invalid_params(
                request.id,
                "uri is required, a string: which resource is meant",
            ));
        };
        if let Some(fault) = fault_of_uri(&uri) {
            return Err(invalid_params(request.id, &format!("uri: {fault}")));
        }
        // What may not be read is not told of either, and is as if it were not there.
        if adds && !self.generation.load().sees_uri(caller.principal, &uri) {
            return Err(not_found(request.id, &uri, caller.revision));
        }
        let Some(session) = caller.session.cloned() else {
            return Err(invalid_params(request.id, "there is no session"));
        };
        let (streams, uri) = (Arc::clone(&self.streams), uri.into_owned());
        let hits = Arc::clone(&self.limits.hits);
        let owner = owner_of(caller.principal, caller.address);
        let id = request.id.to_owned();
        Ok(Handled::Later(Box::pin(async move {
            match streams.change(&session, &uri, adds, owner.as_deref()).await {
                Ok(()) => Reply::fixed(&id, br#","result":{}}"#),
                Err(Unchanged::State(error @ (StateError::Full | StateError::Share))) => {
                    let message = format!("subscriptions cannot be remembered now: {error}");
                    Reply::error(&id, &ErrorObject::new(ErrorCode::Internal, message))
                }
                Err(Unchanged::State(error)) => {
                    tracing::warn!(%error, "a subscription could not be remembered");
                    let message = "subscriptions cannot be remembered now; try again later";
                    Reply::error(&id, &ErrorObject::new(ErrorCode::Internal, message))
                }
                Err(refused) => {
                    if let Unchanged::TooMany(_) = refused {
                        hits.count(Limit::Subscriptions);
                    }
                    invalid_params(&id, &refused.to_string())
                }
            }
        })))
    }
}

impl Streams {
    /// What a session has subscribed to.
    pub(super) async fn subscriptions_of(&self, session: &str) -> Result<Uris, StateError> {
        let found = self.state.get(&self.names.subscriptions(session)).await;
        self.heed(&found);
        Ok(Arc::new(
            found?.map(|value| read(&value)).unwrap_or_default(),
        ))
    }

    async fn change(
        &self,
        session: &Arc<str>,
        uri: &str,
        adds: bool,
        owner: Option<&str>,
    ) -> Result<(), Unchanged> {
        let state = Kind::Subscription.of(&self.state, owner);
        let key = self.names.subscriptions(session);
        for _ in 0..TRIES {
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
                return Err(Unchanged::TooMany(self.config.subscriptions));
            }
            let value = write(&uris);
            if VALUE_MAX_BYTES < value.len() {
                return Err(Unchanged::TooLarge);
            }
            let written = match found {
                None => state.put_if_absent(&key, value, LIFE).await?,
                Some(found) => {
                    let life = if uris.is_empty() { LIFE_OF_NONE } else { LIFE };
                    state.compare_and_swap(&key, found, value, life).await?
                }
            };
            if written {
                self.subscribed(session, &Arc::new(uris));
                let session = Arc::clone(session);
                self.say(Word::Subscribed { session });
                return Ok(());
            }
        }
        Err(Unchanged::State(StateError::Unreachable {
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
