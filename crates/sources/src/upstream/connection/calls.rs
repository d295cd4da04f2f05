//! Requests over the connection, and what they find out about the upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::super::cache::Listing;
use super::super::call_error::CallError;
use super::super::forwarding::Relay;
use super::super::instrumented::{InstrumentedRequest, Operation, Peer, RequestOutcome, Session};
use super::super::line::{Connected, LastFailure, Line};
use super::super::maintenance::{CallerEvents, Maintenance};
use super::super::usage::Usage;
use super::Upstream;
use crate::catalog::CallContext;
use crate::client::{
    Client, ClientError, Credentials, Events, HEADER_MISMATCH, Listener, Options, Params, Target,
};
use crate::net::{BulkheadPermit, with_causes};

/// Maximum number of resource templates of one server. The URIs in its results are compared with each of them.
const TEMPLATES_MAX: usize = 1000;

/// A request in progress, until it is dropped.
struct Used<'a>(&'a Usage);

impl<'a> Used<'a> {
    fn begin(usage: &'a Usage) -> Self {
        usage.begin(Instant::now());
        Self(usage)
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.end(Instant::now());
    }
}

impl Upstream {
    pub(in super::super) async fn connected(
        &self,
        line: &Arc<Line>,
    ) -> Result<Arc<Connected>, ClientError> {
        match line.usable() {
            Some(connected) => Ok(connected),
            // Boxed, so that the futures of calls stay small.
            None => Box::pin(self.connect(line)).await,
        }
    }

    /// Connects, unless another attempt has ended while this request waited: its outcome counts for both.
    async fn connect(&self, line: &Arc<Line>) -> Result<Arc<Connected>, ClientError> {
        let asked = Instant::now();
        // The request itself waits, so that nothing is left of it if it is cancelled.
        let last_failure = Arc::clone(&line.connecting).lock_owned().await;
        if let Some(connected) = line.usable() {
            return Ok(connected);
        }
        if let Some((ended, error)) = &*last_failure
            && asked <= *ended
        {
            return Err(error.clone());
        }
        let attempt = ConnectionAttempt {
            name: self.name.clone(),
            line: Arc::clone(line),
            upkeep: Arc::clone(&self.upkeep),
            peer: Arc::clone(&self.peer),
            last_failure,
        };
        let connecting = attempt.run(self.target.clone(), self.options(line));
        // The waiting request can be cancelled, but the connection is shared, so a task of its own makes and stores it.
        let connected = match self.background.spawn(connecting) {
            Some(connecting) => connecting.await.ok(),
            None => None,
        };
        let given_up = || ClientError::Gone("connecting was given up".to_owned());
        connected.unwrap_or_else(|| Err(given_up()))
    }

    /// Returns the options of a connection.
    fn options(&self, line: &Line) -> Options {
        let upkeep = Arc::clone(&self.upkeep);
        let (credentials, events): (Option<Arc<dyn Credentials>>, Arc<dyn Events>) =
            match &line.identity {
                Some(identity) => {
                    let caller = identity.key();
                    let events = CallerEvents { upkeep, caller };
                    (Some(Arc::clone(identity) as _), Arc::new(events))
                }
                None => (self.credentials.clone().map(|own| own as _), upkeep),
            };
        Options {
            name: self.name.clone(),
            capabilities: super::super::forwarding::capabilities(),
            connect_timeout: Duration::from_secs(self.config.connect_seconds.max(1)),
            request_timeout: self.config.timeout(),
            message_bytes: self.config.message_bytes,
            credentials,
            events: Some(events),
            lifecycle: self.config.protocol,
            lifecycle_cache: self.lifecycle_cache.clone(),
            ..Options::default()
        }
    }

    /// Runs a task on the runtime of the connections.
    pub(in super::super) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _ = self.background.spawn(task);
    }

    /// Starts the metrics and tracing of a request for the current caller. `uri` is the resource it concerns, if any.
    pub(in super::super) fn watch<'a>(
        &'a self,
        operation: &'a Operation,
        context: &Arc<CallContext>,
        uri: Option<&str>,
    ) -> InstrumentedRequest<'a> {
        let relay = Relay::new(context, &self.upkeep);
        InstrumentedRequest::begin(&self.peer, operation, relay, uri)
    }

    /// Makes an instrumented [`request`](Self::request) for something that is read, and so can be retried.
    pub(in super::super) async fn read(
        &self,
        operation: &Operation,
        params: Params,
        context: &Arc<CallContext>,
        uri: Option<&str>,
    ) -> Result<Box<RawValue>, CallError> {
        let watched = self.watch(operation, context, uri);
        let params = watched.placed(params);
        let relay = Arc::clone(&watched.relay);
        let line = match self.line(&context.principal) {
            Ok(line) => line,
            Err(error) => {
                watched.ends(&RequestOutcome::Failed(&error), || None);
                return Err(error);
            }
        };
        let answered = self
            .request(&line, operation.method, &params, Some(relay), true)
            .await;
        let end = match &answered {
            Ok(_) => RequestOutcome::Well,
            Err(error) => RequestOutcome::Failed(error),
        };
        watched.ends(&end, || line.revision());
        answered
    }

    /// Makes a request. Retries it once if the first attempt cannot have taken effect, or if `repeatable` says that
    /// it is idempotent.
    pub(in super::super) async fn request(
        &self,
        line: &Arc<Line>,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        repeatable: bool,
    ) -> Result<Box<RawValue>, CallError> {
        let pass = self.enter().await?;
        let answered = self
            .request_admitted(line, method, params, listener, repeatable)
            .await;
        report(pass, line, answered.as_ref().err());
        answered
    }

    /// Waits for a permit of the bulkhead, for a call of several requests.
    pub(in super::super) async fn enter(&self) -> Result<BulkheadPermit<'_>, CallError> {
        Ok(self.bulkhead.enter().await?)
    }

    /// Makes a request like [`request`](Self::request), of a call that has a permit.
    pub(in super::super) async fn request_admitted(
        &self,
        line: &Arc<Line>,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        repeatable: bool,
    ) -> Result<Box<RawValue>, CallError> {
        let _used = Used::begin(&self.usage);
        let mut again = true;
        loop {
            let connected = self.connected(line).await;
            let outcome = match &connected {
                Ok(connected) => {
                    let client = &connected.client;
                    let asked = client.ask(method, params, listener.clone(), None);
                    asked.await.map_err(|error| line.blamed(error))
                }
                Err(error) => Err(error.clone()),
            };
            let error = match outcome {
                Ok(result) => return Ok(result),
                Err(error @ ClientError::Rpc(_)) => {
                    // The arguments to mirror in headers follow from the tool list, which may have changed.
                    if matches!(&error, ClientError::Rpc(refusal) if refusal.code == HEADER_MISMATCH)
                    {
                        self.upkeep.list_changed("tools");
                    }
                    return Err(error.into());
                }
                Err(error) => error,
            };
            if let Ok(connected) = &connected
                && (error.ends_connection() || error.is_unreachable())
            {
                line.part_from(connected);
            }
            let failed = |error| match &connected {
                Ok(_) => CallError::Client(error),
                Err(_) => CallError::Apart(error),
            };
            if error.concerns_caller() {
                tracing::debug!(
                    upstream = self.name,
                    method,
                    error = with_causes(&error),
                    "an upstream server does not serve this caller"
                );
                return Err(failed(error));
            }
            let retry = !error.may_have_happened() || repeatable && error.ends_connection();
            if !(std::mem::take(&mut again) && retry && !matches!(error, ClientError::Start { .. }))
            {
                self.upkeep.wake();
                tracing::warn!(
                    upstream = self.name,
                    method,
                    error = with_causes(&error),
                    "a request to an upstream server failed"
                );
                return Err(failed(error));
            }
            self.retried.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests all items of the server.
    pub(in super::super) async fn listing(&self) -> Result<Listing, CallError> {
        let pass = self.bulkhead.enter().await?;
        let asked = async {
            let connected = self.connected(&self.shared).await?;
            // The listing may lack a change from here on.
            self.upkeep.is_fresh();
            let announced = |list: &str| self.upkeep.has_announced(list);
            Listing::ask(&connected.client, announced).await
        };
        match asked.await {
            Ok(mut listing) => {
                pass.succeeded();
                if TEMPLATES_MAX < listing.templates.len() {
                    tracing::warn!(
                        upstream = self.name,
                        templates = listing.templates.len(),
                        "only the first {TEMPLATES_MAX} resource templates of an upstream server are offered"
                    );
                    listing.templates.truncate(TEMPLATES_MAX);
                }
                Ok(listing)
            }
            Err(error) => {
                pass.failed();
                Err(error.into())
            }
        }
    }
}

/// An attempt to connect, for all requests that wait for the connection.
struct ConnectionAttempt {
    name: String,
    line: Arc<Line>,
    upkeep: Arc<Maintenance>,
    peer: Arc<Peer>,
    /// Held until the attempt has ended.
    last_failure: OwnedMutexGuard<LastFailure>,
}

impl ConnectionAttempt {
    async fn run(
        mut self,
        target: Target,
        options: Options,
    ) -> Result<Arc<Connected>, ClientError> {
        let client = match Client::connect(target, options).await {
            Ok(client) => client,
            Err(error) => {
                let error = self.line.blamed(error);
                *self.last_failure = Some((Instant::now(), error.clone()));
                if self.line.identity.is_none() {
                    self.upkeep.not_connected();
                }
                return Err(error);
            }
        };
        tracing::info!(
            upstream = self.name,
            server = client.server().implementation.name,
            revision = %client.server().revision,
            "connected"
        );
        let connected = Arc::new(Connected {
            session: Session::begin(&self.peer, client.revision()),
            client,
            since: Instant::now(),
        });
        self.line.store(Arc::clone(&connected));
        match self.line.identity {
            None => self.upkeep.connected(),
            Some(_) => self.upkeep.caller_connected(),
        }
        Ok(connected)
    }
}

/// Reports the outcome of a call to the bulkhead.
pub(in super::super) fn report(pass: BulkheadPermit<'_>, line: &Line, error: Option<&CallError>) {
    // The server is not at fault, so other callers are not affected.
    let is_of_caller = |error: &ClientError| {
        let is_of_issuer = matches!(error, ClientError::Credentials(_));
        error.concerns_caller() || is_of_issuer && line.identity.is_some()
    };
    match error {
        // An error response shows that the server is up.
        None
        | Some(CallError::Client(ClientError::Rpc(_)) | CallError::Apart(ClientError::Rpc(_))) => {
            pass.succeeded();
        }
        Some(CallError::Client(error) | CallError::Apart(error)) if is_of_caller(error) => {}
        Some(CallError::Apart(_)) => pass.unreachable(),
        Some(CallError::Client(error)) if error.is_unreachable() => pass.unreachable(),
        Some(_) => pass.failed(),
    }
}
