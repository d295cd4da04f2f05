//! What the standard variables of OpenTelemetry say, read once at start.

mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use self::target::Signal;
use super::config::TelemetryConfig;
use super::trace::{Propagation, Sampler};
use super::variables::{Effect, VARIABLES};
use crate::environment::{Environment, Probe};

/// Everything that is to be known about exporting.
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
    /// Who sends: `service.name` and the like.
    pub resource: BTreeMap<String, String>,
    /// What was said that means nothing, for the log.
    pub doubts: Vec<String>,
}

/// Where one signal goes.
#[derive(Clone, PartialEq)]
pub struct Target {
    pub endpoint: String,
    pub protocol: Protocol,
    pub headers: Vec<(String, String)>,
    pub timeout: Duration,
    /// Whether what is sent is compressed, by gzip.
    pub compressed: bool,
    pub certificate: Option<PathBuf>,
    /// What is shown to the collector: files with a certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Target {
    /// Leaves the headers out: they hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Grpc,
}

/// How spans and log records are collected before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batching {
    pub delay: Duration,
    /// How long sending a batch may take.
    pub timeout: Duration,
    pub queue: usize,
    pub batch: usize,
}

/// How much is told of one span or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeLimits {
    /// How many attributes there may be.
    pub count: usize,
    /// How many characters the text of one may have.
    pub length: usize,
}

/// What is as good as no limit of time, and can still be added to one.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// The name of a service that nobody named.
const SERVICE: &str = "longshore";

impl ExportSettings {
    /// What there is to export, if anything. A signal is exported if somebody said where to: `telemetry.endpoint`,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` or one for the signal alone, or `MCP_OTEL_ENDPOINT`.
    pub fn read(config: &TelemetryConfig, probe: &Probe, service: (&str, &str)) -> Option<Self> {
        let mut reader = Reader {
            probe,
            doubts: Vec::new(),
            is_refused: false,
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
            metric_timeout: reader.timeout("OTEL_METRIC_EXPORT_TIMEOUT", 30_000),
            resource: reader.resource(service),
            doubts: Vec::new(),
        };
        reader.tell_of_what_has_no_effect();
        settings.doubts = reader.doubts;
        let any =
            settings.traces.is_some() || settings.metrics.is_some() || settings.logs.is_some();
        // Where somebody wants to export and cannot, there is something to be told.
        (any || reader.is_refused).then_some(settings)
    }
}

struct Reader<'p> {
    probe: &'p Probe,
    doubts: Vec<String>,
    /// There is an endpoint that is none.
    is_refused: bool,
}

impl Reader<'_> {
    fn is_true(&mut self, name: &str) -> bool {
        match self.word(name).as_deref() {
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

    /// One of a few words, in whichever case it is written.
    fn word(&self, name: &str) -> Option<String> {
        let value = self.probe.variable(name)?;
        Some(value.trim().to_ascii_lowercase())
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

    /// How long something may take; 0 is as long as it wants.
    fn timeout(&mut self, name: &str, default: u64) -> Duration {
        match self.number(name, default) {
            0 => NO_LIMIT,
            millis => Duration::from_millis(millis).min(NO_LIMIT),
        }
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
                    "which is not known; it is ignored, and parentbased_traceidratio used",
                );
                otherwise
            }
        }
    }

    /// A share from 0 to 1; all, if nobody says so.
    fn share(&mut self, name: &str) -> f64 {
        let share: f64 = self.number(name, 1.0);
        if (0.0..=1.0).contains(&share) {
            return share;
        }
        self.doubt(
            name,
            &share.to_string(),
            "which is no share from 0 to 1; 1 is used",
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
        let mut resource = BTreeMap::from([
            ("service.name".to_owned(), name.to_owned()),
            ("service.version".to_owned(), version.to_owned()),
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

/// `key=value` with commas between them, values percent-encoded.
fn pairs(list: &str) -> Vec<(String, String)> {
    let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| {
            let value = percent_decode_str(value.trim()).decode_utf8_lossy();
            (key.trim().to_owned(), value.into_owned())
        })
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
