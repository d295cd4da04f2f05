//! Digests, telemetry, shared state, authentication, limits, audit records and sealed values. A room uses only rooms above it.

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
        feature = "tls"
    )),
    allow(dead_code, unused_imports)
)]

pub mod digest;
pub mod telemetry;
pub mod state;
pub mod auth;
pub mod limit;
pub mod audit;
pub mod seal;

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use longshore_net::{environment, net};
use longshore_protocol as protocol;

// The stand-in for a store is shared with the tests of the facade, which names it `longshore::state`.
#[cfg(any(test, feature = "testing"))]
extern crate self as longshore;
