//! State that only HTTP/1 connections have.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};

use super::ConnectionState;
use super::activity::{Event, Phase};
use crate::limit::Limit;
use crate::transport::http::config::HttpLimits;
use crate::transport::http::framing::Findings;
use crate::transport::http::head_cache::HeadCache;

/// Values of [`H1State::body_expired`]: the body exceeds its time limit, or arrives too slowly.
const LATE: u8 = 1;
const TRICKLES: u8 = 2;

/// State of an HTTP/1 connection beside its phase.
#[derive(Debug, Default)]
pub(super) struct H1State {
    /// Bytes that arrived since the head or the body began.
    received: AtomicU64,
    /// The sweep's verdict on the body that is being read: 0, [`LATE`] or [`TRICKLES`].
    body_expired: AtomicU8,
    body_waker: Mutex<Option<Waker>>,
    /// Results for the previous head.
    head_cache: HeadCache,
    /// Number of the first request that can be framed in two ways; 0 for none.
    ambiguous: AtomicU32,
}

impl H1State {
    /// A body begins.
    #[inline]
    pub(super) fn begin_body(&self) {
        self.received.store(0, Relaxed);
    }

    /// Lets the reader of a body know if it took too long: it can still send a response.
    pub(super) fn expire_body(&self, age: u32, limits: &HttpLimits) {
        let too_slow = 5 < age
            && self.received.load(Relaxed)
                < u64::from(age - 5) * u64::from(limits.body_bytes_per_second);
        let limit = match limits.body_seconds < age {
            true => LATE,
            false if too_slow => TRICKLES,
            false => return,
        };
        self.body_expired.store(limit, Relaxed);
        let waker = self.body_waker.lock();
        if let Some(waker) = &*waker.unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }
}

impl ConnectionState {
    /// Bytes that arrived since the head or the body began.
    pub(crate) fn received(&self) -> u64 {
        self.h1.received.load(Relaxed)
    }

    /// Cache of the previous head.
    #[inline]
    pub(crate) fn head_cache(&self) -> &HeadCache {
        &self.h1.head_cache
    }

    /// Records bytes that were read; `answered` if some were written since the last read.
    #[inline]
    pub(crate) fn has_read(&self, bytes: usize, answered: bool) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        match self.apply(Event::Read { answered }) {
            (Phase::Head | Phase::Body, _) => {
                let before = self.h1.received.load(Relaxed);
                self.h1.received.store(before + bytes, Relaxed);
            }
            (_, Phase::Head) => self.h1.received.store(bytes, Relaxed),
            _ => {}
        }
    }

    /// Records what bytes have shown about requests that have not begun.
    #[inline]
    pub(crate) fn notes(&self, findings: Findings) {
        if let Some(repeats) = findings.repeats {
            self.h1.head_cache.note(repeats);
        }
        if let Some(request) = findings.ambiguous {
            self.h1.ambiguous.store(request, Relaxed);
        }
    }

    /// Returns true if the current request can be framed in two ways.
    #[inline]
    pub(crate) fn is_ambiguous(&self) -> bool {
        let ambiguous = self.h1.ambiguous.load(Relaxed);
        ambiguous != 0 && ambiguous <= self.request_number()
    }

    /// The limit that the body that is being read has hit by taking too long. If none, `cx` is woken when it does.
    #[inline]
    pub(crate) fn body_overdue(&self, cx: &Context<'_>) -> Option<Limit> {
        match self.h1.body_expired.load(Relaxed) {
            LATE => return Some(Limit::BodySeconds),
            TRICKLES => return Some(Limit::BodyRate),
            _ => {}
        }
        let mut waker = self
            .h1
            .body_waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*waker {
            // The waker always belongs to the connection's own task.
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
        None
    }
}
