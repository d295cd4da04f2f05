//! Notifications from clients, and responses to client requests.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::client_requests::Delivery;
use super::inflight;
use super::parts::Server;
use super::reply::{RejectReason, Reply};
use super::streams::BusMessage;
use crate::auth::Principal;
use crate::protocol::message::{Notification, Response};
use crate::protocol::{ErrorCode, ErrorObject};

/// Maximum size of a response forwarded to the replica that sent the request, in bytes.
const FORWARD_BYTES_MAX: usize = 30 * 1024;

/// Handles a notification. `session` is the scope of its request ids.
pub(super) fn handle_notification(server: &Server, session: &str, notification: &Notification<'_>) {
    #[derive(Deserialize)]
    struct Cancelled<'a> {
        #[serde(borrow, rename = "requestId")]
        request_id: &'a RawValue,
    }
    // CAN-01: malformed notifications are ignored.
    if notification.method == "notifications/cancelled"
        && let Some(params) = notification.params.object
        && let Ok(cancelled) = serde_json::from_str::<Cancelled<'_>>(params)
    {
        let request = cancelled.request_id.get();
        if server.calls.inflight.cancel(session, request) {
            return;
        }
        if session == inflight::STDIO {
            server.streams.cancel(request);
        } else {
            server.streams.broadcast(BusMessage::Cancelled {
                session: session.into(),
                request: request.to_owned(),
            });
        }
    }
}

/// Handles a response to a client request of `session`.
pub(super) fn handle_response(
    server: &Server,
    session: &str,
    principal: &Principal,
    response: &Response<'_>,
) -> Reply {
    match server
        .calls
        .inflight
        .client_requests
        .deliver(session, principal.id(), response)
    {
        Delivery::Here => Reply::Accepted,
        Delivery::Elsewhere(to) => {
            let (Some(id), outcome) = (response.id, response.outcome) else {
                return Reply::Accepted;
            };
            let size = outcome.map_or_else(str::len, str::len);
            if server.streams.is_shared() && size <= FORWARD_BYTES_MAX {
                server.streams.broadcast(BusMessage::Answered {
                    to,
                    session: session.into(),
                    principal: principal.id().into(),
                    id: id.to_owned(),
                    outcome: outcome.map(str::to_owned).map_err(str::to_owned),
                });
                return Reply::Accepted;
            }
            let message = if server.streams.is_shared() {
                "this response is for a request of another replica, and is too large to be passed on; route a session to one replica"
            } else {
                "this response is for a request of another replica, and replicas share no state (App::store); configure one, or route a session to one replica"
            };
            let error = ErrorObject::new(ErrorCode::Http(409), message);
            let error = error.with_data(serde_json::json!({"setting": "state"}));
            Reply::refused(RejectReason::AskedElsewhere, None, &error)
        }
    }
}
