//! Resources and prompts made of values and closures; `#[resource]` and `#[prompt]` write the same.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;

use serde::Serialize;

use crate::catalog::typed::taken;
use crate::catalog::{
    CallContext, IntoMessages, Parameters, Prompt, PromptDefinition, PromptError, PromptFuture,
    Provided, ReadFuture, Resource, ResourceDefinition, ResourceError, ResourceTemplate,
    Unprovided,
};
use crate::protocol::ResourceContents;

/// A type that a resource may return.
///
/// | returned | contents |
/// |---|---|
/// | `String`, `&'static str`, `Cow<'static, str>` | text |
/// | `Vec<u8>`, `&'static [u8]` | bytes |
/// | [`ResourceContents`], `Vec<ResourceContents>` | as it says |
/// | any other `T: Serialize` | its JSON; `application/json`, unless the definition says otherwise |
#[diagnostic::on_unimplemented(
    message = "a resource cannot return `{Self}`",
    label = "needs `Serialize`, or a type such as `String`, `Vec<u8>` or `ResourceContents`",
    note = "derive `serde::Serialize` for it, or build `ResourceContents` by hand"
)]
pub trait IntoContents: Sized {
    /// The value as contents.
    ///
    /// # Errors
    ///
    /// The value's own `Serialize` failed.
    fn into_contents(
        self,
        definition: &ResourceDefinition,
    ) -> Result<Vec<ResourceContents>, ResourceError>;
}

impl<T: Serialize + 'static> IntoContents for T {
    /// Types that are not JSON are distinguished by their `TypeId`, which the compiler knows.
    fn into_contents(
        self,
        definition: &ResourceDefinition,
    ) -> Result<Vec<ResourceContents>, ResourceError> {
        let mut value = Some(self);
        Ok(if let Some(text) = taken::<String>(&mut value) {
            vec![ResourceContents::text(text)]
        } else if let Some(text) = taken::<&'static str>(&mut value) {
            vec![ResourceContents::text(text)]
        } else if let Some(text) = taken::<Cow<'static, str>>(&mut value) {
            vec![ResourceContents::text(text)]
        } else if let Some(bytes) = taken::<Vec<u8>>(&mut value) {
            vec![ResourceContents::blob(bytes)]
        } else if let Some(bytes) = taken::<&'static [u8]>(&mut value) {
            vec![ResourceContents::blob(bytes)]
        } else if let Some(contents) = taken::<ResourceContents>(&mut value) {
            vec![contents]
        } else if let Some(contents) = taken::<Vec<ResourceContents>>(&mut value) {
            contents
        } else {
            let json = serde_json::to_string(&value).map_err(|e| {
                ResourceError::internal("the value could not be written as JSON").caused_by(e)
            })?;
            let mime_type = definition.mime_type.as_deref();
            vec![
                ResourceContents::text(json)
                    .with_mime_type(mime_type.unwrap_or("application/json")),
            ]
        })
    }
}

// === Resources ===

/// A resource whose contents never change.
///
/// ```
/// use longshore::{App, ResourceDefinition, StaticResource};
///
/// let definition = ResourceDefinition::new("about://licence", "licence").mime_type("text/plain");
/// let app = App::new().resource(StaticResource::text(definition, "Do as you like."));
/// ```
#[derive(Debug)]
pub struct StaticResource {
    definition: ResourceDefinition,
    contents: ResourceContents,
}

impl StaticResource {
    /// A text.
    pub fn text(definition: ResourceDefinition, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            definition: with_size(definition, text.len()),
            contents: ResourceContents::text(text),
        }
    }

    /// Bytes.
    pub fn binary(definition: ResourceDefinition, bytes: impl AsRef<[u8]>) -> Self {
        Self {
            definition: with_size(definition, bytes.as_ref().len()),
            contents: ResourceContents::blob(bytes),
        }
    }
}

fn with_size(mut definition: ResourceDefinition, bytes: usize) -> ResourceDefinition {
    definition.size = definition.size.or(u64::try_from(bytes).ok());
    definition
}

impl Resource for StaticResource {
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, _: Arc<CallContext>) -> ReadFuture {
        Box::pin(ready(Ok(vec![self.contents.clone()])))
    }
}

/// Makes a resource of a function. Where it needs state, the function captures it.
///
/// ```
/// use longshore::{App, ResourceDefinition, resource_fn};
///
/// let started = std::time::Instant::now();
/// let uptime = resource_fn(
///     ResourceDefinition::new("about://uptime", "uptime").mime_type("text/plain"),
///     move |_| async move { Ok(format!("{} s", started.elapsed().as_secs())) },
/// );
/// let app = App::new().resource(uptime);
/// ```
pub fn resource_fn<R, F, Fut>(definition: ResourceDefinition, function: F) -> ResourceFn<F>
where
    R: IntoContents,
    F: Fn(Arc<CallContext>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ResourceError>> + Send + 'static,
{
    ResourceFn {
        definition: Arc::new(definition),
        function,
    }
}

/// A resource made by [`resource_fn`].
pub struct ResourceFn<F> {
    definition: Arc<ResourceDefinition>,
    function: F,
}

impl<R, F, Fut> Resource for ResourceFn<F>
where
    R: IntoContents,
    F: Fn(Arc<CallContext>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ResourceError>> + Send + 'static,
{
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, context: Arc<CallContext>) -> ReadFuture {
        let returned = (self.function)(context);
        let definition = Arc::clone(&self.definition);
        Box::pin(async move { returned.await?.into_contents(&definition) })
    }
}

/// Makes a template of resources of a function that is given the variables.
///
/// ```
/// use longshore::{App, Parameters, ResourceDefinition, ResourceError, template_fn};
///
/// let squares = template_fn(
///     ResourceDefinition::new("square://{number}", "square").mime_type("text/plain"),
///     |_, variables: Parameters| async move {
///         let number: u32 = variables.parse("number")?;
///         Ok(format!("{}", u64::from(number).pow(2)))
///     },
/// );
/// let app = App::new().resource(squares);
/// ```
pub fn template_fn<R, F, Fut>(definition: ResourceDefinition, function: F) -> TemplateFn<F>
where
    R: IntoContents,
    F: Fn(Arc<CallContext>, Parameters) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ResourceError>> + Send + 'static,
{
    TemplateFn {
        definition: Arc::new(definition),
        function,
    }
}

/// A resource template made by [`template_fn`].
pub struct TemplateFn<F> {
    definition: Arc<ResourceDefinition>,
    function: F,
}

impl<R, F, Fut> ResourceTemplate for TemplateFn<F>
where
    R: IntoContents,
    F: Fn(Arc<CallContext>, Parameters) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ResourceError>> + Send + 'static,
{
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, context: Arc<CallContext>, _: &str, variables: Parameters) -> ReadFuture {
        let returned = (self.function)(context, variables);
        let definition = Arc::clone(&self.definition);
        Box::pin(async move { returned.await?.into_contents(&definition) })
    }
}

// === Prompts ===

/// Makes a prompt of a function that is given the arguments.
///
/// ```
/// use longshore::{App, Parameters, PromptArgument, PromptDefinition, prompt_fn};
///
/// let review = prompt_fn(
///     PromptDefinition::new("review").argument(PromptArgument::required("code")),
///     |_, arguments: Parameters| async move {
///         Ok(format!("Please review this code:\n\n{}", arguments.parse::<String>("code")?))
///     },
/// );
/// let app = App::new().prompt(review);
/// ```
pub fn prompt_fn<R, F, Fut>(definition: PromptDefinition, function: F) -> PromptFn<F>
where
    R: IntoMessages,
    F: Fn(Arc<CallContext>, Parameters) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, PromptError>> + Send + 'static,
{
    PromptFn {
        definition,
        function,
    }
}

/// A prompt made by [`prompt_fn`].
pub struct PromptFn<F> {
    definition: PromptDefinition,
    function: F,
}

impl<R, F, Fut> Prompt for PromptFn<F>
where
    R: IntoMessages,
    F: Fn(Arc<CallContext>, Parameters) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, PromptError>> + Send + 'static,
{
    fn definition(&self) -> &PromptDefinition {
        &self.definition
    }

    fn get(&self, context: Arc<CallContext>, arguments: Parameters) -> PromptFuture {
        let returned = (self.function)(context, arguments);
        Box::pin(async move { Ok(returned.await?.into_messages()) })
    }
}

/// Implements `Debug`, with the name or URI of the definition.
macro_rules! debug_by_definition {
    ($($made:ident.$name:ident)*) => {$(
        impl<F> fmt::Debug for $made<F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = &self.definition.$name;
                f.debug_tuple(stringify!($made)).field(name).finish()
            }
        }
    )*};
}

debug_by_definition! { ResourceFn.uri TemplateFn.uri PromptFn.name }

// === Registration ===

/// A resource as the server holds it.
#[derive(Clone)]
#[non_exhaustive]
pub enum AnyResource {
    /// At one URI.
    Fixed(Arc<dyn Resource>),
    /// At all URIs of one shape.
    Template(Arc<dyn ResourceTemplate>),
}

impl AnyResource {
    /// The definition of the resource.
    pub fn definition(&self) -> &ResourceDefinition {
        match self {
            Self::Fixed(resource) => resource.definition(),
            Self::Template(template) => template.definition(),
        }
    }

    /// Returns the resource with the provided values bound, or `None` if it needs none.
    ///
    /// # Errors
    ///
    /// A value that it needs was not provided.
    #[doc(hidden)]
    pub fn bound(&self, provided: &Provided) -> Result<Option<Self>, Unprovided> {
        Ok(match self {
            Self::Fixed(resource) => resource.bind(provided)?.map(Self::Fixed),
            Self::Template(template) => template.bind(provided)?.map(Self::Template),
        })
    }
}

/// A value that can be registered as a resource.
///
/// Implemented by every [`Resource`], by functions with `#[resource]`, by
/// [`TemplateFn`], and by `Arc<dyn Resource>` and `Arc<dyn ResourceTemplate>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a resource",
    label = "a function becomes one by `#[resource]`",
    note = "put `#[longshore::resource]` on the function, or use `longshore::resource_fn` for a closure"
)]
pub trait IntoResource {
    /// The resource, as the server holds it.
    fn into_resource(self) -> AnyResource;
}

impl<T: Resource> IntoResource for T {
    fn into_resource(self) -> AnyResource {
        AnyResource::Fixed(Arc::new(self))
    }
}

impl IntoResource for Arc<dyn Resource> {
    fn into_resource(self) -> AnyResource {
        AnyResource::Fixed(self)
    }
}

impl IntoResource for Arc<dyn ResourceTemplate> {
    fn into_resource(self) -> AnyResource {
        AnyResource::Template(self)
    }
}

impl<F> IntoResource for TemplateFn<F>
where
    Self: ResourceTemplate,
{
    fn into_resource(self) -> AnyResource {
        AnyResource::Template(Arc::new(self))
    }
}

impl IntoResource for AnyResource {
    fn into_resource(self) -> AnyResource {
        self
    }
}

impl fmt::Debug for AnyResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyResource")
            .field(&self.definition().uri)
            .finish()
    }
}

/// A value that can be registered as a prompt.
///
/// Implemented by every [`Prompt`], functions with `#[prompt]` among them, and by `Arc<dyn Prompt>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a prompt",
    label = "a function becomes one by `#[prompt]`",
    note = "put `#[longshore::prompt]` on the function, or use `longshore::prompt_fn` for a closure"
)]
pub trait IntoPrompt {
    /// The prompt, as the server holds it.
    fn into_prompt(self) -> Arc<dyn Prompt>;
}

impl<T: Prompt> IntoPrompt for T {
    fn into_prompt(self) -> Arc<dyn Prompt> {
        Arc::new(self)
    }
}

impl IntoPrompt for Arc<dyn Prompt> {
    fn into_prompt(self) -> Arc<dyn Prompt> {
        self
    }
}
