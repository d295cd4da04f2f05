//! All detectors, and the settings that follow.

use serde_json::Value;

use super::{Container, Kind, Network, Platform, Probe, System};
use super::{cloud, container, kind, network, project, system};

/// A detected value with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection<T> {
    /// The value.
    pub value: T,
    /// The variable, file or fact that shows it.
    pub evidence: String,
}

impl<T> Detection<T> {
    pub(super) fn new(value: T, evidence: impl Into<String>) -> Self {
        Self {
            value,
            evidence: evidence.into(),
        }
    }
}

impl<T: Copy + Into<Value>> Detection<T> {
    /// Returns the value as that of a setting.
    fn of(&self, setting: &'static str) -> Detected {
        Detected {
            setting,
            value: self.value.into(),
            evidence: self.evidence.clone(),
        }
    }
}

/// The environment of the process, detected without network access.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Environment {
    /// The cloud platform.
    pub cloud: Option<Detection<Platform>>,
    /// The container runtime.
    pub container: Option<Detection<Container>>,
    /// The kind of deployment.
    pub kind: Detection<Kind>,
    /// Listen address and transport.
    pub network: Network,
    /// Name of the project.
    pub project: Option<Detection<String>>,
    /// CPU and memory limits.
    pub system: System,
    /// `json` or `text`.
    pub log_format: Option<Detection<&'static str>>,
    /// Seconds between the stop signal and a forced end.
    pub grace_seconds: Detection<u32>,
    /// Seconds after the stop signal in which requests still arrive.
    pub delay_seconds: Detection<u32>,
}

/// A default that was derived from the environment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Detected {
    /// The setting, such as `http.port`.
    pub setting: &'static str,
    /// The value.
    pub value: Value,
    /// The evidence.
    pub evidence: String,
}

/// Estimated memory of a connection, streams and buffers included.
const CONNECTION_BYTES: u64 = 64 * 1024;

impl Environment {
    /// Detects the environment through a probe. [`Probe::environment`] does so once.
    pub fn detect(probe: &Probe) -> Self {
        let cloud = cloud::detect(probe);
        let container = container::detect(probe);
        let managed = cloud.as_ref().filter(|cloud| cloud.value.is_managed());
        let log_format = if probe.is_at_terminal() {
            Some(Detection::new("text", "standard error is a terminal"))
        } else {
            let place = managed.map(|cloud| &cloud.evidence);
            let place = place.or(container.as_ref().map(|container| &container.evidence));
            place.map(|evidence| Detection::new("json", format!("logs are collected ({evidence})")))
        };
        let (grace_seconds, delay_seconds) = stopping(probe, managed, container.as_ref());
        Self {
            kind: kind::detect(probe, cloud.as_ref(), container.as_ref()),
            network: network::detect(probe, cloud.as_ref(), container.as_ref()),
            project: project::detect(probe),
            system: system::detect(probe),
            log_format,
            grace_seconds,
            delay_seconds,
            cloud,
            container,
        }
    }

    /// Returns the environment of this process, detected once.
    pub fn current() -> &'static Self {
        Probe::real().environment()
    }

    /// Returns the derived settings.
    pub fn settings(&self) -> Vec<Detected> {
        let network = &self.network;
        let (transport, host, port) = (&network.transport, &network.host, &network.port);
        let (proxies, workers) = (&network.trusted_proxies, self.system.parallelism());
        let detected = [
            transport.as_ref().map(|seen| seen.of("transport")),
            host.as_ref().map(|seen| seen.of("http.host")),
            port.as_ref().map(|seen| seen.of("http.port")),
            proxies.as_ref().map(|seen| seen.of("http.trusted_proxies")),
            workers.map(|seen| seen.of("http.workers")),
        ];
        let mut settings: Vec<_> = detected.into_iter().flatten().collect();
        if let Some(seen) = self
            .system
            .memory_bytes
            .as_ref()
            .filter(|_| self.system.memory_is_limited)
        {
            settings.push(seen.of("limits.memory_bytes"));
            // Shares of the available memory, if below the defaults.
            for (setting, part, default) in [
                (
                    "http.limits.connections",
                    seen.value / 2 / CONNECTION_BYTES,
                    20_000,
                ),
                ("server.contents_cache_bytes", seen.value / 16, 16 << 20),
                ("state.memory_bytes", seen.value / 8, 64 << 20),
            ] {
                if part < default {
                    let share = Detection::new(part.max(64), &*seen.evidence);
                    settings.push(share.of(setting));
                }
            }
        }
        settings.extend(self.log_format.as_ref().map(|seen| seen.of("log.format")));
        settings.push(self.grace_seconds.of("drain.grace_seconds"));
        settings.push(self.delay_seconds.of("drain.delay_seconds"));
        settings
    }

    /// Returns a summary in one line.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some(cloud) = &self.cloud {
            parts.push(cloud.value.name());
        }
        if let Some(container) = &self.container {
            parts.push(container.value.name());
        }
        parts.push(self.kind.value.name());
        parts.join(", ")
    }
}

/// Returns the times between the stop signal, the last requests and the forced end.
fn stopping(
    probe: &Probe,
    cloud: Option<&Detection<Platform>>,
    container: Option<&Detection<Container>>,
) -> (Detection<u32>, Detection<u32>) {
    let from = |name: &str| {
        let seconds: u32 = probe.variable(name)?.parse().ok()?;
        Some(Detection::new(seconds, format!("{name}={seconds}")))
    };
    if let Some(container) = container.filter(|container| container.value == Container::Kubernetes)
    {
        let why = format!(
            "Kubernetes allows 30 seconds, of which updating its proxies takes some ({})",
            container.evidence
        );
        return (Detection::new(30, why.clone()), Detection::new(5, why));
    }
    let no_delay = Detection::new(0, "there is no load balancer to update");
    let grace = match cloud.map(|cloud| cloud.value) {
        Some(platform) => {
            let said = match platform {
                Platform::AppService => from("WEBSITES_CONTAINER_STOP_TIME_LIMIT"),
                Platform::Railway => from("RAILWAY_DEPLOYMENT_DRAINING_SECONDS"),
                _ => None,
            };
            said.unwrap_or_else(|| {
                let seconds = match platform {
                    Platform::CloudRun | Platform::CloudFunctions => 10,
                    Platform::Fly | Platform::AppService | Platform::Railway => 5,
                    Platform::Lambda
                    | Platform::Vercel
                    | Platform::Netlify
                    | Platform::Cloudflare => 5,
                    _ => 30,
                };
                Detection::new(
                    seconds,
                    format!("{} gives {seconds} seconds", platform.name()),
                )
            })
        }
        None => match container {
            Some(container) => Detection::new(
                10,
                format!(
                    "{} gives 10 seconds ({})",
                    container.value.name(),
                    container.evidence
                ),
            ),
            None => Detection::new(30, "the default without a platform"),
        },
    };
    (grace, no_delay)
}
