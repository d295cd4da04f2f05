//! Support for the code that the attributes write; [`offers`] has what only `#[resource]` and `#[prompt]` need. It is private,
//! and changes without notice.
//!
//! A macro sees the tokens of a return type, not the type: `io::Result<Report>` can be an alias. So method resolution
//! decides about a returned value: of several traits with a method of one name, the compiler takes the one that needs the
//! fewest dereferences and whose bounds hold. The traits below are listed in that order.

pub mod offers;

use std::error::Error;
use std::fmt::Display;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::catalog::typed::structured;
use crate::catalog::{IntoOutput, Output, ToolErrorKind};
use crate::net::{self, with_causes};

pub use std::boxed::Box;
pub use std::future::Future;
pub use std::ops::Deref;
pub use std::pin::Pin;
pub use std::string::String;
pub use std::sync::{Arc, LazyLock};
pub use std::time::Duration;

pub use offers::*;

pub use crate::catalog::ToolError;
pub use crate::catalog::extract::{FromArgument, FromCall, RequiredState, WithState};
pub use crate::catalog::inventory::CollectedTool;
pub use crate::catalog::typed::ToolSpec;
pub use crate::catalog::{
    AnyResource, ArgumentFuture, Arguments, CallContext, CallFuture, CompletionRequest, Definition,
    IntoMessages, IntoResource, Parameters, Prompt, PromptDefinition, PromptError, PromptFuture,
    Provided, ReadFuture, Resource, ResourceDefinition, ResourceError, ResourceTemplate,
    SourceItems, TaskSupport, Tool, Toolset, Unprovided, VariableFuture,
};
pub use crate::protocol::{CacheScope, Icon, PromptArgument};
pub use {inventory, schemars, serde, serde_json};

/// Marker for a function that returns `T`.
#[derive(Debug)]
pub struct Returns<T>(PhantomData<fn() -> T>);

impl<T> Returns<T> {
    #[expect(clippy::new_without_default, reason = "used by macros only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Marker for a function that returns `T`, where errors are an `E`.
#[derive(Debug)]
pub struct Answer<T, E>(PhantomData<fn() -> (T, E)>);

impl<T, E> Answer<T, E> {
    #[expect(clippy::new_without_default, reason = "used by macros only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

// === What succeeded, and what failed ===

/// `Result<T, X>` whose error becomes an `E`.
pub trait AnswerError<T, X, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>;
}

impl<T, X: Into<E>, E> AnswerError<T, X, E> for &&&&Answer<Result<T, X>, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E> {
        returned.map_err(Into::into)
    }
}

/// `Result<T, X>` whose error holds one of any type: `Box<dyn Error>`, `anyhow::Error`.
pub trait AnswerDynamic<T, X, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
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

/// An error of any type.
pub trait DynamicError {
    fn as_error(&self) -> &(dyn Error + 'static);
}

impl DynamicError for dyn Error {
    fn as_error(&self) -> &(dyn Error + 'static) {
        self
    }
}

impl DynamicError for dyn Error + Send + Sync {
    fn as_error(&self) -> &(dyn Error + 'static) {
        self
    }
}

/// `Result<T, X>` whose error is at least words, such as a `String`.
pub trait AnswerDisplay<T, X, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>;
}

impl<T, X: Display, E: Fault> AnswerDisplay<T, X, E> for &&Answer<Result<T, X>, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E> {
        returned.map_err(|e| E::in_words(e.to_string()))
    }
}

/// Any other `Result`; refused.
pub trait AnswerOther<T, X, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>
    where
        X: ErrorOf<E>;
}

impl<T, X, E> AnswerOther<T, X, E> for &Answer<Result<T, X>, E> {
    fn __longshore_answer(&self, returned: Result<T, X>) -> Result<T, E>
    where
        X: ErrorOf<E>,
    {
        returned.map_err(ErrorOf::into_error)
    }
}

/// Any type that is not a `Result`.
pub trait AnswerPlain<T, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_answer(&self, returned: T) -> Result<T, E> {
        Ok(returned)
    }
}

impl<T, E> AnswerPlain<T, E> for Answer<T, E> {}

/// A trait without implementations; its diagnostic names the missing trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool, a resource or a prompt",
    label = "needs `Display`, or `Into<{E}>`",
    note = "implement `std::error::Error` for it, or return a `longshore::ToolError`, `longshore::ResourceError` or `longshore::PromptError`"
)]
pub trait ErrorOf<E> {
    fn into_error(self) -> E;
}

/// An error of tools, resources or prompts.
pub trait Fault {
    fn in_words(message: String) -> Self;
    fn of_dynamic(error: &(dyn Error + 'static)) -> Self;
    /// Converts the error of a function that could not run.
    fn of_unrun(error: ToolError) -> Self;
}

impl Fault for ToolError {
    fn in_words(message: String) -> Self {
        Self::new(message)
    }
    fn of_dynamic(error: &(dyn Error + 'static)) -> Self {
        Self::from_dynamic(error)
    }
    fn of_unrun(error: ToolError) -> Self {
        error
    }
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
            fn of_unrun(error: ToolError) -> Self {
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

// === What a success becomes ===

/// Types that implement [`IntoOutput`].
pub trait FinishKnown<T> {
    fn __longshore_schema(&self) -> Option<Value>;
    fn __longshore_output(&self, returned: Result<T, ToolError>) -> Result<Output, ToolError>;
}

impl<T: IntoOutput> FinishKnown<T> for &&Returns<T> {
    fn __longshore_schema(&self) -> Option<Value> {
        T::output_schema()
    }
    fn __longshore_output(&self, returned: Result<T, ToolError>) -> Result<Output, ToolError> {
        returned?.into_output()
    }
}

/// A value that can be written, but has no schema.
pub trait FinishSerialize<T> {
    fn __longshore_schema(&self) -> Option<Value> {
        None
    }
    fn __longshore_output(&self, returned: Result<T, ToolError>) -> Result<Output, ToolError>;
}

impl<T: Serialize> FinishSerialize<T> for &Returns<T> {
    fn __longshore_output(&self, returned: Result<T, ToolError>) -> Result<Output, ToolError> {
        structured(&returned?)
    }
}

/// Anything else; refused.
pub trait FinishOther<T> {
    fn __longshore_schema(&self) -> Option<Value> {
        None
    }
    fn __longshore_output(&self, returned: Result<T, ToolError>) -> Result<Output, ToolError>
    where
        T: IntoOutput;
}

impl<T> FinishOther<T> for Returns<T> {
    fn __longshore_output(&self, returned: Result<T, ToolError>) -> Result<Output, ToolError>
    where
        T: IntoOutput,
    {
        returned?.into_output()
    }
}

// === Functions with `#[state]` ===

/// Error of a call that reached a function before an application had bound it to its state.
pub const UNBOUND: &str =
    "this needs state, which an application provides: add it to an `App`, with `App::provide`";

// === Functions that block ===

/// Removes work from the queue of the blocking threads. Work that runs is not affected.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `function` on a blocking thread. A panic in it resumes in the caller. If this is dropped, a function that waits for
/// its thread never runs.
pub async fn run_blocking<T: Send + 'static, E: Fault>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Result<T, E> {
    let running = net::try_spawn_blocking(&Handle::current(), function);
    let mut running = running.map_err(|error| {
        tracing::error!(%error, "a call cannot run");
        let message = "the server has no thread for the call; try again later";
        E::of_unrun(ToolError::new(message).caused_by(error))
    })?;
    let _abort = AbortOnDrop(running.abort_handle());
    match (&mut running).await {
        Ok(returned) => Ok(returned),
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => {
                let error = ToolError::internal("the server is shutting down");
                Err(E::of_unrun(error.caused_by(cancelled)))
            }
        },
    }
}
