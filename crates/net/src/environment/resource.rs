//! Resource attributes, after the OpenTelemetry conventions.

use super::{Container, Environment, Platform, Probe};

/// Name of this instance for operators: that of its pod, machine or host.
pub fn instance_name(probe: &Probe) -> Option<String> {
    let names = [INSTANCE_NAMES, &["K8S_POD_NAME", "HOSTNAME"]].concat();
    let name = names.into_iter().find_map(|name| probe.variable(name));
    name.map(str::to_owned)
}

/// Variables in which platforms name an instance.
const INSTANCE_NAMES: &[&str] = &[
    "FLY_MACHINE_ID",
    "CONTAINER_APP_REPLICA_NAME",
    "RAILWAY_REPLICA_ID",
    "RENDER_INSTANCE_ID",
    "WEBSITE_INSTANCE_ID",
    "DYNO",
    "POD_NAME",
];

impl Environment {
    /// Returns the known attributes of the process and its host.
    pub fn resource_attributes(&self, probe: &Probe) -> Vec<(&'static str, String)> {
        let mut attributes: Vec<(&'static str, String)> = Vec::new();
        let mut set = |name, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                attributes.push((name, value));
            }
        };
        let first = |names: &[&str]| {
            let value = names.iter().find_map(|name| probe.variable(name));
            value.map(str::to_owned)
        };
        set(
            "service.name",
            self.project.as_ref().map(|project| project.value.clone()),
        );
        set(
            "deployment.environment.name",
            Some(self.kind.value.name().to_owned()),
        );
        set("host.name", probe.host_name().map(str::to_owned));
        set("process.pid", Some(std::process::id().to_string()));
        let platform = self.cloud.as_ref().map(|cloud| cloud.value);
        let (provider, name) = platform.map_or((None, None), Platform::telemetry_names);
        set("cloud.provider", provider.map(str::to_owned));
        set("cloud.platform", name.map(str::to_owned));
        set(
            "cloud.region",
            first(&[
                "CLOUD_RUN_REGION",
                "GOOGLE_CLOUD_REGION",
                "AWS_REGION",
                "AWS_DEFAULT_REGION",
                "REGION_NAME",
                "FLY_REGION",
                "VERCEL_REGION",
                "RAILWAY_REPLICA_REGION",
            ])
            .filter(|_| platform.is_some()),
        );
        set(
            "cloud.account.id",
            first(&["GOOGLE_CLOUD_PROJECT"]).filter(|_| platform.is_some()),
        );
        set(
            "faas.name",
            first(&["AWS_LAMBDA_FUNCTION_NAME", "K_SERVICE", "CLOUD_RUN_JOB"]),
        );
        set(
            "faas.version",
            first(&["AWS_LAMBDA_FUNCTION_VERSION", "K_REVISION"]),
        );
        // The name of a machine is not unique: it may run several processes.
        let pod = || first(&["K8S_POD_NAME"]);
        let own_host = || first(&["HOSTNAME"]).filter(|_| probe.is_in_container());
        set(
            "service.instance.id",
            first(INSTANCE_NAMES).or_else(pod).or_else(own_host),
        );
        if self
            .container
            .as_ref()
            .is_some_and(|container| container.value == Container::Kubernetes)
        {
            // A pod has its own host name, unless it uses the host network.
            set(
                "k8s.pod.name",
                first(&["POD_NAME", "K8S_POD_NAME", "HOSTNAME"]),
            );
            let namespace = first(&["POD_NAMESPACE", "K8S_NAMESPACE_NAME"]);
            set(
                "k8s.namespace.name",
                namespace.or_else(|| probe.read(NAMESPACE).map(|text| text.trim().to_owned())),
            );
            set("k8s.node.name", first(&["NODE_NAME", "K8S_NODE_NAME"]));
        }
        set("container.id", container_id(probe));
        attributes
    }
}

const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Finds the container ID: 64 hexadecimal digits in the path of a control group or mount.
fn container_id(probe: &Probe) -> Option<String> {
    let texts = ["/proc/self/cgroup", "/proc/self/mountinfo"];
    texts.into_iter().find_map(|file| {
        let text = probe.read(file)?;
        let lines = text
            .lines()
            .filter(|line| file.ends_with("cgroup") || line.contains("/hostname"));
        lines
            .flat_map(|line| line.split(|c: char| !c.is_ascii_hexdigit()))
            .find(|part| part.len() == 64)
            .map(str::to_owned)
    })
}
