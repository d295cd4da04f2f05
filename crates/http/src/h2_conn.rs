//! An HTTP/2 connection.
//!
//! hyper's server adds a layer around h2: a boxed task for each stream, a counting body, and a ping timer checked for
//! each request. Nearly all messages are read and answered when a stream begins. This module therefore drives h2
//! directly and serves streams in place ([`Batch`]). A stream that must wait becomes a task.
//!
//! h2 reads and writes what it can before it reports the next stream. The socket therefore blocks from the first stream
//! of a poll until no further stream begins ([`SharedConn::hold_back`]). The connection is then polled again
//! ([`CoalescingWaker`]), and all responses are written together.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::Bytes;
use h2::server::{self, Connection, Handshake};
use h2::{Ping, PingPong, Reason};

use super::config::HttpLimits;
use super::connection::{ConnectionState, SharedConn};
use super::context::ConnService;
use super::h2_batch::Batch;
use super::socket::Socket;
use crate::limit::Limit;

/// Flow-control window in bytes, for each stream and for the connection.
const WINDOW: u32 = 1024 * 1024;
/// Maximum number of bytes that a stream may buffer for sending.
const SEND_BUFFER_MAX: usize = 400 * 1024;
/// Streams of which the client has broken the rules, until the connection is ended for it.
const BROKEN_STREAMS_MAX: usize = 1024;
/// Seconds in which a client confirms that it opens no more streams. The end of the connection waits for the ping response
/// that follows `GOAWAY` (RFC 9113 section 6.8).
const CONFIRMATION_SECONDS: u32 = 3;

/// An HTTP/2 connection with its service.
pub(super) struct H2Conn {
    served: Rc<ConnService>,
    ping_seconds: u32,
    /// Set if the connection must end before its preface is complete.
    retires: bool,
    stage: Stage,
}

/// Stage of the connection.
enum Stage {
    Greeting(Box<Handshake<Socket, Bytes>>),
    Open(Box<Open>),
}

struct Open {
    connection: Connection<Socket, Bytes>,
    pulse: Pulse,
    /// Second from which the connection ends without the client's confirmation, if it is to end.
    leaves_at: Option<u32>,
}

/// Reason for which a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum H2Error {
    #[error("the client did not respond to keep-alive pings")]
    Silent,
    #[error(transparent)]
    Protocol(#[from] h2::Error),
}

impl H2Error {
    /// The limit because of which it ended, if it was one.
    pub(super) fn limit(&self) -> Option<Limit> {
        match self {
            Self::Silent => Some(Limit::Http2PingSeconds),
            Self::Protocol(error)
                if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) =>
            {
                Some(Limit::Http2Resets)
            }
            Self::Protocol(_) => None,
        }
    }
}

impl H2Conn {
    /// Creates the connection for a socket that is unread.
    pub(super) fn new(socket: Socket, served: Rc<ConnService>, limits: &HttpLimits) -> Self {
        let handshake = server::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_concurrent_streams(limits.http2_streams)
            .max_header_list_size(limits.header_bytes as u32)
            .max_pending_accept_reset_streams(limits.http2_resets as usize)
            .max_local_error_reset_streams(Some(BROKEN_STREAMS_MAX))
            .max_send_buffer_size(SEND_BUFFER_MAX)
            .handshake(socket);
        Self {
            served,
            ping_seconds: limits.http2_ping_seconds,
            retires: false,
            stage: Stage::Greeting(Box::new(handshake)),
        }
    }

    /// Stops new streams; open streams run to completion. Without a complete preface there are none, and the next poll
    /// ends the connection.
    pub(super) fn retire(&mut self) {
        match &mut self.stage {
            Stage::Greeting(_) => self.retires = true,
            Stage::Open(open) => open.retire(&self.served.connection),
        }
    }
}

impl Future for H2Conn {
    type Output = Result<(), H2Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            served,
            ping_seconds,
            retires,
            stage,
        } = &mut *self;
        loop {
            match stage {
                Stage::Open(open) => return open.poll(cx, served),
                Stage::Greeting(greeting) => {
                    let mut connection = match Pin::new(&mut **greeting).poll(cx) {
                        Poll::Pending if *retires => return Poll::Ready(Ok(())),
                        greeted => ready!(greeted)?,
                    };
                    served.connection.preface_is_complete();
                    let pulse =
                        Pulse::new(connection.ping_pong(), *ping_seconds, &served.connection);
                    let mut open = Open {
                        connection,
                        pulse,
                        leaves_at: None,
                    };
                    if *retires {
                        open.retire(&served.connection);
                    }
                    *stage = Stage::Open(Box::new(open));
                }
            }
        }
    }
}

impl Open {
    /// Stops new streams. The connection ends after the open ones.
    fn retire(&mut self, state: &ConnectionState) {
        self.connection.graceful_shutdown();
        self.leaves_at = Some(state.now() + CONFIRMATION_SECONDS);
    }

    /// Ends the connection of a client that has not confirmed in time, once it is idle for as long.
    #[cold]
    fn leave(&mut self, leaves_at: u32, state: &ConnectionState) {
        let now = state.now();
        let is_idle = || {
            let idle = state.shared().idle_for(now);
            idle.is_some_and(|seconds| CONFIRMATION_SECONDS <= seconds)
        };
        self.leaves_at = if now < leaves_at {
            Some(leaves_at)
        } else if is_idle() {
            self.connection.abrupt_shutdown(Reason::NO_ERROR);
            None
        } else {
            Some(now + 1)
        };
        let next = self.leaves_at.unwrap_or(u32::MAX);
        state.look_again_at(next.min(self.pulse.next));
    }

    #[inline]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        served: &Rc<ConnService>,
    ) -> Poll<Result<(), H2Error>> {
        let state = &served.connection;
        if self.pulse.is_to_be_felt(state.now()) {
            self.pulse.feel(cx, state);
            if self.pulse.is_gone {
                self.connection.abrupt_shutdown(Reason::NO_ERROR);
            }
        }
        if let Some(leaves_at) = self.leaves_at {
            self.leave(leaves_at, state);
        }
        let Self {
            connection, pulse, ..
        } = self;
        let mut batch = Batch::new();
        loop {
            let result = match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(stream))) => {
                    if batch.is_empty() {
                        pulse.heard = state.now();
                        state.shared().hold_back();
                    }
                    batch.push(stream);
                    if !batch.is_full() {
                        continue;
                    }
                    None
                }
                // The responses are written by the next poll, which follows at once.
                Poll::Pending => Some(Poll::Pending),
                Poll::Ready(Some(Err(error))) => Some(Poll::Ready(Err(error.into()))),
                Poll::Ready(None) if pulse.is_gone => Some(Poll::Ready(Err(H2Error::Silent))),
                Poll::Ready(None) => Some(Poll::Ready(Ok(()))),
            };
            batch.serve(served);
            if let Some(result) = result {
                return result;
            }
        }
    }
}

/// Keep-alive check: a silent client receives a ping and has the same time to respond (RFC 9113 section 6.7).
struct Pulse {
    pings: Option<PingPong>,
    seconds: u32,
    /// The second in which something came last.
    heard: u32,
    /// The second from which on it is to be felt.
    next: u32,
    /// True while a ping is outstanding.
    asked: bool,
    /// True if the ping response is overdue.
    is_gone: bool,
}

impl Pulse {
    fn new(pings: Option<PingPong>, seconds: u32, state: &ConnectionState) -> Self {
        let now = state.now();
        let pulse = Self {
            pings,
            seconds,
            heard: now,
            next: now.saturating_add(seconds),
            asked: false,
            is_gone: false,
        };
        state.look_again_at(pulse.next);
        pulse
    }

    #[inline]
    fn is_to_be_felt(&self, now: u32) -> bool {
        self.asked || self.next <= now
    }

    #[cold]
    fn feel(&mut self, cx: &mut Context<'_>, state: &ConnectionState) {
        let Some(pings) = &mut self.pings else { return };
        let now = state.now();
        if self.asked && pings.poll_pong(cx).is_ready() {
            self.asked = false;
            self.heard = now;
        }
        // The seconds that are counted begin at any time: one more, so that it is never too early.
        let due = if self.asked {
            self.next
        } else {
            self.heard + self.seconds + 1
        };
        if now < due {
            self.next = due;
        } else if self.asked {
            self.is_gone = true;
            self.next = u32::MAX;
            self.asked = false;
        } else {
            self.asked = pings.send_ping(Ping::opaque()).is_ok();
            self.next = now + self.seconds + 1;
        }
        state.look_again_at(self.next);
    }
}

/// Looks after a connection whose streams begin where it is driven.
#[derive(Debug)]
pub(super) struct CoalescingWaker {
    shared: Arc<SharedConn>,
    /// Waker of the connection.
    waker: Waker,
}

impl CoalescingWaker {
    /// For a connection whose task is woken by `task`.
    pub(super) fn new(state: &ConnectionState, task: &Waker) -> Self {
        let shared = Arc::clone(state.shared());
        let knock = Knock {
            shared: Arc::clone(&shared),
            task: task.clone(),
        };
        Self {
            shared,
            waker: Waker::from(Arc::new(knock)),
        }
    }

    /// Polls a connection, and again for what streams that have begun by that have to send.
    #[inline]
    pub(super) fn poll_connection<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
    ) -> Poll<C::Output> {
        let cx = &mut Context::from_waker(&self.waker);
        loop {
            let looked = connection.as_mut().poll(cx);
            if looked.is_ready() || !self.shared.take_begun() {
                return looked;
            }
        }
    }
}

/// Wakes the task of a connection, but where that is going to look at it anyway.
#[derive(Debug)]
struct Knock {
    shared: Arc<SharedConn>,
    task: Waker,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.shared.is_looked_at_again() {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::io::DuplexStream;

    use super::*;
    use crate::transport::http::connection::Event;
    use crate::transport::http::connection::WorkerClock;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn state() -> Rc<ConnectionState> {
        state_by(&Arc::default())
    }

    fn state_by(clock: &Arc<WorkerClock>) -> Rc<ConnectionState> {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let state = ConnectionState::new(Arc::clone(clock), peer.into(), 1_000);
        state.apply(Event::Begins { http2: true });
        Rc::new(state)
    }

    #[test]
    fn a_connection_is_looked_at_again_for_its_streams_and_not_woken_for_them() {
        let (state, woken) = (state(), Arc::new(Count::default()));
        let shared = state.shared();
        let looks = CoalescingWaker::new(&state, &Waker::from(Arc::clone(&woken)));
        let mut polls = 0;
        let mut connection = pin!(poll_fn(|cx| {
            polls += 1;
            if polls <= 2 {
                assert!(!shared.holds_back(), "what was answered before can be sent");
                shared.hold_back();
                shared.hold_back();
                // What they have to send, from here and from elsewhere.
                cx.waker().wake_by_ref();
                let elsewhere = cx.waker().clone();
                let woken = std::thread::spawn(move || elsewhere.wake()).join();
                assert!(woken.is_ok() && shared.holds_back());
            }
            Poll::<()>::Pending
        }));
        assert!(looks.poll_connection(connection.as_mut()).is_pending());
        assert_eq!(woken.0.load(SeqCst), 0);
        looks.waker.wake_by_ref();
        assert_eq!(woken.0.load(SeqCst), 1, "nobody looks at it now");
        assert!(looks.poll_connection(connection).is_pending());
        assert_eq!(polls, 4, "three times, and once");
    }

    #[test]
    fn a_connection_that_is_over_is_not_looked_at_again() {
        let state = state();
        let looks = CoalescingWaker::new(&state, Waker::noop());
        let connection = pin!(async { state.shared().hold_back() });
        assert!(looks.poll_connection(connection).is_ready());
    }

    /// A server that asks its client for a sign of life after 20 seconds, and the seconds that pass.
    struct KeepAlive {
        clock: Arc<WorkerClock>,
        state: Rc<ConnectionState>,
        server: Connection<DuplexStream, Bytes>,
        client: h2::client::Connection<DuplexStream, Bytes>,
        /// The connection lasts while it may send.
        _sender: h2::client::SendRequest<Bytes>,
        pulse: Pulse,
    }

    impl KeepAlive {
        async fn begin() -> Self {
            let clock = Arc::new(WorkerClock::default());
            let state = state_by(&clock);
            let (here, there) = tokio::io::duplex(1 << 16);
            let server = server::Builder::new().handshake(here);
            let (server, client) = tokio::join!(server, h2::client::handshake(there));
            let (mut server, (_sender, client)) =
                (server.expect("greeted"), client.expect("greeted"));
            let pulse = Pulse::new(server.ping_pong(), 20, &state);
            Self {
                clock,
                state,
                server,
                client,
                _sender,
                pulse,
            }
        }

        /// Lets seconds pass, in each of which the server looks, and the client where it `answers`.
        async fn pass(&mut self, seconds: u32, answers: bool) {
            for _ in 0..seconds {
                // tokio's pipes give nothing to who has not waited for long.
                tokio::task::yield_now().await;
                let cx = &mut Context::from_waker(Waker::noop());
                let now = self.clock.tick();
                if self.pulse.is_to_be_felt(now) {
                    self.pulse.feel(cx, &self.state);
                }
                for _ in 0..4 {
                    assert!(self.server.poll_closed(cx).is_pending());
                    if answers {
                        let _ = Pin::new(&mut self.client).poll(cx);
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn who_answers_when_asked_is_there_and_who_does_not_is_gone() {
        let mut asking = KeepAlive::begin().await;
        asking.pass(1_000, true).await;
        assert!(!asking.pulse.is_gone);
        asking.pass(20, false).await;
        assert!(!asking.pulse.is_gone, "it was asked lately");
        asking.pass(42, false).await;
        assert!(asking.pulse.is_gone);
    }

    #[tokio::test]
    async fn nobody_is_asked_who_speaks() {
        let mut asking = KeepAlive::begin().await;
        for _ in 0..50 {
            asking.pulse.heard = asking.state.now();
            asking.pass(15, false).await;
            assert!(!asking.pulse.asked);
        }
        asking.pass(6, false).await;
        assert!(asking.pulse.asked);
        asking.pass(20, false).await;
        assert!(!asking.pulse.is_gone, "not before its time");
        asking.pass(2, false).await;
        assert!(asking.pulse.is_gone);
    }
}
