//! What a tool may observe of its journal, in any order of reading.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::journal::{InputResponses, Journal};
use super::session::OpenOutcome;
use super::{
    Client, ClientRequestError, ReplayError, ReplaySession, RequestKind, StatelessRequest,
    StepGuarantee, Suspension, run_step,
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

#[test]
fn a_call_is_suspended_with_all_requests_that_wait_and_not_twice() {
    let session = stateless();
    assert!(session.suspension().is_none() && !session.is_used());
    assert!(matches!(open(&session, 1), OpenOutcome::Pending(_)));
    assert!(matches!(open(&session, 2), OpenOutcome::Pending(_)));
    let Some(Suspension::InputRequired(round)) = session.suspension() else {
        panic!("the call waits for its client");
    };
    assert_eq!(round.requests.len(), 2);
    assert!(session.suspension().is_none());
    let late = session.open_request(RequestKind::Roots, [3; 16], None, "{}".into());
    assert!(late.is_err(), "the call has been suspended");
}

#[test]
fn a_running_step_delays_suspension_until_its_result_is_recorded() {
    let session = stateless();
    let key = session.begin_step(4, [9; 16]).expect_err("not recorded");
    assert!(matches!(open(&session, 1), OpenOutcome::Pending(_)));
    assert!(session.suspension().is_none());
    session.end_step(key, Some("42".into()));
    let Some(Suspension::InputRequired(round)) = session.suspension() else {
        panic!("the step has ended");
    };
    assert_eq!(&*round.state.entries[0].value, "42");
}

#[test]
fn new_requests_wait_until_recorded_values_are_read() {
    let session = stateless();
    let OpenOutcome::Pending(request) = open(&session, 1) else {
        panic!("nothing is recorded");
    };
    let Some(Suspension::InputRequired(mut round)) = session.suspension() else {
        panic!("the call waits for its client");
    };
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
    let OpenOutcome::Pending(_) = open(session, 1) else {
        panic!("nothing is recorded");
    };
    let Some(Suspension::InputRequired(round)) = session.suspension() else {
        panic!("the call waits for its client");
    };
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
