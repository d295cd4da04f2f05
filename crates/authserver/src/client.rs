//! Clients, by their client ID.

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::document;
use super::error::OAuthError;
use super::redirect;
use super::sealed::{self, RegisteredClient};
use super::server::AuthorizationServer;
use crate::auth::FacadeClientConfig;
use crate::environment::Secret;
use crate::limit::ClientLimits;

/// Maximum length of a client ID, in bytes.
pub(super) const CLIENT_ID_MAX_BYTES: usize = 4096;
/// Maximum length of a client's name, in characters. Longer ones are cut.
pub(super) const NAME_MAX_CHARS: usize = 80;

/// A client that may ask for authorization.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: String,
    /// The name that the client gives itself, cut and without control characters.
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) redirect_uris: Vec<String>,
    /// True if the client uses DPoP only.
    pub(super) is_dpop: bool,
    /// Secret of a confidential client.
    secret: Option<Secret>,
}

/// Source of a client's metadata: how much its name can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The configuration.
    Configured,
    /// A document at this host.
    Document(String),
    /// The client itself, by dynamic registration.
    Registered,
}

impl Client {
    pub(super) fn new(id: &str, name: &str, origin: Origin, redirect_uris: Vec<String>) -> Self {
        Self {
            id: id.to_owned(),
            name: display_name(name),
            origin,
            redirect_uris,
            is_dpop: false,
            secret: None,
        }
    }

    /// Sets whether the client uses DPoP only.
    pub(super) fn with_dpop(self, is_dpop: bool) -> Self {
        Self { is_dpop, ..self }
    }

    /// Returns true if the client has a secret.
    pub(super) fn is_confidential(&self) -> bool {
        self.secret.is_some()
    }

    pub(super) fn configured(config: &FacadeClientConfig) -> Self {
        let name = config.name.as_deref().unwrap_or(&config.id);
        let mut client = Self::new(
            &config.id,
            name,
            Origin::Configured,
            config.redirect_uris.clone(),
        );
        client.secret.clone_from(&config.secret);
        client
    }

    /// Returns the redirect URI of a request: the requested one if it is registered, or the only registered one.
    pub(super) fn redirect_uri(&self, requested: Option<&str>) -> Option<String> {
        let Some(requested) = requested else {
            return match &self.redirect_uris[..] {
                [only] => Some(only.clone()),
                _ => None,
            };
        };
        let is_registered = |known: &String| redirect::matches(known, requested);
        let found = self.redirect_uris.iter().any(is_registered);
        found.then(|| requested.to_owned())
    }

    /// Checks the secret that a request shows. Public clients have none.
    pub(super) fn check_secret(&self, shown: Option<&str>) -> Result<(), OAuthError> {
        let Some(secret) = &self.secret else {
            return Ok(());
        };
        let shown = shown.unwrap_or_default().as_bytes();
        verify_slices_are_equal(secret.expose().as_bytes(), shown)
            .map_err(|_| OAuthError::invalid_client("the client secret is missing or wrong"))
    }
}

/// Cuts a name to what a page can show.
pub(super) fn display_name(name: &str) -> String {
    let is_shown = |c: &char| !c.is_control() && !is_bidirectional(*c);
    let shown: String = name.chars().filter(is_shown).take(NAME_MAX_CHARS).collect();
    shown.trim().to_owned()
}

/// Returns true for marks that change the direction of text, which could make one name look like another.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl AuthorizationServer {
    /// Looks a client up.
    ///
    /// # Errors
    ///
    /// `invalid_client` if there is no such client or its kind is not allowed.
    pub(super) async fn client(
        &self,
        id: &str,
        limits: Option<&ClientLimits>,
        now: u64,
    ) -> Result<Client, OAuthError> {
        if CLIENT_ID_MAX_BYTES < id.len() {
            return Err(OAuthError::invalid_client("client_id is too long"));
        }
        let configured = self.config.clients.iter().find(|client| client.id == id);
        if let Some(config) = configured {
            return Ok(Client::configured(config));
        }
        if id.starts_with("https://") || id.starts_with("http://") {
            if !self.config.metadata_documents {
                return Err(OAuthError::invalid_client(
                    "client ID metadata documents are not accepted here; remove this server from the application and add it again, so that \
                     the application registers itself",
                ));
            }
            return document::client(self, id, limits).await;
        }
        let registered: Option<RegisteredClient> =
            sealed::open(&self.ring, &self.issuer, id, now).filter(|_| self.config.registration);
        let Some(registered) = registered else {
            return Err(OAuthError::invalid_client(
                "the client is not registered here, or no longer; register it again, by removing this server from the application and adding it again",
            ));
        };
        let client = Client::new(
            id,
            &registered.name,
            Origin::Registered,
            registered.redirect_uris,
        );
        Ok(client.with_dpop(registered.is_dpop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_cannot_reorder_text() {
        assert_eq!(display_name(" a\u{202e}b\n c "), "ab c");
        assert_eq!(
            display_name(&"x".repeat(500)).chars().count(),
            NAME_MAX_CHARS
        );
    }

    #[test]
    fn a_redirect_uri_may_be_left_out_where_there_is_one() {
        let client = |uris: &[&str]| {
            let uris = uris.iter().map(ToString::to_string).collect();
            Client::new("a", "a", Origin::Registered, uris)
        };
        let one = client(&["https://a/cb"]);
        assert_eq!(one.redirect_uri(None).as_deref(), Some("https://a/cb"));
        assert_eq!(one.redirect_uri(Some("https://b/cb")), None);
        let two = client(&["https://a/cb", "https://a/other"]);
        assert_eq!(two.redirect_uri(None), None);
    }
}
