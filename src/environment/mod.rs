//! Where the process finds itself: environment variables and files, behind something that tests can fake.

mod address;
mod list;
mod secret;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use address::address;
pub(crate) use list::list;
pub use secret::Secret;

/// The environment, as detectors and the configuration see it.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    variables: BTreeMap<String, String>,
    /// Root of the file system that is looked at; `None` where nothing is to be found.
    root: Option<PathBuf>,
}

impl Probe {
    /// The real environment of this process. Variables that are not UTF-8 are left out.
    pub fn real() -> Self {
        let utf8 = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(utf8).collect(),
            root: Some(PathBuf::from("/")),
        }
    }

    /// An environment of these variables and no files.
    pub fn of<K: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            root: None,
        }
    }

    /// A variable's value; an empty one counts as absent.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether a variable is there, be it empty.
    pub fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// The variables whose names begin with `prefix`, in the order of their names.
    pub fn variables<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables
            .iter()
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether the process runs in a container, where the network around it is somebody's decision.
    pub fn is_in_container(&self) -> bool {
        let marks = ["/.dockerenv", "/run/.containerenv"];
        let exists = |path: &&str| {
            self.root
                .as_ref()
                .is_some_and(|root| root.join(path.trim_start_matches('/')).exists())
        };
        self.is_orchestrated() || self.variable("container").is_some() || marks.iter().any(exists)
    }

    /// Whether a platform runs the process, Kubernetes or Cloud Run, and nobody watches it start.
    pub fn is_orchestrated(&self) -> bool {
        self.variable("KUBERNETES_SERVICE_HOST").is_some() || self.variable("K_SERVICE").is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_marks() {
        assert!(!Probe::of([("HOME", "/")]).is_in_container());
        assert!(Probe::of([("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).is_in_container());
        assert!(Probe::of([("K_SERVICE", "weather")]).is_in_container());
        assert!(!Probe::of([("K_SERVICE", "")]).is_in_container());
        assert!(Probe::of([("container", "podman")]).is_in_container());
        assert!(!Probe::of([("container", "podman")]).is_orchestrated());
    }
}
