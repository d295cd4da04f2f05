//! What the standard variables of OpenTelemetry say, read once at start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::config::{ExportProtocol, TelemetryConfig};
use super::trace::{Propagation, Sampler};
use crate::environment::Probe;

/// Everything that is to be known about exporting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportSettings {
    pub(crate) traces: Option<Target>,
    pub(crate) metrics: Option<Target>,
    pub(crate) logs: Option<Target>,
    pub(crate) sampler: Sampler,
    pub(crate) propagation: Propagation,
    pub(crate) spans: Batching,
    pub(crate) records: Batching,
    pub(crate) metric_interval: Duration,
    /// Who sends: `service.name` and the like.
    pub(crate) resource: BTreeMap<String, String>,
    /// What was said that means nothing, for the log.
    pub(crate) doubts: Vec<String>,
}

/// Where one signal goes.
#[derive(Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) endpoint: String,
    pub(crate) protocol: Protocol,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    pub(crate) certificate: Option<PathBuf>,
}

impl std::fmt::Debug for Target {
    /// Leaves the headers out: they hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

/// How spans and log records are collected before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batching {
    pub(crate) delay: Duration,
    pub(crate) queue: usize,
    pub(crate) batch: usize,
}

#[derive(Clone, Copy)]
enum Signal {
    Traces,
    Metrics,
    Logs,
}

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

/// The name of a service that nobody named.
const SERVICE: &str = "longshore";

impl ExportSettings {
    /// What there is to export, if anything. A signal is exported if somebody said where to: `telemetry.endpoint`,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` or one for the signal alone, or `MCP_OTEL_ENDPOINT`.
    pub(crate) fn read(
        config: &TelemetryConfig,
        probe: &Probe,
        service: (&str, &str),
    ) -> Option<Self> {
        let mut reader = Reader {
            probe,
            doubts: Vec::new(),
        };
        if reader.is_true("OTEL_SDK_DISABLED") {
            return None;
        }
        let mut settings = Self {
            traces: reader.target(config, Signal::Traces),
            metrics: reader.target(config, Signal::Metrics),
            logs: reader.target(config, Signal::Logs),
            sampler: reader.sampler(config.sample),
            propagation: reader.propagation(),
            spans: reader.batching("OTEL_BSP", 5_000),
            records: reader.batching("OTEL_BLRP", 1_000),
            metric_interval: reader.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            resource: reader.resource(service),
            doubts: Vec::new(),
        };
        settings.doubts = reader.doubts;
        let any =
            settings.traces.is_some() || settings.metrics.is_some() || settings.logs.is_some();
        any.then_some(settings)
    }
}

struct Reader<'p> {
    probe: &'p Probe,
    doubts: Vec<String>,
}

impl Reader<'_> {
    fn is_true(&self, name: &str) -> bool {
        let value = self.probe.variable(name);
        value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    }

    fn doubt(&mut self, name: &str, value: &str, means: &str) {
        self.doubts.push(format!("{name} is {value:?}, {means}"));
    }

    fn number<T: std::str::FromStr>(&mut self, name: &str, default: T) -> T {
        match self.probe.variable(name) {
            None => default,
            Some(text) => match text.trim().parse() {
                Ok(number) => number,
                Err(_) => {
                    self.doubt(name, text, "which is no number; its default is used");
                    default
                }
            },
        }
    }

    fn millis(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default).max(1))
    }

    /// The variable for a signal, or the one for all.
    fn exporter(&self, signal: Signal, name: &str) -> Option<&str> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.word());
        self.probe
            .variable(&own)
            .or_else(|| self.probe.variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn target(&mut self, config: &TelemetryConfig, signal: Signal) -> Option<Target> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.word());
        match self.probe.variable(&exporter).map(str::trim) {
            None | Some("otlp") => {}
            Some("none") => return None,
            Some(other) => {
                let other = other.to_owned();
                self.doubt(
                    &exporter,
                    &other,
                    "of which only otlp and none are known; nothing is exported",
                );
                return None;
            }
        }
        let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.word());
        let own = self.probe.variable(&own).map(str::to_owned);
        let shared = self
            .probe
            .variable("OTEL_EXPORTER_OTLP_ENDPOINT")
            .or(config.endpoint.as_deref())
            .or_else(|| self.probe.variable("MCP_OTEL_ENDPOINT"))
            .map(str::to_owned);
        let protocol = match self.exporter(signal, "PROTOCOL").map(str::trim) {
            None => match config.protocol {
                ExportProtocol::Http => Protocol::Http,
                ExportProtocol::Grpc => Protocol::Grpc,
            },
            Some("http/protobuf") => Protocol::Http,
            Some("grpc") => Protocol::Grpc,
            Some(other) => {
                let other = other.to_owned();
                self.doubt(
                    "OTEL_EXPORTER_OTLP_PROTOCOL",
                    &other,
                    "of which only grpc and http/protobuf are known; the latter is used",
                );
                Protocol::Http
            }
        };
        let endpoint = match (own, shared, protocol) {
            (Some(own), _, _) => own,
            (None, Some(shared), Protocol::Grpc) => shared,
            (None, Some(shared), Protocol::Http) => {
                format!("{}/{}", shared.trim_end_matches('/'), signal.path())
            }
            (None, None, _) => return None,
        };
        let is_url = endpoint.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
        });
        if !is_url {
            // The endpoint may hold a secret.
            self.doubts.push(format!(
                "the endpoint for {} is no http:// or https:// URL; they are not exported",
                signal.word().to_lowercase()
            ));
            return None;
        }
        if let Some(compression) = self.exporter(signal, "COMPRESSION")
            && compression.trim() != "none"
        {
            let compression = compression.to_owned();
            self.doubt(
                "OTEL_EXPORTER_OTLP_COMPRESSION",
                &compression,
                "which is not supported; nothing is compressed",
            );
        }
        let headers = self
            .exporter(signal, "HEADERS")
            .map(pairs)
            .unwrap_or_default();
        let timeout = self.exporter(signal, "TIMEOUT").map(str::to_owned);
        let timeout = match timeout.as_deref().map(|text| (text, text.trim().parse())) {
            Some((_, Ok(ms))) => Duration::from_millis(ms),
            Some((text, Err(_))) => {
                self.doubt(
                    "OTEL_EXPORTER_OTLP_TIMEOUT",
                    text,
                    "which is no number; its default is used",
                );
                TIMEOUT
            }
            None => TIMEOUT,
        };
        Some(Target {
            endpoint,
            protocol,
            headers,
            timeout,
            certificate: self.exporter(signal, "CERTIFICATE").map(PathBuf::from),
        })
    }

    fn sampler(&mut self, share: Option<f64>) -> Sampler {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        let Some(word) = self.probe.variable(NAME) else {
            return Sampler::new(true, share.unwrap_or(1.0));
        };
        let word = word.trim().to_owned();
        let (follows, root) = match word.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, word.as_str()),
        };
        match root {
            "always_on" => Sampler::new(follows, 1.0),
            "always_off" => Sampler::new(follows, 0.0),
            "traceidratio" => {
                let share: f64 = self.number("OTEL_TRACES_SAMPLER_ARG", 1.0);
                Sampler::new(follows, if share.is_finite() { share } else { 1.0 })
            }
            _ => {
                self.doubt(
                    NAME,
                    &word,
                    "which is not known; parentbased_always_on is used",
                );
                Sampler::new(true, 1.0)
            }
        }
    }

    fn propagation(&mut self) -> Propagation {
        const NAME: &str = "OTEL_PROPAGATORS";
        let Some(list) = self.probe.variable(NAME) else {
            return Propagation::default();
        };
        let mut propagation = Propagation {
            trace_context: false,
            baggage: false,
        };
        for word in list.split(',').map(str::trim) {
            match word {
                "tracecontext" => propagation.trace_context = true,
                "baggage" => propagation.baggage = true,
                "none" | "" => {}
                other => self.doubt(
                    NAME,
                    other,
                    "of which only tracecontext, baggage and none are known; it is ignored",
                ),
            }
        }
        propagation
    }

    fn batching(&mut self, prefix: &str, delay_ms: u64) -> Batching {
        let queue = self.number(&format!("{prefix}_MAX_QUEUE_SIZE"), 2048_usize);
        let queue = queue.clamp(1, 65_536);
        Batching {
            delay: self.millis(&format!("{prefix}_SCHEDULE_DELAY"), delay_ms),
            queue,
            batch: self
                .number(&format!("{prefix}_MAX_EXPORT_BATCH_SIZE"), 512_usize)
                .clamp(1, queue),
        }
    }

    fn resource(&mut self, (name, version): (&str, &str)) -> BTreeMap<String, String> {
        let mut resource = BTreeMap::from([
            ("service.name".to_owned(), name.to_owned()),
            ("service.version".to_owned(), version.to_owned()),
            ("telemetry.sdk.name".to_owned(), "opentelemetry".to_owned()),
            ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ]);
        if name.is_empty() {
            resource.insert("service.name".to_owned(), SERVICE.to_owned());
        }
        if let Some(host) = self.probe.variable("HOSTNAME") {
            resource.insert("service.instance.id".to_owned(), host.to_owned());
        }
        if let Some(list) = self.probe.variable("OTEL_RESOURCE_ATTRIBUTES") {
            resource.extend(pairs(list));
        }
        if let Some(name) = self.probe.variable("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.to_owned());
        }
        resource
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);

/// `key=value` with commas between them, values percent-encoded.
fn pairs(list: &str) -> Vec<(String, String)> {
    let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.trim().to_owned(), decoded(value.trim())))
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let coded = (*byte == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match coded {
            Some(coded) => {
                out.push(coded);
                rest = &after[2..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Option<ExportSettings> {
        let probe = Probe::of(variables.iter().copied());
        ExportSettings::read(&TelemetryConfig::default(), &probe, ("weather", "1"))
    }

    fn endpoint(target: &Option<Target>) -> Option<&str> {
        target.as_ref().map(|target| target.endpoint.as_str())
    }

    #[test]
    fn nothing_is_exported_that_nobody_asked_for() {
        assert_eq!(read(&[]), None);
        let disabled = [
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ];
        assert_eq!(read(&disabled), None);
        let none = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_LOGS_EXPORTER", "none"),
        ];
        assert_eq!(read(&none), None);
    }

    #[test]
    fn one_endpoint_serves_all_signals_and_each_may_have_its_own() {
        for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "MCP_OTEL_ENDPOINT"] {
            let settings = read(&[(name, "http://collector:4318/")]).expect("an endpoint");
            assert_eq!(
                endpoint(&settings.traces),
                Some("http://collector:4318/v1/traces")
            );
            assert_eq!(
                endpoint(&settings.metrics),
                Some("http://collector:4318/v1/metrics")
            );
            assert_eq!(
                endpoint(&settings.logs),
                Some("http://collector:4318/v1/logs")
            );
        }
        let settings = read(&[
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "https://traces.example/here",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                "authorization=Bearer%20abc, x-team=a",
            ),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ])
        .expect("an endpoint");
        let traces = settings.traces.expect("traces");
        assert_eq!(traces.endpoint, "https://traces.example/here");
        assert_eq!(
            traces.headers[0],
            ("authorization".to_owned(), "Bearer abc".to_owned())
        );
        assert_eq!(traces.timeout, Duration::from_millis(2_500));
        assert!(!format!("{traces:?}").contains("abc"));
        assert_eq!((settings.metrics, settings.logs), (None, None));
    }

    #[test]
    fn grpc_has_no_path() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
        ])
        .expect("an endpoint");
        assert_eq!(endpoint(&settings.traces), Some("http://collector:4317"));
        assert_eq!(settings.traces.map(|t| t.protocol), Some(Protocol::Grpc));
        assert_eq!(
            endpoint(&settings.metrics),
            Some("http://collector:4317/v1/metrics")
        );
    }

    #[test]
    fn samplers_are_those_of_the_specification() {
        let sampler = |word: &str, share: &str| {
            let settings = read(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
                ("OTEL_TRACES_SAMPLER", word),
                ("OTEL_TRACES_SAMPLER_ARG", share),
            ]);
            settings.expect("an endpoint").sampler
        };
        assert_eq!(sampler("", ""), Sampler::new(true, 1.0));
        assert_eq!(sampler("always_off", ""), Sampler::new(false, 0.0));
        assert_eq!(sampler("traceidratio", "0.25"), Sampler::new(false, 0.25));
        assert_eq!(
            sampler("parentbased_traceidratio", "0.01"),
            Sampler::new(true, 0.01)
        );
        assert_eq!(
            sampler("parentbased_always_off", ""),
            Sampler::new(true, 0.0)
        );
        assert_eq!(sampler("xray", ""), Sampler::new(true, 1.0));
    }

    #[test]
    fn what_means_nothing_is_told() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_PROPAGATORS", "tracecontext,b3"),
            ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "collector:4318"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ])
        .expect("an endpoint");
        assert_eq!(settings.doubts.len(), 4, "{:?}", settings.doubts);
        assert_eq!(settings.logs, None);
        let only_context = Propagation {
            trace_context: true,
            baggage: false,
        };
        assert_eq!(settings.propagation, only_context);
        assert_eq!((settings.spans.queue, settings.spans.batch), (100, 100));
    }

    #[test]
    fn resources_say_who_sends() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment.name=test,service.name=one,a=b%2Cc",
            ),
        ])
        .expect("an endpoint");
        assert_eq!(settings.resource["service.name"], "one");
        assert_eq!(settings.resource["service.version"], "1");
        assert_eq!(settings.resource["a"], "b,c");
        let named = read(&[
            ("MCP_OTEL_ENDPOINT", "http://localhost:4318"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=one"),
            ("OTEL_SERVICE_NAME", "two"),
        ]);
        assert_eq!(named.expect("an endpoint").resource["service.name"], "two");
    }
}
