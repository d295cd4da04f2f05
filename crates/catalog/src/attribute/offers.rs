//! Support for the code that `#[resource]` and `#[prompt]` write; it selects traits as `#[tool]` does.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Display;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::DynamicError;
use crate::catalog::extract::Rejection;
use crate::catalog::{
    CallContext, CompletionRequest, Completions, IntoContents, PromptError, ResourceDefinition,
    ResourceError, ToolError, ToolErrorKind,
};
use crate::net::with_causes;
use crate::protocol::ResourceContents;

/// Marker for a function that returns `T`, where errors are an `E`.
#[derive(Debug)]
pub struct Answer<T, E>(PhantomData<fn() -> (T, E)>);

impl<T, E> Answer<T, E> {
    #[expect(clippy::new_without_default, reason = "used by macros only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// An error of resources or prompts.
pub trait Fault {
    fn in_words(message: String) -> Self;
    fn of_dynamic(error: &(dyn Error + 'static)) -> Self;
    /// Converts the error of a function that could not run.
    fn of_unrun(error: &ToolError) -> Self;
}

macro_rules! faults {
    ($($error:ty)*) => {$(
        impl Fault for $error {
            fn in_words(message: String) -> Self {
                Self::new(message)
            }
            fn of_dynamic(error: &(dyn Error + 'static)) -> Self {
                Self::from_dynamic(error)
            }
            fn of_unrun(error: &ToolError) -> Self {
                let converted = match error.kind() {
                    ToolErrorKind::Internal => Self::internal(error.message()),
                    _ => Self::new(error.message()),
                };
                match error.source() {
                    Some(cause) => converted.caused_by(with_causes(cause)),
                    None => converted,
                }
            }
        }
    )*};
}

faults! { ResourceError PromptError }

// === What succeeded, and what failed ===

/// `Result<T, X>` whose error becomes an `E`.
pub trait AnswerError<T, X, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>;
}

impl<T, X: Into<E>, E> AnswerError<T, X, E> for &&&&Answer<Result<T, X>, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E> {
        returned.map_err(Into::into)
    }
}

/// `Result<T, X>` whose error holds one of any type.
pub trait AnswerDynamic<T, X, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>;
}

impl<T, X, D, E> AnswerDynamic<T, X, E> for &&&Answer<Result<T, X>, E>
where
    X: Deref<Target = D>,
    D: DynamicError + ?Sized,
    E: Fault,
{
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E> {
        returned.map_err(|e| E::of_dynamic(e.as_error()))
    }
}

/// `Result<T, X>` whose error is at least words.
pub trait AnswerDisplay<T, X, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>;
}

impl<T, X: Display, E: Fault> AnswerDisplay<T, X, E> for &&Answer<Result<T, X>, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E> {
        returned.map_err(|e| E::in_words(e.to_string()))
    }
}

/// Any other `Result`; refused.
pub trait AnswerOther<T, X, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>
    where
        X: ErrorOfOffer<E>;
}

impl<T, X, E> AnswerOther<T, X, E> for &Answer<Result<T, X>, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>
    where
        X: ErrorOfOffer<E>,
    {
        returned.map_err(ErrorOfOffer::into_error)
    }
}

/// Any type that is not a `Result`.
pub trait AnswerPlain<T, E> {
    fn __longshore_answer(&self, returned: T) -> Result<T, E> {
        Ok(returned)
    }
}

impl<T, E> AnswerPlain<T, E> for Answer<T, E> {}

/// A trait without implementations; its diagnostic names the missing trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a resource or a prompt",
    label = "needs `Display`, or `Into<{E}>`",
    note = "implement `std::error::Error` for it, or return a `longshore::ResourceError` or `longshore::PromptError`"
)]
pub trait ErrorOfOffer<E> {
    fn into_error(self) -> E;
}

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

// === Functions that block ===

/// Runs `function` on a blocking thread. A panic in it resumes in the caller.
pub async fn run_blocking_or<T: Send + 'static, E: Fault>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Result<T, E> {
    let returned = super::run_blocking(function).await;
    returned.map_err(|error| E::of_unrun(&error))
}
