//! Web page on which a user tries the tools of this server.
//!
//! The page is static and holds no data. It requests everything from the endpoint, as any client does, with the token
//! that the user enters.

use std::sync::LazyLock;

use http::{Response, Uri};

use super::HttpConfig;
use super::static_page::StaticPage;
use crate::net::Body;

static PAGE: LazyLock<StaticPage> =
    LazyLock::new(|| StaticPage::new(include_str!("playground.html")));

/// Responds with the page. It may ask the issuers of access tokens, where users log in.
pub(super) fn page(issuers: &[String]) -> Response<Body> {
    PAGE.respond(&origins(issuers))
}

/// Returns the origins of URLs, each with a space before it.
fn origins(issuers: &[String]) -> String {
    issuers
        .iter()
        .filter_map(|issuer| issuer.parse::<Uri>().ok())
        .filter_map(|url| Some(format!(" {}://{}", url.scheme_str()?, url.authority()?)))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_loads_nothing() {
        PAGE.check(80 * 1024);
    }

    #[test]
    fn the_page_may_ask_the_issuers_where_users_log_in() {
        let issuers = ["https://id.example.com/realms/a".to_owned(), "?".to_owned()];
        assert_eq!(origins(&issuers), " https://id.example.com");
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
