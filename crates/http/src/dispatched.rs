//! What the handler of a request returns.

use std::future::Future;
use std::pin::Pin;

use http::Response;

use super::rejection::Rejection;
use crate::net::Body;
use crate::server::{MaybeReady, Reply};

/// Future in which a stage waits.
pub(super) type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Result of a request before its rejection becomes a response.
pub(super) type Outcome = Result<Response<Body>, Rejection>;

/// What a handler returns, or what it waits for.
pub(super) enum Dispatched {
    /// Reply of the server, from which [`RequestContext::respond`](super::context::RequestContext::respond) builds the response.
    Ready(Reply),
    Reply(Waiting<Reply>),
    Done(Box<Response<Body>>),
    Respond(Waiting<Outcome>),
}

impl Dispatched {
    /// A complete response.
    pub(super) fn done(response: Response<Body>) -> Self {
        Self::Done(Box::new(response))
    }
}

impl From<MaybeReady> for Dispatched {
    #[inline]
    fn from(reply: MaybeReady) -> Self {
        match reply {
            MaybeReady::Ready(reply) => Self::Ready(reply),
            MaybeReady::Pending(reply) => Self::Reply(reply),
        }
    }
}
