//! Listening, accepting, serving, stopping.
//!
//! One task accepts and gives each socket to the worker with the fewest connections; a worker is a thread with
//! a runtime of its own, and a connection never leaves it. So load is even with few connections as with many,
//! and nothing on a request's way is fought over by two cores.

mod config;
mod accept;
mod connection;
mod cors;
mod direct;
mod endpoint;
mod events;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod headers;
mod openapi;
mod peers;
mod rest;
mod route;
mod sending;
mod service;
mod status;
mod watch;
mod worker;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

pub use config::{HttpConfig, HttpLimits};
pub(crate) use direct::Direct;
#[cfg(any(fuzzing, test))]
pub use fuzz::headers_hold;
pub(crate) use headers::is_host;
pub use route::{Route, routes};
pub(crate) use service::Layers;
pub use service::McpService;

use crate::auth::Gate;
use crate::server::Server;
use accept::Acceptor;
use cors::Cors;
use endpoint::Endpoint;
use headers::HostGuard;
use service::Router;
use worker::{Drain, Worker};

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
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done, then lets what has begun come to its end, for as long as `patience`.
    pub(crate) async fn serve(
        self,
        server: Arc<Server>,
        gate: Arc<Gate>,
        mut config: HttpConfig,
        layers: Layers,
        stop: impl Future<Output = ()>,
        patience: Duration,
    ) -> io::Result<()> {
        // The port that was taken, where any would do.
        config.port = self.address.port();
        let router = Arc::new(router(Arc::clone(&server), gate, config.clone(), layers));
        let drain = Arc::new(Drain::default());
        let workers = start_workers(&config, &router, &drain)?;
        let hits = &server.limits.hits;
        let mut acceptor = Acceptor::new(&self.listener, &workers, &config.limits, hits);
        tokio::select! {
            () = acceptor.run() => {}
            () = stop => {}
        }
        drop(acceptor);
        drop(self.listener);
        router.draining.store(true, Ordering::Relaxed);
        drain.begin();
        let idle = async {
            for worker in &workers {
                worker.idle().await;
            }
            server.idle().await;
        };
        if tokio::time::timeout(patience, idle).await.is_err() {
            tracing::warn!(
                patience_s = patience.as_secs_f64(),
                "stopped with calls still running"
            );
        }
        for worker in workers {
            worker.stop();
        }
        Ok(())
    }
}

fn router(server: Arc<Server>, gate: Arc<Gate>, config: HttpConfig, layers: Layers) -> Router {
    Router {
        guard: HostGuard::new(&config),
        cors: Cors::new(&config.allowed_origins),
        endpoint: Endpoint { server, config },
        gate,
        layers,
        started: Instant::now(),
        draining: AtomicBool::new(false),
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
