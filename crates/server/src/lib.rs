//! Message handling: one JSON-RPC message in, one reply out, independent of transport and sockets.
//!
//! `http.rs`, `stdio.rs` and `rest_calls.rs` are the entry points. They choose the lifecycle of a message:
//! `handshake.rs` for revisions up to 2025-11-25, `stateless.rs` for 2026-07-28. Both lifecycles end in `dispatch.rs`,
//! which calls the handler of the method.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]
// Without some features the items that only those use are unused. The default build still finds dead code.
#![cfg_attr(not(all(feature = "cli")), allow(dead_code, unused_imports))]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use crate as server;
use longshore_catalog as catalog;
use longshore_core::{audit, auth, limit, seal, state, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;

pub mod harness;
/// Standard input and output, and what all transports share.
pub mod transport {
    pub mod drain;
    pub mod stdio;
}

mod assemble;
mod audit_record;
mod batch;
mod call_stream;
mod client_requests;
mod completion;
mod config;
mod context_pool;
mod custom;
mod dispatch;
mod errors;
mod execute;
mod handshake;
mod held_permits;
mod http;
mod http_sse_2024;
mod inflight;
mod initialize_params;
mod instrument;
mod listings;
mod lists;
mod liveness;
mod log_levels;
mod logging;
mod messages;
mod method;
mod endpoint;
mod notifications;
mod observability;
mod param_headers;
mod parts;
mod peer;
mod prompts;
mod quota;
mod reply;
mod request_context;
mod resource_cache;
mod resources;
mod rest_calls;
mod results;
mod replay;
mod replicas;
mod running_call;
mod search;
mod sessions;
mod share;
mod skills;
mod snapshot;
mod snapshots;
mod source_startup;
mod sse_sessions;
mod stateless;
mod stdio;
mod streams;
mod tasks;
mod text;
mod tool_search;
mod tools;
mod visibility;
mod worker_state;
#[cfg(test)]
mod tests;

pub use assemble::{PreparedSnapshot, ServerContext, ServerParts};
pub use client_requests::{ClientRequestConfig, ClientRequestCounts};
pub use config::{BatchPolicy, ServerConfig, StaleSessions, ValidationErrors};
pub use endpoint::EndpointConfig;
pub use endpoint::{EndpointFilter, endpoint_name_problem};
pub use inflight::next_heartbeat;
pub use messages::MessagesConfig;
pub use method::{MethodFuture, MethodHandler};
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use param_headers::{HeaderValueState, read as read_header};
pub use param_headers::{McpHeaders, VersionHeader};
pub use parts::Server;
pub use peer::{StdioPeer, TestHttpRequest};
pub use reply::{JsonResponse, MaybeReady, RejectReason, Reply, limited};
pub use request_context::HttpHead;
pub use search::SearchConfig;
pub use search::VERBS as SEARCH_VERBS;
pub use share::STATE_KINDS;
pub use snapshot::{Admission, ListChanges, Snapshot};
pub use streams::StreamsConfig;
pub use streams::{EventData, EventSource, StreamEvent};
pub use tasks::TaskConfig;
pub use text::truncated;
pub use worker_state::WorkerState;
