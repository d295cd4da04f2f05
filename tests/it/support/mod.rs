//! Shared helpers: an in-process server, and a client that writes raw bytes.

mod client;
#[cfg(feature = "otlp")]
pub(crate) mod collector;
mod gate;
mod harness;
pub(crate) mod incoming;
mod mcp;
mod program;
mod proxy;
#[cfg(feature = "redis")]
mod redis;
mod s3;
mod schema;
mod server;
mod site;
mod state;

use std::ops::{Deref, DerefMut};
use std::process::Child;

pub(crate) use client::{Connection, Event, Response, post};
pub(crate) use gate::{End, Gate};
pub(crate) use harness::Checked;
pub(crate) use mcp::{Session, Stateless, meta, request};
pub(crate) use program::longshore;
pub(crate) use proxy::RoundRobin;
#[cfg(feature = "redis")]
pub(crate) use redis::{RedisServer, free_port};
pub(crate) use s3::FakeS3;
pub(crate) use schema::Conversation;
pub(crate) use server::{Running, Serve, bind};
pub(crate) use site::{Asked, Site, Told};
pub(crate) use state::{Asked as AskedState, Fronted, StandIn};

/// A child process that is killed when this is dropped.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// Asserts that a text has each of the parts.
#[track_caller]
pub(crate) fn assert_contains(text: &(impl AsRef<str> + ?Sized), parts: &[&str]) {
    let text = text.as_ref();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
