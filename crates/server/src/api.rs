//! What transports and the application ask of a server. Each method hands over to the file that does it.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;

use ::http::{Extensions, HeaderMap};
use bytes::Bytes;
use serde_json::Value;

use crate::auth::Principal;
use crate::catalog::RejectedItem;
use crate::client_requests::ClientRequestCounts;
use crate::http_head::HttpHead;
use crate::http_sse_2024::ReplyTask;
use crate::param_headers::VersionHeader;
use crate::parts::Server;
use crate::peer::StdioPeer;
use crate::reply::{MaybeReady, Reply};
use crate::snapshot::Snapshot;
use crate::streams::{EventSource, OpenFuture};
use crate::telemetry::{RequestOrigin, Telemetry};
use crate::worker_state::WorkerState;
use crate::{http, http_sse_2024, rest_calls, stdio, streams};

impl Server {
    /// Handles the body of one POST. Returns `Ready` if nothing has to wait; otherwise registers with `cx`.
    #[inline]
    pub fn handle_http(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        worker: &WorkerState,
        head: &mut HttpHead<'_>,
        body: &Bytes,
    ) -> MaybeReady {
        http::handle(self, cx, worker, head, body)
    }

    /// Ends the session named by a DELETE request (LH-09).
    pub fn end_session(
        &self,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<(), Reply> {
        http::end_session(self, worker, head, version)
    }

    /// Handles one message that arrived over stdio, as `seen` describes.
    pub fn handle_stdio(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: &Bytes,
    ) -> MaybeReady {
        stdio::handle(self, cx, by, peer, principal, body)
    }

    /// The stream of notifications of a session. Returns it once, as soon as there is a session.
    pub fn stdio_notifications(
        self: &Arc<Self>,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
    ) -> Option<Box<dyn EventSource>> {
        stdio::notifications(self, peer, principal)
    }

    /// Calls a tool with the arguments in `body`: a JSON object, or nothing. The reply is a response to `tools/call` of
    /// the newest revision.
    pub fn call_tool_rest(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        principal: &Arc<Principal>,
        headers: (&mut HeaderMap, Option<&Arc<Extensions>>),
        name: &str,
        body: &Bytes,
    ) -> MaybeReady {
        rest_calls::call_tool(self, cx, by, principal, headers, name, body)
    }

    /// Returns one page of the tools, as a response to `tools/list` of the newest revision. `by` is `None` if the page is
    /// not a request of its own.
    pub fn list_tools_rest(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: Option<(&WorkerState, RequestOrigin<'_>)>,
        principal: &Arc<Principal>,
        cursor: Option<&str>,
    ) -> MaybeReady {
        rest_calls::list_tools(self, cx, by, principal, cursor)
    }

    /// Server information for REST clients.
    pub fn info(&self) -> Value {
        rest_calls::info(self)
    }

    /// Name and version of the server and of the runtime.
    pub fn version(&self) -> Value {
        rest_calls::version(self)
    }

    /// Opens an HTTP+SSE session and its stream. `path` is the path to which the client posts messages (SSE24-01).
    pub fn open_sse_session(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
        path: &str,
    ) -> Result<Box<dyn EventSource>, Reply> {
        http_sse_2024::open(self, principal, address, path)
    }

    /// Handles a message posted to an HTTP+SSE session.
    ///
    /// # Errors
    ///
    /// The reply to a message that is not handled here: it was rejected, or is forwarded to another replica.
    pub fn post_sse_message(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        principal: &Arc<Principal>,
        id: &str,
        body: &Bytes,
    ) -> Result<ReplyTask, MaybeReady> {
        http_sse_2024::post(self, cx, by, principal, id, body)
    }

    /// Returns true if sessions can have notification streams.
    pub fn has_standing_streams(&self) -> bool {
        streams::has_standing_streams(self)
    }

    /// Handles GET (LH-03, LH-04, LH-13).
    pub fn open_stream(
        self: &Arc<Self>,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<OpenFuture, Reply> {
        streams::open_stream(self, worker, head, version)
    }

    /// Delivers notifications and coordinates with other replicas, until it is dropped. It must run once.
    pub async fn run_notifications(self: Arc<Self>) {
        streams::run(&self).await;
    }

    /// Waits until no call is left that outlives its request.
    pub async fn idle(&self) {
        self.calls.inflight.idle().await;
    }

    /// Aborts running calls. Their callers get an error that says that the server stops.
    pub fn stop_calls(&self) {
        self.calls.inflight.stop();
    }

    /// Closes all streams at shutdown, in the way that makes their clients reconnect elsewhere. Without other replicas,
    /// which could receive the responses of clients, pending requests to clients fail.
    pub fn end_streams(&self) {
        self.streams.stop();
        if !self.streams.is_shared() {
            self.fail_client_requests();
        }
    }

    /// Fails the requests to clients that wait for a response, and those that follow, since no response can arrive any more.
    pub fn fail_client_requests(&self) {
        self.calls.inflight.client_requests.stop();
    }

    /// Counters of the requests sent to clients.
    pub fn client_request_counts(&self) -> ClientRequestCounts {
        self.calls.inflight.client_requests.counts()
    }

    /// Telemetry of this server.
    pub fn telemetry(&self) -> &Telemetry {
        &self.observability.telemetry
    }

    /// The snapshot that is served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.load_full()
    }

    /// Configured items that are not served, with the reasons.
    pub fn refusals(&self) -> Vec<RejectedItem> {
        self.snapshots.load().catalog.refused().to_vec()
    }

    /// Source and location of each configured item that is not served. The reasons are in the log.
    pub fn refused(&self) -> Vec<Value> {
        let snapshot = self.snapshots.load();
        let refused = snapshot.catalog.refused().iter();
        refused
            .map(|refused| serde_json::json!({"source": refused.source, "place": refused.place}))
            .collect()
    }

    /// Messages about configured items that cannot be served, for operators.
    #[cfg(feature = "cli")]
    pub fn problems(&self) -> Vec<String> {
        let snapshot = self.snapshots.load();
        let refused = snapshot.catalog.refused().iter();
        refused.map(ToString::to_string).collect()
    }

    /// Other replicas that were seen lately; none without a shared state.
    pub fn replicas(&self) -> Vec<Value> {
        self.replicas.described()
    }

    /// Number of tools.
    pub fn tool_count(&self) -> usize {
        self.snapshots.load().catalog.len()
    }
}
