//! Why requests are refused, and how often each of that happens.

use super::instruments::REFUSALS;
use super::metrics::{Counter, Metrics};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The head is not one: framing, a header twice.
    Head,
    /// The `Host` is missing, or no host.
    Host,
    /// A host that is not answered to.
    HostForeign,
    /// A page of an origin that may not call.
    Origin,
    /// No credential was shown.
    CredentialMissing,
    /// Credentials in a form that may mean several things.
    CredentialMalformed,
    /// A credential that is not known, has ended, or is for somebody else.
    CredentialInvalid,
    /// Whether a credential is good cannot be found out.
    CredentialUnchecked,
    /// The credential lacks a scope.
    Scope,
    /// There is nothing at the path, or nothing for the caller.
    Path,
    /// A method that the path does not have.
    PathMethod,
    /// A body that is not JSON by its type, or compressed.
    MediaType,
    /// No form of answer that the client takes.
    NotAcceptable,
    /// A body that broke off.
    Body,
    /// No JSON-RPC message.
    Malformed,
    /// `_meta` lacks what it must have.
    Meta,
    /// A header contradicts the message.
    Header,
    /// A version that is not served.
    Version,
    /// A method that does not exist.
    Method,
    /// A capability that the client has not declared.
    Capability,
    /// An answer to a question of another process.
    AskedElsewhere,
    /// No session where one is needed.
    SessionMissing,
    /// A session that has ended, never was, or is another's.
    SessionUnknown,
    /// A tool that does not exist, or not for the caller.
    Tool,
    /// Arguments that the tool does not take.
    Arguments,
    /// The call ran out of time.
    TimedOut,
    /// More streams than one caller may have.
    Streams,
    /// An event after which nothing can be replayed.
    EventUnknown,
    /// What replicas share cannot be reached.
    State,
    /// What happens cannot be recorded, and has to be.
    Audit,
    /// A limit, by its setting.
    Limit(&'static str),
}

impl Reason {
    /// Those that are counted here, in the order of their places.
    const COUNTED: [Self; 30] = [
        Self::Head,
        Self::Host,
        Self::HostForeign,
        Self::Origin,
        Self::CredentialMissing,
        Self::CredentialMalformed,
        Self::CredentialInvalid,
        Self::CredentialUnchecked,
        Self::Scope,
        Self::Path,
        Self::PathMethod,
        Self::MediaType,
        Self::NotAcceptable,
        Self::Body,
        Self::Malformed,
        Self::Meta,
        Self::Header,
        Self::Version,
        Self::Method,
        Self::Capability,
        Self::AskedElsewhere,
        Self::SessionMissing,
        Self::SessionUnknown,
        Self::Tool,
        Self::Arguments,
        Self::TimedOut,
        Self::Streams,
        Self::EventUnknown,
        Self::State,
        Self::Audit,
    ];

    /// The word for it, in metrics and records; of a limit its setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Host => "host",
            Self::HostForeign => "host_foreign",
            Self::Origin => "origin",
            Self::CredentialMissing => "credential_missing",
            Self::CredentialMalformed => "credential_malformed",
            Self::CredentialInvalid => "credential_invalid",
            Self::CredentialUnchecked => "credential_unchecked",
            Self::Scope => "scope",
            Self::Path => "path",
            Self::PathMethod => "path_method",
            Self::MediaType => "media_type",
            Self::NotAcceptable => "not_acceptable",
            Self::Body => "body",
            Self::Malformed => "malformed",
            Self::Meta => "meta",
            Self::Header => "header",
            Self::Version => "version",
            Self::Method => "method",
            Self::Capability => "capability",
            Self::AskedElsewhere => "asked_elsewhere",
            Self::SessionMissing => "session_missing",
            Self::SessionUnknown => "session_unknown",
            Self::Tool => "tool",
            Self::Arguments => "arguments",
            Self::TimedOut => "timeout",
            Self::Streams => "streams",
            Self::EventUnknown => "event_unknown",
            Self::State => "state",
            Self::Audit => "audit",
            Self::Limit(setting) => setting,
        }
    }

    /// Its place among the counters; limits have counters of their own.
    fn place(self) -> Option<usize> {
        Self::COUNTED.iter().position(|reason| *reason == self)
    }
}

/// Counters of all reasons.
#[derive(Clone, Debug)]
pub struct Refusals([Counter; Reason::COUNTED.len()]);

impl Refusals {
    /// Those that metrics show.
    pub fn new(metrics: &Metrics) -> Self {
        Self(
            Reason::COUNTED
                .map(|reason| metrics.counter(&REFUSALS, &[("reason", reason.as_str())])),
        )
    }

    /// One more.
    pub fn count(&self, reason: Reason) {
        if let Some(place) = reason.place() {
            self.0[place].add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_and_limits_have_theirs_elsewhere() {
        let metrics = Metrics::default();
        let refusals = Refusals::new(&metrics);
        let document = include_str!("../../../../docs/observability.md");
        for reason in Reason::COUNTED {
            refusals.count(reason);
            let shown = metrics.counter(&REFUSALS, &[("reason", reason.as_str())]);
            assert_eq!(shown.value(), 1, "{reason:?}");
            assert!(
                document.contains(&format!("`{}`", reason.as_str())),
                "{reason:?}"
            );
        }
        refusals.count(Reason::Limit("limits.server"));
        let shown = metrics.counter(&REFUSALS, &[("reason", "limits.server")]);
        assert_eq!(shown.value(), 0);
    }
}
