//! Resources and resource templates.

use std::error::Error;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::catalog::{
    CallContext, ClientRequestError, CompletionRequest, Completions, InvalidParameter, Parameters,
    ProtocolError, Provided, Unprovided,
};
use crate::protocol::{
    Annotations, CacheScope, ClientAbility, ErrorObject, Icon, ResourceContents, UriTemplate,
};

/// The future of one reading.
pub type ReadFuture =
    Pin<Box<dyn Future<Output = Result<Vec<ResourceContents>, ResourceError>> + Send + 'static>>;

/// The future of suggestions for a variable.
pub type VariableFuture =
    Pin<Box<dyn Future<Output = Result<Completions, ResourceError>> + Send + 'static>>;

/// Content that a client can read by its URI.
///
/// Implemented by `#[resource]` functions, by [`StaticResource`](crate::catalog::StaticResource), by
/// [`resource_fn`](crate::catalog::resource_fn), and by own types.
///
/// Its future is dropped, and its panics end, as those of a [`Tool`](crate::Tool) do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a resource",
    label = "a function becomes one by `#[resource]`",
    note = "put `#[longshore::resource]` on the function, or use `longshore::resource_fn` for a closure"
)]
pub trait Resource: Send + Sync + 'static {
    /// The definition that `resources/list` returns. It does not change.
    fn definition(&self) -> &ResourceDefinition;

    /// Reads it. An empty `uri` and a missing `mime_type` of the contents are filled in from the request.
    ///
    /// # Errors
    ///
    /// A JSON-RPC error; see [`ResourceError`]. Empty contents are reported as not found, too.
    fn read(&self, context: Arc<CallContext>) -> ReadFuture;

    /// The resource that is served in place of this one, made with the values of `App::provide`; `None`
    /// to serve this one. Called once, at start. Default: `None`.
    ///
    /// # Errors
    ///
    /// A value that it needs was not provided. The server does not start then.
    fn bind(&self, provided: &Provided) -> Result<Option<Arc<dyn Resource>>, Unprovided> {
        let _ = provided;
        Ok(None)
    }
}

/// A set of resources whose URIs match a template.
///
/// Implemented by `#[resource]` functions whose URI has variables, by
/// [`template_fn`](crate::catalog::template_fn), and by own types.
pub trait ResourceTemplate: Send + Sync + 'static {
    /// The definition that `resources/templates/list` returns; its URI is a template. It does not change.
    fn definition(&self) -> &ResourceDefinition;

    /// Reads the resource at `uri`, in which the template's variables have the values `variables`.
    ///
    /// # Errors
    ///
    /// A JSON-RPC error; see [`ResourceError`]. Empty contents are reported as not found, too.
    fn read(&self, context: Arc<CallContext>, uri: &str, variables: Parameters) -> ReadFuture;

    /// Returns true if there are suggestions for a variable. Default: false.
    fn completes(&self, variable: &str) -> bool {
        let _ = variable;
        false
    }

    /// Suggests values for a variable. Called only for variables that it [completes](Self::completes).
    ///
    /// # Errors
    ///
    /// A JSON-RPC error; see [`ResourceError`].
    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> VariableFuture {
        let _ = (context, request);
        Box::pin(ready(Ok(Completions::default())))
    }

    /// The template that is served in place of this one, made with the values of `App::provide`; `None`
    /// to serve this one. Called once, at start. Default: `None`.
    ///
    /// # Errors
    ///
    /// A value that it needs was not provided. The server does not start then.
    fn bind(&self, provided: &Provided) -> Result<Option<Arc<dyn ResourceTemplate>>, Unprovided> {
        let _ = provided;
        Ok(None)
    }
}

/// Definition of a resource or a resource template.
///
/// ```
/// use std::time::Duration;
/// use longshore::{CacheScope, ResourceDefinition};
///
/// let definition = ResourceDefinition::new("config://app", "app configuration")
///     .description("The settings in force.")
///     .mime_type("application/toml")
///     .ttl(Duration::from_secs(60))
///     .cache_scope(CacheScope::Public);
/// assert_eq!(definition.uri(), "config://app");
/// ```
#[derive(Clone, Debug)]
pub struct ResourceDefinition {
    #[doc(hidden)]
    pub uri: String,
    #[doc(hidden)]
    pub name: String,
    #[doc(hidden)]
    pub title: Option<String>,
    #[doc(hidden)]
    pub description: Option<String>,
    #[doc(hidden)]
    pub mime_type: Option<String>,
    #[doc(hidden)]
    pub annotations: Annotations,
    #[doc(hidden)]
    pub size: Option<u64>,
    #[doc(hidden)]
    pub icons: Vec<Icon>,
    #[doc(hidden)]
    pub meta: Map<String, Value>,
    #[doc(hidden)]
    pub timeout: Option<Duration>,
    #[doc(hidden)]
    pub ttl: Option<Duration>,
    #[doc(hidden)]
    pub cache_scope: CacheScope,
}

impl ResourceDefinition {
    /// A URI, or a template of URIs (RFC 6570, levels 1 to 3, `{path*}` and `{/path*}`), and a name for programs.
    ///
    /// Both are validated when the resource is registered.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            annotations: Annotations::default(),
            size: None,
            icons: Vec::new(),
            meta: Map::new(),
            timeout: None,
            ttl: None,
            cache_scope: CacheScope::Private,
        }
    }

    /// Sets the name that people see.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description, for the model that chooses a resource.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the media type, for example `text/markdown`.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Sets the audience and the priority.
    #[must_use]
    pub fn annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets the size in bytes, before any encoding. It is not sent for a template.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Adds an icon.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Self {
        self.icons.push(icon);
        self
    }

    /// Adds a member to the definition's `_meta`.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.meta.insert(key.into(), value);
        self
    }

    /// Sets the timeout of a read. Default: the server's call timeout.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the TTL of the contents. Until then the server responds from memory, as far as the
    /// [cache scope](Self::cache_scope) allows, and clients may do the same. Default: no caching.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets who may get cached contents. Default: private, the caller alone; the server then caches only for
    /// authenticated callers. Clients are told that contents are private if the server authenticates callers or has
    /// access rules: then other caches must not share them.
    #[must_use]
    pub fn cache_scope(mut self, scope: CacheScope) -> Self {
        self.cache_scope = scope;
        self
    }

    /// The URI, or the template.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The name for programs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the URI is a template with variables.
    pub fn is_template(&self) -> bool {
        UriTemplate::parse(&self.uri).is_ok_and(|template| !template.is_uri())
    }
}

/// The error of a read. It becomes a JSON-RPC error.
///
/// Any error converts into one with `?`; the caller gets its `Display` text. A [parameter](Parameters) that
/// cannot be parsed means that there is no such resource.
#[derive(Debug)]
pub struct ResourceError {
    kind: ResourceErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// Converted from the error of another library.
    foreign: bool,
}

/// Kind of a [`ResourceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceErrorKind {
    /// No resource at that URI: -32602, before 2026-07-28 -32002.
    NotFound,
    /// The resource exists, but could not be read: -32603, with the message.
    Failed,
    /// The client would have to be able to do something that it has not declared: -32021, before 2026-07-28 -32603
    /// with the message.
    MissingCapability(ClientAbility),
    /// The client's person has to visit a page first. 2025-11-25 has the error -32042 for that; no other revision comes
    /// to it.
    UrlElicitationRequired,
    /// The caller may not read it: the JSON-RPC error 403, with the message.
    Forbidden,
    /// The resource is at fault: -32603, without details. The log has them.
    Internal,
    /// Another server responded with a JSON-RPC error. The caller receives its code, message and data.
    Protocol,
}

impl ResourceError {
    /// There is nothing at the URI.
    pub fn not_found() -> Self {
        Self::of(ResourceErrorKind::NotFound, "the resource does not exist")
    }

    /// A failure, with a message for the caller.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of(ResourceErrorKind::Failed, message)
    }

    /// A fault of the resource, with a message for the log. The caller gets no details.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::of(ResourceErrorKind::Internal, message)
    }

    /// A caller that may not read it, with a message for it.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::of(ResourceErrorKind::Forbidden, message)
    }

    /// The JSON-RPC error of another server, for the caller.
    #[doc(hidden)]
    pub fn protocol(error: ErrorObject) -> Self {
        Self::of(ResourceErrorKind::Protocol, error.message.clone()).caused_by(ProtocolError(error))
    }

    /// Returns the JSON-RPC error of another server.
    #[doc(hidden)]
    pub fn protocol_error(&self) -> Option<&ErrorObject> {
        let error: &ProtocolError = self.source()?.downcast_ref()?;
        Some(&error.0)
    }

    fn of(kind: ResourceErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
            foreign: false,
        }
    }

    /// A converted error, without its type.
    pub(crate) fn foreign(message: String) -> Self {
        Self {
            foreign: true,
            ..Self::new(message)
        }
    }

    /// Keeps the cause for the log. It is not shown to the caller.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns true if the message is that of a converted error (`?`), which was not written for the caller.
    /// `server.mask_errors` hides such messages.
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Turns a converted error into a fault, whose message only the log has, if `hides` is set.
    #[doc(hidden)]
    #[must_use]
    pub fn masked(mut self, hides: bool) -> Self {
        if hides && self.foreign {
            self.kind = ResourceErrorKind::Internal;
        }
        self
    }

    /// Kind of a [`ResourceError`].
    pub fn kind(&self) -> ResourceErrorKind {
        self.kind
    }

    /// The cause, for the log.
    pub fn source(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

/// `ResourceError` is not itself an [`Error`], so that every error converts into it.
impl<E: Error + Send + Sync + 'static> From<E> for ResourceError {
    fn from(error: E) -> Self {
        Self::from_boxed(Box::new(error))
    }
}

impl ResourceError {
    /// Converts any error.
    pub(crate) fn from_boxed(error: Box<dyn Error + Send + Sync>) -> Self {
        match error.downcast::<InvalidParameter>() {
            Ok(invalid) => Self::not_found().caused_by(invalid),
            Err(error) => {
                let kind = match error.downcast_ref::<ClientRequestError>() {
                    Some(ClientRequestError::NotDeclared(ability)) => {
                        ResourceErrorKind::MissingCapability(*ability)
                    }
                    Some(ClientRequestError::InvalidRequest(_)) => ResourceErrorKind::Internal,
                    Some(ClientRequestError::UrlElicitationRequired(_)) => {
                        ResourceErrorKind::UrlElicitationRequired
                    }
                    _ => ResourceErrorKind::Failed,
                };
                let of_error = Self {
                    // Errors of client requests are shown to the caller.
                    foreign: kind == ResourceErrorKind::Failed && !error.is::<ClientRequestError>(),
                    ..Self::of(kind, error.to_string())
                };
                of_error.caused_by(error)
            }
        }
    }
}
