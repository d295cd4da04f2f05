//! Connection pool for each requesting thread.
//!
//! A connection is driven by the thread that created it. Each request from another thread requires two cross-thread
//! wake-ups, which cost more than the request itself. Threads with their own runtime, such as the server's workers,
//! therefore have their own connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::connect::Connector;
use super::lock::RwLock;

pub(super) type Pool = legacy::Client<Connector, Full<Bytes>>;

/// More threads than that share one pool.
const THREADS_MAX: usize = 256;

/// The pools of one client.
#[derive(Clone)]
pub(super) struct Pools(Arc<Parts>);

struct Parts {
    builder: legacy::Builder,
    connector: Connector,
    shared: Pool,
    own: RwLock<HashMap<ThreadId, Pool>>,
}

impl Pools {
    pub(super) fn new(builder: legacy::Builder, connector: Connector) -> Self {
        Self(Arc::new(Parts {
            shared: builder.build(connector.clone()),
            builder,
            connector,
            own: RwLock::default(),
        }))
    }

    /// Connector for new connections.
    pub(super) fn connector(&self) -> Connector {
        self.0.connector.clone()
    }

    /// The one for this thread.
    pub(super) fn here(&self) -> Pool {
        let parts = &*self.0;
        if !is_alone() {
            return parts.shared.clone();
        }
        let thread = std::thread::current().id();
        let own = parts.own.read();
        if let Some(pool) = own.get(&thread) {
            return pool.clone();
        }
        drop(own);
        let mut own = parts.own.write();
        if THREADS_MAX <= own.len() {
            return parts.shared.clone();
        }
        own.entry(thread)
            .or_insert_with(|| parts.builder.build(parts.connector.clone()))
            .clone()
    }
}

/// Returns true if this thread has its own runtime.
pub(super) fn is_alone() -> bool {
    Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}
