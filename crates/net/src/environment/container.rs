//! Whether the process is in a container, and whose.

use super::{Probe, Seen};

/// What runs the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// Kubernetes, whatever it runs containers with.
    Kubernetes,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// containerd, without Kubernetes.
    Containerd,
    /// LXC or LXD.
    Lxc,
    /// Something else.
    Other,
}

impl Container {
    /// Its name.
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

/// The container, if the process is in one.
pub(super) fn detect(probe: &Probe) -> Option<Seen<Container>> {
    if let Some(host) = probe.variable("KUBERNETES_SERVICE_HOST") {
        let evidence = format!("KUBERNETES_SERVICE_HOST={host}");
        return Some(Seen::new(Container::Kubernetes, evidence));
    }
    if probe.exists(SERVICE_ACCOUNT) {
        return Some(Seen::new(Container::Kubernetes, SERVICE_ACCOUNT));
    }
    for (file, container) in [
        ("/run/.containerenv", Container::Podman),
        ("/.dockerenv", Container::Docker),
    ] {
        if probe.exists(file) {
            return Some(Seen::new(container, file));
        }
    }
    if let Some(name) = probe.variable("container") {
        let container = match name {
            "podman" => Container::Podman,
            "docker" => Container::Docker,
            "lxc" | "lxc-libvirt" => Container::Lxc,
            _ => Container::Other,
        };
        return Some(Seen::new(container, format!("container={name}")));
    }
    by_control_group(probe).or_else(|| by_mounts(probe))
}

/// Names in paths of control groups and mounts, and who gives them.
const NAMES: [(&str, Container); 7] = [
    ("kubepods", Container::Kubernetes),
    ("/kubelet/pods/", Container::Kubernetes),
    ("libpod", Container::Podman),
    ("/containers/storage/", Container::Podman),
    ("docker", Container::Docker),
    ("containerd", Container::Containerd),
    ("/lxc/", Container::Lxc),
];

fn by_control_group(probe: &Probe) -> Option<Seen<Container>> {
    const FILE: &str = "/proc/self/cgroup";
    let text = probe.read(FILE)?;
    // `system.slice/docker.service` is the daemon, on a machine that is no container.
    let lines = text.lines().filter(|line| !line.ends_with(".service"));
    let paths: Vec<_> = lines.filter_map(|line| line.rsplit(':').next()).collect();
    named(&paths).map(|(container, name)| Seen::new(container, format!("{name} in {FILE}")))
}

/// Behind a namespace of control groups all paths are `/`; but a container's root and its names come from its engine. A
/// machine that runs containers has their mounts too, so only these few count.
fn by_mounts(probe: &Probe) -> Option<Seen<Container>> {
    const FILE: &str = "/proc/self/mountinfo";
    const POINTS: [&str; 4] = ["/", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
    let text = probe.read(FILE)?;
    let of_interest = |line: &&str| {
        let point = line.split_whitespace().nth(4);
        point.is_some_and(|point| POINTS.contains(&point))
    };
    let lines: Vec<_> = text.lines().filter(of_interest).collect();
    named(&lines).map(|(container, name)| Seen::new(container, format!("{name} in {FILE}")))
}

fn named(lines: &[&str]) -> Option<(Container, &'static str)> {
    let is_named = |name: &str| lines.iter().any(|line| line.contains(name));
    let (name, container) = NAMES.into_iter().find(|(name, _)| is_named(name))?;
    Some((container, name.trim_matches('/')))
}
