//! Requests to the diagnosed server, each over its own connection, so that a load balancer chooses again.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Position, Url};

use super::tls::Handshake;
use crate::environment::Secret;
use crate::net::{self, EventDecoder, Resolve as _, SseItem, SystemResolver};

/// Maximum response size.
const BODY_MAX: usize = 8 * 1024 * 1024;

/// The diagnosed server.
pub(super) struct DiagnosedServer {
    pub(super) url: Url,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) patience: Duration,
    pub(super) token: Option<Secret>,
    pub(super) tls: Arc<rustls::ClientConfig>,
}

/// A request.
pub(super) struct Ask {
    method: Method,
    /// Path and query.
    target: String,
    headers: Vec<(&'static str, String)>,
    host: Option<String>,
    body: Bytes,
    /// True if the request has the credential.
    proven: bool,
}

/// A complete response.
#[derive(Debug)]
pub(super) struct CompleteResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A response whose body has not been read.
pub(super) struct Open {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    body: Incoming,
    connection: AbortHandle,
}

/// Result of waiting for more data of a stream.
pub(super) enum More {
    Bytes(Bytes),
    /// The stream ended regularly.
    End,
    /// The connection failed.
    Broken(String),
    /// The wait timed out.
    Silence,
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

impl Ask {
    pub(super) fn new(method: Method, target: impl Into<String>) -> Self {
        Self {
            method,
            target: target.into(),
            headers: Vec::new(),
            host: None,
            body: Bytes::new(),
            proven: true,
        }
    }

    /// Creates a message for the endpoint, with the headers of a normal client.
    pub(super) fn message(wire: &DiagnosedServer, message: &Value) -> Self {
        Self::new(Method::POST, wire.target())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(message.to_string())
    }

    /// Sets a header.
    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    pub(super) fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Pads the body with white space.
    pub(super) fn padded(mut self, bytes: usize) -> Self {
        let mut body = self.body.to_vec();
        body.resize(bytes.max(body.len()), b' ');
        self.body = body.into();
        self
    }

    pub(super) fn at(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// Removes the credential.
    pub(super) fn anonymous(mut self) -> Self {
        self.proven = false;
        self
    }
}

impl DiagnosedServer {
    /// Resolves the host.
    pub(super) async fn resolve(url: &Url) -> Result<Vec<IpAddr>, String> {
        let host = url.host_str().unwrap_or_default();
        if let Ok(address) = host.trim_matches(['[', ']']).parse() {
            return Ok(vec![address]);
        }
        SystemResolver::default()
            .addresses(host)
            .await
            .map_err(|error| error.to_string())
    }

    /// The server at a URL, whose addresses are not known yet.
    pub(super) fn new(url: Url, patience: Duration, tls: Arc<rustls::ClientConfig>) -> Self {
        let host = url.host_str().unwrap_or_default();
        Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default().unwrap_or(443),
            addresses: Vec::new(),
            patience,
            token: None,
            tls,
            url,
        }
    }

    /// Returns a wire to another server, without the credential.
    pub(super) async fn to(&self, url: &Url) -> Result<Self, String> {
        Ok(Self {
            addresses: Self::resolve(url).await?,
            ..Self::new(url.clone(), self.patience, Arc::clone(&self.tls))
        })
    }

    /// Returns the URL with the other one of `http` and `https`, if the port speaks that.
    pub(super) async fn at_other_scheme(&self) -> Option<Url> {
        let mut url = self.url.clone();
        let other = if self.is_secure() { "http" } else { "https" };
        url.set_scheme(other).ok()?;
        url.set_port(Some(self.port)).ok()?;
        let other = self.to(&url).await.ok()?;
        let seen = other.ask(&Ask::new(Method::GET, "/")).await.ok()?;
        // TLS servers respond to plain HTTP with this status, or with a redirect to themselves.
        let is_tls =
            seen.status == 400 || seen.redirect().is_some_and(|to| to.starts_with("https:"));
        (other.is_secure() || !is_tls).then_some(other.url)
    }

    /// Returns the path and the query of the URL.
    pub(super) fn target(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// Returns true if the credential is an API key of Longshore.
    pub(super) fn has_api_key(&self) -> bool {
        let token = self.token.as_ref();
        token.is_some_and(|token| token.expose().starts_with("lsk_"))
    }

    pub(super) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Connects to the first address that accepts.
    pub(super) async fn connect(&self, port: u16) -> Result<TcpStream, String> {
        let mut problem = "it has no address".to_owned();
        for address in &self.addresses {
            let connecting = TcpStream::connect(SocketAddr::new(*address, port));
            match timeout(self.patience, connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => problem = format!("{address}: {error}"),
                Err(_) => problem = format!("{address}: no connection within {:?}", self.patience),
            }
        }
        Err(problem)
    }

    /// Performs a TLS handshake, and returns its data.
    pub(super) async fn shake_hands(
        &self,
        config: Arc<rustls::ClientConfig>,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| "its host is not a name that a certificate can have".to_owned())?;
        let socket = self.connect(self.port).await?;
        let handshake = TlsConnector::from(config).connect(name, socket);
        timeout(self.patience, handshake)
            .await
            .map_err(|_| format!("no TLS handshake within {:?}", self.patience))?
            .map_err(|error| error.to_string())
    }

    /// Sends a request, and waits for the response head.
    pub(super) async fn open(&self, ask: &Ask) -> Result<Open, String> {
        let socket: Box<dyn Socket> = if self.is_secure() {
            Box::new(self.shake_hands(Arc::clone(&self.tls)).await?)
        } else {
            Box::new(self.connect(self.port).await?)
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(|error| error.to_string())?;
        let connection = net::spawn(async move {
            // Connection errors surface when the response is read.
            let _ = connection.await;
        })
        .abort_handle();
        // The port is in it if it is not the default.
        let authority = &self.url[Position::BeforeHost..Position::AfterPort];
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.target)
            .header("host", ask.host.as_deref().unwrap_or(authority))
            .header(
                "user-agent",
                concat!("longshore-doctor/", env!("CARGO_PKG_VERSION")),
            );
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = self.token.as_ref().filter(|_| ask.proven) {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        let request = request
            .body(Full::new(ask.body.clone()))
            .map_err(|error| error.to_string())?;
        let answered = timeout(self.patience, sender.send_request(request)).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                connection.abort();
                return Err(error.to_string());
            }
            Err(_) => {
                connection.abort();
                return Err(format!("no response within {:?}", self.patience));
            }
        };
        let (head, body) = response.into_parts();
        Ok(Open {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            connection,
        })
    }

    /// Sends a request and reads the response; a stream is read up to the response message.
    pub(super) async fn ask(&self, ask: &Ask) -> Result<CompleteResponse, String> {
        let mut open = self.open(ask).await?;
        let is_stream = open.is_stream();
        let mut decoder = EventDecoder::new(BODY_MAX);
        let mut body = Vec::new();
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match open.more(left).await {
                More::Bytes(bytes) if is_stream => {
                    let said = decoder.push(&bytes).map_err(|error| error.to_string())?;
                    let answer = said.into_iter().find_map(|said| match said {
                        SseItem::Event(event) if is_answer(&event.data) => Some(event.data),
                        _ => None,
                    });
                    if let Some(answer) = answer {
                        body = answer.into_bytes();
                        break;
                    }
                }
                More::Bytes(bytes) => {
                    body.extend_from_slice(&bytes);
                    if BODY_MAX < body.len() {
                        return Err(format!("the response is larger than {BODY_MAX} bytes"));
                    }
                }
                More::End => break,
                More::Broken(problem) => return Err(problem),
                More::Silence => {
                    return Err(format!(
                        "the response was not complete within {:?}",
                        self.patience
                    ));
                }
            }
        }
        Ok(CompleteResponse {
            status: open.status,
            headers: std::mem::take(&mut open.headers),
            body: body.into(),
        })
    }

    /// Returns the data of a handshake.
    pub(super) async fn shown(
        &self,
        config: Arc<rustls::ClientConfig>,
    ) -> Result<Handshake, String> {
        let stream = self.shake_hands(config).await?;
        let (_, session) = stream.get_ref();
        Ok(Handshake {
            chain: session
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .map(|certificate| certificate.clone().into_owned())
                .collect(),
            version: session.protocol_version(),
            speaks_http2: session.alpn_protocol() == Some(b"h2"),
        })
    }
}

/// Returns true for the response to a request, as opposed to an earlier notification.
fn is_answer(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| {
        message.get("method").is_none()
            && (message.get("result").is_some() || message.get("error").is_some())
    })
}

impl CompleteResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns true if the response has a result, which the status alone does not show.
    pub(super) fn is_result(&self) -> bool {
        self.is_success() && self.json()["result"].is_object()
    }

    /// Returns true for a rate-limited response (RFC 6585, section 4), which says nothing about the check.
    pub(super) fn is_limited(&self) -> bool {
        self.status == 429
    }

    /// Returns the target of a redirect.
    pub(super) fn redirect(&self) -> Option<&str> {
        (300..400)
            .contains(&self.status)
            .then(|| self.header("location"))
            .flatten()
    }

    /// Summarises the status and error of a response.
    pub(super) fn summary(&self) -> String {
        const CHARACTERS_MAX: usize = 120;
        let json = self.json();
        let message = json["error"]["message"]
            .as_str()
            .or(json["detail"].as_str())
            .or(json["title"].as_str())
            .unwrap_or_default();
        let message: String = message.chars().take(CHARACTERS_MAX).collect();
        if message.is_empty() {
            self.status.to_string()
        } else {
            format!("{} ({message})", self.status)
        }
    }
}

impl Open {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.header("content-type")
            .is_some_and(|media| media.starts_with("text/event-stream"))
    }

    /// Reads more of the body. When the time is over, nothing is read, even if something has arrived: a server that sends
    /// without end would never be done.
    pub(super) async fn more(&mut self, within: Duration) -> More {
        if within.is_zero() {
            return More::Silence;
        }
        loop {
            match timeout(within, self.body.frame()).await {
                Err(_) => return More::Silence,
                Ok(None) => return More::End,
                Ok(Some(Err(error))) => return More::Broken(error.to_string()),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return More::Bytes(bytes),
                    _ => {}
                },
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
