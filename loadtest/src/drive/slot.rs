//! A connection or stream that is opened and then driven until the gate closes.

use std::sync::Arc;

use super::gate::Gate;
use super::pace::Pacer;
use super::{Expected, Plan, Probe, Sessions};
use crate::measure::Histogram;
use crate::wire::{Multiplexed, Wire, WireError};
use crate::workload::{
    Check, Session, Workload, WrongAnswer, initialize, initialized, other_version, post,
};

/// Reason why a request has no valid response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlotError {
    #[error("no answer")]
    Wire(#[from] WireError),
    #[error("a wrong answer")]
    Wrong(#[from] WrongAnswer),
    #[error("the response to `notifications/initialized` had status {0} instead of 202")]
    NotAccepted(u16),
    #[error("the session id is not text")]
    SessionId,
}

/// Results of one slot.
#[derive(Debug)]
pub(super) struct SlotReport {
    pub(super) latency: Histogram,
    pub(super) failures: u64,
    pub(super) first_failure: Option<SlotError>,
}

/// Sends one request at a time.
#[derive(Debug)]
pub(super) struct Slot {
    wire: Wire,
    check: Check,
    session: Option<Session>,
}

impl Slot {
    /// Connects, and opens a session where the workload needs one.
    pub(super) async fn open(
        plan: &Plan,
        number: u32,
        shared: Option<&Multiplexed>,
    ) -> Result<Self, SlotError> {
        let id = FIRST_ID + number;
        let mut wire = match shared {
            Some(connection) => Wire::http2(connection),
            None => Wire::http1(plan.target.address).await?,
        };
        let session = match &plan.sessions {
            _ if !plan.workload.has_session() => None,
            Sessions::Given(session) => Some(session.clone()),
            Sessions::Open => Some(open_session(plan, &mut wire, number).await?),
        };
        let request = post(plan.workload, &plan.target, id, session.as_ref());
        wire.prepare(&plan.of(number, request))?;
        let check = match plan.expected {
            Expected::Message => Check::message(plan.workload, id),
            Expected::Length(length) => Check::length(length),
        };
        Ok(Self {
            wire,
            check,
            session,
        })
    }

    /// The session that its requests are in.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Sends one request.
    pub(super) async fn probe(mut self) -> Result<Probe, SlotError> {
        let answer = self.wire.exchange().await?;
        self.check.check(&answer)?;
        Ok(Probe {
            length: answer.body.len(),
            session: self.session,
        })
    }

    /// Sends requests until the gate closes or too much has failed.
    pub(super) async fn run(mut self, gate: Arc<Gate>, pacer: Arc<Pacer>) -> SlotReport {
        let mut report = SlotReport {
            latency: Histogram::new(),
            failures: 0,
            first_failure: None,
        };
        while gate.admit() {
            let Some(due) = pacer.next(|| gate.is_closed()).await else {
                break;
            };
            let failure = match self.wire.exchange().await {
                Ok(answer) => {
                    let latency = due.elapsed();
                    match self.check.check(&answer) {
                        Ok(()) => {
                            if gate.counts() {
                                report.latency.record(latency);
                            }
                            continue;
                        }
                        Err(wrong) => SlotError::Wrong(wrong),
                    }
                }
                Err(error) => SlotError::Wire(error),
            };
            report.failures += 1;
            let is_broken = matches!(failure, SlotError::Wire(_));
            report.first_failure.get_or_insert(failure);
            if is_broken || report.failures == FAILURES_BORNE {
                break;
            }
        }
        report
    }
}

async fn open_session(plan: &Plan, wire: &mut Wire, number: u32) -> Result<Session, SlotError> {
    let id = FIRST_ID + number;
    wire.prepare(&plan.of(number, initialize(&plan.target, id)))?;
    let answer = wire.exchange().await?;
    let version = other_version(answer.body);
    if version.is_none() {
        Check::message(Workload::Initialize, id).check(&answer)?;
    }
    let text = answer
        .session
        .map(|id| std::str::from_utf8(id).map(str::to_owned))
        .transpose();
    let session = Session {
        id: text.map_err(|_| SlotError::SessionId)?,
        version,
    };

    wire.prepare(&plan.of(number, initialized(&plan.target, &session)))?;
    match wire.exchange().await?.status {
        202 => Ok(session),
        status => Err(SlotError::NotAccepted(status)),
    }
}

/// Ids have four digits, so that requests of all slots are of one length.
const FIRST_ID: u32 = 1001;

/// Wrong answers after which a slot gives up.
const FAILURES_BORNE: u64 = 100;
