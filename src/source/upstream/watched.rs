//! How long requests to an upstream take, as the conventions of OpenTelemetry for MCP count it for clients.

use std::sync::OnceLock;
use std::time::Instant;

use super::connection::CallError;
use crate::client::{ClientError, Target};
use crate::telemetry::{CLIENT_DURATION, Metrics, Timing};

/// Where the requests of one upstream are counted.
#[derive(Debug)]
pub(super) struct Durations {
    metrics: Metrics,
    transport: &'static str,
    /// Host and port, if it is reached over a network.
    address: Option<(String, String)>,
}

impl Durations {
    pub(super) fn new(metrics: &Metrics, target: &Target) -> Self {
        let (transport, address) = match target {
            Target::Program(_) => ("pipe", None),
            Target::Url { url, .. } => {
                let host = url.host_str().unwrap_or_default().to_owned();
                let port = url.port_or_known_default().unwrap_or_default();
                ("tcp", Some((host, port.to_string())))
            }
        };
        Self {
            metrics: metrics.clone(),
            transport,
            address,
        }
    }

    fn timing(&self, operation: &Operation, error: Option<&str>, code: Option<&str>) -> Timing {
        let mut labels = vec![
            ("mcp.method.name", operation.method),
            ("network.transport", self.transport),
        ];
        if let Some((attribute, name)) = &operation.about {
            labels.push((attribute, name));
        }
        if operation.method == "tools/call" {
            labels.push(("gen_ai.operation.name", "execute_tool"));
        }
        if let Some((host, port)) = &self.address {
            labels.push(("network.protocol.name", "http"));
            labels.push(("server.address", host));
            labels.push(("server.port", port));
        }
        labels.extend(error.map(|error| ("error.type", error)));
        labels.extend(code.map(|code| ("rpc.response.status_code", code)));
        self.metrics.timing(&CLIENT_DURATION, &labels)
    }
}

/// What an upstream is asked for: one of its tools, one of its prompts, or anything else.
#[derive(Debug)]
pub(super) struct Operation {
    method: &'static str,
    about: Option<(&'static str, String)>,
    /// Where those that go well are counted, once one has.
    well: OnceLock<Timing>,
}

impl Operation {
    /// `about` is the attribute that names what it is about, and the name.
    pub(super) fn new(method: &'static str, about: Option<(&'static str, &str)>) -> Self {
        Self {
            method,
            about: about.map(|(attribute, name)| (attribute, name.to_owned())),
            well: OnceLock::new(),
        }
    }

    /// A call of one of an upstream's tools.
    pub(super) fn tool(name: &str) -> Self {
        Self::new("tools/call", Some(("gen_ai.tool.name", name)))
    }

    /// Counts one that has ended.
    pub(super) fn ended(&self, durations: &Durations, begun: Instant, end: &End<'_>) {
        let elapsed = begun.elapsed();
        let code;
        let (error, status) = match end {
            End::Well => {
                let well = || durations.timing(self, None, None);
                return self.well.get_or_init(well).record(elapsed);
            }
            End::ToolError => ("tool_error", None),
            // It was not made.
            End::Failed(CallError::Turned(_)) => return,
            End::Failed(CallError::Client(ClientError::Rpc(error))) => {
                code = code_of(error.code);
                (&*code, Some(&*code))
            }
            End::Failed(CallError::Client(ClientError::Timeout(_))) => ("timeout", None),
            End::Failed(CallError::Client(_)) => ("connection_error", None),
        };
        durations.timing(self, Some(error), status).record(elapsed);
    }
}

/// How a request ended.
pub(super) enum End<'e> {
    Well,
    /// The tool says that it failed.
    ToolError,
    Failed(&'e CallError),
}

/// The code of an error, if it is one that the specification has: others can be made up without end.
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
