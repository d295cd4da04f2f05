//! Accounting of the in-memory state: owners and kinds of entries.

use std::net::IpAddr;

use crate::auth::{Principal, PrincipalKind};
use crate::limit::subnet;
use crate::state::{Claim, SharedState};

/// Kind of an entry, for metrics and for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateKind {
    /// Logs of call streams.
    Stream,
    /// Subscriptions of sessions.
    Subscription,
    /// Records of tasks, their lists and their messages.
    Task,
    /// Results of tasks.
    Outcome,
    /// Journals of calls that wait for client input.
    Journal,
}

impl StateKind {
    const fn label(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Subscription => "subscription",
            Self::Task => "task",
            Self::Outcome => "outcome",
            Self::Journal => "journal",
        }
    }

    /// View of the state that charges entries of this kind to an owner.
    pub(super) fn of(self, state: &SharedState, owner: Option<&str>) -> SharedState {
        state.claimed(Claim {
            owner,
            kind: self.label(),
            may_go: self == Self::Subscription,
        })
    }
}

/// Labels in metrics: kinds of callers' entries, the server's own entries, channels, and the index of all.
pub const STATE_KINDS: [&str; 8] = [
    StateKind::Stream.label(),
    StateKind::Subscription.label(),
    StateKind::Task.label(),
    StateKind::Outcome.label(),
    StateKind::Journal.label(),
    "other",
    "channel",
    "index",
];

/// Owner that a caller's entries are charged to: the principal, or the address, which for IPv6 is its network.
///
/// Returns `None` for callers who cannot be told apart. Only the total limit applies to them.
pub(super) fn owner_of(principal: &Principal, address: Option<IpAddr>) -> Option<String> {
    match principal.kind() {
        PrincipalKind::Local => None,
        PrincipalKind::Anonymous => address.map(|address| format!("{:x}", subnet(address))),
        // Ids contain no line break.
        _ => Some(format!("principal\n{}", principal.id())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authentication_an_address_is_an_owner_and_of_ipv6_a_network() {
        let nobody = Principal::anonymous();
        let of = |text: &str| owner_of(&nobody, text.parse().ok());
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(owner_of(&nobody, None), None);
        let ada = owner_of(&Principal::new("ada"), "192.0.2.1".parse().ok());
        assert_eq!(ada, owner_of(&Principal::new("ada"), None));
        assert_ne!(ada, owner_of(&Principal::new("bob"), None));
    }
}
