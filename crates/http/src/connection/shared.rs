//! The part of a connection that other threads may see.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Relaxed};

use tokio::task::AbortHandle;

use super::activity::{Activity, Phase, Published};
use crate::auth::{ClientCertificate, CredentialCache};
use crate::net::Peer;

/// What the acceptor, authentication and the layers of the application may know of a connection.
#[derive(Debug)]
pub(crate) struct SharedConn {
    peer: Peer,
    /// Client certificate from the handshake.
    certificate: OnceLock<ClientCertificate>,
    /// The last accepted credential, and its principal.
    pub(crate) credentials: CredentialCache,
    pub(super) activity: Published,
    /// Number of the first request that can be framed in two ways; 0 for none.
    ambiguous: AtomicU32,
    /// Set when HTTP/2 streams have begun since the last poll of the connection. Reads and writes pause until the next one.
    begun: AtomicBool,
    /// Set when the server has ended the connection without waiting for its client.
    cut: AtomicBool,
    task: OnceLock<AbortHandle>,
}

impl SharedConn {
    pub(super) fn new(peer: Peer, now: u32) -> Self {
        Self {
            peer,
            certificate: OnceLock::new(),
            credentials: CredentialCache::default(),
            activity: Published::new(Activity::new(now)),
            ambiguous: AtomicU32::new(0),
            begun: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            task: OnceLock::new(),
        }
    }

    /// Peer address of the socket; behind a proxy, the proxy's.
    #[inline]
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Stores the certificate that the client has shown in the handshake.
    pub(crate) fn set_certificate(&self, certificate: ClientCertificate) {
        let _ = self.certificate.set(certificate);
    }

    /// The certificate that the client has shown in the handshake.
    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.get()
    }

    /// Sets the task that serves the connection.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Returns true if the connection has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.task.get().is_some_and(AbortHandle::is_finished)
    }

    /// Ends the connection at once, without waiting for its client.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Relaxed);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Returns true if [`cut`](Self::cut) was called.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Records that a request can be framed in two ways.
    pub(super) fn set_ambiguous(&self, request: u32) {
        self.ambiguous.store(request, Relaxed);
    }

    /// Returns true if this request, or one before it, can be framed in two ways.
    #[inline]
    pub(crate) fn is_ambiguous(&self, request: u32) -> bool {
        let ambiguous = self.ambiguous.load(Relaxed);
        ambiguous != 0 && ambiguous <= request
    }

    /// The idle time in seconds, if no request is pending or in progress. `now` is the second of the worker's clock.
    pub(crate) fn idle_for(&self, now: u32) -> Option<u32> {
        let activity = self.activity.read();
        let idle = matches!(activity.phase, Phase::Idle | Phase::Http2Idle);
        (idle && activity.stalled.is_none()).then(|| now.saturating_sub(activity.since))
    }

    /// Records that streams begin. Reads and writes pause until the next poll of the connection.
    #[inline]
    pub(crate) fn hold_back(&self) {
        self.begun.store(true, Relaxed);
    }

    /// Returns true if a stream has begun since the last call, which requires another poll of the connection.
    #[inline]
    pub(crate) fn take_begun(&self) -> bool {
        // Fast path: mostly no data was read.
        self.holds_back() && self.begun.swap(false, AcqRel)
    }

    /// Returns true if the socket must wait for the next poll of the connection. Called by the connection's own worker
    /// only.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Thread-safe variant of `holds_back`, for any thread that has changed state the connection must see.
    #[inline]
    pub(crate) fn is_looked_at_again(&self) -> bool {
        // A plain load would not synchronize `take_begun` with earlier writes.
        self.begun.fetch_or(false, AcqRel)
    }
}
