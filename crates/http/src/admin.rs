//! Admin port: a second listener that serves only the operator pages.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::acceptor::TOLD_AGAIN_AFTER;
use super::config::HttpConfig;
use super::headers::Fields;
use super::host_guard::HostGuard;
use super::rejection::HttpError;
use super::route::Route;
use super::static_page::StaticPage;
use crate::net::{self, Body};
use crate::server::Server;
use crate::telemetry::LogInterval;

/// A bound socket for operators.
#[derive(Debug)]
pub struct AdminListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// Maximum number of connections. For one more, the oldest one is closed: a client that does not read its response could
/// keep its connection for ever.
const CONNECTIONS_MAX: usize = 64;
/// Limit for the arrival of a head and for idle connections.
const PATIENCE: Duration = Duration::from_secs(10);
const HEADER_BYTES_MAX: usize = 16 * 1024;

impl AdminListener {
    /// Binds the configured address, if there is one.
    pub fn bind(config: &HttpConfig) -> io::Result<Option<Self>> {
        let Some(address) = config.admin.address(config.host) else {
            return Ok(None);
        };
        let listener = super::serve::listen(address)?;
        let address = listener.local_addr()?;
        Ok(Some(Self { listener, address }))
    }

    /// Local address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves for as long as it is polled.
    pub async fn serve(&self, server: Arc<Server>) {
        // Pages on this machine must not read it by way of a name that they control.
        let guard = Arc::new(HostGuard::new(&HttpConfig {
            host: self.address.ip(),
            port: self.address.port(),
            ..HttpConfig::default()
        }));
        let mut open = VecDeque::new();
        let reported = LogInterval::new(TOLD_AGAIN_AFTER);
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (server, guard) = (Arc::clone(&server), Arc::clone(&guard));
                    make_room(&mut open);
                    let task = net::spawn(converse(stream, server, guard));
                    open.push_back(task.abort_handle());
                }
                Err(error) => {
                    // The condition recurs twenty times a second while it lasts.
                    if reported.passes() {
                        tracing::warn!(%error, "a connection to the admin port could not be accepted");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Closes the oldest connection if there are too many.
fn make_room(open: &mut VecDeque<AbortHandle>) {
    if open.len() < CONNECTIONS_MAX {
        return;
    }
    open.retain(|connection| !connection.is_finished());
    if open.len() == CONNECTIONS_MAX
        && let Some(oldest) = open.pop_front()
    {
        oldest.abort();
    }
}

async fn converse(stream: TcpStream, server: Arc<Server>, guard: Arc<HostGuard>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = respond(&request, &server, &guard);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        // Scripts that probe with `nc -N` close their sending side, and wait for the response.
        .half_close(true)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::trace!(%error, "a connection ended early");
    }
}

/// Live page for operators. It is static and read-only: it fetches `/health/detailed` and `/metrics` every two seconds and
/// draws what changed.
static DASHBOARD: LazyLock<StaticPage> =
    LazyLock::new(|| StaticPage::new(include_str!("dashboard.html")));

fn respond(request: &Request<Incoming>, server: &Server, guard: &HostGuard) -> Response<Body> {
    let path = request.uri().path();
    let found = Route::of(path).map(|(route, _)| (route, route.page()));
    let (route, page) = match found {
        Some((route, page)) if page.is_some() || path == "/" => (route, page),
        _ => return HttpError::NoPage.into_problem(),
    };
    if !route.has(request.method()) {
        return HttpError::MethodNotAllowed(route.methods).into_problem();
    }
    let is_probe = page.is_some() && route.is_open();
    let fields = Fields::read(request.headers());
    if !is_probe && let Err(rejection) = guard.check(request.uri(), &fields) {
        return rejection.into_problem();
    }
    match page {
        Some(page) => page.respond(server, true),
        None => DASHBOARD.respond(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_is_small_and_loads_nothing() {
        DASHBOARD.check(24 * 1024);
    }
}
