//! What a policy says, without a server.

use std::sync::Arc;

use super::binding::policy_for;
use super::compose::tell_of_refused;
use super::{App, AppError};
use crate::auth::{
    Access, Authentication, Classified, Decision, Kind, Place, Policy, Principal, Target,
};
use crate::catalog::Catalog;

/// The rules of an application, and what they are about: who may see and use what, and why.
///
/// ```
/// use longshore::auth::{Kind, Principal};
/// use longshore::{App, Config, tool};
///
/// /// Adds two numbers.
/// #[tool(read_only)]
/// async fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// # fn main() -> longshore::Result {
/// let rules = App::new().tool(add).config(Config::default()).policy()?;
/// assert!(rules.decide(&Principal::new("user:alice"), Kind::Tool, "add").is_some_and(|d| d.allowed));
/// assert_eq!(rules.decide(&Principal::new("user:alice"), Kind::Tool, "subtract"), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PolicyTester {
    policy: Policy,
    catalog: Catalog,
    auth: Authentication,
}

impl App {
    /// What the rules of the configuration say about what this application offers.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with tools or settings.
    pub fn policy(mut self) -> Result<PolicyTester, AppError> {
        let (config, _) = self.take_config()?;
        self.offers.reach(&config)?;
        let mounts = super::mounts::places(&config, &self.beside)?;
        let place = Place {
            mounts: &mounts,
            name: &config.server.name,
            public_url: config.http.public_url.as_deref(),
            trusted: &config.http.trusted_proxies,
            asks_for_certificates: config.http.tls.client_ca.is_some(),
        };
        let proofs = std::mem::take(&mut self.proofs);
        let auth = Authentication::new(&config.auth, place, proofs)?;
        let gathered = self.offers.gather(&config)?;
        let catalog = self.offers.catalog(gathered.clone())?;
        let extent = self.offers.extent(&gathered);
        tell_of_refused(&catalog, extent, &self.offers.places)?;
        policy_for(&config.policy, &catalog, extent)?;
        Ok(PolicyTester {
            policy: Policy::build(&config.policy)?,
            catalog,
            auth,
        })
    }
}

impl PolicyTester {
    /// The principal of a name, with the scopes and groups that the configuration gives it, if it has an API key.
    pub fn principal(&self, name: &str) -> Principal {
        let holder = self.auth.holder(name);
        match (holder, name) {
            (Some(holder), _) => Arc::unwrap_or_clone(holder),
            (None, "local") => Principal::local(),
            (None, name) => Principal::new(name),
        }
    }

    /// What is decided about a thing. `None` if nothing of the name is offered; any URI of a resource is decided about.
    pub fn decide(&self, principal: &Principal, kind: Kind, name: &str) -> Option<Decision> {
        let class = self.policy.class_of(principal);
        match kind {
            Kind::Tool => {
                let definition = self.catalog.tool(name)?.tool.definition();
                let access = self.classify(name)?.access;
                let target = Target { kind, name, access };
                let mut decision = self.policy.decide(&class, target);
                for scope in definition.scopes.iter().rev() {
                    if !decision.requires.contains(scope) {
                        decision.requires.insert(0, scope.clone());
                    }
                }
                Some(decision)
            }
            Kind::Prompt => {
                self.catalog.prompt_names().find(|known| *known == name)?;
                let access = Access::Read;
                let target = Target { kind, name, access };
                Some(self.policy.decide(&class, target))
            }
            Kind::Resource => Some(self.policy.decide_uri(&class, name)),
        }
    }

    /// Whether a tool changes anything, and why it is thought so. `None` if there is no such tool.
    pub fn classify(&self, tool: &str) -> Option<Classified> {
        let definition = self.catalog.tool(tool)?.tool.definition();
        let said = definition.annotations.read_only_hint;
        Some(self.policy.classify(tool, said))
    }

    /// The names of all tools.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.catalog.names()
    }
}
