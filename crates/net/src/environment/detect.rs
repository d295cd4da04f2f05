//! All detectors together, and what follows from what they saw.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Container, Kind, Network, Platform, Probe, System};
use super::{cloud, container, kind, network, project, system};

/// Something that was found out, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// What was found out.
    pub value: T,
    /// The variable, the file or the fact that says so.
    pub evidence: String,
}

impl<T> Seen<T> {
    pub(super) fn new(value: T, evidence: impl Into<String>) -> Self {
        Self {
            value,
            evidence: evidence.into(),
        }
    }
}

/// Where the process finds itself. Nothing is asked over the network to find out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Environment {
    /// The cloud, and which of its products.
    pub cloud: Option<Seen<Platform>>,
    /// The container.
    pub container: Option<Seen<Container>>,
    /// What the process is run for.
    pub kind: Seen<Kind>,
    /// Where to listen.
    pub network: Network,
    /// What it is called.
    pub project: Option<Seen<String>>,
    /// What it may use of the machine.
    pub system: System,
    /// `json` or `text`.
    pub log_format: Option<Seen<&'static str>>,
    /// Seconds between the signal to stop and the end by force.
    pub grace_seconds: Seen<u32>,
    /// Seconds during which others still send requests after that signal.
    pub delay_seconds: Seen<u32>,
}

/// A setting's value that follows from the surroundings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Detected {
    /// Which setting, such as `http.port`.
    pub setting: &'static str,
    /// What it should be.
    pub value: Value,
    /// Why.
    pub evidence: String,
}

/// Memory that a connection is reckoned with, streams and buffers included.
const CONNECTION_BYTES: u64 = 64 * 1024;

impl Environment {
    /// What is seen through a probe.
    pub fn detect(probe: &Probe) -> Self {
        let cloud = cloud::detect(probe);
        let container = container::detect(probe);
        let managed = cloud.as_ref().filter(|cloud| cloud.value.is_managed());
        let log_format = if probe.is_at_terminal() {
            Some(Seen::new("text", "standard error is a terminal"))
        } else {
            let place = managed.map(|cloud| &cloud.evidence);
            let place = place.or(container.as_ref().map(|container| &container.evidence));
            place.map(|evidence| Seen::new("json", format!("logs are collected ({evidence})")))
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

    /// The surroundings of this process, looked at once.
    pub fn current() -> &'static Self {
        static CURRENT: OnceLock<Environment> = OnceLock::new();
        CURRENT.get_or_init(|| Self::detect(&Probe::real()))
    }

    /// The settings that follow from it.
    pub fn settings(&self) -> Vec<Detected> {
        let mut settings = Vec::new();
        let mut set = |setting, value: Value, evidence: &str| {
            settings.push(Detected {
                setting,
                value,
                evidence: evidence.to_owned(),
            });
        };
        let network = &self.network;
        if let Some(seen) = &network.transport {
            set("transport", seen.value.into(), &seen.evidence);
        }
        if let Some(seen) = &network.host {
            set("http.host", seen.value.into(), &seen.evidence);
        }
        if let Some(seen) = &network.port {
            set("http.port", seen.value.into(), &seen.evidence);
        }
        if let Some(seen) = &network.trusted_proxies {
            set("http.trusted_proxies", json!(seen.value), &seen.evidence);
        }
        if let Some(seen) = self.system.parallelism() {
            set("http.workers", seen.value.into(), &seen.evidence);
        }
        if let Some(seen) = self
            .system
            .memory_bytes
            .as_ref()
            .filter(|_| self.system.memory_is_limited)
        {
            set("limits.memory_bytes", seen.value.into(), &seen.evidence);
            // A part of what there is, where that is less than the default.
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
                    set(setting, part.max(64).into(), &seen.evidence);
                }
            }
        }
        if let Some(seen) = &self.log_format {
            set("log.format", seen.value.into(), &seen.evidence);
        }
        set(
            "drain.grace_seconds",
            self.grace_seconds.value.into(),
            &self.grace_seconds.evidence,
        );
        set(
            "drain.delay_seconds",
            self.delay_seconds.value.into(),
            &self.delay_seconds.evidence,
        );
        settings
    }

    /// What it all comes to, in one line for people.
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

/// How long the process has from the signal to stop, and how long others go on sending.
fn stopping(
    probe: &Probe,
    cloud: Option<&Seen<Platform>>,
    container: Option<&Seen<Container>>,
) -> (Seen<u32>, Seen<u32>) {
    let from = |name: &str| {
        let seconds: u32 = probe.variable(name)?.parse().ok()?;
        Some(Seen::new(seconds, format!("{name}={seconds}")))
    };
    if let Some(container) = container.filter(|container| container.value == Container::Kubernetes)
    {
        let why = format!(
            "Kubernetes gives 30 seconds, and takes some to tell its proxies ({})",
            container.evidence
        );
        return (Seen::new(30, why.clone()), Seen::new(5, why));
    }
    let no_delay = Seen::new(0, "nobody has to be told before");
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
                Seen::new(
                    seconds,
                    format!("{} gives {seconds} seconds", platform.name()),
                )
            })
        }
        None => match container {
            Some(container) => Seen::new(
                10,
                format!(
                    "{} gives 10 seconds ({})",
                    container.value.name(),
                    container.evidence
                ),
            ),
            None => Seen::new(30, "no platform says otherwise"),
        },
    };
    (grace, no_delay)
}
