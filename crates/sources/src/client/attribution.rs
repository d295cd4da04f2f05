//! Attribution of messages that do not name the request they belong to.
//!
//! A program writes everything to one stream, and so does a server of HTTP+SSE. Its log messages and client requests
//! (elicitation, sampling, roots) name no request of this client. The same holds for the `GET` stream of Streamable
//! HTTP. One connection serves many callers. Such a message is therefore delivered only if every request that can
//! have caused it was made for one caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::auth::{Principal, PrincipalKind};

/// Time after its response in which a request can still cause messages.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Maximum number of abandoned requests without a response that are remembered for each connection. Beyond it,
/// nothing is attributed any more.
const ABANDONED_MAX: usize = 1024;

/// The caller for whom a request is made: a principal, in one session if it has one.
#[derive(Clone, Debug)]
pub struct Caller {
    principal: Arc<Principal>,
    session: Option<Arc<str>>,
    /// The call, of callers that nothing else distinguishes. It stays the same across the rounds of a multi-round
    /// call.
    call: Option<[u8; 16]>,
}

impl Caller {
    /// Creates the caller with this principal and session. `call` identifies the call across its rounds. It is used
    /// only for unauthenticated callers without a session, because different clients are then indistinguishable.
    pub fn new(
        principal: Arc<Principal>,
        session: Option<Arc<str>>,
        call: impl FnOnce() -> Option<[u8; 16]>,
    ) -> Self {
        let alike = session.is_none() && principal.kind() == PrincipalKind::Anonymous;
        Self {
            call: alike.then(call).flatten(),
            principal,
            session,
        }
    }

    /// Returns true if the principal and the session are the same.
    fn is_alike(&self, other: &Self) -> bool {
        let same_principal = Arc::ptr_eq(&self.principal, &other.principal)
            || self.principal.id() == other.principal.id();
        same_principal && self.session == other.session
    }

    /// Returns true if both are known to be one caller.
    fn is(&self, other: &Self) -> bool {
        let distinct = self.session.is_some() || self.principal.kind() != PrincipalKind::Anonymous;
        self.is_alike(other) && (distinct || self.call.is_some() && self.call == other.call)
    }
}

/// The caller of a request; `None` for a request of this program's own user, who is one caller.
pub(super) type Owner = Option<Caller>;

fn is_alike(a: &Owner, b: &Owner) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is_alike(b),
        (None, None) => true,
        _ => false,
    }
}

/// Returns true if both are known to be one caller.
pub(super) fn is_one(a: &Owner, b: &Owner) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is(b),
        (None, None) => true,
        _ => false,
    }
}

/// Reason why a message is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The request it belongs to has ended.
    Ended,
    NoRequest,
    SeveralRequests,
    SeveralCallers,
    /// The server may still be working on a request of another caller, which was abandoned.
    Abandoned,
    /// A request of another caller has just ended.
    JustEnded,
    /// More requests were abandoned than are remembered.
    TooMany,
    /// The messages of this stream can belong to requests of another connection.
    Unbound,
}

impl Doubt {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Ended => "its request has ended",
            Self::NoRequest => "no call is in progress",
            Self::SeveralRequests => {
                "it does not say which call it is about, and several are in progress"
            }
            Self::SeveralCallers => {
                "it does not say which call it is about, and calls of several callers are in progress"
            }
            Self::Abandoned => {
                "it does not say which call it is about, and a call that another caller has abandoned may still be in \
                 progress"
            }
            Self::JustEnded => {
                "it does not say which call it is about, and a call of another caller has just ended"
            }
            Self::TooMany => {
                "it does not say which call it is about, and too many calls were abandoned on this connection"
            }
            Self::Unbound => {
                "the request does not name its call, and the server has no sessions that separate connections"
            }
        }
    }

    /// Returns true if a new connection would not have this doubt.
    pub(super) fn ends_with_connection(self) -> bool {
        matches!(self, Self::Abandoned | Self::TooMany)
    }
}

/// Attribution state of the requests of one connection that are no longer in progress.
#[derive(Debug, Default)]
pub(super) struct Attribution {
    /// Requests that were abandoned before the server responded.
    abandoned: HashMap<u64, Owner>,
    /// Caller of the request that ended last, and the time of its end.
    last: Option<(Owner, Instant)>,
    /// The end of the grace period of the latest request of any other caller than that one.
    others_until: Option<Instant>,
    /// True if more requests were abandoned than are remembered.
    lost: bool,
    /// True if messages can belong to requests of other connections.
    unbound: bool,
}

impl Attribution {
    /// Records the response to a request, or that it never reached the server's tools.
    pub(super) fn ended(&mut self, owner: Owner, now: Instant) {
        if let Some((last, at)) = &mut self.last {
            if is_alike(last, &owner) {
                *at = now;
                return;
            }
            self.others_until = Some(*at + GRACE);
        }
        self.last = Some((owner, now));
    }

    /// Records a request that was abandoned.
    pub(super) fn abandon(&mut self, id: u64, owner: Owner) {
        if self.abandoned.len() < ABANDONED_MAX {
            self.abandoned.insert(id, owner);
        } else {
            self.lost = true;
        }
    }

    /// Records the late response to an abandoned request.
    pub(super) fn resolve(&mut self, id: u64, now: Instant) {
        if let Some(owner) = self.abandoned.remove(&id) {
            self.ended(owner, now);
        }
    }

    /// Returns true if the server may still be working on an abandoned request.
    pub(super) fn is_abandoned(&self, id: u64) -> bool {
        self.lost || self.abandoned.contains_key(&id)
    }

    /// Disables attribution permanently.
    pub(super) fn unbind(&mut self) {
        self.unbound = true;
    }

    /// Checks that no request of another caller, apart from those in progress, can have caused a message.
    pub(super) fn check(&self, owner: &Owner, now: Instant) -> Result<(), Doubt> {
        if self.unbound {
            return Err(Doubt::Unbound);
        }
        if self.lost {
            return Err(Doubt::TooMany);
        }
        if !self.abandoned.values().all(|other| is_one(owner, other)) {
            return Err(Doubt::Abandoned);
        }
        let another_just_ended = match &self.last {
            Some((last, at)) if !is_alike(last, owner) => now < *at + GRACE,
            _ => false,
        };
        if another_just_ended || self.others_until.is_some_and(|until| now < until) {
            return Err(Doubt::JustEnded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(principal: &Principal, session: Option<&str>) -> Owner {
        let session = session.map(Arc::from);
        Some(Caller::new(Arc::new(principal.clone()), session, || None))
    }

    fn named(name: &str) -> Owner {
        caller(&Principal::new(name), None)
    }

    #[test]
    fn callers_are_told_apart_by_principal_and_session() {
        let (ada, bob) = (Principal::new("ada"), Principal::new("bob"));
        assert!(is_one(&caller(&ada, None), &caller(&ada, None)));
        assert!(!is_one(&caller(&ada, None), &caller(&bob, None)));
        assert!(is_one(&caller(&ada, Some("s")), &caller(&ada, Some("s"))));
        assert!(!is_one(&caller(&ada, Some("s")), &caller(&ada, Some("t"))));
        assert!(!is_one(&caller(&ada, Some("s")), &caller(&bob, Some("s"))));
        assert!(!is_one(&caller(&ada, Some("s")), &caller(&ada, None)));
        assert!(is_one(&None, &None));
        assert!(!is_one(&None, &caller(&ada, None)));
    }

    #[test]
    fn unauthenticated_callers_without_a_session_are_told_apart_by_call() {
        let nobody = Arc::new(Principal::anonymous());
        let of = |call| Some(Caller::new(Arc::clone(&nobody), None, || call));
        assert!(is_one(&of(Some([1; 16])), &of(Some([1; 16]))));
        assert!(!is_one(&of(Some([1; 16])), &of(Some([2; 16]))));
        assert!(!is_one(&of(None), &of(None)));
        let session = || caller(&nobody, Some("s"));
        assert!(is_one(&session(), &session()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_grace_period_is_that_of_the_latest_request_of_each_other_caller() {
        let mut attribution = Attribution::default();
        let (ada, bob, eve) = (named("ada"), named("bob"), named("eve"));
        let start = Instant::now();
        attribution.ended(ada.clone(), start);
        assert_eq!(attribution.check(&ada, start), Ok(()));
        assert_eq!(attribution.check(&bob, start), Err(Doubt::JustEnded));
        assert_eq!(attribution.check(&bob, start + GRACE), Ok(()));
        let later = start + Duration::from_secs(2);
        attribution.ended(bob.clone(), later);
        assert_eq!(attribution.check(&bob, later), Err(Doubt::JustEnded));
        assert_eq!(attribution.check(&bob, start + GRACE), Ok(()));
        assert_eq!(
            attribution.check(&ada, start + GRACE),
            Err(Doubt::JustEnded)
        );
        assert_eq!(attribution.check(&ada, later + GRACE), Ok(()));
        attribution.ended(ada.clone(), later);
        assert_eq!(
            attribution.check(&ada, start + GRACE),
            Err(Doubt::JustEnded)
        );
        assert_eq!(attribution.check(&eve, later + GRACE), Ok(()));
    }

    #[test]
    fn more_abandoned_requests_than_are_remembered_leave_everybody_in_doubt() {
        let mut attribution = Attribution::default();
        let now = Instant::now();
        for id in 0..ABANDONED_MAX as u64 {
            attribution.abandon(id, named("ada"));
        }
        assert_eq!(attribution.check(&named("ada"), now), Ok(()));
        assert_eq!(attribution.check(&named("bob"), now), Err(Doubt::Abandoned));
        attribution.abandon(u64::MAX, named("ada"));
        assert_eq!(attribution.check(&named("ada"), now), Err(Doubt::TooMany));
        attribution.resolve(0, now);
        assert_eq!(attribution.check(&named("ada"), now), Err(Doubt::TooMany));
        assert!(Doubt::TooMany.ends_with_connection());
    }
}
