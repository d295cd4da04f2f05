//! Endpoint, transport and credentials of each signal.

use std::path::PathBuf;
use std::time::Duration;

use super::{Reader, Target, keyword, timeout_of};
use crate::telemetry::config::{ExportProtocol, TelemetryConfig};

/// An exported signal.
#[derive(Clone, Copy)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

/// Default timeout of an export, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;

impl Signal {
    fn word(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
            Self::Logs => "v1/logs",
        }
    }
}

impl<'p> Reader<'p> {
    /// Returns the destination of a signal, or `None` if it is not exported.
    pub(super) fn target(&mut self, config: &TelemetryConfig, signal: Signal) -> Option<Target> {
        if !self.is_exported(signal) {
            return None;
        }
        let protocol = self.protocol(config, signal);
        let endpoint = self.endpoint(config, signal, protocol)?;
        Some(Target {
            endpoint,
            protocol,
            compressed: self.is_compressed(signal),
            headers: self.headers(signal),
            timeout: self.sending_timeout(signal),
            identity: self.identity(signal),
            certificate: self.exporter(signal, "CERTIFICATE").map(PathBuf::from),
        })
    }

    /// Returns the variable for the signal, or else the general one.
    fn exporter(&self, signal: Signal, name: &str) -> Option<&'p str> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.word());
        self.probe
            .variable(&own)
            .or_else(|| self.probe.variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn headers(&mut self, signal: Signal) -> Vec<(String, String)> {
        const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
        let Some(list) = self.exporter(signal, "HEADERS") else {
            return Vec::new();
        };
        let mut headers = self.pairs(NAME, list);
        let count = headers.len();
        headers.retain(|(name, value)| {
            name.parse::<http::HeaderName>().is_ok() && value.parse::<http::HeaderValue>().is_ok()
        });
        if headers.len() < count {
            self.remark(format!(
                "{NAME} has a header whose name or value is invalid; it is ignored"
            ));
        }
        headers
    }

    /// Returns the keyword of a variable in lower case.
    fn exporter_word(&self, signal: Signal, name: &str) -> Option<String> {
        self.exporter(signal, name).map(keyword)
    }

    /// Returns true if OTLP is among the signal's exporters.
    fn is_exported(&mut self, signal: Signal) -> bool {
        let name = format!("OTEL_{}_EXPORTER", signal.word());
        let Some(list) = self.word(&name) else {
            return true;
        };
        let words = || list.split(',').map(str::trim);
        for other in words() {
            let means = match other {
                "otlp" | "none" | "" => continue,
                "prometheus" => {
                    "but /metrics is always served, at http.admin.port or to authenticated callers"
                }
                "console" => {
                    "but nothing is exported to standard output; log.level sets what is logged"
                }
                _ => "but only otlp and none are supported",
            };
            self.doubt(&name, other, means);
        }
        let is_named = words().any(|word| word == "otlp");
        if !is_named && words().all(|word| word != "none") {
            self.doubts.push(format!(
                "{name} does not name otlp, so {} are not exported",
                signal.word().to_lowercase()
            ));
        }
        is_named
    }

    fn protocol(&mut self, config: &TelemetryConfig, signal: Signal) -> ExportProtocol {
        match self.exporter_word(signal, "PROTOCOL").as_deref() {
            None => config.protocol,
            Some("http/protobuf") => ExportProtocol::Http,
            Some("grpc") => ExportProtocol::Grpc,
            Some(other) => {
                self.doubt(
                    "OTEL_EXPORTER_OTLP_PROTOCOL",
                    other,
                    "but only grpc and http/protobuf are supported; the latter is used",
                );
                ExportProtocol::Http
            }
        }
    }

    fn endpoint(
        &mut self,
        config: &TelemetryConfig,
        signal: Signal,
        protocol: ExportProtocol,
    ) -> Option<String> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.word());
        let own = self.probe.variable(&own);
        let shared = self
            .probe
            .variable("OTEL_EXPORTER_OTLP_ENDPOINT")
            .or(config.endpoint.as_deref())
            .or_else(|| self.probe.variable("MCP_OTEL_ENDPOINT"));
        let endpoint = match (own, shared, protocol) {
            (Some(own), _, _) => own.to_owned(),
            (None, Some(shared), ExportProtocol::Grpc) => shared.to_owned(),
            (None, Some(shared), ExportProtocol::Http) => {
                format!("{}/{}", shared.trim_end_matches('/'), signal.path())
            }
            (None, None, _) => return None,
        };
        // A gRPC endpoint can be `host:port`. A separate variable then states whether TLS is used.
        let endpoint = match endpoint.contains("://") {
            false if protocol == ExportProtocol::Grpc => {
                let scheme = if self.is_insecure(signal) {
                    "http"
                } else {
                    "https"
                };
                format!("{scheme}://{endpoint}")
            }
            _ => endpoint,
        };
        let url = endpoint.parse::<http::Uri>().ok();
        let url = url.filter(|url| {
            matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
        });
        let problem = match url.as_ref().and_then(http::Uri::authority) {
            None => "is not an http:// or https:// URL, such as http://collector:4318",
            Some(authority) if authority.as_str().contains('@') => {
                "has a user name or password; put it into a header, by OTEL_EXPORTER_OTLP_HEADERS"
            }
            Some(_) => return Some(endpoint),
        };
        self.is_refused = true;
        // The endpoint may contain a secret.
        self.doubts.push(format!(
            "the endpoint for {} (telemetry.endpoint, OTEL_EXPORTER_OTLP_ENDPOINT) {problem}; they are not exported",
            signal.word().to_lowercase()
        ));
        None
    }

    fn is_insecure(&mut self, signal: Signal) -> bool {
        let word = self.exporter_word(signal, "INSECURE");
        self.is_true("OTEL_EXPORTER_OTLP_INSECURE", word.as_deref())
    }

    fn is_compressed(&mut self, signal: Signal) -> bool {
        match self.exporter_word(signal, "COMPRESSION").as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                self.doubt(
                    "OTEL_EXPORTER_OTLP_COMPRESSION",
                    other,
                    "but only gzip and none are supported; no compression is used",
                );
                false
            }
        }
    }

    fn sending_timeout(&mut self, signal: Signal) -> Duration {
        let text = self.exporter(signal, "TIMEOUT");
        timeout_of(self.parsed("OTEL_EXPORTER_OTLP_TIMEOUT", text, TIMEOUT_MS))
    }

    /// Returns the client certificate and key for the collector.
    fn identity(&mut self, signal: Signal) -> Option<(PathBuf, PathBuf)> {
        let shown = self
            .exporter(signal, "CLIENT_CERTIFICATE")
            .map(PathBuf::from);
        let key = self.exporter(signal, "CLIENT_KEY").map(PathBuf::from);
        if shown.is_some() != key.is_some() {
            self.doubts.push(
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY belong together; no certificate is shown"
                    .to_owned(),
            );
        }
        shown.zip(key)
    }
}
