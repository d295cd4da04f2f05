//! Requests under the eyes of those who count.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Caller, Handled, MethodHandler, Reply, Server};
use crate::protocol::message::Request;
use crate::protocol::{Method, Revision};
use crate::telemetry::{Cells, Metrics, OperationId, Target, Watch, Wire};

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
    /// Tells those who watch what the request is about.
    #[inline]
    pub(super) fn names(self, operation: OperationId) {
        if let Some(watch) = self.watch {
            watch.names(operation);
        }
    }
}

/// Tells those who watch which revision a request speaks.
#[inline]
pub(super) fn speaks(watch: Option<&Watch<'_>>, revision: Revision) {
    if let Some(watch) = watch {
        watch.speaks(revision);
    }
}

impl Server {
    /// Has a request handled, and watches it to its end if anybody wants that.
    #[inline]
    pub(super) fn watched(
        &self,
        cells: &Arc<Cells>,
        wire: Wire,
        request: &Request<'_>,
        handle: impl FnOnce(Option<&Watch<'_>>) -> Handled,
    ) -> Handled {
        let watch = self
            .telemetry
            .watches()
            .then(|| self.telemetry.watch(cells, wire));
        let handled = handle(watch.as_ref());
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

#[inline]
fn conclude(watch: Watch<'_>, handled: Handled) -> Handled {
    match handled {
        Handled::Now(Reply::Stream(mut stream)) => {
            stream.watch(watch.later());
            Handled::Now(Reply::Stream(stream))
        }
        Handled::Now(reply) => {
            watch.end(reply.verdict());
            Handled::Now(reply)
        }
        Handled::Later(reply) => {
            let watch = watch.later();
            Handled::Later(Box::pin(async move {
                let mut reply = reply.await;
                match &mut reply {
                    Reply::Stream(stream) => stream.watch(watch),
                    reply => watch.end(reply.verdict()),
                }
                reply
            }))
        }
    }
}
