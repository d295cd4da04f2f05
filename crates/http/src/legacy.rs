//! The transport of 2024-11-05: `GET /sse`, and POST to the path that its first event names.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::{Method, Response, StatusCode};

use super::connection::ConnectionState;
use super::endpoint::Endpoint;
use super::error_response::{Rejection, respond};
use super::headers::Summary;
use super::router::Caller;
use crate::net::Body;
use crate::server::{Reply, WorkerState};
use crate::telemetry::Seen;

/// Path for posted messages.
pub(super) const MESSAGES: &str = "/messages";

/// A request of that transport.
pub(super) struct LegacyRequest<'r> {
    pub(super) method: &'r Method,
    pub(super) query: Option<&'r str>,
    pub(super) local: &'r WorkerState,
    /// Wire details of the request.
    pub(super) seen: Seen<'static>,
    pub(super) summary: &'r Summary,
    pub(super) connection: Option<&'r Arc<ConnectionState>>,
}

impl LegacyRequest<'_> {
    pub(super) async fn answer(
        self,
        endpoint: &Endpoint,
        entered: &Caller<'_>,
        body: &mut Body,
    ) -> Result<Response<Body>, Rejection> {
        if *self.method == Method::GET {
            if !self.summary.takes_streams() {
                return Err(Rejection::NotAcceptable);
            }
            let address = entered.client.map(|client| client.address);
            let opened = endpoint
                .server
                .open_sse_session(entered.principal, address, MESSAGES);
            let reply = opened.map_or_else(|refusal| refusal, Reply::Stream);
            return Ok(respond(reply, self.connection));
        }
        self.summary.check_body()?;
        let id = session_id(self.query).ok_or(Rejection::SessionIdMissing)?;
        let body = endpoint.read(self.connection, body).await?;
        let posted = poll_fn(|cx| {
            let (server, principal) = (&endpoint.server, entered.principal);
            Poll::Ready(server.post_sse_message(cx, (self.local, self.seen), principal, id, &body))
        });
        Ok(match posted.await {
            Ok(posted) => {
                tokio::spawn(posted);
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            }
            Err(refusal) => respond(refusal, None),
        })
    }
}

fn session_id(query: Option<&str>) -> Option<&str> {
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
