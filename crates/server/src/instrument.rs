//! Metrics, tracing and audit hooks around a request.

use std::sync::Arc;

use bytes::Bytes;

use super::audit_record;
use super::parts::Server;
use super::reply::{MaybeReady, Reply};
use crate::auth::Principal;
use crate::protocol::message::Request;
use crate::telemetry::{RequestOrigin, RequestScope, WorkerCounters};

/// Starts the hooks of a request, if any are enabled.
#[inline]
pub(super) fn observe<'a>(
    server: &Server,
    cells: &'a Arc<WorkerCounters>,
    principal: &Arc<Principal>,
    seen: RequestOrigin<'_>,
    request: &Request<'_>,
) -> Option<RequestScope<'a>> {
    match &server.audit {
        None => server
            .observability
            .telemetry
            .watches()
            .then(|| server.observability.telemetry.watch(cells, seen, request)),
        Some(audit) => {
            let watch = server.observability.telemetry.watch(cells, seen, request);
            Some(audit_record::audit_request(
                server, audit, watch, principal, seen, request,
            ))
        }
    }
}

/// Reports the end of a request.
#[inline]
pub(super) fn observed(
    server: &Server,
    watch: Option<RequestScope<'_>>,
    request: &Request<'_>,
    handled: MaybeReady,
) -> MaybeReady {
    match watch {
        None => handled,
        Some(watch) => {
            if !watch.has_name() {
                watch.names(server.observability.operations.named(&request.method));
            }
            conclude(watch, handled)
        }
    }
}

/// The document of a reply, for traces.
fn document(reply: &Reply) -> Option<Bytes> {
    match reply {
        Reply::Response(answer) => Some(answer.to_bytes()),
        Reply::Accepted | Reply::Stream(_) | Reply::Cancelled => None,
    }
}

#[inline]
fn conclude(watch: RequestScope<'_>, handled: MaybeReady) -> MaybeReady {
    match handled {
        MaybeReady::Ready(Reply::Stream(mut stream)) => {
            stream.watch(watch.later());
            MaybeReady::Ready(Reply::Stream(stream))
        }
        MaybeReady::Ready(reply) => {
            watch.end(reply.verdict(), reply.reason(), || document(&reply));
            MaybeReady::Ready(reply)
        }
        MaybeReady::Pending(reply) => {
            let watch = watch.later();
            MaybeReady::Pending(Box::pin(async move {
                let mut reply = reply.await;
                if watch.is_replaced() {
                    return reply;
                }
                match &mut reply {
                    Reply::Stream(stream) => stream.watch(watch),
                    reply => watch.end(reply.verdict(), reply.reason(), || document(reply)),
                }
                reply
            }))
        }
    }
}
