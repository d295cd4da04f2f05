//! The standard OpenTelemetry variables, parsed once at start.

mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use self::target::Signal;
use super::config::{ExportProtocol, TelemetryConfig};
use super::trace::{Propagation, Sampler, random_u64};
use super::variables::{Effect, VARIABLES};
use crate::environment::Probe;

/// All export settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportSettings {
    pub(crate) traces: Option<Target>,
    pub metrics: Option<Target>,
    pub logs: Option<Target>,
    pub(crate) sampler: Sampler,
    pub propagation: Propagation,
    pub spans: Batching,
    pub records: Batching,
    pub(crate) span_limits: AttributeLimits,
    pub(crate) record_limits: AttributeLimits,
    pub(crate) metric_interval: Duration,
    pub(crate) metric_timeout: Duration,
    /// Resource attributes, such as `service.name`.
    pub resource: BTreeMap<String, String>,
    /// Settings that have no effect, for the log.
    pub doubts: Vec<String>,
    /// True if an endpoint is invalid, so that its signal is not exported.
    pub lacks_endpoint: bool,
}

/// Destination of one signal.
#[derive(Clone, PartialEq)]
pub struct Target {
    pub endpoint: String,
    pub protocol: ExportProtocol,
    pub headers: Vec<(String, String)>,
    pub timeout: Duration,
    /// True for gzip compression.
    pub compressed: bool,
    pub certificate: Option<PathBuf>,
    /// Client certificate and key for the collector, as file paths.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Target {
    /// Omits the headers, which contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// Batching of spans and log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batching {
    pub delay: Duration,
    /// Timeout for a batch.
    pub timeout: Duration,
    pub queue: usize,
    pub batch: usize,
}

/// Attribute limits of a span or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeLimits {
    /// Maximum number of attributes.
    pub count: usize,
    /// Maximum length of a value, in characters.
    pub length: usize,
}

/// Represents "no timeout", small enough to be added to any instant.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Service name if none is configured.
const SERVICE: &str = "longshore";

impl ExportSettings {
    /// Returns the export settings, or `None` if no endpoint is configured. Endpoints come from
    /// `telemetry.endpoint`, `OTEL_EXPORTER_OTLP_ENDPOINT`, a variable for one signal, or `MCP_OTEL_ENDPOINT`.
    pub fn read(config: &TelemetryConfig, probe: &Probe, service: (&str, &str)) -> Option<Self> {
        let mut reader = Reader {
            probe,
            doubts: Vec::new(),
            is_refused: false,
        };
        let disabled = "OTEL_SDK_DISABLED";
        if reader.is_true(disabled, reader.word(disabled).as_deref()) {
            return None;
        }
        let [traces, metrics, logs] = [Signal::Traces, Signal::Metrics, Signal::Logs]
            .map(|signal| reader.target(config, signal));
        let any = traces.is_some() || metrics.is_some() || logs.is_some();
        // If an endpoint is configured but invalid, the warnings must still be reported.
        if !any && !reader.is_refused {
            return None;
        }
        let mut settings = Self {
            traces,
            metrics,
            logs,
            sampler: reader.sampler(config.sample),
            propagation: reader.propagation(),
            spans: reader.batching("OTEL_BSP", 5_000),
            records: reader.batching("OTEL_BLRP", 1_000),
            span_limits: reader.limits("SPAN"),
            record_limits: reader.limits("LOGRECORD"),
            metric_interval: reader.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            metric_timeout: reader.timeout("OTEL_METRIC_EXPORT_TIMEOUT", 30_000),
            resource: reader.resource(service),
            doubts: Vec::new(),
            lacks_endpoint: reader.is_refused,
        };
        reader.tell_of_what_has_no_effect();
        settings.doubts = reader.doubts;
        Some(settings)
    }
}

struct Reader<'p> {
    probe: &'p Probe,
    doubts: Vec<String>,
    /// True if an endpoint is invalid.
    is_refused: bool,
}

impl Reader<'_> {
    fn is_true(&mut self, name: &str, word: Option<&str>) -> bool {
        match word {
            Some("true") => true,
            None | Some("false") => false,
            Some(other) => {
                self.doubt(
                    name,
                    other,
                    "which is neither true nor false; it counts as false",
                );
                false
            }
        }
    }

    fn word(&self, name: &str) -> Option<String> {
        self.probe.variable(name).map(keyword)
    }

    fn doubt(&mut self, name: &str, value: &str, means: &str) {
        self.remark(format!("{name} is {value:?}, {means}"));
    }

    /// Records a doubt, once for all signals.
    fn remark(&mut self, doubt: String) {
        if !self.doubts.contains(&doubt) {
            self.doubts.push(doubt);
        }
    }

    /// Parses comma-separated `key=value` pairs with percent-encoded values. Other entries are reported without their
    /// text, which may be a secret.
    fn pairs(&mut self, name: &str, list: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for entry in list.split(',').filter(|entry| !entry.trim().is_empty()) {
            match entry.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() => {
                    let value = percent_decode_str(value.trim()).decode_utf8_lossy();
                    pairs.push((key.trim().to_owned(), value.into_owned()));
                }
                _ => self.remark(format!(
                    "{name} has an entry that is not of the form key=value; it is ignored"
                )),
            }
        }
        pairs
    }

    fn number<T: std::str::FromStr>(&mut self, name: &str, default: T) -> T {
        self.parsed(name, self.probe.variable(name), default)
    }

    fn parsed<T: std::str::FromStr>(&mut self, name: &str, text: Option<&str>, default: T) -> T {
        let Some(text) = text else { return default };
        text.trim().parse().unwrap_or_else(|_| {
            self.doubt(name, text, "which is not a number; the default is used");
            default
        })
    }

    fn millis(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default).max(1))
    }

    fn timeout(&mut self, name: &str, default: u64) -> Duration {
        timeout_of(self.number(name, default))
    }

    /// Reads attribute limits of a kind, or the general ones.
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

    /// Warns about variables that are set but have no effect.
    fn tell_of_what_has_no_effect(&mut self) {
        for (name, effect) in VARIABLES {
            if let Effect::None(reason) = effect
                && self.probe.variable(name).is_some()
            {
                self.doubts.push(format!("{name} has no effect: {reason}"));
            }
        }
    }

    fn sampler(&mut self, share: Option<f64>) -> Sampler {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let otherwise = Sampler::new(true, share.unwrap_or(1.0));
        let Some(word) = self.word(NAME) else {
            if self.probe.variable(ARGUMENT).is_some() {
                self.doubts.push(format!(
                    "{ARGUMENT} has no effect without {NAME}; set it to parentbased_traceidratio"
                ));
            }
            return otherwise;
        };
        let (follows, root) = match word.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, word.as_str()),
        };
        match root {
            "always_on" => Sampler::new(follows, 1.0),
            "always_off" => Sampler::new(follows, 0.0),
            "traceidratio" => Sampler::new(follows, self.share(ARGUMENT)),
            _ => {
                self.doubt(
                    NAME,
                    &word,
                    "which is not known; it is ignored, and telemetry.sample applies",
                );
                otherwise
            }
        }
    }

    /// Reads a sampling ratio from 0 to 1. Default: 1.
    fn share(&mut self, name: &str) -> f64 {
        let share: f64 = self.number(name, 1.0);
        if (0.0..=1.0).contains(&share) {
            return share;
        }
        self.doubt(
            name,
            &share.to_string(),
            "which is not a fraction from 0 to 1; 1 is used",
        );
        1.0
    }

    fn propagation(&mut self) -> Propagation {
        const NAME: &str = "OTEL_PROPAGATORS";
        Propagation::read(self.probe.variable(NAME), |word| {
            self.doubt(NAME, word, Propagation::UNKNOWN);
        })
    }

    fn batching(&mut self, prefix: &str, delay_ms: u64) -> Batching {
        let queue = self.number(&format!("{prefix}_MAX_QUEUE_SIZE"), 2048_usize);
        let queue = queue.clamp(1, 65_536);
        Batching {
            delay: self.millis(&format!("{prefix}_SCHEDULE_DELAY"), delay_ms),
            timeout: self.timeout(&format!("{prefix}_EXPORT_TIMEOUT"), 30_000),
            queue,
            batch: self
                .number(&format!("{prefix}_MAX_EXPORT_BATCH_SIZE"), 512_usize)
                .clamp(1, queue),
        }
    }

    fn resource(&mut self, (name, version): (&str, &str)) -> BTreeMap<String, String> {
        const LIST: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource = BTreeMap::from([
            ("service.name".to_owned(), name.to_owned()),
            ("service.version".to_owned(), version.to_owned()),
        ]);
        // Without a configured name, the detected project names the service.
        let surroundings = self.probe.environment();
        for (key, value) in surroundings.resource_attributes(self.probe) {
            if key != "service.name" || name.is_empty() || name == SERVICE {
                resource.insert(key.to_owned(), value);
            }
        }
        if resource["service.name"].is_empty() {
            resource.insert("service.name".to_owned(), SERVICE.to_owned());
        }
        resource
            .entry("service.instance.id".to_owned())
            .or_insert_with(random_instance_id);
        if let Some(list) = self.probe.variable(LIST) {
            resource.extend(self.pairs(LIST, list));
        }
        if let Some(name) = self.probe.variable("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.to_owned());
        }
        resource
    }
}

/// Returns a keyword in lower case.
fn keyword(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

/// Returns a timeout of so many milliseconds; 0 means no timeout.
fn timeout_of(millis: u64) -> Duration {
    match millis {
        0 => NO_LIMIT,
        millis => Duration::from_millis(millis).min(NO_LIMIT),
    }
}

/// Returns a random UUID (RFC 9562, version 4), the same for the life of the process.
fn random_instance_id() -> String {
    static ID: LazyLock<String> = LazyLock::new(|| {
        let mut bits = u128::from(random_u64()) << 64 | u128::from(random_u64());
        // Version 4, variant 0b10.
        bits = (bits & !(0xf << 76)) | (4 << 76);
        bits = (bits & !(0b11 << 62)) | (0b10 << 62);
        let digits = format!("{bits:032x}");
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
        groups.map(|group| &digits[group]).join("-")
    });
    ID.clone()
}

#[cfg(test)]
mod tests;
