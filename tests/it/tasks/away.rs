//! The state goes away and comes back while tasks run: they lose nothing by that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore::state::{Memory, StateError, StateFuture};
use serde_json::json;

use super::extension::{about, begin, get, update, wait};
use super::{accept, app, text};
use crate::support::{AskedState, Fronted, Serve, StandIn, until};

/// Fails at what it is asked, while it is away for that.
#[derive(Debug, Default)]
struct Away {
    store: Memory,
    switches: Arc<Switches>,
}

/// Number of calls that still succeed.
#[derive(Debug)]
struct Switches {
    reads: AtomicUsize,
    swaps: AtomicUsize,
    failures: AtomicUsize,
}

const ALWAYS: usize = usize::MAX / 2;

impl Default for Switches {
    fn default() -> Self {
        Self {
            reads: ALWAYS.into(),
            swaps: ALWAYS.into(),
            failures: 0.into(),
        }
    }
}

impl Switches {
    /// Waits until it has failed so often since `before`.
    fn until_failed(&self, before: usize, times: usize) {
        until(|| (before + times <= self.failures()).then_some(()));
    }

    fn failures(&self) -> usize {
        self.failures.load(Ordering::SeqCst)
    }
}

impl StandIn for Away {
    fn store(&self) -> &Memory {
        &self.store
    }

    fn instead<'a, T: Send + 'a>(&'a self, asked: AskedState) -> Option<StateFuture<'a, T>> {
        let left = match asked {
            AskedState::Read => &self.switches.reads,
            AskedState::Swap => &self.switches.swaps,
            _ => return None,
        };
        let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        if taken.is_ok() {
            return None;
        }
        self.switches.failures.fetch_add(1, Ordering::SeqCst);
        Some(Box::pin(async {
            Err(StateError::Unreachable {
                reason: "away".to_owned(),
            })
        }))
    }
}

fn serve() -> (crate::support::Running, Arc<Switches>) {
    let away = Away::default();
    let switches = Arc::clone(&away.switches);
    let server = Serve::new()
        .app(|_| app().store(Arc::new(Fronted(away))))
        .start();
    (server, switches)
}

#[test]
fn a_question_is_told_and_an_outcome_kept_once_the_state_is_back() {
    let (server, switches) = serve();
    switches.swaps.store(0, Ordering::SeqCst);
    let task = begin(&server, "confirm_delete", json!({"filename": "a"}));
    switches.until_failed(0, 1);
    assert_eq!(get(&server, &task)["status"], "working");
    switches.swaps.store(ALWAYS, Ordering::SeqCst);
    wait(&server, &task, "input_required");
    // The answer is accepted, although the response fails, and its effect is stored later.
    let before = switches.failures();
    switches.swaps.store(0, Ordering::SeqCst);
    let sure = json!({"inputResponses": {"sure": accept(json!({"confirm": true}))}});
    let said = about("tasks/update", &task, sure).send(&server).json();
    let message = said["error"]["message"].as_str().expect("an error");
    assert!(message.contains("try again later"), "{message}");
    switches.until_failed(before, 4);
    switches.swaps.store(ALWAYS, Ordering::SeqCst);
    let ended = wait(&server, &task, "completed");
    assert_eq!(text(&ended["result"]), "a is gone");
}

#[test]
fn letters_that_cannot_be_read_now_are_read_later() {
    let (server, switches) = serve();
    let task = begin(&server, "confirm_delete", json!({"filename": "a"}));
    wait(&server, &task, "input_required");
    let before = switches.failures();
    switches.reads.store(0, Ordering::SeqCst);
    let sure = json!({"sure": accept(json!({"confirm": true}))});
    update(&server, &task, sure);
    switches.until_failed(before, 2);
    assert_eq!(get(&server, &task)["status"], "working");
    switches.reads.store(ALWAYS, Ordering::SeqCst);
    let ended = wait(&server, &task, "completed");
    assert_eq!(text(&ended["result"]), "a is gone");
}
