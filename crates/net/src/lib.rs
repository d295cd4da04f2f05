//! The environment of the process, and bodies, clients and child processes.

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
        feature = "egress",
        feature = "otlp",
        feature = "sources"
    )),
    allow(dead_code, unused_imports)
)]

pub mod environment;
pub mod net;
