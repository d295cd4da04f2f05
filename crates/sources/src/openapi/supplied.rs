//! Parameters that the configuration sets, so that they are not arguments.

use super::config::OpenApiSourceConfig;
use super::request::Location;
use super::security::Proofs;

/// Locations and names of the parameters that every request of an operation gets from the configuration.
#[derive(Debug, Default)]
pub(super) struct SuppliedParameters(Vec<(Location, String)>);

impl SuppliedParameters {
    pub(super) fn new(config: &OpenApiSourceConfig, proofs: &Proofs) -> Self {
        let (auth, forward) = (&config.auth, &config.forward);
        let assertion = forward.assertion.header.as_ref();
        let assertion = assertion.filter(|_| forward.assertion.audience.is_some());
        let headers = config.headers.keys().chain(forward.headers.keys());
        let headers = headers
            .chain(assertion)
            .chain(auth.header.as_ref().map(|secret| &secret.name));
        let headers = headers.map(|name| (Location::Header, name.clone()));
        let query = auth.query.iter();
        let query = query.map(|secret| (Location::Query, secret.name.clone()));
        Self(headers.chain(query).chain(proofs.parameters()).collect())
    }

    pub(super) fn has(&self, location: Location, name: &str) -> bool {
        self.0.iter().any(|(at, supplied)| {
            *at == location
                && match location {
                    Location::Header => supplied.eq_ignore_ascii_case(name),
                    _ => supplied == name,
                }
        })
    }
}
