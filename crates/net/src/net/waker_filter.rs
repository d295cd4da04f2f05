//! Suppression of unnecessary wake-ups.
//!
//! hyper wakes the connection to read the next chunk whenever a chunk of a request body is taken. It also does so after
//! the last chunk. Most bodies have one chunk. Nearly each request therefore polled its connection a second time
//! without work, which is a tenth of the request's cost.
//!
//! A connection is therefore polled with a [`ConnectionWaker`]. While a chunk is taken ([`take_quietly`]), wake-ups
//! that result on the same thread are deferred. After the last chunk they are dropped.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Wakes the task of a connection, unless that is needless.
#[derive(Debug)]
pub struct ConnectionWaker {
    task: Waker,
}

impl ConnectionWaker {
    /// Creates a waker that wraps a task's waker.
    pub fn standing_for(task: &Waker) -> Waker {
        let task = task.clone();
        Waker::from(Arc::new(Self { task }))
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        if let Some(waker) = hold_back(self) {
            waker.task.wake_by_ref();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(waker) = hold_back(Arc::clone(self)) {
            waker.task.wake_by_ref();
        }
    }
}

/// Handling of wake-ups on this thread.
#[derive(Default)]
enum Wakes {
    #[default]
    Pass,
    Hold,
    Held(Arc<ConnectionWaker>),
}

thread_local! {
    static WAKES: Cell<Wakes> = const { Cell::new(Wakes::Pass) };
}

/// Holds a wake-up back, if that is asked for; gives it back otherwise.
#[inline]
fn hold_back(waker: Arc<ConnectionWaker>) -> Option<Arc<ConnectionWaker>> {
    let hold = |wakes: &Cell<Wakes>| match wakes.take() {
        Wakes::Pass => Some(waker),
        Wakes::Hold => {
            wakes.set(Wakes::Held(waker));
            None
        }
        held @ Wakes::Held(_) => {
            wakes.set(held);
            Some(waker)
        }
    };
    WAKES.with(hold)
}

/// Lets wake-ups pass again when it is dropped, also by a panic, with the one that was held back.
struct Holding;

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        if let Wakes::Held(waker) = WAKES.take() {
            waker.task.wake_by_ref();
        }
    }
}

/// Takes something from hyper. The connection is woken by that only if `wants_more` says so afterwards.
#[inline]
pub(super) fn take_quietly<B, T>(
    body: &mut B,
    take: impl FnOnce(&mut B) -> T,
    wants_more: impl FnOnce(&B) -> bool,
) -> T {
    WAKES.set(Wakes::Hold);
    let _holding = Holding;
    let taken = take(body);
    if !wants_more(body) {
        WAKES.take();
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn waker(self: &Arc<Self>) -> Waker {
            ConnectionWaker::standing_for(&Waker::from(Arc::clone(self)))
        }

        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_connection_is_woken_at_once_where_nothing_is_taken() {
        let count = Arc::new(Count::default());
        let waker = count.waker();
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn behind_the_last_piece_a_connection_is_not_woken_and_behind_others_it_is() {
        let count = Arc::new(Count::default());
        let waker = count.waker();
        let wake = |_: &mut ()| waker.wake_by_ref();
        take_quietly(&mut (), wake, |()| false);
        assert_eq!(count.get(), 0);
        take_quietly(&mut (), wake, |()| true);
        assert_eq!(count.get(), 1);
        take_quietly(&mut (), |_| (), |()| true);
        assert_eq!(count.get(), 1);
        waker.wake();
        assert_eq!(count.get(), 2, "nothing is held back afterwards");
    }

    #[test]
    fn of_others_that_are_woken_meanwhile_none_is_forgotten() {
        let (mine, other) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (waker, theirs) = (mine.waker(), other.waker());
        let wake = |_: &mut ()| {
            waker.wake_by_ref();
            theirs.wake_by_ref();
            let elsewhere = waker.clone();
            let woken = std::thread::spawn(move || elsewhere.wake()).join();
            assert!(woken.is_ok());
        };
        take_quietly(&mut (), wake, |()| false);
        assert_eq!(other.get(), 1);
        assert_eq!(mine.get(), 1, "from another thread");
    }

    #[test]
    fn what_is_held_back_when_something_panics_passes() {
        let count = Arc::new(Count::default());
        let waker = count.waker();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            take_quietly(
                &mut (),
                |_| {
                    waker.wake_by_ref();
                    panic!("broken")
                },
                |()| false,
            )
        }));
        assert!(caught.is_err());
        assert_eq!(count.get(), 1);
    }
}
