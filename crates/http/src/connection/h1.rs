//! State that only HTTP/1 connections have.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

use super::ConnectionState;
use super::activity::{Event, Phase};
use crate::limit::Limit;
use crate::transport::http::config::HttpLimits;
use crate::transport::http::framing::Findings;
use crate::transport::http::head_cache::HeadCache;

/// State of an HTTP/1 connection beside its phase.
#[derive(Debug, Default)]
pub(super) struct H1State {
    /// Bytes that arrived of the head, or of the body that is being read.
    received: Cell<u64>,
    /// The limit of time that the body which is being read has exceeded.
    body_expired: Cell<Option<Limit>>,
    body_waker: RefCell<Option<Waker>>,
    /// Results for the previous head.
    head_cache: HeadCache,
}

impl H1State {
    /// A body begins.
    #[inline]
    pub(super) fn begin_body(&self) {
        self.received.set(0);
        self.body_expired.set(None);
    }

    /// Lets the reader of a body know if it took too long: it can still send a response.
    pub(super) fn expire_body(&self, age: u32, limits: &HttpLimits) {
        let too_slow = 5 < age
            && self.received.get() < u64::from(age - 5) * u64::from(limits.body_bytes_per_second);
        let limit = match limits.body_seconds < age {
            true => Limit::BodySeconds,
            false if too_slow => Limit::BodyRate,
            false => return,
        };
        self.body_expired.set(Some(limit));
        if let Some(waker) = &*self.body_waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl ConnectionState {
    /// Bytes that arrived of the head, or of the body that is being read.
    pub(crate) fn received(&self) -> u64 {
        self.h1.received.get()
    }

    /// Cache of the previous head.
    #[inline]
    pub(crate) fn head_cache(&self) -> &HeadCache {
        &self.h1.head_cache
    }

    /// Records bytes that were read. Those of a body are counted by its reader, since some arrive with the head.
    #[inline]
    pub(crate) fn has_read(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        match self.apply(Event::Read) {
            (Phase::Head, _) => {
                let before = self.h1.received.get();
                self.h1.received.set(before + bytes);
            }
            (_, Phase::Head) => self.h1.received.set(bytes),
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
            self.shared().set_ambiguous(request);
        }
    }

    /// Returns true if the current request can be framed in two ways.
    #[inline]
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.shared().is_ambiguous(self.request_number())
    }

    /// The limit that the body that is being read has hit by taking too long, with `received` bytes so far. If none, `cx` is
    /// woken when it does.
    #[inline]
    pub(crate) fn body_overdue(&self, cx: &Context<'_>, received: usize) -> Option<Limit> {
        self.h1.received.set(received as u64);
        if let Some(limit) = self.h1.body_expired.get() {
            return Some(limit);
        }
        let mut waker = self.h1.body_waker.borrow_mut();
        match &*waker {
            // The waker always belongs to the connection's own task.
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
        None
    }
}
