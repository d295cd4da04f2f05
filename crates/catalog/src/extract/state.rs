//! Values of the application that extractors use.

use std::fmt;
use std::sync::Arc;

use super::Rejection;
use crate::catalog::{
    ArgumentFuture, Arguments, CallContext, CallFuture, CompletionRequest, Definition, Parameters,
    Prompt, PromptDefinition, PromptFuture, Provided, ReadFuture, Resource, ResourceDefinition,
    ResourceTemplate, Tool, Unprovided, VariableFuture,
};

/// Collects the values of the application that an extractor needs, in [`FromCall::requires`](super::FromCall::requires).
pub struct RequiredState<'a> {
    provided: &'a Provided,
    object: Provided,
    found: Provided,
    missing: Option<Unprovided>,
}

impl<'a> RequiredState<'a> {
    #[doc(hidden)]
    pub fn new(provided: &'a Provided) -> Self {
        Self {
            provided,
            object: Provided::default(),
            found: Provided::default(),
            missing: None,
        }
    }

    /// Declares a type whose value the extractor needs. `App::provide` adds values; in the methods of `#[tools]`, the object
    /// itself is one.
    ///
    /// The server does not start without the value. In calls, [`CallContext::state`] returns it.
    pub fn needs<T: Send + Sync + 'static>(&mut self) {
        match self.object.get::<T>().or_else(|_| self.provided.get::<T>()) {
            Ok(value) => self.found.insert_shared(value),
            Err(unprovided) => self.missing = self.missing.or(Some(unprovided)),
        }
    }

    /// Adds the object whose method this is. It comes before a value of its type from the application.
    #[doc(hidden)]
    pub fn offer<T: Send + Sync + 'static>(&mut self, object: Arc<T>) {
        self.object.insert_shared(object);
    }

    /// The values; `None` if none are needed.
    #[doc(hidden)]
    pub fn finish(self) -> Result<Option<Arc<Provided>>, Unprovided> {
        match self.missing {
            Some(unprovided) => Err(unprovided),
            None if self.found.is_empty() => Ok(None),
            None => Ok(Some(Arc::new(self.found))),
        }
    }
}

impl fmt::Debug for RequiredState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequiredState")
            .field("found", &self.found)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl CallContext {
    /// The application's value of a type, for extractors that declare it in
    /// [`requires`](super::FromCall::requires).
    ///
    /// # Errors
    ///
    /// The extractor has not declared it. With `?`, the call fails with an internal error, and the log names the type.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, Rejection> {
        let found = self.state.get().and_then(|state| state.get().ok());
        found.ok_or_else(|| {
            Rejection::internal(format!(
                "an extractor uses the state `{0}` without declaring it; add state.needs::<{0}>() to its FromCall::requires",
                std::any::type_name::<T>()
            ))
        })
    }

    /// Sets a value of the application, for unit tests of an extractor that needs it.
    #[must_use]
    pub fn with_state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let mut state = self
            .state
            .take()
            .map_or_else(Provided::default, |state| (*state).clone());
        state.insert(value);
        self.state = Arc::new(state).into();
        self
    }
}

/// A tool, resource, template or prompt whose extractors need values of the application.
///
/// A wrapper, so that all others pay nothing for it.
#[doc(hidden)]
#[derive(Debug)]
pub struct WithState<T> {
    inner: T,
    state: Arc<Provided>,
}

impl<T> WithState<T> {
    pub fn new(inner: T, state: Arc<Provided>) -> Self {
        Self { inner, state }
    }

    fn lend(&self, context: &CallContext) {
        // A call has one function, so this is the first value, or the same one again.
        let _ = context.state.set(Arc::clone(&self.state));
    }
}

impl<T: Tool> Tool for WithState<T> {
    fn definition(&self) -> &Definition {
        self.inner.definition()
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        self.lend(&context);
        self.inner.call(context, arguments)
    }

    fn validates_arguments(&self) -> bool {
        self.inner.validates_arguments()
    }

    fn checks_output(&self) -> bool {
        self.inner.checks_output()
    }
}

impl<T: Resource> Resource for WithState<T> {
    fn definition(&self) -> &ResourceDefinition {
        self.inner.definition()
    }

    fn read(&self, context: Arc<CallContext>) -> ReadFuture {
        self.lend(&context);
        self.inner.read(context)
    }
}

impl<T: ResourceTemplate> ResourceTemplate for WithState<T> {
    fn definition(&self) -> &ResourceDefinition {
        self.inner.definition()
    }

    fn read(&self, context: Arc<CallContext>, uri: &str, variables: Parameters) -> ReadFuture {
        self.lend(&context);
        self.inner.read(context, uri, variables)
    }

    fn completes(&self, variable: &str) -> bool {
        self.inner.completes(variable)
    }

    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> VariableFuture {
        self.lend(&context);
        self.inner.complete(context, request)
    }
}

impl<T: Prompt> Prompt for WithState<T> {
    fn definition(&self) -> &PromptDefinition {
        self.inner.definition()
    }

    fn get(&self, context: Arc<CallContext>, arguments: Parameters) -> PromptFuture {
        self.lend(&context);
        self.inner.get(context, arguments)
    }

    fn completes(&self, argument: &str) -> bool {
        self.inner.completes(argument)
    }

    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> ArgumentFuture {
        self.lend(&context);
        self.inner.complete(context, request)
    }
}
