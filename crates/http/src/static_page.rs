//! Pages that consist of one file with a script and a style, which nothing else can be added to.

use aws_lc_rs::digest::{self, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response};

use crate::net::Body;

/// A page, with the digests of its script and style.
#[derive(Debug)]
pub(super) struct StaticPage {
    text: &'static str,
    script: String,
    style: String,
}

impl StaticPage {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            script: digest(within(text, "<script>", "</script>")),
            style: digest(within(text, "<style>", "</style>")),
            text,
        }
    }

    /// Returns the content security policy: the page's own script and style, and requests to this server and to these
    /// origins, each with a space before it. Framing and external resources are blocked.
    fn policy(&self, origins: &str) -> HeaderValue {
        let Self { script, style, .. } = self;
        let policy = format!(
            "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'{origins}; \
             img-src data:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        HeaderValue::try_from(policy)
            .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
    }

    /// Responds with the page. Its script may send requests to these origins, each with a space before it.
    pub(super) fn respond(&self, origins: &str) -> Response<Body> {
        let mut response = Response::new(Body::from(self.text));
        let headers: [(HeaderName, HeaderValue); 5] = [
            (
                CONTENT_TYPE,
                HeaderValue::from_static("text/html; charset=utf-8"),
            ),
            (CONTENT_SECURITY_POLICY, self.policy(origins)),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        response.headers_mut().extend(headers);
        response
    }

    /// Checks in tests that the page has one script and one style, that it loads nothing, and that it is not too large.
    #[cfg(test)]
    pub(super) fn check(&self, bytes_max: usize) {
        let page = self.text;
        assert_eq!(page.matches("<script").count(), 1);
        assert_eq!(page.matches("<style").count(), 1);
        for foreign in [
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "eval(",
            " style=",
            " onclick=",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.len() < bytes_max, "{} bytes", page.len());
        assert!(within(page, "<script>", "</script>").contains("\"use strict\""));
        assert!(!within(page, "<style>", "</style>").is_empty());
    }
}

/// Returns the text between two markers; empty if they are missing.
fn within<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let rest = text.split_once(begin).map_or("", |(_, rest)| rest);
    rest.split_once(end).map_or("", |(inner, _)| inner)
}

/// Returns the digest of a text as a policy names it (CSP 3, section 2.3.1).
fn digest(text: &str) -> String {
    format!(
        "sha256-{}",
        STANDARD.encode(digest::digest(&SHA256, text.as_bytes()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_ask_the_origins_that_are_named() {
        let page = StaticPage::new("<style>a{}</style><script>\"use strict\"</script>");
        let policy = page.policy(" https://id.example.com");
        let policy = policy.to_str().expect("ASCII");
        assert!(
            policy.contains("connect-src 'self' https://id.example.com; "),
            "{policy}"
        );
    }
}
