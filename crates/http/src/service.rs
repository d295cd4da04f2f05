//! The services that receive requests: one for each worker, and one for each connection.

use std::rc::Rc;
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
    /// The layers with everything inside of them, if there are any. `tower` services are called by exclusive reference;
    /// this one is cloned for each request.
    pub(super) layered: Option<McpService>,
}

impl WorkerService {
    pub fn new(router: Arc<Router>, local: Arc<WorkerState>) -> Self {
        let innermost = || McpService::new(Innermost::new(&router, &local));
        let layered = router.layers.apply(innermost);
        Self {
            router,
            local,
            layered,
        }
    }

    /// Rate and concurrency limits.
    pub fn limits(&self) -> &Limits {
        &self.router.endpoint.server.limits
    }
}

/// A connection with the service for its requests; each request future holds one.
#[derive(Debug)]
pub struct ConnService {
    pub(super) service: Rc<WorkerService>,
    pub(super) connection: Rc<ConnectionState>,
}

impl ConnService {
    pub fn new(service: Rc<WorkerService>, connection: Rc<ConnectionState>) -> Self {
        Self {
            service,
            connection,
        }
    }

    #[inline]
    pub fn connection(&self) -> &Rc<ConnectionState> {
        &self.connection
    }
}
