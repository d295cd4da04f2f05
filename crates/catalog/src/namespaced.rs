//! Prefixes for the names of another source's items.

use std::sync::Arc;

use super::{
    ArgumentFuture, Arguments, CallContext, CallFuture, CompletionRequest, Definition, Parameters,
    Prompt, PromptDefinition, PromptFuture, Provided, SourceItems, Tool, Unprovided,
    UpstreamIdentity,
};

impl SourceItems {
    /// Adds a prefix to the names of tools and prompts. Resources keep their URIs.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        if prefix.is_empty() {
            return self;
        }
        let tools = self.tools.into_iter();
        self.tools = tools
            .map(|tool| -> Arc<dyn Tool> { Arc::new(PrefixedTool::new(prefix, tool)) })
            .collect();
        let prompts = self.prompts.into_iter();
        self.prompts = prompts
            .map(|prompt| -> Arc<dyn Prompt> { Arc::new(PrefixedPrompt::new(prefix, prompt)) })
            .collect();
        self
    }
}

struct PrefixedTool {
    definition: Definition,
    inner: Arc<dyn Tool>,
}

impl PrefixedTool {
    fn new(prefix: &str, inner: Arc<dyn Tool>) -> Self {
        let mut definition = inner.definition().clone();
        definition.name.insert_str(0, prefix);
        Self { definition, inner }
    }
}

impl Tool for PrefixedTool {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        self.inner.call(context, arguments)
    }

    fn validates_arguments(&self) -> bool {
        self.inner.validates_arguments()
    }

    fn checks_output(&self) -> bool {
        self.inner.checks_output()
    }

    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        self.inner.upstream()
    }

    fn bind(&self, provided: &Provided) -> Result<Option<Arc<dyn Tool>>, Unprovided> {
        let bound = self.inner.bind(provided)?;
        let definition = self.definition.clone();
        Ok(bound.map(|inner| Arc::new(Self { definition, inner }) as Arc<dyn Tool>))
    }
}

struct PrefixedPrompt {
    definition: PromptDefinition,
    inner: Arc<dyn Prompt>,
}

impl PrefixedPrompt {
    fn new(prefix: &str, inner: Arc<dyn Prompt>) -> Self {
        let mut definition = inner.definition().clone();
        definition.name.insert_str(0, prefix);
        Self { definition, inner }
    }
}

impl Prompt for PrefixedPrompt {
    fn definition(&self) -> &PromptDefinition {
        &self.definition
    }

    fn get(&self, context: Arc<CallContext>, arguments: Parameters) -> PromptFuture {
        self.inner.get(context, arguments)
    }

    fn completes(&self, argument: &str) -> bool {
        self.inner.completes(argument)
    }

    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> ArgumentFuture {
        self.inner.complete(context, request)
    }

    fn bind(&self, provided: &Provided) -> Result<Option<Arc<dyn Prompt>>, Unprovided> {
        let bound = self.inner.bind(provided)?;
        let definition = self.definition.clone();
        Ok(bound.map(|inner| Arc::new(Self { definition, inner }) as Arc<dyn Prompt>))
    }
}
