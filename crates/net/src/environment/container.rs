//! Detection of containers.

use super::{Detection, Probe};

/// A container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// Kubernetes with any runtime.
    Kubernetes,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// containerd, without Kubernetes.
    Containerd,
    /// LXC or LXD.
    Lxc,
    /// Another runtime.
    Other,
}

impl Container {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "Kubernetes",
            Self::Docker => "Docker",
            Self::Podman => "Podman",
            Self::Containerd => "containerd",
            Self::Lxc => "LXC",
            Self::Other => "a container",
        }
    }
}

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Detects the container.
pub(super) fn detect(probe: &Probe) -> Option<Detection<Container>> {
    if let Some(host) = probe.variable("KUBERNETES_SERVICE_HOST") {
        let evidence = format!("KUBERNETES_SERVICE_HOST={host}");
        return Some(Detection::new(Container::Kubernetes, evidence));
    }
    if probe.exists(SERVICE_ACCOUNT) {
        return Some(Detection::new(Container::Kubernetes, SERVICE_ACCOUNT));
    }
    for (file, container) in [
        ("/run/.containerenv", Container::Podman),
        ("/.dockerenv", Container::Docker),
    ] {
        if probe.exists(file) {
            return Some(Detection::new(container, file));
        }
    }
    if let Some(name) = probe.variable("container") {
        let container = match name {
            "podman" => Container::Podman,
            "docker" => Container::Docker,
            "lxc" | "lxc-libvirt" => Container::Lxc,
            _ => Container::Other,
        };
        return Some(Detection::new(container, format!("container={name}")));
    }
    by_control_group(probe).or_else(|| by_mounts(probe))
}

/// Names in paths of control groups and mounts, with their runtimes.
const NAMES: [(&str, Container); 7] = [
    ("kubepods", Container::Kubernetes),
    ("/kubelet/pods/", Container::Kubernetes),
    ("libpod", Container::Podman),
    ("/containers/storage/", Container::Podman),
    ("docker", Container::Docker),
    ("containerd", Container::Containerd),
    ("/lxc/", Container::Lxc),
];

fn by_control_group(probe: &Probe) -> Option<Detection<Container>> {
    const FILE: &str = "/proc/self/cgroup";
    let text = probe.read(FILE)?;
    // `system.slice/docker.service` is the daemon on the host.
    let lines = text.lines().filter(|line| !line.ends_with(".service"));
    let paths: Vec<_> = lines.filter_map(|line| line.rsplit(':').next()).collect();
    named(&paths).map(|(container, name)| Detection::new(container, format!("{name} in {FILE}")))
}

/// With a cgroup namespace all paths are `/`, but the mounts of a container come from its runtime. A host has mounts
/// of its containers too, so only these few are evidence.
fn by_mounts(probe: &Probe) -> Option<Detection<Container>> {
    const FILE: &str = "/proc/self/mountinfo";
    const POINTS: [&str; 4] = ["/", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
    let text = probe.read(FILE)?;
    let of_interest = |line: &&str| {
        let point = line.split_whitespace().nth(4);
        point.is_some_and(|point| POINTS.contains(&point))
    };
    let lines: Vec<_> = text.lines().filter(of_interest).collect();
    named(&lines).map(|(container, name)| Detection::new(container, format!("{name} in {FILE}")))
}

fn named(lines: &[&str]) -> Option<(Container, &'static str)> {
    let is_named = |name: &str| lines.iter().any(|line| line.contains(name));
    let (name, container) = NAMES.into_iter().find(|(name, _)| is_named(name))?;
    Some((container, name.trim_matches('/')))
}
