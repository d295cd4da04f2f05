//! Counters of limit hits.

use std::sync::Arc;

use crate::telemetry::{Counter, LIMIT_HITS, Metrics};

/// A limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Limit {
    /// Connections at once.
    Connections,
    /// Connections at once from one address.
    ConnectionsPerAddress,
    /// Files that the process may have open: a connection could not be accepted.
    OpenFiles,
    /// Bytes of a request's target.
    TargetBytes,
    /// Bytes of a request's head.
    HeaderBytes,
    /// Fields of a request's head.
    HeaderFields,
    /// Time for a handshake of TLS.
    HandshakeSeconds,
    /// Time for a request's head.
    HeaderSeconds,
    /// Bytes of a body.
    BodyBytes,
    /// Time for a body.
    BodySeconds,
    /// Bytes of a body at a time.
    BodyRate,
    /// Time in which a client takes nothing of an answer.
    WriteStallSeconds,
    /// Time in which nothing is asked on a connection.
    IdleSeconds,
    /// Age of a connection.
    ConnectionSeconds,
    /// Requests on a connection.
    ConnectionRequests,
    /// Time for a sign of life on HTTP/2.
    Http2PingSeconds,
    /// Wasted work that an HTTP/2 client caused.
    Http2Resets,
    /// HTTP/2 streams that the client reset, per second.
    Http2ResetRate,
    /// Frames of HTTP/2 in a second that carry nothing for a request.
    Http2Frames,
    /// Bytes of a message on standard input.
    StdioMessage,
    /// Levels of JSON in a message.
    JsonDepth,
    /// Members of an object in a message.
    JsonMembers,
    /// Values of a message.
    JsonValues,
    /// Bytes of a request's id.
    IdBytes,
    /// Messages of an array.
    Batch,
    /// Bytes of the answers to an array.
    BatchBytes,
    /// Bytes of an access token.
    TokenBytes,
    /// Bytes of an API key.
    KeyBytes,
    /// Life of a session.
    SessionSeconds,
    /// Messages of a call that wait to be sent.
    QueueMessages,
    /// Bytes of them.
    QueueBytes,
    /// Resources that a stream has subscribed to.
    Subscriptions,
    /// Tasks that run.
    Tasks,
    /// Tasks of one principal that run.
    PrincipalTasks,
    /// Memory of the process.
    Memory,
    /// Memory of responses that wait to be read.
    ResponseBytes,
    /// Requests at a time, all together.
    ServerRate,
    /// Requests at a time from one address.
    AddressRate,
    /// Requests at a time from one principal.
    PrincipalRate,
    /// Sessions that begin at a time.
    Initialize,
    /// Failed attempts to authenticate from one address.
    FailedAuthentications,
    /// Calls of one tool at a time.
    ToolRate,
    /// Calls that run at once.
    Calls,
    /// Calls of one principal that run at once.
    PrincipalCalls,
    /// Calls of one address that run at once.
    AddressCalls,
    /// Calls of one tool that run at once.
    ToolCalls,
}

impl Limit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 46] = [
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::OpenFiles,
        Self::TargetBytes,
        Self::HeaderBytes,
        Self::HeaderFields,
        Self::HandshakeSeconds,
        Self::HeaderSeconds,
        Self::BodyBytes,
        Self::BodySeconds,
        Self::BodyRate,
        Self::WriteStallSeconds,
        Self::IdleSeconds,
        Self::ConnectionSeconds,
        Self::ConnectionRequests,
        Self::Http2PingSeconds,
        Self::Http2Resets,
        Self::Http2ResetRate,
        Self::Http2Frames,
        Self::StdioMessage,
        Self::JsonDepth,
        Self::JsonMembers,
        Self::JsonValues,
        Self::IdBytes,
        Self::Batch,
        Self::BatchBytes,
        Self::TokenBytes,
        Self::KeyBytes,
        Self::SessionSeconds,
        Self::QueueMessages,
        Self::QueueBytes,
        Self::Subscriptions,
        Self::Tasks,
        Self::PrincipalTasks,
        Self::Memory,
        Self::ResponseBytes,
        Self::ServerRate,
        Self::AddressRate,
        Self::PrincipalRate,
        Self::Initialize,
        Self::FailedAuthentications,
        Self::ToolRate,
        Self::Calls,
        Self::PrincipalCalls,
        Self::AddressCalls,
        Self::ToolCalls,
    ];

    /// Returns the setting of the limit, which is also its label in metrics.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Connections => "http.limits.connections",
            Self::ConnectionsPerAddress => "http.limits.connections_per_address",
            Self::OpenFiles => "RLIMIT_NOFILE",
            Self::TargetBytes => "http.limits.target_bytes",
            Self::HeaderBytes => "http.limits.header_bytes",
            Self::HeaderFields => "http.limits.header_fields",
            Self::HandshakeSeconds => "http.tls.handshake_seconds",
            Self::HeaderSeconds => "http.limits.header_seconds",
            Self::BodyBytes => "http.limits.body_bytes",
            Self::BodySeconds => "http.limits.body_seconds",
            Self::BodyRate => "http.limits.body_bytes_per_second",
            Self::WriteStallSeconds => "http.limits.write_stall_seconds",
            Self::IdleSeconds => "http.limits.idle_seconds",
            Self::ConnectionSeconds => "http.limits.connection_seconds",
            Self::ConnectionRequests => "http.limits.connection_requests",
            Self::Http2PingSeconds => "http.limits.http2_ping_seconds",
            Self::Http2Resets => "http.limits.http2_resets",
            Self::Http2ResetRate => "http.limits.http2_resets_per_second",
            Self::Http2Frames => "http.limits.http2_control_frames_per_second",
            Self::StdioMessage => "stdio.message_bytes",
            Self::JsonDepth => "server.messages.depth",
            Self::JsonMembers => "server.messages.members",
            Self::JsonValues => "server.messages.values",
            Self::IdBytes => "server.messages.id_bytes",
            Self::Batch => "server.messages.batch",
            Self::BatchBytes => "server.messages.batch_bytes",
            Self::TokenBytes => "auth.token_bytes",
            Self::KeyBytes => "auth.key_bytes",
            Self::SessionSeconds => "server.session_seconds",
            Self::QueueMessages => "server.streams.queue_messages",
            Self::QueueBytes => "server.streams.queue_bytes",
            Self::Subscriptions => "server.streams.subscriptions",
            Self::Tasks => "server.tasks.total",
            Self::PrincipalTasks => "server.tasks.per_principal",
            Self::Memory => "limits.memory_bytes",
            Self::ResponseBytes => "limits.response_bytes",
            Self::ServerRate => "limits.server",
            Self::AddressRate => "limits.address",
            Self::PrincipalRate => "limits.principal",
            Self::Initialize => "limits.initialize_per_minute",
            Self::FailedAuthentications => "limits.failed_authentications_per_minute",
            Self::ToolRate => "limits.tools",
            Self::Calls => "limits.calls",
            Self::PrincipalCalls => "limits.calls_per_principal",
            Self::AddressCalls => "limits.calls_per_address",
            Self::ToolCalls => "limits.tools.calls",
        }
    }

    /// Returns true for a rate (429), false for a lack of capacity (503).
    pub fn is_a_rate(self) -> bool {
        !matches!(
            self,
            Self::Calls
                | Self::PrincipalCalls
                | Self::AddressCalls
                | Self::ToolCalls
                | Self::Connections
                | Self::Memory
                | Self::ResponseBytes
        )
    }
}

/// Counters of all limits.
#[derive(Debug)]
pub struct LimitCounters([Counter; Limit::ALL.len()]);

impl LimitCounters {
    /// Creates the counters that metrics show.
    pub fn new(metrics: &Metrics) -> Self {
        Self(Limit::ALL.map(|limit| metrics.counter(&LIMIT_HITS, &[("limit", limit.setting())])))
    }

    #[inline]
    pub fn count(&self, limit: Limit) {
        self.0[limit as usize].add(1);
    }

    /// Counts several at once.
    pub fn count_many(&self, limit: Limit, number: u64) {
        if 0 < number {
            self.0[limit as usize].add(number);
        }
    }

    /// Returns the number of hits of a limit.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize].value()
    }
}

/// Counters of the limits that a part of the server has for itself, such as a toolset: by the settings that have them.
#[derive(Clone, Debug, Default)]
pub struct SectionHits(Arc<[(&'static str, Counter)]>);

impl SectionHits {
    /// Creates counters for the limits of a section of the settings.
    pub fn new(metrics: &Metrics, section: &str, limits: &[&'static str]) -> Self {
        let counter = |limit: &'static str| {
            let setting = format!("{section}.{limit}");
            (limit, metrics.counter(&LIMIT_HITS, &[("limit", &setting)]))
        };
        Self(limits.iter().copied().map(counter).collect())
    }

    /// Counts a hit of a limit.
    pub fn count(&self, limit: &str) {
        if let Some((_, counter)) = self.0.iter().find(|(name, _)| *name == limit) {
            counter.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_a_counter_that_metrics_show_by_its_setting() {
        let metrics = Metrics::default();
        let hits = LimitCounters::new(&metrics);
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place);
            assert!(!limit.setting().is_empty());
        }
        hits.count(Limit::BodyBytes);
        let shown = metrics.counter(&LIMIT_HITS, &[("limit", "http.limits.body_bytes")]);
        assert_eq!((shown.value(), hits.of(Limit::BodyBytes)), (1, 1));
        assert_eq!(hits.of(Limit::HeaderBytes), 0);
    }

    #[test]
    fn a_sections_limits_are_counted_by_their_settings() {
        let metrics = Metrics::default();
        let hits = SectionHits::new(&metrics, "builtin.x.limits", &["bytes", "files"]);
        hits.count("files");
        hits.count("nonesuch");
        let of = |setting: &str| metrics.counter(&LIMIT_HITS, &[("limit", setting)]).value();
        assert_eq!(of("builtin.x.limits.files"), 1);
        assert_eq!(of("builtin.x.limits.bytes"), 0);
    }
}
