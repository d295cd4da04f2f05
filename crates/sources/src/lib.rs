//! Tools that need no code: HTTP calls, OpenAPI operations, command lines and WebAssembly components as described in
//! the configuration, and the built-in toolsets.
//!
//! An invalid item is rejected alone; the others are still offered. See [`RejectedItem`](crate::catalog::RejectedItem).

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
use crate as source;
use longshore_catalog as catalog;
use longshore_core::{auth, seal, state, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;

pub mod client;
pub mod argument;
pub mod bench;
mod artifact;
mod command;
mod redact;
mod builder;
pub mod config;
mod kind;
pub mod limits;
pub mod media_type;
mod parts;
mod credentials;
mod api_client;
mod client_stats;
mod client_tls;
mod headers;
mod http;
mod identity;
mod login;
mod name;
mod openapi;
mod pattern;
mod per_user;
mod output_contract;
#[cfg(feature = "cli")]
mod registry;
mod response;
mod reuse;
mod template;
pub mod tool_plan;
#[cfg(test)]
mod testing;
mod tokens;
mod upstream;
mod wasm;

pub use self::http::{HttpSourceConfig, HttpToolConfig, PagesConfig, ReadAs, ResponseConfig};
pub use argument::{ArgumentConfig, ArgumentType};
pub use artifact::{ARTIFACT_OUTCOMES, ArtifactError, Artifacts};
pub use artifact::{Artifact, ArtifactConfig, ArtifactFuture, ArtifactStore, S3Config};
pub use builder::BuiltSource;
pub use client_stats::ClientStatsHandle;
pub use client_tls::ClientTlsConfig;
pub use command::{CommandLimits, CommandOutput, CommandSourceConfig, CommandToolConfig};
#[cfg(feature = "cli")]
pub use command::{Discovery, discover};
pub use config::{SourceConfig, offered_at};
pub use credentials::{
    AuthConfig, BasicConfig, ClientKeyConfig, ExchangeForm, IdentityAssertionConfig, NamedSecret,
    OAuthConfig, OnBehalfOfConfig,
};
pub use identity::{ASSERTION_KEYS_PATH, AssertionConfig, AssertionSigner, ForwardConfig};
pub use limits::RequestLimits;
pub use login::{LoginError, LoginRequest, StoredToken, log_in, log_out, log_out_user, logins};
pub use openapi::{OpenApiSourceConfig, Selection};
pub use parts::SourceParts;
pub use per_user::{
    Account, AccountError, Accounts, BegunLogin, Invitation, PerUserConfig, RecognizedUsers,
    is_account_path,
};
#[cfg(feature = "cli")]
pub use registry::{
    Entry, OFFICIAL as REGISTRY, Preference, Registry, RegistryError, Server, described, entry,
};
pub use reuse::Reuse;
pub use tokens::Tokens;
pub use tokens::{TokenStore, TokensConfig, TokensError};
pub use tokens::{default_folder, has_login};
pub use upstream::{
    Naming, SEPARATOR, TIMEOUT_SECONDS, UpstreamGauge, UpstreamRules, UpstreamStates, Upstreams,
};
pub use upstream::{OnChange, OnDown, UpstreamConfig, UpstreamError, UpstreamNames};
pub use wasm::{ComponentLimits, ComponentSourceConfig, ComponentToolConfig, DirectoryConfig};
