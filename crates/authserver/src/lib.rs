//! Authorization server in front of an identity provider.
//!
//! MCP clients register themselves, either dynamically (RFC 7591) or by a client ID metadata document. Most identity
//! providers of companies support neither. This authorization server accepts such clients, lets the provider log the user
//! in as its one registered client, and issues access tokens of its own (RFC 9068), bound to the MCP endpoint.
//!
//! ```text
//! client ── /authorize ──► consent page ── provider's login ──► /oauth/callback ── code ──► client ── /token ──► tokens
//! ```
//!
//! # No database
//!
//! Client IDs, login states, codes and refresh tokens are sealed values ([`sealed`]): any replica that has the keys of
//! `seal.keys` opens them. Only what may be used once goes through the shared state ([`once`]): codes and refresh tokens.
//! Without a shared state, each replica knows only what it redeemed itself.
//!
//! # Threats
//!
//! - Confused deputy: every authorization request shows a consent page that names the client, its redirect URI and the
//!   scopes. The approval and the provider's callback are bound to the browser by a cookie.
//! - Open redirects: nothing redirects to a URI before it was compared with those of the client.
//! - Mix-up (RFC 9207): every authorization response carries `iss`, and `iss` of the provider is checked.
//! - Replay: codes and refresh tokens are used once; a second use ends the login.
//! - The provider's tokens are used in the callback only. No client receives them.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use longshore_core::{auth, limit, seal, state, telemetry};
use longshore_net::{environment, net};

mod assertion;
mod attempts;
mod authorize;
mod callback;
mod client;
mod document;
mod endpoints;
mod error;
mod form;
mod metadata;
mod once;
pub mod page;
mod provider;
mod redirect;
mod registration;
mod sealed;
mod server;
mod text;
mod token;
mod visit;

#[cfg(test)]
mod tests;

pub use endpoints::is_path;
pub use form::read_parameters;
pub use server::{AuthorizationServer, AuthorizationServerError, Parts};
pub use visit::{LoginStateCookie, Visitor, origin_of};
