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

mod admin;
mod config;
mod acceptor;
mod compress;
mod connection;
mod cors;
mod entity_tag;
mod server_card;
mod in_process;
pub mod listener;
mod conn_driver;
mod events;
mod head_cache;
#[cfg(any(fuzzing, test, feature = "testing"))]
mod fuzz;
mod headers;
mod host;
mod host_guard;
mod layers;
mod legacy;
mod h1_response_body;
mod h2_batch;
mod h2_conn;
mod operator_pages;
mod open_pages;
mod openapi;
mod h2_response_body;
mod custom_routes;
mod conn_limits;
mod playground;
mod rapid_reset;
mod rest;
mod route;
mod router;
mod pipeline;
mod service;
mod socket;
mod static_page;
mod authentication;
mod context;
mod dispatch;
mod problem;
mod rejection;
mod request_body;
mod tcp_conn;
mod timer;
mod tls;
mod admission;
mod framing;
mod serve;
mod worker;

pub use admin::AdminListener;
pub use config::{AdminConfig, HttpConfig, HttpLimits, SocketMode};
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use fuzz::{headers_hold, request_framing_holds};
pub use in_process::InProcess;

pub use custom_routes::PublicPaths;
pub use custom_routes::{RouteFuture, RouteHandler};
pub use entity_tag::with_entity_tag;
pub use layers::Layers;
pub use layers::McpService;
pub use problem::{problem, problem_response};
pub use route::{Route, routes};
pub use serve::{Listener, NamedEndpoints};
pub use server_card::{ServerCardConfig, ServerCardError};
pub use tls::Tls;
pub use tls::{TlsConfig, TlsError};
