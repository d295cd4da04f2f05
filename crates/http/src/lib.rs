//! Listening, accepting, serving, stopping.
//!
//! One task accepts and gives each socket to the worker with the fewest connections; a worker is a thread with
//! a runtime of its own, and a connection never leaves it. So load is even with few connections as with many,
//! and nothing on a request's way is fought over by two cores.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]
// Without some features the items that only those use are unused. The default build still finds dead code.
#![cfg_attr(not(all(feature = "tls")), allow(dead_code, unused_imports))]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use longshore_core::{audit, auth, limit, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;
use longshore_server as server;

mod transport {
    pub use crate as http;
    pub use longshore_server::transport::drain;
}

// In reading order: listening and workers, connections, the way of a request, what else is served, rejections, other ways in.
mod config;
mod serve;
pub mod listener;
mod acceptor;
mod conn_limits;
mod worker;
mod admission;
mod conn_driver;
mod connection;
mod timer;
mod socket;
mod tcp_conn;
mod tls;
mod framing;
mod head_cache;
mod rapid_reset;
mod h1_conn;
mod h2_conn;
mod h2_batch;
mod h2_response_body;
mod pipeline;
mod context;
mod router;
mod route;
mod headers;
mod host;
mod host_guard;
mod layers;
mod layered;
mod authentication;
mod request_body;
mod dispatch;
mod events;
mod legacy;
mod rest;
mod openapi;
mod open_pages;
mod operator_pages;
mod playground;
mod static_page;
mod server_card;
mod entity_tag;
mod compress;
mod rejection;
mod problem;
mod admin;
mod in_process;
#[cfg(any(fuzzing, test, feature = "testing"))]
mod fuzz;

pub use admin::AdminListener;
pub use config::{AdminConfig, HttpConfig, HttpLimits, SocketMode};
pub use entity_tag::with_entity_tag;
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use fuzz::{headers_hold, request_framing_holds};
pub use in_process::InProcess;
pub use layers::{Layers, McpService, PublicPaths, RouteFuture, RouteHandler};
pub use problem::{problem, problem_response};
pub use route::{Route, routes};
pub use serve::{Listener, NamedEndpoints};
pub use server_card::{ServerCardConfig, ServerCardError};
pub use tls::{Tls, TlsConfig, TlsError};
