//! Counters of limit hits.

use std::sync::Arc;

use crate::telemetry::{Counter, LIMIT_HITS, Metrics};

longshore_protocol::named_enum! {
    /// A limited resource.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    #[non_exhaustive]
    pub enum Limit {
        /// Connections at once.
        Connections = "http.limits.connections",
        /// Connections at once from one address.
        ConnectionsPerAddress = "http.limits.connections_per_address",
        /// Files that the process may have open: a connection could not be accepted.
        OpenFiles = "RLIMIT_NOFILE",
        /// Bytes of a request's target.
        TargetBytes = "http.limits.target_bytes",
        /// Bytes of a request's head.
        HeaderBytes = "http.limits.header_bytes",
        /// Fields of a request's head.
        HeaderFields = "http.limits.header_fields",
        /// Time for a handshake of TLS.
        HandshakeSeconds = "http.tls.handshake_seconds",
        /// Time for a request's head.
        HeaderSeconds = "http.limits.header_seconds",
        /// Bytes of a body.
        BodyBytes = "http.limits.body_bytes",
        /// Time for a body.
        BodySeconds = "http.limits.body_seconds",
        /// Bytes of a body at a time.
        BodyRate = "http.limits.body_bytes_per_second",
        /// Time in which a client takes nothing of an answer.
        WriteStallSeconds = "http.limits.write_stall_seconds",
        /// Time in which nothing is asked on a connection.
        IdleSeconds = "http.limits.idle_seconds",
        /// Age of a connection.
        ConnectionSeconds = "http.limits.connection_seconds",
        /// Requests on a connection.
        ConnectionRequests = "http.limits.connection_requests",
        /// Time for a sign of life on HTTP/2.
        Http2PingSeconds = "http.limits.http2_ping_seconds",
        /// Wasted work that an HTTP/2 client caused.
        Http2Resets = "http.limits.http2_resets",
        /// HTTP/2 streams that the client reset, per second.
        Http2ResetRate = "http.limits.http2_resets_per_second",
        /// Frames of HTTP/2 in a second that carry nothing for a request.
        Http2Frames = "http.limits.http2_control_frames_per_second",
        /// Bytes of a message on standard input.
        StdioMessage = "stdio.message_bytes",
        /// Levels of JSON in a message.
        JsonDepth = "server.messages.depth",
        /// Members of an object in a message.
        JsonMembers = "server.messages.members",
        /// Values of a message.
        JsonValues = "server.messages.values",
        /// Bytes of a request's id.
        IdBytes = "server.messages.id_bytes",
        /// Messages of an array.
        Batch = "server.messages.batch",
        /// Bytes of the answers to an array.
        BatchBytes = "server.messages.batch_bytes",
        /// Bytes of an access token.
        TokenBytes = "auth.token_bytes",
        /// Bytes of an API key.
        KeyBytes = "auth.key_bytes",
        /// Life of a session.
        SessionSeconds = "server.session_seconds",
        /// Messages of a call that wait to be sent.
        QueueMessages = "server.streams.queue_messages",
        /// Bytes of them.
        QueueBytes = "server.streams.queue_bytes",
        /// Resources that a stream has subscribed to.
        Subscriptions = "server.streams.subscriptions",
        /// Tasks that run.
        Tasks = "server.tasks.total",
        /// Tasks of one principal that run.
        PrincipalTasks = "server.tasks.per_principal",
        /// Memory of the process.
        Memory = "limits.memory_bytes",
        /// Memory of responses that wait to be read.
        ResponseBytes = "limits.response_bytes",
        /// Requests at a time, all together.
        ServerRate = "limits.server",
        /// Requests at a time from one address.
        AddressRate = "limits.address",
        /// Requests at a time from one principal.
        PrincipalRate = "limits.principal",
        /// Sessions that begin at a time.
        Initialize = "limits.initialize_per_minute",
        /// Failed attempts to authenticate from one address.
        FailedAuthentications = "limits.failed_authentications_per_minute",
        /// Calls of one tool at a time.
        ToolRate = "limits.tools",
        /// Calls that run at once.
        Calls = "limits.calls",
        /// Calls of one principal that run at once.
        PrincipalCalls = "limits.calls_per_principal",
        /// Calls of one address that run at once.
        AddressCalls = "limits.calls_per_address",
        /// Calls of one tool that run at once.
        ToolCalls = "limits.tools.calls",
    }
    /// Returns the setting of the limit, which is also its label in metrics.
    pub fn setting;
    /// All of them, in the order of their numbers.
    pub const ALL;
}

impl Limit {
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
