//! Serving of a bound server, until it is told to stop.

use std::fmt;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

use super::catalog_builder::CatalogBuilder;
use super::error::AppError;
use super::lifecycle::Lifecycle;
use super::reload::Reloader;
use super::signals::{Signals, stop_signal};
use super::supervisor::{ServerTasks, Supervisor};
use crate::audit::Audit;
use crate::auth::Authentication;
use crate::server::Server;
use crate::source::Upstreams;
use crate::telemetry::Export;
use crate::transport::drain::DrainDeadlines;
use crate::transport::http::{AdminListener, HttpConfig, Layers, Listener, NamedEndpoints};
use crate::transport::stdio::{self, StdioConfig};

/// A server that is bound to its address and does not serve yet.
pub struct BoundServer {
    pub(super) server: Arc<Server>,
    pub(super) endpoints: NamedEndpoints,
    pub(super) catalogs: Arc<CatalogBuilder>,
    pub(super) upstreams: Option<Arc<Upstreams>>,
    pub(super) listener: Option<Listener>,
    pub(super) admin: Option<AdminListener>,
    pub(super) reloader: Option<Reloader>,
    pub(super) budget: DrainDeadlines,
    pub(super) export: Export,
    pub(super) layers: Layers,
    pub(super) auth: Arc<Authentication>,
    pub(super) http: HttpConfig,
    pub(super) stdio: StdioConfig,
    pub(super) lifecycle: Lifecycle,
    pub(super) supervisor: Supervisor,
}

impl fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundServer")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl BoundServer {
    /// Returns its address; `None` over standard input and output, and for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(Listener::address)
    }

    /// Returns the path of its Unix socket, if it listens on one.
    pub fn unix_socket(&self) -> Option<&Path> {
        #[cfg(unix)]
        return self.listener.as_ref().and_then(Listener::path);
        #[cfg(not(unix))]
        None
    }

    /// Returns `https` with TLS, else `http`.
    pub fn scheme(&self) -> &'static str {
        self.listener.as_ref().map_or("http", Listener::scheme)
    }

    /// Returns the address of the admin port, with `/metrics` and the health pages, if it is enabled.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminListener::address)
    }

    /// Returns its metrics.
    #[cfg(feature = "cli")]
    pub fn metrics(&self) -> &crate::telemetry::Metrics {
        &self.server.telemetry().metrics
    }

    /// Describes the served items, for people.
    #[cfg(feature = "cli")]
    pub fn offering(&self) -> String {
        self.catalogs.offering().in_words(self.tool_count())
    }

    /// Returns the number of its tools.
    pub fn tool_count(&self) -> usize {
        self.server.tool_count()
    }

    /// Returns true if the playground is served at `/`.
    #[cfg(feature = "cli")]
    pub fn has_playground(&self) -> bool {
        self.http.has_playground()
    }

    /// Returns the reason why the playground is off, unless a setting decides it.
    pub fn playground_is_off_because(&self) -> Option<&'static str> {
        self.http.playground_is_off_because()
    }

    /// Logs the address of the server and the number of its tools.
    pub fn announce(&self) {
        let tools = self.tool_count();
        match self.address() {
            Some(address) => {
                let scheme = self.scheme();
                tracing::info!(url = %format_args!("{scheme}://{address}/mcp"), tools, "serving");
                if let Some(reason) = self.playground_is_off_because() {
                    tracing::info!(
                        setting = "http.playground",
                        reason,
                        "the playground is off: http.playground = true serves a page for browsers at /"
                    );
                }
            }
            None => match self.unix_socket() {
                Some(path) => tracing::info!(path = %path.display(), tools, "serving"),
                None => tracing::info!(tools, "serving over standard input and output"),
            },
        }
        if let Some(address) = self.admin_address() {
            let url = format_args!("http://{address}/metrics");
            tracing::info!(%url, "serving metrics and details of health");
        }
    }

    /// Prints the address to standard error, if no `tracing` subscriber is set.
    pub(super) fn print_without_log(&self) {
        if LevelFilter::current() == LevelFilter::OFF
            && let Some(line) = self.line_for_people()
        {
            // A closed standard error does not stop the server.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Returns the line for people. Over standard input and output there is none: a client started the program.
    fn line_for_people(&self) -> Option<String> {
        let place = match self.address() {
            Some(address) => format!("{}://{address}/mcp", self.scheme()),
            None => format!("the socket {}", self.unix_socket()?.display()),
        };
        let tools = longshore_protocol::counted(self.tool_count(), "tool");
        Some(format!("serving {tools} at {place}; Ctrl-C stops it"))
    }

    /// Serves until a signal to stop (SIGINT, SIGTERM), or until standard input ends. A second signal ends the process at
    /// once.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or standard streams that cannot be used.
    pub async fn serve(self) -> std::result::Result<(), AppError> {
        Box::pin(self.serve_until(stop_signal(Signals::listen()))).await
    }

    /// Serves until a future completes. Then the calls in progress complete, within the time of the settings under `drain`.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or standard streams that cannot be used.
    pub async fn serve_until(
        self,
        stop: impl Future<Output = ()>,
    ) -> std::result::Result<(), AppError> {
        let Self {
            server,
            endpoints,
            catalogs,
            upstreams,
            listener,
            admin,
            reloader,
            budget,
            export,
            layers,
            auth,
            http,
            stdio,
            mut lifecycle,
            supervisor,
        } = self;
        let background = supervisor.background();
        let mut stop = pin!(stop);
        let started = tokio::select! {
            started = lifecycle.start(background) => Some(started),
            () = &mut stop => None,
        };
        let ends = async |audit: Option<&Audit>| {
            let upstreams = async {
                if let Some(upstreams) = &upstreams {
                    upstreams.stop(budget.children).await;
                }
            };
            let records = async {
                let mut within = budget.flush;
                // Audit records may go to the collector too.
                if let Some(audit) = audit {
                    within /= 2;
                    audit.flush(within).await;
                }
                export.flush(within).await;
            };
            tokio::join!(upstreams, records);
        };
        if !matches!(started, Some(Ok(()))) {
            let deadline = Instant::now() + budget.calls;
            lifecycle.stop(background, deadline, budget.slack / 2).await;
            ends(None).await;
            return started.unwrap_or(Ok(()));
        }
        if let Some(upstreams) = &upstreams {
            follow_upstreams(upstreams, &catalogs);
        }
        let audit = server.audit.clone();
        if let Some(audit) = &audit {
            audit.begin();
        }
        auth.show(&server.telemetry().metrics);
        let tasks = supervisor.start(ServerTasks {
            server: Arc::clone(&server),
            endpoints: endpoints.clone(),
            catalogs,
            reloader,
            auth: Arc::clone(&auth),
            listener: listener.as_ref(),
            admin,
        });
        let stopped_at = OnceLock::new();
        let stop = async {
            stop.await;
            let _ = stopped_at.set(Instant::now());
        };
        let served = match listener {
            Some(listener) => {
                let gate = Arc::clone(&auth.gate);
                let servers = (server, endpoints);
                listener
                    .serve(servers, gate, http, layers, stop, budget)
                    .await
            }
            None => stdio::serve(server, stdio, stop, budget.calls).await,
        };
        // The rest of the time for calls, and at least a part of the reserve.
        let stopped_at = stopped_at.get().copied().unwrap_or_else(Instant::now);
        let deadline = stopped_at + budget.delay + budget.calls;
        lifecycle.stop(background, deadline, budget.slack / 2).await;
        drop(tasks);
        ends(audit.as_deref()).await;
        Ok(served?)
    }
}

/// Serves the changed items of upstream servers, and forwards their updates of resources.
fn follow_upstreams(upstreams: &Upstreams, catalogs: &Arc<CatalogBuilder>) {
    let listed = Arc::new(Notify::new());
    upstreams.relay_changes(catalogs.items.announcer.clone(), Arc::clone(&listed));
    let catalogs = Arc::downgrade(catalogs);
    upstreams.maintain(move || {
        if let Some(catalogs) = catalogs.upgrade() {
            catalogs.rebuild();
            listed.notify_one();
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::app::App;
    use crate::config::{Config, Transport};

    #[tokio::test]
    async fn the_address_is_printed_for_people() {
        let mut config = Config::default();
        config.http.port = 0;
        let bound = App::new()
            .config(config.clone())
            .bind()
            .await
            .expect("bound");
        let address = bound.address().expect("an address");
        assert_eq!(
            bound.line_for_people(),
            Some(format!(
                "serving 0 tools at http://{address}/mcp; Ctrl-C stops it"
            ))
        );
        config.transport = Transport::Stdio;
        let bound = App::new().config(config).bind().await.expect("bound");
        assert_eq!(bound.line_for_people(), None);
    }
}
