//! Builds a client.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::ResolvesClientCert;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use tokio_rustls::TlsConnector;

use super::super::connect::{Connector, Parts};
use super::super::pools::Pools;
use super::super::resolve::{self, Resolve};
use super::super::{Guard, MemoryBudget};
use super::identity::{self, IdentityFiles};
use super::{Client, ClientError, Deadlines, HEAD_BYTES, HEADERS, IDLE_CONNECTION_LIFE, trust};

/// Interval of pings over HTTP/2 while a request is in progress, and the time for their responses.
const PINGS: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);

/// A [`Client`] in the making.
pub struct ClientBuilder {
    pub(super) guard: Guard,
    pub(super) deadlines: Deadlines,
    pub(super) max_body: usize,
    pub(super) redirects: usize,
    pub(super) idle_connections: usize,
    pub(super) resolver: Option<Arc<dyn Resolve>>,
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) user_roots_only: bool,
    pub(super) identity: Option<Arc<dyn ResolvesClientCert>>,
    pub(super) memory: MemoryBudget,
}

impl ClientBuilder {
    /// Sets the time limits of each part.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Sets the maximum response size in bytes, after decompression. Default: 8 MiB.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the memory budget for large responses. While it has no room, the rest of a response is not read.
    #[doc(hidden)]
    #[must_use]
    pub fn memory(mut self, memory: MemoryBudget) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the number of redirects to follow, each subject to the guard. Default: none; the redirect itself is then
    /// the response.
    #[must_use]
    pub fn redirects(mut self, redirects: usize) -> Self {
        self.redirects = redirects;
        self
    }

    /// Sets the number of idle connections per host, each kept for a minute. Default: 32. Use 0 for clients that
    /// connect to arbitrary hosts, whose number is not bounded.
    #[must_use]
    pub fn idle_connections(mut self, connections: usize) -> Self {
        self.idle_connections = connections;
        self
    }

    /// Sets the name resolver. Default: the system's name servers.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// Adds trusted CA certificates in PEM format, for this client. [`trust_ca`](super::trust_ca) adds them for all clients.
    ///
    /// # Errors
    ///
    /// The PEM data contains no certificate.
    pub fn roots(mut self, pem: &[u8]) -> Result<Self, ClientError> {
        self.roots.extend(trust::certificates(pem)?);
        Ok(self)
    }

    /// Trusts only the CA certificates that were given to [`roots`](Self::roots): neither the public ones nor those of
    /// [`trust_ca`](super::trust_ca).
    #[must_use]
    pub fn own_roots_only(mut self) -> Self {
        self.user_roots_only = true;
        self
    }

    /// Sets the client certificate (mutual TLS): its chain and its private key, in PEM format.
    ///
    /// It is sent only to servers that the guard [trusts](Guard::trust), and only if they request it.
    ///
    /// # Errors
    ///
    /// There is no certificate or no private key in the data, or they do not belong together.
    pub fn identity(mut self, chain: &[u8], key: &[u8]) -> Result<Self, ClientError> {
        self.identity = Some(identity::fixed(chain, key)?);
        Ok(self)
    }

    /// Sets the client certificate as [`identity`](Self::identity) does, from files.
    ///
    /// New connections use the files' current contents, checked at most every ten seconds. If they are not usable, the
    /// previous certificate stays in use, and a warning is logged.
    ///
    /// # Errors
    ///
    /// A file cannot be read, and as for [`identity`](Self::identity).
    pub fn identity_files(mut self, certificate: &Path, key: &Path) -> Result<Self, ClientError> {
        self.identity = Some(Arc::new(IdentityFiles::read(certificate, key)?));
        Ok(self)
    }

    /// The client.
    ///
    /// # Errors
    ///
    /// A certificate that cannot be used.
    pub fn build(self) -> Result<Client, ClientError> {
        let pool = pool_builder(self.idle_connections);
        Ok(Client {
            pools: Pools::new(pool, self.make_connector()?),
            guard: Arc::new(self.guard),
            deadlines: self.deadlines,
            max_body: self.max_body,
            redirects: self.redirects,
            memory: self.memory,
        })
    }

    /// Builds the connector, for code that uses another protocol on the connections.
    ///
    /// # Errors
    ///
    /// A certificate is invalid.
    #[cfg(feature = "otlp")]
    pub fn connector(self) -> Result<Connector, ClientError> {
        self.make_connector()
    }

    fn make_connector(&self) -> Result<Connector, ClientError> {
        let connector = |identity| self.tls(identity).map(|c| TlsConnector::from(Arc::new(c)));
        let tls = connector(None)?;
        let tls_with_identity = match &self.identity {
            Some(identity) => connector(Some(Arc::clone(identity)))?,
            None => tls.clone(),
        };
        Ok(Connector::new(Parts {
            guard: self.guard.clone(),
            resolver: self.resolver.clone().unwrap_or_else(resolve::shared),
            tls,
            tls_with_identity,
            deadlines: self.deadlines,
        }))
    }

    pub(super) fn tls(
        &self,
        identity: Option<Arc<dyn ResolvesClientCert>>,
    ) -> Result<ClientConfig, ClientError> {
        let mut roots = RootCertStore::empty();
        if !self.user_roots_only {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            trust::add_trusted(&mut roots)?;
        }
        for root in &self.roots {
            roots.add(root.clone()).map_err(ClientError::Certificate)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ClientError::Tls)?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_cert_resolver(identity),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn pool_builder(idle_connections: usize) -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION_LIFE)
        .pool_max_idle_per_host(idle_connections)
        .http1_max_buf_size(usize::from(HEAD_BYTES))
        .http1_max_headers(HEADERS)
        .http2_max_header_list_size(u32::from(HEAD_BYTES))
        // All requests would go over a connection that is lost, until the system gives it up.
        .http2_keep_alive_interval(PINGS)
        .http2_keep_alive_timeout(PONG);
    builder
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("guard", &self.guard)
            .field("deadlines", &self.deadlines)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use bytes::Bytes;
    use http::Uri;
    use http_body_util::Full;
    use hyper_util::rt::TokioIo;
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    use super::*;
    use crate::net::Mutex;

    #[tokio::test(start_paused = true)]
    async fn an_http2_connection_whose_server_does_not_respond_to_pings_is_closed() {
        let servers = Arc::new(Mutex::new(Vec::new()));
        let connector = tower::service_fn(move |_: Uri| {
            let servers = Arc::clone(&servers);
            Box::pin(async move {
                let (client, server) = UnixStream::pair()?;
                servers.lock().push(server);
                Ok::<_, io::Error>(TokioIo::new(client))
            })
        });
        let pool: legacy::Client<_, Full<Bytes>> =
            pool_builder(1).http2_only(true).build(connector);
        let asked = pool.get(Uri::from_static("http://example.com/"));
        let outcome = timeout(Duration::from_secs(600), asked).await;
        assert!(outcome.expect("it is given up").is_err());
    }
}
