//! One measured run of one workload against one server.
//!
//! Every connection (or HTTP/2 stream) is a task that sends its request repeatedly and waits for each response. All
//! tasks first open what they need (connection, session) and warm up. Then the measurement window begins, in which
//! responses are counted. The server's CPU time is read at both edges of the same window.
//!
//! # Failure
//!
//! An invalid response or a broken connection is counted separately, and never as a response; the first one is kept
//! verbatim. Everything is bounded: the window, the setup ([`SETUP_WITHIN`]), the last responses
//! ([`LAST_ANSWERS_WITHIN`]), and the number of tolerated failures.

mod gate;
mod pace;
mod slot;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use gate::Gate;
pub(crate) use pace::Pace;
pub(crate) use slot::SlotError;
use slot::{Slot, SlotReport};

use crate::measure::Histogram;
use crate::process::{ProcessorClock, ProcessorTime};
use crate::target::Target;
use crate::wire::{Multiplexed, Post, WireError};
use crate::workload::{Session, Workload};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The endpoint.
    pub(crate) target: Target,
    /// Requests to send.
    pub(crate) workload: Workload,
    /// Uses one HTTP/2 connection for all, instead of HTTP/1.1 connections.
    pub(crate) http2: bool,
    /// Connections, or streams of the one connection.
    pub(crate) slots: u32,
    /// Closed loop or fixed rate.
    pub(crate) pace: Pace,
    /// When it ends.
    pub(crate) until: Until,
    /// Load before the window opens.
    pub(crate) warm_up: Duration,
    /// Source of the sessions.
    pub(crate) sessions: Sessions,
    /// Expected response.
    pub(crate) expected: Expected,
    /// Credentials that are assigned to the slots in turn; empty for none.
    pub(crate) credentials: Arc<[String]>,
}

impl Plan {
    /// A plan over HTTP/1.1 that sends each request when the previous one is answered.
    pub(crate) fn new(target: Target, workload: Workload, until: Until) -> Self {
        Self {
            target,
            workload,
            http2: false,
            slots: workload.connections(),
            pace: Pace::AsAnswered,
            until,
            warm_up: Duration::from_millis(10),
            sessions: Sessions::Open,
            expected: Expected::Message,
            credentials: Arc::default(),
        }
    }

    /// Returns a slot's request with its credential.
    fn of(&self, number: u32, mut post: Post) -> Post {
        let places = self.credentials.len().max(1);
        if let Some(credential) = self.credentials.get(number as usize % places) {
            let value = format!("Bearer {credential}");
            post.headers.push(("authorization", value));
        }
        post
    }

    async fn connect(&self) -> Result<Option<Multiplexed>, WireError> {
        match self.http2 {
            true => Ok(Some(Multiplexed::open(self.target.address).await?)),
            false => Ok(None),
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// Ends after this number of requests, which are all counted; there is no warm-up.
    Sent(u64),
}

/// Source of the sessions for a workload that needs them.
#[derive(Clone, Debug)]
pub(crate) enum Sessions {
    /// Each connection opens its own session with `initialize`. The streams of an HTTP/2 connection belong to one
    /// client and share a session. With one session for each, the IDs would not fit into the HPACK table.
    Open,
    /// All slots say they have this one: for a baseline, which knows none.
    Given(Session),
}

/// Expected response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// A JSON-RPC result with the request's id that fits the workload.
    Message,
    /// A body of this length.
    Length(usize),
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Valid responses within the window, by latency.
    pub(crate) latency: Histogram,
    /// Requests without a valid response, at any time of the run.
    pub(crate) failures: u64,
    /// The first of them.
    pub(crate) first_failure: Option<SlotError>,
    /// The length of the window.
    pub(crate) elapsed: Duration,
    /// CPU time of the server within the window, if its process is known.
    pub(crate) server_time: Option<ProcessorTime>,
    /// CPU time of this generator within the window.
    pub(crate) own_time: ProcessorTime,
}

impl Measured {
    /// Returns the number of valid responses within the window.
    pub(crate) fn answers(&self) -> u64 {
        self.latency.count()
    }

    /// Returns the responses per second of wall-clock time.
    pub(crate) fn per_second(&self) -> f64 {
        per(self.answers(), self.elapsed)
    }

    /// Returns the responses per second of the server's CPU time, which other processes on the machine affect least.
    pub(crate) fn per_processor_second(&self) -> Option<f64> {
        self.server_time.map(|time| per(self.answers(), time.used))
    }

    /// Share of the window in which the generator was at work. Near 1, it is the generator that is measured.
    pub(crate) fn own_share(&self) -> f64 {
        self.own_time.used.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// Share of the window in which server and generator stood in line for a core that something else used.
    pub(crate) fn waiting_share(&self) -> f64 {
        let waited = self.own_time.waited + self.server_time.unwrap_or_default().waited;
        waited.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

/// Reason why a run failed completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
    #[error("could not open connections and sessions")]
    Setup(#[source] SlotError),
    #[error("could not open the HTTP/2 connection")]
    Connect(#[from] WireError),
    #[error("connections and sessions were not open within {SETUP_WITHIN:?}")]
    SetupTooSlow,
    #[error("requests were still without a response {LAST_ANSWERS_WITHIN:?} after the end")]
    NeverAnswered,
    #[error("the requests had no response within {ALL_WITHIN:?}")]
    TooLong,
    #[error("could not read processor times (is the server still running?)")]
    ProcessorTime(#[from] io::Error),
    #[error("a task of the generator failed")]
    Task(#[from] tokio::task::JoinError),
}

/// Drives a server as planned. With `server`, a process number, its processor time is measured too.
pub(crate) async fn run(plan: &Plan, server: Option<u32>) -> Result<Measured, DriveError> {
    let shared = plan.connect().await?;
    let slots = timeout(SETUP_WITHIN, open(plan, shared.as_ref()))
        .await
        .map_err(|_| DriveError::SetupTooSlow)??;

    let gate = Arc::new(match plan.until {
        Until::Elapsed(_) => Gate::warming_up(),
        Until::Sent(count) => Gate::counting(count),
    });
    let pacer = Arc::new(plan.pace.start());
    let mut running = JoinSet::new();
    for slot in slots {
        running.spawn(slot.run(Arc::clone(&gate), Arc::clone(&pacer)));
    }

    if let Until::Elapsed(_) = plan.until {
        sleep(plan.warm_up).await;
    }
    let server_clock = server.map(ProcessorClock::start).transpose()?;
    let own_clock = ProcessorClock::start(std::process::id())?;
    gate.open();
    let opened = Instant::now();

    let mut reports = Vec::new();
    match plan.until {
        // Slots end early only when all of them have failed; then there is no more to wait for.
        Until::Elapsed(window) => timeout(window, gather(&mut running, &mut reports))
            .await
            .unwrap_or(Ok(()))?,
        Until::Sent(_) => timeout(ALL_WITHIN, gather(&mut running, &mut reports))
            .await
            .map_err(|_| DriveError::TooLong)??,
    }
    gate.close();
    let elapsed = opened.elapsed();
    let server_time = server_clock
        .as_ref()
        .map(ProcessorClock::read)
        .transpose()?;
    let own_time = own_clock.read()?;

    timeout(LAST_ANSWERS_WITHIN, gather(&mut running, &mut reports))
        .await
        .map_err(|_| DriveError::NeverAnswered)??;
    Ok(summed(reports, elapsed, server_time, own_time))
}

/// A response to a plan's request, with its session.
#[derive(Debug)]
pub(crate) struct Probe {
    /// The length of the body.
    pub(crate) length: usize,
    /// The session, if the workload needs one.
    pub(crate) session: Option<Session>,
}

/// Sends the request of a plan once, and checks the answer.
pub(crate) async fn probe(plan: &Plan) -> Result<Probe, DriveError> {
    let shared = plan.connect().await?;
    let once = async { Slot::open(plan, 0, shared.as_ref()).await?.probe().await };
    timeout(SETUP_WITHIN, once)
        .await
        .map_err(|_| DriveError::SetupTooSlow)?
        .map_err(DriveError::Setup)
}

async fn open(plan: &Plan, shared: Option<&Multiplexed>) -> Result<Vec<Slot>, DriveError> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut plan = plan.clone();
    for number in 0..plan.slots {
        let slot = Slot::open(&plan, number, shared)
            .await
            .map_err(DriveError::Setup)?;
        if let (Some(_), Some(session)) = (shared, slot.session()) {
            plan.sessions = Sessions::Given(session.clone());
        }
        slots.push(slot);
    }
    Ok(slots)
}

async fn gather(
    running: &mut JoinSet<SlotReport>,
    reports: &mut Vec<SlotReport>,
) -> Result<(), DriveError> {
    while let Some(report) = running.join_next().await {
        reports.push(report?);
    }
    Ok(())
}

fn summed(
    reports: Vec<SlotReport>,
    elapsed: Duration,
    server_time: Option<ProcessorTime>,
    own_time: ProcessorTime,
) -> Measured {
    let mut all = Measured {
        latency: Histogram::new(),
        failures: 0,
        first_failure: None,
        elapsed,
        server_time,
        own_time,
    };
    for report in reports {
        all.latency.merge(&report.latency);
        all.failures += report.failures;
        all.first_failure = all.first_failure.or(report.first_failure);
    }
    all
}

fn per(answers: u64, time: Duration) -> f64 {
    answers as f64 / time.as_secs_f64()
}

const SETUP_WITHIN: Duration = Duration::from_secs(20);
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const ALL_WITHIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
