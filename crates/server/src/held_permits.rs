//! Concurrency permits of a running call, which has none while it waits for its client.

use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use crate::limit::CallPermits;

/// The permits of a call that runs, waits for its client, or waits to continue.
///
/// ```text
/// Held ── release ──► Released ── poll_admitted ──► Waiting
///   ▲                                                  │
///   └────────────────── poll_admitted ─────────────────┘
/// ```
pub(super) enum HeldPermits {
    Held(CallPermits),
    /// The call waits for its client. `None` only while the state changes.
    Released(Option<CallPermits>),
    /// The client has responded; the call waits for permits.
    Waiting(BoxFuture<'static, CallPermits>),
}

impl HeldPermits {
    /// Gives the permits to other calls while the call waits for its client.
    pub(super) fn release(&mut self) {
        if let Self::Held(_) = self
            && let Self::Held(mut permits) = std::mem::replace(self, Self::Released(None))
        {
            permits.release();
            *self = Self::Released(Some(permits));
        }
    }

    /// Returns `Ready` if the call may be polled: it has its permits, or still waits for its client.
    pub(super) fn poll_admitted(
        &mut self,
        cx: &mut Context<'_>,
        waits_for_client: impl FnOnce() -> bool,
    ) -> Poll<()> {
        if let Self::Released(released) = self {
            if waits_for_client() {
                return Poll::Ready(());
            }
            if let Some(permits) = released.take() {
                *self = Self::Waiting(Box::pin(permits.take_again()));
            }
        }
        if let Self::Waiting(turn) = self {
            *self = Self::Held(ready!(turn.as_mut().poll(cx)));
        }
        Poll::Ready(())
    }
}
