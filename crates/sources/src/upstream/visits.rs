//! Pages that an upstream has sent users to (URL elicitations), so that its notification that a user has finished reaches the
//! client that was asked.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::catalog::UrlElicitation;

/// Maximum number of visits of one upstream that are remembered. Beyond it, the oldest is forgotten.
const VISITS_MAX: usize = 1024;
/// Maximum length of an upstream's `elicitationId` that is remembered, in bytes.
const ID_BYTES_MAX: usize = 256;

/// Visits that have not been completed: the upstream's IDs with the local elicitations.
#[derive(Debug, Default)]
pub(super) struct Visits(Mutex<VecDeque<(Box<str>, UrlElicitation)>>);

impl Visits {
    /// Records a visit. `id` is the upstream's `elicitationId`.
    pub(super) fn begin(&self, id: &str, elicitation: UrlElicitation) {
        if ID_BYTES_MAX < id.len() {
            return;
        }
        let mut open = self.open();
        if open.len() == VISITS_MAX {
            open.pop_front();
        }
        open.push_back((id.into(), elicitation));
    }

    /// Removes all visits with this ID of the upstream, which has sent several clients to one page.
    pub(super) fn end(&self, id: &str) -> Vec<UrlElicitation> {
        let mut open = self.open();
        let mut ended = Vec::new();
        open.retain(|(of, elicitation)| {
            let stays = **of != *id;
            if !stays {
                ended.push(elicitation.clone());
            }
            stays
        });
        ended
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<(Box<str>, UrlElicitation)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_end_once_and_the_oldest_are_forgotten() {
        let visits = Visits::default();
        let visit = |id: &str| UrlElicitation::new("session", id);
        for number in 0..=VISITS_MAX {
            visits.begin(&number.to_string(), visit(&number.to_string()));
        }
        visits.begin(&"x".repeat(ID_BYTES_MAX + 1), visit("x"));
        assert_eq!(visits.end("0"), []);
        assert_eq!(visits.end("1"), [visit("1")]);
        assert_eq!(visits.end("1"), []);
        assert_eq!(visits.open().len(), VISITS_MAX - 1);
    }

    #[test]
    fn each_client_that_was_sent_to_a_page_is_told_when_its_visit_ends() {
        let visits = Visits::default();
        let of = |session: &str| UrlElicitation::new(session, "local");
        for session in ["one", "two"] {
            visits.begin("page", of(session));
            visits.begin("other", of(session));
        }
        assert_eq!(visits.end("page"), [of("one"), of("two")]);
        assert_eq!(visits.open().len(), 2);
    }
}
