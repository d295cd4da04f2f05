//! Connections of an upstream: one that all callers share or, if requests carry something of the caller, one for each
//! caller.
//!
//! A caller's connection is never used for another caller, nor for the same caller with another access token, which can
//! have other rights. So sessions of stateful upstreams are separate, too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::call_error::CallError;
use super::caller_key::CallerKey;
use super::instrumented::Session;
use super::usage::Usage;
use crate::auth::Principal;
use crate::client::{self, Client, ClientError};
use crate::net::{Mutex, OutgoingRequest};
use crate::source::credentials::{CredentialError, Credentials};
use crate::source::identity::Forward;

/// An established connection.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) since: Instant,
    pub(super) session: Session,
}

impl Connected {
    /// Closes the connection. The session metric is recorded first, because closing can take longer than the metrics
    /// export waits.
    async fn close(self, grace: Duration) {
        let Self {
            client, session, ..
        } = self;
        drop(session);
        client.close(grace).await;
    }
}

/// The last attempt to connect that failed: its end, and its error.
pub(super) type LastFailure = Option<(Instant, ClientError)>;

/// Place of one connection, which is made on first use and again after it was lost.
pub(super) struct Line {
    current: ArcSwapOption<Connected>,
    /// Held while the connection is made.
    pub(super) connecting: Arc<AsyncMutex<LastFailure>>,
    /// Whose connection it is; `None` for all callers.
    pub(super) identity: Option<Arc<CallerIdentity>>,
    pub(super) usage: Usage,
}

impl Line {
    pub(super) fn new(identity: Option<Arc<CallerIdentity>>) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            connecting: Arc::default(),
            identity,
            usage: Usage::new(Instant::now()),
        }
    }

    /// Returns the error of a request on this connection. On a caller's own connection, a denial concerns the caller.
    pub(super) fn blamed(&self, error: ClientError) -> ClientError {
        match &self.identity {
            Some(_) => error.for_caller(),
            None => error,
        }
    }

    pub(super) fn usable(&self) -> Option<Arc<Connected>> {
        self.current
            .load_full()
            .filter(|connected| !connected.client.is_closed())
    }

    pub(super) fn store(&self, connected: Arc<Connected>) {
        self.current.store(Some(connected));
    }

    /// Returns the protocol version of the connection, while there is one.
    pub(super) fn revision(&self) -> Option<&'static str> {
        Some(self.usable()?.client.revision().as_str())
    }

    /// Stops using a connection, unless another one has replaced it already.
    pub(super) fn part_from(&self, connected: &Arc<Connected>) {
        connected.session.is_lost();
        self.current.compare_and_swap(connected, None);
    }

    /// Closes a connection that has ended.
    pub(super) async fn close_ended(&self, grace: Duration) {
        let current = self.current.load_full();
        if let Some(connected) = &current
            && connected.client.is_closed()
        {
            self.part_from(connected);
            if let Some(connected) = current.and_then(Arc::into_inner) {
                connected.close(grace).await;
            }
        }
    }

    pub(super) async fn disconnect(&self, grace: Duration) {
        let Some(connected) = self.current.swap(None) else {
            return;
        };
        // If requests still use it, it closes when they end.
        if let Some(connected) = Arc::into_inner(connected) {
            connected.close(grace).await;
        }
    }

    /// Returns true if the connection has not been used for a while. `fixed` overrides the time that follows from its
    /// usage.
    pub(super) fn is_idle(&self, fixed: Option<Duration>) -> bool {
        self.usable()
            .is_some_and(|connected| self.usage.is_idle(Instant::now(), connected.since, fixed))
    }
}

/// What the requests of an upstream carry of the caller.
#[derive(Clone)]
pub(super) struct PerCaller {
    pub(super) credentials: Option<Arc<Credentials>>,
    pub(super) forward: Arc<Forward>,
}

/// The caller whose credentials and facts the requests of a connection carry.
pub(super) struct CallerIdentity {
    what: PerCaller,
    caller: Arc<Principal>,
    key: CallerKey,
}

impl CallerIdentity {
    /// Returns the key of the caller's connection.
    pub(super) fn key(&self) -> CallerKey {
        self.key
    }
}

impl client::Credentials for CallerIdentity {
    fn apply<'r>(
        &'r self,
        request: &'r mut OutgoingRequest,
    ) -> BoxFuture<'r, Result<(), ClientError>> {
        Box::pin(async {
            if let Some(credentials) = &self.what.credentials {
                let applied = credentials.apply(request, Some(&self.caller)).await;
                applied.map_err(CredentialError::into_client_error)?;
            }
            let forwarded = self.what.forward.apply(&self.caller, &mut request.headers);
            forwarded
                .map_err(|error| ClientError::CallerCredentials(error.message().to_owned()))?;
            Ok(())
        })
    }

    fn refused<'r>(
        &'r self,
        request: &'r OutgoingRequest,
        response: &'r http::HeaderMap,
    ) -> BoxFuture<'r, bool> {
        Box::pin(async move {
            match &self.what.credentials {
                Some(credentials) => {
                    let caller = Some(&*self.caller);
                    credentials.refused(request, response, caller).await
                }
                None => false,
            }
        })
    }
}

impl fmt::Debug for CallerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallerIdentity").field(&self.caller).finish()
    }
}

/// Connections of callers, by what identifies them. Their number is bounded.
pub(super) struct CallerLines {
    what: PerCaller,
    max: usize,
    lines: Mutex<HashMap<CallerKey, Arc<Line>>>,
}

impl CallerLines {
    pub(super) fn new(what: PerCaller, max: usize) -> Self {
        Self {
            what,
            max: max.max(1),
            lines: Mutex::default(),
        }
    }

    /// Returns the connection of a caller. If there are too many, the one that has been unused for longest is closed.
    ///
    /// # Errors
    ///
    /// All of them are in use.
    pub(super) fn of(
        &self,
        caller: &Arc<Principal>,
    ) -> Result<(Arc<Line>, Option<Arc<Line>>), CallError> {
        let key = CallerKey::of(caller);
        let mut lines = self.lines.lock();
        let is_full = self.max <= lines.len();
        let mut closed = None;
        if is_full && !lines.contains_key(&key) {
            let now = Instant::now();
            let unused = lines.iter().filter(|(_, line)| !line.usage.is_under_way());
            let longest = unused.max_by_key(|(_, line)| line.usage.unused_for(now));
            let longest = longest.map(|(key, _)| *key);
            closed = lines.remove(&longest.ok_or(CallError::TooManyCallers)?);
        }
        let line = match lines.entry(key) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(free) => {
                let identity = CallerIdentity {
                    what: self.what.clone(),
                    caller: Arc::clone(caller),
                    key,
                };
                let line = Arc::new(Line::new(Some(Arc::new(identity))));
                Arc::clone(free.insert(line))
            }
        };
        // Counted within the lock, so that it is not closed before its first request.
        line.usage.begin(Instant::now());
        Ok((line, closed))
    }

    /// Returns true if any connection is established.
    pub(super) fn are_any(&self) -> bool {
        self.lines
            .lock()
            .values()
            .any(|line| line.usable().is_some())
    }

    /// Closes the connections that are lost or idle. `fixed` overrides the idle time.
    pub(super) async fn close_idle(&self, fixed: Option<Duration>, grace: Duration) {
        let closed: Vec<Arc<Line>> = {
            let mut lines = self.lines.lock();
            let now = Instant::now();
            let is_over = |line: &Arc<Line>| {
                !line.usage.is_under_way()
                    && match line.usable() {
                        Some(_) => line.is_idle(fixed),
                        // It was lost, or could not be made.
                        None => Duration::from_secs(60) < line.usage.unused_for(now),
                    }
            };
            let over = lines.extract_if(|_, line| is_over(line));
            over.map(|(_, line)| line).collect()
        };
        join_all(closed.iter().map(|line| line.disconnect(grace))).await;
    }

    /// Closes all connections.
    pub(super) async fn disconnect(&self, grace: Duration) {
        let all: Vec<Arc<Line>> = self.lines.lock().drain().map(|(_, line)| line).collect();
        join_all(all.iter().map(|line| line.disconnect(grace))).await;
    }
}

/// Use of a connection by one request.
pub(super) struct LineInUse(Arc<Line>);

impl LineInUse {
    /// Takes over the use that [`CallerLines::of`] has counted.
    pub(super) fn counted(line: Arc<Line>) -> Self {
        Self(line)
    }

    pub(super) fn begin(line: &Arc<Line>) -> Self {
        line.usage.begin(Instant::now());
        Self(Arc::clone(line))
    }
}

impl std::ops::Deref for LineInUse {
    type Target = Arc<Line>;

    fn deref(&self) -> &Arc<Line> {
        &self.0
    }
}

impl Drop for LineInUse {
    fn drop(&mut self) {
        self.0.usage.end(Instant::now());
    }
}
