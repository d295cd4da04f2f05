//! Notifications of a server.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    resource_subscriptions: Option<BTreeSet<Arc<str>>>,
}

impl Shared {
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
                let accepted = serde_json::from_str::<Acknowledged>(params).ok();
                self.acknowledged.send_replace(
                    accepted.and_then(|accepted| accepted.notifications.resource_subscriptions),
                );
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
