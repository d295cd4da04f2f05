//! HTTP/2 responses that a client reads slowly.
//!
//! On HTTP/1 a client that does not read stalls its socket, which the sweep detects. Over HTTP/2 it may read the socket
//! but withhold the flow-control window of a stream; the response then waits here. Each large or streamed response
//! records its last progress.

use std::cell::RefCell;

/// Responses of one connection in progress.
#[derive(Debug, Default)]
pub(super) struct SendStalls(RefCell<Vec<Sending>>);

#[derive(Clone, Copy, Debug)]
enum Sending {
    Free,
    /// The handler must produce more data.
    Waiting,
    /// The client has to make room; since which second.
    Since(u32),
}

impl SendStalls {
    pub(super) fn enter(&self, now: u32) -> usize {
        let mut all = self.0.borrow_mut();
        let sending = Sending::Since(now);
        match all.iter().position(|s| matches!(s, Sending::Free)) {
            Some(free) => {
                all[free] = sending;
                free
            }
            None => {
                all.push(sending);
                all.len() - 1
            }
        }
    }

    /// Records the side to wait for: the client since a given second, or the handler.
    pub(super) fn progress(&self, index: usize, since: Option<u32>) {
        if let Some(sending) = self.0.borrow_mut().get_mut(index) {
            *sending = since.map_or(Sending::Waiting, Sending::Since);
        }
    }

    pub(super) fn leave(&self, index: usize) {
        let mut all = self.0.borrow_mut();
        if let Some(sending) = all.get_mut(index) {
            *sending = Sending::Free;
        }
        while matches!(all.last(), Some(Sending::Free)) {
            all.pop();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns true if a client has read nothing of a response for more than `seconds`.
    pub(super) fn stall_since(&self, now: u32, seconds: u32) -> bool {
        self.0
            .borrow()
            .iter()
            .any(|s| matches!(s, Sending::Since(since) if seconds < now.saturating_sub(*since)))
    }
}
