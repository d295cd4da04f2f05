//! What the modules of this binary share: a server in the same process, and a client that writes bytes.

mod client;
mod gate;
mod mcp;
mod schema;
mod server;

pub(crate) use client::{Connection, Event, Response, post};
pub(crate) use gate::{End, Gate};
pub(crate) use mcp::{Session, Stateless, meta, request};
pub(crate) use schema::Conversation;
pub(crate) use server::{Running, Serve};
