//! Subscriptions to resources, in both forms that the protocol defines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{Client, ClientError, LISTEN, Link, Params, wire};
use crate::net;

/// Resource subscriptions at the server.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    uris: BTreeSet<Arc<str>>,
    /// The request that subscribes to all of them, in versions that use one.
    request: Option<Listening>,
}

/// An open subscription request.
#[derive(Debug)]
enum Listening {
    Task(AbortHandle),
    Id(u64),
}

/// Time to wait for the acknowledgement of a subscription. A server can send updates without one.
const ACKNOWLEDGES: Duration = Duration::from_secs(5);

impl Client {
    /// Returns true if the server supports resource subscriptions.
    pub fn tells_of_resources(&self) -> bool {
        let server = self.server();
        let resources = server.capabilities.get("resources");
        resources.is_some_and(|resources| resources["subscribe"] == true)
    }

    /// Subscribes to exactly these resources. Updates are reported to [`Events::resource_updated`].
    ///
    /// A resource that the server rejects is not requested again. Without server support, this does nothing.
    ///
    /// [`Events::resource_updated`]: super::Events::resource_updated
    ///
    /// # Errors
    ///
    /// The request cannot be sent, or the server does not respond in time.
    pub async fn watch(&self, uris: &BTreeSet<Arc<str>>) -> Result<(), ClientError> {
        let mut watching = self.watching.lock().await;
        if watching.uris == *uris || !self.tells_of_resources() {
            return Ok(());
        }
        if self.revision.has_sessions() {
            return self.subscribe_each(&mut watching, uris).await;
        }
        let before = watching.request.take();
        watching.uris.clone_from(uris);
        if !uris.is_empty() {
            watching.request = Some(self.listen_to(uris).await?);
        }
        match before {
            None => {}
            Some(Listening::Task(task)) => task.abort(),
            Some(Listening::Id(id)) => {
                let params = Params::new().with("requestId", id);
                self.notify("notifications/cancelled", &params).await?;
            }
        }
        Ok(())
    }

    /// Subscribes to each resource, in versions up to 2025-11-25 (SUB-08).
    async fn subscribe_each(
        &self,
        watching: &mut Subscriptions,
        uris: &BTreeSet<Arc<str>>,
    ) -> Result<(), ClientError> {
        let added: Vec<_> = uris.difference(&watching.uris).cloned().collect();
        let removed: Vec<_> = watching.uris.difference(uris).cloned().collect();
        let changes = added.into_iter().map(|uri| (true, uri));
        for (adds, uri) in changes.chain(removed.into_iter().map(|uri| (false, uri))) {
            let method = match adds {
                true => "resources/subscribe",
                false => "resources/unsubscribe",
            };
            let params = Params::new().with("uri", &*uri);
            match self.request(method, params, None, None).await {
                Ok(_) => {}
                Err(ClientError::Rpc(error)) => {
                    tracing::debug!(upstream = self.options.name, %error, method, "refused");
                }
                Err(error) => return Err(error),
            }
            match adds {
                true => watching.uris.insert(uri),
                false => watching.uris.remove(&uri),
            };
        }
        Ok(())
    }

    /// Subscribes to all resources with one request, separate from that for lists, in version 2026-07-28 (SUB-01).
    async fn listen_to(&self, uris: &BTreeSet<Arc<str>>) -> Result<Listening, ClientError> {
        let uris: Vec<&str> = uris.iter().map(|uri| &**uri).collect();
        let wanted = json!({"resourceSubscriptions": uris});
        let acknowledged = self.shared.acknowledged();
        tokio::pin!(acknowledged);
        acknowledged.as_mut().enable();
        let listening = match &self.link {
            Link::Http(link) => {
                let notices = uris.iter().map(|uri| {
                    let params = json!({"uri": uri}).to_string();
                    ("notifications/resources/updated", Some(params))
                });
                let subscription = self.subscription(wanted, notices.collect());
                let subscribed = Arc::clone(link).subscribe(subscription, Arc::clone(&self.shared));
                Listening::Task(net::spawn(subscribed).abort_handle())
            }
            Link::Stdio(link) => {
                let params = self.introduced(Params::new().with("notifications", wanted));
                let id = self.shared.expect(None)?.id;
                let message = Bytes::from(wire::request(id, LISTEN, &params));
                link.send(message).await?;
                Listening::Id(id)
            }
            // This transport belongs to versions with sessions.
            Link::Legacy(_) => return Err(ClientError::SessionEnded),
        };
        // The former subscription ends only after the new one is acknowledged, so that no update is missed.
        let _ = timeout(ACKNOWLEDGES, acknowledged).await;
        Ok(listening)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        if let Some(Listening::Task(task)) = &self.request {
            task.abort();
        }
    }
}
