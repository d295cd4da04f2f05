//! Client ID metadata documents: the client ID is a URL, and the document there describes the client
//! (draft-ietf-oauth-client-id-metadata-document, required by MCP since 2025-11-25).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue};
use quick_cache::sync::Cache;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::client::{Client, Origin};
use super::error::OAuthError;
use super::registration::ClientMetadata;
use super::server::AuthorizationServer;
use crate::limit::{ClientLimits, is_public, subnet};
use crate::net::{self, FetchError, OutgoingRequest};
use crate::telemetry::LogInterval;

/// Documents that are kept at most.
const KEPT_MAX: usize = 1000;
/// Documents that are fetched at the same time at most, and those for clients of one public address.
const FETCHES_MAX: usize = 64;
const FETCHES_OF_ADDRESS_MAX: usize = 4;
/// Bounds of the caching time of a document. They override its headers.
const KEPT_MIN: Duration = Duration::from_secs(60);
const KEPT_DEFAULT: Duration = Duration::from_secs(3600);
const KEPT_LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Time for which an expired document is still used while its server does not provide it.
const STALE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Documents that were fetched.
#[derive(Debug)]
pub(super) struct Documents {
    kept: Cache<String, KeptDocument>,
    turns: Cache<String, Turn>,
    /// Fetches under way, by the public address of their client.
    fetches: net::Mutex<BTreeMap<Option<u128>, usize>>,
}

/// Held by the one request that fetches a document. Holds the latest failure, with its time.
type Turn = Arc<Mutex<Option<(Instant, OAuthError)>>>;

/// A fetch under way.
struct FetchPermit<'d> {
    documents: &'d Documents,
    of: Option<u128>,
}

impl Drop for FetchPermit<'_> {
    fn drop(&mut self) {
        let mut fetches = self.documents.fetches.lock();
        if let Some(count) = fetches.get_mut(&self.of) {
            *count -= 1;
        }
        fetches.retain(|_, count| *count > 0);
    }
}

/// A document that was fetched.
#[derive(Clone, Debug)]
struct KeptDocument {
    client: Arc<Client>,
    /// Time of the next fetch.
    until: Instant,
    /// Time until which the document is used if it cannot be fetched.
    stale_until: Instant,
}

/// Reason for which there is no new document.
#[derive(Debug)]
enum Problem {
    /// The document's server is not available now.
    Outage(&'static str),
    /// There is no valid document.
    Invalid(OAuthError),
}

impl Documents {
    pub(super) fn new() -> Self {
        Self {
            kept: Cache::new(KEPT_MAX),
            turns: Cache::new(KEPT_MAX),
            fetches: net::Mutex::default(),
        }
    }

    /// Returns the turn to fetch a document.
    fn turn(&self, id: &str) -> Turn {
        let made = self
            .turns
            .get_or_insert_with(id, || Ok::<_, std::convert::Infallible>(Turn::default()));
        match made {
            Ok(turn) => turn,
            Err(never) => match never {},
        }
    }

    /// Admits a fetch for a client at an address.
    fn admit(&self, address: Option<IpAddr>) -> Option<FetchPermit<'_>> {
        let of = address.filter(|address| is_public(*address)).map(subnet);
        let mut fetches = self.fetches.lock();
        let own = fetches.get(&of).copied().unwrap_or_default();
        let is_full = FETCHES_MAX <= fetches.values().sum::<usize>()
            || (of.is_some() && FETCHES_OF_ADDRESS_MAX <= own);
        if is_full {
            return None;
        }
        fetches.insert(of, own + 1);
        Some(FetchPermit {
            documents: self,
            of,
        })
    }

    /// Returns the client of a document that need not be fetched yet.
    fn current(&self, id: &str, now: Instant) -> Option<Client> {
        let kept = self.kept.get(id).filter(|kept| now < kept.until)?;
        Some((*kept.client).clone())
    }

    /// Returns the client after a fetch of its document. In an outage, this is the client of an expired document, if there
    /// is one.
    fn conclude(
        &self,
        id: &str,
        fetched: Result<(Client, Duration), Problem>,
        now: Instant,
    ) -> Result<Client, OAuthError> {
        let kept = match fetched {
            Ok((client, life)) => KeptDocument {
                client: Arc::new(client),
                until: now + life,
                stale_until: now + life + STALE_MAX,
            },
            Err(Problem::Invalid(error)) => {
                self.kept.remove(id);
                return Err(error);
            }
            Err(Problem::Outage(problem)) => {
                let expired = self.kept.get(id).filter(|kept| now < kept.stale_until);
                let kept = expired.ok_or_else(|| OAuthError::unavailable(problem))?;
                // Each login would otherwise wait for the timeout of a fetch.
                KeptDocument {
                    until: now + KEPT_MIN,
                    ..kept
                }
            }
        };
        let client = (*kept.client).clone();
        self.kept.insert(id.to_owned(), kept);
        Ok(client)
    }
}

/// Returns the client that a document describes. Requests that need the same document share a fetch.
pub(super) async fn client(
    server: &AuthorizationServer,
    id: &str,
    limits: Option<&ClientLimits>,
) -> Result<Client, OAuthError> {
    let url = check_url(server, id)?;
    let documents = &server.documents;
    let began = Instant::now();
    if let Some(client) = documents.current(id, began) {
        return Ok(client);
    }
    let turn = documents.turn(id);
    let mut failed = turn.lock().await;
    if let Some(client) = documents.current(id, Instant::now()) {
        return Ok(client);
    }
    // Requests that waited for a failed fetch would otherwise repeat it one after another.
    if let Some((at, error)) = &*failed
        && began <= *at
    {
        return Err(error.clone());
    }
    let Some(permit) = documents.admit(limits.and_then(|limits| limits.address)) else {
        return Err(OAuthError::unavailable(
            "too many client metadata documents are being fetched; try again",
        ));
    };
    let fetched = fetch(server, id, &url).await;
    drop(permit);
    let now = Instant::now();
    let client = documents.conclude(id, fetched, now);
    *failed = client.as_ref().err().map(|error| (now, error.clone()));
    client
}

/// Fetches the document of a client. Returns the client with the caching time.
async fn fetch(
    server: &AuthorizationServer,
    id: &str,
    url: &Url,
) -> Result<(Client, Duration), Problem> {
    let request = OutgoingRequest::get(url.clone())
        .header(ACCEPT, HeaderValue::from_static("application/json"));
    let answer = server.web.fetch(request).await.map_err(|error| {
        // Anybody can name a document.
        static LINES: LogInterval = LogInterval::new(Duration::from_secs(1));
        if LINES.passes() {
            tracing::info!(
                client_id = id,
                %error,
                setting = "auth.oauth.facade.metadata_documents",
                "cannot fetch a client metadata document; if this server must not reach it, set metadata_documents to false, \
                 and clients register themselves (logged once a second)"
            );
        }
        match error {
            FetchError::Resolve { .. }
            | FetchError::Connect { .. }
            | FetchError::Tls { .. }
            | FetchError::Timeout { .. }
            | FetchError::Broken { .. } => Problem::Outage(
                "the client metadata document at client_id cannot be fetched now; try again",
            ),
            _ => Problem::Invalid(OAuthError::invalid_client(
                "the client metadata document at client_id cannot be fetched",
            )),
        }
    })?;
    check_status(answer.status)?;
    let client = read(id, url, &answer.body).map_err(Problem::Invalid)?;
    Ok((client, lifetime(&answer.headers)))
}

fn check_status(status: StatusCode) -> Result<(), Problem> {
    if status == StatusCode::OK {
        Ok(())
    } else if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        Err(Problem::Outage(
            "the server of client_id does not provide the client metadata document now; try again",
        ))
    } else {
        Err(Problem::Invalid(OAuthError::invalid_client(format!(
            "the server of client_id responded {status} instead of the client metadata document"
        ))))
    }
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
    use crate::registration::METADATA_MAX_BYTES;

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
            good.replace("Editor", &"x".repeat(METADATA_MAX_BYTES)),
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

    #[test]
    fn one_address_cannot_use_up_the_fetches_of_others() {
        let documents = Documents::new();
        let at = |last: u8| Some(IpAddr::from([203, 0, 114, last]));
        let mut permits: Vec<_> = (0..FETCHES_OF_ADDRESS_MAX)
            .map(|_| documents.admit(at(1)).expect("admitted"))
            .collect();
        assert!(documents.admit(at(1)).is_none());
        permits.push(documents.admit(at(2)).expect("admitted"));
        // Addresses of proxies stand for many clients.
        let proxy = Some(IpAddr::from([10, 0, 0, 1]));
        while let Some(permit) = documents.admit(proxy) {
            permits.push(permit);
        }
        assert_eq!(permits.len(), FETCHES_MAX);
        permits.clear();
        assert!(documents.admit(at(1)).is_some());
        assert!(documents.fetches.lock().is_empty());
    }

    #[test]
    fn an_outage_does_not_end_logins_and_a_document_that_is_gone_does() {
        let client = || Client::new(ID, "Editor", Origin::Registered, Vec::new());
        let outage = |status: u16| {
            let status = StatusCode::from_u16(status).expect("a status");
            check_status(status).map(|()| (client(), KEPT_MIN))
        };
        let (documents, start) = (Documents::new(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        let refused = |result: Result<Client, OAuthError>| result.expect_err("refused").code;
        for status in [429, 500, 503] {
            let error = documents.conclude(ID, outage(status), start);
            assert_eq!(refused(error), "temporarily_unavailable", "{status}");
        }
        let fetched = documents.conclude(ID, Ok((client(), Duration::from_secs(600))), start);
        assert!(fetched.is_ok());
        assert!(documents.current(ID, later(599)).is_some());
        assert!(documents.current(ID, later(600)).is_none());
        // The expired document is used, and its server is not asked for a while.
        assert!(documents.conclude(ID, outage(503), later(700)).is_ok());
        assert!(documents.current(ID, later(759)).is_some());
        assert!(documents.current(ID, later(760)).is_none());
        // But not for ever.
        let last = 600 + STALE_MAX.as_secs();
        assert!(documents.conclude(ID, outage(503), later(last - 1)).is_ok());
        let error = documents.conclude(ID, outage(503), later(last));
        assert_eq!(refused(error), "temporarily_unavailable");
        for status in [404, 410, 403, 302] {
            let error = documents.conclude(ID, outage(status), later(700));
            assert_eq!(refused(error), "invalid_client", "{status}");
        }
        // A document that is gone does not come back by an outage.
        let error = documents.conclude(ID, outage(503), later(701));
        assert_eq!(refused(error), "temporarily_unavailable");
    }
}
