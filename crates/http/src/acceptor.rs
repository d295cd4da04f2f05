//! Accept loop, and eviction of idle connections at the connection limit.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::task::unconstrained;

use super::config::{HttpConfig, HttpLimits};
use super::conn_limits::ConnLimits;
use super::listener::{AcceptedSocket, BACKLOG, BoundSocket};
use super::worker::{Handoff, Worker};
use crate::limit::{Limit, LimitCounters, subnet};
use crate::telemetry::LogInterval;

/// Delay when the system has no free sockets or the connection limit is reached.
const PAUSE: Duration = Duration::from_millis(50);
/// Minimum interval between log entries about one condition that recurs many times a second.
pub(super) const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Time for a closed connection to be released.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// Takes connections, and gives each to the worker that has the fewest.
#[derive(Debug)]
pub(crate) struct Acceptor<'s> {
    door: &'s BoundSocket,
    workers: &'s [Worker],
    hits: &'s LimitCounters,
    max: usize,
    peers: ConnLimits,
    /// The connection that waits until there is capacity for it.
    arrived: Option<AcceptedSocket>,
    /// The connection that waits until a worker has room for it.
    handed: Option<Handoff>,
    /// An open file to give up when there can be no more of them: so that a connection can be taken, and closed, and
    /// its client need not wait.
    reserve: Option<File>,
    /// Log entries about the connection limit.
    full: LogInterval,
    /// Log entries about exhausted sockets.
    starved: LogInterval,
}

impl<'s> Acceptor<'s> {
    pub fn new(
        door: &'s BoundSocket,
        workers: &'s [Worker],
        config: &HttpConfig,
        hits: &'s LimitCounters,
    ) -> Self {
        let limits = &config.limits;
        Self {
            door,
            workers,
            hits,
            max: max_connections(limits),
            peers: ConnLimits::new(
                limits.connections_per_address,
                config.trusted_proxies.clone(),
            ),
            arrived: None,
            handed: None,
            reserve: reserve(),
            full: LogInterval::new(TOLD_AGAIN_AFTER),
            starved: LogInterval::new(TOLD_AGAIN_AFTER),
        }
    }

    /// Takes connections for ever.
    pub async fn run(&mut self) {
        loop {
            match self.door.accept().await {
                Ok(arrived) => {
                    self.arrived = Some(arrived);
                    self.make_room().await;
                    self.take_arrived().await;
                }
                Err(error) => self.cannot_accept(&error).await,
            }
        }
    }

    /// Takes the connections that wait in the kernel's accept queue, regardless of the limit of connections. Those that arrive
    /// meanwhile may refill it without end.
    pub async fn take_waiting(&mut self) {
        self.hand_over().await;
        self.take_arrived().await;
        // An unconstrained future is not made to yield after some number of connections, which would look as if none waited.
        for _ in 0..BACKLOG {
            let Some(Ok(arrived)) = unconstrained(self.door.accept()).now_or_never() else {
                return;
            };
            self.take(arrived).await;
        }
    }

    /// Waits until there is capacity for a connection, and closes the longest idle one. While none is idle, new clients
    /// wait in the kernel's accept queue.
    async fn make_room(&mut self) {
        let mut first = true;
        loop {
            let open: usize = self.workers.iter().map(Worker::connections).sum();
            if open < self.max {
                return;
            }
            if std::mem::take(&mut first) {
                self.hits.count(Limit::Connections);
            }
            if self.full.passes() {
                tracing::warn!(
                    max = self.max,
                    setting = Limit::Connections.setting(),
                    "the limit of connections is reached: idle connections are closed for new ones"
                );
            }
            let ended = self.end_longest_idle(None);
            tokio::time::sleep(if ended { SHORT_PAUSE } else { PAUSE }).await;
        }
    }

    async fn take_arrived(&mut self) {
        if let Some(arrived) = self.arrived.take() {
            self.take(arrived).await;
        }
    }

    async fn take(&mut self, arrived: AcceptedSocket) {
        let peer = arrived.peer();
        let (place, too_many) = self.peers.enter(peer.address);
        if too_many {
            self.hits.count(Limit::ConnectionsPerAddress);
            if !self.end_longest_idle(Some(subnet(peer.address))) {
                tracing::debug!(
                    peer = %peer.address,
                    setting = Limit::ConnectionsPerAddress.setting(),
                    "a connection was closed: its address has as many as it may have"
                );
                return;
            }
        }
        let stream = match arrived.into_socket() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection ended before it was served");
                return;
            }
        };
        self.handed = Some(Handoff {
            stream,
            peer,
            at: Instant::now(),
            place,
        });
        self.hand_over().await;
    }

    /// Assigns the connection to the least loaded worker that accepts it. A blocked worker with a full queue does not delay
    /// others.
    async fn hand_over(&mut self) {
        let mut order: Vec<_> = self.workers.iter().collect();
        while let Some(mut handed) = self.handed.take() {
            order.sort_by_key(|worker| worker.connections());
            for worker in &order {
                match worker.offer(handed) {
                    Ok(()) => return,
                    Err(refused) => handed = refused,
                }
            }
            if order.is_empty() {
                return;
            }
            self.handed = Some(handed);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The system has no socket for the next connection.
    async fn cannot_accept(&mut self, error: &io::Error) {
        if self.starved.passes() {
            tracing::warn!(
                %error,
                setting = Limit::OpenFiles.setting(),
                "a connection could not be accepted: those that are idle are closed for it; allow the process more open files, or fewer connections (http.limits.connections)"
            );
        }
        self.hits.count(Limit::OpenFiles);
        if !self.end_longest_idle(None) && self.reserve.take().is_some() {
            // Better closed than left waiting.
            if let Ok(Ok(refused)) = tokio::time::timeout(SHORT_PAUSE, self.door.accept()).await {
                drop(refused);
            }
        }
        tokio::time::sleep(PAUSE).await;
        if self.reserve.is_none() {
            self.reserve = reserve();
        }
    }

    /// Ends the connection that has been idle for longest, if any has been for a second.
    fn end_longest_idle(&self, network: Option<u128>) -> bool {
        let longest = self
            .workers
            .iter()
            .filter_map(|worker| worker.longest_idle(network))
            .max_by_key(|(seconds, _)| *seconds);
        match longest {
            Some((_, connection)) => {
                connection.cut();
                true
            }
            None => false,
        }
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The configured number, or what the process may have open less a reserve.
fn max_connections(limits: &HttpLimits) -> usize {
    const RESERVE: usize = 512;
    /// Fewer connections than this are worth a warning.
    const MANY: usize = 4096;
    #[cfg(unix)]
    let files = raise_open_files(limits.connections.saturating_add(RESERVE));
    #[cfg(not(unix))]
    let files = None::<usize>;
    let Some(files) = files else {
        return limits.connections;
    };
    let max = files.saturating_sub(RESERVE).max(64);
    if max < limits.connections.min(MANY) {
        tracing::warn!(
            open_files = files,
            connections = max,
            setting = Limit::Connections.setting(),
            "the hard limit of open files permits fewer connections than http.limits.connections; raise it (ulimit -Hn, \
             LimitNOFILE, --ulimit nofile), or lower the setting"
        );
    }
    limits.connections.min(max)
}

/// Raises the soft limit of open files, as far as it is needed and the hard limit permits: many systems have a soft limit of
/// 1024. Returns the limit, if there is one.
#[cfg(unix)]
fn raise_open_files(needed: usize) -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    if let Some(raised) = raised(before.current, before.maximum, needed as u64) {
        let limit = Rlimit {
            current: Some(raised),
            ..before
        };
        match setrlimit(Resource::Nofile, limit) {
            Ok(()) => {
                if let Some(soft) = before.current {
                    crate::net::keep_open_file_limit(soft);
                }
                tracing::debug!(
                    from = before.current,
                    to = raised,
                    "the soft limit of open files was raised"
                );
            }
            Err(error) => tracing::debug!(%error, "the soft limit of open files cannot be raised"),
        }
    }
    let files = getrlimit(Resource::Nofile).current;
    files.and_then(|files| usize::try_from(files).ok())
}

/// The soft limit to set, if the current one is too low. `None` is no limit.
#[cfg(unix)]
fn raised(current: Option<u64>, maximum: Option<u64>, needed: u64) -> Option<u64> {
    let possible = maximum.map_or(needed, |maximum| needed.min(maximum));
    current
        .is_some_and(|current| current < possible)
        .then_some(possible)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::transport::http::serve;

    #[cfg(unix)]
    #[test]
    fn the_soft_limit_of_open_files_is_raised_as_far_as_needed_and_permitted() {
        let soft = |current| raised(Some(current), Some(4096), 2000);
        assert_eq!(
            [soft(1024), soft(2000), soft(4096)],
            [Some(2000), None, None]
        );
        assert_eq!(raised(Some(1024), Some(4096), 20_512), Some(4096));
        assert_eq!(raised(Some(4096), Some(4096), 20_512), None);
        assert_eq!(raised(Some(256), None, 20_512), Some(20_512));
        assert_eq!(raised(None, None, 20_512), None);
    }

    #[tokio::test]
    async fn a_worker_that_is_blocked_does_not_keep_connections_from_the_others() {
        let (door, _clients) = with_clients(4).await;
        let (blocked, _unread) = Worker::without_thread(1);
        let (free, inbox) = Worker::without_thread(8);
        let hits = LimitCounters::new(&crate::telemetry::Metrics::default());
        let workers = [blocked, free];
        let mut acceptor = Acceptor::new(&door, &workers, &HttpConfig::default(), &hits);
        // The first is the one with the fewest, and has room for one.
        acceptor.take_waiting().await;
        assert_eq!(inbox.len(), 3);
    }

    /// A socket that listens, and clients that wait for it. One more has been taken, so that tokio knows of them.
    async fn with_clients(count: usize) -> (BoundSocket, Vec<std::net::TcpStream>) {
        let listener = serve::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let door = BoundSocket::port(listener).expect("settings");
        let address = door.address().expect("bound").expect("a port");
        let connect = |_| std::net::TcpStream::connect(address).expect("it listens");
        let clients = (0..=count).map(connect).collect();
        door.accept().await.expect("the first client");
        (door, clients)
    }

    /// More than tokio lets a task accept before it has to yield.
    #[tokio::test]
    async fn every_connection_that_waits_is_taken() {
        const CLIENTS: usize = 140;
        let (door, _clients) = with_clients(CLIENTS).await;
        let (worker, inbox) = Worker::without_thread(CLIENTS);
        let hits = LimitCounters::new(&crate::telemetry::Metrics::default());
        let workers = [worker];
        let mut acceptor = Acceptor::new(&door, &workers, &HttpConfig::default(), &hits);
        acceptor.take_waiting().await;
        assert_eq!(inbox.len(), CLIENTS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_a_worker_is_taken_too() {
        let (door, _clients) = with_clients(2).await;
        let (worker, mut inbox) = Worker::without_thread(1);
        let hits = LimitCounters::new(&crate::telemetry::Metrics::default());
        let workers = [worker];
        let mut acceptor = Acceptor::new(&door, &workers, &HttpConfig::default(), &hits);
        let running = tokio::time::timeout(2 * PAUSE, acceptor.run()).await;
        assert!(running.is_err() && inbox.try_recv().is_ok() && inbox.is_empty());
        acceptor.take_waiting().await;
        assert_eq!(inbox.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_capacity_is_taken_too() {
        let (door, _client) = with_clients(1).await;
        let (worker, inbox) = Worker::without_thread(1);
        let hits = LimitCounters::new(&crate::telemetry::Metrics::default());
        let workers = [worker];
        let mut acceptor = Acceptor::new(&door, &workers, &HttpConfig::default(), &hits);
        acceptor.max = 0;
        let running = tokio::time::timeout(2 * PAUSE, acceptor.run()).await;
        assert!(running.is_err() && inbox.is_empty());
        acceptor.take_waiting().await;
        assert_eq!(inbox.len(), 1);
    }
}
