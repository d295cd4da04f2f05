//! Subscriptions to lists and resources, in both forms that the protocol defines.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::http::Subscription;
use super::{Client, ClientError, LISTEN, Link, Params, wire};
use crate::net::AbortOnDrop;

/// Resource subscriptions at the server.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    uris: BTreeSet<Arc<str>>,
    /// Those of them whose subscription the server rejected.
    refused: BTreeSet<Arc<str>>,
    /// The request that subscribes to all of them, in versions that use one.
    request: Option<Listening>,
}

/// An open subscription request.
#[derive(Debug)]
enum Listening {
    Task(AbortOnDrop),
    Id(u64),
}

/// Lists whose changes servers notify of.
const LISTS: [&str; 3] = ["tools", "resources", "prompts"];

impl Client {
    /// Subscribes to list changes of a server without sessions, if it supports them and there is a receiver (SUB-03).
    /// Returns true if a program has a subscription.
    pub(super) async fn subscribe(&mut self) -> Result<bool, ClientError> {
        let events = self.options.events.as_ref();
        if !events.is_some_and(|events| events.wants_changes()) {
            return Ok(false);
        }
        let server = self.server();
        let tells = |list: &str| {
            let declared = server.capabilities.get(list);
            declared.is_some_and(|declared| declared["listChanged"] == true)
        };
        let lists: Vec<_> = LISTS.into_iter().filter(|list| tells(list)).collect();
        let mut wanted: Map<String, Value> = lists
            .iter()
            .map(|list| (format!("{list}ListChanged"), true.into()))
            .collect();
        // A program that does not respond while a subscription is open has to be found before there is one.
        if wanted.is_empty() && matches!(self.link, Link::Stdio(_)) && self.tells_of_resources() {
            wanted.insert("resourceSubscriptions".to_owned(), json!([]));
        }
        if wanted.is_empty() {
            return Ok(false);
        }
        let listening = self.listen_to(Value::Object(wanted), lists, BTreeSet::new());
        match listening.await? {
            (Listening::Task(task), _) => {
                self.background.push(task);
                Ok(false)
            }
            (Listening::Id(_), _) => Ok(true),
        }
    }

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
        let (request, refused) = match uris.is_empty() {
            true => (None, BTreeSet::new()),
            false => {
                let (listening, refused) = self.listen_to_resources(uris).await?;
                (Some(listening), refused)
            }
        };
        watching.uris.clone_from(uris);
        watching.refused = refused;
        if let Some(Listening::Id(id)) = std::mem::replace(&mut watching.request, request) {
            let params = Params::new().with("requestId", id);
            self.notify("notifications/cancelled", &params).await?;
        }
        Ok(())
    }

    /// Returns the resources of [`watch`](Self::watch) that the server has a subscription for, as far as it says so.
    pub(crate) async fn watched(&self) -> BTreeSet<Arc<str>> {
        let watching = self.watching.lock().await;
        watching
            .uris
            .difference(&watching.refused)
            .cloned()
            .collect()
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
            if watching.refused.remove(&uri) {
                // There is no subscription to end.
                watching.uris.remove(&uri);
                continue;
            }
            let method = match adds {
                true => "resources/subscribe",
                false => "resources/unsubscribe",
            };
            let params = Params::new().with("uri", &*uri);
            match self.request(method, params, None, None).await {
                Ok(_) => {}
                Err(ClientError::Rpc(error)) => {
                    tracing::debug!(upstream = self.options.name, %error, method, "refused");
                    if adds {
                        watching.refused.insert(Arc::clone(&uri));
                    }
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

    /// Subscribes to all resources with one request, separate from that for lists, in version 2026-07-28 (SUB-01). Also
    /// returns those that the server does not acknowledge.
    async fn listen_to_resources(
        &self,
        uris: &BTreeSet<Arc<str>>,
    ) -> Result<(Listening, BTreeSet<Arc<str>>), ClientError> {
        let wanted = json!({"resourceSubscriptions": uris});
        let acknowledgements = self.shared.acknowledgements();
        let (listening, id) = self.listen_to(wanted, Vec::new(), uris.clone()).await?;
        // The former subscription ends only after the new one is acknowledged, so that no update is missed.
        let refused = match acknowledgements.of(id).await {
            Some(accepted) => uris.difference(&accepted).cloned().collect(),
            None => BTreeSet::new(),
        };
        Ok((listening, refused))
    }

    /// Opens a subscription to these lists and resources in version 2026-07-28. Also returns the ID of its request.
    async fn listen_to(
        &self,
        wanted: Value,
        lists: Vec<&'static str>,
        resources: BTreeSet<Arc<str>>,
    ) -> Result<(Listening, u64), ClientError> {
        let expected = self.shared.expect(None)?;
        let id = expected.id;
        let listen = self.introduced(Params::new().with("notifications", wanted));
        match &self.link {
            Link::Http(link) => {
                let subscription = Subscription {
                    listen,
                    discover: self.introduced(Params::new()),
                    server: Arc::clone(&self.server),
                    patience: self.options.connect_timeout,
                    lists,
                    resources,
                };
                let subscribed =
                    Arc::clone(link).subscribe(subscription, expected, Arc::clone(&self.shared));
                Ok((Listening::Task(AbortOnDrop::spawn(subscribed)), id))
            }
            // The response ends the subscription, and is not needed.
            Link::Stdio(link) => {
                drop(expected);
                link.send(wire::request(id, LISTEN, &listen).into()).await?;
                Ok((Listening::Id(id), id))
            }
            // This transport belongs to versions with sessions.
            Link::Legacy(_) => Err(ClientError::SessionEnded),
        }
    }
}
