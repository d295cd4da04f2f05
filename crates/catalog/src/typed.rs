//! An `async fn` with typed arguments becomes a [`Tool`].
//!
//! The arguments' type gives the input schema, the returned type the output schema, and deserialising
//! is the check wherever the schema says no more than the type does. `#[tool]` writes what [`tool_fn`]
//! lets one write by hand.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::catalog::{
    Arguments, CallContext, CallFuture, Definition, Output, Tool, ToolError, schema,
};
use crate::protocol::Content;

/// Makes a tool of a function that takes its arguments as one deserialisable type.
///
/// The input schema comes from `A`, the output schema from `R`, unless `definition` has its own.
/// A schema of one's own is checked by the server before each call; one that comes from the type is
/// mostly checked by deserialising, see [`TypedTool`].
///
/// Where a tool needs state, the function captures it:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use longshore::catalog::{CallContext, tool_fn};
/// use longshore::{Definition, JsonSchema};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Step {
///     /// How far to count on.
///     by: u64,
/// }
///
/// let count = Arc::new(AtomicU64::new(0));
/// let tool = tool_fn(
///     Definition::new("count").description("Counts on."),
///     move |_: Arc<CallContext>, step: Step| {
///         let count = Arc::clone(&count);
///         async move { Ok(count.fetch_add(step.by, Ordering::Relaxed) + step.by) }
///     },
/// );
/// # let _: &dyn longshore::Tool = &tool;
/// ```
pub fn tool_fn<A, R, F, Fut>(definition: Definition, function: F) -> TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: IntoOutput,
    F: Fn(Arc<CallContext>, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
{
    TypedTool {
        described: ToolSpec::new::<A>(definition, R::output_schema()),
        function,
        arguments: PhantomData,
    }
}

/// A tool made by [`tool_fn`].
///
/// It [checks its arguments itself](Tool::validates_arguments) if its schema comes from the type and
/// [says no more](schema::says_no_more_than_type). A range, a length or a pattern says more; then
/// the server checks the arguments against the schema before they are deserialised.
pub struct TypedTool<A, F> {
    described: ToolSpec,
    function: F,
    arguments: PhantomData<fn(A)>,
}

/// A value that can be registered as a tool.
///
/// Implemented by every [`Tool`], functions with `#[tool]` among them, and by `Arc<dyn Tool>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "a function becomes one by `#[tool]`",
    note = "put `#[longshore::tool]` on the function, or use `longshore::tool_fn` for a closure"
)]
pub trait IntoTool {
    /// The tool, as the server holds it.
    fn into_tool(self) -> Arc<dyn Tool>;
}

/// A type that a tool may return.
///
/// | returned | content | structured content, output schema |
/// |---|---|---|
/// | `String`, `&'static str`, `Cow<'static, str>` | one block of text | none |
/// | [`Content`], `Vec<Content>` | these blocks | none |
/// | `()` | empty | none |
/// | [`Output`] | as it says | as it says; none |
/// | any other `T: Serialize + JsonSchema` | its JSON, as one block of text | the value; the schema of `T` |
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "needs `Serialize` and `JsonSchema`, or a type such as `String`, `Vec<Content>` or `Output`",
    note = "derive `serde::Serialize` and `longshore::JsonSchema` for it, or build an `Output` by hand"
)]
pub trait IntoOutput: Sized {
    /// The value as a result.
    ///
    /// # Errors
    ///
    /// The value's own `Serialize` failed.
    fn into_output(self) -> Result<Output, ToolError>;

    /// The schema of the structured content, where there is any.
    fn output_schema() -> Option<Value>;
}

impl<A, F, R, Fut> Tool for TypedTool<A, F>
where
    A: DeserializeOwned + Send + 'static,
    R: IntoOutput,
    F: Fn(Arc<CallContext>, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
{
    fn definition(&self) -> &Definition {
        &self.described.definition
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        match arguments.parse() {
            Ok(arguments) => {
                let returned = (self.function)(context, arguments);
                Box::pin(async move { returned.await?.into_output() })
            }
            Err(invalid) => Box::pin(ready(Err(invalid.into()))),
        }
    }

    fn validates_arguments(&self) -> bool {
        self.described.validates_arguments
    }

    fn checks_output(&self) -> bool {
        self.described.checks_output
    }
}

impl<A, F> fmt::Debug for TypedTool<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedTool")
            .field(&self.described.definition.name)
            .finish()
    }
}

impl<T: Tool> IntoTool for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

impl IntoTool for Arc<dyn Tool> {
    fn into_tool(self) -> Arc<dyn Tool> {
        self
    }
}

impl IntoOutput for Output {
    fn into_output(self) -> Result<Output, ToolError> {
        Ok(self)
    }

    fn output_schema() -> Option<Value> {
        None
    }
}

impl<T: Serialize + JsonSchema + 'static> IntoOutput for T {
    /// Types that are not structured values are distinguished by their `TypeId`. The compiler knows it, so that one
    /// branch is left for each `T`.
    fn into_output(self) -> Result<Output, ToolError> {
        let mut value = Some(self);
        Ok(if let Some(text) = taken::<String>(&mut value) {
            Output::text(text)
        } else if let Some(text) = taken::<&'static str>(&mut value) {
            Output::text(text)
        } else if let Some(text) = taken::<Cow<'static, str>>(&mut value) {
            Output::text(text)
        } else if let Some(block) = taken::<Content>(&mut value) {
            Output::blocks([block])
        } else if let Some(blocks) = taken::<Vec<Content>>(&mut value) {
            Output::blocks(blocks)
        } else if let Some(()) = taken::<()>(&mut value) {
            Output::default()
        } else {
            structured(&value)?
        })
    }

    fn output_schema() -> Option<Value> {
        let nothing: &dyn Any = &None::<T>;
        let is_unstructured = nothing.is::<Option<String>>()
            || nothing.is::<Option<&'static str>>()
            || nothing.is::<Option<Cow<'static, str>>>()
            || nothing.is::<Option<Content>>()
            || nothing.is::<Option<Vec<Content>>>()
            || nothing.is::<Option<()>>();
        (!is_unstructured).then(schema::of_output::<T>)
    }
}

/// A definition with the schemas that come from types, and who is to check the arguments.
#[doc(hidden)]
#[derive(Debug)]
pub struct ToolSpec {
    pub definition: Definition,
    pub validates_arguments: bool,
    pub checks_output: bool,
}

impl ToolSpec {
    pub fn new<A: JsonSchema + DeserializeOwned>(
        definition: Definition,
        output_schema: Option<Value>,
    ) -> Self {
        Self::by(definition, schema::of_arguments::<A>, output_schema)
    }

    /// The part that does not depend on the type, compiled once.
    #[inline(never)]
    fn by(
        mut definition: Definition,
        of_arguments: fn() -> Value,
        output_schema: Option<Value>,
    ) -> Self {
        // The schema that `Definition::new` sets.
        let unset = json!({"type": "object", "additionalProperties": false});
        let from_type = definition.input_schema == unset;
        if from_type {
            definition.input_schema = of_arguments();
        }
        // A schema of the author's own may promise more than the type keeps.
        let output_from_type = definition.output_schema.is_none();
        if output_from_type {
            definition.output_schema = output_schema;
        }
        let kept = schema::says_no_more_than_type;
        let output_schema = definition.output_schema.as_ref();
        let checks_output = output_from_type && output_schema.is_none_or(kept);
        let validates_arguments = from_type && kept(&definition.input_schema);
        definition.returns_numbers =
            checks_output && output_schema.is_some_and(schema::requires_number);
        let input = from_type.then_some(&mut definition.input_schema);
        let output = definition.output_schema.as_mut();
        let generated = input.into_iter().chain(output.filter(|_| output_from_type));
        generated.for_each(schema::without_rust_formats);
        Self {
            definition,
            validates_arguments,
            checks_output,
        }
    }
}

/// A structured value with the same JSON as text.
pub(super) fn structured<T: Serialize + ?Sized>(value: &T) -> Result<Output, ToolError> {
    Output::structured(value)
        .map_err(|e| ToolError::internal("the result could not be written as JSON").caused_by(e))
}

/// Takes the value out if it is a `U`.
pub(super) fn taken<U: 'static>(value: &mut dyn Any) -> Option<U> {
    value.downcast_mut::<Option<U>>()?.take()
}

#[cfg(test)]
mod tests;
