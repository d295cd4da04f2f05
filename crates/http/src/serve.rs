//! The HTTP listener: binding, serving, and stopping with a grace period for requests in progress.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};

use super::acceptor::Acceptor;
use super::config::{HttpConfig, SocketMode};
use super::conn_driver::Drain;
use super::host_guard::HostGuard;
use super::layers::Layers;
use super::listener;
use super::listener::{BACKLOG, BoundSocket};
use super::router::{Endpoint, Router};
use super::tls::Tls;
use super::worker::Worker;
use crate::auth::Authenticator;
use crate::environment;
use crate::net::ForwardedHeadersSeen;
use crate::server::Server;
use crate::telemetry::{CERTIFICATE_EXPIRY, Refusals};
use crate::transport::drain::DrainDeadlines;

/// Servers beside the one at `/mcp`, by the names of their endpoints.
pub type NamedEndpoints = Vec<(Box<str>, Arc<Server>)>;

/// Time to send the responses of cancelled calls, out of the time reserved for child processes.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A bound socket that is not served yet.
#[derive(Debug)]
pub struct Listener {
    socket: BoundSocket,
    /// `None` if it is a socket in the file system.
    address: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Takes the socket passed by the parent process, as systemd does; otherwise binds the configured path or address.
    pub fn bind(config: &HttpConfig, tls: Option<Tls>) -> io::Result<Self> {
        let socket = match (inherited()?, &config.unix_socket) {
            (Some(socket), _) => socket,
            (None, Some(path)) => socket_file(path, config.unix_socket_mode)?,
            (None, None) => BoundSocket::port(listen(SocketAddr::new(config.host, config.port))?)?,
        };
        Ok(Self {
            address: socket.address()?,
            socket,
            tls: tls.map(Arc::new),
        })
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Address of the socket, if it is a TCP socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns a task that reloads the certificate when its files change, with TLS.
    pub fn reload_certificate(&self) -> Option<impl Future<Output = Infallible> + Send + 'static> {
        let tls = self.tls.clone()?;
        Some(async move { tls.watch_files().await })
    }

    /// Writes the actual address into the settings. It differs from the configured one for an inherited socket or port
    /// 0. The checks for local and public use depend on it.
    pub fn settle(&self, config: &mut HttpConfig) {
        if let Some(address) = self.address {
            config.host = address.ip().to_canonical();
            config.port = address.port();
            config.unix_socket = None;
        }
        #[cfg(unix)]
        if let Some(path) = self.path() {
            config.unix_socket = Some(path.to_owned());
        }
    }

    /// Path of the socket, if it is a Unix socket.
    #[cfg(unix)]
    pub fn path(&self) -> Option<&Path> {
        self.socket.path()
    }

    /// Serves until `stop` completes. Then serves on during the delay, since load balancers learn of it late, and lets
    /// requests in progress complete.
    pub async fn serve(
        self,
        (server, endpoints): (Arc<Server>, NamedEndpoints),
        authenticator: Arc<Authenticator>,
        mut config: HttpConfig,
        layers: Layers,
        stop: impl Future<Output = ()>,
        budget: DrainDeadlines,
    ) -> io::Result<()> {
        self.settle(&mut config);
        // URL scheme of the clients, including those behind a proxy.
        let scheme = match &config.public_url {
            Some(url) if url.starts_with("https:") => "https",
            Some(_) => "http",
            None => self.scheme(),
        };
        let tls = self.tls.clone();
        let router = router(Arc::clone(&server), authenticator, config.clone(), layers);
        let endpoint = |server: &Arc<Server>| Endpoint {
            server: Arc::clone(server),
            config: config.clone(),
        };
        let router = Arc::new(Router {
            tls: tls.clone(),
            endpoints: endpoints
                .iter()
                .map(|(name, server)| (name.clone(), endpoint(server)))
                .collect(),
            ..router
        });
        let servers: Vec<_> = std::iter::once(&server)
            .chain(endpoints.iter().map(|(_, server)| server))
            .map(Arc::clone)
            .collect();
        let drain = Arc::new(Drain::default());
        let workers = start_workers(&config, &router, &drain).await?;
        let hits = &server.limits.hits;
        let mut acceptor = Acceptor::new(&self.socket, &workers, &config, hits);
        let metrics = &server.telemetry().metrics;
        metrics.speaks(scheme);
        if let Some(tls) = tls {
            let expiry = move || tls.expiry().map(|seconds| seconds as f64);
            metrics.read_while_some(&CERTIFICATE_EXPIRY, &[], expiry);
        }
        let life = Arc::clone(&server.telemetry().life);
        life.begin_to_serve();
        let stop = async {
            stop.await;
            life.begin_to_drain();
            tokio::time::sleep(budget.delay).await;
        };
        tokio::select! {
            () = acceptor.run() => {}
            () = stop => {}
        }
        life.begin_to_drain();
        // Connections accepted by now are served too.
        tokio::task::yield_now().await;
        let deadline = Instant::now() + budget.calls;
        let _ = timeout_at(deadline, acceptor.take_waiting()).await;
        drop(acceptor);
        drop(self.socket);
        servers.iter().for_each(|server| server.end_streams());
        drain.begin();
        let idle = async || {
            for worker in &workers {
                worker.idle().await;
            }
            for server in &servers {
                server.idle().await;
            }
        };
        let mut last_words = LAST_WORDS;
        if timeout_at(deadline, idle()).await.is_err() {
            tracing::warn!(
                patience_s = budget.calls.as_secs_f64(),
                connections = workers.iter().map(Worker::connections).sum::<usize>(),
                setting = "drain.grace_seconds",
                "calls or connections did not end in time; they are ended"
            );
            // Pending calls receive a final response; clients that do not read it are cut off.
            servers.iter().for_each(|server| server.stop_calls());
            if tokio::time::timeout(LAST_WORDS, idle()).await.is_err() {
                // The rest of the reserve is for what the application and telemetry still have to do.
                last_words /= 5;
            }
        }
        join_all(workers.into_iter().map(|worker| worker.stop(last_words))).await;
        Ok(())
    }
}

pub(super) fn router(
    server: Arc<Server>,
    authenticator: Arc<Authenticator>,
    config: HttpConfig,
    layers: Layers,
) -> Router {
    Router {
        tls: None,
        guard: HostGuard::new(&config),
        forwarded: ForwardedHeadersSeen::default(),
        telemetry: server.telemetry().clone(),
        refusals: Refusals::new(&server.telemetry().metrics),
        endpoint: Endpoint { server, config },
        endpoints: std::collections::HashMap::new(),
        prefix: authenticator.prefix().into(),
        authenticator,
        layers,
    }
}

async fn start_workers(
    config: &HttpConfig,
    router: &Arc<Router>,
    drain: &Arc<Drain>,
) -> io::Result<Vec<Worker>> {
    let count = config.workers.unwrap_or_else(environment::cores).max(1);
    let workers = (0..count)
        .map(|number| Worker::start(number, count, Arc::clone(router), Arc::clone(drain)));
    let mut workers = workers.collect::<io::Result<Vec<_>>>()?;
    for worker in &mut workers {
        worker.has_started().await?;
    }
    Ok(workers)
}

#[cfg(unix)]
fn socket_file(path: &Path, mode: SocketMode) -> io::Result<BoundSocket> {
    listener::SocketFile::bind(path, mode.0, BACKLOG).map(BoundSocket::File)
}

#[cfg(not(unix))]
fn socket_file(_: &Path, _: SocketMode) -> io::Result<BoundSocket> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The first socket that was handed over (`LISTEN_FDS`), if there is one.
#[cfg(unix)]
fn inherited() -> io::Result<Option<BoundSocket>> {
    let mut handed = listenfd::ListenFd::from_env();
    let socket = match handed.take_tcp_listener(0) {
        Ok(None) => return Ok(None),
        Ok(Some(listener)) => {
            #[cfg(target_os = "linux")]
            if !socket2::SockRef::from(&listener).is_listener()? {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the socket that was handed over (LISTEN_FDS) does not listen; with systemd, set Accept=no",
                ));
            }
            listener.set_nonblocking(true)?;
            BoundSocket::port(TcpListener::from_std(listener)?)?
        }
        // An inherited descriptor that is not a TCP socket may be a Unix socket. It stays in place until taken.
        Err(problem) => match handed.take_unix_listener(0) {
            Ok(Some(listener)) => BoundSocket::File(listener::SocketFile::handed_over(listener)?),
            _ => return Err(problem),
        },
    };
    if 1 < handed.len() {
        tracing::warn!(
            sockets = handed.len(),
            "several sockets were passed to this process; only the first one is served, and clients of the others get no response"
        );
    }
    tracing::info!(
        "listening on the socket that was handed over, not where http.host and http.port or http.unix_socket say"
    );
    Ok(Some(socket))
}

#[cfg(not(unix))]
fn inherited() -> io::Result<Option<BoundSocket>> {
    Ok(None)
}

/// A socket that listens.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
