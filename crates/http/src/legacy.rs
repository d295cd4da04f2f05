//! The transport of 2024-11-05: `GET /sse`, and POST to the path that its first event names.

use std::task::{Context, Poll, ready};

use http::Method;
use http::request::Parts;

use super::context::{Dispatched, RequestContext};
use super::rejection::{HttpError, Rejection};
use super::request_body::RequestBody;
use super::route::MESSAGES;
use crate::protocol::Revision;
use crate::server::Reply;

/// Handles a request of that transport.
pub(super) fn dispatch(
    request: &RequestContext<'_>,
    cx: &mut Context<'_>,
    head: &Parts,
    body: &mut RequestBody<'_>,
) -> Poll<Result<Dispatched, Rejection>> {
    let origin = request.origin;
    let endpoint = &origin.router.endpoint;
    if head.method != Method::POST {
        return Poll::Ready(open_stream(request, head));
    }
    origin.summary.check_body()?;
    let id = session_id(head.uri.query()).ok_or(HttpError::SessionIdMissing)?;
    let body = ready!(body.poll_read(cx, origin, endpoint))?;
    let by = (&**origin.worker, request.telemetry());
    let posted = endpoint
        .server
        .post_sse_message(cx, by, request.principal, id, &body);
    Poll::Ready(Ok(match posted {
        Ok(posted) => {
            tokio::spawn(posted);
            Reply::Accepted.into()
        }
        Err(reply) => reply.into(),
    }))
}

/// Opens the stream of a session.
fn open_stream(request: &RequestContext<'_>, head: &Parts) -> Result<Dispatched, Rejection> {
    let origin = request.origin;
    let router = origin.router;
    if !origin.summary.takes_streams() {
        return Err(HttpError::StreamNotAcceptable.into());
    }
    let address = origin.client.map(|client| client.address);
    // Clients resolve the path against the URL that they know.
    let seen = origin.seen(&head.headers, &head.uri);
    let path = format!("{}{MESSAGES}", router.authenticator.prefix_of(seen));
    let server = &router.endpoint.server;
    let version = head.headers.get("mcp-protocol-version");
    let revision = version.and_then(|version| Revision::parse(version.to_str().ok()?));
    let opened = server.open_sse_session(request.principal, address, &path, revision);
    Ok(opened.map_or_else(|refusal| refusal, Reply::Stream).into())
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
