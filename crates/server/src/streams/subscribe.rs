//! Handlers of `resources/subscribe` and `resources/unsubscribe`.

use std::sync::Arc;

use super::subscriptions::SubscriptionError;
use crate::limit::Limit;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, fault_of_uri};
use crate::server::errors::{check_scopes, invalid_params};
use crate::server::parts::Server;
use crate::server::reply::{MaybeReady, Reply};
use crate::server::request_context::Caller;
use crate::server::resources::not_found;
use crate::server::share::owner_of;
use crate::state::StateError;

/// Handles both methods (SUB-08). The URI need not exist, since its resource can be added later.
pub(crate) fn change_subscription(
    server: &Server,
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
    if adds {
        // A URI that the caller does not see must look unknown.
        let needed = server
            .snapshots
            .load()
            .scopes_to_subscribe(caller.principal, &uri)
            .ok_or_else(|| not_found(request.id, &uri, caller.revision))?;
        check_scopes(caller.principal, request.id, &needed)?;
    }
    let Some(session) = caller.session.cloned() else {
        return Err(invalid_params(request.id, "the request has no session"));
    };
    let (streams, uri) = (Arc::clone(&server.streams), uri.into_owned());
    let hits = Arc::clone(&server.limits.hits);
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
                Reply::fail(&id, ErrorCode::Internal, message)
            }
            Err(SubscriptionError::State(error)) => {
                streams.report_failure(&error, "a subscription could not be remembered");
                let message = "subscriptions cannot be remembered now; try again later";
                Reply::fail(&id, ErrorCode::Internal, message)
            }
            Err(refused) => {
                if let SubscriptionError::TooMany(_) = refused {
                    hits.count(Limit::Subscriptions);
                }
                invalid_params(&id, &refused.to_string())
            }
        }
    })))
}
