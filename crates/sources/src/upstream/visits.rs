//! Pages that an upstream has sent users to (URL elicitations), so that its notification that a user has finished reaches the
//! client that was asked.

use std::collections::VecDeque;

use super::caller_key::CallerKey;
use crate::catalog::UrlElicitation;
use crate::net::Mutex;

/// Maximum number of visits of one upstream that are remembered. Beyond it, the oldest is forgotten.
const VISITS_MAX: usize = 1024;
/// Maximum length of an upstream's `elicitationId` that is remembered, in bytes.
const ID_BYTES_MAX: usize = 256;

/// Visits that have not been completed.
#[derive(Debug, Default)]
pub(super) struct Visits(Mutex<VecDeque<Visit>>);

#[derive(Debug)]
struct Visit {
    /// Whose connection it is; `None` for the shared one. Upstreams may number the IDs of each connection.
    caller: Option<CallerKey>,
    /// The upstream's `elicitationId`.
    id: Box<str>,
    /// The local elicitation.
    elicitation: UrlElicitation,
}

impl Visits {
    /// Records a visit. `id` is the upstream's `elicitationId` on the connection of the caller, or on the shared one.
    pub(super) fn begin(&self, caller: Option<CallerKey>, id: &str, elicitation: UrlElicitation) {
        if ID_BYTES_MAX < id.len() {
            return;
        }
        let mut open = self.0.lock();
        if open.len() == VISITS_MAX {
            open.pop_front();
        }
        open.push_back(Visit {
            caller,
            id: id.into(),
            elicitation,
        });
    }

    /// Removes all visits with this ID on a connection, over which the upstream has sent several clients to one page.
    pub(super) fn end(&self, caller: Option<CallerKey>, id: &str) -> Vec<UrlElicitation> {
        let mut open = self.0.lock();
        let mut ended = Vec::new();
        open.retain(|visit| {
            let stays = visit.caller != caller || *visit.id != *id;
            if !stays {
                ended.push(visit.elicitation.clone());
            }
            stays
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Principal;

    #[test]
    fn visits_end_once_and_the_oldest_are_forgotten() {
        let visits = Visits::default();
        let visit = |id: &str| UrlElicitation::new("session", id);
        for number in 0..=VISITS_MAX {
            visits.begin(None, &number.to_string(), visit(&number.to_string()));
        }
        visits.begin(None, &"x".repeat(ID_BYTES_MAX + 1), visit("x"));
        assert_eq!(visits.end(None, "0"), []);
        assert_eq!(visits.end(None, "1"), [visit("1")]);
        assert_eq!(visits.end(None, "1"), []);
        assert_eq!(visits.0.lock().len(), VISITS_MAX - 1);
    }

    #[test]
    fn each_client_that_was_sent_to_a_page_is_told_when_its_visit_ends() {
        let visits = Visits::default();
        let of = |session: &str| UrlElicitation::new(session, "local");
        for session in ["one", "two"] {
            visits.begin(None, "page", of(session));
            visits.begin(None, "other", of(session));
        }
        assert_eq!(visits.end(None, "page"), [of("one"), of("two")]);
        assert_eq!(visits.0.lock().len(), 2);
    }

    #[test]
    fn visits_with_equal_ids_on_connections_of_several_callers_end_alone() {
        let visits = Visits::default();
        let [ada, bob] = ["ada", "bob"].map(|name| Some(CallerKey::of(&Principal::new(name))));
        let of = |session: &str| UrlElicitation::new(session, "local");
        for (caller, session) in [(ada, "one"), (bob, "two"), (ada, "three")] {
            visits.begin(caller, "1", of(session));
        }
        assert_eq!(visits.end(None, "1"), []);
        assert_eq!(visits.end(ada, "1"), [of("one"), of("three")]);
        assert_eq!(visits.end(bob, "1"), [of("two")]);
    }
}
