//! Detection of the listen address, the transport and trusted proxies.

use super::{Container, Detection, Platform, Probe, StandardStreams};

/// Network settings, as far as the environment determines them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Network {
    /// The address.
    pub host: Option<Detection<&'static str>>,
    /// The port.
    pub port: Option<Detection<u16>>,
    /// `http` or `stdio`.
    pub transport: Option<Detection<&'static str>>,
    /// Address ranges of the platform's proxies.
    pub trusted_proxies: Option<Detection<&'static [&'static str]>>,
}

/// Variables other than `PORT` that set the port of the platform's requests.
const PORTS: [&str; 4] = [
    "FUNCTIONS_CUSTOMHANDLER_PORT",
    "CONTAINER_APP_PORT",
    "WEBSITES_PORT",
    "AWS_LWA_PORT",
];
/// Default port of platforms.
const PORT: u16 = 8080;

/// Private address ranges.
const PRIVATE: [&str; 6] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "::1/128",
];

pub(super) fn detect(
    probe: &Probe,
    cloud: Option<&Detection<Platform>>,
    container: Option<&Detection<Container>>,
) -> Network {
    let managed = cloud.filter(|cloud| cloud.value.is_managed());
    let place = managed
        .map(|cloud| format!("{} ({})", cloud.value.name(), cloud.evidence))
        .or_else(|| container.map(|c| format!("{} ({})", c.value.name(), c.evidence)));
    let host = place.as_ref().map(|place| match is_ipv6_only(probe) {
        Some(evidence) => Detection::new("::", evidence),
        None => Detection::new("0.0.0.0", place.clone()),
    });
    let port = PORTS
        .into_iter()
        .find_map(|name| {
            let port: u16 = probe.variable(name)?.parse().ok()?;
            Some(Detection::new(port, format!("{name}={port}")))
        })
        .or_else(|| {
            place
                .as_ref()
                .map(|place| Detection::new(PORT, place.clone()))
        });
    Network {
        host,
        port,
        transport: transport(probe, place.as_deref()),
        trusted_proxies: managed
            .filter(|cloud| only_its_proxies_connect(cloud.value))
            .map(|cloud| {
                let evidence = format!("only the proxies of {} can connect", cloud.value.name());
                Detection::new(&PRIVATE[..], evidence)
            }),
    }
}

/// HTTP on platforms that route requests; stdio if another program holds both streams. In a container, a pipe at
/// standard input is no evidence.
fn transport(probe: &Probe, place: Option<&str>) -> Option<Detection<&'static str>> {
    if let Some(place) = place {
        return Some(Detection::new("http", place));
    }
    if let Some(port) = probe.variable("PORT") {
        return Some(Detection::new("http", format!("PORT={port}")));
    }
    let is_held =
        probe.standard_streams() == StandardStreams::Pipes && probe.variable("CI").is_none();
    is_held.then(|| Detection::new("stdio", "standard input and output are both pipes"))
}

fn is_ipv6_only(probe: &Probe) -> Option<String> {
    let host = probe.variable("KUBERNETES_SERVICE_HOST")?;
    let is_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    is_ipv6.then(|| format!("KUBERNETES_SERVICE_HOST={host} is IPv6"))
}

/// Platforms whose proxies are the only peers, and which append to `X-Forwarded-For`.
fn only_its_proxies_connect(platform: Platform) -> bool {
    matches!(
        platform,
        Platform::CloudRun
            | Platform::CloudFunctions
            | Platform::AppEngine
            | Platform::AppRunner
            | Platform::ContainerApps
            | Platform::AppService
            | Platform::Heroku
            | Platform::Render
    )
}
