//! Connection setup for a URL: resolves all addresses, checks each, and connects to one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

use super::resolve::Resolve;
use super::{Deadlines, FetchError, Guard, Phase};

/// Idle time of a connection before the system probes it, and the interval between probes.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Connects to what its guard permits.
#[derive(Clone)]
pub struct Connector(Arc<Parts>);

pub(super) struct Parts {
    pub(super) guard: Guard,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) tls: TlsConnector,
    /// Used for trusted hosts: sends the client certificate, if there is one.
    pub(super) tls_with_identity: TlsConnector,
    pub(super) deadlines: Deadlines,
}

impl Connector {
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = FetchError;
    type Future = BoxFuture<'static, Result<Stream, FetchError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FetchError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let parts = self.0.clone();
        Box::pin(async move { parts.connect(&uri).await })
    }
}

impl Parts {
    async fn connect(&self, uri: &Uri) -> Result<Stream, FetchError> {
        let secure = uri.scheme_str() == Some("https");
        let name = uri.host().unwrap_or_default();
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let host = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let addresses = self.addresses(name, &host, port).await?;
        let socket = self.socket(&addresses, &host, port).await?;
        if !secure {
            return Ok(Stream::Plain(TokioIo::new(socket)));
        }
        let server = ServerName::try_from(host.clone())
            .map_err(|_| FetchError::Url("its host is not a name that a certificate can have"))?;
        let tls = match self.guard.trusts(&host, port) {
            true => &self.tls_with_identity,
            false => &self.tls,
        };
        let handshake = tls.connect(server, socket);
        let secured = within(self.deadlines.tls, &host, Phase::Tls, handshake).await?;
        let secured = secured.map_err(|source| FetchError::Tls {
            host,
            source: Arc::new(source),
        })?;
        Ok(Stream::Secure(Box::new(TokioIo::new(secured))))
    }

    /// Resolves the addresses of a host, if every one is permitted.
    async fn addresses(
        &self,
        name: &str,
        host: &str,
        port: u16,
    ) -> Result<Vec<IpAddr>, FetchError> {
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let lookup = self.resolver.addresses(name);
                within(self.deadlines.connect, host, Phase::Resolve, lookup)
                    .await?
                    .map_err(|source| FetchError::Resolve {
                        host: host.to_owned(),
                        source: Arc::new(source),
                    })?
            }
        };
        if found.is_empty() {
            return Err(FetchError::Resolve {
                host: host.to_owned(),
                source: Arc::new(io::Error::from(io::ErrorKind::NotFound)),
            });
        }
        if !found
            .iter()
            .all(|address| self.guard.permits(host, port, *address))
        {
            return Err(FetchError::Address {
                host: host.to_owned(),
            });
        }
        Ok(found)
    }

    /// A connection to the first address that takes one, those of IPv4 first: many a container has a route for no
    /// others. Each has its share of the time that is left.
    async fn socket(
        &self,
        addresses: &[IpAddr],
        host: &str,
        port: u16,
    ) -> Result<TcpStream, FetchError> {
        let deadline = Instant::now() + self.deadlines.connect;
        let mut ordered = addresses.to_vec();
        ordered.sort_by_key(IpAddr::is_ipv6);
        let mut last = None;
        for (tried, address) in ordered.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(ordered.len() - tried).unwrap_or(u32::MAX);
            let attempt = TcpStream::connect(SocketAddr::new(*address, port));
            match timeout_at(Instant::now() + share, attempt).await {
                Ok(Ok(socket)) => {
                    // Requests are written in one go; waiting to fill a packet only delays them.
                    let _ = socket.set_nodelay(true);
                    // A stream without events would not notice that its connection is lost.
                    let keepalive = TcpKeepalive::new()
                        .with_time(KEEPALIVE_TIME)
                        .with_interval(KEEPALIVE_INTERVAL);
                    let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
                    return Ok(socket);
                }
                Ok(Err(error)) => last = Some(error),
                Err(_) => {}
            }
        }
        Err(match last {
            Some(error) => FetchError::Connect {
                host: host.to_owned(),
                port,
                source: Arc::new(error),
            },
            None => FetchError::Timeout {
                host: host.to_owned(),
                phase: Phase::Connect,
                limit: self.deadlines.connect,
            },
        })
    }
}

/// Runs a future with a time limit.
pub(super) async fn within<F: Future>(
    limit: Duration,
    host: &str,
    phase: Phase,
    future: F,
) -> Result<F::Output, FetchError> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| FetchError::Timeout {
            host: host.to_owned(),
            phase,
            limit,
        })
}

/// A connection, secured or not.
pub enum Stream {
    Plain(TokioIo<TcpStream>),
    Secure(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Secure(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Secure(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Secure(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secure(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secure(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_probed_while_they_are_idle() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let server = server.expect("a port");
        let address = server.local_addr().expect("bound");
        let client = crate::net::Client::builder(Guard::public().allow_loopback()).build();
        let uri = format!("http://{address}/").parse().expect("a URI");
        let stream = client.expect("a client").connector().call(uri).await;
        let Ok(Stream::Plain(socket)) = stream else {
            panic!("not connected");
        };
        assert!(
            SockRef::from(socket.inner())
                .keepalive()
                .expect("a setting")
        );
    }
}
