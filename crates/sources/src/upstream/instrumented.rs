//! Metrics and traces of requests to an upstream, following the OpenTelemetry semantic conventions for MCP clients.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::call_error::CallError;
use super::forwarding::Relay;
use crate::client::{ClientError, Params, Target};
use crate::protocol::Revision;
use crate::telemetry::{
    AttributeValue, CLIENT_DURATION, CLIENT_SESSION_DURATION, ClientSpan, Metrics, SpanEnd,
    SpanInfo, Timing,
};

/// Address of an upstream, and the metrics of requests to it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Set if metrics are enabled.
    metrics: OnceLock<Metrics>,
    transport: &'static str,
    /// Host and port of an upstream that is reached over a network.
    address: Option<(String, u16)>,
}

impl Peer {
    pub(super) fn new(target: &Target) -> Self {
        let (transport, address) = match target {
            Target::Program(_) => ("pipe", None),
            Target::Url { url, .. } => {
                let host = url.host_str().unwrap_or_default().to_owned();
                let port = url.port_or_known_default().unwrap_or_default();
                ("tcp", Some((host, port)))
            }
        };
        Self {
            metrics: OnceLock::new(),
            transport,
            address,
        }
    }

    /// Starts recording metrics of its requests.
    pub(super) fn count(&self, metrics: &Metrics) {
        let _ = self.metrics.set(metrics.clone());
    }

    /// Returns the histogram for an operation or a session; `None` if metrics are disabled.
    fn timing(&self, how: Kind<'_>, ending: &SemanticOutcome<'_>) -> Option<Timing> {
        let metrics = self.metrics.get()?;
        let mut labels = Vec::new();
        let instrument = match how {
            Kind::Operation(operation) => {
                labels.push(("mcp.method.name", operation.method));
                labels.push(("network.transport", self.transport));
                if let Some((attribute, name)) = &operation.about {
                    labels.push((attribute, name));
                }
                if operation.method == TOOLS_CALL {
                    labels.push(("gen_ai.operation.name", "execute_tool"));
                }
                &CLIENT_DURATION
            }
            Kind::Session(revision) => {
                labels.push(("mcp.protocol.version", revision.as_str()));
                labels.push(("network.transport", self.transport));
                &CLIENT_SESSION_DURATION
            }
        };
        let port = self.address.as_ref().map(|(_, port)| port.to_string());
        if let (Some((host, _)), Some(port)) = (&self.address, &port) {
            labels.push(("network.protocol.name", "http"));
            labels.push(("server.address", host));
            labels.push(("server.port", port));
        }
        labels.extend(ending.error_type.map(|error| ("error.type", error)));
        labels.extend(
            ending
                .status_code
                .map(|code| ("rpc.response.status_code", code)),
        );
        Some(metrics.timing(instrument, &labels))
    }

    /// Returns the span attributes that are known at the start of a request.
    fn asked(&self, operation: &Operation, uri: Option<&str>) -> SpanInfo {
        let Operation { method, about, .. } = operation;
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("mcp.method.name", (*method).into()),
            ("network.transport", self.transport.into()),
        ];
        if let Some((attribute, name)) = about {
            attributes.push((attribute, name.clone().into()));
        }
        if *method == TOOLS_CALL {
            attributes.push(("gen_ai.operation.name", "execute_tool".into()));
        }
        if let Some(uri) = uri {
            attributes.push(("mcp.resource.uri", uri.to_owned().into()));
        }
        if let Some((host, port)) = &self.address {
            attributes.push(("network.protocol.name", "http".into()));
            attributes.push(("server.address", host.clone().into()));
            attributes.push(("server.port", (*port).into()));
        }
        SpanInfo {
            name: match about {
                Some((_, name)) => format!("{method} {name}"),
                None => (*method).to_owned(),
            },
            attributes,
            error_type: None,
        }
    }
}

/// Kind of the measured duration.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Operation(&'a Operation),
    Session(Revision),
}

const TOOLS_CALL: &str = "tools/call";

/// Operation requested from an upstream: one of its tools, one of its prompts, or anything else.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    about: Option<(&'static str, String)>,
    /// Cached histogram of successful requests.
    well: OnceLock<Timing>,
}

impl Operation {
    pub(super) fn new(method: &'static str) -> Self {
        Self {
            method,
            about: None,
            well: OnceLock::new(),
        }
    }

    /// Returns the operation of calling a tool.
    pub(super) fn tool(name: &str) -> Self {
        Self {
            about: Some(("gen_ai.tool.name", name.to_owned())),
            ..Self::new(TOOLS_CALL)
        }
    }

    /// Returns the operation of getting a prompt.
    pub(super) fn prompt(name: &str) -> Self {
        Self {
            about: Some(("gen_ai.prompt.name", name.to_owned())),
            ..Self::new("prompts/get")
        }
    }
}

/// A request to an upstream for the current caller, while it is in progress.
pub(super) struct InstrumentedRequest<'a> {
    peer: &'a Peer,
    operation: &'a Operation,
    /// `None` if metrics are disabled.
    begun: Option<Instant>,
    hop: ClientSpan,
    /// Receives the messages that belong to the request.
    pub(super) relay: Arc<Relay>,
}

impl<'a> InstrumentedRequest<'a> {
    /// Starts a request. `uri` is the resource it concerns, if any.
    pub(super) fn begin(
        peer: &'a Peer,
        operation: &'a Operation,
        relay: Relay,
        uri: Option<&str>,
    ) -> Self {
        Self {
            begun: peer.metrics.get().map(|_| Instant::now()),
            hop: relay.context().hop(|| peer.asked(operation, uri)),
            relay: Arc::new(relay),
            peer,
            operation,
        }
    }

    /// Returns the request's parameters with its trace context.
    pub(super) fn placed(&self, params: Params) -> Params {
        let passed = self.hop.passed();
        passed.fold(params, |params, (name, text)| params.meta(name, text))
    }

    /// Records the end of the request. `revision` returns the protocol version of the connection.
    pub(super) fn ends(
        self,
        end: &RequestOutcome<'_>,
        revision: impl FnOnce() -> Option<&'static str>,
    ) {
        let code;
        let (error_type, status_code, message) = match end {
            RequestOutcome::Well => (None, None, None),
            RequestOutcome::ToolError => (Some("tool_error"), None, None),
            RequestOutcome::Misread => (Some("invalid_result"), None, None),
            RequestOutcome::Failed(CallError::BulkheadError(_) | CallError::TooManyCallers) => {
                (Some("turned_away"), None, None)
            }
            RequestOutcome::Failed(CallError::Client(ClientError::Unanswered(_))) => {
                (Some("unanswered"), None, None)
            }
            RequestOutcome::Failed(CallError::Client(error) | CallError::Apart(error))
                if error.concerns_caller() =>
            {
                (Some("caller_credentials"), None, None)
            }
            RequestOutcome::Failed(CallError::Client(ClientError::Rpc(error))) => {
                code = code_of(error.code);
                (Some(&*code), Some(&*code), Some(&error.message))
            }
            RequestOutcome::Failed(
                CallError::Apart(ClientError::Timeout(_))
                | CallError::Client(ClientError::Timeout(_)),
            ) => (Some("timeout"), None, None),
            RequestOutcome::Failed(CallError::Apart(_) | CallError::Client(_)) => {
                (Some("connection_error"), None, None)
            }
        };
        let ending = SemanticOutcome {
            error_type,
            status_code,
        };
        if let Some(begun) = self.begun {
            self.count(begun.elapsed(), end, &ending);
        }
        let relay = self.relay;
        self.hop.ends(|| {
            let id = relay.request_id();
            let mut attributes: Vec<(&'static str, AttributeValue)> = Vec::new();
            attributes.extend(id.map(|id| ("jsonrpc.request.id", id.to_string().into())));
            attributes.extend(revision().map(|r| ("mcp.protocol.version", r.into())));
            attributes.extend(
                status_code.map(|code| ("rpc.response.status_code", code.to_owned().into())),
            );
            SpanEnd {
                attributes,
                error_type: error_type.map(|error| Cow::Owned(error.to_owned())),
                message: message.cloned(),
            }
        });
    }

    fn count(&self, elapsed: Duration, end: &RequestOutcome<'_>, ending: &SemanticOutcome<'_>) {
        let timing = || self.peer.timing(Kind::Operation(self.operation), ending);
        match end {
            RequestOutcome::Well => {
                let well = &self.operation.well;
                if let Some(timing) = well.get().cloned().or_else(timing) {
                    well.get_or_init(|| timing).record(elapsed);
                }
            }
            // The request was not sent.
            RequestOutcome::Failed(CallError::BulkheadError(_) | CallError::TooManyCallers) => {}
            _ => {
                if let Some(timing) = timing() {
                    timing.record(elapsed);
                }
            }
        }
    }
}

/// Outcome in the terms of the semantic conventions.
#[derive(Clone, Copy, Debug, Default)]
struct SemanticOutcome<'a> {
    error_type: Option<&'a str>,
    status_code: Option<&'a str>,
}

/// A session with an upstream, measured from its handshake until it is closed.
#[derive(Debug)]
pub(super) struct Session {
    peer: Arc<Peer>,
    /// `None` if the protocol version has no sessions.
    revision: Option<Revision>,
    begun: Instant,
    lost: AtomicBool,
}

impl Session {
    pub(super) fn begin(peer: &Arc<Peer>, revision: Revision) -> Self {
        Self {
            peer: Arc::clone(peer),
            revision: revision.has_sessions().then_some(revision),
            begun: Instant::now(),
            lost: AtomicBool::new(false),
        }
    }

    /// Records that the session was not ended by this side.
    pub(super) fn is_lost(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(revision) = self.revision else {
            return;
        };
        let lost = self.lost.load(Ordering::Relaxed);
        let ending = SemanticOutcome {
            error_type: lost.then_some("connection_error"),
            status_code: None,
        };
        if let Some(timing) = self.peer.timing(Kind::Session(revision), &ending) {
            timing.record(self.begun.elapsed());
        }
    }
}

/// Outcome of a request.
pub(super) enum RequestOutcome<'e> {
    Well,
    /// The tool reported an error.
    ToolError,
    /// The result is not valid.
    Misread,
    Failed(&'e CallError),
}

/// Returns the label of an error code, if the specification defines it. Other codes are unbounded.
fn code_of(code: i64) -> String {
    match code {
        -32700 | -32603..=-32600 | -32042 | -32022..=-32020 | -32004..=-32000 => code.to_string(),
        _ => "_OTHER".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_somebody_makes_up_are_one() {
        for code in [-32700, -32601, -32602, -32002, -32000] {
            assert_eq!(code_of(code), code.to_string());
        }
        for code in [0, 1, 404, -31999, -32768, i64::MIN] {
            assert_eq!(code_of(code), "_OTHER");
        }
    }
}
