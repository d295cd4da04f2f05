//! Detection on simulated platforms, with the settings that an expert would choose.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

const MIB: u64 = 1024 * 1024;

/// A place, by the variables and files that are found there.
struct Place {
    name: &'static str,
    probe: Probe,
    cloud: Option<Platform>,
    container: Option<Container>,
    kind: Kind,
    /// `http.host`, `http.port`, `transport`, `http.workers`, `log.format`, seconds of grace and of delay.
    settings: [Value; 7],
}

fn machine(cores: usize, memory_mib: u64) -> Machine {
    Machine {
        cores,
        memory_bytes: memory_mib * MIB,
    }
}

fn probe(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Probe {
    let probe = Probe::of(variables.iter().copied()).with_machine(machine(8, 32 * 1024));
    files
        .iter()
        .fold(probe, |probe, (path, text)| probe.with_file(*path, *text))
}

const LIMITED: [(&str, &str); 3] = [
    ("/proc/self/cgroup", "0::/\n"),
    ("/sys/fs/cgroup/cpu.max", "200000 100000\n"),
    ("/sys/fs/cgroup/memory.max", "268435456\n"),
];

fn in_kubernetes(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Probe {
    let mut all = vec![
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
        ("HOSTNAME", "weather-6d4cf56db6-abcde"),
        // For Services called `longshore` and `mcp`.
        ("LONGSHORE_PORT", "tcp://10.96.0.7:80"),
        ("MCP_PORT", "tcp://10.96.0.8:80"),
    ];
    all.extend(variables);
    let mut seen = LIMITED.to_vec();
    seen.extend(files);
    probe(&all, &seen)
}

fn places() -> Vec<Place> {
    let http = |host: &str, port: u16, workers: u64, grace: u32, delay: u32| {
        [
            json!(host),
            json!(port),
            json!("http"),
            json!(workers),
            json!("json"),
            json!(grace),
            json!(delay),
        ]
    };
    // `PORT` itself is no detector's: it outdoes them as what the platform says.
    let managed = |workers, grace| http("0.0.0.0", 8080, workers, grace, 0);
    let on = |name, probe, cloud, kind, settings| Place {
        name,
        probe,
        cloud: Some(cloud),
        container: None,
        kind,
        settings,
    };
    let in_pod = |name, probe, cloud| Place {
        name,
        probe,
        cloud,
        container: Some(Container::Kubernetes),
        kind: Kind::Production,
        settings: http("0.0.0.0", 8080, 2, 30, 5),
    };
    vec![
        on(
            "Cloud Run",
            probe(
                &[("K_SERVICE", "weather"), ("K_REVISION", "weather-00001"), ("K_CONFIGURATION", "weather"), ("PORT", "8080")],
                &[],
            ),
            Platform::CloudRun,
            Kind::Serverless,
            managed(8, 10),
        ),
        in_pod(
            "GKE",
            in_kubernetes(
                &[],
                &[("/sys/class/dmi/id/sys_vendor", "Google\n"), ("/sys/class/dmi/id/product_name", "Google Compute Engine\n")],
            ),
            Some(Platform::KubernetesEngine),
        ),
        in_pod(
            "EKS",
            in_kubernetes(
                &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"), ("AWS_REGION", "eu-central-1")],
                &[],
            ),
            Some(Platform::Eks),
        ),
        in_pod("EKS by its nodes", in_kubernetes(&[], &[("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")]), Some(Platform::Eks)),
        in_pod(
            "AKS",
            in_kubernetes(&[("AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/azure/tokens/azure-identity-token")], &[]),
            Some(Platform::Aks),
        ),
        in_pod("Knative", in_kubernetes(&[("K_SERVICE", "weather"), ("PORT", "8080")], &[]), None),
        on(
            "ECS on EC2",
            probe(&[("AWS_EXECUTION_ENV", "AWS_ECS_EC2"), ("ECS_CONTAINER_METADATA_URI_V4", "http://169.254.170.2/v4/x")], &LIMITED),
            Platform::Ecs,
            Kind::Production,
            managed(2, 30),
        ),
        on(
            "Fargate",
            probe(&[("AWS_EXECUTION_ENV", "AWS_ECS_FARGATE"), ("ECS_CONTAINER_METADATA_URI_V4", "http://169.254.170.2/v4/x")], &[]),
            Platform::Fargate,
            Kind::Production,
            managed(8, 30),
        ),
        on(
            "App Runner",
            probe(&[("AWS_EXECUTION_ENV", "AWS_ECS_FARGATE"), ("AWSAPPRUNNER_SERVICE", "weather"), ("PORT", "8080")], &[]),
            Platform::AppRunner,
            Kind::Production,
            managed(8, 30),
        ),
        on(
            "Lambda with the web adapter",
            probe(
                &[
                    ("AWS_LAMBDA_FUNCTION_NAME", "weather"),
                    ("AWS_EXECUTION_ENV", "AWS_Lambda_Image"),
                    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
                    ("AWS_LWA_PORT", "8000"),
                ],
                &[],
            ),
            Platform::Lambda,
            Kind::Serverless,
            http("0.0.0.0", 8000, 8, 5, 0),
        ),
        on(
            "Azure Container Apps",
            probe(
                &[
                    ("CONTAINER_APP_NAME", "weather"),
                    ("CONTAINER_APP_REVISION", "weather--1"),
                    ("CONTAINER_APP_REPLICA_NAME", "weather--1-abc"),
                    ("CONTAINER_APP_PORT", "8000"),
                ],
                &LIMITED,
            ),
            Platform::ContainerApps,
            Kind::Production,
            http("0.0.0.0", 8000, 2, 30, 0),
        ),
        on(
            "Azure App Service",
            probe(&[("WEBSITE_SITE_NAME", "weather"), ("WEBSITES_PORT", "8000")], &[]),
            Platform::AppService,
            Kind::Production,
            http("0.0.0.0", 8000, 8, 5, 0),
        ),
        on(
            "Fly",
            probe(&[("FLY_APP_NAME", "weather"), ("FLY_REGION", "fra"), ("FLY_MACHINE_ID", "148e")], &[]),
            Platform::Fly,
            Kind::Production,
            managed(8, 5),
        ),
        on("Render", probe(&[("RENDER", "true"), ("RENDER_SERVICE_NAME", "weather"), ("PORT", "10000")], &[]), Platform::Render, Kind::Production, managed(8, 30)),
        on(
            "Railway",
            probe(&[("RAILWAY_ENVIRONMENT_ID", "x"), ("RAILWAY_ENVIRONMENT_NAME", "staging"), ("RAILWAY_DEPLOYMENT_DRAINING_SECONDS", "20"), ("PORT", "3456")], &[]),
            Platform::Railway,
            Kind::Staging,
            managed(8, 20),
        ),
        on("Heroku", probe(&[("DYNO", "web.1"), ("PORT", "34567")], &[]), Platform::Heroku, Kind::Production, managed(8, 30)),
        on("Vercel", probe(&[("VERCEL", "1"), ("VERCEL_ENV", "preview")], &[]), Platform::Vercel, Kind::Staging, managed(8, 5)),
        Place {
            name: "Docker",
            probe: probe(&[("HOSTNAME", "abc")], &[&LIMITED[..], &[("/.dockerenv", "")]].concat()),
            cloud: None,
            container: Some(Container::Docker),
            kind: Kind::Production,
            settings: http("0.0.0.0", 8080, 2, 10, 0),
        },
        Place {
            name: "Podman",
            probe: probe(&[("container", "podman")], &[("/run/.containerenv", "")]),
            cloud: None,
            container: Some(Container::Podman),
            kind: Kind::Production,
            settings: http("0.0.0.0", 8080, 8, 10, 0),
        },
        Place {
            name: "containerd, by its mounts alone",
            probe: probe(&[], &[("/proc/self/mountinfo", "1 0 0:1 / / rw - overlay overlay rw,lowerdir=/var/lib/containerd/x\n")]),
            cloud: None,
            container: Some(Container::Containerd),
            kind: Kind::Production,
            settings: http("0.0.0.0", 8080, 8, 10, 0),
        },
        Place {
            name: "a laptop, of somebody with accounts everywhere",
            probe: probe(
                &[("HOME", "/home/a"), ("AWS_REGION", "eu-central-1"), ("AWS_ACCESS_KEY_ID", "x"), ("GOOGLE_CLOUD_PROJECT", "x"), ("AZURE_TENANT_ID", "x")],
                &[
                    ("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n"),
                    ("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:2 / /var/lib/docker/overlay2/x rw - overlay overlay rw\n"),
                ],
            )
            .at_terminal(),
            cloud: None,
            container: None,
            kind: Kind::Development,
            settings: [Value::Null, Value::Null, Value::Null, json!(8), json!("text"), json!(30), json!(0)],
        },
        Place {
            name: "a laptop, started by a client",
            probe: probe(&[("HOME", "/home/a")], &[]).with_standard_streams(StandardStreams::Pipes),
            cloud: None,
            container: None,
            kind: Kind::Development,
            settings: [Value::Null, Value::Null, json!("stdio"), json!(8), Value::Null, json!(30), json!(0)],
        },
        Place {
            name: "a virtual machine",
            probe: probe(&[("HOME", "/root")], &[("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")]),
            cloud: Some(Platform::Ec2),
            container: None,
            kind: Kind::Development,
            settings: [Value::Null, Value::Null, Value::Null, json!(8), Value::Null, json!(30), json!(0)],
        },
        Place {
            name: "CI",
            probe: probe(&[("CI", "true"), ("GITHUB_ACTIONS", "true")], &[]).with_standard_streams(StandardStreams::Pipes),
            cloud: None,
            container: None,
            kind: Kind::Ci,
            settings: [Value::Null, Value::Null, Value::Null, json!(8), Value::Null, json!(30), json!(0)],
        },
    ]
}

#[test]
fn words_that_others_use_too_are_no_platform() {
    for (name, value) in [
        ("RENDER", "opengl"),
        ("VERCEL", "0"),
        ("NETLIFY", "false"),
        ("CF_PAGES", ""),
    ] {
        let seen = Environment::detect(&probe(&[(name, value)], &[]));
        assert!(seen.cloud.is_none(), "{name}={value}");
    }
}

#[test]
fn every_platform_is_known_and_gets_what_an_expert_would_choose() {
    for place in places() {
        let seen = Environment::detect(&place.probe);
        let name = place.name;
        assert_eq!(
            seen.cloud.as_ref().map(|seen| seen.value),
            place.cloud,
            "{name}"
        );
        assert_eq!(
            seen.container.as_ref().map(|seen| seen.value),
            place.container,
            "{name}"
        );
        assert_eq!(
            seen.kind.value, place.kind,
            "{name}: {}",
            seen.kind.evidence
        );
        let settings: BTreeMap<_, _> = seen
            .settings()
            .into_iter()
            .map(|detected| {
                assert!(
                    !detected.evidence.is_empty(),
                    "{name}: {}",
                    detected.setting
                );
                (detected.setting, detected.value)
            })
            .collect();
        let names = [
            "http.host",
            "http.port",
            "transport",
            "http.workers",
            "log.format",
            "drain.grace_seconds",
            "drain.delay_seconds",
        ];
        for (setting, expected) in names.iter().zip(&place.settings) {
            assert_eq!(
                settings.get(setting).unwrap_or(&Value::Null),
                expected,
                "{name}: {setting}"
            );
        }
    }
}

#[test]
fn little_memory_makes_small_budgets() {
    let budgets = |memory: &str| {
        let probe = Probe::of([("A", "b")])
            .with_machine(machine(2, 8 * 1024))
            .with_file("/proc/self/cgroup", "0::/\n")
            .with_file("/sys/fs/cgroup/memory.max", memory);
        let settings = Environment::detect(&probe).settings();
        [
            "http.limits.connections",
            "server.contents_cache_bytes",
            "state.memory_bytes",
            "limits.memory_bytes",
        ]
        .map(|name| {
            let found = settings.iter().find(|detected| detected.setting == name);
            found.and_then(|detected| detected.value.as_u64())
        })
    };
    assert_eq!(
        budgets("134217728"),
        [Some(1024), Some(8 * MIB), Some(16 * MIB), Some(128 * MIB)]
    );
    assert_eq!(
        budgets("536870912"),
        [Some(4096), None, None, Some(512 * MIB)]
    );
    assert_eq!(budgets("max"), [None; 4]);
}

#[test]
fn an_address_of_the_newer_kind_is_listened_to_where_there_is_no_other() {
    let probe = Probe::of([("KUBERNETES_SERVICE_HOST", "fd00::1")]);
    let host = Environment::detect(&probe).network.host.expect("a host");
    assert_eq!(host.value, "::");
}

#[test]
fn containers_are_known_by_their_marks() {
    assert!(!Probe::of([("HOME", "/")]).is_in_container());
    assert!(Probe::of([("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).is_in_container());
    assert!(Probe::of([("K_SERVICE", "weather")]).is_in_container());
    assert!(!Probe::of([("K_SERVICE", "")]).is_in_container());
    assert!(Probe::of([("FLY_APP_NAME", "weather")]).is_orchestrated());
    assert!(Probe::of([("container", "podman")]).is_in_container());
    assert!(!Probe::of([("container", "podman")]).is_orchestrated());
    let daemon =
        Probe::of([("A", "b")]).with_file("/proc/self/cgroup", "0::/system.slice/docker.service\n");
    assert!(!daemon.is_in_container());
}

#[test]
fn telemetry_hears_who_and_where() {
    let id = "0123456789abcdef".repeat(4);
    let probe = in_kubernetes(
        &[
            ("POD_NAMESPACE", "tools"),
            ("NODE_NAME", "node-1"),
            ("OTEL_SERVICE_NAME", "weather"),
            ("AWS_REGION", "eu-central-1"),
            (
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "/var/run/secrets/eks.amazonaws.com/x",
            ),
        ],
        &[(
            "/proc/self/mountinfo",
            &format!(
                "1 0 0:1 /var/lib/kubelet/pods/x/containers/{id}/hostname /etc/hostname rw - ext4 x rw\n"
            ),
        )],
    );
    let attributes: BTreeMap<_, _> = Environment::detect(&probe)
        .resource_attributes(&probe)
        .into_iter()
        .collect();
    for (name, value) in [
        ("service.name", "weather"),
        ("cloud.provider", "aws"),
        ("cloud.platform", "aws_eks"),
        ("cloud.region", "eu-central-1"),
        ("k8s.pod.name", "weather-6d4cf56db6-abcde"),
        ("k8s.namespace.name", "tools"),
        ("k8s.node.name", "node-1"),
        ("container.id", &id),
        ("deployment.environment.name", "production"),
    ] {
        assert_eq!(
            attributes.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    // A developer's region says nothing of where the process is.
    let laptop = Probe::of([("AWS_REGION", "eu-central-1")]);
    let attributes = Environment::detect(&laptop).resource_attributes(&laptop);
    assert!(
        attributes
            .iter()
            .all(|(name, _)| !name.starts_with("cloud."))
    );
}

#[test]
fn an_instance_has_the_name_of_its_platform_or_container_and_none_of_a_shared_host() {
    let attribute = |probe: &Probe, name: &str| {
        let attributes = Environment::detect(probe).resource_attributes(probe);
        let mut found = attributes.into_iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value)
    };
    for (variables, instance) in [
        (
            &[("FLY_MACHINE_ID", "148e"), ("HOSTNAME", "node-1")][..],
            Some("148e"),
        ),
        (
            &[
                ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
                // The pod uses the network of its node.
                ("K8S_POD_NAME", "weather-6d4cf-abcde"),
                ("HOSTNAME", "node-1"),
            ],
            Some("weather-6d4cf-abcde"),
        ),
        (
            &[("container", "podman"), ("HOSTNAME", "3f2a")],
            Some("3f2a"),
        ),
        (&[("HOSTNAME", "laptop")], None),
    ] {
        let probe = Probe::of(variables.iter().copied());
        let found = attribute(&probe, "service.instance.id");
        assert_eq!(found.as_deref(), instance, "{variables:?}");
    }
    let system = Probe::of([("A", "b")]).with_host_name("laptop");
    assert_eq!(attribute(&system, "host.name").as_deref(), Some("laptop"));
    let both = Probe::of([("HOSTNAME", "a")]).with_host_name("b");
    assert_eq!(attribute(&both, "host.name").as_deref(), Some("a"));
    assert_eq!(attribute(&Probe::of([("A", "b")]), "host.name"), None);
}
