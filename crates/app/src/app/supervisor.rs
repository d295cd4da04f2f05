//! Supervisor of a server's background tasks.
//!
//! It starts them, names them in the log and in `/health/detailed` when they fail, and stops them:
//!
//! | Task | Starts | Stops | If it fails |
//! | --- | --- | --- | --- |
//! | `telemetry: export` | when the server is bound | last, after a flush | the server continues |
//! | `upstreams: …`, `upstream NAME: …` | when the server is bound, and when it serves | after the calls, with the programs | the server continues |
//! | `sources: reload` | before the first request | after the calls | the server continues |
//! | `configuration: reload` | before the first request | after the calls | the server continues |
//! | `audit: reopen the file` | before the first request | after the calls | the server continues |
//! | `credentials: refresh` | before the first request | after the calls | not ready |
//! | `memory: measure` | before the first request | after the calls | not ready |
//! | `certificate: reload` | before the first request | after the calls | not ready |
//! | `replicas: messages`, `replicas: rate limits` | before the first request | after the calls | not ready |
//! | `admin: serve` | before the first request | after the calls | not ready |
//! | those of `App::background` | after `App::on_start`, before the first request | told to stop after the calls, and waited for | not ready |
//!
//! All run on the control runtime, which binds and serves. Requests run on worker threads, and components of WebAssembly
//! on threads of their own, because they compute. The queue of the audit log has a thread, because it blocks on files.

use std::future::Future;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::catalog_builder::CatalogBuilder;
use super::memory;
use super::reload::Reloader;
use crate::auth::Authentication;
use crate::net::{Background, OnFailure};
use crate::server::Server;
use crate::telemetry::Telemetry;
use crate::transport::http::{AdminListener, Listener, NamedEndpoints};

/// Owner of the background tasks of one server. Dropping it aborts them.
#[derive(Debug)]
pub(super) struct Supervisor(Background);

impl Supervisor {
    /// Creates the supervisor of a server that is about to be bound, on the current runtime.
    pub(super) fn new() -> Self {
        Self(Background::new())
    }

    /// Returns the registry, for parts that start tasks of their own.
    pub(super) fn background(&self) -> &Background {
        &self.0
    }

    /// Closes a readiness gate for each task that fails and without which the server is not ready.
    pub(super) fn report_to(&self, telemetry: &Telemetry) {
        let life = Arc::clone(&telemetry.life);
        self.0.on_failure(move |name, error| {
            // A gate is closed until it is opened.
            life.gate(format!("background task {name}, which failed: {error}"));
        });
    }

    /// Starts the tasks of a server that begins to serve. They are aborted when the result is dropped.
    pub(super) fn start(&self, tasks: ServerTasks<'_>) -> ServingTasks<'_> {
        let ServerTasks {
            server,
            endpoints,
            catalogs,
            reloader,
            auth,
            listener,
            admin,
        } = tasks;
        let mut started = ServingTasks {
            background: &self.0,
            tasks: Vec::new(),
        };
        let essential = OnFailure::NotReady;
        started.run(
            "sources: reload",
            OnFailure::Continue,
            catalogs.follow_sources(),
        );
        if let Some(reloader) = reloader {
            started.run("configuration: reload", OnFailure::Continue, reloader.run());
        }
        if let Some(audit) = server.audit.clone() {
            started.run("audit: reopen the file", OnFailure::Continue, async move {
                audit.keep_reopening().await
            });
        }
        if let Some(listener) = listener {
            let awaited = auth.awaited(&server.telemetry().life);
            started.run("credentials: refresh", essential, async move {
                auth.refresh_keys(awaited.as_deref()).await
            });
            let measured = Arc::clone(&server);
            started.run("memory: measure", essential, async move {
                memory::watch(&measured).await
            });
            if let Some(reloading) = listener.reload_certificate() {
                started.run("certificate: reload", essential, reloading);
            }
            let limits = Arc::clone(&server.limits);
            started.run("replicas: rate limits", essential, limits.exchange());
        }
        let others = endpoints.into_iter().map(|(_, server)| server);
        for server in std::iter::once(&server).cloned().chain(others) {
            started.run("replicas: messages", essential, server.run_notifications());
        }
        if let Some(admin) = admin {
            started.run("admin: serve", essential, async move {
                admin.serve(server).await;
            });
        }
        started
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tasks of a server that serves, which are aborted on drop: the last one first.
pub(super) struct ServingTasks<'a> {
    background: &'a Background,
    tasks: Vec<AbortHandle>,
}

impl ServingTasks<'_> {
    /// Boxes the task, and is not inlined: otherwise the stack would have room for several copies of each future, 100 KB
    /// that stay resident.
    #[inline(never)]
    fn run<T>(
        &mut self,
        name: &'static str,
        on_failure: OnFailure,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        self.tasks
            .extend(self.background.run(name, on_failure, Box::pin(task)));
    }
}

impl Drop for ServingTasks<'_> {
    fn drop(&mut self) {
        self.tasks.iter().rev().for_each(AbortHandle::abort);
    }
}

/// Parts of a server that have background tasks.
pub(super) struct ServerTasks<'a> {
    pub(super) server: Arc<Server>,
    pub(super) endpoints: NamedEndpoints,
    pub(super) catalogs: Arc<CatalogBuilder>,
    pub(super) reloader: Option<Reloader>,
    pub(super) auth: Arc<Authentication>,
    /// `None` over standard input and output.
    pub(super) listener: Option<&'a Listener>,
    pub(super) admin: Option<AdminListener>,
}
