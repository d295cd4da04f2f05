//! Snapshots of `longshore config explain` on real platforms, with the evidence for each value.

use serde_json::{Value, json};

use super::{Flags, Loaded, Origin};
use crate::environment::{Machine, Probe};

const GIB: u64 = 1 << 30;

fn probe(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Probe {
    let machine = Machine {
        cores: 8,
        memory_bytes: 16 * GIB,
    };
    let probe = Probe::of(variables.iter().copied()).with_machine(machine);
    files
        .iter()
        .fold(probe, |probe, (path, text)| probe.with_file(*path, *text))
}

/// Two cores and 512 MiB.
const LIMITS: [(&str, &str); 3] = [
    ("/proc/self/cgroup", "0::/\n"),
    ("/sys/fs/cgroup/cpu.max", "200000 100000\n"),
    ("/sys/fs/cgroup/memory.max", "536870912\n"),
];

const POD: [(&str, &str); 3] = [
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("KUBERNETES_SERVICE_PORT", "443"),
    ("HOSTNAME", "weather-6d4cf56db6-abcde"),
];

/// A platform and its expected values: host, port, workers, log format, grace period and delay of shutdown.
#[derive(Clone, Copy)]
struct Expected {
    host: &'static str,
    port: u16,
    workers: u64,
    format: &'static str,
    grace: u32,
    delay: u32,
    /// Settings that were set explicitly.
    said: &'static [&'static str],
}

const SERVED: Expected = Expected {
    host: "0.0.0.0",
    port: 8080,
    workers: 2,
    format: "json",
    grace: 30,
    delay: 0,
    said: &[],
};

fn platforms() -> Vec<(&'static str, Probe, Expected)> {
    let pod = |more: &[(&'static str, &'static str)], files: &[(&'static str, &'static str)]| {
        probe(&[&POD, more].concat(), &[&LIMITS, files].concat())
    };
    let in_pod = Expected { delay: 5, ..SERVED };
    vec![
        (
            "Cloud Run",
            probe(
                &[
                    ("K_SERVICE", "weather"),
                    ("K_REVISION", "weather-00001"),
                    ("K_CONFIGURATION", "weather"),
                    ("PORT", "8081"),
                ],
                &LIMITS,
            ),
            Expected {
                port: 8081,
                grace: 10,
                said: &["http.port"],
                ..SERVED
            },
        ),
        (
            "GKE",
            pod(
                &[],
                &[("/sys/class/dmi/id/product_name", "Google Compute Engine\n")],
            ),
            in_pod,
        ),
        (
            "EKS",
            pod(
                &[(
                    "AWS_WEB_IDENTITY_TOKEN_FILE",
                    "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
                )],
                &[],
            ),
            in_pod,
        ),
        (
            "ECS on Fargate",
            probe(
                &[
                    ("AWS_EXECUTION_ENV", "AWS_ECS_FARGATE"),
                    ("ECS_CONTAINER_METADATA_URI_V4", "http://169.254.170.2/v4/x"),
                ],
                &LIMITS,
            ),
            SERVED,
        ),
        (
            "App Runner",
            probe(
                &[
                    ("AWS_EXECUTION_ENV", "AWS_ECS_FARGATE"),
                    ("AWSAPPRUNNER_SERVICE", "weather"),
                    ("PORT", "8080"),
                ],
                &LIMITS,
            ),
            Expected {
                said: &["http.port"],
                ..SERVED
            },
        ),
        (
            "Azure Container Apps",
            probe(
                &[
                    ("CONTAINER_APP_NAME", "weather"),
                    ("CONTAINER_APP_REVISION", "weather--1"),
                    ("CONTAINER_APP_REPLICA_NAME", "weather--1-abc"),
                    ("CONTAINER_APP_PORT", "8000"),
                ],
                &LIMITS,
            ),
            Expected {
                port: 8000,
                ..SERVED
            },
        ),
        (
            "Fly",
            probe(
                &[
                    ("FLY_APP_NAME", "weather"),
                    ("FLY_MACHINE_ID", "148e"),
                    ("FLY_REGION", "fra"),
                ],
                &[],
            ),
            Expected {
                workers: 8,
                grace: 5,
                ..SERVED
            },
        ),
        (
            "a laptop",
            probe(&[("HOME", "/home/ada")], &[]).at_terminal(),
            Expected {
                host: "127.0.0.1",
                port: 3000,
                workers: 8,
                format: "text",
                ..SERVED
            },
        ),
        (
            "CI",
            probe(&[("CI", "true"), ("GITHUB_ACTIONS", "true")], &[]),
            Expected {
                host: "127.0.0.1",
                port: 3000,
                workers: 8,
                format: "text",
                ..SERVED
            },
        ),
    ]
}

#[test]
fn what_is_explained_is_what_an_expert_would_choose() {
    for (name, probe, expected) in platforms() {
        let loaded = Loaded::read(&Flags::default(), &probe)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let explained = loaded.explain();
        let of = |setting: &str| {
            explained
                .iter()
                .find(|one| one.setting == setting)
                .unwrap_or_else(|| panic!("{name}: {setting} is not explained"))
        };
        let values: [(&str, Value); 7] = [
            ("transport", json!("http")),
            ("http.host", json!(expected.host)),
            ("http.port", json!(expected.port)),
            ("http.workers", json!(expected.workers)),
            ("log.format", json!(expected.format)),
            ("drain.grace_seconds", json!(expected.grace)),
            ("drain.delay_seconds", json!(expected.delay)),
        ];
        for (setting, value) in values {
            let one = of(setting);
            assert_eq!(one.value, value, "{name}: {setting} ({})", one.from);
            match &one.origin {
                Origin::Detected { evidence } => {
                    assert!(!evidence.is_empty(), "{name}: {setting}");
                    assert!(one.from.contains(&**evidence), "{name}: {}", one.from);
                }
                Origin::Default => assert!(
                    expected.host == "127.0.0.1",
                    "{name}: {setting} comes from no file"
                ),
                Origin::Variable { .. } => {
                    assert!(expected.said.contains(&setting), "{name}: {setting}");
                }
                other => panic!("{name}: {setting} is from {other:?}"),
            }
        }
    }
}

#[test]
fn budgets_fit_into_the_memory_that_there_is() {
    for (name, probe, _) in platforms() {
        let loaded = Loaded::read(&Flags::default(), &probe).expect("valid");
        let system = &loaded.environment.system;
        let memory = system.memory_bytes.as_ref().expect("it is known").value;
        let config = &loaded.config;
        let kept = config.state.memory_bytes as u64
            + config.server.contents_cache_bytes as u64
            + config.http.limits.connections as u64 * 16 * 1024;
        assert!(kept < memory, "{name}: {kept} of {memory}");
    }
}
