//! Client ID metadata documents: the client ID is a URL, and the document there describes the client
//! (draft-ietf-oauth-client-id-metadata-document, required by MCP since 2025-11-25).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue};
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

use super::client::{Client, Origin};
use super::error::OAuthError;
use super::registration::ClientMetadata;
use super::server::AuthorizationServer;
use crate::net::OutgoingRequest;

/// Maximum size of a document, in bytes. The draft recommends 5 KB.
pub(super) const DOCUMENT_MAX_BYTES: usize = 16 * 1024;
/// Documents that are kept at most.
const KEPT_MAX: usize = 1000;
/// Documents that are fetched at the same time at most.
const FETCHES_MAX: usize = 8;
/// Bounds of the caching time of a document. They override its headers.
const KEPT_MIN: Duration = Duration::from_secs(60);
const KEPT_DEFAULT: Duration = Duration::from_secs(3600);
const KEPT_LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Documents that were fetched.
#[derive(Debug)]
pub(super) struct Documents {
    kept: Cache<String, (Arc<Client>, Instant)>,
    fetches: Semaphore,
}

impl Documents {
    pub(super) fn new() -> Self {
        Self {
            kept: Cache::new(KEPT_MAX),
            fetches: Semaphore::new(FETCHES_MAX),
        }
    }
}

/// Returns the client that a document describes.
pub(super) async fn client(server: &AuthorizationServer, id: &str) -> Result<Client, OAuthError> {
    let url = check_url(server, id)?;
    if let Some((client, until)) = server.documents.kept.get(id)
        && Instant::now() < until
    {
        return Ok((*client).clone());
    }
    let Ok(_permit) = server.documents.fetches.try_acquire() else {
        return Err(OAuthError::unavailable(
            "too many client metadata documents are being fetched; try again",
        ));
    };
    let request = OutgoingRequest::get(url.clone())
        .header(ACCEPT, HeaderValue::from_static("application/json"));
    let answer = server.web.fetch(request).await.map_err(|error| {
        tracing::info!(client_id = id, %error, "cannot fetch a client metadata document");
        OAuthError::invalid_client("the client metadata document at client_id cannot be fetched")
    })?;
    if answer.status != StatusCode::OK {
        return Err(OAuthError::invalid_client(format!(
            "the server of client_id responded {} instead of the client metadata document",
            answer.status
        )));
    }
    let client = Arc::new(read(id, &url, &answer.body)?);
    let until = Instant::now() + lifetime(&answer.headers);
    let kept = (Arc::clone(&client), until);
    server.documents.kept.insert(id.to_owned(), kept);
    Ok((*client).clone())
}

/// Checks that a client ID is a URL that may name a document.
fn check_url(server: &AuthorizationServer, id: &str) -> Result<Url, OAuthError> {
    let invalid = || {
        OAuthError::invalid_client(
            "a client_id that is a URL must be https with a path, and without user information, fragment or dot segments",
        )
    };
    let url = Url::parse(id).map_err(|_| invalid())?;
    let is_plain = url.as_str() == id
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && url.path() != "/";
    let is_secure = url.scheme() == "https" || server.is_local;
    if is_plain && is_secure {
        Ok(url)
    } else {
        Err(invalid())
    }
}

fn read(id: &str, url: &Url, body: &[u8]) -> Result<Client, OAuthError> {
    let metadata = ClientMetadata::read(body).map_err(|_| {
        OAuthError::invalid_client("the document at client_id is not valid client metadata")
    })?;
    if metadata.client_id.as_deref() != Some(id) {
        return Err(OAuthError::invalid_client(
            "client_id in the client metadata document differs from the document's URL",
        ));
    }
    metadata
        .check()
        .map_err(|error| OAuthError::invalid_client(error.description))?;
    let method = metadata.token_endpoint_auth_method.as_deref();
    if method.is_some_and(|method| method != "none") {
        return Err(OAuthError::invalid_client(
            "token_endpoint_auth_method of the client metadata document must be none",
        ));
    }
    let host = url.host_str().unwrap_or_default();
    let name = metadata.client_name.as_deref().unwrap_or(host);
    let origin = Origin::Document(host.to_owned());
    let client = Client::new(id, name, origin, metadata.redirect_uris);
    Ok(client.with_dpop(metadata.dpop_bound_access_tokens))
}

fn lifetime(headers: &HeaderMap) -> Duration {
    let values = headers.get_all(CACHE_CONTROL).iter();
    let directives = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|v| v.split(','));
    let mut found = KEPT_DEFAULT;
    for directive in directives {
        let directive = directive.trim();
        if directive.eq_ignore_ascii_case("no-store") || directive.eq_ignore_ascii_case("no-cache")
        {
            return KEPT_MIN;
        }
        if let Some((name, seconds)) = directive.split_once('=')
            && name.trim().eq_ignore_ascii_case("max-age")
            && let Ok(seconds) = seconds.trim().trim_matches('"').parse()
        {
            found = Duration::from_secs(seconds);
        }
    }
    found.clamp(KEPT_MIN, KEPT_LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "https://client.example/metadata.json";

    fn read_text(text: &str) -> Result<Client, OAuthError> {
        read(ID, &Url::parse(ID).expect("a URL"), text.as_bytes())
    }

    #[test]
    fn a_document_must_name_its_own_url() {
        let good = format!(
            r#"{{"client_id":"{ID}","client_name":"Editor","redirect_uris":["http://127.0.0.1/cb"]}}"#
        );
        let client = read_text(&good).expect("a client");
        assert_eq!(client.name, "Editor");
        assert_eq!(client.origin, Origin::Document("client.example".to_owned()));
        for bad in [
            good.replace("metadata.json", "other.json"),
            good.replace("http://127.0.0.1/cb", "javascript:x"),
            good.replace(
                "\"client_name\"",
                "\"token_endpoint_auth_method\":\"private_key_jwt\",\"client_name\"",
            ),
            "[]".to_owned(),
        ] {
            assert!(read_text(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn documents_are_kept_within_bounds() {
        for (value, seconds) in [
            ("max-age=600", 600),
            ("max-age=1", 60),
            ("max-age=99999999", 86_400),
            ("no-store", 60),
            ("public", 3600),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
            assert_eq!(lifetime(&headers), Duration::from_secs(seconds), "{value}");
        }
    }
}
