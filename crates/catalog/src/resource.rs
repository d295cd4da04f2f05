//! Resources and resource templates.

use std::error::Error;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::catalog::definition::definition_setters;
use crate::catalog::protocol_error::item_error;
use crate::catalog::{
    CallContext, ClientRequestError, CompletionRequest, Completions, InvalidParameter, Parameters,
    ProtocolError, Provided, Unprovided,
};
use crate::net::with_causes;
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

definition_setters!(ResourceDefinition, "model that chooses a resource", "read");

item_error! {
    /// The error of a read. It becomes a JSON-RPC error.
    ///
    /// Any error converts into one with `?`; the caller gets its `Display` text. A [parameter](Parameters) that
    /// cannot be parsed means that there is no such resource.
    ResourceError: ResourceErrorKind, InvalidParameter
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

    /// Converts any error.
    pub(crate) fn from_boxed(error: Box<dyn Error + Send + Sync>) -> Self {
        match error.downcast::<InvalidParameter>() {
            Ok(invalid) => Self::not_found().caused_by(invalid),
            Err(error) => Self::converted(error),
        }
    }
}
