//! Detection of the kind of deployment.

use super::{Container, Detection, Platform, Probe};

/// A kind of deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A developer's machine.
    Development,
    /// A test run.
    Ci,
    /// Staging.
    Staging,
    /// Production.
    Production,
    /// Production on instances that start and stop with the load.
    Serverless,
}

impl Kind {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::Ci => "ci",
            Self::Staging => "staging",
            Self::Production => "production",
            Self::Serverless => "serverless",
        }
    }
}

/// Variables by which people declare the kind.
const SAID: [&str; 7] = [
    "ENVIRONMENT",
    "APP_ENV",
    "DEPLOYMENT_ENVIRONMENT",
    "ENV",
    "RAILWAY_ENVIRONMENT_NAME",
    "VERCEL_ENV",
    "NODE_ENV",
];

/// Variables that CI services set.
const CI: [&str; 11] = [
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "CIRCLECI",
    "BUILDKITE",
    "TRAVIS",
    "DRONE",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
    "BITBUCKET_BUILD_NUMBER",
    "CI",
];

pub(super) fn detect(
    probe: &Probe,
    cloud: Option<&Detection<Platform>>,
    container: Option<&Detection<Container>>,
) -> Detection<Kind> {
    for name in CI {
        if let Some(value) = probe.variable(name).filter(|value| *value != "false") {
            return Detection::new(Kind::Ci, format!("{name}={value}"));
        }
    }
    for name in SAID {
        if let Some((value, kind)) = probe
            .variable(name)
            .and_then(|value| Some((value, said(value)?)))
        {
            return Detection::new(kind, format!("{name}={value}"));
        }
    }
    match (cloud, container) {
        (Some(cloud), _) if cloud.value.is_serverless() => {
            Detection::new(Kind::Serverless, cloud.evidence.clone())
        }
        (Some(cloud), _) if cloud.value.is_managed() => {
            Detection::new(Kind::Production, cloud.evidence.clone())
        }
        (_, Some(container)) => Detection::new(Kind::Production, container.evidence.clone()),
        (_, None) => Detection::new(Kind::Development, "no container and no platform"),
    }
}

fn said(value: &str) -> Option<Kind> {
    let value = value.to_ascii_lowercase();
    let begins = |names: &[&str]| names.iter().any(|name| value.starts_with(name));
    if begins(&["prod", "live"]) {
        Some(Kind::Production)
    } else if begins(&["stag", "preprod", "pre-prod", "preview", "uat", "qa"]) {
        Some(Kind::Staging)
    } else if begins(&["dev", "local"]) {
        Some(Kind::Development)
    } else if begins(&["test", "ci"]) {
        Some(Kind::Ci)
    } else {
        None
    }
}
