//! Detection of the environment: variables, files and the machine.
//!
//! Detectors are pure functions of a [`Probe`], which tests can fake, and use no network. Each reports its evidence.
//! [`Environment::settings`] returns the derived settings, which any explicit setting overrides.

mod clock;
mod cloud;
mod conflict;
mod container;
mod detect;
mod file_stamp;
mod formats;
mod kind;
mod network;
mod probe;
mod project;
mod regular_file;
mod resource;
mod secret;
mod system;
#[cfg(test)]
mod tests;

pub use clock::{seconds_since_1970, unix_seconds};
pub use cloud::{Platform, Provider};
pub use conflict::{Conflict, Conflicts};
pub use container::Container;
pub use detect::{Detected, Detection, Environment};
pub use file_stamp::FileStamp;
pub use formats::{address, list, without_user};
pub use kind::Kind;
pub use network::Network;
pub use probe::{Machine, Probe, StandardStreams};
pub use regular_file::{read_file, read_text_file};
pub use resource::instance_name;
pub use secret::Secret;
pub use secret::{MASK, SAMPLES};
pub use system::{System, cores};

impl Probe {
    /// Returns true in a container or on a platform, which control network access to the process.
    pub fn is_in_container(&self) -> bool {
        self.environment().container.is_some() || self.is_orchestrated()
    }

    /// Returns true if an orchestrator runs the process, for example Kubernetes or Cloud Run.
    pub fn is_orchestrated(&self) -> bool {
        self.variable("KUBERNETES_SERVICE_HOST").is_some()
            || self
                .environment()
                .cloud
                .as_ref()
                .is_some_and(|cloud| cloud.value.is_managed())
    }
}
