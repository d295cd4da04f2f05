//! Worker thread that serves connections, and the sweep that ends slow ones.

mod connections;
mod open_conns;

use std::io;
use std::net::TcpStream as StdStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::net::TcpStream;
use tokio::runtime::{self, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior};

use super::admission::Admission;
use super::conn_driver::Drain;
use super::conn_limits::ConnPermit;
use super::connection::{ConnectionState, SharedConn, WorkerClock};
use super::context::WorkerService;
use super::router::Router;
use super::tcp_conn::{SendQueue, TcpConn};
use crate::limit::Pressure;
use crate::net::{self, Peer};
use crate::server::WorkerState;
use crate::telemetry::QUEUE_TIME;
use connections::ConnTask;
use open_conns::{OpenConns, SharedConns};

/// Sockets that were accepted and wait for their worker to wake up.
const HANDOVER_MAX: usize = 256;
/// Time for the rest of a head once the server stops, in seconds.
const LAST_HEAD_SECONDS: u32 = 1;
/// Maximum number of sockets accepted before existing connections are polled again.
const TAKEN_AT_ONCE: u64 = 16;

/// A worker as the acceptor sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    sockets: mpsc::Sender<Handoff>,
    load: Arc<Load>,
    clock: Arc<WorkerClock>,
    connections: Arc<SharedConns>,
    started: oneshot::Receiver<io::Result<()>>,
    stop: oneshot::Sender<()>,
    /// Completes when the thread ends.
    ended: oneshot::Receiver<()>,
    thread: thread::JoinHandle<()>,
}

/// A socket on its way to its worker.
#[derive(Debug)]
pub(crate) struct Handoff {
    pub stream: StdStream,
    pub(crate) peer: Peer,
    /// When it was accepted.
    pub at: Instant,
    /// Its place among those of its address.
    pub place: ConnPermit,
}

/// Number of connections of a worker, including those on their way to it.
#[derive(Debug, Default)]
struct Load {
    connections: AtomicUsize,
    changed: Notify,
}

impl Worker {
    /// Starts a thread with a runtime of its own.
    pub fn start(
        number: usize,
        count: usize,
        router: Arc<Router>,
        drain: Arc<Drain>,
    ) -> io::Result<Self> {
        let (sockets, inbox) = mpsc::channel(HANDOVER_MAX);
        let (stop, stopped) = oneshot::channel();
        let load = Arc::new(Load::default());
        let clock = Arc::<WorkerClock>::default();
        let connections = Arc::<SharedConns>::default();
        let tasks = {
            let (load, clock) = (Arc::clone(&load), Arc::clone(&clock));
            let connections = Arc::clone(&connections);
            move |router: Arc<Router>| {
                let cells = router.endpoint.server.telemetry().cells();
                let local = Arc::new(WorkerState::new(cells));
                Tasks {
                    service: Rc::new(WorkerService::new(router, local)),
                    load,
                    clock,
                    connections: Rc::new(OpenConns::new(connections)),
                    admission: Rc::default(),
                    sends: Rc::default(),
                    drain,
                }
            }
        };
        let blocking = (router.endpoint.config.blocking_threads / count).max(1);
        let (ready, started) = oneshot::channel();
        let (ends, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name(format!("longshore-worker-{number}"))
            .spawn(move || {
                let _ends = ends;
                match local_runtime(blocking) {
                    Ok(runtime) => {
                        drop(ready.send(Ok(())));
                        runtime.block_on(tasks(router).run(inbox, stopped));
                        // Blocking tools that are still at it are left behind.
                        runtime.shutdown_background();
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })?;
        Ok(Self {
            sockets,
            load,
            clock,
            connections,
            started,
            stop,
            ended,
            thread,
        })
    }

    /// Waits until the worker has its runtime.
    ///
    /// # Errors
    ///
    /// Returns the error if the system refuses what the runtime needs.
    pub async fn has_started(&mut self) -> io::Result<()> {
        let started = (&mut self.started).await;
        started.unwrap_or_else(|_| Err(io::Error::other("a worker thread ended at its start")))
    }

    pub fn connections(&self) -> usize {
        self.load.connections.load(Ordering::Relaxed)
    }

    /// Hands over a socket, if the queue has capacity.
    ///
    /// # Errors
    ///
    /// Returns the socket if the queue is full. A worker that has ended takes and closes it.
    pub fn offer(&self, accepted: Handoff) -> Result<(), Handoff> {
        self.load.connections.fetch_add(1, Ordering::Relaxed);
        match self.sockets.try_send(accepted) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(accepted)) => {
                self.load.leave();
                Err(accepted)
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                self.load.leave();
                Ok(())
            }
        }
    }

    /// Creates a worker without a thread, and the receiver of its queue.
    #[cfg(test)]
    pub(super) fn without_thread(queue: usize) -> (Self, mpsc::Receiver<Handoff>) {
        let (sockets, inbox) = mpsc::channel(queue);
        let (stop, _) = oneshot::channel();
        let worker = Self {
            sockets,
            load: Arc::default(),
            clock: Arc::default(),
            connections: Arc::default(),
            started: oneshot::channel().1,
            stop,
            ended: oneshot::channel().1,
            thread: thread::spawn(|| {}),
        };
        (worker, inbox)
    }

    /// The connection that has been idle for longest, for a second at least; of those from one network, if one is named.
    pub(crate) fn longest_idle(&self, network: Option<u128>) -> Option<(u32, Arc<SharedConn>)> {
        self.connections.longest_idle(self.clock.now(), network)
    }

    /// Waits until no connection is left.
    pub async fn idle(&self) {
        loop {
            let changed = self.load.changed.notified();
            if self.connections() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Stops the thread and drops the connections that it still serves. A thread that a tool blocks is left behind after some
    /// time, so that the server stops all the same.
    pub async fn stop(self, within: Duration) {
        let _ = self.stop.send(());
        if tokio::time::timeout(within, self.ended).await.is_err() {
            tracing::error!(
                thread = self.thread.thread().name(),
                "a worker thread did not end in time, probably because a tool blocks it; use #[tool(blocking)] for code that blocks"
            );
        } else if self.thread.join().is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}

impl Load {
    fn leave(&self) {
        if self.connections.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.changed.notify_waiters();
        }
    }
}

/// What the tasks of one worker share.
struct Tasks {
    service: Rc<WorkerService>,
    load: Arc<Load>,
    clock: Arc<WorkerClock>,
    connections: Rc<OpenConns>,
    admission: Rc<Admission>,
    sends: Rc<SendQueue>,
    drain: Arc<Drain>,
}

impl Tasks {
    async fn run(self, mut inbox: mpsc::Receiver<Handoff>, stopped: oneshot::Receiver<()>) {
        let metrics = &self.service.router.telemetry.metrics;
        let queue_time = metrics.timing(&QUEUE_TIME, &[]);
        net::spawn_local(sweep(
            Rc::clone(&self.service),
            Arc::clone(&self.clock),
            Rc::clone(&self.connections),
            Arc::clone(&self.drain),
        ));
        let admission = Rc::clone(&self.admission);
        tokio::task::spawn_local(async move { admission.keep().await });
        let sends = Rc::clone(&self.sends);
        tokio::task::spawn_local(async move { sends.keep().await });
        let random = RandomState::default();
        let take = async {
            let mut taken = 0_u64;
            while let Some(accepted) = inbox.recv().await {
                taken += 1;
                queue_time.record(accepted.at.elapsed());
                let noise = std::hash::BuildHasher::hash_one(&random, taken);
                self.adopt(accepted, noise);
                if taken.is_multiple_of(TAKEN_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            () = take => {}
            _ = stopped => {}
        }
    }

    /// Gives a socket a task of its own.
    fn adopt(&self, accepted: Handoff, noise: u64) {
        let router = &self.service.router;
        let Handoff {
            stream,
            peer,
            place,
            ..
        } = accepted;
        let load = LoadGuard(Arc::clone(&self.load));
        if has_gone(&stream) {
            return;
        }
        let guards = (load, router.telemetry.life.client(), place);
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => TcpConn::new(stream, Rc::clone(&self.sends)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be served");
                return;
            }
        };
        // A tenth more or less, so that connections that came together do not go together.
        let life = u64::from(router.endpoint.config.limits.connection_seconds);
        let life = life - life / 10 + noise % (life / 5).max(1);
        let life = u32::try_from(life).unwrap_or(u32::MAX);
        let retire_at = self.clock.now().saturating_add(life);
        let clock = Arc::clone(&self.clock);
        let state = Rc::new(ConnectionState::new(clock, peer, retire_at));
        let serving = ConnTask {
            state: Rc::clone(&state),
            service: Rc::clone(&self.service),
            drain: Arc::clone(&self.drain),
        };
        let admission = Rc::clone(&self.admission);
        let task = serving.in_turn(stream, Box::new(guards), admission);
        let task = tokio::task::spawn_local(task);
        state.shared().set_task(task.abort_handle());
        self.connections.insert(state);
    }
}

/// Creates the runtime of this thread. Its tasks stay on the thread, so what they share needs no locks.
fn local_runtime(blocking_threads: usize) -> io::Result<LocalRuntime> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads)
        .build_local(LocalOptions::default())
}

/// Returns true if the client has closed its connection already, so that it needs no setup.
fn has_gone(stream: &StdStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Counts a connection for as long as it lives.
struct LoadGuard(Arc<Load>);

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Interval of the sweep. Seconds in which the thread did not run are skipped: platforms freeze processes between requests, and
/// the next request may be unread in the socket of a connection that looks idle.
fn sweep_interval() -> Interval {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    seconds
}

/// Advances the clocks once a second and ends overdue connections.
async fn sweep(
    service: Rc<WorkerService>,
    clock: Arc<WorkerClock>,
    connections: Rc<OpenConns>,
    drain: Arc<Drain>,
) {
    let router = &service.router;
    let limits = &router.endpoint.server.limits;
    let mut seconds = sweep_interval();
    // The first tick completes immediately.
    seconds.tick().await;
    loop {
        seconds.tick().await;
        clock.tick();
        service.local.update_clock();
        // What arrived meanwhile is read before anything counts as overdue.
        tokio::task::yield_now().await;
        let is_short = limits.memory() != Pressure::None;
        let hits = &limits.hits;
        connections.sweep(|state| {
            if is_short {
                state.retire_soon();
            }
            if let Some(overdue) = state.overdue(&router.endpoint.config.limits, hits) {
                tracing::debug!(?overdue, "a connection took too long and was closed");
                hits.count(overdue.limit());
                state.shared().cut();
            } else if drain.has_begun() && state.awaits_head(LAST_HEAD_SECONDS) {
                state.shared().cut();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_a_tool_blocks_is_left_behind() {
        let (mut worker, _inbox) = Worker::without_thread(1);
        worker.stop(Duration::from_secs(1)).await;
        (worker, _) = Worker::without_thread(1);
        let (_ends, ended) = oneshot::channel();
        worker.ended = ended;
        worker.thread = thread::spawn(thread::park);
        let began = tokio::time::Instant::now();
        worker.stop(Duration::from_secs(1)).await;
        assert_eq!(began.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_thread_did_not_run_is_not_counted() {
        let mut seconds = sweep_interval();
        seconds.tick().await;
        tokio::time::advance(Duration::from_millis(600_500)).await;
        seconds.tick().await;
        let began = tokio::time::Instant::now();
        seconds.tick().await;
        assert!(499 <= began.elapsed().as_millis());
    }

    #[test]
    fn only_who_has_closed_without_a_word_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let connect = || {
            let client = StdStream::connect(listener.local_addr().expect("bound"));
            let (socket, _) = listener.accept().expect("a client");
            (client.expect("it listens"), socket)
        };
        // Blocking, so that what has been done is seen for certain.
        let (silent, socket) = connect();
        socket.set_nonblocking(true).expect("a setting");
        assert!(!has_gone(&socket));
        drop(silent);
        let (gone, socket) = connect();
        drop(gone);
        assert!(has_gone(&socket));
        let (mut hurried, socket) = connect();
        hurried.write_all(b"GET").expect("sent");
        drop(hurried);
        assert!(!has_gone(&socket));
    }
}
