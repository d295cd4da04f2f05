//! Shares of the state in memory: whose they are, and the kinds of what is kept.

use std::net::IpAddr;

use crate::auth::{Principal, PrincipalKind};
use crate::limit::subnet;
use crate::state::{Claim, SharedState};

/// A kind of what is kept, for metrics and for a store that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Logs of calls' streams.
    Stream,
    /// What sessions have subscribed to.
    Subscription,
    /// Records of tasks, lists of them, and what is said to them.
    Task,
    /// What tasks gave.
    Outcome,
    /// What calls knew that wait for their client's input.
    Journal,
}

impl Kind {
    const fn label(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Subscription => "subscription",
            Self::Task => "task",
            Self::Outcome => "outcome",
            Self::Journal => "journal",
        }
    }

    /// A view of the state for entries of this kind that belong to an owner.
    pub(super) fn of(self, state: &SharedState, owner: Option<&str>) -> SharedState {
        state.claimed(Claim {
            owner,
            kind: self.label(),
            may_go: self == Self::Subscription,
        })
    }
}

/// The kinds that metrics tell apart: those of callers, what belongs to the server, channels, and the index of all.
pub(crate) const STATE_KINDS: [&str; 8] = [
    Kind::Stream.label(),
    Kind::Subscription.label(),
    Kind::Task.label(),
    Kind::Outcome.label(),
    Kind::Journal.label(),
    "other",
    "channel",
    "index",
];

/// Whose share of the state a caller's entries take: the principal's, or that of the address, which for IPv6 is its
/// network. `None` for a caller whom nothing tells apart, and who has no limit but the whole.
pub(super) fn owner_of(principal: &Principal, address: Option<IpAddr>) -> Option<String> {
    match principal.kind() {
        PrincipalKind::Local => None,
        PrincipalKind::Anonymous => address.map(|address| format!("{:x}", subnet(address))),
        // No id has a line break.
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
