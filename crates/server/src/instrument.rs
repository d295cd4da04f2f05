//! Metrics, tracing and audit hooks around a request.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Caller, MaybeReady, MethodHandler, Reply, Server};
use crate::auth::Principal;
use crate::protocol::message::Request;
use crate::protocol::{Method, Revision};
use crate::telemetry::{
    Carried, Cells, Metrics, Onward, OperationId, Seen, Target, Watch, trace_of_meta,
};

/// Metric ids of methods.
#[derive(Debug)]
pub(super) struct Operations {
    /// By method, in the order of [`Method::ALL`].
    methods: Vec<OperationId>,
    /// Custom methods, by name.
    custom: HashMap<String, OperationId>,
}

/// Label of unknown tools and prompts.
const OTHER: &str = "_OTHER";

impl Operations {
    pub(super) fn new(metrics: &Metrics, custom: &HashMap<String, Arc<dyn MethodHandler>>) -> Self {
        let of = |method: Method| {
            let target = match method {
                Method::ToolsCall => Some((Target::Tool, OTHER)),
                Method::PromptsGet => Some((Target::Prompt, OTHER)),
                _ => None,
            };
            metrics.operation(method.as_str(), target)
        };
        Self {
            methods: Method::ALL.map(of).into(),
            custom: custom
                .keys()
                .map(|name| (name.clone(), metrics.operation(name, None)))
                .collect(),
        }
    }

    #[inline]
    pub(super) fn of(&self, method: Method) -> OperationId {
        let id = self.methods.get(method as usize);
        id.copied().unwrap_or(OperationId::OTHER)
    }

    /// Metric id of a method. Unregistered names share one.
    pub(super) fn named(&self, name: &str) -> OperationId {
        match Method::parse(name) {
            Some(method) => self.of(method),
            None => self.custom.get(name).copied().unwrap_or(OperationId::OTHER),
        }
    }
}

impl Caller<'_> {
    /// Position of the request in its trace, and the fields to propagate. Fields in the message take precedence over
    /// HTTP headers, which the call context carries.
    #[inline]
    pub(super) fn onward(self, request: &Request<'_>) -> Onward {
        let onward = Onward {
            place: self.watch.and_then(Watch::context),
            tracer: self.watch.and_then(Watch::tracer).cloned(),
            propagation: self.propagation,
            ..Onward::default()
        };
        match trace_of_meta(&request.params.meta) {
            None => onward,
            Some(said) => Onward {
                place: onward.place.or(Some(said)),
                in_message: true,
                carried: Carried::of(&request.params, self.propagation),
                ..onward
            },
        }
    }

    /// Reports the target of the request.
    #[inline]
    pub(super) fn names(self, operation: OperationId) {
        if let Some(watch) = self.watch {
            watch.names(operation);
        }
    }
}

/// Reports the revision and the session of the request.
#[inline]
pub(super) fn speaks(watch: Option<&Watch<'_>>, revision: Revision, session: Option<&Arc<str>>) {
    if let Some(watch) = watch {
        watch.speaks(revision);
        if let Some(session) = session {
            watch.is_in(session);
        }
    }
}

impl Server {
    /// Starts the hooks of a request, if any are enabled.
    #[inline]
    pub(super) fn observe<'a>(
        &self,
        cells: &'a Arc<Cells>,
        principal: &Arc<Principal>,
        seen: Seen<'_>,
        request: &Request<'_>,
    ) -> Option<Watch<'a>> {
        match &self.audit {
            None => self
                .telemetry
                .watches()
                .then(|| self.telemetry.watch(cells, seen, request)),
            Some(audit) => {
                let watch = self.telemetry.watch(cells, seen, request);
                Some(self.audit_request(audit, watch, principal, seen, request))
            }
        }
    }

    /// Reports the end of a request.
    #[inline]
    pub(super) fn observed(
        &self,
        watch: Option<Watch<'_>>,
        request: &Request<'_>,
        handled: MaybeReady,
    ) -> MaybeReady {
        match watch {
            None => handled,
            Some(watch) => {
                if !watch.has_name() {
                    watch.names(self.operations.named(&request.method));
                }
                conclude(watch, handled)
            }
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
fn conclude(watch: Watch<'_>, handled: MaybeReady) -> MaybeReady {
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
