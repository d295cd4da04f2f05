//! What a tool may observe of its journal, in any order of reading.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::journal::{InputResponses, Journal};
use super::session::OpenOutcome;
use super::{
    Client, ClientRequestError, InputRound, ReplayError, ReplaySession, RequestKind,
    StatelessRequest, StepGuarantee, Suspension, run_step,
};
use crate::catalog::ToolError;
use crate::protocol::message::{Message, Payload};
use crate::seal::RequestName;
use crate::state::{Memory, SharedState};

/// Kinds and digests of the requests and steps of a round. Equal ones occur.
fn rounds() -> impl Strategy<Value = Vec<(u8, [u8; 16])>> {
    prop::collection::vec((1_u8..=4, 0_u8..3), 0..24).prop_map(|entries| {
        let entries = entries.into_iter();
        entries.map(|(kind, digest)| (kind, [digest; 16])).collect()
    })
}

proptest! {
    #[test]
    fn values_are_found_by_key_in_whatever_order_branches_read_them(
        entries in rounds(),
        order in any::<prop::sample::Index>(),
        rotation in 0_usize..24,
    ) {
        let mut first = Journal::default();
        let mut expected = Vec::new();
        for (number, (kind, digest)) in entries.iter().enumerate() {
            let key = first.next_key(*kind, *digest);
            first.record(key, number.to_string().into());
            expected.push((*kind, *digest, number.to_string()));
        }
        let mut resumed = Journal::resume(first.snapshot(), InputResponses::new());
        prop_assert_eq!(resumed.has_unread(), !entries.is_empty());

        // Branches may run in another order; equal requests of one branch keep theirs.
        let mut groups: Vec<_> = expected.iter().map(|(kind, digest, _)| (*kind, *digest)).collect();
        groups.sort_unstable();
        groups.dedup();
        if !groups.is_empty() {
            let length = groups.len();
            groups.rotate_left(rotation % length);
            groups.swap(0, order.index(length));
        }
        for (kind, digest) in groups {
            let values = expected.iter().filter(|(k, d, _)| (*k, *d) == (kind, digest));
            for (_, _, value) in values {
                let key = resumed.next_key(kind, digest);
                let recorded = resumed.read(key);
                prop_assert_eq!(recorded.map(|recorded| recorded.value), Some(value.as_str().into()));
            }
            let key = resumed.next_key(kind, digest);
            prop_assert_eq!(resumed.read(key), None);
        }
        prop_assert!(!resumed.has_unread());
        prop_assert_eq!(resumed.snapshot(), first.snapshot());
    }
}

fn client() -> Client {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
    let body = bytes::Bytes::from_static(body);
    let Ok(Payload::Single(Message::Request(request))) = Payload::read(&body) else {
        panic!("a request");
    };
    Client::Stateless(StatelessRequest::new("tools/call", &body, &request))
}

fn stateless() -> ReplaySession {
    ReplaySession::new(client())
}

fn open(session: &ReplaySession, digest: u8) -> OpenOutcome {
    let opened = session.open_request(RequestKind::Roots, [digest; 16], None, "{}".into());
    opened.expect("a reachable client")
}

/// Event that a call waits for.
fn input_round(session: &ReplaySession) -> InputRound {
    match session.suspension() {
        Some(Suspension::InputRequired(round)) => round,
        other => panic!("the call waits for its client: {other:?}"),
    }
}

#[test]
fn a_call_is_suspended_with_all_requests_that_wait_and_not_twice() {
    let session = stateless();
    assert!(session.suspension().is_none() && !session.is_used());
    assert!(matches!(open(&session, 1), OpenOutcome::Pending(_)));
    assert!(matches!(open(&session, 2), OpenOutcome::Pending(_)));
    let round = input_round(&session);
    assert_eq!(round.requests.len(), 2);
    assert!(session.suspension().is_none());
    let late = session.open_request(RequestKind::Roots, [3; 16], None, "{}".into());
    assert!(late.is_err(), "the call has been suspended");
}

#[test]
fn a_running_step_delays_suspension_until_its_result_is_recorded() {
    let session = stateless();
    let key = session
        .begin_step(4, [9; 16], None)
        .expect_err("not recorded");
    assert!(matches!(open(&session, 1), OpenOutcome::Pending(_)));
    assert!(session.suspension().is_none());
    session.end_step(key, Some("42".into()));
    let round = input_round(&session);
    assert_eq!(&*round.state.entries[0].value, "42");
}

#[test]
fn new_requests_wait_until_recorded_values_are_read() {
    let session = stateless();
    let OpenOutcome::Pending(request) = open(&session, 1) else {
        panic!("nothing is recorded");
    };
    let mut round = input_round(&session);
    round.state.requests = vec![RequestName {
        key: request.key(),
        name: "roots".into(),
    }];
    let mut responses = InputResponses::new();
    let value = serde_json::value::to_raw_value("home").expect("JSON");
    responses.insert("roots".into(), value);
    let mut journal = Journal::resume(round.state, responses);
    assert!(journal.has_unread());
    let key = journal.next_key(RequestKind::Roots as u8, [1; 16]);
    let recorded = journal.read(key).expect("the client's response");
    assert_eq!(&*recorded.value, "\"home\"");
    assert_eq!(recorded.response_name.as_deref(), Some("roots"));
    assert!(!journal.has_unread());
}

#[test]
fn a_failed_replay_replaces_the_result_of_the_call() {
    let session = stateless();
    session.fail(ReplayError::NonDeterminism("first".to_owned()));
    session.fail(ReplayError::NonDeterminism("second".to_owned()));
    assert!(matches!(session.suspension(), Some(Suspension::Failed(_))));
    match session.close() {
        Some(ReplayError::NonDeterminism(text)) => assert_eq!(text, "first"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_after_the_end_of_a_call_that_has_sent_none_fails() {
    let mut session = stateless();
    assert!(session.close().is_none());
    let late = session.open_request(RequestKind::Roots, [1; 16], None, "{}".into());
    assert!(matches!(late, Err(ClientRequestError::Ended)));
    assert!(!session.is_used());
    // The state is used again for the next call.
    session.vacate();
    assert!(session.close().is_none());
}

/// Runs a step that succeeds or fails.
async fn step(
    session: &ReplaySession,
    guarantee: StepGuarantee,
    result: Option<u32>,
) -> Result<u32, ToolError> {
    let effect = async { result.ok_or_else(|| ToolError::new("failed")) };
    run_step(session, "charge", guarantee, effect).await
}

/// Suspends a first round, and returns the session of the next one.
fn next_round(session: &ReplaySession) -> ReplaySession {
    assert!(matches!(open(session, 1), OpenOutcome::Pending(_)));
    let round = input_round(session);
    let claims = SharedState::new(Arc::new(Memory::new(1 << 20)), Duration::from_secs(1));
    ReplaySession::resumed(client(), Some(round.state), InputResponses::new(), claims)
}

#[tokio::test]
async fn mrtr_07_a_step_that_failed_in_the_first_round_and_runs_at_most_once_does_not_run_again() {
    let session = stateless();
    step(&session, StepGuarantee::AtMostOnce, None)
        .await
        .expect_err("the effect fails");
    let next = next_round(&session);
    let again = step(&next, StepGuarantee::AtMostOnce, Some(1)).await;
    assert!(
        again
            .expect_err("it has run")
            .message()
            .contains("run before")
    );
}

#[tokio::test]
async fn an_attempt_that_succeeded_after_failed_ones_is_the_result_in_later_rounds() {
    let session = stateless();
    for result in [None, None, Some(7)] {
        let attempt = step(&session, StepGuarantee::AtLeastOnce, result).await;
        assert_eq!(attempt.ok(), result);
    }
    let next = next_round(&session);
    let first = step(&next, StepGuarantee::AtLeastOnce, None).await;
    assert_eq!(first.ok(), Some(7));
}

/// Runs a step that has `inner` as a step within it.
async fn outer(session: &ReplaySession, inner: Option<u32>) -> Result<u32, ToolError> {
    let effect = async {
        let inner = step(session, StepGuarantee::AtLeastOnce, inner).await?;
        Ok::<_, ToolError>(10 * inner)
    };
    run_step(session, "outer", StepGuarantee::AtLeastOnce, effect).await
}

/// Runs a step that fails after a step within it.
async fn outer_fails(session: &ReplaySession) {
    let fails = async {
        step(session, StepGuarantee::AtLeastOnce, Some(1)).await?;
        Err::<u32, _>(ToolError::new("after it"))
    };
    let failed = run_step(session, "outer", StepGuarantee::AtLeastOnce, fails).await;
    failed.expect_err("it fails");
}

#[tokio::test]
async fn a_step_within_another_one_does_not_stand_for_an_equal_one_outside() {
    let session = stateless();
    assert_eq!(outer(&session, Some(1)).await.ok(), Some(10));
    let after = step(&session, StepGuarantee::AtLeastOnce, Some(2)).await;
    assert_eq!(after.ok(), Some(2));
    let next = next_round(&session);
    assert_eq!(outer(&next, None).await.ok(), Some(10));
    assert!(next.is_replaying());
    let after = step(&next, StepGuarantee::AtLeastOnce, None).await;
    assert_eq!(after.ok(), Some(2));
    assert!(!next.is_replaying(), "all values are read");
}

#[tokio::test]
async fn a_step_within_one_that_failed_does_not_run_again() {
    let session = stateless();
    outer_fails(&session).await;
    let next = next_round(&session);
    assert_eq!(outer(&next, None).await.ok(), Some(10));
    let third = next_round(&next);
    assert_eq!(outer(&third, None).await.ok(), Some(10));
    assert!(!third.is_replaying(), "the outer step has replaced it");
}

#[tokio::test]
async fn an_attempt_reads_the_steps_of_the_failed_one_before_it() {
    let session = stateless();
    outer_fails(&session).await;
    assert_eq!(outer(&session, None).await.ok(), Some(10));
    let next = next_round(&session);
    assert_eq!(outer(&next, None).await.ok(), Some(10));
    assert!(!next.is_replaying(), "all values are read");
}

#[tokio::test]
async fn a_step_that_sends_a_request_fails_instead_of_waiting_for_ever() {
    let session = stateless();
    let asks = async {
        let opened = session.open_request(RequestKind::Roots, [1; 16], None, "{}".into());
        opened.map(drop).map_err(ToolError::from)
    };
    let asked = run_step(&session, "ask", StepGuarantee::AtLeastOnce, asks).await;
    let problem = asked.expect_err("the request");
    assert!(
        problem.message().contains("before or after the step"),
        "{}",
        problem.message()
    );
    assert!(matches!(open(&session, 1), OpenOutcome::Pending(_)));
}

#[tokio::test]
async fn a_tool_may_take_another_path_if_a_step_that_had_failed_succeeds() {
    let session = stateless();
    let failed = step(&session, StepGuarantee::AtLeastOnce, None).await;
    failed.expect_err("the effect fails");
    // The tool asks whether to try again.
    let OpenOutcome::Pending(request) = open(&session, 1) else {
        panic!("nothing is recorded");
    };
    let mut round = input_round(&session);
    let name = RequestName {
        key: request.key(),
        name: "again".into(),
    };
    round.state.requests = vec![name];
    let yes = serde_json::value::to_raw_value("yes").expect("JSON");
    let responses = InputResponses::from([("again".into(), yes)]);
    let claims = SharedState::new(Arc::new(Memory::new(1 << 20)), Duration::from_secs(1));
    let next = ReplaySession::resumed(client(), Some(round.state), responses, claims);
    assert!(!next.drop_unread(), "no step has run");
    let charged = step(&next, StepGuarantee::AtLeastOnce, Some(7)).await;
    assert_eq!(charged.ok(), Some(7));
    // It does not ask again, but something else.
    assert!(matches!(open(&next, 2), OpenOutcome::Pending(_)));
    assert!(
        next.suspension().is_none(),
        "the response may still be read"
    );
    assert!(next.drop_unread());
    let round = input_round(&next);
    let values: Vec<_> = round
        .state
        .entries
        .iter()
        .map(|entry| &*entry.value)
        .collect();
    assert_eq!(values, ["7"]);
}

#[tokio::test]
async fn results_of_steps_are_kept_when_unread_responses_are_dropped() {
    let session = stateless();
    let fails = async { Err::<u32, _>(ToolError::new("failed")) };
    let quoted = run_step(&session, "quote", StepGuarantee::AtLeastOnce, fails).await;
    quoted.expect_err("the effect fails");
    let charged = step(&session, StepGuarantee::AtMostOnce, Some(7)).await;
    assert_eq!(charged.ok(), Some(7));
    let next = next_round(&session);
    let succeeds = async { Ok::<_, ToolError>(1) };
    let quoted = run_step(&next, "quote", StepGuarantee::AtLeastOnce, succeeds).await;
    assert_eq!(quoted.ok(), Some(1));
    assert!(next.drop_unread());
    let third = next_round(&next);
    assert_eq!(
        step(&third, StepGuarantee::AtMostOnce, None).await.ok(),
        Some(7)
    );
}

#[tokio::test]
async fn a_resumed_call_that_becomes_a_task_does_not_run_its_steps_again() {
    for guarantee in [StepGuarantee::AtLeastOnce, StepGuarantee::AtMostOnce] {
        let session = stateless();
        let charged = step(&session, guarantee, Some(7)).await;
        assert_eq!(charged.ok(), Some(7));
        let next = next_round(&session);
        next.task().start(Duration::from_secs(60));
        assert_eq!(step(&next, guarantee, None).await.ok(), Some(7));
    }
}
