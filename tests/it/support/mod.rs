//! Shared helpers: an in-process server, and a client that writes raw bytes.

mod client;
#[cfg(feature = "otlp")]
pub(crate) mod collector;
mod gate;
mod harness;
pub(crate) mod incoming;
mod mcp;
mod port;
mod program;
mod proxy;
#[cfg(feature = "redis")]
mod redis;
mod s3;
mod schema;
mod server;
mod site;
mod state;
mod wait;

pub(crate) use client::{Connection, Event, Response, post};
pub(crate) use gate::{End, Gate};
pub(crate) use harness::Checked;
pub(crate) use mcp::{Session, Stateless, meta, request};
pub(crate) use port::free_port;
pub(crate) use program::{KillOnDrop, Served, longshore, run, said};
pub(crate) use proxy::RoundRobin;
#[cfg(feature = "redis")]
pub(crate) use redis::RedisServer;
pub(crate) use s3::FakeS3;
pub(crate) use schema::Conversation;
pub(crate) use server::{Running, Serve, bind, tls_file};
pub(crate) use site::{Asked, Site, Told};
pub(crate) use state::{Asked as AskedState, Fronted, StandIn};
pub(crate) use wait::{becomes, becomes_so, until};

/// Asserts that a text has each of the parts.
#[track_caller]
pub(crate) fn assert_contains(text: &(impl AsRef<str> + ?Sized), parts: &[&str]) {
    let text = text.as_ref();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
