//! All instruments, each declared once with its unit and description.
//!
//! A new instrument must also be added to the table in `docs/observability.md`.

use super::metrics::Instrument;

macro_rules! instruments {
    ($($(#[$about:meta])* $name:ident = $kind:ident($($part:literal),*);)*) => {
        $($(#[$about])* pub const $name: Instrument = Instrument::$kind($($part),*);)*

        /// All instruments.
        #[cfg(test)]
        pub const ALL: &[&Instrument] = &[$(&$name),*];
    };
}

instruments! {
    /// Metric of the semantic conventions for MCP.
    OPERATION_DURATION = timing("mcp.server.operation.duration",
        "Duration from a request to its response, by method, tool, outcome and protocol version");
    /// Metric of the semantic conventions for MCP.
    SESSION_DURATION = timing("mcp.server.session.duration", "Life of sessions that their clients ended");
    /// Metric of the semantic conventions for HTTP.
    HTTP_DURATION = timing("http.server.request.duration",
        "Duration from an HTTP request to the head of its response");
    /// Metric of the semantic conventions for HTTP.
    HTTP_ACTIVE = gauge("http.server.active_requests", "{request}", "HTTP requests in progress");
    /// Operation durations by operation alone, with finer buckets than the conventions.
    LATENCY = timing("longshore.operation.latency",
        "Duration from a request to its response, by method and tool, in fine buckets");
    /// Metric for autoscaling.
    IN_FLIGHT = gauge("mcp.inflight_requests", "{request}", "Protocol requests in progress");
    /// Metric for autoscaling.
    OPEN_STREAMS = gauge("mcp.open_streams", "{stream}", "Event streams that are open");
    /// By revision.
    SESSIONS_OPENED = counter("longshore.sessions.opened", "{session}", "Sessions that were opened by initialize");
    /// All, idle ones too.
    CONNECTIONS = gauge("longshore.connections", "{connection}", "Connections that are open");
    /// A measure of saturation.
    QUEUE_TIME = timing("longshore.connection.queue.time", "Time that accepted connections waited for their worker");
    /// By the limit's name, which is that of its setting.
    LIMIT_HITS = counter("longshore.limit.hits", "{event}",
        "Times that a limit was reached, by the setting that has it");
    /// Large responses only.
    UNREAD_BYTES = gauge("longshore.responses.unread", "By",
        "Bytes of large responses that wait for their clients to read them");
    /// By reason. Limits have their own metric.
    REFUSALS = counter("longshore.refusals", "{request}",
        "Rejected requests, by reason; those rejected by a limit are counted as its hits");
    /// By event.
    AUDIT_RECORDS = counter("longshore.audit.records", "{record}", "Records written to the audit log, by event");
    /// By cause.
    AUDIT_LOST = counter("longshore.audit.lost", "{record}", "Records of the audit log that were lost, by reason");
    /// 1 while the audit log cannot be written.
    AUDIT_FAILING = gauge("longshore.audit.failing", "1", "1 while the audit log cannot be written, else 0");
    /// By outcome.
    QUESTIONS = counter("longshore.client_requests", "{question}", "Client requests, by outcome");
    /// Sessions only: stateless requests do not wait for a response.
    QUESTIONS_WAITING = gauge("longshore.client_requests.waiting", "{question}", "Client requests in progress");
    /// By kind.
    STREAMS = gauge("longshore.streams", "{stream}", "Streams that last, by kind");
    /// Subscriptions of streams that are open on this replica.
    SUBSCRIPTIONS = gauge("longshore.subscriptions", "{subscription}",
        "Resources that open streams have subscribed to");
    /// Counted even if no client resumes the stream.
    REPLAY_BYTES = counter("longshore.streams.replay", "By", "Bytes of streams that were stored for resumption");
    /// In this process.
    TASKS_RUNNING = gauge("longshore.tasks.running", "{task}",
        "Calls that have outlived their request and still run");
    /// Reloads of the configuration, by outcome.
    RELOADS = counter("longshore.config.reloads", "{reload}", "Attempts to reload the configuration, by outcome");
    /// 1 until a reload succeeds.
    RELOAD_FAILED = gauge("longshore.config.last_reload_failed", "1",
        "1 while the last attempt to reload the configuration has failed, else 0");
    /// Number of the active configuration.
    GENERATION = gauge("longshore.config.generation", "{generation}",
        "Which configuration is in effect, counted from 1");
    /// Only with `http.tls`.
    CERTIFICATE_EXPIRY = gauge("longshore.tls.certificate.expiry", "s",
        "Time at which the certificate of http.tls expires, in seconds since 1970");
    /// By state: `connected`, `idle` (not in use) or `down`.
    UPSTREAMS = gauge("longshore.upstreams", "{upstream}", "Upstream servers by state: connected, or not");
    /// By upstream. Requests rejected by a limit are included.
    UPSTREAM_REQUESTS = counter("longshore.upstream.requests", "{request}", "Requests to an upstream");
    /// By upstream and reason: `error`, `full` or `tripped`.
    UPSTREAM_FAILURES = counter("longshore.upstream.failures", "{request}",
        "Requests to an upstream that failed or were not sent, by reason");
    /// By upstream.
    UPSTREAM_ACTIVE = gauge("longshore.upstream.active_requests", "{request}",
        "Requests to an upstream that are under way");
    /// By upstream.
    UPSTREAM_WAITING = gauge("longshore.upstream.waiting_requests", "{request}",
        "Requests to an upstream that wait for their turn");
    /// By upstream.
    UPSTREAM_RETRIES = counter("longshore.upstream.retries", "{request}",
        "Requests to an upstream that were sent again");
    /// By upstream.
    UPSTREAM_MISMATCHES = counter("longshore.upstream.mismatches", "{result}",
        "Results of an upstream that did not conform to the output schema of their tool");
    /// By outcome: `kept`, `refused`, `read`, `missing` or `failed`.
    ARTIFACTS = counter("longshore.artifacts", "{result}",
        "Large results by outcome: stored, sent inline, read, expired, or unreadable");
    /// By upstream.
    UPSTREAM_BREAKER = gauge("longshore.upstream.breaker", "1",
        "State of the circuit breaker of an upstream: 0 closed, 1 half-open, 2 open");
    /// By upstream.
    UPSTREAM_CONNECTIONS = counter("longshore.upstream.connections", "{connection}",
        "Connections to an upstream that were made, programs that were started among them");
    /// By upstream and message kind: `log` or `request`.
    UPSTREAM_WITHHELD = counter("longshore.upstream.withheld", "{message}",
        "Messages of an upstream server that were discarded, because their call is unknown");
    /// By outcome.
    STATE_REQUESTS = counter("longshore.state.requests", "{request}", "Requests to the shared state, by outcome");
    /// By kind. Only of a state in memory.
    STATE_MEMORY = gauge("longshore.state.memory", "By", "Memory of the in-process state, by kind of entry");
    /// By kind. Only of a state in memory.
    STATE_ENTRIES = gauge("longshore.state.entries", "{entry}", "Entries of the in-process state, by kind");
    /// Semantic conventions for MCP: responses of an upstream, as seen by its client.
    CLIENT_DURATION = timing("mcp.client.operation.duration",
        "Duration from a request to an upstream server to its response");
    /// Semantic conventions for MCP: sessions with upstreams.
    CLIENT_SESSION_DURATION = timing("mcp.client.session.duration", "Life of sessions with upstream servers");
    /// By issuer.
    KEYS_AGE = gauge("longshore.issuer.keys.age", "s",
        "Time since the keys of an issuer were last fetched, or since the start if they never were");
    /// Introspections of access tokens, by outcome: `active`, `inactive` or `failed`.
    INTROSPECTIONS = counter("longshore.auth.introspections", "{request}",
        "Requests to the introspection endpoint of an issuer, by outcome");
    /// Steps of logins, by step and outcome: those at the authorization server (`auth.oauth.facade`), and those of users at
    /// the APIs of sources (`account`).
    LOGINS = counter("longshore.auth.logins", "{step}", "Steps of logins, by step and outcome");
    /// Exchanges of callers' access tokens, by source and outcome.
    EXCHANGES = counter("longshore.auth.exchanges", "{request}",
        "Exchanges of callers' access tokens at an issuer, by upstream and outcome");
    /// Log lines that were dropped because the output was too slow.
    LOG_DROPPED = counter("longshore.log.dropped", "{line}",
        "Log lines that were dropped, because standard error was blocked or could not be written");
    /// Log lines that were cut because of their length.
    LOG_CUT = counter("longshore.log.cut", "{line}", "Log lines that were cut, being longer than log.line_bytes");
    /// Spans and log records that were not delivered.
    EXPORT_DROPPED = counter("longshore.export.dropped", "{item}",
        "Spans, log records and data points of metrics that were not exported, by signal");
    /// As `/readyz`.
    READY = gauge("longshore.ready", "1", "1 while requests should be sent here, else 0");
    /// 1 while the server stops.
    DRAINING = gauge("longshore.draining", "1", "1 while the server is stopping, else 0");
    /// Number of tools.
    TOOLS = gauge("longshore.tools", "{tool}", "Tools that are served");
    /// Size of the list for callers who see all tools.
    TOOLS_SIZE = gauge("longshore.tools.size", "By",
        "The list of tools as clients get it, which every conversation carries");
    /// Always 1. Its label is the version.
    BUILD = gauge("longshore.build.info", "1", "Always 1; the labels name the version");
    /// User and system together.
    CPU_TIME = counter("process.cpu.time", "s", "CPU time of the process");
    /// Metrics of the process.
    MEMORY = gauge("process.memory.usage", "By", "Memory that the process has in use");
    /// Metrics of the process.
    FILES = gauge("process.open_file_descriptor.count", "{file}", "Files and sockets that the process has open");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorCode;
    use crate::telemetry::prometheus;

    #[test]
    fn every_instrument_is_documented_under_both_of_its_names() {
        let document = include_str!("../../../../docs/observability.md");
        for instrument in ALL {
            for name in [instrument.name, &prometheus::name(instrument)] {
                assert!(document.contains(&format!("`{name}`")), "{name}");
            }
        }
    }

    #[test]
    fn what_the_dashboard_and_the_alerts_ask_for_exists() {
        let names: Vec<_> = ALL.iter().map(|i| prometheus::name(i)).collect();
        for text in [
            include_str!("../../../../helm/longshore/dashboards/dashboard.json"),
            include_str!("../../../../helm/longshore/dashboards/alerts.yaml"),
        ] {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let asked: Vec<_> = words
                .filter(|word| {
                    ["mcp_", "longshore_", "http_server_", "process_"]
                        .iter()
                        .any(|prefix| word.starts_with(prefix))
                })
                // Labels.
                .filter(|word| !["mcp_method_name", "mcp_protocol_version"].contains(word))
                .collect();
            assert!(asked.len() > 5);
            for word in asked {
                let bare = ["_bucket", "_count", "_sum"]
                    .iter()
                    .find_map(|suffix| word.strip_suffix(suffix));
                let known = |name: &str| names.iter().any(|known| known == name);
                assert!(known(word) || bare.is_some_and(known), "{word}");
            }
        }
    }

    /// Matches plain characters, and classes such as `[0-2]`.
    fn matches(pattern: &str, text: &str) -> bool {
        let (mut pattern, mut text) = (pattern.chars(), text.chars());
        while let Some(first) = pattern.next() {
            let (from, to) = match first {
                '[' => {
                    let class: Vec<char> = pattern.by_ref().take_while(|c| *c != ']').collect();
                    (class[0], class[2])
                }
                plain => (plain, plain),
            };
            if !text
                .next()
                .is_some_and(|found| (from..=to).contains(&found))
            {
                return false;
            }
        }
        text.next().is_none()
    }

    #[test]
    fn the_alert_for_errors_counts_failures_of_the_server_and_no_mistakes_of_callers() {
        let alerts = include_str!("../../../../helm/longshore/dashboards/alerts.yaml");
        let (_, rest) = alerts.split_once("error_type!~\"").expect("exceptions");
        let (excepted, _) = rest.split_once('"').expect("their end");
        let counts = |code: ErrorCode| {
            let text = code.number().to_string();
            !excepted.split('|').any(|pattern| matches(pattern, &text))
        };
        for code in [
            ErrorCode::Parse,
            ErrorCode::InvalidRequest,
            ErrorCode::MethodNotFound,
            ErrorCode::InvalidParams,
            ErrorCode::ResourceNotFound,
            ErrorCode::UrlElicitationRequired,
            ErrorCode::HeaderMismatch,
            ErrorCode::MissingCapability,
            ErrorCode::UnsupportedProtocolVersion,
            ErrorCode::Http(403),
            ErrorCode::Http(429),
        ] {
            assert!(!counts(code), "{code:?}");
        }
        for code in [ErrorCode::Internal, ErrorCode::Http(503)] {
            assert!(counts(code), "{code:?}");
        }
    }

    #[test]
    fn no_two_instruments_have_one_name() {
        let mut names: Vec<_> = ALL.iter().map(|i| prometheus::name(i)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
