//! The transport of 2024-11-05: `GET /sse`, and POST to the path that its first event names.

use std::task::Context;

use bytes::Bytes;

use super::context::{Dispatched, RequestContext};
use super::rejection::{HttpError, Rejection};
use super::route::MESSAGES;
use crate::auth::RequestTarget;
use crate::server::Reply;

/// Handles a request of that transport; `body` is that of a posted message.
pub(super) fn dispatch(
    request: &RequestContext<'_>,
    cx: &mut Context<'_>,
    seen: RequestTarget<'_>,
    body: Option<Bytes>,
) -> Result<Dispatched, Rejection> {
    let origin = request.origin;
    let server = &origin.router.endpoint.server;
    let Some(body) = body else {
        if !request.origin.summary.takes_streams() {
            return Err(HttpError::StreamNotAcceptable.into());
        }
        let address = origin.client.map(|client| client.address);
        // Clients resolve the path against the URL that they know.
        let prefix = origin.router.authenticator.prefix_of(seen);
        let path = format!("{prefix}{MESSAGES}");
        let opened = server.open_sse_session(request.principal, address, &path);
        let reply = opened.map_or_else(|refusal| refusal, Reply::Stream);
        return Ok(Dispatched::Ready(reply));
    };
    let id = session_id(seen.uri.query()).ok_or(HttpError::SessionIdMissing)?;
    let by = (&**origin.worker, request.telemetry());
    match server.post_sse_message(cx, by, request.principal, id, &body) {
        Ok(posted) => {
            tokio::spawn(posted);
            Ok(Dispatched::Ready(Reply::Accepted))
        }
        Err(reply) => Ok(reply.into()),
    }
}

/// Reads the session's ID in a query.
pub(super) fn session_id(query: Option<&str>) -> Option<&str> {
    let mut ids = query?
        .split('&')
        .filter_map(|pair| pair.strip_prefix("sessionId="));
    let id = ids.next().filter(|id| !id.is_empty())?;
    ids.next().is_none().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_once() {
        assert_eq!(session_id(Some("sessionId=ab")), Some("ab"));
        assert_eq!(session_id(Some("x=1&sessionId=ab&y")), Some("ab"));
        for none in ["", "sessionId=", "sessionid=ab", "sessionId=a&sessionId=b"] {
            assert_eq!(session_id(Some(none)), None);
        }
        assert_eq!(session_id(None), None);
    }
}
