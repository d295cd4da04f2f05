//! Extractors: parameters that are taken from a call, instead of from its arguments.
//!
//! A parameter with `#[call]` has a type that implements [`FromCall`]. It is no part of the input schema, and a caller
//! cannot set it.
//!
//! ```
//! use longshore::extract::{Caller, Progress};
//! use longshore::{App, tool};
//! use serde_json::json;
//!
//! /// Returns a greeting.
//! #[tool]
//! async fn greet(#[call] caller: Caller, #[call] progress: Progress, name: String) -> String {
//!     progress.report(1.0, Some(1.0), "greeted").await;
//!     format!("Hello {name}, says {}.", caller.name())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> longshore::Result {
//! let server = App::new().tool(greet).harness()?;
//! let result = server.call("greet", json!({"name": "Ada"})).await?;
//! assert_eq!(result.text(), "Hello Ada, says local.");
//! # Ok(())
//! # }
//! ```
//!
//! | extractor | value | rejects |
//! |---|---|---|
//! | [`Caller`] | The principal: name, subject, scopes, groups | never |
//! | [`Claims<T>`](Claims) | The claims of the caller's token, read as a type | claims of another shape: 403 |
//! | [`Header<H>`](Header) | One header of the HTTP request, read as a type | a header that is missing or malformed: a failed call |
//! | [`Headers`] | All headers of the HTTP request; none over standard input and output | never |
//! | [`Extension<T>`](Extension) | A value that a `tower` layer has put into the request's extensions | no such value: an internal error |
//! | [`Progress`] | Reports the progress of the call | never |
//! | [`Log`] | Sends log messages to the client | never |
//! | [`Deadline`] | The time at which the call is cancelled | never |
//! | `Arc<CallContext>` | The call itself, for tasks that outlive the function | never |
//! | `Option<...>` | `Claims`, `Header` or `Extension`; `None` if there is none | |
//! | `Result<T, Rejection>` | Any extractor, with its rejection | never |
//!
//! # Order
//!
//! Extractors run one after the other, in the order of the parameters and before the arguments become the function's
//! types. The first [`Rejection`] ends the call. Where a schema says more than the types, such as a range or a pattern, the
//! server checks the arguments before: a caller that an extractor would reject can learn what is wrong with them. Scopes
//! that the attribute names are checked before both. A function with `blocking` gets its values before it moves to its
//! thread.
//!
//! A tool that asks its client runs again from its beginning after each answer, and its extractors with it.
//!
//! An extractor does not see the arguments. A value that depends on one, such as the order that an identifier stands for,
//! is made by [`FromArgument`].
//!
//! # Own types
//!
//! ```
//! use std::sync::Arc;
//!
//! use longshore::extract::{Caller, FromCall, Rejection};
//! use longshore::{CallContext, tool};
//!
//! /// A caller from the finance department.
//! struct Accountant(Caller);
//!
//! impl FromCall for Accountant {
//!     async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
//!         let caller = Caller::from_call(context).await?;
//!         if !caller.groups().any(|group| group == "finance") {
//!             return Err(Rejection::forbidden("this tool is for the finance department"));
//!         }
//!         Ok(Self(caller))
//!     }
//! }
//!
//! /// Approves an invoice.
//! #[tool]
//! async fn approve(#[call] accountant: Accountant, invoice: u64) -> String {
//!     format!("{} approved invoice {invoice}", accountant.0.name())
//! }
//! ```
//!
//! # Values of the application
//!
//! An extractor that needs a value of `App::provide` declares it in [`FromCall::requires`]. If the value is missing, the
//! server does not start, and the error names the function and the type. In the methods of `#[tools]`, the object itself is
//! such a value, too.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//!
//! use longshore::extract::{Caller, FromCall, Rejection, RequiredState};
//! use longshore::{App, CallContext, tool};
//!
//! /// Accounts by the name of their owner.
//! struct Accounts(HashMap<String, i64>);
//!
//! /// Balance of the caller's account.
//! struct Balance(i64);
//!
//! impl FromCall for Balance {
//!     fn requires(state: &mut RequiredState<'_>) {
//!         state.needs::<Accounts>();
//!     }
//!
//!     async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
//!         let accounts = context.state::<Accounts>()?;
//!         let caller = Caller::from_call(context).await?;
//!         let balance = accounts.0.get(caller.name());
//!         let balance = balance.ok_or_else(|| Rejection::forbidden("you have no account"))?;
//!         Ok(Self(*balance))
//!     }
//! }
//!
//! /// Returns the balance of your account.
//! #[tool]
//! async fn show_balance(#[call] balance: Balance) -> i64 {
//!     balance.0
//! }
//!
//! let accounts = Accounts(HashMap::from([("local".to_owned(), 7)]));
//! assert!(App::new().provide(accounts).tool(show_balance).harness().is_ok());
//! assert!(App::new().tool(show_balance).harness().is_err());
//! ```

mod rejection;
mod state;
mod values;

use std::future::Future;
use std::sync::Arc;

use crate::catalog::CallContext;

pub use rejection::MissingScopes;
pub use rejection::Rejection;
pub use state::{RequiredState, WithState};
pub use values::{
    Caller, Claims, Deadline, Extension, Header, Headers, Log, Progress, RequestHeader,
};

/// A value that is taken from a call: the type of a parameter with `#[call]`.
///
/// Implement it with an `async fn`. The future has to be `Send`, and is dropped when the call is cancelled.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extractor",
    label = "needs `longshore::extract::FromCall`",
    note = "for an argument leave `#[call]` out; for a value of the application write `#[state] name: &{Self}`"
)]
pub trait FromCall: Sized + Send {
    /// Takes the value from a call.
    ///
    /// # Errors
    ///
    /// The call must not go on; see [`Rejection`].
    fn from_call(
        context: &Arc<CallContext>,
    ) -> impl Future<Output = Result<Self, Rejection>> + Send;

    /// Declares the values of the application that [`from_call`](Self::from_call) gets from [`CallContext::state`].
    /// Called once for each function, at start. Default: none.
    ///
    /// An extractor that calls other extractors calls their `requires`, too.
    fn requires(state: &mut RequiredState<'_>) {
        let _ = state;
    }
}

/// A value that is made from one argument and the call: the type of a parameter with `#[arg(resolve)]`.
///
/// Callers send the [`Argument`](Self::Argument), such as an identifier, and the function gets what it stands for. The
/// input schema, the name and the completion of the parameter are those of the argument. With an `Option<T>` it may be left
/// out; of a `Vec<T>` each element is resolved, one after the other.
///
/// Arguments are resolved after all extractors, in the order of the parameters. The future has to be `Send`, and is dropped
/// when the call is cancelled.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use longshore::extract::{Caller, FromArgument, FromCall, Rejection, RequiredState};
/// use longshore::{App, CallContext, tool};
/// use serde_json::json;
///
/// /// The owners of all orders.
/// struct Orders(HashMap<u64, String>);
///
/// /// An order of the caller.
/// struct Order {
///     id: u64,
/// }
///
/// impl FromArgument for Order {
///     type Argument = u64;
///
///     fn requires(state: &mut RequiredState<'_>) {
///         state.needs::<Orders>();
///     }
///
///     async fn from_argument(id: u64, context: &Arc<CallContext>) -> Result<Self, Rejection> {
///         let caller = Caller::from_call(context).await?;
///         let orders = context.state::<Orders>()?;
///         match orders.0.get(&id) {
///             Some(owner) if owner == caller.name() => Ok(Self { id }),
///             _ => Err(Rejection::new(format!("you have no order {id}"))),
///         }
///     }
/// }
///
/// /// Cancels an order.
/// #[tool(destructive)]
/// async fn cancel(#[arg(resolve)] order: Order) -> String {
///     format!("cancelled {}", order.id)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> longshore::Result {
/// let orders = Orders(HashMap::from([(7, "local".to_owned())]));
/// let server = App::new().provide(orders).tool(cancel).harness()?;
/// assert_eq!(server.call("cancel", json!({"order": 7})).await?.text(), "cancelled 7");
/// assert!(server.call("cancel", json!({"order": 8})).await?.is_error());
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from an argument",
    label = "needs `longshore::extract::FromArgument`",
    note = "for an argument of this type leave `resolve` out; for an extractor write `#[call]` instead of `#[arg(resolve)]`"
)]
pub trait FromArgument: Sized + Send {
    /// What callers send. In tools it has to be `Deserialize` and `JsonSchema`; in resources and prompts, `FromStr`.
    type Argument: Send;

    /// Makes the value.
    ///
    /// # Errors
    ///
    /// The call must not go on; see [`Rejection`].
    fn from_argument(
        argument: Self::Argument,
        context: &Arc<CallContext>,
    ) -> impl Future<Output = Result<Self, Rejection>> + Send;

    /// Declares the values of the application that [`from_argument`](Self::from_argument) gets from
    /// [`CallContext::state`]; see [`FromCall::requires`]. Default: none.
    fn requires(state: &mut RequiredState<'_>) {
        let _ = state;
    }
}

impl<T: FromArgument> FromArgument for Option<T> {
    type Argument = Option<T::Argument>;

    async fn from_argument(
        argument: Self::Argument,
        context: &Arc<CallContext>,
    ) -> Result<Self, Rejection> {
        match argument {
            Some(argument) => Ok(Some(T::from_argument(argument, context).await?)),
            None => Ok(None),
        }
    }

    fn requires(state: &mut RequiredState<'_>) {
        T::requires(state);
    }
}

impl<T: FromArgument> FromArgument for Vec<T> {
    type Argument = Vec<T::Argument>;

    async fn from_argument(
        arguments: Self::Argument,
        context: &Arc<CallContext>,
    ) -> Result<Self, Rejection> {
        let mut values = Self::with_capacity(arguments.len());
        for argument in arguments {
            values.push(T::from_argument(argument, context).await?);
        }
        Ok(values)
    }

    fn requires(state: &mut RequiredState<'_>) {
        T::requires(state);
    }
}

impl FromCall for Arc<CallContext> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(Self::clone(context))
    }
}

impl<T: FromCall> FromCall for Result<T, Rejection> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(T::from_call(context).await)
    }

    fn requires(state: &mut RequiredState<'_>) {
        T::requires(state);
    }
}

#[cfg(test)]
mod tests;
