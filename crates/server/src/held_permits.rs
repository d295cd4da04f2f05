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
    /// The client has responded, or the call has other work; it waits for permits.
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

    /// Returns `Ready` if the call may be polled: it has its permits. A call that does other work while it waits for its
    /// client needs them for each step of that.
    pub(super) fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Released(released) = self
            && let Some(permits) = released.take()
        {
            *self = Self::Waiting(Box::pin(permits.take_again()));
        }
        if let Self::Waiting(turn) = self {
            *self = Self::Held(ready!(turn.as_mut().poll(cx)));
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::auth::Principal;
    use crate::limit::{LimitConfig, Limits};
    use crate::telemetry::Metrics;

    #[test]
    fn a_call_whose_permits_are_released_is_polled_only_with_permits() {
        let config = LimitConfig {
            calls: Some(1),
            ..LimitConfig::default()
        };
        let limits = Limits::new(&config, &Metrics::default());
        let anonymous = Principal::anonymous();
        let take = || limits.turn(&anonymous, None, None).take();
        let has_room = || limits.has_room(&anonymous, None, None);
        let cx = &mut Context::from_waker(Waker::noop());
        let mut held = HeldPermits::Held(take());
        assert!(held.poll_admitted(cx).is_ready() && !has_room());
        held.release();
        assert!(has_room());
        let other = take();
        assert!(held.poll_admitted(cx).is_pending());
        // It stays in line.
        held.release();
        drop(other);
        assert!(!has_room());
        assert!(held.poll_admitted(cx).is_ready());
        held.release();
        assert!(has_room());
    }
}
