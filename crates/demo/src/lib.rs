//! The toolsets `demo`, which the program serves without a configuration, and `everything`, an example of each protocol feature.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]

mod demo;
mod demo_verbs;
mod everything;

pub use demo::toolset as demo;
pub use everything::toolset as everything;

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use longshore_catalog::{self as catalog, prompt, resource, tool};
use longshore_core::seal;
use longshore_protocol as protocol;
use longshore_toolsets::Toolset;

// The attributes write paths that begin with `::longshore`.
extern crate longshore_catalog as longshore;
