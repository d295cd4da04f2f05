//! Where the process finds itself: environment variables, files and the machine, and what six detectors make of them.
//!
//! Detectors are pure over a [`Probe`], which tests can fake, and ask nothing over the network. Each reports what it saw.
//! [`Environment::settings`] says which settings follow; the configuration puts them below everything that people say.

mod address;
mod cloud;
mod conflict;
mod container;
mod detect;
mod kind;
mod list;
mod network;
mod probe;
mod project;
mod resource;
mod secret;
mod system;
#[cfg(test)]
mod tests;

pub use address::address;
pub use cloud::{Platform, Provider};
pub use conflict::{Conflict, Conflicts};
pub use container::Container;
pub use detect::{Detected, Environment, Seen};
pub use kind::Kind;
pub use list::list;
pub use network::Network;
pub use probe::{Machine, Probe, StandardStreams};
pub use secret::Secret;
pub use secret::{MASK, SAMPLES};
pub use system::System;

impl Probe {
    /// Whether the process runs in a container or on a platform, where the network around it is somebody's decision.
    pub fn is_in_container(&self) -> bool {
        container::detect(self).is_some() || self.is_orchestrated()
    }

    /// Whether a platform runs the process, Kubernetes or Cloud Run for example, and nobody watches it start.
    pub fn is_orchestrated(&self) -> bool {
        self.variable("KUBERNETES_SERVICE_HOST").is_some()
            || cloud::detect(self).is_some_and(|cloud| cloud.value.is_managed())
    }
}
