//! Requests under the eyes of those who count.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Caller, Handled, MethodHandler, Reply, Server};
use crate::auth::Principal;
use crate::protocol::message::Request;
use crate::protocol::{Method, Revision};
use crate::telemetry::{
    Carried, Cells, Metrics, Onward, OperationId, Seen, Target, Watch, trace_of_meta,
};

/// What methods are counted under.
#[derive(Debug)]
pub(super) struct Operations {
    /// By method, in the order of [`Method::ALL`].
    methods: Vec<OperationId>,
    /// The application's own.
    custom: HashMap<String, OperationId>,
}

/// Stands for tools and prompts that are not known.
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

    /// What a method of any name is counted under; names that nobody registered are one.
    pub(super) fn named(&self, name: &str) -> OperationId {
        match Method::parse(name) {
            Some(method) => self.of(method),
            None => self.custom.get(name).copied().unwrap_or(OperationId::OTHER),
        }
    }
}

impl Caller<'_> {
    /// Where a request belongs in a trace, and what of that is passed on; what the message says comes before what its HTTP
    /// headers do, which a call has with it.
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

    /// Tells those who watch what the request is about.
    #[inline]
    pub(super) fn names(self, operation: OperationId) {
        if let Some(watch) = self.watch {
            watch.names(operation);
        }
    }
}

/// Tells those who watch which revision a request speaks, and within which session.
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
    /// Begins to watch a request, if anybody wants that.
    #[inline]
    pub(super) fn watch<'a>(
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
                Some(self.audited(audit, watch, principal, seen, request))
            }
        }
    }

    /// Watches a request to its end.
    #[inline]
    pub(super) fn watched(
        &self,
        watch: Option<Watch<'_>>,
        request: &Request<'_>,
        handled: Handled,
    ) -> Handled {
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

/// The document that a reply is, for those who trace.
fn document(reply: &Reply) -> Option<Bytes> {
    match reply {
        Reply::Answer(answer) => Some(answer.whole()),
        Reply::Accepted | Reply::Stream(_) | Reply::Cancelled => None,
    }
}

#[inline]
fn conclude(watch: Watch<'_>, handled: Handled) -> Handled {
    match handled {
        Handled::Now(Reply::Stream(mut stream)) => {
            stream.watch(watch.later());
            Handled::Now(Reply::Stream(stream))
        }
        Handled::Now(reply) => {
            watch.end(reply.verdict(), reply.reason(), || document(&reply));
            Handled::Now(reply)
        }
        Handled::Later(reply) => {
            let watch = watch.later();
            Handled::Later(Box::pin(async move {
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
