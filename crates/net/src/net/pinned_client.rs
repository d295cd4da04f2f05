//! The way to one place that is asked for over and over: what can be known beforehand is, and connections are kept
//! without asking a pool.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::client::legacy::connect::Connection as _;
use tokio::time::Instant;
use tower::Service as _;
use url::Url;

use super::client::{
    HEAD_BYTES, HEADERS, IDLE_CONNECTION_LIFE, IDLE_CONNECTIONS, add_empty_length, clean,
};
use super::connect::Stream;
use super::lock::Mutex;
use super::pools::ByThread;
use super::{Client, FetchError, OutgoingRequest, StreamingResponse};

/// Sends requests to one URL with the guard and deadlines of its [`Client`]. Redirects are not followed.
///
/// Over HTTP/1.1 each connection has one request at a time. It belongs to its creating thread if that has its own
/// runtime, as workers do. The first request to a TLS server uses the client's pool, and so do all further ones over
/// HTTP/2.
#[derive(Clone)]
pub struct PinnedClient(Arc<Parts>);

struct Parts {
    client: Client,
    url: Url,
    /// URI of the server to connect to.
    place: Uri,
    /// Request target.
    path: Uri,
    authority: HeaderValue,
    host: Arc<str>,
    /// Requests go over connections that are kept here.
    is_own: AtomicBool,
    by_thread: ByThread<Arc<Idle>>,
}

/// Idle connections, with the most recently used one last.
#[derive(Default)]
struct Idle(Mutex<Vec<(Sender, Instant)>>);

type Sender = SendRequest<Full<Bytes>>;

/// Pool slot that takes a connection back after its response was read.
pub(super) struct PoolSlot {
    sender: Sender,
    idle: Arc<Idle>,
}

impl PinnedClient {
    /// The way to `url`.
    ///
    /// # Errors
    ///
    /// The client's guard does not permit it.
    pub fn new(client: Client, mut url: Url) -> Result<Self, FetchError> {
        client.guard().check_url(&url)?;
        url.set_fragment(None);
        let wrong = || FetchError::Url("it has characters that no request can have");
        let place: Uri = url.as_str().parse().map_err(|_| wrong())?;
        let path = place.path_and_query().cloned().ok_or_else(wrong)?;
        let host = place.host().ok_or_else(wrong)?;
        // `Url` omits the default port.
        let authority = match url.port() {
            Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
            None => HeaderValue::from_str(host),
        };
        Ok(Self(Arc::new(Parts {
            host: url.host_str().unwrap_or_default().into(),
            authority: authority.map_err(|_| wrong())?,
            path: Uri::from(path),
            // TLS negotiates the protocol.
            is_own: AtomicBool::new(url.scheme() == "http"),
            place,
            url,
            client,
            by_thread: ByThread::new(Arc::default()),
        })))
    }

    /// Target URL.
    pub fn url(&self) -> &Url {
        &self.0.url
    }

    /// Prepares headers for [`send`](Self::send): removes connection-specific ones.
    pub fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        clean(&mut headers);
        headers.insert(HOST, self.0.authority.clone());
        headers
    }

    /// Sends a request with headers prepared by [`headers`](Self::headers), and returns as soon as the response begins.
    ///
    /// # Errors
    ///
    /// Same as [`Client::open`].
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<StreamingResponse, FetchError> {
        let parts = &*self.0;
        let deadlines = parts.client.deadlines();
        let now = Instant::now();
        let total = deadlines.total.map(|limit| (now + limit, limit));
        if !parts.is_own.load(Ordering::Relaxed) {
            return parts.by_client(method, headers, body, total).await;
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = parts.path.clone();
        *request.headers_mut() = headers;
        add_empty_length(&mut request);
        let exchanged = std::pin::pin!(parts.exchange(request));
        let sent = deadlines.until_head(now, total, &parts.host, exchanged);
        let (answer, place) = match sent.await? {
            Ok(Sent::Answered(answer, place)) => (answer, place),
            Ok(Sent::Http2(request)) => {
                let (head, body) = request.into_parts();
                let body = into_bytes(body).await;
                return parts
                    .by_client(head.method, head.headers, body, total)
                    .await;
            }
            Err(error) => return Err(error),
        };
        let (url, host) = (parts.url.clone(), Arc::clone(&parts.host));
        let mut answer = parts.client.response(answer, url, host, total);
        answer.place = Some(place);
        answer.leave_if_ended();
        Ok(answer)
    }
}

enum Sent {
    Answered(Response<Incoming>, PoolSlot),
    /// The request was not sent, since the server requires HTTP/2.
    Http2(Request<Full<Bytes>>),
}

impl Parts {
    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Sent, FetchError> {
        let idle = self.idle();
        loop {
            let (mut sender, is_new) = match idle.take() {
                Some(sender) => (sender, false),
                None => match Box::pin(self.connect()).await? {
                    Some(sender) => (sender, true),
                    None => return Ok(Sent::Http2(request)),
                },
            };
            if !is_new && !sender.is_ready() && sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok(Sent::Answered(answer, PoolSlot { sender, idle })),
                Err(mut error) => match error.take_message() {
                    // The server had hung up meanwhile; nothing was sent.
                    Some(again) if !is_new => request = again,
                    _ => return Err(self.broken(error.into_error())),
                },
            }
        }
    }

    /// A new connection; `None` if the server wants HTTP/2 on it.
    async fn connect(&self) -> Result<Option<Sender>, FetchError> {
        let stream: Stream = self.client.connector().call(self.place.clone()).await?;
        if stream.connected().is_negotiated_h2() {
            self.is_own.store(false, Ordering::Relaxed);
            return Ok(None);
        }
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(usize::from(HEAD_BYTES))
            .max_headers(HEADERS)
            .handshake(stream)
            .await
            .map_err(|error| self.broken(error))?;
        super::spawn::spawn(async move {
            // The request on this connection receives the error.
            let _ = connection.await;
        });
        sender.ready().await.map_err(|error| self.broken(error))?;
        Ok(Some(sender))
    }

    /// Sends a request over the client's pool. `total` is the end of the whole request, with its limit.
    async fn by_client(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        total: Option<(Instant, Duration)>,
    ) -> Result<StreamingResponse, FetchError> {
        let mut outgoing = OutgoingRequest::new(method, self.url.clone());
        outgoing.headers = headers;
        outgoing.body = body;
        let answer = Box::pin(self.client.follow(outgoing, total)).await?;
        let is_http1 = answer.version < Version::HTTP_2;
        self.is_own.store(is_http1, Ordering::Relaxed);
        Ok(answer)
    }

    fn broken(&self, error: hyper::Error) -> FetchError {
        FetchError::Broken {
            host: self.host.to_string(),
            source: Arc::new(error),
        }
    }

    /// Connections of this thread.
    fn idle(&self) -> Arc<Idle> {
        self.by_thread.here(Arc::default)
    }
}

impl Idle {
    /// The one that was used last, since it is the likeliest to be there still.
    fn take(&self) -> Option<Sender> {
        let mut list = self.0.lock();
        let (sender, since) = list.pop()?;
        if is_old(since, Instant::now()) {
            // So are all others.
            list.clear();
            return None;
        }
        Some(sender)
    }

    fn put(&self, sender: Sender) {
        let now = Instant::now();
        let mut list = self.0.lock();
        let old = list
            .iter()
            .take_while(|(sender, since)| sender.is_closed() || is_old(*since, now))
            .count();
        list.drain(..old);
        if list.len() < IDLE_CONNECTIONS {
            list.push((sender, now));
        }
    }
}

fn is_old(since: Instant, now: Instant) -> bool {
    IDLE_CONNECTION_LIFE < now.saturating_duration_since(since)
}

impl PoolSlot {
    /// Lets the next request have the connection.
    pub(super) fn leave(self) {
        if !self.sender.is_closed() {
            self.idle.put(self.sender);
        }
    }
}

impl fmt::Debug for PoolSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolSlot")
    }
}

impl fmt::Debug for PinnedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedClient")
            .field("host", &self.0.host)
            .finish_non_exhaustive()
    }
}

/// The bytes of a body that was not sent.
async fn into_bytes(mut body: Full<Bytes>) -> Bytes {
    use http_body_util::BodyExt as _;
    match body.frame().await {
        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        None => Bytes::new(),
        Some(Err(never)) => match never {},
    }
}

#[cfg(test)]
mod tests;
