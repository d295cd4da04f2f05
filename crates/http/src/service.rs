//! The services that receive requests: one for each worker, and one for each connection.

use std::sync::Arc;

use super::connection::ConnectionState;
use super::innermost::Innermost;
use super::layers::McpService;
use super::router::Router;
use crate::limit::Limits;
use crate::server::WorkerState;

/// Entry point for requests on one worker: the router, inside any configured layers.
#[derive(Debug)]
pub(crate) struct WorkerService {
    pub(super) router: Arc<Router>,
    pub(super) local: Arc<WorkerState>,
    /// `tower` services are called by exclusive reference; this one is cloned for each request.
    pub(super) layered: Option<std::sync::Mutex<McpService>>,
}

impl WorkerService {
    pub fn new(router: Arc<Router>, local: Arc<WorkerState>) -> Self {
        let innermost = || McpService::new(Innermost::new(&router, &local));
        let layered = router.layers.apply(innermost);
        Self {
            router,
            local,
            layered: layered.map(std::sync::Mutex::new),
        }
    }

    /// Rate and concurrency limits.
    pub fn limits(&self) -> &Limits {
        &self.router.endpoint.server.limits
    }

    /// The layers with everything inside of them, if there are any.
    pub(super) fn layers(&self) -> Option<McpService> {
        let layered = self.layered.as_ref()?.lock();
        Some(
            layered
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone(),
        )
    }
}

/// A connection with the service for its requests; each request future holds one.
#[derive(Debug)]
pub struct ConnService {
    pub(super) service: Arc<WorkerService>,
    pub(super) connection: Arc<ConnectionState>,
}

impl ConnService {
    pub fn new(service: Arc<WorkerService>, connection: Arc<ConnectionState>) -> Self {
        Self {
            service,
            connection,
        }
    }

    pub fn connection(&self) -> &Arc<ConnectionState> {
        &self.connection
    }
}
