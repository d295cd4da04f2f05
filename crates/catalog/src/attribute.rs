//! Support for the code that `#[tool]` writes; [`offers`] is the same for `#[resource]` and `#[prompt]`. It is private, and
//! changes without notice.
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
use crate::catalog::{IntoOutput, Output};
use crate::net;

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

// === What succeeded, and what failed ===

/// `Result<T, E>` whose error becomes a [`ToolError`].
pub trait SplitError<T, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError>;
}

impl<T, E: Into<ToolError>> SplitError<T, E> for &&&&Returns<Result<T, E>> {
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError> {
        returned.map_err(Into::into)
    }
}

/// `Result<T, E>` whose error holds one of any type: `Box<dyn Error>`, `anyhow::Error`.
pub trait SplitDynamic<T, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError>;
}

impl<T, E, D> SplitDynamic<T, E> for &&&Returns<Result<T, E>>
where
    E: Deref<Target = D>,
    D: DynamicError + ?Sized,
{
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError> {
        returned.map_err(|e| ToolError::from_dynamic(e.as_error()))
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

/// `Result<T, E>` whose error is at least words, such as a `String`.
pub trait SplitDisplay<T, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError>;
}

impl<T, E: Display> SplitDisplay<T, E> for &&Returns<Result<T, E>> {
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError> {
        returned.map_err(|e| ToolError::new(e.to_string()))
    }
}

/// Any other `Result`; refused.
pub trait SplitOther<T, E> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError>
    where
        E: ErrorOfTool;
}

impl<T, E> SplitOther<T, E> for &Returns<Result<T, E>> {
    fn __longshore_split(&self, returned: Result<T, E>) -> Result<T, ToolError>
    where
        E: ErrorOfTool,
    {
        returned.map_err(ErrorOfTool::into_tool_error)
    }
}

/// Any type that is not a `Result`.
pub trait SplitNothing<T> {
    fn __longshore_success(&self) -> Returns<T> {
        Returns::new()
    }
    fn __longshore_split(&self, returned: T) -> Result<T, ToolError> {
        Ok(returned)
    }
}

impl<T> SplitNothing<T> for Returns<T> {}

/// A trait without implementations; its diagnostic names the missing trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "needs `Display`, or `Into<ToolError>`",
    note = "implement `std::error::Error` for it, or return a `longshore::ToolError`"
)]
pub trait ErrorOfTool {
    fn into_tool_error(self) -> ToolError;
}

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
pub async fn run_blocking<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolError> {
    let running = net::try_spawn_blocking(&Handle::current(), function);
    let mut running = running.map_err(|error| {
        tracing::error!(%error, "a call cannot run");
        let message = "the server has no thread for the call; try again later";
        ToolError::new(message).caused_by(error)
    })?;
    let _abort = AbortOnDrop(running.abort_handle());
    match (&mut running).await {
        Ok(returned) => Ok(returned),
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => {
                Err(ToolError::internal("the server is shutting down").caused_by(cancelled))
            }
        },
    }
}
