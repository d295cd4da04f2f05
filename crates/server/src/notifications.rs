//! Notifications from clients, and responses to client requests.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::client_requests::Delivery;
use super::errors;
use super::inflight;
use super::parts::Server;
use super::reply::{MaybeReady, RejectReason, Reply};
use super::streams;
use super::streams::BusMessage;
use crate::auth::Principal;
use crate::protocol::message::{Malformed, Notification, Response};
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
    server: &Arc<Server>,
    session: &str,
    principal: &Principal,
    response: &Response<'_>,
) -> MaybeReady {
    match server
        .calls
        .inflight
        .client_requests
        .deliver(session, principal.id(), response)
    {
        Delivery::Here => MaybeReady::Ready(Reply::Accepted),
        Delivery::Elsewhere(to) => forward_response(server, to, session, principal, response),
    }
}

/// Handles a malformed response to a client request of `session`. The request fails, since its client has no other response
/// to it.
#[cold]
pub(super) fn handle_malformed_response(
    server: &Arc<Server>,
    session: &str,
    principal: &Principal,
    problem: &Malformed<'_>,
) -> MaybeReady {
    let refusal = errors::malformed_message(&server.limits.hits, problem);
    let code = ErrorCode::InvalidRequest.number();
    let error = json!({"code": code, "message": problem.reason}).to_string();
    let response = Response {
        id: problem.id,
        outcome: Err(&error),
    };
    match handle_response(server, session, principal, &response) {
        MaybeReady::Ready(_) => MaybeReady::Ready(refusal),
        MaybeReady::Pending(forwarded) => MaybeReady::Pending(Box::pin(async move {
            drop(forwarded.await);
            refusal
        })),
    }
}

/// Forwards a response to the replica that sent the request.
#[cold]
fn forward_response(
    server: &Arc<Server>,
    to: u32,
    session: &str,
    principal: &Principal,
    response: &Response<'_>,
) -> MaybeReady {
    let (Some(id), outcome) = (response.id, response.outcome) else {
        return MaybeReady::Ready(Reply::Accepted);
    };
    let size = outcome.map_or_else(str::len, str::len);
    if server.streams.is_shared() && size <= FORWARD_BYTES_MAX {
        let message = BusMessage::Answered {
            to,
            session: session.into(),
            principal: principal.id().into(),
            id: id.to_owned(),
            outcome: outcome.map(str::to_owned).map_err(str::to_owned),
        };
        return MaybeReady::Pending(Box::pin(forward(Arc::clone(server), message)));
    }
    let message = if server.streams.is_shared() {
        "this response is for a request of another replica, and is too large to be passed on; route a session to one replica"
    } else {
        "this response is for a request of another replica, and replicas share no state (App::store); configure one, or route a session to one replica"
    };
    let error = ErrorObject::new(ErrorCode::Http(409), message);
    let error = error.with_data(json!({"setting": "state"}));
    MaybeReady::Ready(Reply::refused(RejectReason::AskedElsewhere, None, &error))
}

/// Forwards a client's message to the replica that it is for. Accepts it only after that, so that the client sends it again
/// if the shared state is down.
pub(super) async fn forward(server: Arc<Server>, message: BusMessage) -> Reply {
    match streams::publish(&server, message).await {
        Ok(()) => Reply::Accepted,
        Err(_) => Reply::refuse(
            RejectReason::StateUnavailable,
            None,
            ErrorCode::Http(503),
            "this message is for another replica, and could not be passed on, because the shared state is not available; send it again later",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::testing::{Asked, Fronted, StandIn};
    use crate::state::{Memory, SharedState, StateError, StateFuture};
    use crate::tests::replica_of;

    #[derive(Debug)]
    struct Down(Memory);

    impl StandIn for Down {
        fn store(&self) -> &Memory {
            &self.0
        }

        fn instead<'a, T: Send + 'a>(&'a self, _: Asked) -> Option<StateFuture<'a, T>> {
            let reason = "down".to_owned();
            let failed = Err(StateError::Unreachable { reason });
            Some(Box::pin(std::future::ready(failed)))
        }
    }

    #[tokio::test]
    async fn a_response_for_another_replica_is_accepted_only_if_it_is_passed_on() {
        let down = Arc::new(Fronted(Down(Memory::new(1 << 20))));
        let down = SharedState::new(down, Duration::from_secs(1));
        let id = format!("\"{}\"", (1_u64 << 62) | (7 << 30));
        let response = Response {
            id: Some(&id),
            outcome: Ok("{}"),
        };
        for (state, is_accepted) in [(SharedState::default(), true), (down, false)] {
            let server = replica_of(state);
            let ada = Principal::new("ada");
            let handled = handle_response(&server, "session", &ada, &response);
            match handled.reply().await {
                Reply::Accepted => assert!(is_accepted),
                Reply::Response(response) => {
                    assert!(!is_accepted);
                    assert_eq!(response.refusal, Some(RejectReason::StateUnavailable));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
