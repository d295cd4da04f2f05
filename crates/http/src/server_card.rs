//! Settings of the server card (draft of SEP-2127).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Server card: a public document from which clients and catalogues learn what the server is and how to connect, before they
/// connect. It follows a **draft** of the specification (SEP-2127) and may change with it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerCardConfig {
    /// Name in reverse DNS form, such as `com.example/weather`. Setting it turns the card on. Needs `http.public_url`.
    pub name: Option<String>,
    /// Description of at most 100 characters. Default: the title of the server.
    pub description: Option<String>,
    /// Home page of the server, an `http` or `https` URL.
    pub website_url: Option<String>,
}

/// Error of `http.server_card`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerCardError {
    /// The name has another form.
    #[error(
        "http.server_card.name is {0:?}; write a domain in reverse and a name with one slash between, such as com.example/weather"
    )]
    Name(String),
    /// The description is empty or too long.
    #[error("http.server_card.description must have 1 to 100 characters")]
    Description,
    /// The home page is not a URL of the web.
    #[error(
        "http.server_card.website_url is {0:?}; write a whole URL, such as https://example.com/weather"
    )]
    WebsiteUrl(String),
    /// No public URL.
    #[error(
        "http.server_card requires http.public_url: the URL at which clients reach this server"
    )]
    NoPublicUrl,
    /// Settings without a name.
    #[error(
        "http.server_card has settings, but no name; set http.server_card.name, or remove them"
    )]
    NoName,
    /// An endpoint has the path of the card.
    #[error(
        "an endpoint is called server-card, and /mcp/server-card is the path of the server card; rename the endpoint, or remove http.server_card"
    )]
    Endpoint,
}

impl ServerCardConfig {
    /// Checks the settings. `has_url` is true if the public URL is known.
    ///
    /// # Errors
    ///
    /// A setting is missing or wrong.
    pub fn check(&self, has_url: bool) -> Result<(), ServerCardError> {
        let Some(name) = &self.name else {
            let is_set = self.description.is_some() || self.website_url.is_some();
            return if is_set {
                Err(ServerCardError::NoName)
            } else {
                Ok(())
            };
        };
        let is_in = |text: &str, more: &str| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let is_name = name.len() <= 200
            && name
                .split_once('/')
                .is_some_and(|(domain, own)| is_in(domain, ".-") && is_in(own, "._-"));
        if !is_name {
            return Err(ServerCardError::Name(name.clone()));
        }
        let is_long = |text: &String| !(1..=100).contains(&text.chars().count());
        if self.description.as_ref().is_some_and(is_long) {
            return Err(ServerCardError::Description);
        }
        if let Some(url) = &self.website_url
            && !is_of_web(url)
        {
            return Err(ServerCardError::WebsiteUrl(url.clone()));
        }
        match has_url {
            true => Ok(()),
            false => Err(ServerCardError::NoPublicUrl),
        }
    }
}

/// Returns true for an absolute `http` or `https` URL with a host.
fn is_of_web(url: &str) -> bool {
    let uri = url.parse::<http::Uri>();
    uri.is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_needs_a_name_in_reverse_dns_form_and_a_url() {
        let config = |name: &str| ServerCardConfig {
            name: Some(name.to_owned()),
            ..ServerCardConfig::default()
        };
        assert_eq!(config("com.example/weather").check(true), Ok(()));
        assert_eq!(
            config("com.example/weather").check(false),
            Err(ServerCardError::NoPublicUrl)
        );
        for name in [
            "weather",
            "com.example/",
            "/a",
            "a/b/c",
            "com example/a",
            "a/ü",
        ] {
            let error = config(name).check(true);
            assert_eq!(error, Err(ServerCardError::Name(name.to_owned())));
        }
        let linked = |url: &str| ServerCardConfig {
            website_url: Some(url.to_owned()),
            ..config("com.example/weather")
        };
        for url in ["https://example.com", "http://example.com:81/a?b=c"] {
            assert_eq!(linked(url).check(true), Ok(()), "{url}");
        }
        for url in [
            "",
            "example.com",
            "javascript:a()",
            "https://",
            "https://a b",
            "/weather",
        ] {
            let error = linked(url).check(true);
            assert_eq!(error, Err(ServerCardError::WebsiteUrl(url.to_owned())));
        }
        assert_eq!(ServerCardConfig::default().check(false), Ok(()));
        let nameless = ServerCardConfig {
            description: Some("a".to_owned()),
            ..ServerCardConfig::default()
        };
        assert_eq!(nameless.check(true), Err(ServerCardError::NoName));
    }
}
