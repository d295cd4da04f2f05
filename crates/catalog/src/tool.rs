//! Tools and their definitions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::catalog::definition::definition_setters;
use crate::catalog::{Arguments, CallContext, Output, Provided, ToolError, Unprovided};
use crate::protocol::{Icon, ToolAnnotations};

/// The future of one call.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send + 'static>>;

/// A function that a client can call by name.
///
/// Implemented by `#[tool]` functions, by [`tool_fn`](crate::catalog::tool_fn), and by own types. The server knows no
/// other kind.
///
/// # Cancellation
///
/// The future is dropped when the call is cancelled or runs out of time; in the stateless lifecycle also when the
/// client goes away. Work that must finish belongs in a task of its own.
///
/// # Panics
///
/// A panic ends this one call with an internal error and nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "a function becomes one by `#[tool]`",
    note = "put `#[longshore::tool]` on the function, or use `longshore::tool_fn` for a closure"
)]
pub trait Tool: Send + Sync + 'static {
    /// The definition that `tools/list` returns. It does not change.
    fn definition(&self) -> &Definition;

    /// Runs once. `arguments` have passed the input schema, unless [`validates_arguments`](Self::validates_arguments).
    ///
    /// # Errors
    ///
    /// An error is a result that the model reads (`isError: true`); see [`ToolError`].
    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture;

    /// Returns true if the tool rejects invalid arguments itself, so that the server does not validate them.
    ///
    /// Typed tools do, by deserialization, if their schema says no more than their type. Default: false.
    fn validates_arguments(&self) -> bool {
        false
    }

    /// Returns true if results always match the output schema, so that the server does not validate them.
    ///
    /// Results of typed tools do, since the schema comes from the type. Default: false.
    fn checks_output(&self) -> bool {
        false
    }

    /// Returns the other server that calls reach, and with whose identity, for the audit log. Default: `None`, for tools that
    /// reach none.
    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        None
    }

    /// The tool that is served in place of this one, made with the values of `App::provide`; `None`
    /// to serve this one. Called once, at start. Default: `None`.
    ///
    /// # Errors
    ///
    /// A value that it needs was not provided. The server does not start then.
    fn bind(&self, provided: &Provided) -> Result<Option<Arc<dyn Tool>>, Unprovided> {
        let _ = provided;
        Ok(None)
    }
}

/// The other server that calls of a tool reach, and with whose identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamIdentity<'t> {
    /// Name of the source or upstream server in the configuration.
    pub name: &'t str,
    /// `service` for configured credentials, `caller` for the caller's exchanged token, `user_login` for the user's own login
    /// there, `none` without credentials.
    pub identity: &'static str,
}

longshore_protocol::named_enum! {
    /// Support of a tool for calls that outlive their request, as tasks.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum TaskSupport {
        /// Calls are not tasks.
        #[default]
        Forbidden = "forbidden",
        /// Calls are tasks for clients that support tasks.
        Optional = "optional",
        /// Every call is a task.
        Required = "required",
    }
    /// The word on the wire.
    pub fn as_str;
}

/// Definition of a tool: name, schemas, hints, and settings for its calls.
///
/// ```
/// use longshore::Definition;
/// use serde_json::json;
///
/// let definition = Definition::new("greet")
///     .description("Greets somebody by name.")
///     .input_schema(json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}));
/// assert_eq!(definition.name(), "greet");
/// ```
#[derive(Clone, Debug)]
pub struct Definition {
    #[doc(hidden)]
    pub name: String,
    #[doc(hidden)]
    pub title: Option<String>,
    #[doc(hidden)]
    pub description: Option<String>,
    #[doc(hidden)]
    pub input_schema: Value,
    #[doc(hidden)]
    pub output_schema: Option<Value>,
    #[doc(hidden)]
    pub annotations: ToolAnnotations,
    #[doc(hidden)]
    pub icons: Vec<Icon>,
    #[doc(hidden)]
    pub meta: Map<String, Value>,
    #[doc(hidden)]
    pub timeout: Option<Duration>,
    #[doc(hidden)]
    pub scopes: Vec<String>,
    #[doc(hidden)]
    pub task: TaskSupport,
    #[doc(hidden)]
    pub deferred_task: bool,
    /// URI of the view that hosts show for it.
    #[doc(hidden)]
    pub view: Option<String>,
    /// True if the output schema comes from a type with numbers, which can be NaN or infinite.
    #[doc(hidden)]
    pub returns_numbers: bool,
}

impl Definition {
    /// A tool that takes no arguments, until [`input_schema`](Self::input_schema) says otherwise.
    ///
    /// Names have 1 to 128 characters of `A-Z`, `a-z`, `0-9`, `_`, `-` and `.`; others are refused when the
    /// tool is registered.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: json!({"type": "object", "additionalProperties": false}),
            output_schema: None,
            annotations: ToolAnnotations::default(),
            icons: Vec::new(),
            meta: Map::new(),
            timeout: None,
            scopes: Vec::new(),
            task: TaskSupport::Forbidden,
            deferred_task: false,
            view: None,
            returns_numbers: false,
        }
    }

    /// Sets the input schema: a JSON Schema 2020-12 whose root has `"type": "object"`.
    /// Clients are sent an equivalent schema, in the form that most of them can read.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.input_schema = schema;
        self
    }

    /// Sets the schema of structured results.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Sets the hints on its behaviour.
    #[must_use]
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets the hint that it changes nothing.
    #[must_use]
    pub fn read_only(mut self, hint: bool) -> Self {
        self.annotations.read_only_hint = Some(hint);
        self
    }

    /// Sets the hint that it may delete or overwrite data.
    #[must_use]
    pub fn destructive(mut self, hint: bool) -> Self {
        self.annotations.destructive_hint = Some(hint);
        self
    }

    /// Sets the hint that a repeated call with the same arguments changes nothing more.
    #[must_use]
    pub fn idempotent(mut self, hint: bool) -> Self {
        self.annotations.idempotent_hint = Some(hint);
        self
    }

    /// Sets the hint that it interacts with external systems.
    #[must_use]
    pub fn open_world(mut self, hint: bool) -> Self {
        self.annotations.open_world_hint = Some(hint);
        self
    }

    /// Sets the support for calls that outlive their request, as tasks. Default: none.
    ///
    /// Clients of 2026-07-28 that declare the extension `io.modelcontextprotocol/tasks` get a task for each call, and
    /// clients of 2025-11-25 if they ask for one. All others get the result, unless the tool
    /// [requires](TaskSupport::Required) a task. A task has no progress and no log messages. It continues when its
    /// client disconnects. Its questions wait for an answer, and the tool does not run again.
    #[must_use]
    pub fn task(mut self, support: TaskSupport) -> Self {
        self.task = support;
        self
    }

    /// A call in 2026-07-28 becomes a task only when it says so with
    /// [`CallContext::begin_task`](crate::CallContext::begin_task); until then it can ask, and say how far it is, as every call
    /// can.
    #[must_use]
    pub fn deferred_task(mut self) -> Self {
        self.deferred_task = true;
        self
    }

    /// Adds a scope that a caller's token must have.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

definition_setters!(Definition, "model that chooses a tool", "call");
