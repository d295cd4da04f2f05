//! Requests that no socket brought, for benchmarks.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use http::Response;
use http::request::Parts;

use super::connection::{ConnectionState, Event, WorkerClock};
use super::context::{ConnService, WorkerService};
use super::pipeline::RequestFuture;
use super::serve::router;
use super::{HttpConfig, Layers};
use crate::auth::Authenticator;
use crate::net::Body;
use crate::server::{Server, WorkerState};

/// Request handling of a worker for one HTTP/1 connection, without its I/O.
#[derive(Debug)]
pub struct InProcess(Rc<ConnService>);

impl InProcess {
    pub fn new(server: Arc<Server>, authenticator: Arc<Authenticator>, config: HttpConfig) -> Self {
        let cells = server.telemetry().cells();
        let router = Arc::new(router(server, authenticator, config, Layers::default()));
        let service = WorkerService::new(router, Arc::new(WorkerState::new(cells)));
        let connection = ConnectionState::new(
            Arc::new(WorkerClock::default()),
            IpAddr::from(Ipv4Addr::LOCALHOST).into(),
            u32::MAX,
        );
        Self(Rc::new(ConnService {
            service: Rc::new(service),
            connection: Rc::new(connection),
        }))
    }

    /// Serves one request.
    #[inline]
    pub async fn serve(&self, head: Parts, body: Body) -> Response<Body> {
        self.0.connection.apply(Event::PartOfHead);
        match RequestFuture::new(Rc::clone(&self.0), head, body).await {
            Ok(response) => response,
            Err(never) => {
                let never: Infallible = never;
                match never {}
            }
        }
    }
}
