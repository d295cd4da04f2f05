//! Drives a connection until it ends.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::connection::ConnectionState;
use super::h2_conn::{CoalescingWaker, H2Conn, H2Error};
use crate::net::ConnectionWaker;

/// Signals all connections to shut down.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    news: Notify,
}

impl Drain {
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Ends once [`begin`](Self::begin) is called.
    pub(super) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }
}

/// Drives a connection of HTTP/1, and asks it to end once the server stops.
pub(super) async fn until_drained<C: Future>(
    connection: C,
    drain: &Drain,
    end: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut waker = None;
    let look = |connection: Pin<&mut C>, cx: &Context<'_>| {
        // The same task always polls this.
        let waker = waker.get_or_insert_with(|| ConnectionWaker::standing_for(cx.waker()));
        connection.poll(&mut Context::from_waker(waker))
    };
    drive(connection, drain, |_| false, look, end).await
}

/// Drives an HTTP/2 connection and its streams, and shuts it down when the server stops or its state requires it.
/// Returns `None` if streams are reset too often.
pub(super) async fn until_retired(
    connection: H2Conn,
    drain: &Drain,
    state: &ConnectionState,
) -> Option<Result<(), H2Error>> {
    let mut looks = None;
    let look = |connection: Pin<&mut H2Conn>, cx: &Context<'_>| {
        state.begin_look();
        let looks = looks.get_or_insert_with(|| CoalescingWaker::new(state, cx.waker()));
        match looks.poll_connection(connection) {
            Poll::Pending if state.is_restless() => Poll::Ready(None),
            ended => ended.map(Some),
        }
    };
    let end = |connection: Pin<&mut H2Conn>| connection.get_mut().retire();
    drive(connection, drain, |cx| state.retires(cx), look, end).await
}

/// Drives a connection by `look`, and asks it to end once the server stops or it `retires`. While the server runs that costs
/// one load each time.
async fn drive<C: Future, T>(
    connection: C,
    drain: &Drain,
    retires: impl Fn(&Context<'_>) -> bool,
    mut look: impl FnMut(Pin<&mut C>, &Context<'_>) -> Poll<T>,
    end: impl Fn(Pin<&mut C>),
) -> T {
    let mut connection = pin!(connection);
    let mut news = pin!(drain.news());
    let mut listening = false;
    let mut ended = false;
    poll_fn(move |cx: &mut Context<'_>| {
        let mut looked = Poll::Pending;
        let begins = !listening;
        if begins {
            listening = true;
            // Only to be woken; whether there is news is read from the flag.
            let _: Poll<()> = news.as_mut().poll(cx);
            // Pending input is read first: a connection without a request would be closed.
            looked = look(connection.as_mut(), cx);
        }
        if looked.is_ready() {
            return looked;
        }
        if !ended && (drain.has_begun() || retires(cx)) {
            ended = true;
            end(connection.as_mut());
        } else if begins {
            return looked;
        }
        look(connection.as_mut(), cx)
    })
    .await
}
