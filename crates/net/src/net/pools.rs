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
    by_thread: ByThread<Pool>,
}

impl Pools {
    pub(super) fn new(builder: legacy::Builder, connector: Connector) -> Self {
        Self(Arc::new(Parts {
            by_thread: ByThread::new(builder.build(connector.clone())),
            builder,
            connector,
        }))
    }

    /// Connector for new connections.
    pub(super) fn connector(&self) -> Connector {
        self.0.connector.clone()
    }

    /// The one for this thread.
    pub(super) fn here(&self) -> Pool {
        let parts = &*self.0;
        let build = || parts.builder.build(parts.connector.clone());
        parts.by_thread.here(build)
    }
}

/// A value for each thread that has its own runtime, and one that all others share.
pub(super) struct ByThread<T> {
    shared: T,
    own: RwLock<HashMap<ThreadId, T>>,
}

impl<T: Clone> ByThread<T> {
    pub(super) fn new(shared: T) -> Self {
        Self {
            shared,
            own: RwLock::default(),
        }
    }

    /// Returns the value for this thread, and makes one if it has none.
    pub(super) fn here(&self, make: impl FnOnce() -> T) -> T {
        let has_runtime = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        if !has_runtime {
            return self.shared.clone();
        }
        let thread = std::thread::current().id();
        let own = self.own.read();
        if let Some(value) = own.get(&thread) {
            return value.clone();
        }
        drop(own);
        let mut own = self.own.write();
        if THREADS_MAX <= own.len() {
            return self.shared.clone();
        }
        own.entry(thread).or_insert_with(make).clone()
    }
}
