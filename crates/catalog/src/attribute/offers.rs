//! Support for the code that only `#[resource]` and `#[prompt]` write.

use std::cell::Cell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::extract::Rejection;
use crate::catalog::{
    CallContext, CompletionRequest, Completions, IntoContents, ResourceDefinition, ResourceError,
};
use crate::protocol::ResourceContents;

// === What a success becomes ===

/// The value that a resource returned.
#[expect(missing_debug_implementations, reason = "used by macros only")]
pub struct Success<T>(Cell<Option<T>>);

impl<T> Success<T> {
    pub fn new(value: T) -> Self {
        Self(Cell::new(Some(value)))
    }

    fn take(&self) -> Result<T, ResourceError> {
        let internal = || ResourceError::internal("the result was taken twice");
        self.0.take().ok_or_else(internal)
    }
}

type Contents = Result<Vec<ResourceContents>, ResourceError>;

/// An optional value.
pub trait ContentsOption<T> {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents;
}

impl<T: IntoContents> ContentsOption<T> for &&&Success<Option<T>> {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents {
        match self.take()? {
            Some(value) => value.into_contents(definition),
            None => Err(ResourceError::not_found()),
        }
    }
}

/// Types that implement [`IntoContents`].
pub trait ContentsKnown<T> {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents;
}

impl<T: IntoContents> ContentsKnown<T> for &&Success<T> {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents {
        self.take()?.into_contents(definition)
    }
}

/// Bytes that are no `Vec`.
pub trait ContentsBytes {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents;
}

impl ContentsBytes for &Success<Bytes> {
    fn __longshore_contents(&self, _: &ResourceDefinition) -> Contents {
        Ok(vec![ResourceContents::blob(self.take()?)])
    }
}

/// Anything else; refused.
pub trait ContentsOther<T> {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents
    where
        T: IntoContents;
}

impl<T> ContentsOther<T> for Success<T> {
    fn __longshore_contents(&self, definition: &ResourceDefinition) -> Contents
    where
        T: IntoContents,
    {
        self.take()?.into_contents(definition)
    }
}

// === Suggestions ===

type Suggested<E> = Pin<Box<dyn Future<Output = Result<Completions, E>> + Send>>;

/// A function that suggests values: `fn(&CompletionRequest)` or `async fn(CompletionRequest)`, or with the context before
/// that: `fn(&CallContext, ...)`, `async fn(Arc<CallContext>, ...)`.
///
/// `M` tells the forms apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot suggest values",
    label = "expected a `fn(&CompletionRequest)` or an `async fn(CompletionRequest)` that returns `Completions`, a `Vec<String>`, or a `Result` of them whose error implements `std::error::Error`"
)]
pub trait Suggests<M, E> {
    fn suggest(self, context: Arc<CallContext>, request: CompletionRequest) -> Suggested<E>;
}

impl<F, R, E> Suggests<fn(CompletionRequest) -> R, E> for F
where
    F: FnOnce(CompletionRequest) -> R,
    R: Future<Output: IntoCompletions<E>> + Send + 'static,
{
    fn suggest(self, _: Arc<CallContext>, request: CompletionRequest) -> Suggested<E> {
        let found = self(request);
        Box::pin(async move { found.await.into_completions() })
    }
}

impl<F, R, E> Suggests<fn(Arc<CallContext>, CompletionRequest) -> R, E> for F
where
    F: FnOnce(Arc<CallContext>, CompletionRequest) -> R,
    R: Future<Output: IntoCompletions<E>> + Send + 'static,
{
    fn suggest(self, context: Arc<CallContext>, request: CompletionRequest) -> Suggested<E> {
        let found = self(context, request);
        Box::pin(async move { found.await.into_completions() })
    }
}

/// Marker of a function that is not `async`; it borrows its arguments.
#[expect(missing_debug_implementations, reason = "used by macros only")]
pub struct AtOnce;

impl<F, R, E> Suggests<(AtOnce, fn(CompletionRequest) -> R), E> for F
where
    F: FnOnce(&CompletionRequest) -> R,
    R: IntoCompletions<E>,
    E: Send + 'static,
{
    fn suggest(self, _: Arc<CallContext>, request: CompletionRequest) -> Suggested<E> {
        Box::pin(ready(self(&request).into_completions()))
    }
}

impl<F, R, E> Suggests<(AtOnce, fn(CallContext, CompletionRequest) -> R), E> for F
where
    F: FnOnce(&CallContext, &CompletionRequest) -> R,
    R: IntoCompletions<E>,
    E: Send + 'static,
{
    fn suggest(self, context: Arc<CallContext>, request: CompletionRequest) -> Suggested<E> {
        Box::pin(ready(self(&context, &request).into_completions()))
    }
}

/// A type that such a function may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of suggestions",
    label = "expected `Completions`, a `Vec<String>`, or a `Result` of them"
)]
pub trait IntoCompletions<E> {
    fn into_completions(self) -> Result<Completions, E>;
}

impl<E> IntoCompletions<E> for Completions {
    fn into_completions(self) -> Result<Completions, E> {
        Ok(self)
    }
}

impl<T: Into<String>, E> IntoCompletions<E> for Vec<T> {
    fn into_completions(self) -> Result<Completions, E> {
        Ok(self.into())
    }
}

impl<C: Into<Completions>, X: Into<E>, E> IntoCompletions<E> for Result<C, X> {
    fn into_completions(self) -> Result<Completions, E> {
        self.map(Into::into).map_err(Into::into)
    }
}

pub fn suggest<F, M, E>(
    function: F,
    context: Arc<CallContext>,
    request: CompletionRequest,
) -> Suggested<E>
where
    F: Suggests<M, E>,
{
    function.suggest(context, request)
}

/// Suggestions of a function that has state.
pub async fn suggest_by<E>(
    found: impl Future<Output: IntoCompletions<E>>,
) -> Result<Completions, E> {
    found.await.into_completions()
}

/// The value of a resolved argument at a completion; `None` if there is none for this caller.
///
/// # Errors
///
/// A fault of the server, and not of the argument.
pub fn unless_rejected<T>(resolved: Result<T, Rejection>) -> Result<Option<T>, Rejection> {
    match resolved {
        Ok(value) => Ok(Some(value)),
        Err(rejection) if rejection.concerns_argument() => Ok(None),
        Err(rejection) => Err(rejection),
    }
}

pub fn no_suggestions<E: Send + 'static>() -> Suggested<E> {
    Box::pin(ready(Ok(Completions::default())))
}
