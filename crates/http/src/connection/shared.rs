//! The part of a connection that other threads may see, with its phase. The table of transitions is [`Activity::after`].
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Working: TLS handshake
//!     [*] --> Idle
//!     Working --> Idle: handshake done
//!     Idle --> Head: bytes arrive
//!     Head --> Body: request begins
//!     Body --> Working: body read
//!     Working --> Writing: response ready
//!     Working --> Stream: response is a stream
//!     Stream --> Writing: stream ends
//!     Writing --> Idle: part of the response was written
//!     Writing --> Head: and part of the next head has arrived already
//!     Head --> Idle: more of the response was written, and the next request has arrived
//! ```
//!
//! Only a response that is ready ends [`Phase::Working`]: bytes that are written or read before belong to other requests,
//! or are an interim response. hyper does not report when a response is complete, so a connection counts as idle from
//! the first write on, and each further one begins that time anew. While the client takes no bytes, only the time limit
//! of writing applies.
//!
//! HTTP/2 connections are in [`Phase::Http2`] while streams are open or responses are being sent, and otherwise in
//! [`Phase::Http2Idle`]; their streams have states and timers of their own.
//!
//! **Invariant.** Only the connection's own thread writes an [`Activity`], with [`Published::apply`]. The acceptor reads
//! it as a whole, so that it never sees the phase of one request with the time of another.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use tokio::task::AbortHandle;

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

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No byte of a request has arrived.
    Idle,
    /// A head is arriving.
    Head,
    /// A body is arriving.
    Body,
    /// The response is being produced. It may take any time.
    Working,
    /// The response is ready and being sent.
    Writing,
    /// The response is a stream and may take any time.
    Stream,
    /// HTTP/2, with open streams or responses being sent.
    Http2,
    /// HTTP/2, with nothing to do.
    Http2Idle,
}

impl Phase {
    #[inline(always)]
    pub(super) fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2Idle)
    }
}

/// Event on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    TlsHandshake,
    /// The protocol is known.
    Begins {
        http2: bool,
    },
    /// Part of a first head has arrived, too little to tell the protocol.
    PartOfHead,
    /// Bytes were read.
    Read,
    /// hyper has parsed a head.
    Request,
    /// A body that nothing has read so far is read from now on.
    BodyRestarts,
    /// A body was read or abandoned.
    BodyRead,
    ResponseReady,
    StreamBegins,
    StreamEnds,
    /// hyper wants to read, and there is nothing.
    WaitsForBytes {
        in_head: bool,
    },
    /// Bytes were written; `in_head` if part of a next head has arrived.
    Written {
        in_head: bool,
    },
    /// The client takes no bytes.
    WriteBlocked,
    /// A response of HTTP/2 begins whose client may read it slowly.
    Http2ResponseBegins,
    /// A stream or response of HTTP/2 has ended; `idle` if it was the last one.
    Http2Ends {
        idle: bool,
    },
}

/// Phase of a connection with its times, in seconds of the worker's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) phase: Phase,
    /// Second in which the phase began.
    pub(super) since: u32,
    /// Second in which writing stalled.
    pub(super) stalled: Option<u32>,
}

impl Activity {
    /// The activity of a new connection.
    pub(super) fn new(now: u32) -> Self {
        Self {
            phase: Phase::Idle,
            since: now,
            stalled: None,
        }
    }

    /// The table of transitions.
    #[inline(always)]
    fn after(mut self, event: Event, now: u32) -> Self {
        let phase = self.phase;
        let pause = |in_head| match in_head {
            true => Phase::Head,
            false => Phase::Idle,
        };
        let next = match event {
            Event::TlsHandshake => Phase::Working,
            Event::Begins { http2: true } => Phase::Http2Idle,
            Event::Begins { http2: false } => Phase::Idle,
            Event::PartOfHead | Event::Read if phase == Phase::Idle => Phase::Head,
            Event::Request if !phase.is_http2() => Phase::Body,
            Event::Request | Event::Http2ResponseBegins | Event::Http2Ends { idle: false } => {
                Phase::Http2
            }
            Event::Http2Ends { idle: true } => Phase::Http2Idle,
            Event::BodyRestarts if phase == Phase::Body => Phase::Body,
            Event::BodyRead if phase == Phase::Body => Phase::Working,
            Event::ResponseReady if phase == Phase::Working => {
                self.phase = Phase::Writing;
                return self;
            }
            Event::StreamBegins => Phase::Stream,
            Event::StreamEnds => Phase::Writing,
            Event::WaitsForBytes { in_head } if phase == Phase::Writing => pause(in_head),
            Event::Written { in_head } => {
                self.stalled = None;
                match phase {
                    // Nothing is written for a request before its head has arrived.
                    Phase::Writing | Phase::Idle | Phase::Head => pause(in_head),
                    _ => return self,
                }
            }
            Event::WriteBlocked => {
                self.stalled = self.stalled.or(Some(now));
                return self;
            }
            _ => return self,
        };
        self.phase = next;
        self.since = now;
        self
    }
}

/// An [`Activity`] that other threads may read: three bits of phase, 29 of the second in which writing stalled plus one, and 32
/// of the second in which the phase began.
#[derive(Debug)]
pub(super) struct Published(AtomicU64);

const STALLED: u32 = 32;
const PHASE: u32 = 61;

impl Published {
    pub(super) fn new(activity: Activity) -> Self {
        Self(AtomicU64::new(Self::pack(activity)))
    }

    #[inline(always)]
    pub(super) fn read(&self) -> Activity {
        let packed = self.0.load(Relaxed);
        let stalled = (packed >> STALLED) & ((1 << (PHASE - STALLED)) - 1);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let since = packed as u32;
        Activity {
            phase: match packed >> PHASE {
                0 => Phase::Idle,
                1 => Phase::Head,
                2 => Phase::Body,
                3 => Phase::Working,
                4 => Phase::Writing,
                5 => Phase::Stream,
                6 => Phase::Http2,
                _ => Phase::Http2Idle,
            },
            since,
            stalled: (stalled as u32).checked_sub(1),
        }
    }

    #[inline(always)]
    fn pack(activity: Activity) -> u64 {
        let stalled = activity.stalled.map_or(0, |second| second + 1);
        u64::from(activity.since) | u64::from(stalled) << STALLED | (activity.phase as u64) << PHASE
    }

    /// Applies an event. Returns the phase before it, and the one after it.
    #[inline(always)]
    pub(super) fn apply(&self, event: Event, now: u32) -> (Phase, Phase) {
        let before = self.read();
        let after = before.after(event, now);
        self.0.store(Self::pack(after), Relaxed);
        (before.phase, after.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 8] = [
        Phase::Idle,
        Phase::Head,
        Phase::Body,
        Phase::Working,
        Phase::Writing,
        Phase::Stream,
        Phase::Http2,
        Phase::Http2Idle,
    ];

    #[test]
    fn what_is_published_is_what_is_read() {
        for phase in PHASES {
            for since in [0, 1, 86_400, u32::MAX] {
                for stalled in [None, Some(0), Some(86_400), Some((1 << 29) - 2)] {
                    let activity = Activity {
                        phase,
                        since,
                        stalled,
                    };
                    assert_eq!(Published::new(activity).read(), activity);
                }
            }
        }
    }

    /// The phase after an event, and whether its time begins anew.
    fn after(phase: Phase, event: Event) -> (Phase, bool) {
        let before = Activity {
            phase,
            ..Activity::new(1)
        };
        let after = before.after(event, 5);
        assert!(matches!(after.since, 1 | 5));
        (after.phase, after.since == 5)
    }

    #[test]
    fn requests_go_through_the_phases_of_the_diagram() {
        for (before, event, phase) in [
            (Phase::Idle, Event::TlsHandshake, Phase::Working),
            (Phase::Working, Event::Begins { http2: false }, Phase::Idle),
            (
                Phase::Working,
                Event::Begins { http2: true },
                Phase::Http2Idle,
            ),
            (Phase::Http2Idle, Event::Request, Phase::Http2),
            (Phase::Http2, Event::Http2Ends { idle: false }, Phase::Http2),
            (
                Phase::Http2,
                Event::Http2Ends { idle: true },
                Phase::Http2Idle,
            ),
            (Phase::Http2Idle, Event::Http2ResponseBegins, Phase::Http2),
            (Phase::Idle, Event::PartOfHead, Phase::Head),
            (Phase::Idle, Event::Read, Phase::Head),
            (Phase::Head, Event::Request, Phase::Body),
            (Phase::Body, Event::BodyRestarts, Phase::Body),
            (Phase::Body, Event::BodyRead, Phase::Working),
            (Phase::Working, Event::StreamBegins, Phase::Stream),
            (Phase::Stream, Event::StreamEnds, Phase::Writing),
        ] {
            assert_eq!(after(before, event), (phase, true), "{before:?} {event:?}");
        }
        let ready = after(Phase::Working, Event::ResponseReady);
        assert_eq!(ready, (Phase::Writing, false));
        for (in_head, phase) in [(false, Phase::Idle), (true, Phase::Head)] {
            let waits = Event::WaitsForBytes { in_head };
            assert_eq!(after(Phase::Writing, waits), (phase, true));
            let written = Event::Written { in_head };
            for before in [Phase::Writing, Phase::Idle, Phase::Head] {
                assert_eq!(after(before, written), (phase, true), "{before:?}");
            }
        }
    }

    #[test]
    fn other_events_change_nothing() {
        for (phase, event) in [
            (Phase::Head, Event::PartOfHead),
            (Phase::Head, Event::Read),
            (Phase::Body, Event::Read),
            // The next request may arrive during a call. The time limit of its head has not started then.
            (Phase::Working, Event::Read),
            (Phase::Working, Event::WaitsForBytes { in_head: false }),
            (Phase::Working, Event::WaitsForBytes { in_head: true }),
            // The rest of an earlier response, or an interim response.
            (Phase::Working, Event::Written { in_head: false }),
            (Phase::Stream, Event::Read),
            (Phase::Stream, Event::WaitsForBytes { in_head: false }),
            (Phase::Working, Event::BodyRestarts),
            (Phase::Working, Event::BodyRead),
            (Phase::Body, Event::ResponseReady),
            (Phase::Stream, Event::ResponseReady),
            (Phase::Stream, Event::Written { in_head: true }),
            (Phase::Body, Event::Written { in_head: true }),
            (Phase::Http2, Event::Read),
            (Phase::Http2, Event::BodyRestarts),
            (Phase::Http2, Event::BodyRead),
            (Phase::Http2, Event::ResponseReady),
            (Phase::Http2, Event::Written { in_head: false }),
            (Phase::Http2Idle, Event::Read),
            (Phase::Http2Idle, Event::Written { in_head: true }),
        ] {
            assert_eq!(after(phase, event), (phase, false), "{event:?}");
        }
    }

    #[test]
    fn only_progress_ends_a_stall() {
        let blocked = Activity::new(1).after(Event::WriteBlocked, 5);
        assert_eq!((blocked.stalled, blocked.since), (Some(5), 1));
        assert_eq!(blocked.after(Event::WriteBlocked, 9).stalled, Some(5));
        let written = Event::Written { in_head: false };
        assert_eq!(blocked.after(written, 9).stalled, None);
    }
}
