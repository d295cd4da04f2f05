//! The one integration binary.
#![expect(
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    clippy::disallowed_methods,
    reason = "tests are written to be read, and trust the server they talk to"
)]

mod abuse;
mod artifacts;
mod asking;
mod audit;
mod auth;
#[cfg(feature = "cli")]
mod cli;
#[cfg(all(feature = "cli", unix))]
mod checked;
#[cfg(feature = "otlp")]
mod collector;
mod client;
#[cfg(all(feature = "cli", unix))]
mod commands;
mod composition;
#[cfg(feature = "wasm")]
mod components;
mod compression;
mod docs;
#[cfg(all(feature = "cli", unix))]
mod discover;
#[cfg(all(feature = "cli", unix))]
mod doctor;
#[cfg(all(feature = "cli", unix))]
mod drain;
mod reload;
mod everything;
mod extensions;
mod extractors;
mod fixture;
mod forward;
mod hostile;
#[cfg(all(feature = "cli", unix))]
mod init;
mod lasting;
#[cfg(all(feature = "cli", unix))]
mod login;
mod layers;
mod library;
mod lifecycle;
mod limits;
mod endpoints;
mod multiplexed;
mod mutual_tls;
mod offer_attributes;
#[cfg(feature = "cli")]
mod on_behalf;
#[cfg(feature = "otlp")]
mod onward;
mod operators;
#[cfg(feature = "cli")]
mod operators_commands;
#[cfg(feature = "cli")]
mod per_user;
mod playground;
mod private_ca;
mod prompts;
mod protocol_rules;
mod provided;
mod reference_tools;
#[cfg(feature = "cli")]
mod registry;
mod rest;
mod resources;
mod revisions;
mod rules;
mod search;
mod state;
#[cfg(all(feature = "cli", feature = "otlp", unix))]
mod secrets;
mod server_card;
mod sources;
#[cfg(feature = "cli")]
mod stdio;
mod streamable_http;
mod streams;
mod support;
mod tasks;
mod tls;
mod tool_attribute;
#[cfg(all(feature = "cli", unix))]
mod unix_socket;
mod toolsets;
mod upstream;
