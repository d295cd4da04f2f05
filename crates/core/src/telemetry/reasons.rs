//! Reasons for rejected requests, and their counters.

use super::instruments::REFUSALS;
use super::metrics::{Counter, Metrics};

macro_rules! reasons {
    ($($(#[$about:meta])* $reason:ident = $label:literal,)*) => {
        /// Reason for which a request was rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$about])* $reason,)*
            /// A limit, by the name of its setting.
            Limit(&'static str),
        }

        impl Reason {
            /// Reasons with a counter here, in the order of their indexes.
            const COUNTED: [Self; [$($label),*].len()] = [$(Self::$reason),*];

            /// Returns the label in metrics and records. For a limit it is the setting.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $label,)*
                    Self::Limit(setting) => setting,
                }
            }
        }
    };
}

reasons! {
    /// The request head is invalid: framing, or a repeated header.
    Head = "head",
    /// The `Host` header is missing or invalid.
    Host = "host",
    /// The `Host` header is not allowed.
    HostForeign = "host_foreign",
    /// The browser origin is not allowed.
    Origin = "origin",
    /// The request has no credential.
    CredentialMissing = "credential_missing",
    /// The credentials are ambiguous or malformed.
    CredentialMalformed = "credential_malformed",
    /// The credential is unknown, expired, or issued for another server.
    CredentialInvalid = "credential_invalid",
    /// The credential could not be verified.
    CredentialUnchecked = "credential_unchecked",
    /// The credential lacks a scope.
    Scope = "scope",
    /// The path does not exist, or not for this caller.
    Path = "path",
    /// The path does not support the method.
    PathMethod = "path_method",
    /// The media type is not JSON, or the body is compressed.
    MediaType = "media_type",
    /// The client accepts no available media type.
    NotAcceptable = "not_acceptable",
    /// The body ended early.
    Body = "body",
    /// The body is not a JSON-RPC message.
    Malformed = "malformed",
    /// A required `_meta` field is missing.
    Meta = "meta",
    /// A header contradicts the message.
    Header = "header",
    /// The protocol version is not supported.
    Version = "version",
    /// The method does not exist.
    Method = "method",
    /// The client has not declared a required capability.
    Capability = "capability",
    /// The response belongs to a request of another process.
    AskedElsewhere = "asked_elsewhere",
    /// The request needs a session.
    SessionMissing = "session_missing",
    /// The session has ended, does not exist, or belongs to another caller.
    SessionUnknown = "session_unknown",
    /// The tool does not exist, or not for this caller.
    Tool = "tool",
    /// The arguments are invalid.
    Arguments = "arguments",
    /// The call timed out.
    TimedOut = "timeout",
    /// The caller has too many streams.
    Streams = "streams",
    /// The event ID is unknown, so the stream cannot be resumed.
    EventUnknown = "event_unknown",
    /// The shared state is unavailable.
    State = "state",
    /// The request could not be recorded in the audit log, which is required.
    Audit = "audit",
}

impl Reason {
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
