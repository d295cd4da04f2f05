//! Web page on which a user tries the tools of this server.
//!
//! The page is static and holds no data. It requests everything from the endpoint, as any client does, with the token
//! that the user enters.

use std::sync::LazyLock;

use aws_lc_rs::digest::{self, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, Uri};

use super::HttpConfig;
use crate::net::Body;

mod shrink;

/// The page without what only its readers need.
static PAGE: LazyLock<String> = LazyLock::new(|| shrink::page(include_str!("playground.html")));

/// Digests of the page's script and of its style, as the policy names them.
static DIGESTS: LazyLock<[String; 2]> = LazyLock::new(|| {
    [
        digest(within(&PAGE, "<script>", "</script>")),
        digest(within(&PAGE, "<style>", "</style>")),
    ]
});

/// Content security policy: the page's own script and style, and requests to this server and to the issuers of its access
/// tokens, where users log in. Framing and external resources are blocked.
fn policy(issuers: &[String]) -> HeaderValue {
    let [script, style] = &*DIGESTS;
    let origins: String = issuers
        .iter()
        .filter_map(|issuer| issuer.parse::<Uri>().ok())
        .filter_map(|url| Some(format!(" {}://{}", url.scheme_str()?, url.authority()?)))
        .collect();
    let policy = format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'{origins}; img-src data:; \
         media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
}

impl HttpConfig {
    /// Returns true if there is such a page. By default it is for those alone who sit at the machine.
    pub fn has_playground(&self) -> bool {
        self.playground.unwrap_or_else(|| {
            self.unix_socket.is_none() && self.playground_is_off_because().is_none()
        })
    }

    /// The reason why there is no such page, where no setting decides it.
    pub fn playground_is_off_because(&self) -> Option<&'static str> {
        if self.playground.is_some() || self.unix_socket.is_some() {
            None
        } else if !self.host.is_loopback() {
            Some("the server listens beyond loopback")
        } else if self.public_url.is_some() {
            Some("http.public_url is set")
        } else {
            None
        }
    }
}

/// Responds with the page. `issuers` are those of access tokens.
pub(super) fn page(issuers: &[String]) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(PAGE.as_bytes())));
    let headers: [(HeaderName, HeaderValue); 5] = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (CONTENT_SECURITY_POLICY, policy(issuers)),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    response.headers_mut().extend(headers);
    response
}

/// Returns the text between two markers; empty if they are missing.
fn within<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let rest = text.split_once(begin).map_or("", |(_, rest)| rest);
    rest.split_once(end).map_or("", |(inner, _)| inner)
}

/// The name that a policy knows a text by (CSP 3, 2.3.1).
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
    fn the_page_has_one_script_and_one_style_and_nothing_from_elsewhere() {
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        for foreign in [
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "eval(",
            " style=",
            " onclick=",
        ] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
        assert!(PAGE.len() < 60 * 1024, "{} bytes", PAGE.len());
        assert!(PAGE.contains("\"use strict\""));
        assert!(!within(&PAGE, "<script>", "</script>").is_empty());
        assert!(!within(&PAGE, "<style>", "</style>").is_empty());
    }

    #[test]
    fn the_page_may_ask_the_issuers_where_users_log_in() {
        let issuers = ["https://id.example.com/realms/a".to_owned(), "?".to_owned()];
        let policy = policy(&issuers);
        let policy = policy.to_str().expect("ASCII");
        assert!(
            policy.contains("connect-src 'self' https://id.example.com; "),
            "{policy}"
        );
    }

    #[test]
    fn whoever_serves_others_has_no_such_page_unless_they_say_so() {
        let local = HttpConfig::default();
        assert!(local.has_playground());
        let everywhere = HttpConfig {
            host: [0, 0, 0, 0].into(),
            ..HttpConfig::default()
        };
        assert!(!everywhere.has_playground());
        let behind_a_proxy = HttpConfig {
            public_url: Some("https://mcp.example.com".to_owned()),
            ..HttpConfig::default()
        };
        assert!(!behind_a_proxy.has_playground());
        assert_eq!(local.playground_is_off_because(), None);
        assert_eq!(
            everywhere.playground_is_off_because(),
            Some("the server listens beyond loopback")
        );
        assert_eq!(
            behind_a_proxy.playground_is_off_because(),
            Some("http.public_url is set")
        );
        for said in [true, false] {
            for config in [&local, &everywhere, &behind_a_proxy] {
                let config = HttpConfig {
                    playground: Some(said),
                    ..config.clone()
                };
                assert_eq!(config.has_playground(), said);
                assert_eq!(config.playground_is_off_because(), None);
            }
        }
    }
}
