//! The streams of a connection of HTTP/2, which begin where the connection is driven.
//!
//! hyper makes a future of each request and hands it to an executor, which is meant to make a task of it. Nearly all are
//! answered when they are polled for the first time, and a task that is set up, put in line and taken down again for that
//! costs a good part of what a request does. So each is polled once where it begins, while all that it is made of is at
//! hand. What has to wait for something becomes a task then, and is polled anew by that.
//!
//! hyper looks for the next request behind each, and reads and writes what it can before it does. So the socket has nothing to
//! give and takes nothing from the first stream that begins while a connection is looked at until there is none left to begin
//! ([`ConnectionState::begin_request`]), and the connection is looked at once more for that ([`Looks`]): the answers of all
//! of them are written in one piece.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use hyper::rt::Executor;

use super::connection::ConnectionState;

/// Polls streams where they begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtOnce;

impl<F> Executor<F> for AtOnce
where
    F: Future<Output = ()> + Send + 'static,
{
    #[inline]
    fn execute(&self, stream: F) {
        let mut stream = Box::pin(stream);
        // Whatever it waits for is told whom to wake when its own task polls it.
        let cx = &mut Context::from_waker(Waker::noop());
        // A stream that breaks, breaks alone, as it would as a task.
        match catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(cx))) {
            Ok(Poll::Pending) => drop(tokio::spawn(stream)),
            Ok(Poll::Ready(())) | Err(_) => {}
        }
    }
}

/// Looks after a connection whose streams begin where it is driven.
#[derive(Debug)]
pub(super) struct Looks {
    state: Arc<ConnectionState>,
    /// What wakes the connection.
    waker: Waker,
}

impl Looks {
    /// For a connection whose task is woken by `task`.
    pub(super) fn new(state: &Arc<ConnectionState>, task: &Waker) -> Self {
        let state = Arc::clone(state);
        let knock = Knock {
            state: Arc::clone(&state),
            task: task.clone(),
        };
        Self {
            state,
            waker: Waker::from(Arc::new(knock)),
        }
    }

    /// Polls a connection, and again for what streams that have begun by that have to send.
    #[inline]
    pub(super) fn look<C: Future>(&self, mut connection: Pin<&mut C>) -> Poll<C::Output> {
        let cx = &mut Context::from_waker(&self.waker);
        loop {
            let looked = connection.as_mut().poll(cx);
            if looked.is_ready() || !self.state.take_begun() {
                return looked;
            }
        }
    }
}

/// Wakes the task of a connection, but where that is going to look at it anyway.
#[derive(Debug)]
struct Knock {
    state: Arc<ConnectionState>,
    task: Waker,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.state.is_looked_at_again() {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use tokio::sync::oneshot;

    use super::*;
    use crate::limit::Hits;
    use crate::transport::http::config::HttpLimits;
    use crate::transport::http::connection::Phase;
    use crate::transport::http::timer::WorkerClock;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn state() -> Arc<ConnectionState> {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let state = ConnectionState::new(Arc::new(WorkerClock::default()), peer, 1_000);
        state.enter(Phase::Multiplexed);
        Arc::new(state)
    }

    fn begin_stream(state: &ConnectionState) {
        let hits = Hits::new(&crate::telemetry::Metrics::default());
        state.begin_request(&HttpLimits::default(), &hits);
    }

    #[test]
    fn a_connection_is_looked_at_again_for_its_streams_and_not_woken_for_them() {
        let (state, woken) = (state(), Arc::new(Count::default()));
        let looks = Looks::new(&state, &Waker::from(Arc::clone(&woken)));
        let mut polls = 0;
        let mut connection = pin!(poll_fn(|cx| {
            polls += 1;
            if polls <= 2 {
                assert!(!state.holds_back(), "what was answered before can be sent");
                begin_stream(&state);
                begin_stream(&state);
                // What they have to send, from here and from elsewhere.
                cx.waker().wake_by_ref();
                let elsewhere = cx.waker().clone();
                let woken = std::thread::spawn(move || elsewhere.wake()).join();
                assert!(woken.is_ok() && state.holds_back());
            }
            Poll::<()>::Pending
        }));
        assert!(looks.look(connection.as_mut()).is_pending());
        assert_eq!(woken.0.load(SeqCst), 0);
        looks.waker.wake_by_ref();
        assert_eq!(woken.0.load(SeqCst), 1, "nobody looks at it now");
        assert!(looks.look(connection).is_pending());
        assert_eq!(polls, 4, "three times, and once");
    }

    #[test]
    fn a_connection_that_is_over_is_not_looked_at_again() {
        let state = state();
        let looks = Looks::new(&state, Waker::noop());
        let connection = pin!(async { begin_stream(&state) });
        assert!(looks.look(connection).is_ready());
    }

    #[tokio::test]
    async fn a_stream_is_answered_at_once_or_goes_on_as_a_task() {
        let done = Arc::new(AtomicBool::new(false));
        let mine = Arc::clone(&done);
        AtOnce.execute(async move { mine.store(true, SeqCst) });
        assert!(done.load(SeqCst));
        let (answer, waits) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        AtOnce.execute(async move {
            let _ = tell.send(waits.await);
        });
        answer.send(7).expect("it waits");
        assert_eq!(told.await, Ok(Ok(7)));
    }

    #[tokio::test]
    async fn a_stream_that_breaks_breaks_alone() {
        AtOnce.execute(async { panic!("a broken stream, as it should be") });
        let (tell, told) = oneshot::channel();
        AtOnce.execute(async move {
            let _ = tell.send(());
        });
        assert_eq!(told.await, Ok(()));
    }
}
