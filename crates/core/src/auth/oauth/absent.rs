//! Stand-in for builds without the feature `oauth`. A configuration with `auth.oauth` is rejected at start.

mod config;
mod facade;
mod preset;

use std::collections::BTreeMap;
use std::convert::Infallible;

pub(crate) use config::EndpointAudiences;
pub use config::{
    DpopConfig, IntrospectionConfig, IntrospectionMethod, IssuerConfig, OAuthConfig,
    OAuthSetupError,
};
pub use facade::{AllowConfig, FacadeClientConfig, FacadeConfig, FacadeSetupError};
pub use preset::Preset;

use super::credential_cache::{Cacheable, Epoch};
use super::scopes::Implied;
use super::{AuthMethod, AuthOutcome, Credentials};
use crate::telemetry;

/// Uninhabited: this build verifies no access tokens.
#[derive(Clone, Debug)]
pub struct Tokens(Infallible);

impl Tokens {
    pub(super) const DPOP_ALGORITHMS: &'static [&'static str] = &[];

    pub(crate) fn new(
        _: &OAuthConfig,
        _: &Implied,
        _: Option<&str>,
    ) -> Result<Self, OAuthSetupError> {
        Err(OAuthSetupError::NotBuilt)
    }

    pub(crate) fn with_endpoints(self, _: Vec<EndpointAudiences>) -> Self {
        self
    }

    pub fn set_implied_scopes(&self, _: &BTreeMap<String, Vec<String>>) {
        match self.0 {}
    }

    pub(super) fn noting(self, _: &Epoch) -> Self {
        self
    }

    pub(crate) fn keep_tokens(&self) {
        match self.0 {}
    }

    pub fn hold(&self, _: &str) {
        match self.0 {}
    }

    pub fn issuers(&self) -> Vec<String> {
        match self.0 {}
    }

    pub fn show(&self, _: &telemetry::Metrics) {
        match self.0 {}
    }

    pub async fn refresh_keys(&self, _: Option<&telemetry::ReadinessGate>) -> Infallible {
        match self.0 {}
    }
}

impl AuthMethod for Tokens {
    fn judge(&self, _: &Credentials<'_>) -> AuthOutcome {
        match self.0 {}
    }
}

impl Cacheable for Tokens {
    fn holds_until(&self, _: &Credentials<'_>) -> Option<u64> {
        match self.0 {}
    }
}
