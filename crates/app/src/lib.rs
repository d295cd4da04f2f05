//! The configuration, and the composition of a running server.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]
// Without some features the items that only those use are unused. The default build still finds dead code.
#![cfg_attr(
    not(all(
        feature = "cli",
        feature = "oauth",
        feature = "otlp",
        feature = "redis",
        feature = "sources",
        feature = "tls",
        feature = "validation"
    )),
    allow(dead_code, unused_imports)
)]

#[cfg_attr(not(feature = "sources"), path = "absent.rs")]
pub mod source;
pub mod config;
pub mod app;
#[doc(hidden)]
pub mod bench;

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use longshore_catalog as catalog;
use longshore_core::{audit, auth, limit, seal, state, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;
use longshore_server as server;
use longshore_server::harness;

mod transport {
    pub use longshore_http as http;
    pub use longshore_server::transport::{drain, stdio};
}
