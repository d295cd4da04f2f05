//! What the standard variables of OpenTelemetry say, read once at start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::config::{ExportProtocol, TelemetryConfig};
use super::trace::{Propagation, Sampler};
use super::variables::{Effect, VARIABLES};
use crate::environment::{Environment, Probe};

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
    pub(crate) span_limits: AttributeLimits,
    pub(crate) record_limits: AttributeLimits,
    pub(crate) metric_interval: Duration,
    pub(crate) metric_timeout: Duration,
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
    /// Whether what is sent is compressed, by gzip.
    pub(crate) compressed: bool,
    pub(crate) certificate: Option<PathBuf>,
    /// What is shown to the collector: files with a certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
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
    /// How long sending a batch may take.
    pub(crate) timeout: Duration,
    pub(crate) queue: usize,
    pub(crate) batch: usize,
}

/// How much is told of one span or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeLimits {
    /// How many attributes there may be.
    pub(crate) count: usize,
    /// How many characters the text of one may have.
    pub(crate) length: usize,
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
            span_limits: reader.limits("SPAN"),
            record_limits: reader.limits("LOGRECORD"),
            metric_interval: reader.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            metric_timeout: reader.millis("OTEL_METRIC_EXPORT_TIMEOUT", 30_000),
            resource: reader.resource(service),
            doubts: Vec::new(),
        };
        reader.tell_of_what_has_no_effect();
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

    /// Attribute limits of a kind, or those for all.
    fn limits(&mut self, kind: &str) -> AttributeLimits {
        let mut limit = |what: &str, default: usize| {
            let all = self.number(&format!("OTEL_ATTRIBUTE_{what}_LIMIT"), default);
            self.number(&format!("OTEL_{kind}_ATTRIBUTE_{what}_LIMIT"), all)
        };
        AttributeLimits {
            count: limit("COUNT", 128),
            length: limit("VALUE_LENGTH", usize::MAX),
        }
    }

    /// Whoever sets a variable should learn that it does nothing.
    fn tell_of_what_has_no_effect(&mut self) {
        for (name, effect) in VARIABLES {
            if let Effect::None(reason) = effect
                && self.probe.variable(name).is_some()
            {
                self.doubts.push(format!("{name} has no effect: {reason}"));
            }
        }
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
        // Over gRPC a host and a port will do; then it is said apart whether the way is secured.
        let endpoint = match endpoint.contains("://") {
            false if protocol == Protocol::Grpc => {
                let insecure = self.exporter(signal, "INSECURE");
                let insecure =
                    insecure.is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
                format!("{}://{endpoint}", if insecure { "http" } else { "https" })
            }
            _ => endpoint,
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
        let compression = self.exporter(signal, "COMPRESSION").map(str::to_owned);
        let compressed = match compression.as_deref().map(str::trim) {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                self.doubt(
                    "OTEL_EXPORTER_OTLP_COMPRESSION",
                    other,
                    "of which only gzip and none are known; nothing is compressed",
                );
                false
            }
        };
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
        Some(Target {
            endpoint,
            protocol,
            headers,
            timeout,
            compressed,
            certificate: self.exporter(signal, "CERTIFICATE").map(PathBuf::from),
            identity: shown.zip(key),
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
            timeout: self.millis(&format!("{prefix}_EXPORT_TIMEOUT"), 30_000),
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
        // Whoever has given the server no name of its own has perhaps named the project.
        let surroundings = Environment::detect(self.probe);
        for (key, value) in surroundings.resource_attributes(self.probe) {
            if key != "service.name" || name.is_empty() || name == SERVICE {
                resource.insert(key.to_owned(), value);
            }
        }
        if resource["service.name"].is_empty() {
            resource.insert("service.name".to_owned(), SERVICE.to_owned());
        }
        if !resource.contains_key("service.instance.id")
            && let Some(host) = self.probe.variable("HOSTNAME")
        {
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

    /// Every variable that has an effect, with a value that is not its default.
    #[test]
    fn every_standard_variable_does_what_it_says_or_is_told_to_do_nothing() {
        use super::super::variables::{OF_EXPORTER, of_exporter};

        const BASE: [(&str, &str); 2] = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ];
        let plain = read(&BASE);
        let value = |name: &str| match name {
            "OTEL_SDK_DISABLED" => "true",
            "OTEL_SERVICE_NAME" => "other",
            "OTEL_RESOURCE_ATTRIBUTES" => "a=b",
            "OTEL_PROPAGATORS" => "baggage",
            "OTEL_TRACES_SAMPLER" => "always_off",
            "OTEL_TRACES_SAMPLER_ARG" => "0.5",
            name if name.ends_with("_EXPORTER") => "none",
            _ => "77",
        };
        for (name, effect) in VARIABLES {
            let others = BASE.iter().copied().filter(|(other, _)| *other != name);
            let with: Vec<_> = others.chain([(name, value(name))]).collect();
            let found = read(&with);
            match effect {
                Effect::Has => {
                    assert_ne!(found, plain, "{name} changes nothing");
                    let doubts = found.map(|settings| settings.doubts).unwrap_or_default();
                    assert_eq!(doubts, Vec::<String>::new(), "{name}");
                }
                Effect::None(reason) => {
                    let mut found = found.expect("an endpoint");
                    let told = std::mem::take(&mut found.doubts);
                    assert_eq!(told, [format!("{name} has no effect: {reason}")]);
                    assert_eq!(Some(found), plain, "{name} changes something");
                }
            }
        }
        // Over gRPC, and without a scheme, since only there one of them counts.
        let grpc = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/a"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/b"),
        ];
        let plain = read(&grpc);
        assert!(plain.is_some());
        for name in OF_EXPORTER {
            let value = match name {
                "ENDPOINT" => "http://other:1",
                "PROTOCOL" => "http/protobuf",
                "HEADERS" => "a=b",
                "TIMEOUT" => "77",
                "COMPRESSION" => "gzip",
                "INSECURE" => "true",
                _ => "/elsewhere",
            };
            for variable in of_exporter(name) {
                let others = grpc.iter().copied().filter(|(other, _)| *other != variable);
                let with: Vec<_> = others.chain([(&*variable, value)]).collect();
                assert_ne!(read(&with), plain, "{variable} changes nothing");
            }
        }
    }

    #[test]
    fn every_standard_variable_is_documented() {
        use super::super::variables::OF_EXPORTER;

        let document = include_str!("../../docs/observability.md");
        for (name, effect) in VARIABLES {
            let row = document
                .lines()
                .find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")))
                .unwrap_or_else(|| panic!("{name} is not in docs/observability.md"));
            let says_none = row.contains("no effect");
            assert_eq!(says_none, effect != Effect::Has, "{row}");
        }
        for name in OF_EXPORTER {
            let name = format!("`OTEL_EXPORTER_OTLP_{name}`");
            assert!(
                document.contains(&name),
                "{name} is not in docs/observability.md"
            );
        }
    }

    #[test]
    fn the_surroundings_say_who_sends() {
        let on_cloud_run = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("K_SERVICE", "weather-service"),
            ("K_REVISION", "weather-00001"),
            ("K_CONFIGURATION", "weather-service"),
            ("OTEL_RESOURCE_ATTRIBUTES", "cloud.region=here"),
        ])
        .expect("an endpoint");
        let resource = &on_cloud_run.resource;
        assert_eq!(resource["cloud.provider"], "gcp");
        assert_eq!(resource["cloud.platform"], "gcp_cloud_run");
        assert_eq!(resource["faas.name"], "weather-service");
        assert_eq!(resource["faas.version"], "weather-00001");
        assert_eq!(resource["cloud.region"], "here");
        // Whoever named the server is not outdone by the surroundings.
        assert_eq!(resource["service.name"], "weather");
        let in_a_pod = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("HOSTNAME", "weather-6d4cf-abcde"),
        ])
        .expect("an endpoint");
        let resource = &in_a_pod.resource;
        assert_eq!(resource["k8s.pod.name"], "weather-6d4cf-abcde");
        assert_eq!(resource["service.instance.id"], "weather-6d4cf-abcde");
        assert_eq!(resource["deployment.environment.name"], "production");
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
