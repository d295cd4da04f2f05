//! Reasons for rejected requests, and their counters.

use super::instruments::REFUSALS;
use super::metrics::{Counter, Metrics};

/// Reason for which a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The request head is invalid: framing, or a repeated header.
    Head,
    /// The `Host` header is missing or invalid.
    Host,
    /// The `Host` header is not allowed.
    HostForeign,
    /// The browser origin is not allowed.
    Origin,
    /// The request has no credential.
    CredentialMissing,
    /// The credentials are ambiguous or malformed.
    CredentialMalformed,
    /// The credential is unknown, expired, or issued for another server.
    CredentialInvalid,
    /// The credential could not be verified.
    CredentialUnchecked,
    /// The credential lacks a scope.
    Scope,
    /// The path does not exist, or not for this caller.
    Path,
    /// The path does not support the method.
    PathMethod,
    /// The media type is not JSON, or the body is compressed.
    MediaType,
    /// The client accepts no available media type.
    NotAcceptable,
    /// The body ended early.
    Body,
    /// The body is not a JSON-RPC message.
    Malformed,
    /// A required `_meta` field is missing.
    Meta,
    /// A header contradicts the message.
    Header,
    /// The protocol version is not supported.
    Version,
    /// The method does not exist.
    Method,
    /// The client has not declared a required capability.
    Capability,
    /// The response belongs to a request of another process.
    AskedElsewhere,
    /// The request needs a session.
    SessionMissing,
    /// The session has ended, does not exist, or belongs to another caller.
    SessionUnknown,
    /// The tool does not exist, or not for this caller.
    Tool,
    /// The arguments are invalid.
    Arguments,
    /// The call timed out.
    TimedOut,
    /// The caller has too many streams.
    Streams,
    /// The event ID is unknown, so the stream cannot be resumed.
    EventUnknown,
    /// The shared state is unavailable.
    State,
    /// The request could not be recorded in the audit log, which is required.
    Audit,
    /// A limit, by the name of its setting.
    Limit(&'static str),
}

impl Reason {
    /// Reasons with a counter here, in the order of their indexes.
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

    /// Returns the label in metrics and records. For a limit it is the setting.
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

    /// Returns the index of the counter. Limits are counted elsewhere.
    fn place(self) -> Option<usize> {
        Self::COUNTED.iter().position(|reason| *reason == self)
    }
}

/// Counters of all reasons.
#[derive(Clone, Debug)]
pub struct Refusals([Counter; Reason::COUNTED.len()]);

impl Refusals {
    /// Registers the counters.
    pub fn new(metrics: &Metrics) -> Self {
        Self(
            Reason::COUNTED
                .map(|reason| metrics.counter(&REFUSALS, &[("reason", reason.as_str())])),
        )
    }

    /// Increments a counter.
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
