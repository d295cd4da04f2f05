//! The one client with which this program asks others for anything.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT,
    HOST, LOCATION, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use tokio::time::Instant;
use url::Url;

use super::connect::Connector;
use super::pools::Pools;
use super::{FetchError, FetchedResponse, Guard, MemoryBudget, StreamingResponse};
pub use builder::ClientBuilder;
pub use deadlines::Deadlines;
pub use trust::trust_ca;

/// HTTP client for HTTP/1.1 and HTTP/2, restricted by its [`Guard`].
///
/// Connections are pooled and shared by clones of the client only. Proxy variables of the environment are ignored,
/// no cookies are stored, and only the contents of a request are sent.
///
/// ```no_run
/// use longshore::net::{Client, Guard, OutgoingRequest};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(Guard::public()).redirects(3).build()?;
/// let answer = client.fetch(OutgoingRequest::get("https://example.com/".parse()?)).await?;
/// println!("{}: {} bytes", answer.status, answer.body.len());
/// # Ok(())
/// # }
/// ```
///
/// # Defaults
///
/// No redirects are followed. Connecting may take 3 s and the TLS handshake 5 s. The response may take 30 s to begin
/// and 60 s for each further part. The total limit is 60 s. The body may have 8 MiB after decompression, and the head
/// 64 KiB.
#[derive(Clone)]
pub struct Client {
    pools: Pools,
    guard: Arc<Guard>,
    deadlines: Deadlines,
    max_body: usize,
    redirects: usize,
    memory: MemoryBudget,
}

/// Reason for which a client cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no private key in what should have one.
    #[error("it contains no private key in PEM form")]
    NoKey,
    /// There is no certificate in what should have some.
    #[error("it contains no certificate in PEM form")]
    NoCertificate,
    /// A certificate that cannot be used, or a private key of another certificate.
    #[error("a certificate in it cannot be used")]
    Certificate(#[source] rustls::Error),
    /// A file with a certificate or private key that cannot be read.
    #[error("{} cannot be read", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The library for TLS does not work.
    #[error("TLS cannot be used")]
    Tls(#[source] rustls::Error),
}

const MAX_BODY: usize = 8 * 1024 * 1024;
pub(super) const HEAD_BYTES: u16 = u16::MAX;
pub(super) const HEADERS: usize = 100;
/// Connections to one host that wait for a next request.
pub(super) const IDLE_CONNECTIONS: usize = 32;
pub(super) const IDLE_CONNECTION_LIFE: Duration = Duration::from_secs(60);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("guard", &self.guard)
            .field("deadlines", &self.deadlines)
            .finish_non_exhaustive()
    }
}

/// A request to another server.
#[derive(Clone)]
pub struct OutgoingRequest {
    /// `GET`, `POST` and so on.
    pub method: Method,
    /// Request URL. The fragment is not sent.
    pub url: Url,
    /// Request headers. Connection-specific headers, `Host` and `Content-Length` are set by the client and ignored
    /// here.
    pub headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
    /// Other limits than the client's on everything together.
    pub total: Option<Duration>,
}

impl OutgoingRequest {
    /// A request without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            total: None,
        }
    }

    /// A `GET`.
    pub fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    /// A `POST` of a body of some kind.
    pub fn post(url: Url, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut request = Self::new(Method::POST, url);
        request
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        request.body = body.into();
        request
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets a limit of its own on everything together.
    #[must_use]
    pub fn within(mut self, total: Duration) -> Self {
        self.total = Some(total);
        self
    }
}

impl fmt::Debug for OutgoingRequest {
    /// Leaves out what may hold secrets: the query, headers and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingRequest")
            .field("method", &self.method)
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client that obeys a guard.
    pub fn builder(guard: Guard) -> ClientBuilder {
        ClientBuilder {
            guard,
            deadlines: Deadlines::default(),
            max_body: MAX_BODY,
            redirects: 0,
            idle_connections: IDLE_CONNECTIONS,
            resolver: None,
            roots: Vec::new(),
            user_roots_only: false,
            identity: None,
            memory: MemoryBudget::default(),
        }
    }

    /// Egress policy of the client.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(super) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(super) fn connector(&self) -> Connector {
        self.pools.connector()
    }

    /// Sends a request and reads the whole response. Status codes are not interpreted: 404 is a response too.
    ///
    /// # Errors
    ///
    /// The guard denies the request, the server does not respond in time, or the response is too large or not valid
    /// HTTP.
    pub async fn fetch(&self, mut request: OutgoingRequest) -> Result<FetchedResponse, FetchError> {
        request
            .headers
            .entry(ACCEPT_ENCODING)
            .or_insert(HeaderValue::from_static("gzip"));
        self.open(request).await?.read().await
    }

    /// Sends a request and returns as soon as the response begins, so that its body can be streamed.
    ///
    /// # Errors
    ///
    /// Same as [`fetch`](Self::fetch).
    pub fn open(
        &self,
        request: OutgoingRequest,
    ) -> BoxFuture<'_, Result<StreamingResponse, FetchError>> {
        let limit = request.total.or(self.deadlines.total);
        let total = limit.map(|limit| (Instant::now() + limit, limit));
        Box::pin(self.follow(request, total))
    }

    /// Sends a request and follows redirects. `total` is the end of the whole request, with its limit.
    pub(super) async fn follow(
        &self,
        mut request: OutgoingRequest,
        total: Option<(Instant, Duration)>,
    ) -> Result<StreamingResponse, FetchError> {
        clean(&mut request.headers);
        let mut followed = 0;
        // The host that has handled the request, and has redirected to its result.
        let mut handled_by = None;
        loop {
            let sent = self.send(&request, total).await;
            let answer = sent.map_err(|error| match handled_by.take() {
                Some(host) if !error.may_have_happened() => match error {
                    FetchError::Url(_) | FetchError::Host { .. } | FetchError::Address { .. } => {
                        FetchError::Redirect {
                            host,
                            problem: "its target may not be reached from here",
                        }
                    }
                    error => FetchError::Broken {
                        host,
                        source: Arc::new(error),
                    },
                },
                _ => error,
            })?;
            let location = match answer.headers.get(LOCATION) {
                Some(location) if self.redirects > 0 && is_redirect(answer.status) => location,
                _ => return Ok(answer),
            };
            if followed == self.redirects {
                return Err(FetchError::Redirects {
                    host: answer.host.to_string(),
                    max: self.redirects,
                });
            }
            followed += 1;
            let refused = |problem| FetchError::Redirect {
                host: answer.host.to_string(),
                problem,
            };
            let next = next_url(&request.url, location).map_err(refused)?;
            let was_safe = request.method.is_safe();
            redirect(&mut request, next, answer.status).map_err(refused)?;
            if !was_safe && request.method.is_safe() {
                handled_by = Some(answer.host.to_string());
            }
        }
    }

    async fn send(
        &self,
        request: &OutgoingRequest,
        total: Option<(Instant, Duration)>,
    ) -> Result<StreamingResponse, FetchError> {
        self.guard.check_url(&request.url)?;
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let mut bare = request.url.clone();
        bare.set_fragment(None);
        let uri: Uri = bare
            .as_str()
            .parse()
            .map_err(|_| FetchError::Url("it has characters that no request can have"))?;
        let mut outgoing = Request::new(Full::new(request.body.clone()));
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = request.headers.clone();
        add_empty_length(&mut outgoing);

        let responding = self.pools.here().request(outgoing);
        let answer = self
            .deadlines
            .until_head(Instant::now(), total, &host, responding)
            .await?
            .map_err(|error| failed(&host, error))?;
        Ok(self.response(answer, bare, host.into(), total))
    }

    /// A response that has begun, to be read within the limits of this client.
    pub(super) fn response(
        &self,
        answer: Response<Incoming>,
        url: Url,
        host: Arc<str>,
        total: Option<(Instant, Duration)>,
    ) -> StreamingResponse {
        let (head, body) = answer.into_parts();
        StreamingResponse {
            status: head.status,
            version: head.version,
            headers: head.headers,
            url,
            body,
            host,
            idle: self.deadlines.idle,
            total,
            max: self.max_body,
            memory: self.memory.clone(),
            seen: 0,
            place: None,
        }
    }
}

/// The connector's own error where there is one.
fn failed(host: &str, error: legacy::Error) -> FetchError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = source {
        if let Some(own) = error.downcast_ref::<FetchError>() {
            return own.clone();
        }
        source = error.source();
    }
    FetchError::Broken {
        host: host.to_owned(),
        source: Arc::new(error),
    }
}

/// Headers about the connection, which are the client's own.
static OF_CONNECTION: [HeaderName; 12] = [
    HOST,
    CONNECTION,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    UPGRADE,
    TE,
    TRAILER,
    EXPECT,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// Returns true for a header about the connection, which a client sets itself or leaves out.
pub fn is_connection_header(name: &HeaderName) -> bool {
    OF_CONNECTION.contains(name)
}

/// Removes headers that the client sets itself, and adds those that it does not leave to callers.
pub(super) fn clean(headers: &mut HeaderMap) {
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!(
            "longshore/",
            env!("CARGO_PKG_VERSION")
        )));
    headers
        .entry(ACCEPT_ENCODING)
        .or_insert(HeaderValue::from_static("identity"));
}

/// Adds `Content-Length: 0` to a request without a body whose method anticipates one (RFC 9110, 8.6). Hyper adds it over
/// HTTP/2 only, and servers may respond with 411 otherwise.
pub(super) fn add_empty_length(request: &mut Request<Full<Bytes>>) {
    let anticipates_body = matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH
    );
    if anticipates_body && request.body().is_end_stream() {
        let zero = HeaderValue::from_static("0");
        request.headers_mut().insert(CONTENT_LENGTH, zero);
    }
}

pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

pub(super) fn next_url(from: &Url, location: &HeaderValue) -> Result<Url, &'static str> {
    let text = std::str::from_utf8(location.as_bytes()).map_err(|_| "it is not a valid URL")?;
    let next = from.join(text).map_err(|_| "it is not a valid URL")?;
    if from.scheme() == "https" && next.scheme() != "https" {
        return Err("from https to something else");
    }
    Ok(next)
}

/// Rewrites a request for its redirect (RFC 9110, 15.4). Potential secrets are not sent to another origin.
fn redirect(
    request: &mut OutgoingRequest,
    next: Url,
    status: StatusCode,
) -> Result<(), &'static str> {
    let becomes_get = match status {
        StatusCode::SEE_OTHER => request.method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method == Method::POST,
        _ => false,
    };
    if becomes_get {
        request.method = Method::GET;
        request.body = Bytes::new();
        request.headers.remove(CONTENT_TYPE);
    }
    if next.origin() != request.url.origin() {
        if !request.body.is_empty() {
            return Err("it has a body, which is not sent to another host");
        }
        let harmless = [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, USER_AGENT].into_iter();
        let kept = harmless.filter_map(|name| {
            let value = request.headers.remove(&name)?;
            Some((name, value))
        });
        request.headers = kept.collect();
    }
    request.url = next;
    Ok(())
}

mod builder;
mod deadlines;
mod identity;
#[cfg(test)]
mod tests;
mod trust;
