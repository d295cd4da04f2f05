//! Fair queue for polling untrusted connections, so that they cannot starve established ones.
//!
//! A worker polls one connection at a time. A thousand always-ready connections, which for example reset streams at
//! once, would all run between two polls of a good one. Only trusted connections, whose requests recently led to
//! responses ([`ConnectionState::is_trusted`]), are polled whenever they are ready.
//!
//! All others share a few turns per round of the worker and queue when those are used up. New connections have one
//! queue. Connections that had turns without a response, or that reset streams, have another, with a quarter of the
//! turns.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::connection::{ConnectionState, QueueState};

/// Turns per round, in which every task runs that was ready at its start. The trusted connections polled in the
/// previous round add as many, so that newcomers to a busy server get a share.
const TURNS: usize = 8;
/// Divisor: one turn in this many is kept for connections that are not new, while any of them wait.
const PART_OLD: usize = 4;

/// The line of one worker.
#[derive(Debug)]
pub(super) struct Admission {
    line: RefCell<Line>,
    /// Number of polls of trusted connections in this round.
    looks: Cell<usize>,
    used_up: Notify,
}

#[derive(Debug)]
struct Line {
    /// Turns that are left of this round.
    left: usize,
    /// Queues of new and of other connections; each connection is queued at most once.
    new: VecDeque<Waiting>,
    old: VecDeque<Waiting>,
}

type Waiting = (Rc<ConnectionState>, Waker);

impl Default for Admission {
    fn default() -> Self {
        Self {
            line: RefCell::new(Line {
                left: TURNS,
                new: VecDeque::new(),
                old: VecDeque::new(),
            }),
            looks: Cell::new(0),
            used_up: Notify::new(),
        }
    }
}

impl Admission {
    /// Returns true if a connection may be polled now. Otherwise `cx` is woken at its turn.
    #[inline]
    pub(super) fn lets_pass(&self, state: &Rc<ConnectionState>, cx: &Context<'_>) -> bool {
        if state.is_trusted() {
            self.looks.set(self.looks.get() + 1);
            return true;
        }
        self.takes_turn(state, cx)
    }

    fn takes_turn(&self, state: &Rc<ConnectionState>, cx: &Context<'_>) -> bool {
        match state.turn() {
            QueueState::Come => {
                state.takes_turn();
                return true;
            }
            QueueState::Awaited => return false,
            QueueState::None => {}
        }
        let mut line = self.line();
        let passes = 0 < line.left;
        if passes {
            line.left -= 1;
            state.takes_turn();
        } else {
            state.has_turn(QueueState::Awaited);
            let waiting = (Rc::clone(state), cx.waker().clone());
            match state.is_new() {
                true => line.new.push_back(waiting),
                false => line.old.push_back(waiting),
            }
        }
        if line.left == 0 {
            self.used_up.notify_one();
        }
        passes
    }

    /// Gives turns, round after round, for as long as any are wanted. Only in a task of its own is it in line with the
    /// others: what the turns of a round have led to, such as a task for each stream, is done before the next but one.
    pub(super) async fn keep(&self) {
        loop {
            self.used_up.notified().await;
            self.looks.set(0);
            loop {
                to_the_end_of_the_line().await;
                let given = self.begin_round();
                if given == 0 {
                    break;
                }
            }
        }
    }

    fn begin_round(&self) -> usize {
        let turns = TURNS + self.looks.take();
        let mut line = self.line();
        let Line { left, new, old } = &mut *line;
        let kept = old.len().min(turns / PART_OLD);
        let of_new = new.len().min(turns - kept);
        let of_old = old.len().min(turns - of_new);
        for (state, waker) in new.drain(..of_new).chain(old.drain(..of_old)) {
            state.has_turn(QueueState::Come);
            waker.wake();
        }
        let given = of_new + of_old;
        *left = match given {
            // No connection waited, so later ones get all turns.
            0 => TURNS,
            given => turns - given,
        };
        given
    }

    fn line(&self) -> RefMut<'_, Line> {
        self.line.borrow_mut()
    }
}

/// Waits until all tasks that are ready now have run. tokio's `yield_now` lasts only until the runtime polls its
/// sockets, which happens after 61 tasks.
async fn to_the_end_of_the_line() {
    let mut there = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut there, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use super::*;
    use crate::transport::http::connection::WorkerClock;

    fn connection() -> Rc<ConnectionState> {
        let clock = Arc::new(WorkerClock::default());
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Rc::new(ConnectionState::new(clock, peer.into(), 1_000))
    }

    #[test]
    fn strangers_have_so_many_turns_a_round_and_then_stand_in_line() {
        let admission = Admission::default();
        let cx = Context::from_waker(Waker::noop());
        let all: Vec<_> = (0..TURNS * 2 + 1).map(|_| connection()).collect();
        let pass = || {
            let passed = all.iter().map(|state| admission.lets_pass(state, &cx));
            passed.filter(|passes| *passes).count()
        };
        assert_eq!(pass(), TURNS);
        // Who has had a turn stands at the end for another one; nobody passes those who wait.
        assert_eq!(pass(), 0);
        assert_eq!(admission.begin_round(), TURNS);
        assert_eq!(pass(), TURNS);
        assert_eq!(admission.line().new.len(), TURNS + 1);
        assert!(
            all[TURNS..TURNS * 2]
                .iter()
                .all(|s| s.turn() == QueueState::None)
        );
        assert_eq!(admission.begin_round(), TURNS);
        assert_eq!(admission.begin_round(), 1);
        assert_eq!(admission.begin_round(), 0);
        assert_eq!(admission.line().left, TURNS);
    }

    #[test]
    fn who_has_just_come_goes_first_and_leaves_the_others_a_quarter() {
        let admission = Admission::default();
        let cx = Context::from_waker(Waker::noop());
        let bad: Vec<_> = (0..100).map(|_| connection()).collect();
        for state in &bad {
            // One way to be known is as good as the other.
            match admission.line().old.len() % 2 {
                0 => (0..100).for_each(|_| state.takes_turn()),
                _ => state.takes_back(1),
            }
            admission.lets_pass(state, &cx);
        }
        assert_eq!(admission.line().old.len(), 100 - TURNS);
        let good: Vec<_> = (0..TURNS).map(|_| connection()).collect();
        for state in &good {
            assert!(!admission.lets_pass(state, &cx));
        }
        assert_eq!(admission.begin_round(), TURNS);
        let come = |all: &[Rc<ConnectionState>]| {
            let come = all.iter().filter(|state| state.turn() == QueueState::Come);
            come.count()
        };
        let kept = TURNS / PART_OLD;
        assert_eq!((come(&good), come(&bad)), (TURNS - kept, kept));
        admission.begin_round();
        assert_eq!(come(&good), TURNS);
    }

    #[test]
    fn who_is_trusted_waits_for_nobody_and_takes_no_turn() {
        let admission = Admission::default();
        let cx = Context::from_waker(Waker::noop());
        let good = connection();
        good.has_answered();
        assert!((0..100).all(|_| admission.lets_pass(&good, &cx)));
        assert_eq!(admission.line().left, TURNS);
        let strangers: Vec<_> = (0..100).map(|_| connection()).collect();
        for stranger in &strangers {
            admission.lets_pass(stranger, &cx);
        }
        assert!(admission.lets_pass(&good, &cx));
        // Whoever comes gets as many turns more, once.
        assert_eq!(admission.begin_round(), 100 - TURNS);
        assert_eq!(admission.begin_round(), 0);
        assert_eq!(admission.line().left, TURNS);
        // Trust is lost faster than it is won.
        good.takes_back(1);
        admission.line().left = 0;
        assert!(!admission.lets_pass(&good, &cx));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn everybody_comes_to_a_turn() {
        let admission = Rc::new(Admission::default());
        let keeping = tokio::task::spawn_local({
            let admission = Rc::clone(&admission);
            async move { admission.keep().await }
        });
        let waiting: Vec<_> = (0..500)
            .map(|_| {
                let (state, admission) = (connection(), Rc::clone(&admission));
                tokio::task::spawn_local(async move {
                    for _ in 0..3 {
                        poll_fn(|cx| match admission.lets_pass(&state, cx) {
                            true => Poll::Ready(()),
                            false => Poll::Pending,
                        })
                        .await;
                    }
                })
            })
            .collect();
        for waits in waiting {
            waits.await.expect("no panic");
        }
        for _ in 0..4 {
            to_the_end_of_the_line().await;
        }
        assert_eq!(admission.line().left, TURNS);
        keeping.abort();
    }

    #[tokio::test]
    async fn a_round_ends_when_all_have_run_that_were_ready() {
        let ran = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for _ in 0..1000 {
            let ran = Arc::clone(&ran);
            tokio::spawn(async move { ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed) });
        }
        let round = tokio::spawn(async move {
            to_the_end_of_the_line().await;
            ran.load(std::sync::atomic::Ordering::Relaxed)
        });
        assert_eq!(round.await.expect("no panic"), 1000);
    }
}
