//! Listening, accepting, serving, stopping.
//!
//! One task accepts and gives each socket to the worker with the fewest connections; a worker is a thread with
//! a runtime of its own, and a connection never leaves it. So load is even with few connections as with many,
//! and nothing on a request's way is fought over by two cores.

mod admin;
mod config;
mod connection;
mod direct;
mod endpoint;
mod events;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod headers;
mod pages;
mod openapi;
mod rest;
mod route;
mod service;
mod status;
mod worker;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;

pub(crate) use admin::AdminListener;
pub use config::{AdminConfig, HttpConfig, HttpLimits};
pub(crate) use direct::Direct;
#[cfg(any(fuzzing, test))]
pub use fuzz::headers_hold;
pub(crate) use headers::is_host;
pub use route::{Route, routes};
pub(crate) use service::Layers;
pub use service::McpService;

use crate::auth::Gate;
use crate::server::Server;
use crate::transport::drain::Budget;
use endpoint::Endpoint;
use headers::HostGuard;
use service::Router;
use worker::{Drain, Worker};

/// How long answers may take to be sent that calls were ended with, of the time set aside for children.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How many connections the kernel may hold until they are accepted.
const BACKLOG: i32 = 1024;

/// A bound socket that nobody serves yet.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds the configured address.
    pub(crate) fn bind(config: &HttpConfig) -> io::Result<Self> {
        let address = SocketAddr::new(config.host, config.port);
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done; then on for a while, since those who send requests hear of it late; then lets what
    /// has begun come to its end.
    pub(crate) async fn serve(
        self,
        server: Arc<Server>,
        gate: Arc<Gate>,
        mut config: HttpConfig,
        layers: Layers,
        stop: impl Future<Output = ()>,
        budget: Budget,
    ) -> io::Result<()> {
        // The port that was taken, where any would do.
        config.port = self.address.port();
        let router = Arc::new(router(Arc::clone(&server), gate, config.clone(), layers));
        let drain = Arc::new(Drain::default());
        let workers = start_workers(&config, &router, &drain)?;
        let attending = tokio::spawn(Arc::clone(&server).attend());
        let life = Arc::clone(&server.telemetry().life);
        life.begin_to_serve();
        let stop = async {
            stop.await;
            life.begin_to_drain();
            tokio::time::sleep(budget.delay).await;
        };
        tokio::select! {
            () = accept(&self.listener, &workers, max_connections(&config)) => {}
            () = stop => {}
        }
        life.begin_to_drain();
        drop(self.listener);
        server.end_streams();
        drain.begin();
        let idle = async || {
            for worker in &workers {
                worker.idle().await;
            }
            server.idle().await;
        };
        if tokio::time::timeout(budget.calls, idle()).await.is_err() {
            tracing::warn!(
                patience_s = budget.calls.as_secs_f64(),
                setting = "drain.grace_seconds",
                "calls are still running; they are ended"
            );
            // Those who wait are told; whoever does not read that has had its time.
            server.stop_calls();
            let _ = tokio::time::timeout(LAST_WORDS, idle()).await;
        }
        for worker in workers {
            worker.stop();
        }
        attending.abort();
        Ok(())
    }
}

fn router(server: Arc<Server>, gate: Arc<Gate>, config: HttpConfig, layers: Layers) -> Router {
    Router {
        guard: HostGuard::new(&config),
        telemetry: server.telemetry().clone(),
        endpoint: Endpoint { server, config },
        prefix: gate.prefix().into(),
        gate,
        layers,
    }
}

fn start_workers(
    config: &HttpConfig,
    router: &Arc<Router>,
    drain: &Arc<Drain>,
) -> io::Result<Vec<Worker>> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let count = config.workers.unwrap_or_else(cores).max(1);
    (0..count)
        .map(|number| Worker::start(number, count, Arc::clone(router), Arc::clone(drain)))
        .collect()
}

/// A socket that listens.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
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

/// The configured number, or what the process may have open less a reserve.
fn max_connections(config: &HttpConfig) -> usize {
    const RESERVE: usize = 512;
    let files = std::fs::read_to_string("/proc/self/limits")
        .ok()
        .and_then(|limits| {
            let line = limits
                .lines()
                .find(|line| line.starts_with("Max open files"))?;
            line.split_whitespace().nth(3)?.parse::<usize>().ok()
        });
    match files {
        Some(files) => config
            .limits
            .connections
            .min(files.saturating_sub(RESERVE).max(64)),
        None => config.limits.connections,
    }
}

/// Takes connections for ever, and gives each to the worker that has the fewest.
async fn accept(listener: &TcpListener, workers: &[Worker], max: usize) {
    /// How long to wait when the system has no more sockets, or there are enough of them.
    const PAUSE: Duration = Duration::from_millis(50);
    let mut full = false;
    loop {
        let open: usize = workers.iter().map(Worker::connections).sum();
        if max <= open {
            if !std::mem::replace(&mut full, true) {
                tracing::warn!(
                    max,
                    setting = "http.limits.connections",
                    "no further connections are accepted for now"
                );
            }
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        full = false;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) if is_of_one_connection(&e) => continue,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, "a connection ended before it was served");
            continue;
        }
        let Some(worker) = workers.iter().min_by_key(|worker| worker.connections()) else {
            return;
        };
        match stream.into_std() {
            Ok(stream) => worker.give(stream).await,
            Err(error) => tracing::debug!(%error, "a connection could not be handed on"),
        }
    }
}

/// Whether only one connection is concerned, and the next can be taken at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Small answers at once, and news of peers that are gone.
fn prepare(stream: &tokio::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
