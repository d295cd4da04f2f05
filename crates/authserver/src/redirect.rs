//! Redirect URIs of clients (RFC 8252, section 7; RFC 9700, section 4.1).

use url::{Host, Url};

/// Maximum length of a redirect URI, in bytes.
pub(super) const URI_MAX_BYTES: usize = 1024;

/// Schemes that a browser handles itself, so that a redirect there could run or show the client's content.
const DENIED_SCHEMES: [&str; 11] = [
    "about",
    "blob",
    "chrome",
    "data",
    "file",
    "filesystem",
    "ftp",
    "intent",
    "javascript",
    "vbscript",
    "ws",
];

/// Reason why a redirect URI cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RedirectError {
    #[error("it is longer than 1024 bytes")]
    TooLong,
    #[error("it is not an absolute URI")]
    NotAbsolute,
    #[error("it has a fragment, user information or a control character")]
    Form,
    #[error("http is for the loopback interface only; use https")]
    NotLoopback,
    #[error("its scheme is not allowed")]
    Scheme,
}

/// Checks a redirect URI that a client wants to register.
///
/// # Errors
///
/// It is not `https`, `http` on the loopback interface, or a private-use scheme of an application.
pub(super) fn check(text: &str) -> Result<Url, RedirectError> {
    if URI_MAX_BYTES < text.len() {
        return Err(RedirectError::TooLong);
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(RedirectError::Form);
    }
    let url = Url::parse(text).map_err(|_| RedirectError::NotAbsolute)?;
    if url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(RedirectError::Form);
    }
    match url.scheme() {
        "https" if url.host().is_some() => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(RedirectError::NotLoopback),
        scheme if DENIED_SCHEMES.contains(&scheme) || scheme.starts_with("view-") => {
            Err(RedirectError::Scheme)
        }
        _ => Ok(url),
    }
}

/// Returns true if a requested redirect URI is one that the client registered.
///
/// URIs are compared as text. On the loopback interface the port may differ (RFC 8252, section 7.3), because
/// applications listen on any free one.
pub(super) fn matches(registered: &str, requested: &str) -> bool {
    if registered == requested {
        return true;
    }
    let (Ok(mut one), Ok(mut other)) = (Url::parse(registered), Url::parse(requested)) else {
        return false;
    };
    // Texts that differ in more than the port do not match, even where the URLs are equivalent.
    let is_plain =
        |url: &Url, text: &str| url.as_str() == text || url.as_str() == format!("{text}/");
    if !is_loopback(&one) || !is_plain(&one, registered) || !is_plain(&other, requested) {
        return false;
    }
    if one.set_port(None).is_err() || other.set_port(None).is_err() {
        return false;
    }
    one == other
}

/// Returns true for `http` at a loopback address or `localhost`.
pub(super) fn is_loopback(url: &Url) -> bool {
    let local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    local && url.scheme() == "http"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_redirect_uris_can_be_registered() {
        for good in [
            "https://client.example/callback",
            "http://127.0.0.1:33418/",
            "http://localhost/callback?x=1",
            "http://[::1]:1/cb",
            "cursor://anysphere.cursor-retrieval/oauth/callback",
            "com.example.app:/callback",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for (bad, error) in [
            ("http://client.example/cb", RedirectError::NotLoopback),
            ("http://localhost.example/cb", RedirectError::NotLoopback),
            ("javascript:alert(1)", RedirectError::Scheme),
            ("data:text/html,x", RedirectError::Scheme),
            ("view-source:https://a", RedirectError::Scheme),
            ("https://a/cb#x", RedirectError::Form),
            ("https://u:p@a/cb", RedirectError::Form),
            ("https://a/ b", RedirectError::Form),
            ("https://a\\@b", RedirectError::Form),
            ("/callback", RedirectError::NotAbsolute),
        ] {
            assert_eq!(check(bad), Err(error), "{bad}");
        }
    }

    #[test]
    fn redirect_uris_are_compared_as_text_but_for_the_port_on_loopback() {
        for (registered, requested, is_match) in [
            ("https://a/cb", "https://a/cb", true),
            ("https://a/cb", "https://a/cb/", false),
            ("https://a/cb", "https://a/cb?x", false),
            ("https://a/cb", "https://A/cb", false),
            ("https://a/cb", "https://a:8443/cb", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:50000/cb", true),
            ("http://localhost:1/cb", "http://localhost:2/cb", true),
            ("http://localhost:1/cb", "http://127.0.0.1:2/cb", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:5/other", false),
            ("http://127.0.0.1/cb", "http://127.0.0.1:5/x/../cb", false),
            ("http://127.0.0.1/cb", "http://evil.example/cb", false),
            ("http://127.0.0.1:81", "http://127.0.0.1:8080", true),
        ] {
            assert_eq!(
                matches(registered, requested),
                is_match,
                "{registered} {requested}"
            );
        }
    }
}
