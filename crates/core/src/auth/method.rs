//! Authentication methods.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderName;

use super::{AuthError, Credentials, Principal};

/// An authentication method.
///
/// API keys, access tokens and users forwarded by a proxy are such proofs. Add one of your own with
/// `App::auth_method`; it is asked before those that are configured.
///
/// It is asked for every HTTP request, before anything of the body is read, so it should be quick; what has to wait goes
/// into [`AuthOutcome::Later`].
///
/// ```
/// use http::HeaderName;
/// use longshore::auth::{AuthOutcome, Credentials, Principal, AuthMethod};
/// use std::sync::Arc;
///
/// /// Badges that the gate of our network has checked already.
/// #[derive(Debug)]
/// struct Badge;
///
/// const BADGE: HeaderName = HeaderName::from_static("x-badge");
///
/// impl AuthMethod for Badge {
///     fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
///         match presented.header(&BADGE) {
///             Err(error) => AuthOutcome::Refused(error),
///             Ok(None) => AuthOutcome::Absent,
///             Ok(Some(badge)) => match badge.to_str() {
///                 Ok(number) => AuthOutcome::Proven(Arc::new(Principal::new(format!("badge:{number}")))),
///                 Err(_) => AuthOutcome::refused("the badge is not legible"),
///             },
///         }
///     }
///
///     fn headers(&self) -> Vec<HeaderName> {
///         vec![BADGE]
///     }
/// }
///
/// let app = longshore::App::new().auth_method(Badge);
/// ```
pub trait AuthMethod: fmt::Debug + Send + Sync + 'static {
    /// Looks at what a request shows.
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome;

    /// Headers that hold the proof, beside `Authorization` and `X-API-Key`: tools do not get to see them. Default:
    /// none.
    fn headers(&self) -> Vec<HeaderName> {
        Vec::new()
    }
}

/// Result of an authentication method.
#[non_exhaustive]
pub enum AuthOutcome {
    /// The request has no credential of this kind, or one that another method may know. The next method runs.
    Absent,
    /// The caller is authenticated. Returning the same `Arc` for the same caller saves the server some work.
    Proven(Arc<Principal>),
    /// The credential is invalid. No other method runs.
    Refused(AuthError),
    /// The result is not available yet. It must not be `Later` again.
    Later(Pin<Box<dyn Future<Output = AuthOutcome> + Send>>),
}

impl AuthOutcome {
    /// The credential is invalid; the caller receives the reason.
    pub fn refused(reason: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::Refused(AuthError::Invalid(reason.into()))
    }
}

impl fmt::Debug for AuthOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::Proven(principal) => f.debug_tuple("Proven").field(principal).finish(),
            Self::Refused(error) => f.debug_tuple("Refused").field(error).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
