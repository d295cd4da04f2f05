//! The open connections of a worker: for its sweep, and as the acceptor sees them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::super::connection::{ConnectionState, SharedConn};
use crate::limit::subnet;
use crate::net::Mutex;

/// Ended connections are pruned once a second, or at this count when half of them have ended.
const KEPT_MIN: usize = 1024;

/// Open connections of a worker.
pub(super) struct OpenConns {
    states: RefCell<Vec<Rc<ConnectionState>>>,
    shared: Arc<SharedConns>,
}

/// Open connections of a worker, as the acceptor sees them.
#[derive(Debug, Default)]
pub(super) struct SharedConns(Mutex<Vec<Arc<SharedConn>>>);

impl OpenConns {
    pub(super) fn new(shared: Arc<SharedConns>) -> Self {
        Self {
            states: RefCell::default(),
            shared,
        }
    }

    pub(super) fn insert(&self, state: Rc<ConnectionState>) {
        let mut states = self.states.borrow_mut();
        let mut shared = self.shared.0.lock();
        if KEPT_MIN <= states.len() && states.len() == states.capacity() {
            states.retain(|state| !state.shared().is_finished());
            shared.retain(|conn| !conn.is_finished());
            // Unless half of them are gone, it is time for more room.
            if states.capacity() / 2 < states.len() {
                let more = states.len();
                states.reserve(more);
            }
        }
        shared.push(Arc::clone(state.shared()));
        states.push(state);
    }

    /// Forgets the connections that have ended, and checks the others.
    pub(super) fn sweep(&self, mut check: impl FnMut(&ConnectionState)) {
        let mut states = self.states.borrow_mut();
        states.retain(|state| !state.shared().is_finished());
        self.shared.0.lock().retain(|conn| !conn.is_finished());
        states.iter().for_each(|state| check(state));
    }
}

impl SharedConns {
    /// The connection that has been idle for longest, for a second at least; of those from one network, if one is named.
    pub(super) fn longest_idle(
        &self,
        now: u32,
        network: Option<u128>,
    ) -> Option<(u32, Arc<SharedConn>)> {
        let conns = self.0.lock();
        let longest = conns
            .iter()
            .filter(|conn| !conn.is_finished())
            .filter(|conn| network.is_none_or(|network| network == subnet(conn.peer().address)))
            .filter_map(|conn| Some((conn.idle_for(now)?, conn)))
            .filter(|(seconds, _)| *seconds > 0)
            .max_by_key(|(seconds, _)| *seconds);
        longest.map(|(seconds, conn)| (seconds, Arc::clone(conn)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::super::connection::Event;
    use super::super::super::connection::WorkerClock;
    use super::*;

    /// The connections of a worker whose tasks never do anything, and the seconds that pass.
    struct Opened {
        clock: Arc<WorkerClock>,
        shared: Arc<SharedConns>,
        open: OpenConns,
    }

    impl Opened {
        fn new() -> Self {
            let shared = Arc::<SharedConns>::default();
            Self {
                clock: Arc::default(),
                open: OpenConns::new(Arc::clone(&shared)),
                shared,
            }
        }

        fn add(&self, last: u8) -> Rc<ConnectionState> {
            let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
            let state = ConnectionState::new(Arc::clone(&self.clock), peer.into(), 1_000);
            let state = Rc::new(state);
            let task = tokio::task::spawn_local(std::future::pending::<()>());
            state.shared().set_task(task.abort_handle());
            self.open.insert(Rc::clone(&state));
            state
        }

        fn longest_idle(&self, network: Option<u128>) -> Option<(u32, IpAddr)> {
            let longest = self.shared.longest_idle(self.clock.now(), network);
            longest.map(|(seconds, conn)| (seconds, conn.peer().address))
        }

        /// How many connections are kept, for the worker and for the acceptor.
        fn kept(&self) -> (usize, usize) {
            (self.open.states.borrow().len(), self.shared.0.lock().len())
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_longest_idle_connection_is_found_and_one_that_works_is_not() {
        let opened = Opened::new();
        let (one, two) = (opened.add(1), opened.add(2));
        assert_eq!(opened.longest_idle(None), None, "for a second at least");
        opened.clock.tick();
        two.apply(Event::Begins { http2: true });
        opened.clock.tick();
        let (first, second) = (one.shared().peer().address, two.shared().peer().address);
        assert_eq!(opened.longest_idle(None), Some((2, first)));
        assert_eq!(opened.longest_idle(Some(subnet(second))), Some((1, second)));
        one.apply(Event::PartOfHead);
        assert_eq!(opened.longest_idle(None), Some((1, second)));
        // A stream, and then a response that its client reads slowly.
        two.apply(Event::Request);
        two.open_stream();
        let slow = two.begin_slow_response();
        two.close_stream();
        opened.clock.tick();
        assert_eq!(opened.longest_idle(None), None);
        two.end_slow_response(slow);
        opened.clock.tick();
        assert_eq!(opened.longest_idle(None), Some((1, second)));
    }

    #[tokio::test(flavor = "local")]
    async fn connections_that_have_ended_are_forgotten_by_both_sides() {
        let opened = Opened::new();
        let ended = opened.add(1);
        let _open = opened.add(2);
        ended.shared().cut();
        tokio::task::yield_now().await;
        let mut checked = 0;
        opened.open.sweep(|state| {
            assert!(!state.shared().is_cut());
            checked += 1;
        });
        assert_eq!((checked, opened.kept()), (1, (1, 1)));
        // Between two sweeps, too, as soon as there is no room left for more.
        for _ in 0..20 {
            for _ in 0..100 {
                opened.add(3).shared().cut();
            }
            tokio::task::yield_now().await;
        }
        let (states, shared) = opened.kept();
        assert!(states == shared && states <= KEPT_MIN + 100, "{states}");
    }
}
