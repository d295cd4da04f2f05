//! Tools that are made from a configuration: a definition, and a plan of what a call does.

use std::fmt;
use std::sync::Arc;

use crate::catalog::{
    Arguments, CallContext, CallFuture, Definition, Output, Tool, ToolError, UpstreamIdentity,
};

/// Plan of the calls of a tool. It checks results itself.
pub trait ToolPlan: Send + Sync + 'static {
    /// Runs once.
    ///
    /// # Errors
    ///
    /// The same as those of [`Tool::call`].
    fn run(
        self: Arc<Self>,
        context: Arc<CallContext>,
        arguments: Arguments,
    ) -> impl Future<Output = Result<Output, ToolError>> + Send;

    /// See [`Tool::upstream`].
    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        None
    }
}

/// A tool that runs a plan.
pub struct PlanTool<P> {
    pub definition: Definition,
    pub plan: Arc<P>,
}

impl<P: ToolPlan> Tool for PlanTool<P> {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        Box::pin(Arc::clone(&self.plan).run(context, arguments))
    }

    fn checks_output(&self) -> bool {
        true
    }

    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        self.plan.upstream()
    }
}

impl<P> fmt::Debug for PlanTool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlanTool")
            .field(&self.definition.name)
            .finish()
    }
}
