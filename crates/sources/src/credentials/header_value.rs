//! Values of headers that hold a secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

/// Value of `Authorization` for a bearer token.
///
/// # Errors
///
/// The token has characters that no header can hold. So for all values here.
pub(crate) fn bearer_value(token: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("Bearer {token}"))
}

/// Value of `Authorization` for a token that is bound to a key (RFC 9449).
pub(super) fn dpop_value(token: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("DPoP {token}"))
}

/// Value of `Authorization` for a user name and a password.
pub(crate) fn basic_value(username: &str, password: &str) -> Result<HeaderValue, String> {
    if username.contains(':') {
        return Err("a user name cannot have a colon".to_owned());
    }
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    sensitive(&format!("Basic {encoded}"))
}

pub(crate) fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "the secret has characters that no header can hold".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
