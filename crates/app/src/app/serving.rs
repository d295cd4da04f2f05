//! A server that has its address, from its first request to its end.

use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::level_filters::LevelFilter;

use super::compose::Composer;
use super::reload::Reloader;
use super::signals::{Signals, stop_signal};
use super::{AppError, memory};
use crate::auth::Authentication;
use crate::server::Server;
use crate::source::Upstreams;
use crate::telemetry::Export;
use crate::transport::drain::Budget;
use crate::transport::http::{AdminListener, HttpConfig, Layers, Listener, Mounts};
use crate::transport::stdio::{self, StdioConfig};

/// A server that has its address and waits to serve.
#[derive(Debug)]
pub struct BoundServer {
    pub(super) server: Arc<Server>,
    pub(super) mounts: Mounts,
    pub(super) composer: Arc<Composer>,
    pub(super) upstreams: Option<Arc<Upstreams>>,
    pub(super) listener: Option<Listener>,
    pub(super) admin: Option<AdminListener>,
    pub(super) reloader: Option<Reloader>,
    pub(super) budget: Budget,
    pub(super) export: Export,
    pub(super) layers: Layers,
    pub(super) auth: Authentication,
    pub(super) http: HttpConfig,
    pub(super) stdio: StdioConfig,
}

/// How long programs that were started have to end when the server does.
const CHILDREN: Duration = Duration::from_millis(1500);

impl BoundServer {
    /// Where it listens; `None` over standard input and output, and on a socket in the file system.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(Listener::address)
    }

    /// The socket in the file system that it listens on, if that is where.
    pub fn unix_socket(&self) -> Option<&Path> {
        #[cfg(unix)]
        return self.listener.as_ref().and_then(Listener::path);
        #[cfg(not(unix))]
        None
    }

    /// `https` if TLS is spoken, else `http`.
    pub fn scheme(&self) -> &'static str {
        self.listener.as_ref().map_or("http", Listener::scheme)
    }

    /// Where operators find `/metrics` and the health pages, if they have a port of their own.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminListener::address)
    }

    /// What is counted.
    #[cfg(feature = "cli")]
    pub fn metrics(&self) -> &crate::telemetry::Metrics {
        &self.server.telemetry().metrics
    }

    /// What it offers, for people.
    #[cfg(feature = "cli")]
    pub fn offering(&self) -> String {
        self.composer.offering().in_words(self.tool_count())
    }

    /// How many tools it serves.
    pub fn tool_count(&self) -> usize {
        self.server.tool_count()
    }

    /// Whether there is a page at `/` for trying what is served.
    #[cfg(feature = "cli")]
    pub fn has_playground(&self) -> bool {
        self.http.has_playground()
    }

    /// The reason why there is no such page, where no setting decides it.
    pub fn playground_is_off_because(&self) -> Option<&'static str> {
        self.http.playground_is_off_because()
    }

    /// Says in the log where the server is and what it serves.
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

    /// Says so to whoever has started the application, where nobody has set a `tracing` subscriber: they would see nothing
    /// at all.
    pub(super) fn say_without_log(&self) {
        if LevelFilter::current() == LevelFilter::OFF
            && let Some(line) = self.line_for_people()
        {
            // Nobody may be there to read it, which is no reason not to serve.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Nothing over standard input and output, where a client has started the program.
    fn line_for_people(&self) -> Option<String> {
        let place = match self.address() {
            Some(address) => format!("{}://{address}/mcp", self.scheme()),
            None => format!("the socket {}", self.unix_socket()?.display()),
        };
        let tools = match self.tool_count() {
            1 => "1 tool".to_owned(),
            count => format!("{count} tools"),
        };
        Some(format!("serving {tools} at {place}; Ctrl-C stops it"))
    }

    /// Serves until the process is told to stop (SIGINT, SIGTERM) or its standard input ends. A second signal ends
    /// it at once.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or standard streams that cannot be used.
    pub async fn serve(self) -> std::result::Result<(), AppError> {
        Box::pin(self.serve_until(stop_signal(Signals::listen()))).await
    }

    /// Serves until a future is done; then lets calls that have begun come to their end, for as long as the settings
    /// under `drain` say.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or standard streams that cannot be used.
    pub async fn serve_until(
        self,
        stop: impl Future<Output = ()>,
    ) -> std::result::Result<(), AppError> {
        let server = Arc::clone(&self.server);
        let operators = async {
            match &self.admin {
                Some(admin) => admin.serve(server).await,
                None => std::future::pending().await,
            }
        };
        let reloading = async {
            match self.reloader {
                // It holds whole configurations, for the whole time.
                Some(reloader) => Box::pin(reloader.run()).await,
                None => std::future::pending().await,
            }
        };
        if let Some(upstreams) = &self.upstreams {
            let composer = Arc::downgrade(&self.composer);
            let listed = Arc::new(Notify::new());
            upstreams.relay_changes(self.composer.announcer(), Arc::clone(&listed));
            upstreams.keep_up(move || {
                if let Some(composer) = composer.upgrade() {
                    composer.again();
                    listed.notify_one();
                }
            });
        }
        let sources = Arc::clone(&self.composer).keep_up();
        let audit = self.server.audit.clone();
        if let Some(audit) = &audit {
            audit.begin();
        }
        let reopening = async {
            match &audit {
                Some(audit) => audit.keep_reopening().await,
                None => std::future::pending().await,
            }
        };
        let awaited = self.auth.awaited(&self.server.telemetry().life);
        self.auth.show(&self.server.telemetry().metrics);
        let clients = async {
            match self.listener {
                Some(listener) => {
                    let (http, layers) = (self.http, self.layers);
                    let gate = Arc::clone(&self.auth.gate);
                    let server = Arc::clone(&self.server);
                    let servers = (self.server, self.mounts);
                    let serving = listener.serve(servers, gate, http, layers, stop, self.budget);
                    tokio::select! {
                        served = serving => served,
                        never = self.auth.keep_up(awaited.as_deref()) => match never {},
                        never = memory::watch(&server) => match never {},
                    }
                }
                None => stdio::serve(self.server, self.stdio, stop, self.budget.calls).await,
            }
        };
        let served = tokio::select! {
            served = clients => served,
            () = operators => Ok(()),
            never = reloading => match never {},
            never = sources => match never {},
            never = reopening => match never {},
        };
        tokio::join!(
            async {
                if let Some(upstreams) = &self.upstreams {
                    upstreams.stop(CHILDREN).await;
                }
            },
            async {
                let mut within = self.budget.flush;
                // Records may go to the collector too.
                if let Some(audit) = &audit {
                    within /= 2;
                    audit.flush(within).await;
                }
                self.export.flush(within).await;
            }
        );
        Ok(served?)
    }
}

#[cfg(test)]
mod tests {
    use crate::app::App;
    use crate::config::{Config, Transport};

    #[tokio::test]
    async fn whoever_starts_it_is_told_where_it_serves() {
        let mut config = Config::default();
        config.http.port = 0;
        let bound = App::new().config(config.clone()).bind().expect("bound");
        let address = bound.address().expect("an address");
        assert_eq!(
            bound.line_for_people(),
            Some(format!(
                "serving 0 tools at http://{address}/mcp; Ctrl-C stops it"
            ))
        );
        config.transport = Transport::Stdio;
        let bound = App::new().config(config).bind().expect("bound");
        assert_eq!(bound.line_for_people(), None);
    }
}
