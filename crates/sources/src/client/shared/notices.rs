//! Notifications of a server.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::timeout;

use super::super::ACKNOWLEDGES;
use super::{Kind, Shared};
use crate::protocol::whole;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    progress_token: Box<RawValue>,
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Log {
    #[serde(default)]
    level: String,
    logger: Option<String>,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
struct Updated {
    uri: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Completed {
    elicitation_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled {
    request_id: Box<RawValue>,
}

#[derive(Deserialize)]
struct Acknowledged {
    notifications: Accepted,
    #[serde(default, rename = "_meta")]
    meta: AcknowledgedMeta,
}

#[derive(Default, Deserialize)]
struct AcknowledgedMeta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    resource_subscriptions: Option<BTreeSet<Arc<str>>>,
}

/// Acknowledgement of a subscription request.
#[derive(Clone, Debug)]
pub(super) struct Acknowledgement {
    /// ID of the request, if known.
    request: Option<u64>,
    /// Resources that the server has a subscription for, if it names them.
    resources: Option<BTreeSet<Arc<str>>>,
}

/// Receiver of acknowledgements.
#[derive(Debug)]
pub(in super::super) struct Acknowledgements(pub(super) Receiver<Acknowledgement>);

impl Acknowledgements {
    /// Waits for the acknowledgement of a request, which some servers do not send. Returns the resources that it names.
    pub(in super::super) async fn of(mut self, request: u64) -> Option<BTreeSet<Arc<str>>> {
        let arrives = async {
            loop {
                match self.0.recv().await {
                    Ok(one) if one.request.is_none_or(|other| other == request) => {
                        return one.resources;
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        };
        timeout(ACKNOWLEDGES, arrives).await.ok().flatten()
    }
}

impl Shared {
    /// Records that the server has rejected a subscription request, or any other that no response is expected to.
    pub(in super::super) fn has_rejected(&self, request: u64) {
        self.acknowledges(Some(request), Some(BTreeSet::new()));
    }

    /// Passes an acknowledgement on to its receivers.
    fn acknowledges(&self, request: Option<u64>, resources: Option<BTreeSet<Arc<str>>>) {
        let _ = self
            .acknowledged
            .send(Acknowledgement { request, resources });
    }

    /// Handles a notification. `about` is the request on whose response stream it came, if known.
    pub(super) fn notice(&self, method: &str, params: Option<&RawValue>, about: Option<u64>) {
        let params = params.map_or("{}", RawValue::get);
        match method {
            "notifications/progress" => {
                let Ok(progress) = serde_json::from_str::<Progress>(params) else {
                    return;
                };
                let id = whole(progress.progress_token.get().trim_matches('"'));
                if let Some(listener) = id.and_then(|id| self.listener(id)) {
                    listener.progress(
                        progress.progress,
                        progress.total,
                        progress.message.as_deref(),
                    );
                }
            }
            "notifications/message" => {
                let Ok(log) = serde_json::from_str::<Log>(params) else {
                    return;
                };
                let found = self.recipient(&self.state.lock(), about, Kind::Log);
                match found {
                    Ok((_, listener)) => {
                        listener.log(&log.level, log.logger.as_deref(), &log.data);
                    }
                    Err(doubt) => self.withheld(method, doubt),
                }
            }
            "notifications/resources/updated" => {
                if let (Some(events), Ok(updated)) =
                    (&self.events, serde_json::from_str::<Updated>(params))
                {
                    events.resource_updated(&updated.uri);
                }
            }
            // The server no longer waits for the response to a client request.
            "notifications/cancelled" => {
                if let Ok(cancelled) = serde_json::from_str::<Cancelled>(params) {
                    let id = cancelled.request_id.get();
                    let wanted = self.state.lock().questions.remove(id);
                    if let Some(wanted) = wanted {
                        let _ = wanted.send(());
                    }
                }
            }
            "notifications/elicitation/complete" => {
                if let (Some(events), Ok(completed)) =
                    (&self.events, serde_json::from_str::<Completed>(params))
                {
                    events.elicitation_completed(&completed.elicitation_id);
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let (named, resources) = match serde_json::from_str::<Acknowledged>(params) {
                    Ok(read) => (
                        read.meta.subscription,
                        read.notifications.resource_subscriptions,
                    ),
                    Err(_) => (None, None),
                };
                let request =
                    about.or_else(|| named.and_then(|id| whole(id.get().trim_matches('"'))));
                self.acknowledges(request, resources);
            }
            _ => {
                let list = method
                    .strip_prefix("notifications/")
                    .and_then(|rest| rest.strip_suffix("/list_changed"));
                if let (Some(events), Some(list)) = (&self.events, list) {
                    events.list_changed(list);
                }
            }
        }
    }
}
