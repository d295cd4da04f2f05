//! Evaluation of a policy without a server.

use std::sync::Arc;

use super::App;
use super::admission::{checked_policy, report_rejected};
use super::build::complete;
use super::error::AppError;
use crate::auth::{Access, Authentication, Classified, Decision, Kind, Policy, Principal, Target};
use crate::catalog::Catalog;
use crate::seal::KeyRing;

/// Evaluator for the access rules of an application: it decides about items and gives the reason.
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
    /// Evaluates the access rules of the configuration for the items of this application.
    ///
    /// # Errors
    ///
    /// Invalid tools or settings.
    pub fn policy(mut self) -> Result<PolicyTester, AppError> {
        let (config, _) = self.take_config()?;
        let auth = self.authentication(&config)?;
        let mut items = self.offers;
        complete(items.need_runtime(&config), |background| async move {
            let keys = Arc::new(KeyRing::new(&config.seal)?);
            items.prepare(&config, &keys, &background)?;
            let loaded = items.load(&config, None).await?;
            let catalog = items.catalog(&loaded)?;
            let completeness = items.completeness(&loaded);
            report_rejected(&catalog, completeness, &items.origins)?;
            checked_policy(&config.policy, &catalog, completeness)?;
            Ok(PolicyTester {
                policy: Policy::build(&config.policy)?,
                catalog,
                auth,
            })
        })
    }
}

impl PolicyTester {
    /// Returns the principal of a name, with the scopes and groups of its API key, if it has one.
    pub fn principal(&self, name: &str) -> Principal {
        let holder = self.auth.holder(name);
        match (holder, name) {
            (Some(holder), _) => Arc::unwrap_or_clone(holder),
            (None, "local") => Principal::local(),
            (None, name) => Principal::new(name),
        }
    }

    /// Decides about an item. Returns `None` if there is no item of the name; URIs of resources need not exist.
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

    /// Classifies a tool as reading or writing, with the reason. Returns `None` if there is no such tool.
    pub fn classify(&self, tool: &str) -> Option<Classified> {
        let definition = self.catalog.tool(tool)?.tool.definition();
        let said = definition.annotations.read_only_hint;
        Some(self.policy.classify(tool, said))
    }

    /// Returns the names of all tools.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.catalog.names()
    }
}
