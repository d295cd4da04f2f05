//! The extractors that come with the crate.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{FromCall, Rejection};
use crate::auth::Principal;
use crate::catalog::{CallContext, LogLevel};

/// The principal that makes the call. It dereferences to [`Principal`], which has its name, subject, scopes and groups.
///
/// Where authentication is off, it is [`Principal::anonymous`]; over standard input and output, [`Principal::local`].
///
/// ```
/// use longshore::extract::Caller;
/// use longshore::{ToolError, tool};
///
/// /// Deletes an order. Those of others need a scope.
/// #[tool]
/// async fn delete_order(#[call] caller: Caller, owner: String) -> Result<String, ToolError> {
///     if owner != caller.name() {
///         caller.require_scope("orders:admin")?;
///     }
///     Ok(format!("the order of {owner} is gone"))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(Arc<Principal>);

impl Caller {
    /// Makes sure that the caller has a scope.
    ///
    /// # Errors
    ///
    /// It has not; see [`Rejection::missing_scopes`].
    pub fn require_scope(&self, scope: &str) -> Result<(), Rejection> {
        match self.0.has_scope(scope) {
            true => Ok(()),
            false => Err(Rejection::missing_scopes([scope])),
        }
    }
}

impl Deref for Caller {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.0
    }
}

impl FromCall for Caller {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(Self(Arc::clone(&context.principal)))
    }
}

/// The claims of the caller's token, read as a type. Members that the type does not have are ignored.
///
/// Callers without a token have no claims. `Option<Claims<T>>` is `None` for claims that are no `T`.
///
/// ```
/// use longshore::extract::Claims;
/// use longshore::tool;
///
/// #[derive(serde::Deserialize)]
/// struct Employee {
///     department: String,
/// }
///
/// /// Returns the caller's department.
/// #[tool]
/// async fn department(#[call] Claims(employee): Claims<Employee>) -> String {
///     employee.department
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims<T>(pub T);

impl<T: DeserializeOwned + Send> FromCall for Claims<T> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        match T::deserialize(context.principal.claims()) {
            Ok(claims) => Ok(Self(claims)),
            Err(error) => Err(Rejection::forbidden(format!(
                "the credential's claims are not those that are needed: {error}"
            ))),
        }
    }
}

impl<T: DeserializeOwned + Send> FromCall for Option<Claims<T>> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(Claims::<T>::from_call(context).await.ok())
    }
}

/// A header that [`Header`] can read.
pub trait RequestHeader: FromStr<Err: fmt::Display> + Send {
    /// The name, in lower case.
    const NAME: &'static str;
}

/// A header of the HTTP request, read as a type. `Option<Header<H>>` is `None` if it is missing.
///
/// Every client can set any header: use one for routing or preferences, and not for authentication. Headers with
/// credentials are removed before the call.
///
/// ```
/// use std::convert::Infallible;
/// use std::str::FromStr;
///
/// use longshore::extract::{Header, RequestHeader};
/// use longshore::tool;
///
/// /// The languages that a client prefers.
/// struct AcceptLanguage(String);
///
/// impl RequestHeader for AcceptLanguage {
///     const NAME: &'static str = "accept-language";
/// }
///
/// impl FromStr for AcceptLanguage {
///     type Err = Infallible;
///
///     fn from_str(value: &str) -> Result<Self, Infallible> {
///         Ok(Self(value.to_owned()))
///     }
/// }
///
/// /// Greets in the caller's language.
/// #[tool]
/// async fn greet(#[call] language: Option<Header<AcceptLanguage>>) -> &'static str {
///     match language {
///         Some(Header(AcceptLanguage(language))) if language.starts_with("fr") => "Bonjour!",
///         _ => "Hello!",
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<H>(pub H);

impl<H: RequestHeader> FromCall for Header<H> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Option::<Self>::from_call(context)
            .await?
            .ok_or_else(|| Rejection::new(format!("the request has no header `{}`", H::NAME)))
    }
}

impl<H: RequestHeader> FromCall for Option<Header<H>> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        let value = context.headers().and_then(|headers| headers.get(H::NAME));
        let Some(value) = value else {
            return Ok(None);
        };
        let malformed = |why: &dyn fmt::Display| {
            Rejection::new(format!("the header `{}` cannot be read: {why}", H::NAME))
        };
        let text = std::str::from_utf8(value.as_bytes()).map_err(|error| malformed(&error))?;
        let header = text
            .trim()
            .parse()
            .map_err(|error: H::Err| malformed(&error))?;
        Ok(Some(Header(header)))
    }
}

/// The headers of the HTTP request. It dereferences to [`HeaderMap`], which is empty over standard input and output.
///
/// Headers with credentials are removed before the call.
#[derive(Clone)]
pub struct Headers(Arc<CallContext>);

impl Deref for Headers {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        self.0.headers().unwrap_or(&NONE)
    }
}

impl fmt::Debug for Headers {
    /// The names alone: a value may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

impl FromCall for Headers {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(Self(Arc::clone(context)))
    }
}

/// A value that a `tower` layer has put into the extensions of the HTTP request.
///
/// A layer that is missing is a fault of the server: the call fails with an internal error. Over standard input and
/// output there are no layers, so a tool for both takes an `Option<Extension<T>>`.
///
/// ```
/// use http::Request;
/// use longshore::extract::Extension;
/// use longshore::net::Body;
/// use longshore::{App, tool};
/// use tower::util::MapRequestLayer;
///
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// /// Returns the tenant.
/// #[tool]
/// async fn tenant(#[call] Extension(Tenant(name)): Extension<Tenant>) -> String {
///     name
/// }
///
/// let layer = MapRequestLayer::new(|mut request: Request<Body>| {
///     let host = request.uri().host().unwrap_or("localhost").to_owned();
///     request.extensions_mut().insert(Tenant(host));
///     request
/// });
/// let app = App::new().layer(layer).tool(tenant);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromCall for Extension<T> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Option::<Self>::from_call(context).await?.ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Rejection::internal(format!(
                "the request has no extension `{name}`; add a layer that sets it, with App::layer"
            ))
        })
    }
}

impl<T: Clone + Send + Sync + 'static> FromCall for Option<Extension<T>> {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(context.extension().cloned().map(Extension))
    }
}

/// Reports the progress of the call to the caller, if it asked for that.
#[derive(Clone, Debug)]
pub struct Progress(Arc<CallContext>);

impl Progress {
    /// Reports that the call is at `progress` of `total`; see [`CallContext::progress`].
    pub async fn report(&self, progress: f64, total: Option<f64>, message: &str) {
        self.0.progress(progress, total, message).await;
    }

    /// Returns true if the caller asked for progress.
    pub fn is_wanted(&self) -> bool {
        self.0.wants_progress()
    }
}

impl FromCall for Progress {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(Self(Arc::clone(context)))
    }
}

/// Sends log messages to the caller, from the level on that it asked for; see [`CallContext::log`].
///
/// They must not hold credentials or personal data. The server's own log is written with `tracing`.
#[derive(Clone, Debug)]
pub struct Log(Arc<CallContext>);

impl Log {
    /// Sends a message of any level.
    pub async fn send<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        self.0.log(level, data).await;
    }

    /// Sends details for debugging.
    pub async fn debug<T: Serialize + ?Sized>(&self, data: &T) {
        self.send(LogLevel::Debug, data).await;
    }

    /// Sends an ordinary event.
    pub async fn info<T: Serialize + ?Sized>(&self, data: &T) {
        self.send(LogLevel::Info, data).await;
    }

    /// Sends an event that may become an error.
    pub async fn warning<T: Serialize + ?Sized>(&self, data: &T) {
        self.send(LogLevel::Warning, data).await;
    }

    /// Sends an error.
    pub async fn error<T: Serialize + ?Sized>(&self, data: &T) {
        self.send(LogLevel::Error, data).await;
    }

    /// The least level that the caller wants; `None` if it wants no messages.
    pub fn level(&self) -> Option<LogLevel> {
        self.0.log_level()
    }
}

impl FromCall for Log {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        Ok(Self(Arc::clone(context)))
    }
}

/// The time at which the call is cancelled, for timeouts of what it waits for.
///
/// It counts from the time at which this value is made: put it before extractors that wait. Time in which the call
/// waits for an answer of its client's is added to it later.
///
/// ```
/// use std::time::Duration;
///
/// use longshore::extract::Deadline;
/// use longshore::tool;
///
/// /// Searches, and returns what there is when time runs out.
/// #[tool]
/// async fn search(#[call] deadline: Deadline, query: String) -> String {
///     let most = deadline.remaining().unwrap_or(Duration::from_secs(30));
///     let found = async { format!("found {query}") };
///     let found = tokio::time::timeout(most.mul_f64(0.9), found).await;
///     found.unwrap_or_else(|_| "nothing yet".to_owned())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// The time that is left; `None` without a limit.
    pub fn remaining(self) -> Option<Duration> {
        let at = self.0?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// The point in time; `None` without a limit.
    pub fn instant(self) -> Option<std::time::Instant> {
        self.0.map(Instant::into_std)
    }
}

impl FromCall for Deadline {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        let from_now = |timeout| Instant::now().checked_add(timeout);
        let of_call = context.deadline.get().copied();
        Ok(Self(of_call.or_else(|| context.timeout.and_then(from_now))))
    }
}
